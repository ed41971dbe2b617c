/* Attention as training needs it: with its backward pass, over whole batches. */
#ifndef TFORMER_ATTENTION_TRAINING_H
#define TFORMER_ATTENTION_TRAINING_H

#include "number.h"

/* Rows of heads, (N, H·E), that may be columns of a wider matrix. */
typedef struct {
    void *numbers;
    int64_t row_stride; /* in numbers */
} HeadRows;

/* The struct `_Attention` of native/attention.py. Sentences lie one after the other, without padding
   between them. All matrices of heads are of one kind. */
typedef struct {
    int64_t n_sentences, n_heads, head_width;
    int32_t kind;      /* `NumberKind` */
    int32_t is_causal; /* whether query i sees keys 0 to i of its sentence alone */
    HeadRows query, key, value;
    const float *turns; /* (most_queries, E) cosines and sines of each place in a sentence, which turn
                           queries and keys (rotary.h); NULL: nothing turns them */
    const int64_t *query_starts, *key_starts; /* (B + 1) first rows of the sentences, and the end */
    const int64_t *weight_starts;             /* (B + 1) first of its numbers in `weights` */
    int64_t most_queries, most_keys;          /* of a sentence */
    float *weights;   /* of each sentence (H, Q, K in whole vectors), made by the forward pass; NULL:
                         the backward pass makes them again, for long sentences have too many */
    HeadRows context; /* (N, H·E) result, or its gradient */
    HeadRows query_gradient, key_gradient, value_gradient;
    int64_t n_threads;
} AttentionPass;

/* weights = softmax(query·keyᵀ/√E), both turned, within each sentence, context = weights·value
   (Vaswani et al. 2017, section 3.2.1). Returns false where there is no memory. */
bool tformer_attend(const AttentionPass *pass);

/* Gradients of queries, keys and values from that of the context. With weights P and dP = dC·Vᵀ:

       dV = Pᵀ·dC      dS = P∘(dP - rows' sums of P∘dP)      dQ = dS·K/√E      dK = dSᵀ·Q/√E

   and dQ and dK turned back where Q and K were turned. */
bool tformer_attend_backward(const AttentionPass *pass);

#endif
