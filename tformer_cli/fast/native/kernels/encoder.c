#include "encoder.h"

static size_t embed_sources(const Model *model, const Source *sources, size_t n_sources,
                            float *hidden, Workspace *workspace) {
    size_t row = 0;
    for (size_t i = 0; i < n_sources; i++)
        for (size_t position = 0; position < sources[i].n_tokens; position++, row++)
            embed(model, &model->source, sources[i].tokens[position], position, row, hidden,
                  workspace);
    return row;
}

/* Each sentence attends to itself; queries, keys and values of all lie side by side. */
static void attend_within(const Model *model, const Attention *attention, const Source *sources,
                          size_t n_sources, Workspace *workspace) {
    const size_t width = (size_t)model->shape.head_width;
    const size_t joined = attention->n_heads * width, of_keys = attention->n_key_heads * width;
    const size_t stride = row_stride(joined + 2 * of_keys), context_stride = row_stride(joined);
    const float *projected = workspace->projected;
    float *context = workspace->context;
    for (size_t i = 0; i < n_sources; i++) {
        const Memory memory = {
            .n_positions = sources[i].n_tokens,
            .n_heads = attention->n_key_heads,
            .group_size = (size_t)model->shape.group_size,
            .head_width = width,
            .panels = workspace->panels,
        };
        pack_memory(&memory, projected + joined, projected + joined + of_keys, stride);
        attend(&memory, projected, stride, memory.n_positions, workspace->scores, context,
               context_stride, (Heard){0});
        projected += memory.n_positions * stride;
        context += memory.n_positions * context_stride;
    }
}

void encode(const Model *model, const Source *sources, size_t n_sources, float *hidden,
            Workspace *workspace) {
    const size_t n_rows = embed_sources(model, sources, n_sources, hidden, workspace);
    for (int64_t i = 0; i < model->shape.n_encoder_layers; i++) {
        const Layer *layer = &model->encoder[i];
        const Attention *attention = &layer->self_attention;
        const float *x = before_sublayer(model, &attention->norm, hidden, n_rows, workspace);
        project_own(model, &model->source, attention, x, n_rows, workspace);
        attend_within(model, attention, sources, n_sources, workspace);
        add_attention(model, attention, hidden, n_rows, workspace);
        feed_forward(model, &layer->feed_forward, hidden, n_rows, workspace);
    }
    if (model->encoder_norm.weight)
        normalize(&model->encoder_norm, hidden, n_rows, (size_t)model->shape.d_model,
                  workspace->hidden_stride, model->shape.norm_epsilon, hidden);
}

void project_memory(const Attention *cross_attention, const float *hidden,
                    const Memory *memories, size_t n_sources, Workspace *workspace) {
    const Linear *linear = &cross_attention->memory;
    const size_t n_outputs = linear->matrix.n_outputs, joined = n_outputs / 2;
    const size_t stride = row_stride(n_outputs);
    size_t n_rows = 0;
    for (size_t i = 0; i < n_sources; i++)
        n_rows += memories[i].n_positions;
    float *projected = workspace->projected;
    multiply_any(&linear->matrix, hidden, workspace->hidden_stride, n_rows,
                 (Epilogue){.bias = linear->bias}, projected, stride, &workspace->quantized);
    record_rows(workspace, projected, stride, n_rows, n_outputs);
    for (size_t i = 0; i < n_sources; i++) {
        pack_memory(&memories[i], projected, projected + joined, stride);
        projected += memories[i].n_positions * stride;
    }
}
