/* The product's inner loops: a tile of rows by one panel of columns, held in registers.

   A tile of M rows keeps 2·M sums. At each k it reads the panel's two vectors and one float of each
   row, and makes 2·M multiplications and additions. The tallest tile that the registers hold reads
   least; each height has its own code, so that all sums stay in registers. Panels are the outer
   loop: one panel stays in the nearest cache while all rows pass. */
#include "matmul.h"

#if VECTOR_BYTES == 64 || defined(__aarch64__)
#define TALLEST_TILE 14 /* 28 sums, 2 vectors of the panel, 1 of a row: of 32 registers */
#else
#define TALLEST_TILE 6 /* 12 sums, 2 vectors of the panel, 1 of a row: of 16 registers */
#endif

/* Panels of a tile. */
#define MOST_PANELS 2
#define MOST_COLUMNS (MOST_PANELS * PANEL_COLUMNS)

/* So many inputs ahead the panel is fetched. */
#define AHEAD 32

/* Inputs of a block of rows that stays in the second cache while the panels pass, in floats. */
#define ROW_BLOCK_FLOATS ((size_t)96 * 1024)

size_t row_stride(size_t width) {
    const size_t line = 64 / sizeof(float);
    return ((width + line - 1) / line | 1) * line;
}

size_t packed_size(size_t n_outputs, size_t n_inputs) {
    return (n_outputs + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS * n_inputs;
}

void pack_matrix(const float *matrix, size_t n_outputs, size_t n_inputs, size_t stride,
                 float *panels) {
    for (size_t first = 0; first < n_outputs; first += PANEL_COLUMNS) {
        size_t n_left = n_outputs - first;
        for (size_t k = 0; k < n_inputs; k++)
            for (size_t column = 0; column < PANEL_COLUMNS; column++)
                *panels++ = column < n_left ? matrix[(first + column) * stride + k] : 0.0f;
    }
}

void pack_transposed(const float *matrix, size_t n_outputs, size_t n_inputs, size_t stride,
                     float *panels) {
    for (size_t first = 0; first < n_outputs; first += PANEL_COLUMNS) {
        const size_t n_left = n_outputs - first;
        const size_t n = n_left < PANEL_COLUMNS ? n_left : PANEL_COLUMNS;
        for (size_t k = 0; k < n_inputs; k++, panels += PANEL_COLUMNS) {
            memcpy(panels, matrix + k * stride + first, n * sizeof(float));
            memset(panels + n, 0, (PANEL_COLUMNS - n) * sizeof(float));
        }
    }
}

/* Products of so many pairs of integers add up exactly in float32: 1024·127² < 2²⁴. */
#define EXACT_INPUTS ((size_t)1024)

/* What one call of a tile needs. */
typedef struct {
    const float *x;
    size_t x_stride;
    size_t n_inputs;
    const float *panel;
    size_t panel_size; /* floats from one panel to the next */
    float *result;
    size_t stride;
    size_t n_columns; /* of the panels that are part of the matrix */
    const float *before; /* (rows, MOST_COLUMNS) sums of the inputs before these, or NULL */
    const float *row_scale;
    const float *scale;
    const float *bias;
    const float *residual;
    bool relu;
} Tile;

INLINE Vector load_first(const float *from, int n) {
    return n == LANES ? load(from) : load_some(from, n, 0.0f);
}

/* Earlier sums, scales, bias, ReLU and residual of the first `n` lanes of a sum. */
INLINE Vector finished(Vector sum, const Tile *tile, size_t row, size_t column, int n) {
    if (tile->before)
        sum += load_first(tile->before + row * MOST_COLUMNS + column, n);
    if (tile->row_scale) {
        /* The second multiplication and the addition are one expression, to be fused as torch does */
        const Vector bias = tile->bias ? load_first(tile->bias + column, n) : (Vector){0};
        sum *= broadcast(tile->row_scale[row]);
        sum = sum * load_first(tile->scale + column, n) + bias;
    } else if (tile->bias) {
        sum += load_first(tile->bias + column, n);
    }
    if (tile->relu)
        sum = larger(sum, broadcast(0.0f));
    if (tile->residual) {
        sum += load_first(tile->residual + row * tile->stride + column, n);
    }
    return sum;
}

/* Finishes the sums (n_rows, n_vectors) of a tile and writes them. */
static void write_tile(const Tile *tile, const Vector *sums, int n_rows, int n_vectors) {
    for (int row = 0; row < n_rows; row++) {
        float *to = tile->result + (size_t)row * tile->stride;
        size_t column = 0;
        for (int i = 0; i < n_vectors; i++, column += LANES) {
            const Vector sum = sums[row * n_vectors + i];
            if (column + LANES <= tile->n_columns) {
                store(to + column, finished(sum, tile, (size_t)row, column, LANES));
            } else if (column < tile->n_columns) {
                const int n = (int)(tile->n_columns - column);
                store_some(to + column, finished(sum, tile, (size_t)row, column, n), n);
            }
        }
    }
}

/* `n_rows` and `n_panels` are constants wherever this is inlined, so that the loops over them
   disappear. */
INLINE void multiply_tile(const Tile *tile, const int n_rows, const int n_panels) {
    const float *x = tile->x, *panel = tile->panel;
    const size_t x_stride = tile->x_stride, n_inputs = tile->n_inputs;
    const int n_vectors = 2 * n_panels;
    Vector sums[TALLEST_TILE][2 * MOST_PANELS];
#pragma GCC unroll 16
    for (int row = 0; row < n_rows; row++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++)
            sums[row][i] = (Vector){0};
    for (size_t k = 0; k < n_inputs; k++, panel += PANEL_COLUMNS) {
        Vector weights[2 * MOST_PANELS];
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++) {
            const float *from = panel + (size_t)(i / 2) * tile->panel_size + i % 2 * LANES;
            weights[i] = load(from);
            __builtin_prefetch(from + AHEAD * PANEL_COLUMNS);
        }
#pragma GCC unroll 16
        for (int row = 0; row < n_rows; row++) {
            const Vector input = broadcast(x[(size_t)row * x_stride + k]);
#pragma GCC unroll 4
            for (int i = 0; i < n_vectors; i++)
                sums[row][i] += input * weights[i];
        }
    }
    /* Another array: one that is indexed by a variable would be kept in memory all along. */
    Vector written[TALLEST_TILE * 2 * MOST_PANELS];
#pragma GCC unroll 16
    for (int row = 0; row < n_rows; row++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++)
            written[row * n_vectors + i] = sums[row][i];
    write_tile(tile, written, n_rows, n_vectors);
}

#define TILE_OF(N)                                                                                 \
    static void multiply_tile_##N(const Tile *tile) { multiply_tile(tile, N, 1); }

/* One and two rows alone would wait for each sum before the next addition to it: they take two
   panels at a time. */
static void multiply_wide_tile_1(const Tile *tile) { multiply_tile(tile, 1, 2); }
static void multiply_wide_tile_2(const Tile *tile) { multiply_tile(tile, 2, 2); }

TILE_OF(1)
TILE_OF(2)
TILE_OF(3)
TILE_OF(4)
TILE_OF(5)
TILE_OF(6)
#if TALLEST_TILE > 6
TILE_OF(7)
TILE_OF(8)
TILE_OF(9)
TILE_OF(10)
TILE_OF(11)
TILE_OF(12)
TILE_OF(13)
TILE_OF(14)
#endif

static void (*const tiles[])(const Tile *) = {
    NULL,
    multiply_tile_1,
    multiply_tile_2,
    multiply_tile_3,
    multiply_tile_4,
    multiply_tile_5,
    multiply_tile_6,
#if TALLEST_TILE > 6
    multiply_tile_7,
    multiply_tile_8,
    multiply_tile_9,
    multiply_tile_10,
    multiply_tile_11,
    multiply_tile_12,
    multiply_tile_13,
    multiply_tile_14,
#endif
};

/* A tile of integers whose sums are exact in parts only: these are summed apart, and then added. */
static void multiply_long_tile(const Tile *whole, void (*kernel)(const Tile *)) {
    float sums[TALLEST_TILE * MOST_COLUMNS];
    Tile part = {
        .x_stride = whole->x_stride,
        .n_inputs = EXACT_INPUTS,
        .panel_size = whole->panel_size,
        .result = sums,
        .stride = MOST_COLUMNS,
        .n_columns = whole->n_columns,
    };
    size_t k = 0;
    for (; whole->n_inputs - k > EXACT_INPUTS; k += EXACT_INPUTS) {
        part.x = whole->x + k;
        part.panel = whole->panel + k * PANEL_COLUMNS;
        kernel(&part);
        part.before = sums;
    }
    Tile last = *whole;
    last.x += k;
    last.n_inputs -= k;
    last.panel += k * PANEL_COLUMNS;
    last.before = sums;
    kernel(&last);
}

static void multiply_rows(const PackedMatrix *matrix, const float *x, size_t x_stride,
                          size_t n_rows, Epilogue epilogue, float *result, size_t stride) {
    const size_t n_inputs = matrix->n_inputs, n_outputs = matrix->n_outputs;
    /* Tiles of nearly one height: 15 rows are 8 and 7, not 14 and 1. */
    const size_t n_tiles = (n_rows + TALLEST_TILE - 1) / TALLEST_TILE;
    const size_t height = n_rows / n_tiles, n_taller = n_rows % n_tiles;
    size_t width;
    for (size_t first = 0; first < n_outputs; first += width) {
        const size_t n_left = n_outputs - first;
        const bool is_wide = n_rows <= 2 && n_left > PANEL_COLUMNS;
        width = is_wide ? 2 * PANEL_COLUMNS : PANEL_COLUMNS;
        size_t row = 0;
        for (size_t index = 0; index < n_tiles; index++) {
            const size_t n = height + (index < n_taller);
            const Tile tile = {
                .x = x + row * x_stride,
                .x_stride = x_stride,
                .n_inputs = n_inputs,
                .panel = matrix->panels + first * n_inputs,
                .panel_size = n_inputs * PANEL_COLUMNS,
                .result = result + row * stride + first,
                .stride = stride,
                .n_columns = n_left < width ? n_left : width,
                .row_scale = epilogue.row_scale ? epilogue.row_scale + row : NULL,
                .scale = matrix->scale ? matrix->scale + first : NULL,
                .bias = epilogue.bias ? epilogue.bias + first : NULL,
                .residual = epilogue.residual ? epilogue.residual + row * stride + first : NULL,
                .relu = epilogue.relu,
            };
            void (*const kernel)(const Tile *) =
                !is_wide ? tiles[n] : n == 1 ? multiply_wide_tile_1 : multiply_wide_tile_2;
            if (matrix->scale && n_inputs > EXACT_INPUTS)
                multiply_long_tile(&tile, kernel);
            else
                kernel(&tile);
            row += n;
        }
    }
}

void multiply(const PackedMatrix *matrix, const float *x, size_t x_stride, size_t n_rows,
              Epilogue epilogue, float *result, size_t stride) {
    size_t block = ROW_BLOCK_FLOATS / (matrix->n_inputs + 1) / TALLEST_TILE * TALLEST_TILE;
    if (block < TALLEST_TILE)
        block = TALLEST_TILE;
    for (size_t row = 0; row < n_rows; row += block) {
        const size_t n = n_rows - row < block ? n_rows - row : block;
        Epilogue part = epilogue;
        if (part.row_scale)
            part.row_scale += row;
        if (part.residual)
            part.residual += row * stride;
        multiply_rows(matrix, x + row * x_stride, x_stride, n, part, result + row * stride, stride);
    }
}
