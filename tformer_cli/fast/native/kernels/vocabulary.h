/* From hidden states to the best next tokens: output projection, log-softmax and the k best, over
   a part of the vocabulary at a time, so that logits never leave the cache. */
#ifndef TFORMER_VOCABULARY_H
#define TFORMER_VOCABULARY_H

#include "arena.h"
#include "quantized.h"

/* Padding, unknown token and beginning of sentence have the ids before this one and are never
   generated. */
#define END_OF_SENTENCE 3
#define BEGINNING_OF_SENTENCE 2

/* What a row's next token may be where nothing is forced. */
#define ANY_TOKEN (-1)

/* What is asked about a row's next token, and then what is known of it. */
typedef struct {
    int32_t forced;     /* the only token that is looked at, or ANY_TOKEN */
    int32_t *forbidden; /* (n_forbidden) ascending; they count in the sums, but are not found */
    size_t n_forbidden;
    size_t n_passed; /* of these, in the part of the vocabulary so far */
    size_t n_best;   /* tokens found, at most as many as asked for */
    int32_t *tokens; /* the best, best first; of equal ones the smaller id */
    float *values;   /* their logits, and in the end log-probabilities, at most 0 */
    float end;       /* the same of the end of sentence */
    float largest;   /* logit so far */
    float sum;       /* Σ exp(logit - largest) so far */
} NextTokens;

typedef struct {
    size_t k;
    NextTokens *rows; /* (most_rows) */
    float *logits;    /* of some rows and some tokens */
} Vocabulary;

/* Nothing is forced or forbidden at first. k: at least 1 where tokens are looked for. */
void lay_out_vocabulary(Arena *arena, size_t most_rows, size_t k, Vocabulary *vocabulary);

/* Finds the k best next tokens of each row, or the one that is forced, whatever its probability.

   output: (V, D) and its bias, V larger than END_OF_SENTENCE. hidden: (n_rows, D) last hidden states.
   quantized: room for them if the matrix is in integers. A row whose logits are not all numbers may
   find none. */
void best_tokens(const Linear *output, const float *hidden, size_t n_rows,
                 QuantizedRows *quantized, Vocabulary *vocabulary);

/* Computes log p of all tokens of each row, with the same bits.

   result: (n_rows, V). */
void all_log_probabilities(const Linear *output, const float *hidden, size_t n_rows,
                           QuantizedRows *quantized, Vocabulary *vocabulary, float *result);

#endif
