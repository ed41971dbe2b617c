#include "model.h"

#include <math.h>
#include <stdlib.h>

/* Reads the list of weights from its beginning to its end while the arena is laid out. */
typedef struct {
    Arena *arena;
    const float *const *next;
} Reader;

/* Packs rows of a projection times a factor; without memory only its size is added up. */
static Linear pack_linear(Arena *arena, const float *weight, const float *bias, size_t n_outputs,
                          size_t n_inputs, size_t n_scaled, float factor) {
    const size_t size = saturated_product(
        (n_outputs + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS, n_inputs);
    float *panels = arena_take(arena, size, sizeof(float));
    float *scaled_bias = bias ? arena_take(arena, n_outputs, sizeof(float)) : NULL;
    if (panels) {
        pack_matrix(weight, n_outputs, n_inputs, n_inputs, panels);
        for (size_t row = 0; row < n_scaled; row++) {
            float *column = panels + row / PANEL_COLUMNS * PANEL_COLUMNS * n_inputs;
            for (size_t k = 0; k < n_inputs; k++)
                column[k * PANEL_COLUMNS + row % PANEL_COLUMNS] *= factor;
        }
    }
    if (scaled_bias)
        for (size_t row = 0; row < n_outputs; row++)
            scaled_bias[row] = row < n_scaled ? bias[row] * factor : bias[row];
    return (Linear){{n_inputs, n_outputs, panels}, scaled_bias};
}

static Linear read_linear(Reader *reader, size_t n_outputs, size_t n_inputs) {
    const float *weight = *reader->next++, *bias = *reader->next++;
    return pack_linear(reader->arena, weight, bias, n_outputs, n_inputs, 0, 1.0f);
}

static Norm read_norm(Reader *reader) {
    const float *weight = *reader->next++, *bias = *reader->next++;
    return (Norm){weight, bias};
}

static Attention read_attention(Reader *reader, const Shape *shape, size_t n_heads, bool is_cross) {
    const size_t d_model = (size_t)shape->d_model, width = (size_t)shape->head_width;
    const size_t joined = n_heads * width;
    const float factor = 1.0f / sqrtf((float)width);
    const float *weight = *reader->next++, *bias = *reader->next++;
    Attention attention = {.n_heads = n_heads};
    attention.input = pack_linear(reader->arena, weight, bias, is_cross ? joined : 3 * joined,
                                  d_model, joined, factor);
    if (is_cross)
        attention.memory = pack_linear(reader->arena, weight + joined * d_model,
                                       bias ? bias + joined : NULL, 2 * joined, d_model, 0, 1.0f);
    attention.output = read_linear(reader, d_model, joined);
    attention.norm = read_norm(reader);
    return attention;
}

static FeedForward read_feed_forward(Reader *reader, const Shape *shape) {
    const size_t d_model = (size_t)shape->d_model, d_ff = (size_t)shape->d_ff;
    FeedForward feed_forward;
    feed_forward.inner = read_linear(reader, d_ff, d_model);
    feed_forward.outer = read_linear(reader, d_model, d_ff);
    feed_forward.norm = read_norm(reader);
    return feed_forward;
}

static void note_width(Model *model, size_t n_heads) {
    const size_t joined = n_heads * (size_t)model->shape.head_width;
    model->widest = joined > model->widest ? joined : model->widest;
}

/* Reads all weights; the layers' own arrays are there in either pass. */
static void lay_out(Model *model, const Shape *shape, const float *const *weights) {
    Reader reader = {&model->arena, weights};
    model->source.tokens = *reader.next++;
    model->target.tokens = *reader.next++;
    const float *output = *reader.next++;
    model->source.positions = *reader.next++;
    model->target.positions = *reader.next++;
    model->output = pack_linear(&model->arena, output, NULL, (size_t)shape->vocab_size,
                                (size_t)shape->d_model, 0, 1.0f)
                        .matrix;
    for (int64_t i = 0; i < shape->n_encoder_layers; i++) {
        Layer *layer = &model->encoder[i];
        note_width(model, (size_t)shape->encoder_heads[i]);
        layer->self_attention =
            read_attention(&reader, shape, (size_t)shape->encoder_heads[i], false);
        layer->feed_forward = read_feed_forward(&reader, shape);
    }
    model->encoder_norm = read_norm(&reader);
    for (int64_t i = 0; i < shape->n_decoder_layers; i++) {
        Layer *layer = &model->decoder[i];
        note_width(model, (size_t)shape->decoder_heads[i]);
        note_width(model, (size_t)shape->cross_heads[i]);
        layer->self_attention =
            read_attention(&reader, shape, (size_t)shape->decoder_heads[i], false);
        layer->cross_attention =
            read_attention(&reader, shape, (size_t)shape->cross_heads[i], true);
        layer->feed_forward = read_feed_forward(&reader, shape);
    }
    model->decoder_norm = read_norm(&reader);
}

Model *tformer_new_model(const Shape *shape, const float *const *weights) {
    Model *model = calloc(1, sizeof *model);
    if (!model)
        return NULL;
    model->shape = *shape;
    model->shape.encoder_heads = model->shape.decoder_heads = model->shape.cross_heads = NULL;
    model->encoder = calloc((size_t)shape->n_encoder_layers, sizeof(Layer));
    model->decoder = calloc((size_t)shape->n_decoder_layers, sizeof(Layer));
    if (model->encoder && model->decoder) {
        lay_out(model, shape, weights);
        if (arena_allocate(&model->arena)) {
            lay_out(model, shape, weights);
            return model;
        }
    }
    tformer_free_model(model);
    return NULL;
}

void tformer_free_model(Model *model) {
    if (!model)
        return;
    arena_free(&model->arena);
    free(model->encoder);
    free(model->decoder);
    free(model);
}
