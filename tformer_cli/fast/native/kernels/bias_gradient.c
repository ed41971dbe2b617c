#include "bias_gradient.h"

#include <stdlib.h>

#include "parallel.h"

/* Rows whose sums are added up by one thread. */
#define BLOCK 128

/* Rows that are read side by side, so that sums are loaded and stored once for all of them. */
#define STRIP 8

typedef struct {
    const BiasGradient *of;
    float *sums; /* (blocks, n_columns rounded up to whole vectors) */
} Job;

/* The gradients of the vector at an index, of which the first `n` count. NaN passes, as with torch. */
INLINE Vector passed(const BiasGradient *of, size_t index, size_t n, NumberKind kind) {
    void *at = (void *)number_at(of->gradient, index, kind);
    const Vector gradient = load_up_to(at, n, kind);
    if (!of->result)
        return gradient;
    const Vector result = load_up_to(number_at(of->result, index, kind), n, kind);
    const Vector kept = choose(result <= broadcast(0.0f), broadcast(0.0f), gradient);
    store_up_to(at, kept, n, kind);
    return kept;
}

INLINE void add_rows(const BiasGradient *of, size_t first, size_t n_rows, float *sums,
                     NumberKind kind) {
    const size_t width = (size_t)of->n_columns;
    for (size_t column = 0; column < width; column += LANES) {
        Vector sum = load(sums + column);
        for (size_t row = first; row < first + n_rows; row++)
            sum += passed(of, row * width + column, width - column, kind);
        store(sums + column, sum);
    }
}

INLINE void add_block(const BiasGradient *of, size_t first, size_t last, float *sums,
                      NumberKind kind) {
    size_t row = first;
    for (; row + STRIP <= last; row += STRIP)
        add_rows(of, row, STRIP, sums, kind);
    for (; row < last; row++)
        add_rows(of, row, 1, sums, kind);
}

static void add_blocks(void *argument, Shares *shares) {
    const Job *job = argument;
    const BiasGradient *of = job->of;
    const size_t stride = whole_vectors((size_t)of->n_columns);
    size_t block, last;
    while (next_share(shares, &block, &last))
        for (; block < last; block++) {
            const size_t first = block * BLOCK, n = (size_t)of->n_rows;
            const size_t end = first + BLOCK < n ? first + BLOCK : n;
            if (of->kind == BFLOAT16)
                add_block(of, first, end, job->sums + block * stride, BFLOAT16);
            else
                add_block(of, first, end, job->sums + block * stride, FLOAT32);
        }
}

bool tformer_bias_gradient(const BiasGradient *of) {
    const size_t n_blocks = ((size_t)of->n_rows + BLOCK - 1) / BLOCK;
    const size_t n_columns = (size_t)of->n_columns, stride = whole_vectors(n_columns);
    Job job = {.of = of, .sums = calloc(n_blocks * stride + 1, sizeof(float))};
    if (!job.sums)
        return false;
    run_parallel(add_blocks, &job, n_blocks, 1, (size_t)of->n_threads);
    if (of->bias_gradient) {
        memset(of->bias_gradient, 0, n_columns * sizeof(float));
        for (size_t block = 0; block < n_blocks; block++)
            add_floats(of->bias_gradient, job.sums + block * stride, n_columns);
    }
    free(job.sums);
    return true;
}
