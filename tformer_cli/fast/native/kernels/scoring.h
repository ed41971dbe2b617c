/* Forced decoding: the log-probabilities of translations that are given. */
#ifndef TFORMER_SCORING_H
#define TFORMER_SCORING_H

#include "model.h"

/* Pairs of sentences, each sentence ended by its end of sentence, one after the other. Where there is
   no encoder, a source is what comes before the target in the same text, at least one token. */
typedef struct {
    int64_t n_pairs;
    const int32_t *sources;
    const int64_t *source_starts; /* (n_pairs + 1) where each begins, and where the last stops */
    const int32_t *targets;
    const int64_t *target_starts; /* (n_pairs + 1) */
    const int32_t *stop; /* atomic; becomes nonzero when the answer is not wanted any more */
    float *steps;        /* receives log p of every token of the targets */
    const uint8_t *heads; /* see Workspace in layers.h */
    float *heard;         /* for each token of the targets a row (S) of sums of weights */
} ScoreRequest;

/* Scores pairs in the order given; returns what `tformer_search` returns. The numbers of a pair do
   not depend on the others, and for a translation that the search has found they are its bits. */
int32_t tformer_score(const Model *model, const ScoreRequest *request);

#endif
