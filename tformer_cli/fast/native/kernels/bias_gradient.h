/* What the gradient of x·Wᵀ + b needs beside matrix products: the bias's gradient, and where
   max(0, ·) followed, the gradients that it lets through. */
#ifndef TFORMER_BIAS_GRADIENT_H
#define TFORMER_BIAS_GRADIENT_H

#include "number.h"

/* The struct `_BiasGradient` of native/linear.py. */
typedef struct {
    int64_t n_rows, n_columns;
    void *gradient;       /* (n_rows, n_columns) of the result, and changed where `result` is given */
    const void *result;   /* (n_rows, n_columns) of max(0, ·): where it is 0, the gradient becomes 0;
                             or NULL */
    int32_t kind;         /* `NumberKind` of both */
    float *bias_gradient; /* (n_columns) the sums of the gradient's columns; or NULL */
    int64_t n_threads;
} BiasGradient;

/* Rows are summed in blocks and blocks in order, whatever the number of threads; false if there is
   not enough memory. */
bool tformer_bias_gradient(const BiasGradient *job);

#endif
