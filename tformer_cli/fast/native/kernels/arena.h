/* Memory for one piece of work: many arrays in one block, freed together. */
#ifndef TFORMER_ARENA_H
#define TFORMER_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* An arena is laid out twice by the same function: first without memory, which only adds up sizes,
   then, after `arena_allocate`, with it. Sums and products that leave size_t are noticed. */
typedef struct {
    char *memory; /* NULL while sizes are added up */
    size_t used;
    bool is_too_large;
} Arena;

/* Takes `count` elements of `size` bytes, at a multiple of 64 bytes; NULL without memory. */
void *arena_take(Arena *arena, size_t count, size_t size);

/* The product, or the largest number where it is beyond it. */
size_t saturated_product(size_t a, size_t b);

/* Gives the arena the memory that it has added up; false where there is none. */
bool arena_allocate(Arena *arena);

void arena_free(Arena *arena);

#endif
