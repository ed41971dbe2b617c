#include "shortlist.h"

#include <string.h>

/* Copies the numbers of some tokens. */
static const float *gather(Arena *arena, const float *values, const int32_t *tokens, size_t n) {
    float *copy = arena_take(arena, n, sizeof(float));
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = values[tokens[i]];
    return copy;
}

/* Packs rows of floats, those of a panel at a time. */
static void pack_floats(const float *rows, const int32_t *tokens, size_t n, size_t n_inputs,
                        float *beside, float *panels) {
    for (size_t first = 0; first < n; first += PANEL_COLUMNS) {
        const size_t n_left = n - first, n_some = n_left < PANEL_COLUMNS ? n_left : PANEL_COLUMNS;
        for (size_t i = 0; i < n_some; i++)
            memcpy(beside + i * n_inputs, rows + (size_t)tokens[first + i] * n_inputs,
                   n_inputs * sizeof(float));
        pack_matrix(beside, n_some, n_inputs, n_inputs, panels + first * n_inputs);
    }
}

static void lay_out_integers(Arena *arena, const Model *model, const int32_t *tokens, size_t n,
                             PackedMatrix *packed) {
    const PackedMatrix *all = &model->output.matrix;
    int8_t *integers = arena_take(arena, integers_size(n, all->n_inputs), 1);
    int32_t *starts = arena_take(arena, starts_size(n), sizeof(int32_t));
    packed->integers = integers;
    packed->starts = starts;
    packed->scale = gather(arena, all->scale, tokens, n);
    if (integers)
        pack_some_integers(model->output_rows, tokens, n, all, integers, starts);
}

static void lay_out_floats(Arena *arena, const Model *model, const int32_t *tokens, size_t n,
                           PackedMatrix *packed) {
    const size_t n_inputs = packed->n_inputs;
    float *beside = arena_take(arena, saturated_product(PANEL_COLUMNS, n_inputs), sizeof(float));
    float *panels =
        arena_take(arena, saturated_product(packed_size(n, 1), n_inputs), sizeof(float));
    packed->panels = panels;
    if (panels)
        pack_floats(model->output_rows, tokens, n, n_inputs, beside, panels);
}

void lay_out_shortlist(Arena *arena, const Model *model, const int32_t *tokens, size_t n,
                       Shortlist *shortlist) {
    *shortlist = (Shortlist){.tokens = tokens, .n = n};
    if (n == 0)
        return;
    PackedMatrix *packed = &shortlist->output.matrix;
    packed->n_inputs = model->output.matrix.n_inputs;
    packed->n_outputs = n;
    if (model->output.bias)
        shortlist->output.bias = gather(arena, model->output.bias, tokens, n);
    if (model->output.matrix.scale)
        lay_out_integers(arena, model, tokens, n, packed);
    else
        lay_out_floats(arena, model, tokens, n, packed);
}

/* Returns the place of the first listed token that is not smaller than one. */
static size_t place_of(const Shortlist *shortlist, int32_t token) {
    size_t first = 0, last = shortlist->n;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (shortlist->tokens[middle] < token)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static bool is_listed(const Shortlist *shortlist, size_t place, int32_t token) {
    return place < shortlist->n && shortlist->tokens[place] == token;
}

/* Turns what is asked about a row into places in the list. */
static void ask_for_places(const Shortlist *shortlist, NextTokens *next) {
    size_t n = 0;
    for (size_t i = 0; i < next->n_forbidden; i++) {
        const size_t place = place_of(shortlist, next->forbidden[i]);
        if (is_listed(shortlist, place, next->forbidden[i]))
            next->forbidden[n++] = (int32_t)place;
    }
    next->n_forbidden = n;
    if (next->forced != ANY_TOKEN) {
        const size_t place = place_of(shortlist, next->forced);
        const bool is_there = is_listed(shortlist, place, next->forced);
        next->forced = is_there ? (int32_t)place : END_OF_SENTENCE;
    }
}

const Linear *listed_output(const Model *model, const Shortlist *shortlist, NextTokens *rows,
                            size_t n_rows) {
    if (shortlist->n == 0)
        return whole_output(model);
    for (size_t row = 0; row < n_rows; row++)
        ask_for_places(shortlist, &rows[row]);
    return &shortlist->output;
}

void name_tokens(const Shortlist *shortlist, NextTokens *rows, size_t n_rows) {
    for (size_t row = 0; shortlist->n && row < n_rows; row++)
        for (size_t i = 0; i < rows[row].n_best; i++)
            rows[row].tokens[i] = shortlist->tokens[rows[row].tokens[i]];
}
