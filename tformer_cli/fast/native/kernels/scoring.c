/* All positions of a target are decoded in one step: the rows of a sentence lie one after the other
   in `decode_step`, which fills the entry of each before it attends to it, so each attends to the
   positions before it and its own. */
#include "scoring.h"

#include "decoder.h"
#include "encoder.h"
#include "search.h"
#include "vocabulary.h"

/* Positions of targets, and of sources, that are computed together, unless one pair alone has
   more. */
#define MOST_POSITIONS ((size_t)448)

/* Pairs that are computed together: `first` to `first` + n_pairs - 1. */
typedef struct {
    const Model *model;
    const ScoreRequest *request;
    size_t first, n_pairs;
    size_t n_source, n_target;             /* positions of all */
    size_t n_read;                         /* positions that the decoder reads */
    size_t longest_source, longest_target; /* of one */
    Source *sources;    /* (n_pairs) */
    Memory *memories;   /* (n_layers, n_pairs) */
    Memory *by_pair;    /* (n_pairs, n_layers) the same */
    RowGroup *groups;   /* (n_pairs) */
    DecoderRow *rows;   /* (n_read) */
    float **entries;    /* (n_read) keys and values of each position */
    float *hidden;      /* (the most positions, D) */
    Vocabulary vocabulary;
    Workspace workspace;
    Arena arena;
} Group;

static size_t length_of(const int64_t *starts, size_t index) {
    return (size_t)(starts[index + 1] - starts[index]);
}

/* Takes as many of the next pairs as are computed together, at least one. */
static Group take_group(const Model *model, const ScoreRequest *request, size_t first) {
    Group group = {.model = model, .request = request, .first = first};
    for (size_t i = first; i < (size_t)request->n_pairs; i++) {
        const size_t source = length_of(request->source_starts, i);
        const size_t target = length_of(request->target_starts, i);
        if (i > first && (group.n_source + source > MOST_POSITIONS ||
                          group.n_target + target > MOST_POSITIONS))
            break;
        group.n_pairs++;
        group.n_source += source;
        group.n_target += target;
        group.longest_source = larger_of(group.longest_source, source);
        group.longest_target = larger_of(group.longest_target, target);
    }
    group.n_read = group.n_target;
    if (is_decoder_only(model)) { /* the sources, too; no target's last token is read */
        group.n_read += group.n_source - group.n_pairs;
        group.longest_target += group.longest_source;
        group.longest_source = 0;
    }
    return group;
}

static void lay_out(Group *group) {
    const Model *model = group->model;
    Arena *arena = &group->arena;
    const size_t n_pairs = group->n_pairs;
    const size_t n_layers = is_decoder_only(model) ? 0 : (size_t)model->shape.n_decoder_layers;
    const size_t n_rows = larger_of(group->n_source, group->n_read);
    const size_t n_memories = saturated_product(n_layers, n_pairs);
    const size_t size = entry_size(model);
    group->sources = arena_take(arena, n_pairs, sizeof(Source));
    group->memories = arena_take(arena, n_memories, sizeof(Memory));
    group->by_pair = arena_take(arena, n_memories, sizeof(Memory));
    group->groups = arena_take(arena, n_pairs, sizeof(RowGroup));
    group->rows = arena_take(arena, group->n_read, sizeof(DecoderRow));
    group->entries = arena_take(arena, group->n_read, sizeof(float *));
    float *entries = arena_take(arena, saturated_product(group->n_read, size), sizeof(float));
    for (size_t i = 0; arena->memory && i < group->n_read; i++)
        group->entries[i] = entries + i * size;
    group->hidden = arena_take(
        arena, saturated_product(n_rows, row_stride((size_t)model->shape.d_model)), sizeof(float));
    for (size_t layer = 0; layer < n_layers; layer++) {
        for (size_t i = 0; i < n_pairs; i++) {
            const size_t n = length_of(group->request->source_starts, group->first + i);
            const Memory memory = take_memory(arena, model, layer, n);
            if (arena->memory)
                group->memories[layer * n_pairs + i] = group->by_pair[i * n_layers + layer] =
                    memory;
        }
    }
    group->workspace.heads = group->request->heads;
    group->workspace.recorded = group->request->recorded;
    lay_out_vocabulary(arena, group->n_target, 1, &group->vocabulary);
    lay_out_workspace(arena, model, n_rows, group->longest_source, group->longest_target,
                      &group->workspace);
}

static void encode_sources(Group *group) {
    const Model *model = group->model;
    const ScoreRequest *request = group->request;
    for (size_t i = 0; i < group->n_pairs; i++)
        group->sources[i] =
            (Source){request->sources + request->source_starts[group->first + i],
                     length_of(request->source_starts, group->first + i)};
    encode(model, group->sources, group->n_pairs, group->hidden, &group->workspace);
    for (int64_t layer = 0; layer < model->shape.n_decoder_layers; layer++)
        project_memory(&model->decoder[layer].cross_attention, group->hidden,
                       group->memories + (size_t)layer * group->n_pairs, group->n_pairs,
                       &group->workspace);
}

/* Lists every position of every target: it reads the token before it. */
static void list_rows(Group *group) {
    const ScoreRequest *request = group->request;
    size_t row = 0;
    for (size_t i = 0; i < group->n_pairs; i++) {
        const int32_t *target = request->targets + request->target_starts[group->first + i];
        const size_t n = length_of(request->target_starts, group->first + i);
        float *const *entries = group->entries + row;
        for (size_t position = 0; position < n; position++)
            group->rows[row++] = (DecoderRow){
                .token = position ? target[position - 1] : BEGINNING_OF_SENTENCE,
                .position = position,
                .entries = entries,
            };
        group->groups[i] =
            (RowGroup){n, group->by_pair + i * (size_t)group->model->shape.n_decoder_layers};
    }
}

/* Lists every position of every text, its source and then its target, but the last one. */
static void list_rows_of_texts(Group *group) {
    const ScoreRequest *request = group->request;
    size_t row = 0;
    for (size_t i = 0; i < group->n_pairs; i++) {
        const int32_t *source = request->sources + request->source_starts[group->first + i];
        const int32_t *target = request->targets + request->target_starts[group->first + i];
        const size_t n_source = length_of(request->source_starts, group->first + i);
        const size_t n = n_source + length_of(request->target_starts, group->first + i) - 1;
        float *const *entries = group->entries + row;
        for (size_t position = 0; position < n; position++)
            group->rows[row++] = (DecoderRow){
                .token = position < n_source ? source[position] : target[position - n_source],
                .position = position,
                .entries = entries,
            };
    }
}

/* Brings the hidden states that predict targets together, one pair after the other. */
static void keep_predicting(Group *group) {
    const size_t stride = group->workspace.hidden_stride;
    size_t from = 0, to = 0;
    for (size_t i = 0; i < group->n_pairs; i++) {
        const size_t n = length_of(group->request->target_starts, group->first + i);
        from += length_of(group->request->source_starts, group->first + i) - 1;
        memmove(group->hidden + to * stride, group->hidden + from * stride,
                n * stride * sizeof *group->hidden);
        from += n;
        to += n;
    }
}

/* Writes what the positions of the targets attended to; returns where the next group's begin. */
static float *answer_heard(const Group *group, float *to) {
    const Workspace *workspace = &group->workspace;
    const float *from = workspace->heard;
    for (size_t i = 0; workspace->heads && i < group->n_pairs; i++) {
        const size_t length = length_of(group->request->source_starts, group->first + i);
        const size_t n = length_of(group->request->target_starts, group->first + i);
        for (size_t row = 0; row < n; row++, to += length, from += workspace->heard_stride)
            memcpy(to, from, length * sizeof *to);
    }
    return to;
}

static void score_targets(Group *group) {
    const int64_t start = group->request->target_starts[group->first];
    NextTokens *next = group->vocabulary.rows;
    for (size_t row = 0; row < group->n_target; row++)
        next[row].forced = group->request->targets[start + (int64_t)row];
    best_tokens(whole_output(group->model), group->hidden, group->n_target,
                &group->workspace.quantized, &group->vocabulary);
    for (size_t row = 0; row < group->n_target; row++)
        group->request->steps[start + (int64_t)row] = next[row].values[0];
}

static bool score_group(Group *group, float **heard) {
    lay_out(group);
    if (!arena_allocate(&group->arena))
        return false;
    lay_out(group);
    if (is_decoder_only(group->model)) {
        list_rows_of_texts(group);
    } else {
        encode_sources(group);
        list_rows(group);
    }
    decode_step(group->model, group->rows, group->n_read, group->groups, group->n_pairs,
                group->hidden, &group->workspace);
    *heard = answer_heard(group, *heard);
    if (is_decoder_only(group->model))
        keep_predicting(group);
    if (group->request->steps)
        score_targets(group);
    arena_free(&group->arena);
    return true;
}

int32_t tformer_score(const Model *model, const ScoreRequest *request) {
    float *heard = request->heard;
    for (size_t first = 0; first < (size_t)request->n_pairs;) {
        if (__atomic_load_n(request->stop, __ATOMIC_RELAXED) != 0)
            return SEARCH_STOPPED;
        Group group = take_group(model, request, first);
        if (!score_group(&group, &heard))
            return SEARCH_NO_MEMORY;
        first += group.n_pairs;
    }
    return SEARCH_DONE;
}
