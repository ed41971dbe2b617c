#include "quantized.h"

#include "parallel.h"
#include "tile.h"

#define LARGEST 127.0f

/* The smallest number that counts as a row's largest: a row of zeros has a scale, too. */
#define SMALLEST 1e-30f

/* Between 2²³ and 2²⁴ floats are whole numbers: adding this rounds half to even. */
#define ROUNDER 12582912.0f

/* So many groups ahead the panel is fetched. */
#define GROUPS_AHEAD 16

static size_t groups_of(size_t n_inputs) { return (n_inputs + GROUP - 1) / GROUP; }

/* Inputs from one row to the next: groups have the size of floats. */
static size_t group_stride(size_t n_inputs) { return row_stride(groups_of(n_inputs)) * GROUP; }

void lay_out_quantized_rows(Arena *arena, size_t n_rows, size_t widest, QuantizedRows *rows) {
    const size_t n = smaller_of(n_rows, QUANTIZED_ROWS);
    rows->integers = arena_take(arena, saturated_product(n, group_stride(widest)), sizeof(Input));
    rows->scale = arena_take(arena, n, sizeof(float));
}

size_t starts_size(size_t n_outputs) {
    return (n_outputs + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
}

size_t integers_size(size_t n_outputs, size_t n_inputs) {
    return saturated_product(starts_size(n_outputs), groups_of(n_inputs) * GROUP);
}

void sum_integers(const int8_t *matrix, size_t n_outputs, size_t n_inputs, int32_t *starts) {
    memset(starts, 0, starts_size(n_outputs) * sizeof *starts);
    for (size_t n = 0; n < n_outputs; n++)
        for (size_t k = 0; k < n_inputs; k++)
            starts[n] -= SHIFT * matrix[n * n_inputs + k];
}

void pack_integers(const int8_t *matrix, size_t n_outputs, size_t n_inputs, int8_t *panels) {
    for (size_t first = 0; first < n_outputs; first += PANEL_COLUMNS)
        for (size_t group = 0; group < groups_of(n_inputs); group++)
            for (size_t n = first; n < first + PANEL_COLUMNS; n++)
                for (size_t k = group * GROUP; k < (group + 1) * GROUP; k++) {
                    const bool is_there = n < n_outputs && k < n_inputs;
                    *panels++ = is_there ? matrix[n * n_inputs + k] : 0;
                }
}

void pack_some_integers(const int8_t *matrix, const int32_t *rows, size_t n_rows,
                        const PackedMatrix *all, int8_t *panels, int32_t *starts) {
    const size_t n_inputs = all->n_inputs, size = PANEL_COLUMNS * GROUP;
    memset(panels, 0, integers_size(n_rows, n_inputs));
    memset(starts, 0, starts_size(n_rows) * sizeof *starts);
    for (size_t n = 0; n < n_rows; n++) {
        const int8_t *from = matrix + (size_t)rows[n] * n_inputs;
        int8_t *to = panels + n / PANEL_COLUMNS * size * groups_of(n_inputs) +
                     n % PANEL_COLUMNS * GROUP;
        for (size_t group = 0; group < n_inputs / GROUP; group++)
            memcpy(to + group * size, from + group * GROUP, GROUP);
        for (size_t k = n_inputs / GROUP * GROUP; k < n_inputs; k++)
            to[k / GROUP * size + k % GROUP] = from[k];
        starts[n] = all->starts[rows[n]];
    }
}

PackedMatrix part_of(const PackedMatrix *matrix, size_t first, size_t n) {
    PackedMatrix part = *matrix;
    part.n_outputs = n;
    if (matrix->scale) {
        part.integers += first * groups_of(matrix->n_inputs) * GROUP;
        part.starts += first;
        part.scale += first;
    } else {
        part.panels += first * matrix->n_inputs;
    }
    return part;
}

/* What a row's integers are multiplied by. */
static float scale_of_row(const float *x, size_t width) {
    Vector most = {0}, nothing = {0};
    for (size_t i = 0; i < width; i += LANES) {
        const int n = (int)smaller_of(width - i, LANES);
        const Vector values = load_first(x + i, n);
        most = larger(larger(values, -values), most);
        nothing += values - values; /* 0, or no number if one of the values is none or infinite */
    }
    const float largest = largest_lane(most);
    return (largest > SMALLEST ? largest : SMALLEST) / LARGEST + sum_of_lanes(nothing);
}

/* LANES integers of x / scale with SHIFT added. Of what is not a number it makes any. */
INLINE Inputs integers_of(Vector x, Vector scale) {
    /* In the lowest bits of a float this large the integer stands; a conversion could not take what
       is not a number */
    const Vector shifted = x / scale + broadcast(ROUNDER);
    const IntVector bits = (IntVector)shifted - (IntVector)broadcast(ROUNDER) + SHIFT;
    return __builtin_convertvector(bits, Inputs);
}

void quantize_rows(const float *x, size_t stride, size_t n_rows, size_t width,
                   QuantizedRows *rows) {
    for (size_t row = 0; row < n_rows; row++, x += stride) {
        Input *integers = rows->integers + row * group_stride(width);
        const float scale = scale_of_row(x, width);
        const Vector divisor = broadcast(scale);
        size_t i = 0;
        for (; i + LANES <= width; i += LANES)
            *(LooseInputs *)(integers + i) = integers_of(load(x + i), divisor);
        if (i < width) { /* whole groups: behind the width anything is multiplied by 0 */
            const int n = (int)(width - i);
            const Inputs rest = integers_of(load_some(x + i, n, 0.0f), divisor);
            memcpy(integers + i, &rest, (size_t)(n + GROUP - 1) / GROUP * GROUP * sizeof(Input));
        }
        rows->scale[row] = scale;
    }
}

/* What one call of a tile needs. */
typedef struct {
    const Input *x;
    size_t x_stride;
    size_t n_groups;
    const int8_t *panel;
    size_t panel_size; /* bytes from one panel to the next */
    const int32_t *starts;
    Target target;
} IntegerTile;

/* As in matmul.c, with groups in the place of inputs. */
INLINE void multiply_integers(const IntegerTile *tile, const int n_rows, const int n_panels) {
    const Input *x = tile->x;
    const int8_t *panel = tile->panel;
    const size_t x_stride = tile->x_stride, n_groups = tile->n_groups;
    const int n_vectors = 2 * n_panels;
    IntVector sums[TALLEST_TILE][2 * MOST_PANELS];
#pragma GCC unroll 16
    for (int row = 0; row < n_rows; row++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++)
            sums[row][i] = load_ints(tile->starts + i * LANES);
    for (size_t group = 0; group < n_groups; group++, panel += PANEL_COLUMNS * GROUP) {
        IntVector weights[2 * MOST_PANELS];
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++) {
            const int8_t *from = panel + (size_t)(i / 2) * tile->panel_size + i % 2 * LANES * GROUP;
            weights[i] = load_weights(from);
            __builtin_prefetch(from + GROUPS_AHEAD * PANEL_COLUMNS * GROUP);
        }
#pragma GCC unroll 16
        for (int row = 0; row < n_rows; row++) {
            const IntVector inputs = broadcast_group(x + (size_t)row * x_stride + group * GROUP);
#pragma GCC unroll 4
            for (int i = 0; i < n_vectors; i++)
                sums[row][i] = add_products(sums[row][i], inputs, weights[i]);
        }
    }
    Vector written[TALLEST_TILE * 2 * MOST_PANELS];
#pragma GCC unroll 16
    for (int row = 0; row < n_rows; row++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vectors; i++)
            written[row * n_vectors + i] = __builtin_convertvector(sums[row][i], Vector);
    write_tile(&tile->target, written, n_rows, n_vectors);
}

#define TILE_OF(N)                                                                                 \
    static void multiply_integers_##N(const IntegerTile *tile) { multiply_integers(tile, N, 1); }

static void multiply_wide_integers_1(const IntegerTile *tile) { multiply_integers(tile, 1, 2); }
static void multiply_wide_integers_2(const IntegerTile *tile) { multiply_integers(tile, 2, 2); }

FOR_EACH_HEIGHT(TILE_OF)

#define NAME_OF(N) multiply_integers_##N,
static void (*const tiles[])(const IntegerTile *) = {NULL, FOR_EACH_HEIGHT(NAME_OF)};

/* Products of pairs need a register more than floats. */
#if GROUP == 2 && TALLEST_TILE > 6
#define TALLEST_INTEGER_TILE (TALLEST_TILE - 1)
#else
#define TALLEST_INTEGER_TILE TALLEST_TILE
#endif

/* As in matmul.c. */
typedef struct {
    const PackedMatrix *matrix;
    const QuantizedRows *rows;
    size_t n_rows;
    Epilogue epilogue;
    float *result;
    size_t stride;
} IntegerProduct;

static void multiply_columns(const void *job, size_t first, size_t last) {
    const IntegerProduct *product = job;
    const PackedMatrix *matrix = product->matrix;
    const size_t n_rows = product->n_rows, n_groups = groups_of(matrix->n_inputs);
    const size_t x_stride = group_stride(matrix->n_inputs);
    const Tiling tiling = tiling_of(n_rows, TALLEST_INTEGER_TILE);
    size_t width;
    for (; first < last; first += width) {
        const size_t n_left = last - first;
        const bool is_wide = n_rows <= 2 && n_left > PANEL_COLUMNS;
        width = is_wide ? MOST_PANELS * PANEL_COLUMNS : PANEL_COLUMNS;
        const size_t n_columns = smaller_of(n_left, width);
        size_t row = 0;
        for (size_t index = 0; index < tiling.n_tiles; index++) {
            const size_t n = height_of(tiling, index);
            const IntegerTile tile = {
                .x = product->rows->integers + row * x_stride,
                .x_stride = x_stride,
                .n_groups = n_groups,
                .panel = matrix->integers + first * n_groups * GROUP,
                .panel_size = n_groups * GROUP * PANEL_COLUMNS,
                .starts = matrix->starts + first,
                .target = target_of(matrix, product->epilogue, product->result, product->stride,
                                    row, first, n_columns),
            };
            if (!is_wide)
                tiles[n](&tile);
            else if (n == 1)
                multiply_wide_integers_1(&tile);
            else
                multiply_wide_integers_2(&tile);
            row += n;
        }
    }
}

void multiply_quantized(const PackedMatrix *matrix, const QuantizedRows *rows, size_t n_rows,
                        Epilogue epilogue, float *result, size_t stride) {
    epilogue.row_scale = rows->scale;
    const IntegerProduct product = {matrix, rows, n_rows, epilogue, result, stride};
    share_columns(multiply_columns, &product, matrix->n_outputs, PAIR_COLUMNS,
                  n_rows * matrix->n_inputs * matrix->n_outputs);
}

void multiply_any(const PackedMatrix *matrix, const float *x, size_t x_stride, size_t n_rows,
                  Epilogue epilogue, float *result, size_t stride, QuantizedRows *room) {
    if (!matrix->scale) {
        multiply(matrix, x, x_stride, n_rows, epilogue, result, stride);
        return;
    }
    for (size_t first = 0; first < n_rows; first += QUANTIZED_ROWS) {
        const size_t n = smaller_of(n_rows - first, QUANTIZED_ROWS);
        Epilogue part = epilogue;
        if (part.residual)
            part.residual += first * stride;
        quantize_rows(x + first * x_stride, x_stride, n, matrix->n_inputs, room);
        multiply_quantized(matrix, room, n, part, result + first * stride, stride);
    }
}
