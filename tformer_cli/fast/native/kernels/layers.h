/* What encoder and decoder layers share: room for their work, residuals, feed-forward. */
#ifndef TFORMER_LAYERS_H
#define TFORMER_LAYERS_H

#include "arena.h"
#include "attention.h"
#include "model.h"
#include "quantized.h"

/* Room for what layers compute on the way. Rows of hidden states, too, are as far apart as their
   width's `row_stride`. */
typedef struct {
    float *normed;    /* (rows, D) */
    float *projected; /* (rows, (H + 2·G)·E) */
    float *context;   /* (rows, H·E) */
    float *inner;     /* (FEED_FORWARD_ROWS, F) */
    float *gate;      /* the same, of layers that have a gate */
    size_t hidden_stride;
    float *scores;    /* of attention */
    float *panels;    /* keys and values of one source sentence */
    size_t *positions; /* (rows) of each row in its sentence */
    const uint8_t *heads; /* of cross-attention, layer by layer, whether each is listened to; NULL:
                             none is. Set before room is taken */
    float *heard;         /* (rows, S) sums of their weights */
    size_t heard_stride;  /* floats between its rows; 0 where nobody listens */
    float *recorded;      /* where `record_rows` goes on writing; NULL: it does not write */
    QuantizedRows quantized; /* activations, of a model in integers */
} Workspace;

/* Takes room for `n_rows` rows, sources of at most `longest_source` tokens and translations of at
   most `longest_target` positions. */
void lay_out_workspace(Arena *arena, const Model *model, size_t n_rows, size_t longest_source,
                       size_t longest_target, Workspace *workspace);

/* Takes room for what a decoder layer's cross-attention attends to: a source of `n_positions`. */
Memory take_memory(Arena *arena, const Model *model, size_t layer, size_t n_positions);

/* Begins a row of hidden states (rows, D): √D · embedding of a token, with its position, and their
   norm. */
void embed(const Model *model, const Embedding *embedding, int32_t token, size_t position,
           size_t row, float *hidden, Workspace *workspace);

/* Projects rows (n_rows, D) to queries, keys and values of self-attention (n_rows, (H + 2·G)·E), which
   lie in the workspace, with the positions of the rows in them where positions change them. */
void project_own(const Model *model, const Embedding *embedding, const Attention *attention,
                 const float *x, size_t n_rows, Workspace *workspace);

/* Writes rows (n_rows, width), which lie `stride` floats apart, behind what was recorded before. */
void record_rows(Workspace *workspace, const float *rows, size_t stride, size_t n_rows,
                 size_t width);

/* What a sub-layer reads: hidden states (n_rows, D), normalized where the model is pre-norm. */
const float *before_sublayer(const Model *model, const Norm *norm, const float *hidden,
                             size_t n_rows, Workspace *workspace);

/* Ends a sub-layer whose output has been added to the hidden states: normalizes them where the
   model is post-norm. */
void after_sublayer(const Model *model, const Norm *norm, float *hidden, size_t n_rows);

/* hidden + output projection of the context (n_rows, H·E) that lies in the workspace, in rows as
   far apart as the row stride of H·E. What was projected of the attention's own rows, and its
   context, are recorded before. */
void add_attention(const Model *model, const Attention *attention, float *hidden, size_t n_rows,
                   Workspace *workspace);

/* The feed-forward sub-layer with its residual and norm, in place. */
void feed_forward(const Model *model, const FeedForward *layer, float *hidden, size_t n_rows,
                  Workspace *workspace);

#endif
