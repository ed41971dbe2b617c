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

/* What decoder layers have before cross-attention: attention to the past, or a recurrence. */
typedef enum { ATTENTION = 0, SSRU = 1 } DecoderCell;

/* The model's shape, as Python hands it over. */
typedef struct {
    int64_t d_model;    /* D */
    int64_t head_width; /* E */
    int64_t d_ff;       /* F */
    int64_t vocab_size; /* V, of the target */
    int64_t max_positions;
    int64_t n_encoder_layers; /* 0: a language model, without cross-attention */
    int64_t n_decoder_layers; /* 0: an encoder alone */
    const int64_t *encoder_heads; /* heads of each layer's attention */
    const int64_t *decoder_heads;
    const int64_t *cross_heads;
    int64_t group_size; /* heads of queries that share one of keys and values, 1 or more */
    float norm_epsilon;
    int32_t is_pre_norm;
    int32_t activation; /* an Activation of layers.c */
    int32_t positions;  /* a Positions */
    int32_t decoder_cell; /* a DecoderCell */
    int32_t scales_embeddings; /* whether embeddings are multiplied by √D */
    int32_t is_rms; /* of all norms, see Norm */
    int32_t is_gated; /* whether feed-forward layers have a gate */
} Shape;

typedef struct {
    size_t n_heads;     /* H */
    size_t n_key_heads; /* G, which divides H */
    Linear input;   /* self-attention: ((H + 2·G)·E, D) queries, keys, values; cross: (H·E, D) queries */
    Linear memory;  /* cross-attention only: (2·G·E, D) keys and values */
    Linear output;  /* (D, H·E) */
    Norm norm;      /* before the layer or after its residual sum */
} Attention;

typedef struct {
    Linear inner; /* (F, D) */
    Linear outer; /* (D, F) */
    Linear gate;  /* (F, D) of layers that have one: act(gate·x) ⊙ inner·x (Shazeer 2020) */
    Norm norm;
} FeedForward;

/* The simpler simple recurrent unit (Kim et al. 2019, "From Research to Production and Back",
   section 3.1), with x the layer's input and c_0 = 0:

       f_t = σ(W_f·x_t + b_f)    c_t = f_t ⊙ c_t-1 + (1 - f_t) ⊙ W·x_t    output max(0, c_t) */
typedef struct {
    Linear input; /* (2·D, D) W, and behind it W_f; the bias of W is 0 */
    Norm norm;
} Recurrence;

typedef struct {
    Attention self_attention; /* or */
    Recurrence recurrence;    /* of decoder layers whose cell is SSRU */
    Attention cross_attention; /* of decoder layers, if there is an encoder */
    FeedForward feed_forward;
} Layer;

/* What a stack knows of tokens and their positions. */
typedef struct {
    const void *tokens;     /* (V, D) float, or int8_t where there is a scale */
    const float *scale;     /* (V) or NULL */
    const float *positions; /* (max_positions, D); TURNED: (max_positions, E), cosines and sines;
                               NULL: there are none */
    Norm norm;              /* of their sum; weight NULL: there is none */
} Embedding;

/* Is told that a weight has been copied, so that its memory can be given back before the next ones
   are read. */
typedef void (*ReleaseWeight)(const void *weight);

enum { NOT_PACKED, BEING_PACKED, PACKED };

typedef struct {
    Shape shape; /* its arrays of heads are not kept */
    Embedding source, target;
    Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm; /* final norms; weight NULL: there is none */
    Linear output;                   /* (V, D), if there is a decoder; see `whole_output` */
    int output_state;                /* NOT_PACKED, then BEING_PACKED, PACKED */
    const void *output_rows;         /* its weight as it was given */
    size_t widest;                   /* the largest H·E, and D where layers have a recurrence */
    bool is_quantized;               /* whether any matrix is in integers */
    Arena arena;
} Model;

/* Packs a model.

   weights: pointers to float32 arrays, NULL for what is not there, in this order: embeddings,
   positions and norm of the source, and of the target; output projection; of each encoder layer its
   attention, its norm, inner and outer projection, the gate if there are gates, and their norm; the
   encoder's final norm; of each decoder layer self-attention, or the projection of a recurrence,
   norm, cross-attention and norm if there is an encoder, feed-forward, norm; the decoder's final
   norm. A norm is weight and bias, or two NULLs; a projection is weight, bias and the scale of each
   output, which is NULL unless the weight is an array of int8; embeddings are weight and scale; an
   attention is its input and its output projection. Embeddings, positions and norms are not copied
   and must outlive the model, as must the weight of the output projection, of which shortlists take
   rows. release_weight: called with the weight of each other projection once that has been copied; or
   NULL.

   Returns NULL where there is no memory. */
Model *tformer_new_model(const Shape *shape, const void *const *weights,
                         ReleaseWeight release_weight);

/* Returns the output projection of all tokens, which is packed when it is first asked for: that of a
   large vocabulary is as large as all layers. Any thread may ask. */
const Linear *whole_output(const Model *model);

/* Whether the model is a decoder alone, whose sources are prompts that it continues. */
INLINE bool is_decoder_only(const Model *model) { return model->shape.n_encoder_layers == 0; }

void tformer_free_model(Model *model);

/* Computes position vectors: sines and cosines of position / base^(2i/width) alternate (Vaswani et al.
   2017, section 3.5).

   table: (n_positions, width) receives them. */
void tformer_sinusoids(int64_t n_positions, int64_t width, double base, float *table);

#endif
