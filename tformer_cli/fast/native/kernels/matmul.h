/* Products of rows with a matrix that is packed once: X·Wᵀ + b. */
#ifndef TFORMER_MATMUL_H
#define TFORMER_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

#include "vector.h"

/* Columns of a panel: two vectors. */
#define PANEL_COLUMNS (2 * LANES)

/* A matrix W (N, K), N outputs of K inputs, in panels [panel][k][column] of PANEL_COLUMNS outputs;
   what is missing in the last panel is 0. One in integers has the last three instead: quantized.h. */
typedef struct {
    size_t n_inputs;     /* K */
    size_t n_outputs;    /* N */
    const float *panels; /* (ceil(N / PANEL_COLUMNS), K, PANEL_COLUMNS) */
    const int8_t *integers;
    const int32_t *starts; /* (ceil(N / PANEL_COLUMNS), PANEL_COLUMNS) what sums start from */
    const float *scale;    /* (N) of each output; NULL: the matrix is not in integers */
} PackedMatrix;

/* A matrix and what is added to its outputs. */
typedef struct {
    PackedMatrix matrix;
    const float *bias; /* (N) or NULL */
} Linear;

/* What is done with a sum on its way to memory, in this order. */
typedef struct {
    const float *row_scale; /* (rows) scale of rows in integers: each sum is multiplied by that of
                               its row, and then by that of its output; or NULL */
    const float *bias;      /* (N) added to each row, or NULL */
    bool relu;              /* whether negative results become 0 */
    const float *residual;  /* (rows, N), in rows as far apart as those of the result; or NULL */
} Epilogue;

/* Floats that the panels of a matrix take. */
size_t packed_size(size_t n_outputs, size_t n_inputs);

/* Writes W (n_outputs, n_inputs), whose rows are `stride` floats apart, in panels. */
void pack_matrix(const float *matrix, size_t n_outputs, size_t n_inputs, size_t stride,
                 float *panels);

/* The same of a matrix that is given transposed, (n_inputs, n_outputs). */
void pack_transposed(const float *matrix, size_t n_outputs, size_t n_inputs, size_t stride,
                     float *panels);

/* How far apart rows of `width` floats lie best: an odd number of cache lines, because rows a power
   of two apart take each other's places in the cache. */
size_t row_stride(size_t width);

/* Multiplies rows by a matrix that is not in integers.

   x: (n_rows, K), rows `x_stride` floats apart. result: (n_rows, N), rows `stride` floats apart;
   it may be the residual itself. Each element is the sum over k in the order of k, one fused
   multiplication and addition after the other, whatever the number of rows: a row's bits do not
   depend on its neighbors. */
void multiply(const PackedMatrix *matrix, const float *x, size_t x_stride, size_t n_rows,
              Epilogue epilogue, float *result, size_t stride);

#endif
