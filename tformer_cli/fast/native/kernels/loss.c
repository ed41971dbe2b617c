#include "loss.h"

#include <math.h>
#include <stdlib.h>

#include "exponential.h"
#include "parallel.h"

typedef struct {
    const RowLoss *loss;
    bool has_failed;
} Job;

INLINE Vector load_with_rest(const void *from, size_t n, NumberKind kind, float rest) {
    if (n >= LANES)
        return load_numbers(from, kind);
    return choose(first_lanes((int)n), load_some_numbers(from, (int)n, kind), broadcast(rest));
}

/* One row; `scratch` holds V floats, rounded up to whole vectors. */
INLINE void loss_of_row(const RowLoss *loss, size_t row, float *scratch, NumberKind kind) {
    const size_t n = (size_t)loss->vocab_size;
    void *logits = (void *)number_at(loss->logits, row * n, kind);
    if (loss->targets[row] < 0) {
        loss->normalizer[row] = loss->right[row] = 0.0f;
        if (loss->writes_gradient)
            memset(logits, 0, n * (kind == BFLOAT16 ? 2 : 4));
        return;
    }
    const size_t target = (size_t)loss->targets[row];
    Vector most = broadcast(-INFINITY);
    for (size_t i = 0; i < n; i += LANES)
        most = larger(load_with_rest(number_at(logits, i, kind), n - i, kind, -INFINITY), most);
    const float largest = largest_lane(most);
    Vector sum = {0};
    for (size_t i = 0; i < n; i += LANES) {
        const Vector logit = load_with_rest(number_at(logits, i, kind), n - i, kind, -INFINITY);
        Vector weight = exponential(logit - broadcast(largest));
        if (n - i < LANES)
            weight = choose(first_lanes((int)(n - i)), weight, broadcast(0.0f));
        sum += weight;
        store(scratch + i, weight);
    }
    const float total = sum_of_lanes(sum);
    loss->normalizer[row] = largest + logf(total);
    loss->right[row] = load_some_numbers(number_at(logits, target, kind), 1, kind)[0];
    if (!loss->writes_gradient)
        return;
    const Vector factor = broadcast(1.0f / total);
    scratch[target] -= loss->target_weight * total;
    for (size_t i = 0; i < n; i += LANES) {
        void *to = (void *)number_at(logits, i, kind);
        const Vector gradient = load(scratch + i) * factor;
        if (n - i >= LANES)
            store_numbers(to, gradient, kind);
        else
            store_some_numbers(to, gradient, (int)(n - i), kind);
    }
}

static void loss_of_rows(void *argument, Shares *shares) {
    Job *job = argument;
    const RowLoss *loss = job->loss;
    size_t first, last;
    if (!next_share(shares, &first, &last))
        return;
    float *scratch = malloc(whole_vectors((size_t)loss->vocab_size) * sizeof(float));
    if (!scratch) {
        __atomic_store_n(&job->has_failed, true, __ATOMIC_RELAXED);
        return;
    }
    do {
        for (size_t row = first; row < last; row++)
            if (loss->kind == BFLOAT16)
                loss_of_row(loss, row, scratch, BFLOAT16);
            else
                loss_of_row(loss, row, scratch, FLOAT32);
    } while (next_share(shares, &first, &last));
    free(scratch);
}

bool tformer_loss(const RowLoss *loss) {
    Job job = {.loss = loss};
    run_parallel(loss_of_rows, &job, (size_t)loss->n_rows, 8, (size_t)loss->n_threads);
    return !job.has_failed;
}
