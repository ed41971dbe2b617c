#include "model.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "quantized.h"

/* Reads the list of weights from its beginning to its end while the arena is laid out. */
typedef struct {
    Arena *arena;
    const void *const *next;
    ReleaseWeight release; /* or NULL */
    int32_t is_rms;
    bool has_integers;
} Reader;

/* A projection as Python hands it over. */
typedef struct {
    const void *weight; /* (N, K) float, or int8_t where there is a scale */
    const float *bias;  /* (N) or NULL */
    const float *scale; /* (N) or NULL */
} Projection;

static Projection read_projection(Reader *reader) {
    const void *weight = *reader->next++;
    const float *bias = *reader->next++, *scale = *reader->next++;
    reader->has_integers |= scale != NULL;
    return (Projection){weight, bias, scale};
}

/* A projection without its first outputs. */
static Projection outputs_from(Projection whole, size_t first, size_t n_inputs) {
    const size_t size = whole.scale ? sizeof(int8_t) : sizeof(float);
    return (Projection){
        (const char *)whole.weight + first * n_inputs * size,
        whole.bias ? whole.bias + first : NULL,
        whole.scale ? whole.scale + first : NULL,
    };
}

/* Copies the numbers of all outputs, the first `n_scaled` times a factor. */
static const float *pack_vector(Arena *arena, const float *values, size_t n, size_t n_scaled,
                                float factor) {
    float *copy = arena_take(arena, n, sizeof(float));
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = i < n_scaled ? values[i] * factor : values[i];
    return copy;
}

/* Lays out a projection; what is a number for each output is there then, its rows are not. */
static Linear lay_out_linear(Arena *arena, Projection given, size_t n_outputs, size_t n_inputs,
                             size_t n_scaled, float factor) {
    Linear linear = {.matrix = {.n_inputs = n_inputs, .n_outputs = n_outputs}};
    if (given.bias)
        linear.bias = pack_vector(arena, given.bias, n_outputs, n_scaled, factor);
    if (given.scale) {
        linear.matrix.integers = arena_take(arena, integers_size(n_outputs, n_inputs), 1);
        int32_t *starts = arena_take(arena, starts_size(n_outputs), sizeof(int32_t));
        linear.matrix.starts = starts;
        if (starts)
            sum_integers(given.weight, n_outputs, n_inputs, starts);
        linear.matrix.scale = pack_vector(arena, given.scale, n_outputs, n_scaled, factor);
    } else {
        const size_t size = saturated_product(packed_size(n_outputs, 1), n_inputs);
        linear.matrix.panels = arena_take(arena, size, sizeof(float));
    }
    return linear;
}

/* Packs the rows of a projection, the first `n_scaled` times a factor. */
static void pack_rows(PackedMatrix *matrix, const void *weight, size_t n_scaled, float factor) {
    const size_t n_outputs = matrix->n_outputs, n_inputs = matrix->n_inputs;
    if (matrix->scale) {
        pack_integers(weight, n_outputs, n_inputs, (int8_t *)matrix->integers);
        return;
    }
    float *panels = (float *)matrix->panels;
    pack_matrix(weight, n_outputs, n_inputs, n_inputs, panels);
    for (size_t row = 0; row < n_scaled; row++) {
        float *column = panels + row / PANEL_COLUMNS * PANEL_COLUMNS * n_inputs;
        for (size_t k = 0; k < n_inputs; k++)
            column[k * PANEL_COLUMNS + row % PANEL_COLUMNS] *= factor;
    }
}

/* Packs rows of a projection times a factor; without memory only its size is added up. */
static Linear pack_linear(Arena *arena, Projection given, size_t n_outputs, size_t n_inputs,
                          size_t n_scaled, float factor) {
    Linear linear = lay_out_linear(arena, given, n_outputs, n_inputs, n_scaled, factor);
    if (arena->memory)
        pack_rows(&linear.matrix, given.weight, n_scaled, factor);
    return linear;
}

const Linear *whole_output(const Model *model) {
    /* The only part of a model that changes; whoever comes first does it, the others wait */
    int *state = (int *)&model->output_state;
    int expected = NOT_PACKED;
    if (__atomic_compare_exchange_n(state, &expected, BEING_PACKED, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        PackedMatrix output = model->output.matrix; /* where it lies is const, not what is there */
        pack_rows(&output, model->output_rows, 0, 1.0f);
        __atomic_store_n(state, PACKED, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != PACKED)
        sched_yield();
    return &model->output;
}

/* Tells the owner of a matrix that it has been packed. */
static void release(const Reader *reader, Projection given) {
    if (reader->release && reader->arena->memory)
        reader->release(given.weight);
}

static Linear read_linear(Reader *reader, size_t n_outputs, size_t n_inputs) {
    const Projection given = read_projection(reader);
    const Linear linear = pack_linear(reader->arena, given, n_outputs, n_inputs, 0, 1.0f);
    release(reader, given);
    return linear;
}

static Norm read_norm(Reader *reader) {
    const float *weight = *reader->next++, *bias = *reader->next++;
    return (Norm){weight, bias, reader->is_rms};
}

static Embedding read_embedding(Reader *reader) {
    Embedding embedding = {.tokens = *reader->next++};
    embedding.scale = *reader->next++;
    embedding.positions = *reader->next++;
    embedding.norm = read_norm(reader);
    return embedding;
}

static Attention read_attention(Reader *reader, const Shape *shape, size_t n_heads, bool is_cross) {
    const size_t d_model = (size_t)shape->d_model, width = (size_t)shape->head_width;
    const size_t n_key_heads = n_heads / (size_t)shape->group_size;
    const size_t joined = n_heads * width, n_of_keys = 2 * n_key_heads * width;
    const float factor = 1.0f / sqrtf((float)width);
    const Projection given = read_projection(reader);
    Attention attention = {.n_heads = n_heads, .n_key_heads = n_key_heads};
    attention.input = pack_linear(reader->arena, given, is_cross ? joined : joined + n_of_keys,
                                  d_model, joined, factor);
    if (is_cross)
        attention.memory = pack_linear(reader->arena, outputs_from(given, joined, d_model),
                                       n_of_keys, d_model, 0, 1.0f);
    release(reader, given);
    attention.output = read_linear(reader, d_model, joined);
    attention.norm = read_norm(reader);
    return attention;
}

static FeedForward read_feed_forward(Reader *reader, const Shape *shape) {
    const size_t d_model = (size_t)shape->d_model, d_ff = (size_t)shape->d_ff;
    FeedForward feed_forward = {0};
    feed_forward.inner = read_linear(reader, d_ff, d_model);
    feed_forward.outer = read_linear(reader, d_model, d_ff);
    if (shape->is_gated)
        feed_forward.gate = read_linear(reader, d_ff, d_model);
    feed_forward.norm = read_norm(reader);
    return feed_forward;
}

static void note_width(Model *model, size_t width) {
    model->widest = width > model->widest ? width : model->widest;
}

static void note_heads(Model *model, int64_t n_heads) {
    note_width(model, (size_t)(n_heads * model->shape.head_width));
}

/* Reads all weights; the layers' own arrays are there in either pass. */
static void lay_out(Model *model, const Shape *shape, const void *const *weights,
                    ReleaseWeight release_weight) {
    const size_t d_model = (size_t)shape->d_model;
    Reader reader = {&model->arena, weights, release_weight, shape->is_rms, false};
    model->source = read_embedding(&reader);
    model->target = read_embedding(&reader);
    model->output_rows = *reader.next;
    const Projection output = read_projection(&reader);
    if (shape->n_decoder_layers > 0) {
        model->output = lay_out_linear(&model->arena, output, (size_t)shape->vocab_size, d_model,
                                       0, 1.0f);
        /* Only `whole_output` packs it: where all translations have shortlists nobody asks, and
           memory that was never written is none */
    }
    for (int64_t i = 0; i < shape->n_encoder_layers; i++) {
        Layer *layer = &model->encoder[i];
        note_heads(model, shape->encoder_heads[i]);
        layer->self_attention =
            read_attention(&reader, shape, (size_t)shape->encoder_heads[i], false);
        layer->feed_forward = read_feed_forward(&reader, shape);
    }
    model->encoder_norm = read_norm(&reader);
    for (int64_t i = 0; i < shape->n_decoder_layers; i++) {
        Layer *layer = &model->decoder[i];
        if (shape->decoder_cell == SSRU) {
            note_width(model, d_model);
            layer->recurrence.input = read_linear(&reader, 2 * d_model, d_model);
            layer->recurrence.norm = read_norm(&reader);
        } else {
            note_heads(model, shape->decoder_heads[i]);
            layer->self_attention =
                read_attention(&reader, shape, (size_t)shape->decoder_heads[i], false);
        }
        if (shape->n_encoder_layers > 0) {
            note_heads(model, shape->cross_heads[i]);
            layer->cross_attention =
                read_attention(&reader, shape, (size_t)shape->cross_heads[i], true);
        }
        layer->feed_forward = read_feed_forward(&reader, shape);
    }
    model->decoder_norm = read_norm(&reader);
    model->is_quantized = reader.has_integers;
}

Model *tformer_new_model(const Shape *shape, const void *const *weights,
                         ReleaseWeight release_weight) {
    Model *model = calloc(1, sizeof *model);
    if (!model)
        return NULL;
    model->shape = *shape;
    model->shape.encoder_heads = model->shape.decoder_heads = model->shape.cross_heads = NULL;
    /* One more, because NULL may stand for none */
    model->encoder = calloc((size_t)shape->n_encoder_layers + 1, sizeof(Layer));
    model->decoder = calloc((size_t)shape->n_decoder_layers + 1, sizeof(Layer));
    if (model->encoder && model->decoder) {
        lay_out(model, shape, weights, release_weight);
        if (arena_allocate(&model->arena)) {
            lay_out(model, shape, weights, release_weight);
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

void tformer_sinusoids(int64_t n_positions, int64_t width, double base, float *table) {
    for (int64_t i = 0; i + 1 < width; i += 2) {
        /* In double, as torch's are, or large angles would differ */
        const double frequency = exp(-log(base) * (double)i / (double)width);
        for (int64_t position = 0; position < n_positions; position++) {
            const double angle = (double)position * frequency;
            table[position * width + i] = (float)sin(angle);
            table[position * width + i + 1] = (float)cos(angle);
        }
    }
}
