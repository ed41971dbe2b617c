/* What the tiles of all products share: how rows are split into tiles, and what becomes of sums on
   their way to memory. */
#ifndef TFORMER_TILE_H
#define TFORMER_TILE_H

#include "matmul.h"

#if VECTOR_BYTES == 64 || defined(__aarch64__)
#define TALLEST_TILE 14 /* 28 sums, 2 vectors of the panel, 1 of a row: of 32 registers */
#else
#define TALLEST_TILE 6 /* 12 sums, 2 vectors of the panel, 1 of a row: of 16 registers */
#endif

/* Panels of a tile. */
#define MOST_PANELS 2

/* Columns that threads share at least: a tile of one or two rows has that many. */
#define PAIR_COLUMNS ((size_t)(MOST_PANELS * PANEL_COLUMNS))

/* Where the sums of a tile go. */
typedef struct {
    float *result;
    size_t stride;
    size_t n_columns; /* of the panels that are part of the matrix */
    const float *row_scale;
    const float *scale;
    const float *bias;
    const float *residual;
    bool relu;
} Target;

/* The target of the tile whose first row and column these are. */
INLINE Target target_of(const PackedMatrix *matrix, Epilogue epilogue, float *result, size_t stride,
                        size_t row, size_t column, size_t n_columns) {
    return (Target){
        .result = result + row * stride + column,
        .stride = stride,
        .n_columns = n_columns,
        .row_scale = epilogue.row_scale ? epilogue.row_scale + row : NULL,
        .scale = matrix->scale ? matrix->scale + column : NULL,
        .bias = epilogue.bias ? epilogue.bias + column : NULL,
        .residual = epilogue.residual ? epilogue.residual + row * stride + column : NULL,
        .relu = epilogue.relu,
    };
}

INLINE Vector load_first(const float *from, int n) {
    return n == LANES ? load(from) : load_some(from, n, 0.0f);
}

/* Scales, bias, ReLU and residual of the first `n` lanes of a sum. */
INLINE Vector finished(Vector sum, const Target *target, size_t row, size_t column, int n) {
    if (target->row_scale) {
        /* The second multiplication and the addition are one expression, to be fused as torch does */
        const Vector bias = target->bias ? load_first(target->bias + column, n) : (Vector){0};
        sum *= broadcast(target->row_scale[row]);
        sum = sum * load_first(target->scale + column, n) + bias;
    } else if (target->bias) {
        sum += load_first(target->bias + column, n);
    }
    if (target->relu)
        sum = larger(sum, broadcast(0.0f));
    if (target->residual)
        sum += load_first(target->residual + row * target->stride + column, n);
    return sum;
}

/* Finishes the sums (n_rows, n_vectors) of a tile and writes them. */
INLINE void write_tile(const Target *target, const Vector *sums, int n_rows, int n_vectors) {
    for (int row = 0; row < n_rows; row++) {
        float *to = target->result + (size_t)row * target->stride;
        size_t column = 0;
        for (int i = 0; i < n_vectors; i++, column += LANES) {
            const Vector sum = sums[row * n_vectors + i];
            if (column + LANES <= target->n_columns) {
                store(to + column, finished(sum, target, (size_t)row, column, LANES));
            } else if (column < target->n_columns) {
                const int n = (int)(target->n_columns - column);
                store_some(to + column, finished(sum, target, (size_t)row, column, n), n);
            }
        }
    }
}

/* Rows in tiles of nearly one height: 15 rows are 8 and 7, not 14 and 1. */
typedef struct {
    size_t n_tiles, height, n_taller;
} Tiling;

INLINE Tiling tiling_of(size_t n_rows, size_t tallest) {
    const size_t n_tiles = (n_rows + tallest - 1) / tallest;
    return (Tiling){n_tiles, n_rows / n_tiles, n_rows % n_tiles};
}

INLINE size_t height_of(Tiling tiling, size_t index) {
    return tiling.height + (index < tiling.n_taller);
}

/* A table of kernels by their number of rows: `name(N)` of each height that there is. */
#if TALLEST_TILE > 6
#define FOR_EACH_HEIGHT(F)                                                                         \
    F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14)
#else
#define FOR_EACH_HEIGHT(F) F(1) F(2) F(3) F(4) F(5) F(6)
#endif

#endif
