/* Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1). Queries come already divided
   by √E: the factor is part of the packed weights of their projection. */
#ifndef TFORMER_ATTENTION_H
#define TFORMER_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

/* Keys and values of one sentence's positions in the order in which `attend` reads them: for each
   head the keys as the panels of a (S, E) matrix, then the values as those of an (E, S) matrix. */
typedef struct {
    size_t n_positions; /* S */
    size_t n_heads;     /* G, of keys */
    size_t group_size;  /* H / G, heads of queries that share one of keys (Ainslie et al. 2023) */
    size_t head_width;  /* E */
    float *panels;      /* `memory_size` floats */
} Memory;

/* Floats that the keys and values of a sentence take. */
size_t memory_size(size_t n_positions, size_t n_heads, size_t head_width);

/* Packs keys and values, (S, G·E) each, whose rows are `stride` floats apart. */
void pack_memory(const Memory *memory, const float *keys, const float *values, size_t stride);

/* Queries that `attend` takes at a time: tiles of 14, 7 or 2 rows fill it. */
#define QUERY_BLOCK 56

/* Sums of attention weights that somebody listens to. */
typedef struct {
    const uint8_t *heads; /* (H) whether a head's weights are added; NULL: nobody listens */
    float *sums;          /* (Q, S) in rows `stride` floats apart */
    size_t stride;
} Heard;

/* Attends from queries (Q, H·E) to all positions of a memory.

   scores: room for min(Q, QUERY_BLOCK) rows as far apart as the row stride of S. context: (Q, H·E) the weighted values. */
void attend(const Memory *memory, const float *queries, size_t query_stride, size_t n_queries,
            float *scores, float *context, size_t context_stride, Heard heard);

/* Attends from one query (H·E) to the positions before it and its own, each of which lies by
   itself: entries[t] + offset is where the keys (G·E) of position t begin, and the values (G·E)
   follow them; H = G·group_size.

   scores: room for H rows of n_positions floats, rounded up to whole vectors. context: (H·E). */
void attend_to_past(const float *const *entries, size_t offset, size_t n_positions, size_t n_heads,
                    size_t group_size, size_t head_width, const float *query, float *scores,
                    float *context);

#endif
