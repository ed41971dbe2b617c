/* Vectors of floats as wide as the processor's registers, by the compiler's own vector types. */
#ifndef TFORMER_VECTOR_H
#define TFORMER_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* Floats of a vector. */
#define LANES (VECTOR_BYTES / 4)

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t IntVector __attribute__((vector_size(VECTOR_BYTES)));

/* The same anywhere in memory: what is not at a multiple of its size is read through this type. */
typedef float LooseVector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE Vector load(const float *from) { return *(const LooseVector *)from; }

INLINE void store(float *to, Vector values) { *(LooseVector *)to = values; }

INLINE Vector broadcast(float value) { return value - (Vector){0}; }

/* Lane by lane where `mask` is -1 or 0: a compiler makes one blend of it. */
INLINE Vector choose(IntVector mask, Vector yes, Vector no) {
    return (Vector)((mask & (IntVector)yes) | (~mask & (IntVector)no));
}

INLINE Vector larger(Vector a, Vector b) { return choose(a > b, a, b); }

/* The first `n` floats, and `rest` in the other lanes; nothing behind them is read. */
INLINE Vector load_some(const float *from, int n, float rest) {
    Vector values = broadcast(rest);
    memcpy(&values, from, (size_t)n * sizeof(float));
    return values;
}

INLINE void store_some(float *to, Vector values, int n) {
    memcpy(to, &values, (size_t)n * sizeof(float));
}

/* Lanes of two vectors by their numbers; those of the second go on from LANES. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (IntVector){__VA_ARGS__})
#endif

/* F(lane, argument) of all lanes. */
#define LIST_4(F, at, x) F(at, x), F(at + 1, x), F(at + 2, x), F(at + 3, x)
#if LANES == 16
#define LIST(F, x) LIST_4(F, 0, x), LIST_4(F, 4, x), LIST_4(F, 8, x), LIST_4(F, 12, x)
#elif LANES == 8
#define LIST(F, x) LIST_4(F, 0, x), LIST_4(F, 4, x)
#else
#define LIST(F, x) LIST_4(F, 0, x)
#endif

/* Lanes at a distance change places. */
#define OTHER(lane, distance) ((lane) ^ (distance))

#define FOLD(combine, values, distance)                                                            \
    combine(values, SHUFFLE(values, values, LIST(OTHER, distance)))

INLINE Vector added(Vector a, Vector b) { return a + b; }

/* All lanes combined; the order is fixed, so that bits are. */
#if LANES == 16
#define FOLD_ALL(combine, values)                                                                  \
    values = FOLD(combine, values, 8);                                                             \
    values = FOLD(combine, values, 4);                                                             \
    values = FOLD(combine, values, 2);                                                             \
    values = FOLD(combine, values, 1)
#elif LANES == 8
#define FOLD_ALL(combine, values)                                                                  \
    values = FOLD(combine, values, 4);                                                             \
    values = FOLD(combine, values, 2);                                                             \
    values = FOLD(combine, values, 1)
#else
#define FOLD_ALL(combine, values)                                                                  \
    values = FOLD(combine, values, 2);                                                             \
    values = FOLD(combine, values, 1)
#endif

INLINE float sum_of_lanes(Vector values) {
    FOLD_ALL(added, values);
    return values[0];
}

INLINE float largest_lane(Vector values) {
    FOLD_ALL(larger, values);
    return values[0];
}

/* One step of turning many vectors into one: of two vectors, the first's pairs of lanes at a distance
   are combined where the lane's number does not have the distance's bit, the second's where it has
   it. After all steps lane i holds all lanes of vector i, combined. */
#define STAYING(lane, distance) (((lane) & (distance)) ? LANES + (lane) : (lane))
#define MOVING(lane, distance)                                                                     \
    (((lane) & (distance)) ? LANES + OTHER(lane, distance) : OTHER(lane, distance))
#define MERGE(combine, vectors, distance)                                                          \
    _Pragma("GCC unroll 8") for (int i = 0; i < LANES; i += 2 * (distance)) {                      \
        const Vector first = vectors[i], second = vectors[i + (distance)];                         \
        vectors[i] = combine(SHUFFLE(first, second, LIST(STAYING, distance)),                      \
                             SHUFFLE(first, second, LIST(MOVING, distance)));                      \
    }
#if LANES == 16
#define MERGE_ALL(combine, vectors)                                                                \
    MERGE(combine, vectors, 1) MERGE(combine, vectors, 2) MERGE(combine, vectors, 4)               \
    MERGE(combine, vectors, 8)
#elif LANES == 8
#define MERGE_ALL(combine, vectors)                                                                \
    MERGE(combine, vectors, 1) MERGE(combine, vectors, 2) MERGE(combine, vectors, 4)
#else
#define MERGE_ALL(combine, vectors) MERGE(combine, vectors, 1) MERGE(combine, vectors, 2)
#endif

/* (LANES) sums, or largest lanes, of LANES vectors, which are used up. */
INLINE Vector sums_of_vectors(Vector *vectors) {
    MERGE_ALL(added, vectors)
    return vectors[0];
}

INLINE Vector largest_of_vectors(Vector *vectors) {
    MERGE_ALL(larger, vectors)
    return vectors[0];
}

/* One step of exchanging rows and columns: rows at a distance give each other the lanes in which the
   distance's bit says that they belong there. */
#define OWN_OR_OTHER(lane, distance) (((lane) & (distance)) ? LANES + OTHER(lane, distance) : (lane))
#define OTHER_OR_OWN(lane, distance) (((lane) & (distance)) ? LANES + (lane) : OTHER(lane, distance))
#define EXCHANGE(rows, distance)                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & (distance))) {              \
        const Vector first = rows[i], second = rows[i + (distance)];                               \
        rows[i] = SHUFFLE(first, second, LIST(OWN_OR_OTHER, distance));                            \
        rows[i + (distance)] = SHUFFLE(first, second, LIST(OTHER_OR_OWN, distance));               \
    }

/* Transposes LANES rows of LANES numbers. */
INLINE void transpose(Vector *rows) {
    EXCHANGE(rows, 1)
    EXCHANGE(rows, 2)
#if LANES > 4
    EXCHANGE(rows, 4)
#endif
#if LANES > 8
    EXCHANGE(rows, 8)
#endif
}

/* Transposes a corner of at most LANES rows and columns, which are `stride` and `to_stride` floats
   apart; of each column LANES numbers are written, 0 where there is no row. */
INLINE void transpose_block(const float *from, size_t stride, size_t n_rows, size_t n_columns,
                            float *to, size_t to_stride) {
    Vector rows[LANES];
    if (n_rows >= LANES && n_columns >= LANES) {
#pragma GCC unroll 16
        for (size_t row = 0; row < LANES; row++)
            rows[row] = load(from + row * stride);
    } else {
        const int n = n_columns < LANES ? (int)n_columns : LANES;
#pragma GCC unroll 16
        for (size_t row = 0; row < LANES; row++)
            rows[row] = row < n_rows ? load_some(from + row * stride, n, 0.0f) : (Vector){0};
    }
    transpose(rows);
#pragma GCC unroll 16
    for (size_t column = 0; column < LANES; column++)
        if (column < n_columns)
            store(to + column * to_stride, rows[column]);
}

/* -1 in the first `n` lanes, 0 in the others. */
INLINE IntVector first_lanes(int n) {
    static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    IntVector lanes;
    memcpy(&lanes, numbers, sizeof lanes);
    return lanes < n;
}

/* Adds `n` floats to as many others. */
INLINE void add_floats(float *restrict to, const float *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

INLINE size_t smaller_of(size_t a, size_t b) { return a < b ? a : b; }

INLINE size_t larger_of(size_t a, size_t b) { return a > b ? a : b; }

/* `n` rounded up to whole vectors. */
INLINE size_t whole_vectors(size_t n) { return (n + LANES - 1) / LANES * LANES; }

#endif
