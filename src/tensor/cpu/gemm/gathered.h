/* Matrices that are never whole in memory: rows are gathered while a product packs them.
 *
 * A convolution is a product of gathered matrices: the windows of an image are the rows, the taps
 * of a window times the channels are the columns. */
#ifndef SOTTO_TENSOR_CPU_GEMM_GATHERED_H
#define SOTTO_TENSOR_CPU_GEMM_GATHERED_H

#include "tensor/cpu/cpu.h"

/* Row (image, y, x), column (ky, kx, channel): the pixel at (y * stride - top + ky, x * stride -
 * left + kx), zero outside of the image. A plain matrix (rows, columns) is images of one pixel. */
struct windows {
    struct view from; /* (images, h, w, channels) */
    int h, w, channels;
    int tall, wide; /* windows of an image, down and across */
    int kernel_h, kernel_w, stride, top, left;
};

/* Some taps of a weight (out, kernel, kernel, in), as the factor of a gradient: row (u, v, o),
 * column i is tap (first_y + step (taps_y - 1 - u), first_x + step (taps_x - 1 - v)). */
struct turned_weight {
    struct view from;
    int in, out, kernel;
    int taps_y, taps_x, first_y, first_x, step;
};

/* A gathered matrix: windows or a turned weight; the other pointer is NULL. */
struct gathered_matrix {
    const struct windows *windows;
    const struct turned_weight *turned;
};

/* The left operand of a product is packed into strips of rows, the right one into strips of
 * columns. */
enum operand_side { SIDE_LEFT, SIDE_RIGHT };

/* A matrix and the kernels that pack it. */
struct strip_packer {
    const struct kernels *k;
    const struct gemm_kernels *f;
    enum operand_side side;
    struct gathered_matrix m;
    const uint16_t *lines; /* split lines of the images, from line `first` on */
    size_t first;
};

/* True if windows share lines that kernels split. */
bool cpu_splits(const struct gemm_kernels *f, const struct windows *s);
/* Returns the floats of the split lines of windows [row, row + rows). */
size_t cpu_split_room(const struct gemm_kernels *f, const struct windows *s, size_t row,
                      size_t rows);
/* Splits the lines of windows [row, row + rows) into `room`, before the windows are packed. */
void cpu_split(struct strip_packer *p, size_t row, size_t rows, float *room);

/* Packs rows [row, row + n) and columns [l, l + k) as a strip of width n and depth k. */
void cpu_pack_rows(const struct strip_packer *p, float *strip, size_t row, int n, int l, int k);
/* Packs rows [l, l + k) and columns [column, column + n) as adjacent strips of total width n; k, at
 * most PACK_DEPTH, is a part of their depth. */
enum { PACK_DEPTH = 256 };
void cpu_pack_depth(const struct strip_packer *p, float *strips, int depth, size_t l, int k,
                    int column, int n);

#endif
