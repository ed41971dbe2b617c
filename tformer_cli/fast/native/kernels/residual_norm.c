#include "residual_norm.h"

#include <math.h>
#include <stdlib.h>

#include "parallel.h"
#include "random.h"

/* Rows that a thread takes, and whose sums for the gradients of weight and bias it adds up. */
#define BLOCK 64

typedef struct {
    const ResidualNorm *of;
    float *sums; /* (blocks, 2, width rounded up to whole vectors) */
} Job;

/* Does something with each vector of a row: `column` is its first, `draws` decide about its values. */
#define FOR_EACH_VECTOR(of, row, width, column, draws, ...)                                        \
    for (size_t run = 0; run < (width); run += DRAWN)                                              \
        for (size_t part = 0; part < DRAWN / 2; part += LANES) {                                   \
            UnsignedVector both[2] = {{0}, {0}};                                                   \
            if ((of)->threshold)                                                                   \
                draw((row) * whole_runs(width) + run, part, (of)->seed, both);                     \
            for (size_t half = 0; half < 2; half++) {                                              \
                const size_t column = run + half * (DRAWN / 2) + part;                             \
                const UnsignedVector draws = both[half];                                           \
                if (column < (width)) {                                                            \
                    __VA_ARGS__                                                                    \
                }                                                                                  \
            }                                                                                      \
        }

INLINE size_t whole_runs(size_t width) { return (width + DRAWN - 1) / DRAWN * DRAWN; }

INLINE void norm_row(const ResidualNorm *of, size_t row, NumberKind values_kind,
                     NumberKind result_kind) {
    const size_t width = (size_t)of->width, start = row * width;
    float *sums = of->sum + start;
    Vector total = {0};
    FOR_EACH_VECTOR(of, row, width, column, draws, {
        const size_t n = width - column;
        const Vector values =
            load_up_to(number_at(of->values, start + column, values_kind), n, values_kind);
        const Vector sum =
            load_up_to(of->residual + start + column, n, FLOAT32) + kept(values, draws, of->threshold, of->scale);
        store_up_to(sums + column, sum, n, FLOAT32);
        total += sum;
    })
    const float mean = sum_of_lanes(total) / (float)width;
    const Vector means = broadcast(mean);
    Vector squares = {0};
    for (size_t column = 0; column < width; column += LANES) {
        Vector deviation = load_up_to(sums + column, width - column, FLOAT32) - means;
        if (width - column < LANES)
            deviation = choose(first_lanes((int)(width - column)), deviation, broadcast(0.0f));
        squares += deviation * deviation;
    }
    const float variance = sum_of_lanes(squares) / (float)width;
    const float factor = 1.0f / sqrtf(variance + of->epsilon);
    of->statistics[2 * row] = mean;
    of->statistics[2 * row + 1] = factor;
    for (size_t column = 0; column < width; column += LANES) {
        const size_t n = width - column;
        Vector value = (load_up_to(sums + column, n, FLOAT32) - means) * broadcast(factor) *
                       load_up_to(of->weight + column, n, FLOAT32);
        if (of->bias)
            value += load_up_to(of->bias + column, n, FLOAT32);
        store_up_to((void *)number_at(of->result, start + column, result_kind), value, n,
                    result_kind);
    }
}

/* With x the normed sum before weight and bias, g the gradient of the result times the weight:
   (g - mean(g) - x·mean(g·x)) / deviation. */
INLINE void differentiate_row(const ResidualNorm *of, size_t row, float *weight_sums,
                              float *bias_sums, NumberKind values_kind, NumberKind result_kind) {
    const size_t width = (size_t)of->width, start = row * width;
    const float *sums = of->sum + start;
    const Vector means = broadcast(of->statistics[2 * row]);
    const Vector factor = broadcast(of->statistics[2 * row + 1]);
    Vector of_all = {0}, along_x = {0};
    for (size_t column = 0; column < width; column += LANES) {
        const size_t n = width - column;
        /* where there is no column, the gradient and with it all sums are 0 */
        const Vector gradient =
            load_up_to(number_at(of->result, start + column, result_kind), n, result_kind);
        const Vector x = (load_up_to(sums + column, n, FLOAT32) - means) * factor;
        const Vector weighted = gradient * load_up_to(of->weight + column, n, FLOAT32);
        of_all += weighted;
        along_x += weighted * x;
        store(weight_sums + column, load(weight_sums + column) + gradient * x);
        store(bias_sums + column, load(bias_sums + column) + gradient);
    }
    const Vector mean_of_all = broadcast(sum_of_lanes(of_all) / (float)width);
    const Vector mean_along_x = broadcast(sum_of_lanes(along_x) / (float)width);
    FOR_EACH_VECTOR(of, row, width, column, draws, {
        const size_t n = width - column;
        const Vector gradient =
            load_up_to(number_at(of->result, start + column, result_kind), n, result_kind);
        const Vector x = (load_up_to(sums + column, n, FLOAT32) - means) * factor;
        const Vector weighted = gradient * load_up_to(of->weight + column, n, FLOAT32);
        Vector residual_gradient = (weighted - mean_of_all - x * mean_along_x) * factor;
        if (of->sum_gradient)
            residual_gradient += load_up_to(of->sum_gradient + start + column, n, FLOAT32);
        store_up_to(of->residual_gradient + start + column, residual_gradient, n, FLOAT32);
        store_up_to((void *)number_at(of->values_gradient, start + column, values_kind),
                    kept(residual_gradient, draws, of->threshold, of->scale), n, values_kind);
    })
}

#define WITH_KINDS(of, call, ...)                                                                  \
    if ((of)->values_kind == BFLOAT16) {                                                           \
        if ((of)->result_kind == BFLOAT16)                                                         \
            call(__VA_ARGS__, BFLOAT16, BFLOAT16);                                                 \
        else                                                                                       \
            call(__VA_ARGS__, BFLOAT16, FLOAT32);                                                  \
    } else if ((of)->result_kind == BFLOAT16) {                                                    \
        call(__VA_ARGS__, FLOAT32, BFLOAT16);                                                      \
    } else {                                                                                       \
        call(__VA_ARGS__, FLOAT32, FLOAT32);                                                       \
    }

static void norm_rows(void *argument, Shares *shares) {
    const ResidualNorm *of = argument;
    size_t row, last;
    while (next_share(shares, &row, &last))
        for (; row < last; row++)
            WITH_KINDS(of, norm_row, of, row)
}

static void differentiate_blocks(void *argument, Shares *shares) {
    const Job *job = argument;
    const ResidualNorm *of = job->of;
    const size_t n_rows = (size_t)of->n_rows, stride = whole_vectors((size_t)of->width);
    size_t block, last;
    while (next_share(shares, &block, &last))
        for (; block < last; block++) {
            float *weight_sums = job->sums + 2 * block * stride, *bias_sums = weight_sums + stride;
            const size_t end = (block + 1) * BLOCK < n_rows ? (block + 1) * BLOCK : n_rows;
            for (size_t row = block * BLOCK; row < end; row++)
                WITH_KINDS(of, differentiate_row, of, row, weight_sums, bias_sums)
        }
}

void tformer_residual_norm(const ResidualNorm *of) {
    ResidualNorm job = *of;
    run_parallel(norm_rows, &job, (size_t)of->n_rows, BLOCK, (size_t)of->n_threads);
}

bool tformer_residual_norm_backward(const ResidualNorm *of) {
    const size_t n_blocks = ((size_t)of->n_rows + BLOCK - 1) / BLOCK;
    const size_t width = (size_t)of->width, stride = whole_vectors(width);
    Job job = {.of = of, .sums = calloc(2 * n_blocks * stride + 1, sizeof(float))};
    if (!job.sums)
        return false;
    run_parallel(differentiate_blocks, &job, n_blocks, 1, (size_t)of->n_threads);
    memset(of->weight_gradient, 0, width * sizeof(float));
    if (of->bias_gradient)
        memset(of->bias_gradient, 0, width * sizeof(float));
    for (size_t block = 0; block < n_blocks; block++) {
        const float *weight_sums = job.sums + 2 * block * stride, *bias_sums = weight_sums + stride;
        add_floats(of->weight_gradient, weight_sums, width);
        if (of->bias_gradient)
            add_floats(of->bias_gradient, bias_sums, width);
    }
    free(job.sums);
    return true;
}
