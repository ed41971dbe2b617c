#include "entries.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a slab, unless more are asked for at once. */
#define SLAB_BYTES ((size_t)1 << 20)

/* Makes room for `n` pointers; the old ones stay if there is none. */
static bool grow(float ***pointers, size_t n) {
    size_t bytes;
    if (__builtin_mul_overflow(n, sizeof **pointers, &bytes))
        return false;
    float **grown = realloc(*pointers, bytes);
    if (!grown)
        return false;
    *pointers = grown;
    return true;
}

static bool add_slab(EntryStore *store, size_t n) {
    size_t bytes;
    /* An entry is empty where no layer has a head; it still is a place. */
    const size_t size = store->entry_size ? store->entry_size : 1;
    if (n < SLAB_BYTES / sizeof(float) / size)
        n = SLAB_BYTES / sizeof(float) / size;
    if (__builtin_mul_overflow(n, size * sizeof(float), &bytes) || bytes > (size_t)-1 - 64)
        return false;
    if (!grow(&store->slabs, store->n_slabs + 1) || !grow(&store->free, store->n_entries + n))
        return false;
    float *slab = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!slab)
        return false;
    store->slabs[store->n_slabs++] = slab;
    store->n_entries += n;
    for (size_t i = n; i > 0; i--) /* so that the first is taken first */
        store->free[store->n_free++] = slab + (i - 1) * size;
    return true;
}

bool entries_reserve(EntryStore *store, size_t n) {
    return store->n_free >= n || add_slab(store, n - store->n_free);
}

float *entries_take(EntryStore *store) { return store->free[--store->n_free]; }

void entries_give_back(EntryStore *store, float *const *entries, size_t n) {
    if (n > 0)
        memcpy(store->free + store->n_free, entries, n * sizeof *entries);
    store->n_free += n;
}

void entries_free(EntryStore *store) {
    for (size_t i = 0; i < store->n_slabs; i++)
        free(store->slabs[i]);
    free(store->slabs);
    free(store->free);
    *store = (EntryStore){0};
}
