/* Dropout (Srivastava et al. 2014) whose mask is computed where it is needed and never kept.

   The 16 bits that decide about a value are a function of a seed and of the value's index. So the
   backward pass computes the forward pass's mask again, and threads need not agree on an order. */
#ifndef TFORMER_DROPOUT_H
#define TFORMER_DROPOUT_H

#include "number.h"

/* The struct `_Dropout` of native/dropout.py. */
typedef struct {
    int64_t n_values;
    const void *values;               /* (n_values) */
    const float *residual;            /* (n_values) added to what is left; or NULL */
    void *result;                     /* (n_values) */
    int32_t values_kind, result_kind; /* `NumberKind` */
    uint32_t seed[2];
    int32_t threshold; /* a value whose 16 bits are a smaller number is dropped */
    float scale;       /* of the others */
    int64_t n_threads;
} Dropout;

/* result = residual + scale · values, where dropped values count as 0. */
void tformer_dropout(const Dropout *dropout);

#endif
