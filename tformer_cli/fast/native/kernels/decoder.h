/* One position of the decoder for the live hypotheses of many sentences. */
#ifndef TFORMER_DECODER_H
#define TFORMER_DECODER_H

#include "attention.h"
#include "layers.h"

/* Keys and values of self-attention are kept in entries: an entry holds those of one position of
   one hypothesis, [layer][keys G·E, values G·E], turned where positions turn them, or the states of
   recurrences, [layer][D]. A hypothesis knows the entries of its past, so that nothing is copied
   when hypotheses branch or die. */

/* A hypothesis that grows by one token. */
typedef struct {
    int32_t token;         /* its last token, at the position that is decoded */
    size_t position;       /* where that stands, from 0; a prompt comes before */
    float *const *entries; /* (position + 1) entries of its past, and the one to be filled */
} DecoderRow;

/* The hypotheses of one sentence: they attend to one memory. */
typedef struct {
    size_t n_rows;
    const Memory *memories; /* one for each decoder layer */
} RowGroup;

/* Floats of an entry. */
size_t entry_size(const Model *model);

/* Decodes a position.

   rows: the hypotheses, those of a sentence one after the other; or positions of one text in turn,
   each of which attends to those before it. groups: their sentences; not read where the model has no
   encoder.
   hidden: (n_rows, D) receives the last hidden states, of which logits are made. Where heads are
   listened to, the workspace receives the sums of their weights. */
void decode_step(const Model *model, const DecoderRow *rows, size_t n_rows, const RowGroup *groups,
                 size_t n_groups, float *hidden, Workspace *workspace);

#endif
