#include "tensor/cpu/gemm/gathered.h"

enum {
    WIDEST = 32,  /* rows or columns of a strip, of any kernel */
    STEP = 128,   /* columns gathered at once: a multiple of every kernel's depth */
    TOGETHER = 32 /* elements split together by kernels */
};

/* Loads elements [at, at + n) of a row of `size`; elements outside the row are 0. */
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

/* Gathers columns [column, column + columns) of a window: a row of a window is contiguous in
 * memory. */
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

/* Returns the offset of row `row` in the weight. */
static size_t turned_at(const struct turned_weight *s, size_t row)
{
    const size_t o = row % (size_t)s->out, kernel = (size_t)s->kernel;
    const int tap = (int)(row / (size_t)s->out), u = tap / s->taps_x, v = tap % s->taps_x;
    const size_t ky = (size_t)(s->first_y + s->step * (s->taps_y - 1 - u));
    const size_t kx = (size_t)(s->first_x + s->step * (s->taps_x - 1 - v));
    return ((o * kernel + ky) * kernel + kx) * (size_t)s->in;
}

static void gather_turned(const struct kernels *k, const struct turned_weight *s, float *to,
                          size_t ld, size_t row, int rows, int column, int columns)
{
    for (int r = 0; r < rows; r++, to += ld) {
        const size_t at = turned_at(s, row + (size_t)r) + (size_t)column;
        load_clipped(k, view_at(s->from, at), 0, columns, columns, to);
    }
}

static void gather_rows(const struct strip_packer *p, float *to, size_t ld, size_t row, int rows,
                        int column, int columns)
{
    if (p->m.windows)
        gather_windows(p->k, p->m.windows, to, ld, row, rows, column, columns);
    else
        gather_turned(p->k, p->m.turned, to, ld, row, rows, column, columns);
}

/* Returns the matrix in memory if it is fp32 and dense, else NULL. */
static const float *plain_matrix(struct gathered_matrix m)
{
    const struct windows *s = m.windows;
    const bool dense = s && s->kernel_h == 1 && s->kernel_w == 1 && s->stride == 1 &&
                       s->tall == s->h && s->wide == s->w;
    return dense && s->from.type == DTYPE_F32 ? s->from.data : NULL;
}

static int width_of(const struct strip_packer *p)
{
    return p->side == SIDE_LEFT ? p->f->rows : p->f->columns;
}

static void pack_gathered(const struct strip_packer *p, float *strip, const float *x, size_t ld,
                          int n, int k, bool turned)
{
    (p->side == SIDE_LEFT ? p->f->pack_a : p->f->pack_b)(strip, x, ld, n, k, turned);
}

/* True for bf16 that kernels pack without a split. */
static bool is_split(const struct gemm_kernels *f, const struct windows *s)
{
    return s->from.type == DTYPE_BF16 && f->halves == 1;
}

bool cpu_splits(const struct gemm_kernels *f, const struct windows *s)
{
    const bool shared = s && (s->kernel_h * s->kernel_w > 1 || is_split(f, s));
    return shared && f->split && s->channels % TOGETHER == 0;
}

/* Computes the lines [*first, *end) of all images that windows [row, row + rows) touch. */
static void lines_of(const struct windows *s, size_t row, size_t rows, size_t *first, size_t *end)
{
    const size_t wide = (size_t)s->wide, tall = (size_t)s->tall, last = row + rows - 1;
    const int above = (int)(row / wide % tall) * s->stride - s->top;
    const int below = (int)(last / wide % tall) * s->stride - s->top + s->kernel_h;
    *first = row / (wide * tall) * (size_t)s->h + (size_t)min_int(s->h, above > 0 ? above : 0);
    *end = last / (wide * tall) * (size_t)s->h + (size_t)min_int(s->h, below > 0 ? below : 0);
}

size_t cpu_split_room(const struct gemm_kernels *f, const struct windows *s, size_t row,
                      size_t rows)
{
    size_t first, end;
    if (!cpu_splits(f, s) || is_split(f, s))
        return 0;
    lines_of(s, row, rows, &first, &end);
    const size_t count = (end - first) * (size_t)s->w * (size_t)s->channels;
    return count * (size_t)f->halves / 2;
}

void cpu_split(struct strip_packer *p, size_t row, size_t rows, float *room)
{
    const struct windows *s = p->m.windows;
    size_t end;
    p->lines = NULL;
    if (!cpu_splits(p->f, s))
        return;
    if (is_split(p->f, s)) {
        p->lines = s->from.data;
        p->first = 0;
        return;
    }
    uint16_t *to = (uint16_t *)(void *)room;
    const size_t size = (size_t)s->w * (size_t)s->channels;
    lines_of(s, row, rows, &p->first, &end);
    for (size_t at = p->first * size; at < end * size; at += STEP) {
        float wide[STEP];
        const size_t n = min_size(STEP, end * size - at);
        p->f->split(to, load_floats(p->k, s->from, at, n, wide), n);
        to += n * (size_t)p->f->halves;
    }
    p->lines = (const uint16_t *)(const void *)room;
}

/* Position of a window's first tap, which may be outside the image: in the split lines, and in the
 * image. */
struct window_spot {
    ptrdiff_t at; /* 16-bit words */
    int y, x;
};

static void find_spots(const struct strip_packer *p, struct window_spot *out, size_t row, int rows)
{
    const struct windows *s = p->m.windows;
    const ptrdiff_t words = (ptrdiff_t)s->channels * p->f->halves;
    size_t image = row / ((size_t)s->tall * (size_t)s->wide);
    int y = (int)(row / (size_t)s->wide % (size_t)s->tall), x = (int)(row % (size_t)s->wide);
    for (int r = 0; r < rows; r++) {
        out[r].y = y * s->stride - s->top;
        out[r].x = x * s->stride - s->left;
        const ptrdiff_t line = (ptrdiff_t)(image * (size_t)s->h) - (ptrdiff_t)p->first + out[r].y;
        out[r].at = (line * s->w + out[r].x) * words;
        if (++x == s->wide) {
            x = 0;
            image += ++y == s->tall;
            y = y == s->tall ? 0 : y;
        }
    }
}

/* Finds pixel `tap` = (ky, kx) of each window; NULL outside the image. */
static void find_pixels(const struct strip_packer *p, const struct window_spot *spot, int rows,
                        int tap, const uint16_t **out)
{
    const struct windows *s = p->m.windows;
    const int ky = tap / s->kernel_w, kx = tap % s->kernel_w;
    const ptrdiff_t more = ((ptrdiff_t)ky * s->w + kx) * s->channels * p->f->halves;
    for (int r = 0; r < rows; r++) {
        const bool inside = (unsigned)(spot[r].y + ky) < (unsigned)s->h &&
                            (unsigned)(spot[r].x + kx) < (unsigned)s->w;
        out[r] = inside ? p->lines + (spot[r].at + more) : NULL;
    }
}

static void pack_rows_split(const struct strip_packer *p, float *strip, size_t row, int n, int l,
                            int k)
{
    const int channels = p->m.windows->channels;
    struct window_spot spot[WIDEST];
    const uint16_t *pixel[WIDEST];
    find_spots(p, spot, row, n);
    for (int at = 0; at < k;) {
        const int tap = (l + at) / channels, c = (l + at) % channels;
        const int deep = min_int(channels - c, k - at);
        find_pixels(p, spot, n, tap, pixel);
        p->f->pack_a_split(strip + strip_size(p->f, p->f->rows, at), pixel,
                           (size_t)(c * p->f->halves), n, deep);
        at += deep;
    }
}

static void pack_depth_split(const struct strip_packer *p, float *strips, int depth, size_t l,
                             int k, int column, int n)
{
    const int channels = p->m.windows->channels;
    struct window_spot spot[PACK_DEPTH];
    const uint16_t *pixel[PACK_DEPTH];
    find_spots(p, spot, l, k);
    for (int j = 0; j < n; j += TOGETHER) {
        const int c = (column + j) % channels;
        if (j == 0 || c == 0)
            find_pixels(p, spot, k, (column + j) / channels, pixel);
        p->f->pack_b_split(strips + strip_size(p->f, j, depth), pixel, (size_t)(c * p->f->halves),
                           k);
    }
}

void cpu_pack_rows(const struct strip_packer *p, float *strip, size_t row, int n, int l, int k)
{
    float block[WIDEST * STEP] __attribute__((aligned(64)));
    const float *matrix = plain_matrix(p->m);
    if (p->lines && p->side == SIDE_LEFT) {
        pack_rows_split(p, strip, row, n, l, k);
        return;
    }
    if (matrix) {
        const size_t ld = (size_t)p->m.windows->channels;
        pack_gathered(p, strip, matrix + row * ld + (size_t)l, ld, n, k, true);
        return;
    }
    for (int at = 0; at < k; at += STEP) {
        const int deep = min_int(STEP, k - at);
        gather_rows(p, block, STEP, row, n, l + at, deep);
        pack_gathered(p, strip + strip_size(p->f, width_of(p), at), block, STEP, n, deep, true);
    }
}

/* Returns rows [l, l + rows) of the weight if they are fp32 rows `*ld` apart in memory, else
 * NULL. */
static const float *plain_turned(const struct strip_packer *p, size_t l, int rows, int column,
                                 size_t *ld)
{
    const struct turned_weight *s = p->m.turned;
    const size_t out = s ? (size_t)s->out : 1;
    if (!s || s->from.type != DTYPE_F32 || l / out != (l + (size_t)rows - 1) / out)
        return NULL;
    *ld = (size_t)s->kernel * (size_t)s->kernel * (size_t)s->in;
    return (const float *)s->from.data + turned_at(s, l) + (size_t)column;
}

void cpu_pack_depth(const struct strip_packer *p, float *strips, int depth, size_t l, int k,
                    int column, int n)
{
    float block[WIDEST * STEP] __attribute__((aligned(64)));
    const int width = width_of(p), step = STEP / width * width; /* whole strips */
    const float *matrix = plain_matrix(p->m);
    if (p->lines && p->side == SIDE_RIGHT) {
        pack_depth_split(p, strips, depth, l, k, column, n);
        return;
    }
    for (int at = 0; at < k; at += WIDEST) {
        const int deep = min_int(WIDEST, k - at);
        for (int j = 0; j < n; j += step) {
            const size_t row = l + (size_t)at, first = (size_t)(column + j);
            const int columns = min_int(step, n - j);
            size_t ld = matrix ? (size_t)p->m.windows->channels : STEP;
            const float *x =
                matrix ? matrix + row * ld + first : plain_turned(p, row, deep, column + j, &ld);
            if (!x)
                gather_rows(p, block, STEP, row, deep, column + j, columns);
            for (int i = 0; i < columns; i += width)
                pack_gathered(p,
                              strips + strip_size(p->f, j + i, depth) + strip_size(p->f, width, at),
                              (x ? x : block) + i, ld, min_int(width, columns - i), deep, false);
        }
    }
}
