/* The encoder over several sentences, one after the other without padding. */
#ifndef TFORMER_ENCODER_H
#define TFORMER_ENCODER_H

#include "attention.h"
#include "layers.h"

/* A source sentence. */
typedef struct {
    const int32_t *tokens; /* (S), its end of sentence included */
    size_t n_tokens;       /* S */
} Source;

/* Encodes sentences.

   hidden: (ΣS, D) receives the memory of all sentences, one after the other. */
void encode(const Model *model, const Source *sources, size_t n_sources, float *hidden,
            Workspace *workspace);

/* Projects the memory of the sentences to the keys and values of a decoder layer's cross-attention.

   memories: one for each sentence, with room for what is packed. */
void project_memory(const Attention *cross_attention, const float *hidden,
                    const Memory *memories, size_t n_sources, Workspace *workspace);

#endif
