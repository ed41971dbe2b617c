#include "decoder.h"

#include "exponential.h"
#include "number.h"

size_t entry_size(const Model *model) {
    size_t n_heads = 0;
    if (model->shape.decoder_cell == SSRU)
        return (size_t)(model->shape.n_decoder_layers * model->shape.d_model);
    for (int64_t i = 0; i < model->shape.n_decoder_layers; i++)
        n_heads += model->decoder[i].self_attention.n_key_heads;
    return 2 * n_heads * (size_t)model->shape.head_width;
}

/* One row of a recurrence: what was projected (2·D), W·x first; the state before, NULL: 0; the state
   after; and the residual, to which the output is added. */
static void recur_row(const float *projected, size_t d_model, const float *before, float *state,
                      float *residual) {
    const Vector zero = broadcast(0.0f);
    for (size_t i = 0; i < d_model; i += LANES) {
        const size_t n = d_model - i;
        const Vector keep = sigmoid(load_up_to(projected + d_model + i, n, FLOAT32));
        const Vector past = before ? load_up_to(before + i, n, FLOAT32) : zero;
        const Vector now =
            keep * past + (broadcast(1.0f) - keep) * load_up_to(projected + i, n, FLOAT32);
        store_up_to(state + i, now, n, FLOAT32);
        const Vector sum = load_up_to(residual + i, n, FLOAT32) + larger(now, zero);
        store_up_to(residual + i, sum, n, FLOAT32);
    }
}

/* Masked self-attention; `offset` is where the layer begins in an entry. */
static void attend_to_own(const Model *model, const Attention *attention, const DecoderRow *rows,
                          size_t n_rows, size_t offset, const float *x, Workspace *workspace) {
    const size_t width = (size_t)model->shape.head_width;
    const size_t joined = attention->n_heads * width, kept = 2 * attention->n_key_heads * width;
    const size_t stride = row_stride(joined + kept), context_stride = row_stride(joined);
    project_own(model, &model->target, attention, x, n_rows, workspace);
    for (size_t row = 0; row < n_rows; row++) {
        const float *query = workspace->projected + row * stride;
        const size_t position = rows[row].position;
        memcpy(rows[row].entries[position] + offset, query + joined, kept * sizeof(float));
        attend_to_past((const float *const *)rows[row].entries, offset, position + 1,
                       attention->n_heads, (size_t)model->shape.group_size, width, query,
                       workspace->scores,
                       workspace->context + row * context_stride);
    }
}

/* A recurrence with its residual and norm, in place; `offset` is where the layer begins in an entry,
   which keeps its state. A row's past is filled before it: rows of a sentence come in that order. */
static void recur(const Model *model, const Recurrence *recurrence, const DecoderRow *rows,
                  size_t n_rows, size_t offset, float *hidden, Workspace *workspace) {
    const size_t d_model = (size_t)model->shape.d_model, stride = row_stride(2 * d_model);
    const Linear *input = &recurrence->input;
    const float *x = before_sublayer(model, &recurrence->norm, hidden, n_rows, workspace);
    multiply_any(&input->matrix, x, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = input->bias}, workspace->projected, stride,
                 &workspace->quantized);
    for (size_t row = 0; row < n_rows; row++) {
        const size_t position = rows[row].position;
        float *const *entries = rows[row].entries;
        recur_row(workspace->projected + row * stride, d_model,
                  position ? entries[position - 1] + offset : NULL, entries[position] + offset,
                  hidden + row * workspace->hidden_stride);
    }
    after_sublayer(model, &recurrence->norm, hidden, n_rows);
}

static void attend_to_source(const Model *model, const Attention *attention, size_t n_rows,
                             const RowGroup *groups, size_t n_groups, size_t layer, const float *x,
                             const uint8_t *heads, Workspace *workspace) {
    const size_t joined = attention->n_heads * (size_t)model->shape.head_width;
    const Linear *input = &attention->input;
    const size_t stride = row_stride(joined);
    multiply_any(&input->matrix, x, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = input->bias}, workspace->projected, stride,
                 &workspace->quantized);
    size_t row = 0;
    for (size_t i = 0; i < n_groups; i++) {
        attend(&groups[i].memories[layer], workspace->projected + row * stride, stride,
               groups[i].n_rows, workspace->scores, workspace->context + row * stride, stride,
               (Heard){heads, workspace->heard + row * workspace->heard_stride,
                       workspace->heard_stride});
        row += groups[i].n_rows;
    }
}

void decode_step(const Model *model, const DecoderRow *rows, size_t n_rows, const RowGroup *groups,
                 size_t n_groups, float *hidden, Workspace *workspace) {
    const size_t d_model = (size_t)model->shape.d_model, stride = workspace->hidden_stride;
    for (size_t row = 0; row < n_rows; row++)
        embed(model, &model->target, rows[row].token, rows[row].position, row, hidden, workspace);
    size_t offset = 0; /* of a layer in entries */
    const uint8_t *heads = workspace->heads; /* of a layer */
    if (heads)
        memset(workspace->heard, 0, n_rows * workspace->heard_stride * sizeof *workspace->heard);
    for (int64_t i = 0; i < model->shape.n_decoder_layers; i++) {
        const Layer *layer = &model->decoder[i];
        const Attention *own = &layer->self_attention, *cross = &layer->cross_attention;
        const float *x;
        if (model->shape.decoder_cell == SSRU) {
            recur(model, &layer->recurrence, rows, n_rows, offset, hidden, workspace);
            offset += d_model;
        } else {
            x = before_sublayer(model, &own->norm, hidden, n_rows, workspace);
            attend_to_own(model, own, rows, n_rows, offset, x, workspace);
            offset += 2 * own->n_key_heads * (size_t)model->shape.head_width;
            add_attention(model, own, hidden, n_rows, workspace);
        }
        if (!is_decoder_only(model)) {
            x = before_sublayer(model, &cross->norm, hidden, n_rows, workspace);
            attend_to_source(model, cross, n_rows, groups, n_groups, (size_t)i, x, heads,
                             workspace);
            heads = heads ? heads + cross->n_heads : NULL;
            add_attention(model, cross, hidden, n_rows, workspace);
        }
        feed_forward(model, &layer->feed_forward, hidden, n_rows, workspace);
    }
    if (model->decoder_norm.weight)
        normalize(&model->decoder_norm, hidden, n_rows, d_model, stride,
                  model->shape.norm_epsilon, hidden);
}
