/* The part of the output projection that a sentence's translation may choose its tokens from. */
#ifndef TFORMER_SHORTLIST_H
#define TFORMER_SHORTLIST_H

#include "arena.h"
#include "model.h"
#include "vocabulary.h"

typedef struct {
    const int32_t *tokens; /* (n) ascending, all ids up to the end of sentence among them */
    size_t n;              /* 0: all of the vocabulary */
    Linear output;         /* (n, D) */
} Shortlist;

/* Packs the rows of some tokens, which must outlive the shortlist. Products with them have the bits
   of those with all rows. */
void lay_out_shortlist(Arena *arena, const Model *model, const int32_t *tokens, size_t n,
                       Shortlist *shortlist);

/* Finds the best next tokens of rows, of the shortlist's or of all; see `best_tokens`. What is asked
   about them is used up. */
void best_listed_tokens(const Model *model, const Shortlist *shortlist, const float *hidden,
                        size_t n_rows, QuantizedRows *quantized, Vocabulary vocabulary);

#endif
