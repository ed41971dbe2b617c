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

/* Returns the projection whose outputs are a sentence's next tokens, and turns what is asked about
   its rows into places among them. Where a token is forced that is not listed, nothing but the end
   of sentence is left. */
const Linear *listed_output(const Model *model, const Shortlist *shortlist, NextTokens *rows,
                            size_t n_rows);

/* Turns the places that were chosen back into tokens. */
void name_tokens(const Shortlist *shortlist, NextTokens *rows, size_t n_rows);

#endif
