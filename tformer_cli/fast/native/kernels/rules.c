#include "rules.h"

#include <string.h>

size_t most_forbidden(size_t limit) {
    /* one for each position, and the end of sentence */
    return limit + 1;
}

/* Puts a token among those that are forbidden, which ascend. */
static void forbid(NextTokens *next, int32_t *forbidden, int32_t token) {
    size_t place = next->n_forbidden++;
    for (; place > 0 && token < forbidden[place - 1]; place--)
        forbidden[place] = forbidden[place - 1];
    forbidden[place] = token;
}

/* Returns whether a hypothesis ends in `n` tokens. */
static bool ends_in(const int32_t *tokens, size_t length, const int32_t *last, size_t n) {
    return n <= length && !memcmp(tokens + length - n, last, n * sizeof *last);
}

void apply_rules(const Rules *rules, const int32_t *tokens, size_t length, int32_t *forbidden,
                 NextTokens *next) {
    const size_t n = rules->ngram;
    next->forced = ANY_TOKEN;
    next->forbidden = forbidden;
    next->n_forbidden = 0;
    if (length < rules->n_prefix) {
        /* One that is never generated leaves nothing but the end */
        const int32_t token = rules->prefix[length];
        next->forced = token < END_OF_SENTENCE ? END_OF_SENTENCE : token;
        return;
    }
    for (size_t end = n; n > 0 && end <= length; end++)
        if (ends_in(tokens, length, tokens + end - n, n - 1))
            forbid(next, forbidden, tokens[end - 1]);
    if (length < rules->least_length)
        forbid(next, forbidden, END_OF_SENTENCE);
}
