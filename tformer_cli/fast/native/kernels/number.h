/* Numbers as torch keeps them, float32 or bfloat16; computed with they are always float32. */
#ifndef TFORMER_NUMBER_H
#define TFORMER_NUMBER_H

#include <stdbool.h>

#include "vector.h"

typedef enum { FLOAT32 = 0, BFLOAT16 = 1 } NumberKind;

/* Half as wide as a vector: its numbers in 16 bits, anywhere in memory. */
typedef uint16_t ShortVector __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
typedef uint32_t UnsignedVector __attribute__((vector_size(VECTOR_BYTES)));

/* Where the number at an index lies. */
INLINE const void *number_at(const void *numbers, size_t index, NumberKind kind) {
    return (const char *)numbers + index * (kind == BFLOAT16 ? 2 : 4);
}

INLINE Vector load_numbers(const void *from, NumberKind kind) {
    if (kind == FLOAT32)
        return load(from);
    const ShortVector high = *(const ShortVector *)from;
    return (Vector)(__builtin_convertvector(high, UnsignedVector) << 16);
}

/* Rounds to the nearest, of two equally near ones to the even one; NaN stays NaN. */
INLINE void store_numbers(void *to, Vector values, NumberKind kind) {
    if (kind == FLOAT32) {
        store(to, values);
        return;
    }
    const UnsignedVector bits = (UnsignedVector)values;
    const UnsignedVector rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const UnsignedVector is_nan = (UnsignedVector)(values != values);
    const UnsignedVector high = (rounded & ~is_nan) | (is_nan & 0x7fc0);
    *(ShortVector *)to = __builtin_convertvector(high, ShortVector);
}

/* The first `n`; 0 in the other lanes. */
INLINE Vector load_some_numbers(const void *from, int n, NumberKind kind) {
    _Alignas(VECTOR_BYTES) char room[VECTOR_BYTES] = {0};
    memcpy(room, from, (size_t)n * (kind == BFLOAT16 ? 2 : 4));
    return load_numbers(room, kind);
}

INLINE void store_some_numbers(void *to, Vector values, int n, NumberKind kind) {
    _Alignas(VECTOR_BYTES) char room[VECTOR_BYTES];
    store_numbers(room, values, kind);
    memcpy(to, room, (size_t)n * (kind == BFLOAT16 ? 2 : 4));
}

/* All lanes, or where fewer are left the first `n`, and 0 in the others. */
INLINE Vector load_up_to(const void *from, size_t n, NumberKind kind) {
    return n >= LANES ? load_numbers(from, kind) : load_some_numbers(from, (int)n, kind);
}

INLINE void store_up_to(void *to, Vector values, size_t n, NumberKind kind) {
    if (n >= LANES)
        store_numbers(to, values, kind);
    else
        store_some_numbers(to, values, (int)n, kind);
}

#endif
