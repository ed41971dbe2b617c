#include "beam.h"

#include <math.h>

static void lay_out_live(Arena *arena, LiveHypothesis *hypotheses, size_t n, size_t room) {
    const size_t all = saturated_product(n, room);
    int32_t *tokens = arena_take(arena, all, sizeof(int32_t));
    float *steps = arena_take(arena, all, sizeof(float));
    float **entries = arena_take(arena, all, sizeof(float *));
    if (!arena->memory)
        return;
    for (size_t i = 0; i < n; i++)
        hypotheses[i] = (LiveHypothesis){
            .tokens = tokens + i * room, .steps = steps + i * room, .entries = entries + i * room};
}

static void lay_out_finished(Arena *arena, FinishedHypothesis *hypotheses, size_t n, size_t room) {
    const size_t all = saturated_product(n, room);
    int32_t *tokens = arena_take(arena, all, sizeof(int32_t));
    float *steps = arena_take(arena, all, sizeof(float));
    if (!arena->memory)
        return;
    for (size_t i = 0; i < n; i++)
        hypotheses[i] =
            (FinishedHypothesis){.tokens = tokens + i * room, .steps = steps + i * room};
}

void lay_out_sentence(BeamSentence *sentence, const SearchSettings *settings, size_t n_memories,
                      const size_t *n_heads, size_t head_width, size_t n_source_tokens) {
    Arena *arena = &sentence->arena;
    const size_t beam_size = settings->beam_size, room = sentence->limit + 1;
    sentence->live = arena_take(arena, beam_size, sizeof(LiveHypothesis));
    sentence->grown = arena_take(arena, beam_size, sizeof(LiveHypothesis));
    sentence->finished = arena_take(arena, beam_size, sizeof(FinishedHypothesis));
    sentence->best = arena_take(arena, beam_size, sizeof(Continuation));
    sentence->taken = arena_take(arena, saturated_product(beam_size, room), sizeof(float *));
    sentence->memories = arena_take(arena, n_memories, sizeof(Memory));
    lay_out_live(arena, sentence->live, beam_size, room);
    lay_out_live(arena, sentence->grown, beam_size, room);
    lay_out_finished(arena, sentence->finished, beam_size, room);
    for (size_t layer = 0; layer < n_memories; layer++) {
        const size_t size = memory_size(n_source_tokens, n_heads[layer], head_width);
        float *panels = arena_take(arena, size, sizeof(float));
        if (arena->memory)
            sentence->memories[layer] =
                (Memory){n_source_tokens, n_heads[layer], head_width, panels};
    }
}

void start_sentence(BeamSentence *sentence, const SearchSettings *settings) {
    sentence->length = sentence->n_finished = sentence->n_taken = 0;
    sentence->n_slots = settings->beam_size;
    sentence->n_live = 1;
    sentence->worst_wanted = -INFINITY;
    sentence->live[0].total = 0.0;
}

bool take_entries(BeamSentence *sentence, EntryStore *store) {
    if (!entries_reserve(store, sentence->n_live))
        return false;
    for (size_t slot = 0; slot < sentence->n_live; slot++) {
        float *entry = entries_take(store);
        sentence->live[slot].entries[sentence->length] = entry;
        sentence->taken[sentence->n_taken++] = entry;
    }
    return true;
}

/* Puts a continuation among the best `n_slots`, behind those as good: they were found earlier. */
static size_t insert(Continuation *best, size_t n_best, size_t n_slots, Continuation candidate) {
    if (!isfinite(candidate.total))
        return n_best;
    if (n_best == n_slots && candidate.total <= best[n_best - 1].total)
        return n_best;
    size_t place = n_best < n_slots ? n_best++ : n_best - 1;
    for (; place > 0 && candidate.total > best[place - 1].total; place--)
        best[place] = best[place - 1];
    best[place] = candidate;
    return n_best;
}

/* Returns whether there is a token that may come next; the end of sentence is one. */
static bool has_way(const NextTokens *row) {
    return row->n_best > 0 && row->values[0] > -INFINITY;
}

/* Merges the next tokens of all slots. A hypothesis as long as it may be can only end, and so one to
   which the rules leave no token. */
static size_t merge(BeamSentence *sentence, const NextTokens *next) {
    const bool is_at_limit = sentence->length == sentence->limit;
    size_t n_best = 0;
    for (size_t slot = 0; slot < sentence->n_live; slot++) {
        const double total = sentence->live[slot].total;
        const NextTokens *row = &next[slot];
        if (is_at_limit || !has_way(row)) {
            n_best = insert(
                sentence->best, n_best, sentence->n_slots,
                (Continuation){total + (double)row->end, row->end, END_OF_SENTENCE, slot});
            continue;
        }
        for (size_t i = 0; i < row->n_best; i++)
            n_best = insert(sentence->best, n_best, sentence->n_slots,
                            (Continuation){total + (double)row->values[i], row->values[i],
                                           row->tokens[i], slot});
    }
    return n_best;
}

/* Keeps a hypothesis that ends, behind those with as good a score. */
static void finish_hypothesis(BeamSentence *sentence, const SearchSettings *settings,
                              const Continuation *end, bool has_ended) {
    const size_t length = sentence->length;
    const double score = end->total / settings->divisors[length + 1];
    size_t place = sentence->n_finished++;
    FinishedHypothesis kept = sentence->finished[place];
    for (; place > 0 && score > sentence->finished[place - 1].score; place--)
        sentence->finished[place] = sentence->finished[place - 1];
    const LiveHypothesis *from = &sentence->live[end->slot];
    memcpy(kept.tokens, from->tokens, length * sizeof *kept.tokens);
    memcpy(kept.steps, from->steps, length * sizeof *kept.steps);
    kept.steps[length] = end->step;
    kept.n_tokens = length;
    kept.total = end->total;
    kept.score = score;
    kept.has_ended = has_ended;
    sentence->finished[place] = kept;
    if (sentence->n_finished >= settings->n_searched)
        sentence->worst_wanted = sentence->finished[settings->n_searched - 1].score;
}

/* Copies a hypothesis and adds a token. */
static void continue_hypothesis(BeamSentence *sentence, LiveHypothesis *to,
                                const Continuation *with) {
    const LiveHypothesis *from = &sentence->live[with->slot];
    const size_t length = sentence->length;
    memcpy(to->tokens, from->tokens, length * sizeof *to->tokens);
    memcpy(to->steps, from->steps, length * sizeof *to->steps);
    memcpy(to->entries, from->entries, (length + 1) * sizeof *to->entries);
    to->tokens[length] = with->token;
    to->steps[length] = with->step;
    to->total = with->total;
}

bool grow_hypotheses(BeamSentence *sentence, const SearchSettings *settings,
                     const NextTokens *next) {
    const bool is_at_limit = sentence->length == sentence->limit;
    const size_t n_best = merge(sentence, next);
    size_t n_grown = 0;
    for (size_t i = 0; i < n_best; i++) {
        const Continuation *continuation = &sentence->best[i];
        const NextTokens *row = &next[continuation->slot];
        if (continuation->token != END_OF_SENTENCE) {
            continue_hypothesis(sentence, &sentence->grown[n_grown++], continuation);
            continue;
        }
        const bool has_ended =
            !is_at_limit || !has_way(row) || row->tokens[0] == END_OF_SENTENCE;
        finish_hypothesis(sentence, settings, continuation, has_ended);
    }
    sentence->n_slots = settings->beam_size - sentence->n_finished;
    sentence->n_live = n_grown;
    LiveHypothesis *grown = sentence->grown;
    sentence->grown = sentence->live;
    sentence->live = grown;
    sentence->length++;
    if (n_grown == 0)
        return false;
    /* A live hypothesis can at best keep its total and be divided by the largest divisor. */
    const double best_possible = grown[0].total / settings->divisors[sentence->limit + 1];
    return !(settings->stops_early && sentence->worst_wanted >= best_possible);
}
