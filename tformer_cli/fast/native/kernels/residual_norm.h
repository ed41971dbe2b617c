/* What follows a sub-layer, in one pass: dropout, the residual sum and layer norm (Vaswani et al. 2017,
   section 5.4; Ba et al. 2016), with their gradients. */
#ifndef TFORMER_RESIDUAL_NORM_H
#define TFORMER_RESIDUAL_NORM_H

#include "number.h"

/* The struct `_ResidualNorm` of native/residual_norm.py. Numbers are float32 where nothing else is
   said. */
typedef struct {
    int64_t n_rows, width;
    const float *residual;            /* (n_rows, width) */
    const void *values;               /* (n_rows, width) what is dropped from and added */
    int32_t values_kind, result_kind; /* `NumberKind` */
    uint32_t seed[2];                 /* of the mask, see random.h; rows begin at whole runs */
    int32_t threshold;                /* a value whose 16 bits are a smaller number is dropped */
    float scale;                      /* of the others */
    const float *weight, *bias;       /* (width); bias may be NULL */
    float epsilon;                    /* added to the variance */
    float *sum;                       /* (n_rows, width) residual + dropout(values) */
    float *statistics;                /* (n_rows, 2) mean of the sum, 1 / its deviation */
    void *result;                     /* (n_rows, width) the norm; or the gradient of it */
    /* for the backward pass */
    const float *sum_gradient;         /* (n_rows, width) of the sum, where it is used; or NULL */
    float *residual_gradient;          /* (n_rows, width) */
    void *values_gradient;             /* (n_rows, width) */
    float *weight_gradient;            /* (width) */
    float *bias_gradient;              /* (width), or NULL */
    int64_t n_threads;
} ResidualNorm;

void tformer_residual_norm(const ResidualNorm *job);

/* Rows are summed in blocks and blocks in order, whatever the number of threads; false if there is
   not enough memory. */
bool tformer_residual_norm_backward(const ResidualNorm *job);

#endif
