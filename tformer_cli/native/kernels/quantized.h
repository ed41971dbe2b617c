/* Products with matrices in 8-bit integers: X·Wᵀ + b where W[n] = scale[n]·W̃[n] and each row of X
   is rounded to integers as it comes, x ≈ r·x̃ with r = max|x| / 127:

       x·W[n] + b[n] ≈ b[n] + ((x̃·W̃[n])·r)·scale[n]

   The sums of x̃·W̃ are integers and exact, so they do not depend on how they are added up, and with
   the rest in this order each result has the bits of `model/quantized.py`. Weights and activations
   are integers from -127 to 127. */
#ifndef TFORMER_QUANTIZED_H
#define TFORMER_QUANTIZED_H

#include "arena.h"
#include "matmul.h"

/* Rows that are in integers at a time. */
#define QUANTIZED_ROWS ((size_t)112)

/* Rows of activations in integers. */
typedef struct {
    float *integers; /* (QUANTIZED_ROWS, K) in rows as far apart as the row stride of K */
    float *scale;    /* (QUANTIZED_ROWS) what each row is multiplied by */
} QuantizedRows;

/* Takes room for `n_rows` rows, or QUANTIZED_ROWS if these are fewer, of at most `widest`
   activations. */
void lay_out_quantized_rows(Arena *arena, size_t n_rows, size_t widest, QuantizedRows *rows);

/* Writes W̃ (n_outputs, n_inputs) in panels, as many floats as `packed_size` says. */
void pack_integers(const int8_t *matrix, size_t n_outputs, size_t n_inputs, float *panels);

/* Rounds at most QUANTIZED_ROWS rows of x (n_rows, width), `stride` floats apart, half to even. The
   scale of a row that is not all numbers is none. */
void quantize_rows(const float *x, size_t stride, size_t n_rows, size_t width, QuantizedRows *rows);

/* Multiplies quantized rows by a matrix in integers. */
void multiply_quantized(const PackedMatrix *matrix, const QuantizedRows *rows, size_t n_rows,
                        Epilogue epilogue, float *result, size_t stride);

/* `multiply` by a matrix of either kind; `room` is used if it is in integers. */
void multiply_any(const PackedMatrix *matrix, const float *x, size_t x_stride, size_t n_rows,
                  Epilogue epilogue, float *result, size_t stride, QuantizedRows *room);

#endif
