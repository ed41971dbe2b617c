/* Attention as training needs it: with its backward pass, over whole batches. */
#ifndef TFORMER_ATTENTION_TRAINING_H
#define TFORMER_ATTENTION_TRAINING_H

#include "number.h"

/* Rows of heads, (B, T, H·E), that may be columns of a wider tensor. */
typedef struct {
    void *numbers;
    int64_t sentence_stride, row_stride; /* in numbers */
} HeadRows;

/* The struct `_Attention` of native/training.py. All tensors of heads are of one kind. */
typedef struct {
    int64_t n_sentences, n_heads, head_width, n_queries, n_keys;
    int32_t kind; /* `NumberKind` */
    HeadRows query, key, value;
    const uint8_t *mask; /* (B, Q, K) 1 where a query may attend; NULL: everywhere */
    int64_t mask_strides[3];
    float *weights;   /* (B, H, Q, K rounded up to whole vectors) made by the forward pass */
    HeadRows context; /* (B, Q, H·E) result, or its gradient */
    HeadRows query_gradient, key_gradient, value_gradient;
    int64_t n_threads;
} AttentionPass;

/* Numbers between two rows of `weights`. */
int64_t tformer_weights_stride(int64_t n_keys);

/* weights = softmax(query·keyᵀ/√E) where the mask allows it, context = weights·value (Vaswani et al.
   2017, section 3.2.1). A query that may attend to nothing gets zeros. Returns false where there is
   no memory. */
bool tformer_attend(const AttentionPass *pass);

/* Gradients of queries, keys and values from that of the context. With weights P and dP = dC·Vᵀ:

       dV = Pᵀ·dC      dS = P∘(dP - rows' sums of P∘dP)      dQ = dS·K/√E      dK = dSᵀ·Q/√E */
bool tformer_attend_backward(const AttentionPass *pass);

#endif
