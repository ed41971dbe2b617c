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
    float *steps;        /* receives log p of every token of the targets; NULL: it is not computed */
    const uint8_t *heads; /* see Workspace in layers.h */
    float *heard;         /* for each token of the targets a row (S) of sums of weights */
    float *recorded; /* of a pair by itself: receives for each encoder layer its queries, keys and
                        values (S, (H + 2·G)·E) and context (S, H·E); for each decoder layer the
                        keys and values (S, 2·G·E) of its cross-attention; then for each the queries,
                        keys and values (T, (H + 2·G)·E) and context (T, H·E) of its
                        self-attention, if any, and the queries and context of its
                        cross-attention, (T, H·E) each. Queries are divided by √E. Or NULL */
} ScoreRequest;

/* Scores pairs in the order given; returns what `tformer_search` returns. The numbers of a pair do
   not depend on the others, and for a translation that the search has found they are its bits. */
int32_t tformer_score(const Model *model, const ScoreRequest *request);

#endif
