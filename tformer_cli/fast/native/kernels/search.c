/* The search over many sentences.

   As many sentences are decoded at a time as have room for all their hypotheses. When enough have
   ended, the next ones are encoded together and take their places: so the products always have
   about as many rows, whatever the lengths of the translations. Several threads may share a
   request, each with a search of its own: each takes the next sentences that nobody has. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "decoder.h"
#include "encoder.h"

/* Source tokens encoded together, unless one sentence alone has more. */
#define ENCODER_ROWS ((size_t)448)

typedef struct {
    const Model *model;
    const Request *request;
    Answer *answer;
    SearchSettings settings;
    size_t n_sentences, n_active;
    size_t n_tokens; /* of the sentences that are decoded, see `size_of` */
    size_t most_rows, most_active, encoder_rows;
    BeamSentence *sentences; /* (most_active) those being decoded first, then free places */
    Source *sources;         /* (most_active) of sentences that start */
    Memory *memories;        /* (most_active) their memories of one layer */
    DecoderRow *rows;        /* (most_rows, or encoder_rows of prompts) */
    double *uniforms;        /* (most_rows) what is drawn by */
    RowGroup *groups;        /* (most_active) */
    float *hidden;           /* (rows, D) */
    bool has_rules;
    size_t most_forbidden; /* of a row */
    int32_t *forbidden;    /* (most_rows, most_forbidden) */
    Vocabulary vocabulary;
    Lottery lottery;
    Workspace workspace;
    EntryStore entries;
    Arena arena;
} Search;

static size_t source_length(const Request *request, size_t index) {
    return (size_t)(request->starts[index + 1] - request->starts[index]);
}

/* What a sentence counts among the tokens that are decoded at a time: the memory of a prompt is as
   long as its continuation may get. */
static size_t size_of(const Search *search, size_t index) {
    const Request *request = search->request;
    return source_length(request, index) +
           (is_decoder_only(search->model) ? (size_t)request->limits[index] : 0);
}

static void plan(Search *search, const Model *model, const Request *request, Answer *answer) {
    const size_t beam_size = (size_t)request->beam_size;
    search->model = model;
    search->request = request;
    search->answer = answer;
    search->settings = (SearchSettings){
        .beam_size = beam_size,
        .n_searched = (size_t)request->n_searched,
        .stops_early = request->stops_early,
        .is_listening = request->heads != NULL,
        .divisors = request->divisors,
        .is_sampling = request->keys != NULL,
        .sampling = {request->temperature, (size_t)request->top_k, request->top_p},
    };
    search->workspace.heads = request->heads;
    search->has_rules = request->prefixes || request->least_lengths || request->ngram;
    search->n_sentences = (size_t)request->n_sentences;
    search->most_active =
        smaller_of(search->n_sentences, larger_of((size_t)request->most_rows / beam_size, 1));
    search->most_rows = saturated_product(search->most_active, beam_size);
}

static void lay_out(Search *search) {
    const Model *model = search->model;
    const Request *request = search->request;
    Arena *arena = &search->arena;
    size_t longest_source = 0, longest_target = 0;
    for (size_t i = 0; i < search->n_sentences; i++) {
        longest_source = larger_of(longest_source, source_length(request, i));
        const size_t n_prompt = is_decoder_only(model) ? source_length(request, i) - 1 : 0;
        longest_target = larger_of(longest_target, n_prompt + (size_t)request->limits[i] + 1);
    }
    const size_t n_source_tokens = (size_t)request->starts[search->n_sentences];
    search->encoder_rows = larger_of(longest_source, smaller_of(ENCODER_ROWS, n_source_tokens));
    const size_t n_rows = larger_of(search->encoder_rows, search->most_rows);
    search->sentences = arena_take(arena, search->most_active, sizeof(BeamSentence));
    search->sources = arena_take(arena, search->most_active, sizeof(Source));
    search->memories = arena_take(arena, search->most_active, sizeof(Memory));
    search->groups = arena_take(arena, search->most_active, sizeof(RowGroup));
    search->rows = arena_take(arena, n_rows, sizeof(DecoderRow));
    search->uniforms = arena_take(arena, search->most_rows, sizeof(double));
    search->hidden =
        arena_take(arena, saturated_product(n_rows, row_stride((size_t)model->shape.d_model)),
                   sizeof(float));
    search->most_forbidden = search->has_rules ? most_forbidden(longest_target) : 0;
    search->forbidden = arena_take(
        arena, saturated_product(search->most_rows, search->most_forbidden), sizeof(int32_t));
    const size_t n_choices = (size_t)model->shape.vocab_size - END_OF_SENTENCE;
    lay_out_vocabulary(arena, search->most_rows, smaller_of(search->settings.beam_size, n_choices),
                       &search->vocabulary);
    if (search->settings.is_sampling)
        lay_out_lottery(arena, (size_t)model->shape.vocab_size, search->most_rows,
                        &search->lottery);
    lay_out_workspace(arena, model, n_rows, is_decoder_only(model) ? 0 : longest_source,
                      longest_target, &search->workspace);
}

static bool start(Search *search) {
    lay_out(search);
    if (!arena_allocate(&search->arena))
        return false;
    lay_out(search);
    search->entries.entry_size = entry_size(search->model) + search->workspace.heard_stride;
    return true;
}

static void lay_out_candidates(const Search *search, BeamSentence *sentence) {
    const Request *request = search->request;
    if (!request->candidates)
        return;
    const int64_t *starts = request->candidate_starts + sentence->index;
    lay_out_shortlist(&sentence->arena, search->model, request->candidates + starts[0],
                      (size_t)(starts[1] - starts[0]), &sentence->shortlist);
}

static Rules rules_of(const Search *search, size_t index) {
    const Request *request = search->request;
    Rules rules = {.ngram = (size_t)request->ngram};
    if (request->prefixes) {
        const int64_t *starts = request->prefix_starts + index;
        rules.prefix = request->prefixes + starts[0];
        rules.n_prefix = (size_t)(starts[1] - starts[0]);
    }
    if (request->least_lengths)
        rules.least_length = (size_t)request->least_lengths[index];
    return rules;
}

static bool allocate_sentence(Search *search, BeamSentence *sentence, size_t index) {
    *sentence = (BeamSentence){.index = index,
                               .limit = (size_t)search->request->limits[index],
                               .rules = rules_of(search, index)};
    for (int pass = 0; pass < 2; pass++) {
        lay_out_sentence(sentence, &search->settings, search->model,
                         search->request->tokens + search->request->starts[index],
                         source_length(search->request, index));
        lay_out_candidates(search, sentence);
        if (pass == 0 && !arena_allocate(&sentence->arena))
            return false;
    }
    start_sentence(sentence, &search->settings);
    return true;
}

static void encode_started(Search *search, size_t n_new) {
    const Model *model = search->model;
    encode(model, search->sources, n_new, search->hidden, &search->workspace);
    for (int64_t layer = 0; layer < model->shape.n_decoder_layers; layer++) {
        for (size_t i = 0; i < n_new; i++)
            search->memories[i] = search->sentences[search->n_active + i].memories[layer];
        project_memory(&model->decoder[layer].cross_attention, search->hidden,
                       search->memories, n_new, &search->workspace);
    }
}

/* Reads the prompts of sentences, all tokens but the last one, which the search begins with. */
static bool read_prompts(Search *search, size_t n_new) {
    size_t n_rows = 0;
    for (size_t i = 0; i < n_new; i++) {
        BeamSentence *sentence = &search->sentences[search->n_active + i];
        float **entries = sentence->live[0].entries;
        if (!take_prompt_entries(sentence, &search->entries))
            return false;
        for (size_t position = 0; position < sentence->n_prompt; position++)
            search->rows[n_rows++] =
                (DecoderRow){search->sources[i].tokens[position], position, entries};
        for (size_t slot = 1; slot < sentence->n_live; slot++)
            memcpy(sentence->live[slot].entries, entries, sentence->n_prompt * sizeof *entries);
    }
    if (n_rows > 0)
        decode_step(search->model, search->rows, n_rows, NULL, 0, search->hidden,
                    &search->workspace);
    return true;
}

static bool is_any_left(const Search *search) {
    return __atomic_load_n(search->request->next, __ATOMIC_RELAXED) < search->request->n_sentences;
}

/* Takes the next sentence that no search has, if there are room and tokens left for it; alone any
   may be decoded. */
static bool take_sentence(Search *search, size_t n_new, size_t n_left, size_t *index) {
    const Request *request = search->request;
    int64_t next = __atomic_load_n(request->next, __ATOMIC_RELAXED);
    do {
        *index = (size_t)next;
        if (*index >= search->n_sentences || search->n_active + n_new >= search->most_active)
            return false;
        if (n_new > 0 && source_length(request, *index) > n_left)
            return false;
        if (search->n_active + n_new > 0 &&
            search->n_tokens + size_of(search, *index) > (size_t)request->most_tokens)
            return false;
    } while (!__atomic_compare_exchange_n(request->next, &next, next + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

/* Encodes as many of the next sentences as the encoder takes at a time and there are places for. */
static bool start_some(Search *search) {
    const Request *request = search->request;
    size_t n_new = 0, n_left = search->encoder_rows, index;
    while (take_sentence(search, n_new, n_left, &index)) {
        const size_t length = source_length(request, index);
        if (!allocate_sentence(search, &search->sentences[search->n_active + n_new], index)) {
            search->n_active += n_new; /* so that these are freed */
            return false;
        }
        search->sources[n_new++] = (Source){request->tokens + request->starts[index], length};
        n_left -= smaller_of(length, n_left);
        search->n_tokens += size_of(search, index);
    }
    if (n_new == 0)
        return true;
    const bool is_prompted = is_decoder_only(search->model);
    const bool is_read = !is_prompted || read_prompts(search, n_new);
    if (!is_prompted)
        encode_started(search, n_new);
    search->n_active += n_new;
    return is_read;
}

/* Another thread sets the flag while this one computes; nothing else is read because of it. */
static bool is_stopped(const Search *search) {
    return __atomic_load_n(search->request->stop, __ATOMIC_RELAXED) != 0;
}

/* Starts sentences once a quarter of all places, and of the tokens, is free: encoding a few would
   read all weights for little. */
static bool start_sentences(Search *search) {
    const size_t n_free = search->most_active - search->n_active;
    const size_t most_tokens = (size_t)search->request->most_tokens;
    if (search->n_active > 0 && (n_free < (search->most_active + 3) / 4 ||
                                 search->n_tokens > most_tokens - most_tokens / 4))
        return true;
    for (size_t n_before = search->n_active + 1;
         n_before != search->n_active && !is_stopped(search);) {
        n_before = search->n_active;
        if (!start_some(search))
            return false;
    }
    return true;
}

/* Writes what a hypothesis attended to: a row for each of its entries. */
static void answer_heard(const Search *search, const BeamSentence *sentence,
                         const FinishedHypothesis *found, size_t rank) {
    const size_t length = source_length(search->request, sentence->index);
    float *to = search->answer->heard + search->answer->heard_places[sentence->index] +
                rank * (sentence->limit + 1) * length;
    for (size_t position = 0; position <= found->n_tokens; position++, to += length)
        memcpy(to, found->entries[position] + entry_size(search->model), length * sizeof *to);
}

/* Writes what a sentence has found to its place in the answer. */
static void answer_sentence(const Search *search, const BeamSentence *sentence) {
    Answer *answer = search->answer;
    const size_t wanted = search->settings.n_searched, room = sentence->limit + 1;
    const size_t n = smaller_of(wanted, sentence->n_finished);
    answer->n_found[sentence->index] = (int64_t)n;
    size_t place = (size_t)answer->places[sentence->index];
    for (size_t rank = 0; rank < n; rank++, place += room) {
        const FinishedHypothesis *found = &sentence->finished[rank];
        const size_t number = sentence->index * wanted + rank;
        answer->n_tokens[number] = (int64_t)found->n_tokens;
        answer->log_probability[number] = found->total;
        answer->score[number] = found->score;
        answer->is_finished[number] = found->has_ended;
        memcpy(answer->target_tokens + place, found->tokens, found->n_tokens * sizeof(int32_t));
        memcpy(answer->steps + place, found->steps, (found->n_tokens + 1) * sizeof(float));
        if (found->entries)
            answer_heard(search, sentence, found, rank);
    }
}

static void end_sentence(Search *search, BeamSentence *sentence) {
    entries_give_back(&search->entries, sentence->taken, sentence->n_taken);
    arena_free(&sentence->arena);
}

/* Lists the live hypotheses of all sentences; false where there is no memory for their entries. */
static bool list_rows(Search *search, size_t *n_rows) {
    *n_rows = 0;
    for (size_t i = 0; i < search->n_active; i++) {
        BeamSentence *sentence = &search->sentences[i];
        if (!take_entries(sentence, &search->entries))
            return false;
        for (size_t slot = 0; slot < sentence->n_live; slot++) {
            const LiveHypothesis *live = &sentence->live[slot];
            const size_t length = sentence->length;
            search->rows[(*n_rows)++] = (DecoderRow){
                .token = length ? live->tokens[length - 1] : sentence->first,
                .position = sentence->n_prompt + length,
                .entries = live->entries,
            };
        }
        search->groups[i] = (RowGroup){sentence->n_live, sentence->memories};
    }
    return true;
}

/* Keeps what each row attended to behind the keys and values of its entry, so that it follows the
   hypotheses that continue it. */
static void keep_heard(const Search *search, size_t n_rows) {
    const size_t stride = search->workspace.heard_stride, offset = entry_size(search->model);
    for (size_t row = 0; stride && row < n_rows; row++)
        memcpy(search->rows[row].entries[search->rows[row].position] + offset,
               search->workspace.heard + row * stride, stride * sizeof(float));
}

/* Says what the next tokens of all rows must and must not be. */
static void ask(Search *search) {
    size_t row = 0;
    for (size_t i = 0; search->has_rules && i < search->n_active; i++) {
        const BeamSentence *sentence = &search->sentences[i];
        for (size_t slot = 0; slot < sentence->n_live; slot++, row++)
            apply_rules(&sentence->rules, sentence->live[slot].tokens, sentence->length,
                        search->forbidden + row * search->most_forbidden,
                        &search->vocabulary.rows[row]);
    }
}

/* Makes the numbers by which the next tokens of all rows are drawn. */
static void throw_dice(Search *search) {
    size_t row = 0;
    for (size_t i = 0; i < search->n_active; i++) {
        const BeamSentence *sentence = &search->sentences[i];
        for (size_t slot = 0; slot < sentence->n_live; slot++)
            search->uniforms[row++] = uniform_of(search->request->keys[sentence->index],
                                                 sentence->live[slot].candidate, sentence->length);
    }
}

/* Finds the best next tokens of rows from one on, or draws them. */
static void find_some(Search *search, const Linear *output, size_t first, size_t n_rows) {
    Vocabulary vocabulary = search->vocabulary;
    const float *hidden = search->hidden + first * row_stride((size_t)search->model->shape.d_model);
    vocabulary.rows += first;
    if (search->settings.is_sampling)
        draw_tokens(output, hidden, n_rows, &search->settings.sampling, search->uniforms + first,
                    &search->workspace.quantized, &vocabulary, &search->lottery);
    else
        best_tokens(output, hidden, n_rows, &search->workspace.quantized, &vocabulary);
}

/* Finds the next tokens of all rows, together or, where there are shortlists, of a sentence after
   the other. */
static void find_next(Search *search, size_t n_rows) {
    if (search->settings.is_sampling)
        throw_dice(search);
    if (!search->request->candidates) {
        find_some(search, whole_output(search->model), 0, n_rows);
        return;
    }
    size_t first = 0;
    for (size_t i = 0; i < search->n_active; i++) {
        const BeamSentence *sentence = &search->sentences[i];
        NextTokens *rows = search->vocabulary.rows + first;
        const Linear *output =
            listed_output(search->model, &sentence->shortlist, rows, sentence->n_live);
        find_some(search, output, first, sentence->n_live);
        name_tokens(&sentence->shortlist, rows, sentence->n_live);
        first += sentence->n_live;
    }
}

static bool step(Search *search) {
    size_t n_rows;
    if (!list_rows(search, &n_rows))
        return false;
    decode_step(search->model, search->rows, n_rows, search->groups, search->n_active,
                search->hidden, &search->workspace);
    keep_heard(search, n_rows);
    ask(search);
    find_next(search, n_rows);
    const NextTokens *next = search->vocabulary.rows;
    size_t n_going_on = 0;
    for (size_t i = 0; i < search->n_active; i++) {
        BeamSentence *sentence = &search->sentences[i];
        const size_t n_live = sentence->n_live;
        if (grow_hypotheses(sentence, &search->settings, next)) {
            search->sentences[n_going_on++] = *sentence;
            if (search->request->tell)
                search->request->tell(sentence->live[0].tokens[sentence->length - 1]);
        } else {
            answer_sentence(search, sentence);
            search->n_tokens -= size_of(search, sentence->index);
            end_sentence(search, sentence);
        }
        next += n_live;
    }
    search->n_active = n_going_on;
    return true;
}

static int32_t run(Search *search) {
    for (;;) {
        if (!start_sentences(search))
            return SEARCH_NO_MEMORY;
        if (search->n_active == 0 && !is_any_left(search))
            return SEARCH_DONE;
        if (is_stopped(search))
            return SEARCH_STOPPED;
        if (!step(search))
            return SEARCH_NO_MEMORY;
    }
}

int32_t tformer_search(const Model *model, const Request *request, Answer *answer) {
    Search search = {0};
    if (request->n_sentences == 0)
        return SEARCH_DONE;
    plan(&search, model, request, answer);
    const int32_t status = start(&search) ? run(&search) : SEARCH_NO_MEMORY;
    for (size_t i = 0; i < search.n_active; i++)
        end_sentence(&search, &search.sentences[i]);
    entries_free(&search.entries);
    arena_free(&search.arena);
    return status;
}
