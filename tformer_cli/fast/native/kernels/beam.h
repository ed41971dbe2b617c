/* Beam search of one sentence: its slots, live hypotheses and finished ones.

   The same search as `decoding.search.beam_search`, which says how it goes and is what this is
   tested against. */
#ifndef TFORMER_BEAM_H
#define TFORMER_BEAM_H

#include "entries.h"
#include "layers.h"
#include "rules.h"
#include "sampling.h"
#include "shortlist.h"

/* How to search. */
typedef struct {
    size_t beam_size;       /* W */
    size_t n_searched;      /* hypotheses that are wanted, at most W */
    bool stops_early;       /* ends a sentence once those are certain */
    bool is_listening;      /* what hypotheses attended to is kept in their entries */
    bool is_sampling;       /* the W hypotheses are drawn, each by itself, and all are wanted */
    Sampling sampling;      /* how */
    const double *divisors; /* what a log-probability is divided by, by the number of tokens, the
                               end of sentence counted */
} SearchSettings;

/* A hypothesis that grows. */
typedef struct {
    double total;    /* Σ log p */
    int32_t *tokens; /* (limit + 1) its tokens so far */
    float *steps;    /* (limit + 1) log p of each */
    float **entries; /* (n_prompt + limit + 1) keys and values of each position */
    size_t candidate; /* of those that are drawn, which one it is */
} LiveHypothesis;

/* A finished one. */
typedef struct {
    double total;
    double score;      /* total after the length penalty */
    size_t n_tokens;   /* without the end of sentence */
    int32_t *tokens;   /* (n_tokens) */
    float *steps;      /* (n_tokens + 1) */
    float **entries;   /* (n_tokens + 1) where one listens; they stay until the sentence ends */
    bool has_ended;    /* whether the model ended it, and not the limit */
} FinishedHypothesis;

/* A continuation of a live hypothesis by one token. */
typedef struct {
    double total;
    float step; /* log p of the token */
    int32_t token;
    size_t slot; /* which hypothesis it continues */
} Continuation;

typedef struct {
    size_t index;   /* of the sentence among those that were asked for */
    size_t limit;   /* most tokens of a translation, the end of sentence not counted */
    size_t n_prompt; /* tokens that were read before the search; 0 where there is an encoder */
    int32_t first;   /* token that it begins with: <s>, or the last one of the prompt */
    size_t length;  /* tokens that every live hypothesis has */
    size_t n_slots; /* that no finished hypothesis has taken */
    size_t n_live;
    size_t n_finished;
    size_t n_taken;
    double worst_wanted;          /* score of the last wanted one, -inf while there are fewer */
    LiveHypothesis *live, *grown; /* (W) those of this step and of the next */
    FinishedHypothesis *finished; /* (W) best first; those that are drawn in their order */
    Continuation *best;           /* (W) */
    float **taken;                /* entries of all hypotheses, the dead ones' too */
    Memory *memories;             /* of each decoder layer with cross-attention */
    Shortlist shortlist;          /* what its tokens are chosen from */
    Rules rules;                  /* what they must and must not be */
    Arena arena;                  /* all of these */
} BeamSentence;

/* Takes room for a sentence whose index and limit are set.

   source: (n_source_tokens) of it, or the prompt of a model without encoder, at least one token. */
void lay_out_sentence(BeamSentence *sentence, const SearchSettings *settings, const Model *model,
                      const int32_t *source, size_t n_source_tokens);

/* Gives the first hypothesis the entries of the prompt; false where there is no memory. */
bool take_prompt_entries(BeamSentence *sentence, EntryStore *store);

/* Puts the empty hypothesis in the first slot, or in all where they are drawn. */
void start_sentence(BeamSentence *sentence, const SearchSettings *settings);

/* Gives each live hypothesis the entry of its next position; false where there is no memory. */
bool take_entries(BeamSentence *sentence, EntryStore *store);

/* Lets all live hypotheses grow by one token.

   next: (n_live) the best next tokens of each, or the drawn one. Returns whether the sentence goes on. */
bool grow_hypotheses(BeamSentence *sentence, const SearchSettings *settings,
                     const NextTokens *next);

#endif
