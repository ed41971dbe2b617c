/* Hidden states of texts: what an encoder makes of them. */
#ifndef TFORMER_ENCODING_H
#define TFORMER_ENCODING_H

#include "model.h"

/* What is asked for. */
typedef struct {
    int64_t n_texts;
    const int32_t *tokens; /* those of each text, at least one, one after the other */
    const int64_t *starts; /* (n_texts + 1) where each begins, and where the last one stops */
    const int32_t *stop;   /* atomic; becomes nonzero when the answer is not wanted any more */
    float *hidden;         /* (all tokens, D) receives the encoder's output */
} EncodeRequest;

/* Encodes texts in the order given; returns what `tformer_search` returns. The numbers of a text do
   not depend on the others. */
int32_t tformer_encode(const Model *model, const EncodeRequest *request);

#endif
