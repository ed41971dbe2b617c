/* Translating many sentences, or continuing many prompts: what Python calls. */
#ifndef TFORMER_SEARCH_H
#define TFORMER_SEARCH_H

#include "model.h"

/* Is told each token that was chosen, before it is read. */
typedef void (*TellToken)(int32_t token);

/* What is asked for. */
typedef struct {
    int64_t n_sentences;
    const int32_t *tokens; /* sources, each ended by its end of sentence, one after the other; where
                              there is no encoder prompts, of at least one token each */
    const int64_t *starts; /* (n_sentences + 1) where each begins, and where the last one stops */
    const int64_t *limits; /* most tokens of each translation, the end of sentence not counted */
    const double *divisors; /* see SearchSettings; up to the largest limit + 1 */
    const int32_t *candidates; /* tokens that each translation may consist of, ascending, with all
                                  ids up to the end of sentence; NULL: any */
    const int64_t *candidate_starts; /* (n_sentences + 1) where those of each begin, and where the
                                        last ones stop; of an empty part any */
    const int32_t *prefixes; /* tokens that each translation begins with; NULL: any */
    const int64_t *prefix_starts; /* (n_sentences + 1) as for candidates */
    const int64_t *least_lengths; /* tokens before which each does not end; NULL: it may */
    int64_t ngram; /* see Rules in rules.h */
    int64_t beam_size;
    int64_t n_searched;
    int64_t most_rows; /* hypotheses that are decoded at a time; at least `beam_size` are */
    int64_t most_tokens; /* source tokens whose translations are searched at a time, and of prompts
                            their limits too; at least one sentence is */
    int64_t *next; /* atomic; 0, then the first sentence that no search of this request has begun */
    int32_t stops_early;
    const uint64_t *keys; /* (n_sentences) what is drawn for each depends on; NULL: the best are
                             looked for. Else all `beam_size` are wanted, and any may be listed */
    double temperature;   /* see Sampling */
    int64_t top_k;
    double top_p;
    TellToken tell; /* of a single hypothesis of a single sentence; or NULL */
    const int32_t *stop; /* atomic; becomes nonzero when the answer is not wanted any more */
    const uint8_t *heads; /* see Workspace in layers.h */
} Request;

/* Room for the answer. Hypothesis `rank` of sentence i has number i·n_searched + rank. */
typedef struct {
    int64_t *n_found;         /* (n_sentences) */
    int64_t *n_tokens;        /* of each hypothesis, without the end of sentence */
    double *log_probability;  /* of each hypothesis */
    double *score;            /* of each hypothesis */
    int32_t *is_finished;     /* of each hypothesis: whether the model ended it, not the limit */
    const int64_t *places;    /* (n_sentences) where a sentence's first hypothesis begins in what
                                 follows; each has room for its limit + 1 */
    int32_t *target_tokens;
    float *steps;             /* log p of every token and of the end of sentence */
    const int64_t *heard_places; /* (n_sentences) where a sentence's first hypothesis begins in: */
    float *heard;             /* sums of weights; each hypothesis has room for limit + 1 rows of S.
                                 Row t has read t tokens; one predicts the end of sentence */
} Answer;

enum { SEARCH_DONE = 0, SEARCH_NO_MEMORY = 1, SEARCH_STOPPED = 2 };

/* Translates sentences, or continues prompts, in the order given, those that no other search of the
   same request takes. What is found for one does not depend on the others. */
int32_t tformer_search(const Model *model, const Request *request, Answer *answer);

#endif
