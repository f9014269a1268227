#include "tensor/cpu/gathered.h"

/* Elements [at, at + n) of a row of `size`, zero outside of it. */
static void load_clipped(const struct kernels *k, struct view row, ptrdiff_t at, ptrdiff_t n,
                         ptrdiff_t size, float *to)
{
    const ptrdiff_t before = at < 0 ? (at + n < 0 ? n : -at) : 0;
    const ptrdiff_t end = at + n > size ? (size > at + before ? size - at : before) : n;
    if (before > 0)
        memset(to, 0, (size_t)before * sizeof *to);
    if (end > before) {
        const size_t from = (size_t)(at + before), count = (size_t)(end - before);
        if (row.type == DTYPE_F32)
            memcpy(to + before, (const float *)row.data + from, count * sizeof *to);
        else
            k->vector->widen(to + before, (const uint16_t *)row.data + from, count);
    }
    if (n > end)
        memset(to + end, 0, (size_t)(n - end) * sizeof *to);
}

/* Columns [column, column + columns) of one window: a row of a window is one stretch of memory. */
static void gather_window(const struct kernels *k, const struct windows *s, float *to, size_t image,
                          int y, int x, int column, int columns)
{
    const int line = s->kernel_w * s->channels, end = column + columns;
    const ptrdiff_t left = (ptrdiff_t)(x * s->stride - s->left) * s->channels;
    const ptrdiff_t size = (ptrdiff_t)s->w * s->channels;
    for (int ky = column / line; column < end; ky++) {
        const int from = column - ky * line, n = min_int(line, end - ky * line) - from;
        const int row = y * s->stride - s->top + ky;
        if (row < 0 || row >= s->h) {
            memset(to, 0, (size_t)n * sizeof *to);
        } else {
            const size_t at = (image * (size_t)s->h + (size_t)row) * (size_t)size;
            load_clipped(k, view_at(s->from, at), left + from, n, size, to);
        }
        to += n;
        column += n;
    }
}

static void gather_windows(const struct kernels *k, const struct windows *s, float *to, size_t ld,
                           size_t row, int rows, int column, int columns)
{
    size_t image = row / ((size_t)s->tall * (size_t)s->wide);
    int y = (int)(row / (size_t)s->wide % (size_t)s->tall), x = (int)(row % (size_t)s->wide);
    for (int r = 0; r < rows; r++, to += ld) {
        gather_window(k, s, to, image, y, x, column, columns);
        if (++x == s->wide) {
            x = 0;
            image += ++y == s->tall;
            y = y == s->tall ? 0 : y;
        }
    }
}

static void gather_turned(const struct kernels *k, const struct turned *s, float *to, size_t ld,
                          size_t row, int rows, int column, int columns)
{
    const size_t in = (size_t)s->in, kernel = (size_t)s->kernel;
    for (int r = 0; r < rows; r++, to += ld) {
        const size_t index = row + (size_t)r, o = index % (size_t)s->out;
        const int tap = (int)(index / (size_t)s->out), u = tap / s->taps_x, v = tap % s->taps_x;
        const size_t ky = (size_t)(s->first_y + s->step * (s->taps_y - 1 - u));
        const size_t kx = (size_t)(s->first_x + s->step * (s->taps_x - 1 - v));
        const size_t at = ((o * kernel + ky) * kernel + kx) * in + (size_t)column;
        load_clipped(k, view_at(s->from, at), 0, columns, columns, to);
    }
}

void cpu_gather(const struct kernels *k, struct gathered m, float *to, size_t ld, size_t row,
                int rows, int column, int columns)
{
    if (m.windows)
        gather_windows(k, m.windows, to, ld, row, rows, column, columns);
    else
        gather_turned(k, m.turned, to, ld, row, rows, column, columns);
}
