#include "layers.h"

#include <math.h>

#include "exponential.h"
#include "rotary.h"

/* Rows whose inner states stay in the second cache between both projections. */
#define FEED_FORWARD_ROWS ((size_t)112)

/* Functions between the products of feed-forward layers, by the numbers that weights.py gives. */
typedef enum { RELU = 0, GELU = 1, SWISH = 2, GELU_TANH = 3 } Activation;

void lay_out_workspace(Arena *arena, const Model *model, size_t n_rows, size_t longest_source,
                       size_t longest_target, Workspace *workspace) {
    const size_t d_model = (size_t)model->shape.d_model, d_ff = (size_t)model->shape.d_ff;
    const size_t width = (size_t)model->shape.head_width;
    const size_t most_heads = model->widest / width;
    const size_t row = sizeof(float);
    const size_t source_scores = saturated_product(QUERY_BLOCK, row_stride(longest_source));
    const size_t target_scores = saturated_product(most_heads, whole_vectors(longest_target));
    /* A panel may be wider than the sentence is long, or than the head: room for either */
    const size_t panels = saturated_product(
        saturated_product(2 * most_heads, width + PANEL_COLUMNS), longest_source + PANEL_COLUMNS);
    const size_t n_inner = smaller_of(n_rows, FEED_FORWARD_ROWS);
    workspace->hidden_stride = row_stride(d_model);
    workspace->normed = arena_take(arena, saturated_product(n_rows, row_stride(d_model)), row);
    workspace->projected =
        arena_take(arena, saturated_product(n_rows, row_stride(3 * model->widest)), row);
    workspace->context = arena_take(arena, saturated_product(n_rows, row_stride(model->widest)), row);
    workspace->inner = arena_take(arena, saturated_product(n_inner, row_stride(d_ff)), row);
    workspace->gate = arena_take(
        arena, model->shape.is_gated ? saturated_product(n_inner, row_stride(d_ff)) : 0, row);
    workspace->scores =
        arena_take(arena, source_scores > target_scores ? source_scores : target_scores, row);
    workspace->panels = arena_take(arena, panels, row);
    workspace->positions = arena_take(arena, n_rows, sizeof(size_t));
    workspace->heard_stride = workspace->heads ? whole_vectors(longest_source) : 0;
    workspace->heard = arena_take(arena, saturated_product(n_rows, workspace->heard_stride), row);
    if (model->is_quantized) {
        const size_t wider = d_model > d_ff ? d_model : d_ff;
        lay_out_quantized_rows(arena, n_rows, wider > model->widest ? wider : model->widest,
                               &workspace->quantized);
    }
}

Memory take_memory(Arena *arena, const Model *model, size_t layer, size_t n_positions) {
    const size_t n_heads = model->decoder[layer].cross_attention.n_key_heads;
    const size_t width = (size_t)model->shape.head_width;
    return (Memory){
        .n_positions = n_positions,
        .n_heads = n_heads,
        .group_size = (size_t)model->shape.group_size,
        .head_width = width,
        .panels = arena_take(arena, memory_size(n_positions, n_heads, width), sizeof(float)),
    };
}

void embed(const Model *model, const Embedding *embedding, int32_t token, size_t position,
           size_t row, float *hidden, Workspace *workspace) {
    const size_t d_model = (size_t)model->shape.d_model;
    const float scale = model->shape.scales_embeddings ? sqrtf((float)d_model) : 1.0f;
    const size_t first = (size_t)token * d_model;
    hidden += row * workspace->hidden_stride;
    workspace->positions[row] = position;
    if (embedding->scale) {
        const int8_t *integers = (const int8_t *)embedding->tokens + first;
        for (size_t i = 0; i < d_model; i++)
            hidden[i] = (float)integers[i] * embedding->scale[token];
    } else {
        memcpy(hidden, (const float *)embedding->tokens + first, d_model * sizeof(float));
    }
    if (model->shape.positions == TURNED || !embedding->positions) {
        for (size_t i = 0; i < d_model; i++)
            hidden[i] *= scale;
    } else {
        const float *place = embedding->positions + position * d_model;
        for (size_t i = 0; i < d_model; i++)
            hidden[i] = hidden[i] * scale + place[i];
    }
    if (embedding->norm.weight)
        normalize(&embedding->norm, hidden, 1, d_model, d_model, model->shape.norm_epsilon, hidden);
}

void project_own(const Model *model, const Embedding *embedding, const Attention *attention,
                 const float *x, size_t n_rows, Workspace *workspace) {
    const Linear *input = &attention->input;
    const size_t stride = row_stride(input->matrix.n_outputs);
    multiply_any(&input->matrix, x, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = input->bias}, workspace->projected, stride,
                 &workspace->quantized);
    if (model->shape.positions != TURNED)
        return;
    const size_t width = (size_t)model->shape.head_width;
    const size_t n_heads = attention->n_heads + attention->n_key_heads; /* keys behind queries */
    for (size_t row = 0; row < n_rows; row++)
        for (size_t head = 0; head < n_heads; head++)
            turn_head(embedding->positions + workspace->positions[row] * width, width, 1.0f,
                      workspace->projected + row * stride + head * width);
}

const float *before_sublayer(const Model *model, const Norm *norm, const float *hidden,
                             size_t n_rows, Workspace *workspace) {
    if (!model->shape.is_pre_norm)
        return hidden;
    normalize(norm, hidden, n_rows, (size_t)model->shape.d_model, workspace->hidden_stride,
              model->shape.norm_epsilon, workspace->normed);
    return workspace->normed;
}

void after_sublayer(const Model *model, const Norm *norm, float *hidden, size_t n_rows) {
    const size_t d_model = (size_t)model->shape.d_model;
    if (!model->shape.is_pre_norm)
        normalize(norm, hidden, n_rows, d_model, row_stride(d_model), model->shape.norm_epsilon,
                  hidden);
}

void record_rows(Workspace *workspace, const float *rows, size_t stride, size_t n_rows,
                 size_t width) {
    for (size_t row = 0; workspace->recorded && row < n_rows; row++, workspace->recorded += width)
        memcpy(workspace->recorded, rows + row * stride, width * sizeof *rows);
}

void add_attention(const Model *model, const Attention *attention, float *hidden, size_t n_rows,
                   Workspace *workspace) {
    const Linear *output = &attention->output;
    const Epilogue epilogue = {.bias = output->bias, .residual = hidden};
    const size_t width = attention->input.matrix.n_outputs, joined = output->matrix.n_inputs;
    record_rows(workspace, workspace->projected, row_stride(width), n_rows, width);
    record_rows(workspace, workspace->context, row_stride(joined), n_rows, joined);
    multiply_any(&output->matrix, workspace->context, row_stride(joined), n_rows, epilogue, hidden,
                 workspace->hidden_stride, &workspace->quantized);
    after_sublayer(model, &attention->norm, hidden, n_rows);
}

/* x / (1 + e^-x); from -88 on down e^-x is as large as `exponential` can make it. */
INLINE Vector swish(Vector x) {
    return x / (broadcast(1.0f) + exponential(-larger(broadcast(-88.0f), x)));
}

/* x·σ(2u), u = √(2/π)·(x + 0.044715x³): the approximation of GELU by tanh. */
INLINE Vector gelu_tanh(Vector x) {
    const Vector doubled = x * (broadcast(1.0f) + broadcast(0.044715f) * x * x);
    return x * sigmoid(doubled * broadcast(1.59576912f));
}

INLINE Vector activated(Vector x, Activation activation) {
    switch (activation) {
    case GELU:
        return gelu(x);
    case SWISH:
        return swish(x);
    case GELU_TANH:
        return gelu_tanh(x);
    default: /* products have max(0, x) built in */
        return x;
    }
}

static void apply_activation(float *values, size_t n, Activation activation) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(values + i, activated(load(values + i), activation));
    if (i < n) {
        const int rest = (int)(n - i);
        store_some(values + i, activated(load_some(values + i, rest, 0.0f), activation), rest);
    }
}

static void multiply_by(float *values, const float *others, size_t n) {
    for (size_t i = 0; i < n; i++)
        values[i] *= others[i];
}

/* The inner states of rows of x (n_rows, D), activated and where there is a gate multiplied. */
static void compute_inner(const Model *model, const FeedForward *layer, const float *x,
                          size_t n_rows, Workspace *workspace) {
    const size_t d_ff = (size_t)model->shape.d_ff, stride = row_stride(d_ff);
    const Activation activation = (Activation)model->shape.activation;
    const bool is_gated = model->shape.is_gated;
    const Linear *first = is_gated ? &layer->gate : &layer->inner;
    multiply_any(&first->matrix, x, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = first->bias, .relu = activation == RELU}, workspace->inner,
                 stride, &workspace->quantized);
    for (size_t row = 0; activation != RELU && row < n_rows; row++)
        apply_activation(workspace->inner + row * stride, d_ff, activation);
    if (!is_gated)
        return;
    multiply_any(&layer->inner.matrix, x, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = layer->inner.bias}, workspace->gate, stride,
                 &workspace->quantized);
    for (size_t row = 0; row < n_rows; row++)
        multiply_by(workspace->inner + row * stride, workspace->gate + row * stride, d_ff);
}

void feed_forward(const Model *model, const FeedForward *layer, float *hidden, size_t n_rows,
                  Workspace *workspace) {
    const size_t d_ff = (size_t)model->shape.d_ff, inner_stride = row_stride(d_ff);
    const size_t stride = workspace->hidden_stride;
    for (size_t first = 0; first < n_rows; first += FEED_FORWARD_ROWS) {
        const size_t n = smaller_of(n_rows - first, FEED_FORWARD_ROWS);
        float *rows = hidden + first * stride;
        const float *x = before_sublayer(model, &layer->norm, rows, n, workspace);
        compute_inner(model, layer, x, n, workspace);
        const Epilogue outer = {.bias = layer->outer.bias, .residual = rows};
        multiply_any(&layer->outer.matrix, workspace->inner, inner_stride, n, outer, rows, stride,
                     &workspace->quantized);
        after_sublayer(model, &layer->norm, rows, n);
    }
}
