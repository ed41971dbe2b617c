#include "dropout.h"

#include "parallel.h"
#include "random.h"

/* Values of a thread's share. */
#define SHARE ((size_t)1 << 15)

/* Writes the result of the LANES values from `index` on, or of the first `n`. The kinds are
   constants wherever this is inlined. */
INLINE void drop_vector(const Dropout *dropout, size_t index, int n, UnsignedVector draws,
                        NumberKind values_kind, NumberKind result_kind) {
    const void *from = number_at(dropout->values, index, values_kind);
    void *to = (void *)number_at(dropout->result, index, result_kind);
    if (n == LANES) {
        Vector values = kept(load_numbers(from, values_kind), draws, dropout->threshold, dropout->scale);
        if (dropout->residual)
            values += load(dropout->residual + index);
        store_numbers(to, values, result_kind);
    } else {
        Vector values = kept(load_some_numbers(from, n, values_kind), draws, dropout->threshold, dropout->scale);
        if (dropout->residual)
            values += load_some(dropout->residual + index, n, 0.0f);
        store_some_numbers(to, values, n, result_kind);
    }
}

INLINE void drop_range(const Dropout *dropout, size_t first, size_t last, NumberKind values_kind,
                       NumberKind result_kind) {
    for (size_t block = first; block < last; block += DRAWN)
        for (size_t part = 0; part < DRAWN / 2; part += LANES) {
            UnsignedVector draws[2];
            draw(block, part, dropout->seed, draws);
            for (size_t half = 0; half < 2; half++) {
                const size_t index = block + half * (DRAWN / 2) + part;
                if (index + LANES <= last)
                    drop_vector(dropout, index, LANES, draws[half], values_kind, result_kind);
                else if (index < last)
                    drop_vector(dropout, index, (int)(last - index), draws[half], values_kind,
                                result_kind);
            }
        }
}

static void drop(void *job, Shares *shares) {
    const Dropout *dropout = job;
    const bool is_low = dropout->values_kind == BFLOAT16;
    size_t first, last;
    while (next_share(shares, &first, &last))
        if (dropout->result_kind == BFLOAT16) {
            if (is_low)
                drop_range(dropout, first, last, BFLOAT16, BFLOAT16);
            else
                drop_range(dropout, first, last, FLOAT32, BFLOAT16);
        } else if (is_low) {
            drop_range(dropout, first, last, BFLOAT16, FLOAT32);
        } else {
            drop_range(dropout, first, last, FLOAT32, FLOAT32);
        }
}

void tformer_dropout(const Dropout *dropout) {
    Dropout job = *dropout;
    run_parallel(drop, &job, (size_t)job.n_values, SHARE, (size_t)job.n_threads);
}
