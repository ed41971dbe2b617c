#include "beam.h"

#include <math.h>

static void lay_out_live(Arena *arena, LiveHypothesis *hypotheses, size_t n, size_t room,
                         size_t n_prompt) {
    const size_t all = saturated_product(n, room);
    int32_t *tokens = arena_take(arena, all, sizeof(int32_t));
    float *steps = arena_take(arena, all, sizeof(float));
    float **entries = arena_take(arena, saturated_product(n, n_prompt + room), sizeof(float *));
    if (!arena->memory)
        return;
    for (size_t i = 0; i < n; i++)
        hypotheses[i] = (LiveHypothesis){.tokens = tokens + i * room,
                                         .steps = steps + i * room,
                                         .entries = entries + i * (n_prompt + room)};
}

static void lay_out_finished(Arena *arena, FinishedHypothesis *hypotheses, size_t n, size_t room,
                             bool is_listening) {
    const size_t all = saturated_product(n, room);
    int32_t *tokens = arena_take(arena, all, sizeof(int32_t));
    float *steps = arena_take(arena, all, sizeof(float));
    float **entries = arena_take(arena, is_listening ? all : 0, sizeof(float *));
    if (!arena->memory)
        return;
    for (size_t i = 0; i < n; i++)
        hypotheses[i] = (FinishedHypothesis){.tokens = tokens + i * room,
                                             .steps = steps + i * room,
                                             .entries = is_listening ? entries + i * room : NULL};
}

void lay_out_sentence(BeamSentence *sentence, const SearchSettings *settings, const Model *model,
                      const int32_t *source, size_t n_source_tokens) {
    Arena *arena = &sentence->arena;
    const bool is_prompt = is_decoder_only(model);
    const size_t n_memories = is_prompt ? 0 : (size_t)model->shape.n_decoder_layers;
    const size_t n_prompt = is_prompt ? n_source_tokens - 1 : 0;
    sentence->n_prompt = n_prompt;
    sentence->first = is_prompt ? source[n_prompt] : BEGINNING_OF_SENTENCE;
    const size_t beam_size = settings->beam_size, room = sentence->limit + 1;
    sentence->live = arena_take(arena, beam_size, sizeof(LiveHypothesis));
    sentence->grown = arena_take(arena, beam_size, sizeof(LiveHypothesis));
    sentence->finished = arena_take(arena, beam_size, sizeof(FinishedHypothesis));
    sentence->best = arena_take(arena, beam_size, sizeof(Continuation));
    sentence->taken =
        arena_take(arena, n_prompt + saturated_product(beam_size, room), sizeof(float *));
    sentence->memories = arena_take(arena, n_memories, sizeof(Memory));
    lay_out_live(arena, sentence->live, beam_size, room, n_prompt);
    lay_out_live(arena, sentence->grown, beam_size, room, n_prompt);
    lay_out_finished(arena, sentence->finished, beam_size, room, settings->is_listening);
    for (size_t layer = 0; layer < n_memories; layer++) {
        const Memory memory = take_memory(arena, model, layer, n_source_tokens);
        if (arena->memory)
            sentence->memories[layer] = memory;
    }
}

bool take_prompt_entries(BeamSentence *sentence, EntryStore *store) {
    if (!entries_reserve(store, sentence->n_prompt))
        return false;
    for (size_t i = 0; i < sentence->n_prompt; i++) {
        float *entry = entries_take(store);
        sentence->live[0].entries[i] = entry;
        sentence->taken[sentence->n_taken++] = entry;
    }
    return true;
}

void start_sentence(BeamSentence *sentence, const SearchSettings *settings) {
    sentence->length = sentence->n_finished = sentence->n_taken = 0;
    sentence->n_slots = settings->beam_size;
    sentence->n_live = settings->is_sampling ? settings->beam_size : 1;
    sentence->worst_wanted = -INFINITY;
    for (size_t slot = 0; slot < sentence->n_live; slot++) {
        sentence->live[slot].total = 0.0;
        sentence->live[slot].candidate = slot;
    }
}

bool take_entries(BeamSentence *sentence, EntryStore *store) {
    if (!entries_reserve(store, sentence->n_live))
        return false;
    for (size_t slot = 0; slot < sentence->n_live; slot++) {
        float *entry = entries_take(store);
        sentence->live[slot].entries[sentence->n_prompt + sentence->length] = entry;
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

/* Writes a live hypothesis that ends to the room of a finished one. */
static void copy_finished(const BeamSentence *sentence, const SearchSettings *settings,
                          const Continuation *end, bool has_ended, FinishedHypothesis *to) {
    const size_t length = sentence->length;
    const LiveHypothesis *from = &sentence->live[end->slot];
    memcpy(to->tokens, from->tokens, length * sizeof *to->tokens);
    memcpy(to->steps, from->steps, length * sizeof *to->steps);
    if (to->entries)
        memcpy(to->entries, from->entries, (length + 1) * sizeof *to->entries);
    to->steps[length] = end->step;
    to->n_tokens = length;
    to->total = end->total;
    to->score = end->total / settings->divisors[length + 1];
    to->has_ended = has_ended;
}

/* Keeps a hypothesis that ends, behind those with as good a score. */
static void finish_hypothesis(BeamSentence *sentence, const SearchSettings *settings,
                              const Continuation *end, bool has_ended) {
    size_t place = sentence->n_finished++;
    FinishedHypothesis kept = sentence->finished[place];
    copy_finished(sentence, settings, end, has_ended, &kept);
    for (; place > 0 && kept.score > sentence->finished[place - 1].score; place--)
        sentence->finished[place] = sentence->finished[place - 1];
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
    memcpy(to->entries, from->entries,
           (sentence->n_prompt + length + 1) * sizeof *to->entries);
    to->tokens[length] = with->token;
    to->steps[length] = with->step;
    to->total = with->total;
}

/* Lets all hypotheses grow by the token that was drawn for each; at its limit one ends, whatever was
   drawn. */
static bool grow_drawn(BeamSentence *sentence, const SearchSettings *settings,
                       const NextTokens *next) {
    const size_t length = sentence->length;
    size_t n_going_on = 0;
    for (size_t slot = 0; slot < sentence->n_live; slot++) {
        LiveHypothesis live = sentence->live[slot];
        const int32_t token = next[slot].tokens[0];
        if (token == END_OF_SENTENCE || length == sentence->limit) {
            const float step = next[slot].end;
            const Continuation end = {live.total + (double)step, step, END_OF_SENTENCE, slot};
            copy_finished(sentence, settings, &end, token == END_OF_SENTENCE,
                          &sentence->finished[live.candidate]);
            sentence->n_finished++;
            continue;
        }
        live.tokens[length] = token;
        live.steps[length] = next[slot].values[0];
        live.total += (double)live.steps[length];
        sentence->live[slot] = sentence->live[n_going_on]; /* whose room the next one may take */
        sentence->live[n_going_on++] = live;
    }
    sentence->n_live = n_going_on;
    sentence->length++;
    return n_going_on > 0;
}

bool grow_hypotheses(BeamSentence *sentence, const SearchSettings *settings,
                     const NextTokens *next) {
    if (settings->is_sampling)
        return grow_drawn(sentence, settings, next);
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
