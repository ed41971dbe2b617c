/* A thread takes a sentence, and goes through its heads one by one: all that belongs to a head fits
   in the nearest caches. Products are those of matmul.h; what they multiply by is packed first. */
#include "attention_training.h"

#include <math.h>

#include "arena.h"
#include "exponential.h"
#include "matmul.h"
#include "parallel.h"

static const Epilogue NOTHING = {0};

int64_t tformer_weights_stride(int64_t n_keys) { return (int64_t)whole_vectors((size_t)n_keys); }

typedef struct {
    const AttentionPass *pass;
    bool has_failed;
} Job;

/* Room for what one thread computes, as much as its longest sentence needs. Rows of heads are E
   floats apart, rows of scores whole vectors. */
typedef struct {
    float *query, *key, *value, *context; /* (Q or K, E) of one head */
    float *gradient;                      /* (Q, K) gradient of the weights, then of the scores */
    float *transposed;                    /* (K, Q) weights, or their gradient, transposed */
    float *panels;
} Scratch;

/* One sentence's part of everything. */
typedef struct {
    size_t first_query, n_queries, first_key, n_keys;
    size_t stride; /* of rows of scores */
    float *weights;
} Sentence;

static Sentence sentence_of(const AttentionPass *pass, size_t index) {
    const int64_t *queries = pass->query_starts + index, *keys = pass->key_starts + index;
    return (Sentence){
        .first_query = (size_t)queries[0],
        .n_queries = (size_t)(queries[1] - queries[0]),
        .first_key = (size_t)keys[0],
        .n_keys = (size_t)(keys[1] - keys[0]),
        .stride = whole_vectors((size_t)(keys[1] - keys[0])),
        .weights = pass->weights + pass->weight_starts[index],
    };
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

/* (n_rows, E)·matrixᵀ, for a matrix (N, E) of a head; the result's rows are whole vectors. */
static void multiply_by_rows(const float *x, size_t n_rows, const float *matrix, size_t n_outputs,
                             size_t width, float *panels, float *result) {
    const size_t stride = whole_vectors(n_outputs);
    pack_matrix(matrix, n_outputs, width, width, panels);
    const PackedMatrix packed = {.n_inputs = width, .n_outputs = stride, .panels = panels};
    multiply(&packed, x, width, n_rows, NOTHING, result, stride);
}

/* (n_rows, n)·matrix, for a matrix (n, E) of a head. */
static void multiply_by_columns(const float *x, size_t x_stride, size_t n_rows, const float *matrix,
                                size_t n, size_t width, float *panels, float *result) {
    pack_transposed(matrix, width, n, width, panels);
    const PackedMatrix packed = {.n_inputs = n, .n_outputs = width, .panels = panels};
    multiply(&packed, x, x_stride, n_rows, NOTHING, result, width);
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

static void attend_sentence(const AttentionPass *pass, const Sentence *sentence,
                            const Scratch *scratch) {
    const size_t n_queries = sentence->n_queries, n_keys = sentence->n_keys;
    const size_t width = (size_t)pass->head_width, stride = sentence->stride;
    const size_t first_query = sentence->first_query, first_key = sentence->first_key;
    const NumberKind kind = (NumberKind)pass->kind;
    const float factor = 1.0f / sqrtf((float)width);
    float *weights = sentence->weights;
    for (size_t head = 0; head < (size_t)pass->n_heads; head++, weights += n_queries * stride) {
        read_head(&pass->query, first_query, head, n_queries, width, factor, kind, scratch->query);
        read_head(&pass->key, first_key, head, n_keys, width, 1.0f, kind, scratch->key);
        read_head(&pass->value, first_key, head, n_keys, width, 1.0f, kind, scratch->value);
        multiply_by_rows(scratch->query, n_queries, scratch->key, n_keys, width, scratch->panels,
                         weights);
        for (size_t row = 0; row < n_queries; row++)
            masked_softmax(weights + row * stride, pass->is_causal ? row + 1 : n_keys, stride);
        multiply_by_columns(weights, stride, n_queries, scratch->value, n_keys, width,
                            scratch->panels, scratch->context);
        write_head(&pass->context, first_query, head, n_queries, width, 1.0f, kind,
                   scratch->context);
    }
}

static void attend_sentence_backward(const AttentionPass *pass, const Sentence *sentence,
                                     const Scratch *scratch) {
    const size_t n_queries = sentence->n_queries, n_keys = sentence->n_keys;
    const size_t width = (size_t)pass->head_width, stride = sentence->stride;
    const size_t first_query = sentence->first_query, first_key = sentence->first_key;
    const size_t transposed_stride = whole_vectors(n_queries);
    const NumberKind kind = (NumberKind)pass->kind;
    const float factor = 1.0f / sqrtf((float)width);
    const float *weights = sentence->weights;
    for (size_t head = 0; head < (size_t)pass->n_heads; head++, weights += n_queries * stride) {
        read_head(&pass->context, first_query, head, n_queries, width, 1.0f, kind,
                  scratch->context);
        transpose_matrix(weights, stride, n_queries, n_keys, scratch->transposed);
        multiply_by_columns(scratch->transposed, transposed_stride, n_keys, scratch->context,
                            n_queries, width, scratch->panels, scratch->key);
        write_head(&pass->value_gradient, first_key, head, n_keys, width, 1.0f, kind, scratch->key);

        read_head(&pass->value, first_key, head, n_keys, width, 1.0f, kind, scratch->value);
        multiply_by_rows(scratch->context, n_queries, scratch->value, n_keys, width,
                         scratch->panels, scratch->gradient);
        for (size_t row = 0; row < n_queries; row++)
            gradient_of_scores(weights + row * stride, stride, scratch->gradient + row * stride);

        read_head(&pass->key, first_key, head, n_keys, width, 1.0f, kind, scratch->key);
        multiply_by_columns(scratch->gradient, stride, n_queries, scratch->key, n_keys, width,
                            scratch->panels, scratch->context);
        write_head(&pass->query_gradient, first_query, head, n_queries, width, factor, kind,
                   scratch->context);

        read_head(&pass->query, first_query, head, n_queries, width, factor, kind, scratch->query);
        transpose_matrix(scratch->gradient, stride, n_queries, n_keys, scratch->transposed);
        multiply_by_columns(scratch->transposed, transposed_stride, n_keys, scratch->query,
                            n_queries, width, scratch->panels, scratch->key);
        write_head(&pass->key_gradient, first_key, head, n_keys, width, 1.0f, kind, scratch->key);
    }
}

static void run_sentences(Job *job, Shares *shares,
                          void (*run)(const AttentionPass *, const Sentence *, const Scratch *)) {
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
            const Sentence sentence = sentence_of(job->pass, index);
            run(job->pass, &sentence, &scratch);
        }
    } while (next_share(shares, &first, &last));
    arena_free(&arena);
}

static void attend_share(void *job, Shares *shares) { run_sentences(job, shares, attend_sentence); }

static void attend_share_backward(void *job, Shares *shares) {
    run_sentences(job, shares, attend_sentence_backward);
}

static bool run_pass(const AttentionPass *pass, Task task) {
    Job job = {.pass = pass};
    run_parallel(task, &job, (size_t)pass->n_sentences, 1, (size_t)pass->n_threads);
    return !job.has_failed;
}

bool tformer_attend(const AttentionPass *pass) { return run_pass(pass, attend_share); }

bool tformer_attend_backward(const AttentionPass *pass) {
    return run_pass(pass, attend_share_backward);
}
