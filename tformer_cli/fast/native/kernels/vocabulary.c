#include "vocabulary.h"

#include <math.h>
#include <string.h>

#include "exponential.h"

/* Tokens of a run; a run whose best is not among the k best is not looked into. */
#define RUN ((size_t)(4 * LANES))

/* Tokens whose runs are compared at once: a lane for each run. */
#define COMPARED (RUN * LANES)

/* Rows and tokens whose logits are computed at a time: 450 KiB, for the second cache. */
#define BLOCK_ROWS ((size_t)112)
#define BLOCK_TOKENS ((size_t)1024)
#define N_RUNS (BLOCK_TOKENS / RUN)

_Static_assert(BLOCK_TOKENS % COMPARED == 0, "a block is whole groups");
_Static_assert(BLOCK_ROWS <= QUANTIZED_ROWS, "a block is quantized at once");

void lay_out_vocabulary(Arena *arena, size_t most_rows, size_t k, Vocabulary *vocabulary) {
    vocabulary->k = k;
    vocabulary->rows = arena_take(arena, most_rows, sizeof(NextTokens));
    vocabulary->logits =
        arena_take(arena, smaller_of(most_rows, BLOCK_ROWS) * row_stride(BLOCK_TOKENS), sizeof(float));
    const size_t n = saturated_product(most_rows, k);
    int32_t *tokens = arena_take(arena, n, sizeof(int32_t));
    float *values = arena_take(arena, n, sizeof(float));
    if (!arena->memory)
        return;
    for (size_t row = 0; row < most_rows; row++)
        vocabulary->rows[row] = (NextTokens){
            .forced = ANY_TOKEN, .tokens = tokens + row * k, .values = values + row * k};
}

/* The largest logit of a run, lane by lane; there are `n`, and -inf is put in the place of others. */
INLINE Vector largest_of_run(const float *logits, size_t n) {
    if (n == RUN)
        return larger(larger(load(logits), load(logits + LANES)),
                      larger(load(logits + 2 * LANES), load(logits + 3 * LANES)));
    Vector most = broadcast(-INFINITY);
    for (size_t i = 0; i < n; i += LANES)
        most = larger(load_some(logits + i, (int)smaller_of(n - i, LANES), -INFINITY), most);
    return most;
}

/* Writes the largest logit of each run of a block of n tokens, -inf where a run is empty; returns
   the largest of all. */
static float largest_of_runs(const float *logits, size_t n, float *runs) {
    Vector most = broadcast(-INFINITY);
    for (size_t first = 0; first < BLOCK_TOKENS; first += COMPARED) {
        Vector largest[LANES];
        for (size_t run = 0; run < LANES; run++) {
            const size_t start = smaller_of(first + run * RUN, n);
            largest[run] = largest_of_run(logits + start, smaller_of(n - start, RUN));
        }
        const Vector of_runs = largest_of_vectors(largest);
        store(runs + first / RUN, of_runs);
        most = larger(of_runs, most);
    }
    return largest_lane(most);
}

/* Adds Σ exp(logit - largest) of some tokens; what was summed before is brought to a new
   largest. */
static void add_to_sum(NextTokens *row, const float *logits, size_t n, float largest) {
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

/* The k-th largest of the runs' largest logits, -inf if there are fewer runs: a smaller logit is
   not among the k best. */
static float least_of_best(const float *runs, size_t k) {
    float best[N_RUNS];
    size_t n = 0;
    if (k > N_RUNS)
        return -INFINITY;
    for (size_t run = 0; run < N_RUNS; run++) {
        if (n == k && !(runs[run] > best[k - 1]))
            continue;
        size_t place = n < k ? n++ : k - 1;
        for (; place > 0 && runs[run] > best[place - 1]; place--)
            best[place] = best[place - 1];
        best[place] = runs[run];
    }
    return best[k - 1];
}

static void look_for_best(NextTokens *row, size_t k, const float *logits, size_t first, size_t n,
                          const float *runs) {
    const float least = least_of_best(runs, k);
    for (size_t run = 0; run * RUN < n; run++) {
        const float known = row->n_best < k ? -INFINITY : row->values[k - 1];
        if (!(runs[run] >= least && runs[run] > known))
            continue;
        const size_t stop = smaller_of((run + 1) * RUN, n);
        for (size_t i = run * RUN; i < stop; i++)
            if (logits[i] > (row->n_best < k ? -INFINITY : row->values[k - 1]))
                insert(row, k, (int32_t)(first + i), logits[i]);
    }
}

/* Rounding may put the certain event a hair above 0. */
static float log_probability(float logit, float normalizer) {
    const float value = logit - normalizer;
    return value > 0.0f ? 0.0f : value;
}

static void normalize(NextTokens *row) {
    const float normalizer = row->largest + logf(row->sum);
    row->end = log_probability(row->end, normalizer);
    for (size_t i = 0; i < row->n_best; i++)
        row->values[i] = log_probability(row->values[i], normalizer);
}

/* Takes a token out of a block. */
static void forbid(size_t place, float *logits, size_t n, float *runs) {
    const size_t run = place / RUN;
    logits[place] = -INFINITY;
    runs[run] = largest_lane(largest_of_run(logits + run * RUN, smaller_of(n - run * RUN, RUN)));
}

/* Takes the tokens that are never generated, and those that are forbidden, out of a block. */
static void forbid_others(NextTokens *row, float *logits, size_t first, size_t n, float *runs) {
    for (size_t token = 0; first == 0 && token < END_OF_SENTENCE; token++)
        forbid(token, logits, n, runs);
    for (; row->n_passed < row->n_forbidden; row->n_passed++) {
        const size_t place = (size_t)row->forbidden[row->n_passed] - first;
        if (place >= n)
            break;
        forbid(place, logits, n, runs);
    }
}

/* Takes the logit of the one token that is looked at, if it is in a block. */
static void look_for_forced(NextTokens *row, const float *logits, size_t first, size_t n) {
    const size_t place = (size_t)row->forced - first; /* very large if it is in an earlier one */
    if (place >= n)
        return;
    row->n_best = 1;
    row->tokens[0] = row->forced;
    row->values[0] = logits[place];
}

/* Begins the sums of some rows, and quantizes them if the matrix is in integers. */
static void start_block(const Linear *output, const float *hidden, size_t n_rows,
                        QuantizedRows *quantized, NextTokens *rows) {
    if (output->matrix.scale)
        quantize_rows(hidden, row_stride(output->matrix.n_inputs), n_rows, output->matrix.n_inputs, quantized);
    for (size_t row = 0; row < n_rows; row++) {
        rows[row].n_best = rows[row].n_passed = 0;
        rows[row].largest = -INFINITY;
        rows[row].sum = 0.0f;
    }
}

/* Computes the logits of n tokens from the first one. */
static void find_logits(const Linear *output, const float *hidden, size_t n_rows,
                        const QuantizedRows *quantized, size_t first, size_t n, float *logits) {
    const size_t stride = row_stride(BLOCK_TOKENS);
    const PackedMatrix part = part_of(&output->matrix, first, n);
    const Epilogue epilogue = {.bias = output->bias ? output->bias + first : NULL};
    if (output->matrix.scale)
        multiply_quantized(&part, quantized, n_rows, epilogue, logits, stride);
    else
        multiply(&part, hidden, row_stride(output->matrix.n_inputs), n_rows, epilogue, logits,
                 stride);
}

static void find_block(const Linear *output, const float *hidden, size_t n_rows, size_t k,
                       QuantizedRows *quantized, NextTokens *rows, float *logits) {
    start_block(output, hidden, n_rows, quantized, rows);
    for (size_t first = 0; first < output->matrix.n_outputs; first += BLOCK_TOKENS) {
        const size_t n = smaller_of(output->matrix.n_outputs - first, BLOCK_TOKENS);
        find_logits(output, hidden, n_rows, quantized, first, n, logits);
        for (size_t row = 0; row < n_rows; row++) {
            float *own = logits + row * row_stride(BLOCK_TOKENS), runs[N_RUNS];
            add_to_sum(&rows[row], own, n, largest_of_runs(own, n, runs));
            if (first == 0)
                rows[row].end = own[END_OF_SENTENCE];
            if (rows[row].forced != ANY_TOKEN) {
                look_for_forced(&rows[row], own, first, n);
                continue;
            }
            forbid_others(&rows[row], own, first, n, runs);
            look_for_best(&rows[row], k, own, first, n, runs);
        }
    }
    for (size_t row = 0; row < n_rows; row++)
        normalize(&rows[row]);
}

static void normalize_block(const Linear *output, const float *hidden, size_t n_rows,
                            QuantizedRows *quantized, NextTokens *rows, float *logits,
                            float *result) {
    const size_t n_tokens = output->matrix.n_outputs;
    start_block(output, hidden, n_rows, quantized, rows);
    for (size_t first = 0; first < n_tokens; first += BLOCK_TOKENS) {
        const size_t n = smaller_of(n_tokens - first, BLOCK_TOKENS);
        find_logits(output, hidden, n_rows, quantized, first, n, logits);
        for (size_t row = 0; row < n_rows; row++) {
            float *own = logits + row * row_stride(BLOCK_TOKENS), runs[N_RUNS];
            add_to_sum(&rows[row], own, n, largest_of_runs(own, n, runs));
            memcpy(result + row * n_tokens + first, own, n * sizeof(float));
        }
    }
    for (size_t row = 0; row < n_rows; row++) {
        const float normalizer = rows[row].largest + logf(rows[row].sum);
        for (size_t token = 0; token < n_tokens; token++)
            result[row * n_tokens + token] =
                log_probability(result[row * n_tokens + token], normalizer);
    }
}

void best_tokens(const Linear *output, const float *hidden, size_t n_rows,
                 QuantizedRows *quantized, Vocabulary *vocabulary) {
    for (size_t first = 0; first < n_rows; first += BLOCK_ROWS)
        find_block(output, hidden + first * row_stride(output->matrix.n_inputs),
                   smaller_of(n_rows - first, BLOCK_ROWS), vocabulary->k, quantized,
                   vocabulary->rows + first, vocabulary->logits);
}

void all_log_probabilities(const Linear *output, const float *hidden, size_t n_rows,
                           QuantizedRows *quantized, Vocabulary *vocabulary, float *result) {
    for (size_t first = 0; first < n_rows; first += BLOCK_ROWS)
        normalize_block(output, hidden + first * row_stride(output->matrix.n_inputs),
                        smaller_of(n_rows - first, BLOCK_ROWS), quantized,
                        vocabulary->rows + first, vocabulary->logits,
                        result + first * output->matrix.n_outputs);
}
