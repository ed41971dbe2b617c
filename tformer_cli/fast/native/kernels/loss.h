/* The loss of rows of logits and its gradient, in place of the logits. */
#ifndef TFORMER_LOSS_H
#define TFORMER_LOSS_H

#include "number.h"

/* The struct `_Loss` of native/loss.py. */
typedef struct {
    int64_t n_rows, vocab_size;
    void *logits;            /* (N, V) */
    int32_t kind;            /* `NumberKind` */
    int32_t writes_gradient; /* whether p - weight·onehot(target) replaces the logits */
    const int64_t *targets;  /* (N); a row with a negative one counts for nothing */
    float target_weight;
    float *normalizer; /* (N) ln Σ exp logit */
    float *right;      /* (N) the target's logit */
    int64_t n_threads;
} RowLoss;

/* Returns false where there is no memory. */
bool tformer_loss(const RowLoss *loss);

#endif
