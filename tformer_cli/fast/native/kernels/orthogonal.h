/* Matrices with the same singular vectors and all singular values near 1: training/optimizers/muon.py,
   whose formulas these are, by products of which only one half is computed. */
#ifndef TFORMER_ORTHOGONAL_H
#define TFORMER_ORTHOGONAL_H

#include <stdbool.h>
#include <stdint.h>

/* The struct `_Orthogonalization` of native/orthogonal.py. */
typedef struct {
    int64_t n_matrices, n_rows, n_columns;
    const float *matrices;     /* (n_matrices, n_rows, n_columns) */
    float *result;             /* the same; not the same memory */
    const float *coefficients; /* (n_iterations, 3) a, b, c of a·x + b·x³ + c·x⁵ */
    int64_t n_iterations;      /* at least 1 */
    float cushion;             /* the bound of the singular values is so much larger */
    float smallest_norm;       /* of X·Xᵀ that is divided by */
    int64_t n_threads;
} Orthogonalization;

/* Writes the result; false if there is not enough memory. A matrix's bits do not depend on the
   others, nor on the number of threads. */
bool tformer_orthogonalize(const Orthogonalization *orthogonalization);

#endif
