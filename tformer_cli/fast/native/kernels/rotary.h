/* Rotary positions (Su et al. 2021, section 3.2): numbers i and i + E/2 of a head turn by an angle. */
#ifndef TFORMER_ROTARY_H
#define TFORMER_ROTARY_H

#include <stddef.h>

#include "vector.h"

/* Turns a head (E) by the angles of its position, whose E/2 cosines and then sines are in `turn`;
   `direction` is 1, or -1 to turn it back. */
INLINE void turn_head(const float *turn, size_t width, float direction, float *head) {
    const size_t half = width / 2;
    for (size_t i = 0; i < half; i++) {
        const float first = head[i], second = head[half + i], sine = direction * turn[half + i];
        head[i] = first * turn[i] - second * sine;
        head[half + i] = second * turn[i] + first * sine;
    }
}

#endif
