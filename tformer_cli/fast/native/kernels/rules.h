/* Rules about the next token of a hypothesis: those of Python's `decoding.search.processors` that
   allow or forbid tokens and leave the probabilities of the others as they are. */
#ifndef TFORMER_RULES_H
#define TFORMER_RULES_H

#include <stdbool.h>

#include "vocabulary.h"

/* Rules about one sentence's translation. */
typedef struct {
    const int32_t *prefix; /* (n_prefix) tokens that it begins with, whatever the other rules say */
    size_t n_prefix;
    size_t least_length;   /* tokens before which it does not end */
    size_t ngram;          /* number of tokens in a row that are not said twice; 0: any may be */
} Rules;

/* Most tokens that the rules forbid at a time, of a translation of at most `limit` tokens. */
size_t most_forbidden(size_t limit);

/* Says which next token of a hypothesis is forced, or which ones are forbidden.

   tokens: (length) what the hypothesis has so far. forbidden: room for `most_forbidden`, which is
   used until `next` has been found. */
void apply_rules(const Rules *rules, const int32_t *tokens, size_t length, int32_t *forbidden,
                 NextTokens *next);

#endif
