/* With X the matrix or its transpose, whichever has fewer rows than columns: everything is computed
   on G = X·Xᵀ (R, R), and X is multiplied once, at the end. An iteration takes G to P·G·P and the
   product Q of all polynomials to Q·P, where P = a·I + b·G + c·G². All of these matrices commute, so
   each product is symmetric: panel by panel, only the rows from the diagonal on are computed. One
   matrix is a thread's: what it works with stays in the second cache. */
#include "orthogonal.h"

#include <math.h>

#include "arena.h"
#include "matmul.h"
#include "parallel.h"

/* Columns of X that are multiplied at a time for X·Xᵀ. */
#define BLOCK_COLUMNS ((size_t)256)

static const Epilogue NOTHING = {0};

typedef struct {
    const Orthogonalization *task;
    bool has_failed;
} Job;

/* What one matrix is computed in. Square matrices are (R, R), rows `stride` floats apart. */
typedef struct {
    size_t n;      /* R */
    size_t length; /* the columns of X */
    bool is_tall;  /* whether X is the matrix transposed */
    size_t stride, block_stride;
    float *gram, *product, *polynomial, *other;
    float *gram_panels, *panels; /* a square matrix each */
    float *block;                /* (R, BLOCK_COLUMNS) rows of X */
    float *block_panels;
} Scratch;

static void lay_out(Arena *arena, const Orthogonalization *task, Scratch *scratch) {
    const size_t n_rows = (size_t)task->n_rows, n_columns = (size_t)task->n_columns;
    scratch->is_tall = n_rows > n_columns;
    scratch->n = scratch->is_tall ? n_columns : n_rows;
    scratch->length = scratch->is_tall ? n_rows : n_columns;
    scratch->stride = row_stride(scratch->n);
    scratch->block_stride = row_stride(BLOCK_COLUMNS);
    const size_t square = saturated_product(scratch->n, scratch->stride);
    const size_t packed = saturated_product(packed_size(scratch->n, 1), scratch->n);
    scratch->gram = arena_take(arena, square, sizeof(float));
    scratch->product = arena_take(arena, square, sizeof(float));
    scratch->polynomial = arena_take(arena, square, sizeof(float));
    scratch->other = arena_take(arena, square, sizeof(float));
    scratch->gram_panels = arena_take(arena, packed, sizeof(float));
    scratch->panels = arena_take(arena, packed, sizeof(float));
    scratch->block = arena_take(
        arena, saturated_product(whole_vectors(scratch->n), scratch->block_stride), sizeof(float));
    scratch->block_panels =
        arena_take(arena, packed_size(scratch->n, BLOCK_COLUMNS), sizeof(float));
}

/* The lower half of x·Wᵀ, for x (n, n_inputs) and W (n, n_inputs) in panels; or added to what is
   there. Of each panel's columns the rows from its first column on are written. */
static void multiply_lower(const float *panels, size_t n, size_t n_inputs, const float *x,
                           size_t x_stride, bool is_added, float *result, size_t stride) {
    for (size_t first = 0; first < n; first += PANEL_COLUMNS) {
        const PackedMatrix part = {
            .n_inputs = n_inputs,
            .n_outputs = n - first < PANEL_COLUMNS ? n - first : PANEL_COLUMNS,
            .panels = panels + first * n_inputs,
        };
        float *to = result + first * stride + first;
        const Epilogue epilogue = {.residual = is_added ? to : NULL};
        multiply(&part, x + first * x_stride, x_stride, n - first, epilogue, to, stride);
    }
}

/* Copies the lower half of a square matrix to its upper half, but for blocks on the diagonal, which
   `multiply_lower` computes whole. */
static void mirror(float *matrix, size_t n, size_t stride) {
    for (size_t row = 0; row < n; row += LANES)
        for (size_t column = 0; column < row; column += LANES)
            transpose_block(matrix + row * stride + column, stride, n - row, n - column,
                            matrix + column * stride + row, stride);
}

static void multiply_symmetric(const Scratch *scratch, const float *panels, const float *x,
                               float *result) {
    multiply_lower(panels, scratch->n, scratch->n, x, scratch->stride, false, result,
                   scratch->stride);
    mirror(result, scratch->n, scratch->stride);
}

static void scale(const Scratch *scratch, float *matrix, float factor) {
    for (size_t row = 0; row < scratch->n; row++)
        for (size_t column = 0; column < scratch->n; column++)
            matrix[row * scratch->stride + column] *= factor;
}

/* Computes G = X·Xᵀ, a block of X's columns after the other. */
static void multiply_by_itself(const Scratch *scratch, const float *matrix) {
    const size_t n = scratch->n, length = scratch->length, block_stride = scratch->block_stride;
    for (size_t first = 0; first < length; first += BLOCK_COLUMNS) {
        const size_t width = length - first < BLOCK_COLUMNS ? length - first : BLOCK_COLUMNS;
        if (scratch->is_tall) {
            const float *from = matrix + first * n;
            pack_transposed(from, n, width, n, scratch->block_panels);
            for (size_t row = 0; row < width; row += LANES)
                for (size_t column = 0; column < n; column += LANES)
                    transpose_block(from + row * n + column, n, width - row, n - column,
                                    scratch->block + column * block_stride + row, block_stride);
        } else {
            pack_matrix(matrix + first, n, width, length, scratch->block_panels);
            for (size_t row = 0; row < n; row++)
                memcpy(scratch->block + row * block_stride, matrix + row * length + first,
                       width * sizeof(float));
        }
        multiply_lower(scratch->block_panels, n, width, scratch->block, block_stride, first > 0,
                       scratch->gram, scratch->stride);
    }
    mirror(scratch->gram, n, scratch->stride);
}

/* (Σ G²)^½. */
static float norm_of_gram(const Scratch *scratch) {
    double sum = 0.0;
    for (size_t row = 0; row < scratch->n; row++) {
        const float *values = scratch->gram + row * scratch->stride;
        for (size_t column = 0; column < scratch->n; column++)
            sum += (double)values[column] * values[column];
    }
    return (float)sqrt(sum);
}

/* P = a·I + b·G + c·G². */
static void compute_polynomial(const Scratch *scratch, const float *coefficients) {
    const size_t n = scratch->n, stride = scratch->stride;
    const float a = coefficients[0], b = coefficients[1], c = coefficients[2];
    pack_transposed(scratch->gram, n, n, stride, scratch->gram_panels);
    multiply_lower(scratch->gram_panels, n, n, scratch->gram, stride, false, scratch->polynomial,
                   stride);
    for (size_t row = 0; row < n; row++) {
        const float *gram = scratch->gram + row * stride;
        float *polynomial = scratch->polynomial + row * stride;
        /* to the end of a vector: there `mirror` leaves everything as it is */
        for (size_t column = 0; column < whole_vectors(row + 1) && column < n; column++)
            polynomial[column] = b * gram[column] + c * polynomial[column];
        polynomial[row] += a;
    }
    mirror(scratch->polynomial, n, stride);
    pack_transposed(scratch->polynomial, n, n, stride, scratch->panels);
}

/* Computes Q of a G whose eigenvalues are at most 1. */
static void compute_product(Scratch *scratch, const float *coefficients, size_t n_iterations) {
    compute_polynomial(scratch, coefficients);
    for (size_t row = 0; row < scratch->n; row++)
        memcpy(scratch->product + row * scratch->stride,
               scratch->polynomial + row * scratch->stride, scratch->n * sizeof(float));
    for (size_t index = 1; index < n_iterations; index++) {
        multiply_symmetric(scratch, scratch->panels, scratch->gram, scratch->other);
        multiply_symmetric(scratch, scratch->panels, scratch->other, scratch->gram);
        compute_polynomial(scratch, coefficients + 3 * index);
        multiply_symmetric(scratch, scratch->panels, scratch->product, scratch->other);
        float *product = scratch->other;
        scratch->other = scratch->product;
        scratch->product = product;
    }
}

static void orthogonalize(const Orthogonalization *task, Scratch *scratch, const float *matrix,
                          float *result) {
    const size_t n = scratch->n, length = scratch->length;
    multiply_by_itself(scratch, matrix);
    const float norm = norm_of_gram(scratch);
    const float bound = task->cushion * (norm < task->smallest_norm ? task->smallest_norm : norm);
    scale(scratch, scratch->gram, 1.0f / bound);
    compute_product(scratch, task->coefficients, (size_t)task->n_iterations);
    scale(scratch, scratch->product, 1.0f / sqrtf(bound));
    if (scratch->is_tall) {
        pack_transposed(scratch->product, n, n, scratch->stride, scratch->panels);
        const PackedMatrix product = {.n_inputs = n, .n_outputs = n, .panels = scratch->panels};
        multiply(&product, matrix, n, length, NOTHING, result, n);
        return;
    }
    for (size_t first = 0; first < length; first += PANEL_COLUMNS) {
        const size_t width = length - first < PANEL_COLUMNS ? length - first : PANEL_COLUMNS;
        pack_transposed(matrix + first, width, n, length, scratch->panels);
        const PackedMatrix part = {.n_inputs = n, .n_outputs = width, .panels = scratch->panels};
        multiply(&part, scratch->product, scratch->stride, n, NOTHING, result + first, length);
    }
}

static void orthogonalize_share(void *data, Shares *shares) {
    Job *job = data;
    const Orthogonalization *task = job->task;
    const size_t size = (size_t)task->n_rows * (size_t)task->n_columns;
    size_t first, last;
    if (!next_share(shares, &first, &last))
        return;
    Arena arena = {0};
    Scratch scratch;
    lay_out(&arena, task, &scratch);
    if (!arena_allocate(&arena)) {
        __atomic_store_n(&job->has_failed, true, __ATOMIC_RELAXED);
        return;
    }
    lay_out(&arena, task, &scratch);
    do {
        for (size_t index = first; index < last; index++)
            orthogonalize(task, &scratch, task->matrices + index * size,
                          task->result + index * size);
    } while (next_share(shares, &first, &last));
    arena_free(&arena);
}

bool tformer_orthogonalize(const Orthogonalization *orthogonalization) {
    Job job = {.task = orthogonalization};
    run_parallel(orthogonalize_share, &job, (size_t)orthogonalization->n_matrices, 1,
                 (size_t)orthogonalization->n_threads);
    return !job.has_failed;
}
