#include "vocabulary.h"

#include <math.h>

#include "exponential.h"

/* Rows and tokens whose logits are computed at a time: 450 KiB, for the second cache. */
#define BLOCK_ROWS ((size_t)112)
#define BLOCK_TOKENS ((size_t)1024)

/* Tokens of a run; a run whose best is not among the k best is not looked into. */
#define RUN ((size_t)(4 * LANES))

static size_t smaller_of(size_t a, size_t b) { return a < b ? a : b; }

void lay_out_vocabulary(Arena *arena, size_t most_rows, size_t k, Vocabulary *vocabulary) {
    vocabulary->k = k;
    vocabulary->rows = arena_take(arena, most_rows, sizeof(NextTokens));
    vocabulary->logits =
        arena_take(arena, smaller_of(most_rows, BLOCK_ROWS) * BLOCK_TOKENS, sizeof(float));
    const size_t n = saturated_product(most_rows, k);
    int32_t *tokens = arena_take(arena, n, sizeof(int32_t));
    float *values = arena_take(arena, n, sizeof(float));
    if (!arena->memory)
        return;
    for (size_t row = 0; row < most_rows; row++) {
        vocabulary->rows[row].tokens = tokens + row * k;
        vocabulary->rows[row].values = values + row * k;
    }
}

static float largest_of(const float *values, size_t n) {
    Vector most = broadcast(-INFINITY);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        most = larger(load(values + i), most);
    if (i < n)
        most = larger(load_some(values + i, (int)(n - i), -INFINITY), most);
    return largest_lane(most);
}

/* Adds Σ exp(logit - largest) of some tokens, and brings what was summed before to the new
   largest. */
static void add_to_sum(NextTokens *row, const float *logits, size_t n) {
    const float largest = largest_of(logits, n);
    if (largest > row->largest) {
        row->sum *= expf(row->largest - largest);
        row->largest = largest;
    }
    const Vector shift = broadcast(row->largest);
    Vector sums = {0}, more = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        sums += exponential(load(logits + i) - shift);
        more += exponential(load(logits + i + LANES) - shift);
    }
    for (; i < n; i += LANES)
        sums += exponential(load_some(logits + i, (int)smaller_of(n - i, LANES), -INFINITY) - shift);
    row->sum += sum_of_lanes(sums + more);
}

/* Puts a token where it belongs; what falls behind the k-th is forgotten. */
static void insert(NextTokens *row, size_t k, int32_t token, float value) {
    size_t place = row->n_best < k ? row->n_best++ : k - 1;
    for (; place > 0 && value > row->values[place - 1]; place--) {
        row->values[place] = row->values[place - 1];
        row->tokens[place] = row->tokens[place - 1];
    }
    row->values[place] = value;
    row->tokens[place] = token;
}

static void look_for_best(NextTokens *row, size_t k, const float *logits, size_t first, size_t n) {
    for (size_t run = first < END_OF_SENTENCE ? END_OF_SENTENCE : 0; run < n;) {
        const size_t stop = smaller_of((run / RUN + 1) * RUN, n);
        const float least = row->n_best < k ? -INFINITY : row->values[k - 1];
        if (largest_of(logits + run, stop - run) > least)
            for (size_t i = run; i < stop; i++)
                if (logits[i] > (row->n_best < k ? -INFINITY : row->values[k - 1]))
                    insert(row, k, (int32_t)(first + i), logits[i]);
        run = stop;
    }
}

/* Rounding may put the certain event a hair above 0. */
static float log_probability(float logit, float normalizer) {
    const float value = logit - normalizer;
    return value > 0.0f ? 0.0f : value;
}

static void normalise(NextTokens *row) {
    const float normalizer = row->largest + logf(row->sum);
    row->end = log_probability(row->end, normalizer);
    for (size_t i = 0; i < row->n_best; i++)
        row->values[i] = log_probability(row->values[i], normalizer);
}

static void find_block(const PackedMatrix *output, const float *hidden, size_t n_rows, size_t k,
                       NextTokens *rows, float *logits) {
    const size_t d_model = output->n_inputs;
    for (size_t row = 0; row < n_rows; row++) {
        rows[row].n_best = 0;
        rows[row].largest = -INFINITY;
        rows[row].sum = 0.0f;
    }
    for (size_t first = 0; first < output->n_outputs; first += BLOCK_TOKENS) {
        const size_t n = smaller_of(output->n_outputs - first, BLOCK_TOKENS);
        const PackedMatrix part = {d_model, n, output->panels + first * d_model};
        multiply(&part, hidden, d_model, n_rows, (Epilogue){0}, logits, BLOCK_TOKENS);
        for (size_t row = 0; row < n_rows; row++) {
            const float *own = logits + row * BLOCK_TOKENS;
            if (first == 0)
                rows[row].end = own[END_OF_SENTENCE];
            add_to_sum(&rows[row], own, n);
            look_for_best(&rows[row], k, own, first, n);
        }
    }
    for (size_t row = 0; row < n_rows; row++)
        normalise(&rows[row]);
}

void best_tokens(const PackedMatrix *output, const float *hidden, size_t n_rows,
                 Vocabulary *vocabulary) {
    for (size_t first = 0; first < n_rows; first += BLOCK_ROWS)
        find_block(output, hidden + first * output->n_inputs,
                   smaller_of(n_rows - first, BLOCK_ROWS), vocabulary->k, vocabulary->rows + first,
                   vocabulary->logits);
}
