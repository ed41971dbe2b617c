/* Layer norm, and RMS norm. */
#ifndef TFORMER_NORM_H
#define TFORMER_NORM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const float *weight; /* (D) */
    const float *bias;   /* (D), or NULL */
    int32_t is_rms;      /* whether rows are not centered: divided by √(mean x² + epsilon) alone */
} Norm;

/* Normalizes each row of x (n_rows, width), whose rows are `stride` floats apart, to mean 0 and
   variance 1 (Ba et al. 2016), or to mean square 1 (Zhang & Sennrich 2019), then weight and bias;
   the result has the same stride and may be x. */
void normalize(const Norm *norm, const float *x, size_t n_rows, size_t width, size_t stride,
               float epsilon, float *result);

#endif
