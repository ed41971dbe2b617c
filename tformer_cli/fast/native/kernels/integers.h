/* Sums of products of 8-bit integers, several to a lane, by what the processor has for them.

   A lane of a vector takes GROUP inputs of one row at a time and as many weights of one output:

   GROUP 4   bytes. x86's VNNI instructions want one side without sign: activations have SHIFT
             added, and SHIFT·Σ weights is taken off the sums again.
   GROUP 2   16-bit halves: x86 without VNNI widens the weights as they come. Its products of bytes
             would add pairs in 16 bits, which is too few for 127·255·2. Other processors do the
             same in plain C.

   With TFORMER_PLAIN_GROUP defined as 2 or 4 plain C does either, for tests. */
#ifndef TFORMER_INTEGERS_H
#define TFORMER_INTEGERS_H

#include "vector.h"

#if defined(__x86_64__) && !defined(TFORMER_PLAIN_GROUP)
#if VECTOR_BYTES == 64 && defined(__AVX512VNNI__)
#define BITS 512
#define HAS_VNNI
#define DOT_BYTES _mm512_dpbusd_epi32
#elif VECTOR_BYTES == 32 && defined(__AVXVNNI__)
#define BITS 256
#define HAS_VNNI
#define DOT_BYTES _mm256_dpbusd_avx_epi32
#elif VECTOR_BYTES == 64 && defined(__AVX512BW__)
#define BITS 512
#define HAS_PAIRS
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
#define BITS 256
#define HAS_PAIRS
#elif VECTOR_BYTES == 16
#define BITS 128
#define HAS_PAIRS
#endif
#endif

#ifdef BITS
#include <immintrin.h>
#endif

#if defined(HAS_VNNI)
#define GROUP 4
#elif defined(TFORMER_PLAIN_GROUP)
#define GROUP TFORMER_PLAIN_GROUP
#else
#define GROUP 2
#endif

#if GROUP == 4
#define SHIFT 128
typedef uint8_t Input;
#else
#define SHIFT 0
typedef int16_t Input;
#endif

/* Inputs of LANES activations, as they are stored. */
typedef Input Inputs __attribute__((vector_size(LANES * sizeof(Input))));

/* The same anywhere in memory. */
typedef Input LooseInputs
    __attribute__((vector_size(LANES * sizeof(Input)), aligned(1), may_alias));
typedef int32_t LooseIntVector __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

INLINE IntVector load_ints(const void *from) { return *(const LooseIntVector *)from; }

/* GROUP inputs in every lane. */
INLINE IntVector broadcast_group(const Input *from) {
    int32_t group;
    memcpy(&group, from, sizeof group);
    return group - (IntVector){0};
}

/* GROUP weights of LANES outputs. */
INLINE IntVector load_weights(const int8_t *from) {
#if GROUP == 4
    return load_ints(from);
#elif defined(HAS_PAIRS) && BITS == 512
    return (IntVector)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif defined(HAS_PAIRS) && BITS == 256
    return (IntVector)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
#elif defined(HAS_PAIRS)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)from);
    return (IntVector)_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
#else
    typedef int8_t Bytes __attribute__((vector_size(2 * LANES)));
    typedef int16_t Halves __attribute__((vector_size(4 * LANES)));
    Bytes bytes;
    memcpy(&bytes, from, sizeof bytes);
    return (IntVector)__builtin_convertvector(bytes, Halves);
#endif
}

/* sums + Σ inputs·weights of each lane's group. */
INLINE IntVector add_products(IntVector sums, IntVector inputs, IntVector weights) {
#if defined(HAS_VNNI) && BITS == 512
    return (IntVector)DOT_BYTES((__m512i)sums, (__m512i)inputs, (__m512i)weights);
#elif defined(HAS_VNNI)
    return (IntVector)DOT_BYTES((__m256i)sums, (__m256i)inputs, (__m256i)weights);
#elif defined(HAS_PAIRS) && BITS == 512
    return sums + (IntVector)_mm512_madd_epi16((__m512i)inputs, (__m512i)weights);
#elif defined(HAS_PAIRS) && BITS == 256
    return sums + (IntVector)_mm256_madd_epi16((__m256i)inputs, (__m256i)weights);
#elif defined(HAS_PAIRS)
    return sums + (IntVector)_mm_madd_epi16((__m128i)inputs, (__m128i)weights);
#elif GROUP == 4
    for (int bit = 0; bit < 32; bit += 8)
        sums += (inputs >> bit & 255) * (weights << (24 - bit) >> 24);
    return sums;
#else
    return sums + (inputs << 16 >> 16) * (weights << 16 >> 16) + (inputs >> 16) * (weights >> 16);
#endif
}

#endif
