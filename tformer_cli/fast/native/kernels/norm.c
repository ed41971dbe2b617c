#include "norm.h"

#include <math.h>

#include "vector.h"

static float mean_of(const float *x, size_t width) {
    Vector sum = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        sum += load(x + i);
    if (i < width)
        sum += load_some(x + i, (int)(width - i), 0.0f);
    return sum_of_lanes(sum) / (float)width;
}

static float variance_of(const float *x, size_t width, float mean) {
    const Vector means = broadcast(mean);
    Vector sum = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const Vector deviation = load(x + i) - means;
        sum += deviation * deviation;
    }
    if (i < width) {
        const Vector deviation = load_some(x + i, (int)(width - i), mean) - means;
        sum += deviation * deviation;
    }
    return sum_of_lanes(sum) / (float)width;
}

void normalize(const Norm *norm, const float *x, size_t n_rows, size_t width, size_t stride,
               float epsilon, float *result) {
    for (size_t row = 0; row < n_rows; row++, x += stride, result += stride) {
        const float mean = norm->is_rms ? 0.0f : mean_of(x, width);
        const Vector means = broadcast(mean);
        const Vector factor = broadcast(1.0f / sqrtf(variance_of(x, width, mean) + epsilon));
        size_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            Vector value = (load(x + i) - means) * factor * load(norm->weight + i);
            if (norm->bias)
                value += load(norm->bias + i);
            store(result + i, value);
        }
        if (i < width) {
            const int n = (int)(width - i);
            Vector value = (load_some(x + i, n, mean) - means) * factor;
            value *= load_some(norm->weight + i, n, 0.0f);
            if (norm->bias)
                value += load_some(norm->bias + i, n, 0.0f);
            store_some(result + i, value, n);
        }
    }
}
