/* A thread takes a head of a sentence at a time: all that belongs to it fits in the nearest caches.
   Products are those of matmul.h; what they multiply by is packed first. */
#include "attention_training.h"

#include <math.h>

#include "arena.h"
#include "exponential.h"
#include "matmul.h"
#include "parallel.h"
#include "rotary.h"

static const Epilogue NOTHING = {0};

typedef struct {
    const AttentionPass *pass;
    bool has_failed;
} Job;

/* Room for what one thread computes, as much as its longest sentence needs. Rows of heads are E
   floats apart, rows of scores whole vectors. */
typedef struct {
    float *query, *key, *value, *context; /* (Q or K, E) of one head */
    float *weights;                       /* (Q, K), where the pass keeps none */
    float *gradient;                      /* (Q, K) gradient of the weights, then of the scores */
    float *transposed;                    /* (K, Q) weights, or their gradient, transposed */
    float *panels;
} Scratch;

/* Which numbers of a matrix are not 0: all, or under a causal mask those up to the row's own, or in its
   transpose those from there. Rows go in blocks then, each without the numbers that all its rows lack.
   Sums keep their bits, since x + 0·y is x. */
typedef enum { ALL, UP_TO_ROW, FROM_ROW } Band;

/* One head's part of everything. */
typedef struct {
    size_t number; /* among the heads of its sentence */
    size_t first_query, n_queries, first_key, n_keys;
    size_t stride;  /* of rows of scores */
    Band band;      /* of weights and scores */
    float *weights; /* (Q, K in whole vectors), or NULL */
} Head;

static Head head_of(const AttentionPass *pass, size_t index) {
    const size_t n_heads = (size_t)pass->n_heads, sentence = index / n_heads;
    const int64_t *queries = pass->query_starts + sentence, *keys = pass->key_starts + sentence;
    Head head = {
        .number = index % n_heads,
        .first_query = (size_t)queries[0],
        .n_queries = (size_t)(queries[1] - queries[0]),
        .first_key = (size_t)keys[0],
        .n_keys = (size_t)(keys[1] - keys[0]),
        .stride = whole_vectors((size_t)(keys[1] - keys[0])),
        .band = pass->is_causal ? UP_TO_ROW : ALL,
    };
    if (pass->weights)
        head.weights = pass->weights + pass->weight_starts[sentence] +
                       head.number * head.n_queries * head.stride;
    return head;
}

static void lay_out(Arena *arena, const AttentionPass *pass, Scratch *scratch) {
    const size_t n_queries = (size_t)pass->most_queries, n_keys = (size_t)pass->most_keys;
    const size_t width = (size_t)pass->head_width, stride = whole_vectors(n_keys);
    const size_t n = n_queries > n_keys ? n_queries : n_keys;
    size_t most = packed_size(stride, width);
    if (packed_size(width, n) > most)
        most = packed_size(width, n);
    scratch->query = arena_take(arena, saturated_product(n_queries, width), sizeof(float));
    scratch->key = arena_take(arena, saturated_product(n_keys, width), sizeof(float));
    scratch->value = arena_take(arena, saturated_product(n_keys, width), sizeof(float));
    scratch->context = arena_take(arena, saturated_product(n_queries, width), sizeof(float));
    scratch->weights = arena_take(
        arena, pass->weights ? 0 : saturated_product(n_queries, stride), sizeof(float));
    scratch->gradient = arena_take(arena, saturated_product(n_queries, stride), sizeof(float));
    scratch->transposed =
        arena_take(arena, saturated_product(n_keys, whole_vectors(n_queries)), sizeof(float));
    scratch->panels = arena_take(arena, most, sizeof(float));
}

/* Reads one head's rows (n_rows, E), each number times a factor. The next head's are fetched
   meanwhile: they lie beside them, too far apart from row to row for the processor to foresee. */
static void read_head(const HeadRows *rows, size_t first, size_t head, size_t n_rows, size_t width,
                      float factor, NumberKind kind, float *to) {
    const size_t start = first * (size_t)rows->row_stride + head * width;
    for (size_t row = 0; row < n_rows; row++, to += width) {
        const size_t at = start + row * (size_t)rows->row_stride;
        size_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            __builtin_prefetch(number_at(rows->numbers, at + width + i, kind));
            store(to + i,
                  load_numbers(number_at(rows->numbers, at + i, kind), kind) * broadcast(factor));
        }
        if (i < width) {
            const int n = (int)(width - i);
            const void *from = number_at(rows->numbers, at + i, kind);
            store_some(to + i, load_some_numbers(from, n, kind) * broadcast(factor), n);
        }
    }
}

static void write_head(const HeadRows *rows, size_t first, size_t head, size_t n_rows, size_t width,
                       float factor, NumberKind kind, const float *from) {
    const size_t start = first * (size_t)rows->row_stride + head * width;
    for (size_t row = 0; row < n_rows; row++, from += width) {
        const size_t at = start + row * (size_t)rows->row_stride;
        size_t i = 0;
        for (; i + LANES <= width; i += LANES)
            store_numbers((void *)number_at(rows->numbers, at + i, kind),
                          load(from + i) * broadcast(factor), kind);
        if (i < width) {
            const int n = (int)(width - i);
            store_some_numbers((void *)number_at(rows->numbers, at + i, kind),
                               load_some(from + i, n, 0.0f) * broadcast(factor), n, kind);
        }
    }
}

/* Turns a head's queries or keys (n_rows, E) by their places, or back. */
static void turn_rows(const AttentionPass *pass, size_t n_rows, float direction, float *rows) {
    const size_t width = (size_t)pass->head_width;
    for (size_t row = 0; pass->turns && row < n_rows; row++)
        turn_head(pass->turns + row * width, width, direction, rows + row * width);
}

/* Rows of such a block. */
#define BLOCK_ROWS ((size_t)24)

/* Where the row's block ends. */
static size_t end_of_block(size_t row, size_t n_rows, Band band) {
    const size_t end = row / BLOCK_ROWS * BLOCK_ROWS + BLOCK_ROWS;
    return band == ALL ? n_rows : smaller_of(end, n_rows);
}

/* Numbers of a row of scores that are computed. */
static size_t n_computed(size_t row, size_t n_rows, Band band, size_t stride) {
    return band == ALL ? stride : whole_vectors(end_of_block(row, n_rows, band));
}

/* (n_rows, E)·matrixᵀ, for a matrix (N, E) of a head; the result's rows are whole vectors, of which
   what is not in the band may stay as it was. */
static void multiply_by_rows(const float *x, size_t n_rows, Band band, const float *matrix,
                             size_t n_outputs, size_t width, float *panels, float *result) {
    const size_t stride = whole_vectors(n_outputs);
    pack_matrix(matrix, n_outputs, width, width, panels);
    for (size_t row = 0, end; row < n_rows; row = end) {
        end = end_of_block(row, n_rows, band);
        const PackedMatrix packed = {
            .n_inputs = width,
            .n_outputs = n_computed(row, n_rows, band, stride),
            .panels = panels,
        };
        multiply(&packed, x + row * width, width, end - row, NOTHING, result + row * stride, stride);
    }
}

/* x·matrix, for x (n_rows, n) in a band and a matrix (n, E) of a head. */
static void multiply_by_columns(const float *x, size_t x_stride, size_t n_rows, Band band,
                                const float *matrix, size_t n, size_t width, float *panels,
                                float *result) {
    const size_t n_columns = band == ALL ? width : PANEL_COLUMNS;
    pack_transposed(matrix, width, n, width, panels);
    for (size_t row = 0, end; row < n_rows; row = end) {
        end = end_of_block(row, n_rows, band);
        const size_t first = band == FROM_ROW ? row : 0, last = band == UP_TO_ROW ? end : n;
        for (size_t column = 0; column < width; column += n_columns) {
            const PackedMatrix packed = {
                .n_inputs = last - first,
                .n_outputs = smaller_of(n_columns, width - column),
                .panels = panels + column * n + first * PANEL_COLUMNS,
            };
            multiply(&packed, x + row * x_stride + first, x_stride, end - row, NOTHING,
                     result + row * width + column, width);
        }
    }
}

/* Transposes a matrix; the result's rows are whole vectors. */
static void transpose_matrix(const float *from, size_t stride, size_t n_rows, size_t n_columns,
                             float *to) {
    const size_t to_stride = whole_vectors(n_rows);
    for (size_t row = 0; row < n_rows; row += LANES)
        for (size_t column = 0; column < n_columns; column += LANES)
            transpose_block(from + row * stride + column, stride, n_rows - row, n_columns - column,
                            to + column * to_stride + row, to_stride);
}

/* Softmax over the first `n_visible` scores of a row of whole vectors; the others become 0. */
static void masked_softmax(float *scores, size_t n_visible, size_t stride) {
    const size_t last = whole_vectors(n_visible) - LANES;
    const IntVector is_visible = first_lanes((int)(n_visible - last));
    const Vector end = choose(is_visible, load(scores + last), broadcast(-INFINITY));
    Vector most = end;
    for (size_t i = 0; i < last; i += LANES)
        most = larger(load(scores + i), most);
    const Vector largest = broadcast(largest_lane(most));
    const Vector weight = exponential(end - largest);
    Vector sum = (Vector)((IntVector)weight & is_visible);
    store(scores + last, sum);
    for (size_t i = 0; i < last; i += LANES) {
        const Vector weights = exponential(load(scores + i) - largest);
        sum += weights;
        store(scores + i, weights);
    }
    const Vector factor = broadcast(1.0f / sum_of_lanes(sum));
    for (size_t i = 0; i <= last; i += LANES)
        store(scores + i, load(scores + i) * factor);
    for (size_t i = last + LANES; i < stride; i += LANES)
        store(scores + i, (Vector){0});
}

/* dS from dP, in place: P∘(dP - Σ P∘dP). */
static void gradient_of_scores(const float *weights, size_t n, float *gradient) {
    Vector sum = {0};
    for (size_t i = 0; i < n; i += LANES)
        sum += load(weights + i) * load(gradient + i);
    const Vector mean = broadcast(sum_of_lanes(sum));
    for (size_t i = 0; i < n; i += LANES)
        store(gradient + i, load(weights + i) * (load(gradient + i) - mean));
}

/* Makes the weights of a head, where they are kept or in scratch memory. */
static float *weighed(const AttentionPass *pass, const Head *head, const Scratch *scratch) {
    const size_t n_queries = head->n_queries, n_keys = head->n_keys, stride = head->stride;
    const size_t width = (size_t)pass->head_width;
    const NumberKind kind = (NumberKind)pass->kind;
    float *weights = head->weights ? head->weights : scratch->weights;
    read_head(&pass->query, head->first_query, head->number, n_queries, width,
              1.0f / sqrtf((float)width), kind, scratch->query);
    read_head(&pass->key, head->first_key, head->number, n_keys, width, 1.0f, kind, scratch->key);
    turn_rows(pass, n_queries, 1.0f, scratch->query);
    turn_rows(pass, n_keys, 1.0f, scratch->key);
    multiply_by_rows(scratch->query, n_queries, head->band, scratch->key, n_keys, width,
                     scratch->panels, weights);
    for (size_t row = 0; row < n_queries; row++)
        masked_softmax(weights + row * stride, pass->is_causal ? row + 1 : n_keys, stride);
    return weights;
}

static void attend_head(const AttentionPass *pass, const Head *head, const Scratch *scratch) {
    const size_t n_queries = head->n_queries, n_keys = head->n_keys;
    const size_t width = (size_t)pass->head_width;
    const NumberKind kind = (NumberKind)pass->kind;
    const float *weights = weighed(pass, head, scratch);
    read_head(&pass->value, head->first_key, head->number, n_keys, width, 1.0f, kind,
              scratch->value);
    multiply_by_columns(weights, head->stride, n_queries, head->band, scratch->value, n_keys, width,
                        scratch->panels, scratch->context);
    write_head(&pass->context, head->first_query, head->number, n_queries, width, 1.0f, kind,
               scratch->context);
}

static void attend_head_backward(const AttentionPass *pass, const Head *head,
                                 const Scratch *scratch) {
    const size_t n_queries = head->n_queries, n_keys = head->n_keys, number = head->number;
    const size_t width = (size_t)pass->head_width, stride = head->stride;
    const size_t first_query = head->first_query, first_key = head->first_key;
    const size_t transposed_stride = whole_vectors(n_queries);
    const NumberKind kind = (NumberKind)pass->kind;
    const float factor = 1.0f / sqrtf((float)width);
    const Band transposed = head->band == ALL ? ALL : FROM_ROW;
    const float *weights = head->weights ? head->weights : weighed(pass, head, scratch);
    read_head(&pass->context, first_query, number, n_queries, width, 1.0f, kind, scratch->context);
    transpose_matrix(weights, stride, n_queries, n_keys, scratch->transposed);
    multiply_by_columns(scratch->transposed, transposed_stride, n_keys, transposed,
                        scratch->context, n_queries, width, scratch->panels, scratch->key);
    write_head(&pass->value_gradient, first_key, number, n_keys, width, 1.0f, kind, scratch->key);

    read_head(&pass->value, first_key, number, n_keys, width, 1.0f, kind, scratch->value);
    multiply_by_rows(scratch->context, n_queries, head->band, scratch->value, n_keys, width,
                     scratch->panels, scratch->gradient);
    for (size_t row = 0; row < n_queries; row++)
        gradient_of_scores(weights + row * stride, n_computed(row, n_queries, head->band, stride),
                           scratch->gradient + row * stride);

    read_head(&pass->key, first_key, number, n_keys, width, 1.0f, kind, scratch->key);
    turn_rows(pass, n_keys, 1.0f, scratch->key);
    multiply_by_columns(scratch->gradient, stride, n_queries, head->band, scratch->key, n_keys,
                        width, scratch->panels, scratch->context);
    turn_rows(pass, n_queries, -1.0f, scratch->context);
    write_head(&pass->query_gradient, first_query, number, n_queries, width, factor, kind,
               scratch->context);

    read_head(&pass->query, first_query, number, n_queries, width, factor, kind, scratch->query);
    turn_rows(pass, n_queries, 1.0f, scratch->query);
    transpose_matrix(scratch->gradient, stride, n_queries, n_keys, scratch->transposed);
    multiply_by_columns(scratch->transposed, transposed_stride, n_keys, transposed, scratch->query,
                        n_queries, width, scratch->panels, scratch->key);
    turn_rows(pass, n_keys, -1.0f, scratch->key);
    write_head(&pass->key_gradient, first_key, number, n_keys, width, 1.0f, kind, scratch->key);
}

static void run_heads(Job *job, Shares *shares,
                      void (*run)(const AttentionPass *, const Head *, const Scratch *)) {
    size_t first, last;
    if (!next_share(shares, &first, &last))
        return;
    Arena arena = {0};
    Scratch scratch;
    lay_out(&arena, job->pass, &scratch);
    if (!arena_allocate(&arena)) {
        __atomic_store_n(&job->has_failed, true, __ATOMIC_RELAXED);
        return;
    }
    lay_out(&arena, job->pass, &scratch);
    do {
        for (size_t index = first; index < last; index++) {
            const Head head = head_of(job->pass, index);
            run(job->pass, &head, &scratch);
        }
    } while (next_share(shares, &first, &last));
    arena_free(&arena);
}

static void attend_share(void *job, Shares *shares) { run_heads(job, shares, attend_head); }

static void attend_share_backward(void *job, Shares *shares) {
    run_heads(job, shares, attend_head_backward);
}

static bool run_pass(const AttentionPass *pass, Task task) {
    Job job = {.pass = pass};
    const size_t n_sentences = (size_t)pass->n_sentences, n_heads = (size_t)pass->n_heads;
    const size_t n_threads = (size_t)pass->n_threads;
    /* Whole sentences where there are many: a row's heads lie side by side, in the same lines of the
       cache */
    const size_t share = n_sentences < 4 * n_threads ? 1 : n_heads;
    run_parallel(task, &job, n_sentences * n_heads, share, n_threads);
    return !job.has_failed;
}

bool tformer_attend(const AttentionPass *pass) { return run_pass(pass, attend_share); }

bool tformer_attend_backward(const AttentionPass *pass) {
    return run_pass(pass, attend_share_backward);
}
