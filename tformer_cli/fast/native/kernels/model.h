/* A Transformer's weights as the kernels read them. */
#ifndef TFORMER_MODEL_H
#define TFORMER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "matmul.h"
#include "norm.h"

/* What positions change: embeddings, to which a vector is added, or queries and keys, which are
   turned (Su et al. 2021, section 3.2). */
typedef enum { ADDED = 0, TURNED = 1 } Positions;

/* The model's shape, as Python hands it over. */
typedef struct {
    int64_t d_model;    /* D */
    int64_t head_width; /* E */
    int64_t d_ff;       /* F */
    int64_t vocab_size; /* V */
    int64_t max_positions;
    int64_t n_encoder_layers;
    int64_t n_decoder_layers;
    const int64_t *encoder_heads; /* heads of each layer's attention */
    const int64_t *decoder_heads;
    const int64_t *cross_heads;
    float norm_epsilon;
    int32_t is_pre_norm;
    int32_t activation; /* an Activation of layers.c */
    int32_t positions;  /* a Positions */
} Shape;

typedef struct {
    PackedMatrix matrix;
    const float *bias; /* or NULL */
} Linear;

typedef struct {
    size_t n_heads;
    Linear input;   /* self-attention: (3·H·E, D) queries, keys, values; cross: (H·E, D) queries */
    Linear memory;  /* cross-attention only: (2·H·E, D) keys and values */
    Linear output;  /* (D, H·E) */
    Norm norm;      /* before the layer or after its residual sum */
} Attention;

typedef struct {
    Linear inner; /* (F, D) */
    Linear outer; /* (D, F) */
    Norm norm;
} FeedForward;

typedef struct {
    Attention self_attention;
    Attention cross_attention; /* of decoder layers */
    FeedForward feed_forward;
} Layer;

/* What a stack knows of tokens and their positions. */
typedef struct {
    const float *tokens;    /* (V, D) */
    const float *positions; /* (max_positions, D); TURNED: (max_positions, E), cosines and sines */
} Embedding;

typedef struct {
    Shape shape; /* its arrays of heads are not kept */
    Embedding source, target;
    Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm; /* final norms of pre-norm stacks */
    PackedMatrix output;             /* (V, D) */
    size_t widest;                   /* the largest H·E */
    bool is_quantized;               /* whether any matrix is in integers */
    Arena arena;
} Model;

/* Is told that a weight has been copied, so that its memory can be given back before the next ones
   are read. */
typedef void (*ReleaseWeight)(const void *weight);

/* Packs a model.

   weights: pointers to float32 arrays, NULL for what is not there, in this order: source and target
   embeddings, encoder and decoder positions, output projection; of each encoder layer its
   attention, its norm, inner and outer projection, and their norm; the encoder's final norm (two
   NULLs where there is none); of each decoder layer self-attention, norm, cross-attention, norm,
   feed-forward, norm; the decoder's final norm. A norm is weight and bias; a projection is weight,
   bias and the scale of each output, which is NULL unless the weight is an array of int8; an
   attention is its input and its output projection. Embeddings, positions and norms are not copied and
   must outlive the model. release_weight: called with each projection's weight once that has been
   copied; or NULL.

   Returns NULL where there is no memory. */
Model *tformer_new_model(const Shape *shape, const void *const *weights,
                         ReleaseWeight release_weight);

void tformer_free_model(Model *model);

#endif
