/* Random numbers that are a function of a seed and of an index, so that whoever asks again is told the
   same. */
#ifndef TFORMER_RANDOM_H
#define TFORMER_RANDOM_H

#include "number.h"

/* Indices that share a run of counters: each 32-bit number decides about two of them. */
#define DRAWN 32

/* A bijection of 32 bits in which every bit of the argument bears on every bit of the result; its
   constants are those of Wellons' search for such functions ("lowbias32", 2018). */
INLINE UnsignedVector mixed(UnsignedVector x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

/* Random bits of the counters; two rounds, so that the sequences of two seeds are not the same one
   in another order. */
INLINE UnsignedVector random_bits(UnsignedVector counters, const uint32_t *seed) {
    return mixed(mixed(counters ^ seed[0]) + seed[1]);
}

/* 16 random bits for each of LANES indices in both halves of a run: those from `run` + `part` on, and
   those from `run` + DRAWN / 2 + `part` on.

   run: a multiple of DRAWN.
   part: a multiple of LANES below DRAWN / 2. */
INLINE void draw(size_t run, size_t part, const uint32_t *seed, UnsignedVector draws[2]) {
    UnsignedVector lanes;
    for (int i = 0; i < LANES; i++)
        lanes[i] = (uint32_t)i;
    const UnsignedVector bits = random_bits(lanes + (uint32_t)(run / 2 + part), seed);
    draws[0] = bits & 0xffff;
    draws[1] = bits >> 16;
}

/* scale · values, and 0 where a draw is below the threshold: dropout. */
INLINE Vector kept(Vector values, UnsignedVector draws, int32_t threshold, float scale) {
    const IntVector is_kept = (IntVector)draws >= threshold;
    return (Vector)(is_kept & (IntVector)(values * broadcast(scale)));
}

#endif
