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

/* Turns n scores into weights that sum to 1. What fills the last vector may be any number and
   becomes one as good as 0. */
static void softmax(float *scores, size_t n) {
    const size_t last = whole_vectors(n) - LANES;
    const IntVector is_score = first_lanes((int)(n - last));
    store(scores + last, choose(is_score, load(scores + last), broadcast(-INFINITY)));
    Vector most = load(scores);
    for (size_t i = LANES; i <= last; i += LANES)
        most = larger(load(scores + i), most);
    const Vector largest = broadcast(largest_lane(most));
    Vector sum = {0};
    for (size_t i = 0; i <= last; i += LANES) {
        const Vector weight = exponential(load(scores + i) - largest);
        sum += weight;
        store(scores + i, weight);
    }
    const Vector factor = broadcast(1.0f / sum_of_lanes(sum));
    for (size_t i = 0; i <= last; i += LANES)
        store(scores + i, load(scores + i) * factor);
}

static void attend_with_head(const PackedMatrix *keys, const PackedMatrix *values,
                             const float *queries, size_t query_stride, size_t n_queries,
                             float *scores, float *context, size_t context_stride, Heard heard) {
    const size_t n = values->n_inputs, stride = row_stride(n);
    const Epilogue nothing = {0};
    for (size_t first = 0; first < n_queries; first += QUERY_BLOCK) {
        const size_t n_left = n_queries - first;
        const size_t n_rows = n_left < QUERY_BLOCK ? n_left : QUERY_BLOCK;
        multiply(keys, queries + first * query_stride, query_stride, n_rows, nothing, scores,
                 stride);
        for (size_t row = 0; row < n_rows; row++) {
            softmax(scores + row * stride, n);
            for (size_t i = 0; heard.heads && i < n; i++)
                heard.sums[(first + row) * heard.stride + i] += scores[row * stride + i];
        }
        multiply(values, scores, stride, n_rows, nothing, context + first * context_stride,
                 context_stride);
    }
}

void attend(const Memory *memory, const float *queries, size_t query_stride, size_t n_queries,
            float *scores, float *context, size_t context_stride, Heard heard) {
    const size_t n = memory->n_positions, width = memory->head_width;
    const float *panels = memory->panels;
    const uint8_t *is_heard = heard.heads;
    for (size_t key_head = 0; key_head < memory->n_heads; key_head++) {
        /* Whole vectors of scores: what is behind the last key is 0 */
        const PackedMatrix keys = {
            .n_inputs = width, .n_outputs = whole_vectors(n), .panels = panels};
        panels += packed_size(n, width);
        const PackedMatrix values = {.n_inputs = n, .n_outputs = width, .panels = panels};
        panels += packed_size(width, n);
        for (size_t i = 0; i < memory->group_size; i++) {
            const size_t head = key_head * memory->group_size + i, column = head * width;
            heard.heads = is_heard && is_heard[head] ? is_heard : NULL;
            attend_with_head(&keys, &values, queries + column, query_stride, n_queries, scores,
                             context + column, context_stride, heard);
        }
    }
}

/* Vectors of a head that are held in registers. */
#define MOST_VECTORS 4

/* LANES products Σ query·key of a head, for positions that are there; the others give 0. */
INLINE Vector scores_of(const float *const *entries, size_t offset, size_t n_positions,
                        size_t width, const float *query) {
    Vector partial[LANES];
#pragma GCC unroll 16
    for (size_t t = 0; t < LANES; t++) {
        Vector sum = {0};
        if (t < n_positions) {
            const float *key = entries[t] + offset;
            size_t i = 0;
            for (; i + LANES <= width; i += LANES)
                sum += load(query + i) * load(key + i);
            if (i < width) {
                const int rest = (int)(width - i);
                sum += load_some(query + i, rest, 0.0f) * load_some(key + i, rest, 0.0f);
            }
        }
        partial[t] = sum;
    }
    return sums_of_vectors(partial);
}

/* Σ_t weights[t]·value of position t, for whole vectors of a head; `n_vectors` is a constant. */
INLINE void weigh_vectors(const float *const *entries, size_t offset, size_t n_positions,
                          const float *weights, const int n_vectors, float *context) {
    Vector sums[MOST_VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < n_vectors; i++)
        sums[i] = (Vector){0};
    for (size_t t = 0; t < n_positions; t++) {
        const float *value = entries[t] + offset;
        const Vector weight = broadcast(weights[t]);
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++)
            sums[i] += weight * load(value + i * LANES);
    }
#pragma GCC unroll 4
    for (int i = 0; i < n_vectors; i++)
        store(context + i * LANES, sums[i]);
}

/* The same for the last floats of a head, fewer than a vector. */
static void weigh_rest(const float *const *entries, size_t offset, size_t n_positions,
                       const float *weights, int n, float *context) {
    Vector sum = {0};
    for (size_t t = 0; t < n_positions; t++)
        sum += broadcast(weights[t]) * load_some(entries[t] + offset, n, 0.0f);
    store_some(context, sum, n);
}

static void weigh(const float *const *entries, size_t offset, size_t n_positions,
                  const float *weights, size_t width, float *context) {
    size_t i = 0;
    for (; i + 4 * LANES <= width; i += 4 * LANES)
        weigh_vectors(entries, offset + i, n_positions, weights, 4, context + i);
    for (; i + 2 * LANES <= width; i += 2 * LANES)
        weigh_vectors(entries, offset + i, n_positions, weights, 2, context + i);
    for (; i + LANES <= width; i += LANES)
        weigh_vectors(entries, offset + i, n_positions, weights, 1, context + i);
    if (i < width)
        weigh_rest(entries, offset + i, n_positions, weights, (int)(width - i), context + i);
}

/* The scores of one head. Where the width is a constant, the loops over a key disappear. */
INLINE void score_head(const float *const *entries, size_t offset, size_t n_positions, size_t width,
                       const float *query, float *scores) {
    for (size_t t = 0; t < n_positions; t += LANES)
        store(scores + t, scores_of(entries + t, offset, n_positions - t, width, query));
}

void attend_to_past(const float *const *entries, size_t offset, size_t n_positions, size_t n_heads,
                    size_t group_size, size_t head_width, const float *query, float *scores,
                    float *context) {
    const size_t room = whole_vectors(n_positions);
    /* Nothing is divided where every head has its own keys: it would take long beside short pasts */
    const size_t joined = (group_size == 1 ? n_heads : n_heads / group_size) * head_width;
    for (size_t head = 0; head < n_heads; head++) {
        const size_t column = head * head_width;
        const size_t keys =
            offset + (group_size == 1 ? column : head / group_size * head_width);
        float *weights = scores + head * room;
        if (head_width == 4 * LANES)
            score_head(entries, keys, n_positions, 4 * LANES, query + column, weights);
        else if (head_width == 2 * LANES)
            score_head(entries, keys, n_positions, 2 * LANES, query + column, weights);
        else
            score_head(entries, keys, n_positions, head_width, query + column, weights);
        softmax(weights, n_positions);
        weigh(entries, keys + joined, n_positions, weights, head_width, context + column);
    }
}
