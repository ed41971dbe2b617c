#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "decoder.h"
#include "encoder.h"
#include "entries.h"
#include "search.h"
#include "vocabulary.h"

struct Session {
    const Model *model;
    size_t n_source, most_rows, most_steps;
    size_t position; /* steps so far */
    Memory *memories; /* of each decoder layer */
    DecoderRow *rows; /* (most_rows) */
    float **entries;  /* (most_rows, most_steps) keys and values of each hypothesis' past */
    float **before;   /* the same after the step before */
    float *hidden;    /* (the most rows, D) */
    Vocabulary vocabulary;
    Workspace workspace;
    EntryStore store;
    Arena arena;
};

static void lay_out(Session *session) {
    const Model *model = session->model;
    Arena *arena = &session->arena;
    const size_t n_rows =
        session->n_source > session->most_rows ? session->n_source : session->most_rows;
    const size_t n_entries = saturated_product(session->most_rows, session->most_steps);
    session->memories = arena_take(arena, (size_t)model->shape.n_decoder_layers, sizeof(Memory));
    session->rows = arena_take(arena, session->most_rows, sizeof(DecoderRow));
    session->entries = arena_take(arena, n_entries, sizeof(float *));
    session->before = arena_take(arena, n_entries, sizeof(float *));
    session->hidden = arena_take(
        arena, saturated_product(n_rows, row_stride((size_t)model->shape.d_model)), sizeof(float));
    for (int64_t layer = 0; layer < model->shape.n_decoder_layers; layer++) {
        const Memory memory = take_memory(arena, model, (size_t)layer, session->n_source);
        if (arena->memory)
            session->memories[layer] = memory;
    }
    lay_out_vocabulary(arena, session->most_rows, 0, &session->vocabulary);
    lay_out_workspace(arena, model, n_rows, session->n_source, session->most_steps,
                      &session->workspace);
}

Session *tformer_start_session(const Model *model, const int32_t *source, int64_t n_source,
                               int64_t most_rows, int64_t most_steps) {
    Session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->model = model;
    session->n_source = (size_t)n_source;
    session->most_rows = (size_t)most_rows;
    session->most_steps = (size_t)most_steps;
    session->store.entry_size = entry_size(model);
    lay_out(session);
    if (!arena_allocate(&session->arena)) {
        free(session);
        return NULL;
    }
    lay_out(session);
    const Source one = {source, session->n_source};
    encode(model, &one, 1, session->hidden, &session->workspace);
    for (int64_t layer = 0; layer < model->shape.n_decoder_layers; layer++)
        project_memory(&model->decoder[layer].cross_attention, session->hidden,
                       &session->memories[layer], 1, &session->workspace);
    return session;
}

/* Gives each hypothesis the past of the one that it continues, and an entry for this position. */
static bool list_rows(Session *session, size_t n_rows, const int64_t *parents,
                      const int32_t *tokens) {
    const size_t n_past = session->position, room = session->most_steps;
    if (!entries_reserve(&session->store, n_rows))
        return false;
    float **before = session->entries;
    session->entries = session->before;
    session->before = before;
    for (size_t row = 0; row < n_rows; row++) {
        float **entries = session->entries + row * room;
        if (n_past > 0)
            memcpy(entries, before + (size_t)parents[row] * room, n_past * sizeof *entries);
        entries[n_past] = entries_take(&session->store);
        session->rows[row] =
            (DecoderRow){.token = tokens[row], .position = n_past, .entries = entries};
    }
    return true;
}

int32_t tformer_step(Session *session, int64_t n_rows, const int64_t *parents,
                     const int32_t *tokens, float *log_probabilities) {
    const size_t n = (size_t)n_rows;
    if (!list_rows(session, n, parents, tokens))
        return SEARCH_NO_MEMORY;
    const RowGroup group = {n, session->memories};
    decode_step(session->model, session->rows, n, &group, 1, session->hidden, &session->workspace);
    all_log_probabilities(whole_output(session->model), session->hidden, n,
                          &session->workspace.quantized, &session->vocabulary, log_probabilities);
    session->position++;
    return SEARCH_DONE;
}

void tformer_end_session(Session *session) {
    if (!session)
        return;
    entries_free(&session->store);
    arena_free(&session->arena);
    free(session);
}
