#include "attention.h"

#include <math.h>

#include "exponential.h"
#include "matmul.h"

size_t memory_size(size_t n_positions, size_t n_heads, size_t head_width) {
    return n_heads *
           (packed_size(n_positions, head_width) + packed_size(head_width, n_positions));
}

void pack_memory(const Memory *memory, const float *keys, const float *values, size_t stride) {
    const size_t n = memory->n_positions, width = memory->head_width;
    float *panels = memory->panels;
    for (size_t head = 0; head < memory->n_heads; head++, keys += width, values += width) {
        pack_matrix(keys, n, width, stride, panels);
        panels += packed_size(n, width);
        pack_transposed(values, width, n, stride, panels);
        panels += packed_size(width, n);
    }
}

/* Turns scores into weights that sum to 1. */
static void softmax(float *scores, size_t n) {
    size_t i = 0;
    Vector most = broadcast(-INFINITY);
    for (; i + LANES <= n; i += LANES)
        most = larger(load(scores + i), most);
    if (i < n)
        most = larger(load_some(scores + i, (int)(n - i), -INFINITY), most);
    const Vector largest = broadcast(largest_lane(most));
    Vector sum = {0};
    for (i = 0; i + LANES <= n; i += LANES) {
        const Vector weight = exponential(load(scores + i) - largest);
        sum += weight;
        store(scores + i, weight);
    }
    if (i < n) {
        const int rest = (int)(n - i);
        const Vector weight = exponential(load_some(scores + i, rest, -INFINITY) - largest);
        sum += weight;
        store_some(scores + i, weight, rest);
    }
    const Vector factor = broadcast(1.0f / sum_of_lanes(sum));
    for (i = 0; i + LANES <= n; i += LANES)
        store(scores + i, load(scores + i) * factor);
    for (; i < n; i++)
        scores[i] *= factor[0];
}

static void attend_with_head(const PackedMatrix *keys, const PackedMatrix *values,
                             const float *queries, size_t query_stride, size_t n_queries,
                             float *scores, float *context, size_t context_stride) {
    const size_t n = keys->n_outputs;
    const Epilogue nothing = {0};
    for (size_t first = 0; first < n_queries; first += QUERY_BLOCK) {
        const size_t n_left = n_queries - first;
        const size_t n_rows = n_left < QUERY_BLOCK ? n_left : QUERY_BLOCK;
        multiply(keys, queries + first * query_stride, query_stride, n_rows, nothing, scores, n);
        for (size_t row = 0; row < n_rows; row++)
            softmax(scores + row * n, n);
        multiply(values, scores, n, n_rows, nothing, context + first * context_stride,
                 context_stride);
    }
}

void attend(const Memory *memory, const float *queries, size_t query_stride, size_t n_queries,
            float *scores, float *context, size_t context_stride) {
    const size_t n = memory->n_positions, width = memory->head_width;
    const float *panels = memory->panels;
    for (size_t head = 0; head < memory->n_heads; head++) {
        const PackedMatrix keys = {.n_inputs = width, .n_outputs = n, .panels = panels};
        panels += packed_size(n, width);
        const PackedMatrix values = {.n_inputs = n, .n_outputs = width, .panels = panels};
        panels += packed_size(width, n);
        attend_with_head(&keys, &values, queries + head * width, query_stride, n_queries, scores,
                         context + head * width, context_stride);
    }
}

/* Σ a·b over a head, by vectors; what is left over comes last. */
INLINE float dot(const float *a, const float *b, size_t width) {
    Vector sum = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        sum += load(a + i) * load(b + i);
    if (i < width) {
        const int rest = (int)(width - i);
        sum += load_some(a + i, rest, 0.0f) * load_some(b + i, rest, 0.0f);
    }
    return sum_of_lanes(sum);
}

/* Σ_t weights[t]·values[t] for `n` floats from `column` on, at most a vector. */
INLINE void weigh(const float *const *entries, size_t offset, size_t n_positions,
                  const float *weights, size_t n, float *context) {
    Vector sum = {0};
    for (size_t t = 0; t < n_positions; t++) {
        const float *value = entries[t] + offset;
        sum += broadcast(weights[t]) * (n == LANES ? load(value) : load_some(value, (int)n, 0.0f));
    }
    if (n == LANES)
        store(context, sum);
    else
        store_some(context, sum, (int)n);
}

void attend_to_past(const float *const *entries, size_t offset, size_t n_positions, size_t n_heads,
                    size_t head_width, const float *query, float *scores, float *context) {
    const size_t joined = n_heads * head_width;
    /* Positions outside, heads inside: an entry is read from its beginning to its end. */
    for (size_t t = 0; t < n_positions; t++) {
        const float *keys = entries[t] + offset;
        for (size_t head = 0; head < n_heads; head++) {
            const size_t column = head * head_width;
            scores[head * n_positions + t] = dot(query + column, keys + column, head_width);
        }
    }
    for (size_t head = 0; head < n_heads; head++) {
        float *weights = scores + head * n_positions;
        softmax(weights, n_positions);
        for (size_t column = 0; column < head_width; column += LANES) {
            const size_t first = head * head_width + column;
            const size_t n_left = head_width - column;
            weigh(entries, offset + joined + first, n_positions, weights,
                  n_left < LANES ? n_left : LANES, context + first);
        }
    }
}
