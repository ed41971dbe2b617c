/* Drawing next tokens at random, as `decoding.search.sampling` does. */
#ifndef TFORMER_SAMPLING_H
#define TFORMER_SAMPLING_H

#include <stdint.h>

#include "vocabulary.h"

/* What tokens are drawn from. */
typedef struct {
    double temperature; /* log-probabilities are divided by it */
    size_t top_k;       /* most tokens (Fan et al. 2018); 0: all */
    double top_p; /* the most probable tokens whose probabilities first reach it (Holtzman et al.
                     2020) */
} Sampling;

/* Room for what is drawn from. */
typedef struct {
    size_t n_rows;  /* rows whose log-probabilities fit in */
    float *scores;  /* (n_rows, V) */
    float *weights; /* (V) */
    int32_t *order; /* (V) */
} Lottery;

/* The number from 0 to below 1 that decides a step of a candidate of a sentence: a function of these
   alone (Steele, Lea & Flood 2014). */
double uniform_of(uint64_t key, size_t candidate, size_t step);

void lay_out_lottery(Arena *arena, size_t vocab_size, size_t most_rows, Lottery *lottery);

/* Draws the next token of each row: its first one, with the log-probability that the model gives it.

   uniforms: (n_rows) what decides. The rest is as of `best_tokens`. */
void draw_tokens(const Linear *output, const float *hidden, size_t n_rows, const Sampling *sampling,
                 const double *uniforms, QuantizedRows *quantized, Vocabulary *vocabulary,
                 Lottery *lottery);

#endif
