/* Vectors of floats as wide as the processor's registers, by the compiler's own vector types. */
#ifndef TFORMER_VECTOR_H
#define TFORMER_VECTOR_H

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

/* Sum of all lanes, halves first: the order is fixed, so that bits are. */
INLINE float sum_of_lanes(Vector values) {
    float lanes[LANES];
    memcpy(lanes, &values, sizeof lanes);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

INLINE float largest_lane(Vector values) {
    float lanes[LANES];
    memcpy(lanes, &values, sizeof lanes);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return lanes[0];
}

#endif
