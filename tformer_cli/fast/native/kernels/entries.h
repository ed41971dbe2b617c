/* A store of decoder entries: what is given back is used again, and what is missing is allocated
   many at a time, so that memory grows with the translations and not with their limits. */
#ifndef TFORMER_ENTRIES_H
#define TFORMER_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    size_t entry_size; /* floats of an entry */
    float **free;      /* entries that nobody holds */
    size_t n_free;
    float **slabs;
    size_t n_slabs;
    size_t n_entries; /* of all slabs; so many fit in `free` */
} EntryStore;

/* Makes sure that `n` entries are free; false where there is no memory. */
bool entries_reserve(EntryStore *store, size_t n);

/* Takes an entry that was reserved. */
float *entries_take(EntryStore *store);

void entries_give_back(EntryStore *store, float *const *entries, size_t n);

void entries_free(EntryStore *store);

#endif
