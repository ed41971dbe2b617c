/* The product's inner loops: a tile of rows by one panel of columns, held in registers.

   A tile of M rows keeps 2·M sums. At each k it reads the panel's two vectors and one float of each
   row, and makes 2·M multiplications and additions. The tallest tile that the registers hold reads
   least; each height has its own code, so that all sums stay in registers. Panels are the outer
   loop: one panel stays in the nearest cache while all rows pass. */
#include "parallel.h"
#include "tile.h"

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
    for (size_t first = 0; first < n_outputs; first += LANES)
        for (size_t k = 0; k < n_inputs; k += LANES)
            transpose_block(matrix + first * stride + k, stride, n_outputs - first, n_inputs - k,
                            panels + first / PANEL_COLUMNS * PANEL_COLUMNS * n_inputs +
                                k * PANEL_COLUMNS + first % PANEL_COLUMNS,
                            PANEL_COLUMNS);
    if ((n_outputs + LANES - 1) / LANES % 2) { /* the last panel's second half is empty */
        float *half = panels + n_outputs / PANEL_COLUMNS * PANEL_COLUMNS * n_inputs + LANES;
        for (size_t k = 0; k < n_inputs; k++)
            store(half + k * PANEL_COLUMNS, (Vector){0});
    }
}

void pack_transposed(const float *matrix, size_t n_outputs, size_t n_inputs, size_t stride,
                     float *panels) {
    for (size_t first = 0; first < n_outputs; first += PANEL_COLUMNS) {
        const size_t n_left = n_outputs - first;
        for (size_t k = 0; k < n_inputs; k++, panels += PANEL_COLUMNS) {
            const float *from = matrix + k * stride + first;
            if (n_left >= PANEL_COLUMNS) {
                store(panels, load(from));
                store(panels + LANES, load(from + LANES));
            } else {
                memcpy(panels, from, n_left * sizeof(float));
                memset(panels + n_left, 0, (PANEL_COLUMNS - n_left) * sizeof(float));
            }
        }
    }
}

/* What one call of a tile needs. */
typedef struct {
    const float *x;
    size_t x_stride;
    size_t n_inputs;
    const float *panel;
    size_t panel_size; /* floats from one panel to the next */
    Target target;
} Tile;

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
    write_tile(&tile->target, written, n_rows, n_vectors);
}

#define TILE_OF(N)                                                                                 \
    static void multiply_tile_##N(const Tile *tile) { multiply_tile(tile, N, 1); }

/* One and two rows alone would wait for each sum before the next addition to it: they take two
   panels at a time. */
static void multiply_wide_tile_1(const Tile *tile) { multiply_tile(tile, 1, 2); }
static void multiply_wide_tile_2(const Tile *tile) { multiply_tile(tile, 2, 2); }

FOR_EACH_HEIGHT(TILE_OF)

#define NAME_OF(N) multiply_tile_##N,
static void (*const tiles[])(const Tile *) = {NULL, FOR_EACH_HEIGHT(NAME_OF)};

/* A product, whose columns threads may share. */
typedef struct {
    const PackedMatrix *matrix;
    const float *x;
    size_t x_stride;
    size_t n_rows;
    Epilogue epilogue;
    float *result;
    size_t stride;
} Product;

static void multiply_columns(const void *job, size_t first, size_t last) {
    const Product *product = job;
    const PackedMatrix *matrix = product->matrix;
    const size_t n_inputs = matrix->n_inputs, n_rows = product->n_rows;
    const Tiling tiling = tiling_of(n_rows, TALLEST_TILE);
    size_t width;
    for (; first < last; first += width) {
        const size_t n_left = last - first;
        const bool is_wide = n_rows <= 2 && n_left > PANEL_COLUMNS;
        width = is_wide ? MOST_PANELS * PANEL_COLUMNS : PANEL_COLUMNS;
        const size_t n_columns = n_left < width ? n_left : width;
        size_t row = 0;
        for (size_t index = 0; index < tiling.n_tiles; index++) {
            const size_t n = height_of(tiling, index);
            const Tile tile = {
                .x = product->x + row * product->x_stride,
                .x_stride = product->x_stride,
                .n_inputs = n_inputs,
                .panel = matrix->panels + first * n_inputs,
                .panel_size = n_inputs * PANEL_COLUMNS,
                .target = target_of(matrix, product->epilogue, product->result, product->stride,
                                    row, first, n_columns),
            };
            if (!is_wide)
                tiles[n](&tile);
            else if (n == 1)
                multiply_wide_tile_1(&tile);
            else
                multiply_wide_tile_2(&tile);
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
        if (part.residual)
            part.residual += row * stride;
        const Product product = {matrix, x + row * x_stride, x_stride, n, part,
                                 result + row * stride, stride};
        share_columns(multiply_columns, &product, matrix->n_outputs, PAIR_COLUMNS,
                      n * matrix->n_inputs * matrix->n_outputs);
    }
}
