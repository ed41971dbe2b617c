/* Layer norm. */
#ifndef TFORMER_NORM_H
#define TFORMER_NORM_H

#include <stddef.h>

typedef struct {
    const float *weight; /* (D) */
    const float *bias;   /* (D), or NULL */
} Norm;

/* Normalises each row of x (n_rows, width) to mean 0 and variance 1, then weight and bias (Ba et
   al. 2016); result may be x. */
void normalize(const Norm *norm, const float *x, size_t n_rows, size_t width, float epsilon,
               float *result);

#endif
