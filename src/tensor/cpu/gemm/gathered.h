/* Matrices that are never whole in memory: rows are gathered while a product packs them.
 *
 * A convolution is a product of such matrices: the windows of an image are its rows, the taps of a
 * window times the channels its columns. */
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

/* The weight (out, kernel, kernel, in) of some taps, as what a gradient is multiplied by: row (u,
 * v, o), column i: tap (first_y + step (taps_y - 1 - u), first_x + step (taps_x - 1 - v)). */
struct turned_weight {
    struct view from;
    int in, out, kernel;
    int taps_y, taps_x, first_y, first_x, step;
};

/* One of them. */
struct gathered_matrix {
    const struct windows *windows;
    const struct turned_weight *turned;
};

/* The left operand of a product is packed into strips of rows, the right one into strips of
 * columns. */
enum operand_side { SIDE_LEFT, SIDE_RIGHT };

/* A matrix as a thread packs it. */
struct strip_packer {
    const struct kernels *k;
    const struct gemm_kernels *f;
    enum operand_side side;
    struct gathered_matrix m;
    const uint16_t *lines; /* lines of the images as the kernels split them, from `first` on */
    size_t first;
};

/* Whether windows share what kernels split. */
bool cpu_splits(const struct gemm_kernels *f, const struct windows *s);
/* Floats that the split lines of windows [row, row + rows) take. */
size_t cpu_split_room(const struct gemm_kernels *f, const struct windows *s, size_t row,
                      size_t rows);
/* Splits them, before they are packed. */
void cpu_split(struct strip_packer *p, size_t row, size_t rows, float *room);

/* Rows [row, row + n) and columns [l, l + k) as one strip: n is its width, k its depth. */
void cpu_pack_rows(const struct strip_packer *p, float *strip, size_t row, int n, int l, int k);
/* Rows [l, l + k) and columns [column, column + n) as strips side by side: n is their width, k,
 * which is at most PACK_DEPTH, a part of their depth. */
enum { PACK_DEPTH = 256 };
void cpu_pack_depth(const struct strip_packer *p, float *strips, int depth, size_t l, int k,
                    int column, int n);

#endif
