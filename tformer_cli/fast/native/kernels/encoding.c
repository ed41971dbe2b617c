#include "encoding.h"

#include <string.h>

#include "encoder.h"
#include "search.h"

/* Tokens that are encoded together, unless one text alone has more. */
#define MOST_POSITIONS ((size_t)448)

/* Texts that are encoded together. */
typedef struct {
    size_t n_texts, n_tokens, longest;
    Source *sources; /* (n_texts) */
    float *hidden;   /* (n_tokens, D) */
    Workspace workspace;
    Arena arena;
} Group;

static Group take_group(const EncodeRequest *request, size_t first) {
    Group group = {0};
    for (size_t i = first; i < (size_t)request->n_texts; i++) {
        const size_t n = (size_t)(request->starts[i + 1] - request->starts[i]);
        if (group.n_texts > 0 && group.n_tokens + n > MOST_POSITIONS)
            break;
        group.n_texts++;
        group.n_tokens += n;
        group.longest = n > group.longest ? n : group.longest;
    }
    return group;
}

static void lay_out(Group *group, const Model *model) {
    Arena *arena = &group->arena;
    const size_t stride = row_stride((size_t)model->shape.d_model);
    group->sources = arena_take(arena, group->n_texts, sizeof(Source));
    group->hidden = arena_take(arena, saturated_product(group->n_tokens, stride), sizeof(float));
    lay_out_workspace(arena, model, group->n_tokens, group->longest, 0, &group->workspace);
}

static bool encode_group(Group *group, const Model *model, const EncodeRequest *request,
                         size_t first) {
    lay_out(group, model);
    if (!arena_allocate(&group->arena))
        return false;
    lay_out(group, model);
    for (size_t i = 0; i < group->n_texts; i++) {
        const int64_t *starts = request->starts + first + i;
        group->sources[i] = (Source){request->tokens + starts[0], (size_t)(starts[1] - starts[0])};
    }
    encode(model, group->sources, group->n_texts, group->hidden, &group->workspace);
    const size_t d_model = (size_t)model->shape.d_model;
    float *result = request->hidden + (size_t)request->starts[first] * d_model;
    for (size_t row = 0; row < group->n_tokens; row++)
        memcpy(result + row * d_model, group->hidden + row * group->workspace.hidden_stride,
               d_model * sizeof *result);
    arena_free(&group->arena);
    return true;
}

int32_t tformer_encode(const Model *model, const EncodeRequest *request) {
    for (size_t first = 0; first < (size_t)request->n_texts;) {
        if (__atomic_load_n(request->stop, __ATOMIC_RELAXED) != 0)
            return SEARCH_STOPPED;
        Group group = take_group(request, first);
        if (!encode_group(&group, model, request, first))
            return SEARCH_NO_MEMORY;
        first += group.n_texts;
    }
    return SEARCH_DONE;
}
