#include "sampling.h"

#include <math.h>

#include "exponential.h"

/* Log-probabilities that are held at a time: 16 MiB, unless one row alone has more. */
#define MOST_SCORES ((size_t)1 << 22)

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

double uniform_of(uint64_t key, size_t candidate, size_t step) {
    const uint64_t increment = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t stream = mixed(key ^ (candidate * increment));
    return (double)(mixed(stream + (step + 1) * increment) >> 11) * 0x1p-53;
}

void lay_out_lottery(Arena *arena, size_t vocab_size, size_t most_rows, Lottery *lottery) {
    const size_t fitting = MOST_SCORES / vocab_size;
    lottery->n_rows = smaller_of(most_rows, fitting ? fitting : 1);
    lottery->scores =
        arena_take(arena, saturated_product(lottery->n_rows, vocab_size), sizeof(float));
    lottery->weights = arena_take(arena, whole_vectors(vocab_size), sizeof(float));
    lottery->order = arena_take(arena, vocab_size, sizeof(int32_t));
}

static float largest_of(const float *values, size_t n) {
    Vector most = broadcast(-INFINITY);
    for (size_t i = 0; i < n; i += LANES)
        most = larger(load_some(values + i, (int)smaller_of(n - i, LANES), -INFINITY), most);
    return largest_lane(most);
}

/* Writes e^((score - largest) / temperature) of all tokens, 0 of those that are forbidden. */
static void weigh(const float *scores, size_t n, double temperature, float largest,
                  float *weights) {
    /* A finite factor: 0 times infinity would be no number */
    const Vector factor = broadcast((float)fmin(1.0 / temperature, 1e30));
    const Vector shift = broadcast(largest), nothing = broadcast(-INFINITY);
    for (size_t i = 0; i < n; i += LANES) {
        const Vector score = load_some(scores + i, (int)smaller_of(n - i, LANES), -INFINITY);
        const Vector weight = exponential((score - shift) * factor);
        store(weights + i, choose(score > nothing, weight, broadcast(0.0f)));
    }
}

/* Whether a token is drawn from before another: the more probable one, or the smaller id. */
static bool precedes(const float *weights, int32_t a, int32_t b) {
    return weights[a] > weights[b] || (weights[a] == weights[b] && a < b);
}

/* Lets a token of a heap sink to where nothing below it precedes it. */
static void sink(const float *weights, int32_t *heap, size_t n, size_t place) {
    const int32_t token = heap[place];
    for (size_t child; (child = 2 * place + 1) < n; place = child) {
        if (child + 1 < n && precedes(weights, heap[child + 1], heap[child]))
            child++;
        if (!precedes(weights, heap[child], token))
            break;
        heap[place] = heap[child];
    }
    heap[place] = token;
}

/* Puts the tokens that are drawn from at the end of `order`, the first one last; returns how many
   they are. They are taken off a heap, so that only those few are sorted. */
static size_t choose_tokens(const Sampling *sampling, const float *weights, size_t n, double total,
                            int32_t *order) {
    const size_t most = sampling->top_k ? smaller_of(sampling->top_k, n) : n;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (size_t place = n / 2; place > 0; place--)
        sink(weights, order, n, place - 1);
    size_t n_chosen = 0;
    while (n_chosen < most && (sampling->top_k || sum < sampling->top_p * total)) {
        const size_t last = n - ++n_chosen;
        const int32_t token = order[0];
        order[0] = order[last];
        order[last] = token;
        sink(weights, order, last, 0);
        sum += (double)weights[token];
    }
    if (!sampling->top_k)
        return n_chosen;
    double before = 0.0; /* of the most probable k, those that reach top_p */
    for (size_t i = 0; i < n_chosen; i++) {
        if (before >= sampling->top_p * sum)
            return i;
        before += (double)weights[order[n - 1 - i]];
    }
    return n_chosen;
}

/* The i-th token that is drawn from: of a list, its last one first, or the token i. */
static int32_t token_at(const int32_t *order, size_t n, size_t i) {
    return order ? order[n - 1 - i] : (int32_t)i;
}

/* Draws by the inverse of the distribution function. */
static int32_t draw(const Sampling *sampling, const float *weights, size_t n, double uniform,
                    int32_t *room) {
    double total = 0.0;
    for (size_t i = 0; i < n; i++)
        total += (double)weights[i];
    const bool is_part = sampling->top_k || sampling->top_p < 1.0;
    const int32_t *order = is_part ? room : NULL;
    const size_t n_chosen = is_part ? choose_tokens(sampling, weights, n, total, room) : n;
    if (is_part) {
        total = 0.0;
        for (size_t i = 0; i < n_chosen; i++)
            total += (double)weights[token_at(order, n, i)];
    }
    /* Below the total, so that what is found has a probability above 0 */
    const double wanted = fmin(uniform * total, nextafter(total, 0.0));
    double reached = 0.0;
    for (size_t i = 0; i < n_chosen; i++) {
        const int32_t token = token_at(order, n, i);
        reached += (double)weights[token];
        if (reached > wanted)
            return token;
    }
    return END_OF_SENTENCE;
}

static void draw_row(NextTokens *row, float *scores, size_t n, const Sampling *sampling,
                     double uniform, Lottery *lottery) {
    int32_t token = row->forced;
    row->end = scores[END_OF_SENTENCE];
    if (token == ANY_TOKEN) {
        for (size_t i = 0; i < END_OF_SENTENCE; i++)
            scores[i] = -INFINITY;
        for (size_t i = 0; i < row->n_forbidden; i++)
            scores[row->forbidden[i]] = -INFINITY;
        const float largest = largest_of(scores, n);
        if (largest > -INFINITY) {
            weigh(scores, n, sampling->temperature, largest, lottery->weights);
            token = draw(sampling, lottery->weights, n, uniform, lottery->order);
        } else {
            token = END_OF_SENTENCE; /* nothing else is allowed */
            scores[token] = row->end;
        }
    }
    row->n_best = 1;
    row->tokens[0] = token;
    row->values[0] = scores[token];
}

void draw_tokens(const Linear *output, const float *hidden, size_t n_rows, const Sampling *sampling,
                 const double *uniforms, QuantizedRows *quantized, Vocabulary *vocabulary,
                 Lottery *lottery) {
    const size_t n_tokens = output->matrix.n_outputs;
    const size_t stride = row_stride(output->matrix.n_inputs);
    for (size_t first = 0; first < n_rows; first += lottery->n_rows) {
        const size_t n = smaller_of(n_rows - first, lottery->n_rows);
        Vocabulary part = *vocabulary;
        part.rows += first;
        all_log_probabilities(output, hidden + first * stride, n, quantized, &part,
                              lottery->scores);
        for (size_t row = 0; row < n; row++)
            draw_row(&part.rows[row], lottery->scores + row * n_tokens, n_tokens, sampling,
                     uniforms[first + row], lottery);
    }
}
