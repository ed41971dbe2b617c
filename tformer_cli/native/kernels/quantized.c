#include "quantized.h"

#define LARGEST 127.0f

/* The smallest number that counts as a row's largest: a row of zeros has a scale, too. */
#define SMALLEST 1e-30f

/* Between 2²³ and 2²⁴ floats are whole numbers: adding this rounds half to even. */
#define ROUNDER 12582912.0f

static size_t smaller_of(size_t a, size_t b) { return a < b ? a : b; }

void lay_out_quantized_rows(Arena *arena, size_t n_rows, size_t widest, QuantizedRows *rows) {
    const size_t n = smaller_of(n_rows, QUANTIZED_ROWS);
    rows->integers = arena_take(arena, saturated_product(n, row_stride(widest)), sizeof(float));
    rows->scale = arena_take(arena, n, sizeof(float));
}

void pack_integers(const int8_t *matrix, size_t n_outputs, size_t n_inputs, float *panels) {
    for (size_t first = 0; first < n_outputs; first += PANEL_COLUMNS) {
        const size_t n_left = n_outputs - first;
        for (size_t k = 0; k < n_inputs; k++)
            for (size_t column = 0; column < PANEL_COLUMNS; column++)
                *panels++ = column < n_left ? (float)matrix[(first + column) * n_inputs + k] : 0.0f;
    }
}

/* What a row's integers are multiplied by. */
static float scale_of_row(const float *x, size_t width) {
    Vector most = {0}, nothing = {0};
    for (size_t i = 0; i < width; i += LANES) {
        const int n = (int)smaller_of(width - i, LANES);
        const Vector values = n == LANES ? load(x + i) : load_some(x + i, n, 0.0f);
        most = larger(larger(values, -values), most);
        nothing += values - values; /* 0, or no number if one of the values is none or infinite */
    }
    const float largest = largest_lane(most);
    return (largest > SMALLEST ? largest : SMALLEST) / LARGEST + sum_of_lanes(nothing);
}

INLINE Vector rounded(Vector values) {
    return values + broadcast(ROUNDER) - broadcast(ROUNDER);
}

void quantize_rows(const float *x, size_t stride, size_t n_rows, size_t width,
                   QuantizedRows *rows) {
    for (size_t row = 0; row < n_rows; row++, x += stride) {
        float *integers = rows->integers + row * row_stride(width);
        const float scale = scale_of_row(x, width);
        const Vector divisor = broadcast(scale);
        size_t i = 0;
        for (; i + LANES <= width; i += LANES)
            store(integers + i, rounded(load(x + i) / divisor));
        if (i < width) {
            const int n = (int)(width - i);
            store_some(integers + i, rounded(load_some(x + i, n, 0.0f) / divisor), n);
        }
        rows->scale[row] = scale;
    }
}

void multiply_quantized(const PackedMatrix *matrix, const QuantizedRows *rows, size_t n_rows,
                        Epilogue epilogue, float *result, size_t stride) {
    epilogue.row_scale = rows->scale;
    multiply(matrix, rows->integers, row_stride(matrix->n_inputs), n_rows, epilogue, result, stride);
}

void multiply_any(const PackedMatrix *matrix, const float *x, size_t x_stride, size_t n_rows,
                  Epilogue epilogue, float *result, size_t stride, QuantizedRows *room) {
    if (!matrix->scale) {
        multiply(matrix, x, x_stride, n_rows, epilogue, result, stride);
        return;
    }
    for (size_t first = 0; first < n_rows; first += QUANTIZED_ROWS) {
        const size_t n = smaller_of(n_rows - first, QUANTIZED_ROWS);
        Epilogue part = epilogue;
        if (part.residual)
            part.residual += first * stride;
        quantize_rows(x + first * x_stride, x_stride, n, matrix->n_inputs, room);
        multiply_quantized(matrix, room, n, part, result + first * stride, stride);
    }
}
