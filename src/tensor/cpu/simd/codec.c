/* Codecs: the largest coefficients of a tile, and tiles from a few coefficients. */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "tensor/cpu/simd/kernels.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { VECTORS = 4 };

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#include "tensor/cpu/simd/dct.h"

/* Transforms LANES rows at once. */
static void transform_rows(float *y, size_t ldy, const float *x, size_t ldx)
{
    vec in[DCT_SIDE], out[DCT_SIDE];
    for (int j = 0; j < DCT_SIDE; j += LANES) {
        DCT_UNROLL for (int i = 0; i < LANES; i++)
        {
            in[j + i] = *(const vec_at *)(x + (size_t)i * ldx + j);
        }
        dct_transpose(in + j);
    }
    dct_c2_64(out, in);
    for (int i = 0; i < DCT_SIDE; i++)
        out[i] *= dct_scale(i);
    for (int j = 0; j < DCT_SIDE; j += LANES) {
        dct_transpose(out + j);
        DCT_UNROLL for (int i = 0; i < LANES; i++)
        {
            *(vec_at *)(y + (size_t)i * ldy + j) = out[j + i];
        }
    }
}

static void dct_rows(float *y, size_t ldy, const float *x, size_t ldx, int n)
{
    for (; n >= LANES; n -= LANES, x += LANES * ldx, y += LANES * ldy)
        transform_rows(y, ldy, x, ldx);
    if (!n)
        return;
    float few[LANES * DCT_SIDE] = {0};
    for (int i = 0; i < n; i++)
        memcpy(few + i * DCT_SIDE, x + (size_t)i * ldx, DCT_SIDE * sizeof *few);
    transform_rows(few, DCT_SIDE, few, DCT_SIDE);
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * ldy, few + i * DCT_SIDE, DCT_SIDE * sizeof *few);
}

static void dct_columns(float *y, size_t ldy, const float *x, size_t ldx, int n)
{
    for (int j = 0; j < n; j += LANES) {
        vec in[DCT_SIDE], out[DCT_SIDE];
        for (int i = 0; i < DCT_SIDE; i++)
            in[i] = *(const vec_at *)(x + (size_t)i * ldx + j);
        dct_c2_64(out, in);
        for (int i = 0; i < DCT_SIDE; i++)
            *(vec_at *)(y + (size_t)i * ldy + j) = out[i] * dct_scale(i);
    }
}

static void dct_columns_back(float *y, size_t ldy, const float *x, size_t ldx, int n, bool subtract)
{
    for (int j = 0; j < n; j += LANES) {
        vec in[DCT_SIDE], out[DCT_SIDE];
        for (int i = 0; i < DCT_SIDE; i++)
            in[i] = *(const vec_at *)(x + (size_t)i * ldx + j) * dct_scale(i);
        dct_back_64(out, in);
        for (int i = 0; i < DCT_SIDE; i++) {
            vec_at *to = (vec_at *)(y + (size_t)i * ldy + j);
            if (subtract)
                out[i] = *to - out[i];
            *to = out[i];
        }
    }
}

static int count_keys(const uint32_t *keys, int n, uint32_t least)
{
    int count = 0;
#pragma omp simd reduction(+ : count)
    for (int i = 0; i < n; i++)
        count += keys[i] >= least;
    return count;
}

static uint32_t largest_key(const uint32_t *keys, int n)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; i++)
        most = keys[i] > most ? keys[i] : most;
    return most;
}

/* Returns a magnitude that `keep` keys reach and at most `more` others, by bisection: as numbers,
 * fp32 magnitudes are in the order of their bits. The result is mostly close to the largest
 * magnitude, so the first try is three powers of two below. */
static uint32_t threshold_key(const uint32_t *keys, int n, int keep, int more)
{
    uint32_t low = 0, high = largest_key(keys, n) + 1; /* all reach low, none high */
    uint32_t try = high > 3u << 23 ? high - (3u << 23) : high / 2;
    while (high - low > 1) {
        const int count = count_keys(keys, n, try);
        if (count >= keep)
            low = try;
        else
            high = try;
        if (count >= keep && count <= keep + more)
            break;
        try = low + (high - low) / 2;
    }
    return low;
}

/* Bits of a number, and the mask of its magnitude. */
typedef uint32_t bits_of __attribute__((may_alias));
enum { MAGNITUDE = 0x7fffffff };

/* Finds the magnitudes that reach `least`, in order, and their indices, without an unpredictable
 * branch; `keys` and `index` have space for n. Returns their number. */
static int find_keys(const bits_of *bits, int n, uint32_t least, uint32_t *keys, int32_t *index)
{
    int count = 0, i = 0;
#ifdef __AVX512F__
    __m512i at = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i border = _mm512_set1_epi32((int)least), next = _mm512_set1_epi32(16);
    const __m512i magnitude = _mm512_set1_epi32(MAGNITUDE);
    for (; i + 16 <= n; i += 16) {
        const __m512i key = _mm512_and_epi32(_mm512_loadu_si512(bits + i), magnitude);
        const __mmask16 reach = _mm512_cmpge_epu32_mask(key, border);
        _mm512_storeu_si512(index + count, _mm512_maskz_compress_epi32(reach, at));
        _mm512_storeu_si512(keys + count, _mm512_maskz_compress_epi32(reach, key));
        count += __builtin_popcount(reach);
        at = _mm512_add_epi32(at, next);
    }
#endif
    for (; i < n; i++) {
        const uint32_t key = bits[i] & MAGNITUDE;
        index[count] = i;
        keys[count] = key;
        count += key >= least;
    }
    return count;
}

/* Returns a bound that at least `keep` keys reach, and not many more: the largest keys of n / WAYS
 * groups are different keys, so at least `keep` keys reach the keep-th largest of them. */
enum { WAYS = 16 };
static uint32_t group_bound(const bits_of *bits, int n, int keep, uint32_t *room)
{
    const int groups = n / WAYS;
    if (groups < 2 * keep)
        return 0;
#pragma omp simd
    for (int i = 0; i < groups; i++) {
        uint32_t most = 0;
        for (int k = 0; k < WAYS; k++) {
            const uint32_t key = bits[k * groups + i] & MAGNITUDE;
            most = key > most ? key : most;
        }
        room[i] = most;
    }
    return threshold_key(room, groups, keep, keep / 8);
}

/* A few of a few elements are found one at a time: the largest, then the largest of the rest. Of
 * equal elements the first is taken. */
enum { FEW = 4, OF_FEW = 64 };

/* Inserts `next` into k sorted indices. */
static void insert_index(int32_t *index, int k, int32_t next)
{
    for (; k > 0 && index[k - 1] > next; k--)
        index[k] = index[k - 1];
    index[k] = next;
}

#ifdef __AVX512F__
static void take_largest(const bits_of *bits, int n, int keep, int32_t *index)
{
    const __m512i below = _mm512_set1_epi32(-1), magnitude = _mm512_set1_epi32(MAGNITUDE);
    __m512i part[OF_FEW / 16];
    for (int i = 0; i < OF_FEW / 16; i++) {
        const int left = n - 16 * i;
        const __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (1u << left) - 1 : 0;
        part[i] = _mm512_mask_and_epi32(below, mask, _mm512_maskz_loadu_epi32(mask, bits + 16 * i),
                                        magnitude);
    }
    for (int k = 0; k < keep; k++) {
        const __m512i most = _mm512_set1_epi32(_mm512_reduce_max_epi32(_mm512_max_epi32(
            _mm512_max_epi32(part[0], part[1]), _mm512_max_epi32(part[2], part[3]))));
        uint64_t where = 0;
        for (int i = 0; i < OF_FEW / 16; i++)
            where |= (uint64_t)_mm512_cmpeq_epi32_mask(part[i], most) << 16 * i;
        const uint64_t first = where & -where;
        for (int i = 0; i < OF_FEW / 16; i++)
            part[i] = _mm512_mask_mov_epi32(part[i], (__mmask16)(first >> 16 * i), below);
        insert_index(index, k, __builtin_ctzll(where));
    }
}
#else
static int first_largest(const int32_t *keys, int n)
{
    int32_t most = -1;
    int first = n;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; i++)
        most = keys[i] > most ? keys[i] : most;
#pragma omp simd reduction(min : first)
    for (int i = 0; i < n; i++) {
        const int here = keys[i] == most ? i : n;
        first = here < first ? here : first;
    }
    return first;
}

static void take_largest(const bits_of *bits, int n, int keep, int32_t *index)
{
    int32_t keys[OF_FEW];
    for (int i = 0; i < n; i++)
        keys[i] = (int32_t)(bits[i] & MAGNITUDE);
    for (int k = 0; k < keep; k++) {
        const int first = first_largest(keys, n);
        keys[first] = -1; /* below any */
        insert_index(index, k, first);
    }
}
#endif

/* Takes many elements, or a few of many: first finds the elements that reach a bound, then takes of
 * these the elements that reach the border. */
static void take_reaching(const bits_of *bits, int n, int keep, uint32_t *room, int32_t *where,
                          int32_t *index)
{
    const int found = find_keys(bits, n, group_bound(bits, n, keep, room), room, where);
    const uint32_t least = threshold_key(room, found, keep, 0);
    int border = keep - count_keys(room, found, least + 1); /* of elements equal to the border, the
                                                               first */
    int k = 0, to = 0;
#ifdef __AVX512F__
    const bool none_left = count_keys(room, found, least) == keep; /* at the border: all are
                                                                      taken */
    for (; k + 16 <= found && none_left; k += 16) {
        const __mmask16 reach =
            _mm512_cmpge_epu32_mask(_mm512_loadu_si512(room + k), _mm512_set1_epi32((int)least));
        const __m512i those = _mm512_loadu_si512(where + k);
        _mm512_storeu_si512(where + to, _mm512_maskz_compress_epi32(reach, those));
        to += __builtin_popcount(reach);
    }
#endif
    for (; k < found; k++) { /* without an unpredictable branch */
        const int at = room[k] == least, takes = (room[k] > least) | (at & (border > 0));
        where[to] = where[k];
        to += takes;
        border -= at;
    }
    memcpy(index, where, (size_t)keep * sizeof *index);
}

/* A divisor w of indices of tiles: index / w as a multiplication. */
struct index_divisor {
    uint64_t by;
};

static struct index_divisor divisor_of(int w)
{
    return (struct index_divisor){((uint64_t)1 << 32) / (uint64_t)w + 1};
}

static int divide_index(int32_t index, struct index_divisor d)
{
    return (int)((uint64_t)index * d.by >> 32);
}

static void select_largest(const float *c, int rows, int w, size_t ld, int keep, uint32_t *keys,
                           uint32_t *room, int32_t *where, int32_t *index, float *value)
{
    const int n = rows * w;
    const bits_of *bits = (const bits_of *)c;
    if (ld != (size_t)w && rows > 1) {
        for (int r = 0; r < rows; r++)
            memcpy(keys + r * w, bits + (size_t)r * ld, (size_t)w * sizeof *keys);
        bits = keys;
    }
    if (keep <= FEW && n <= OF_FEW)
        take_largest(bits, n, keep, index);
    else
        take_reaching(bits, n, keep, room, where, index);
    const struct index_divisor by = divisor_of(w);
    for (int k = 0; k < keep; k++) {
        const int row = divide_index(index[k], by);
        value[k] = c[(size_t)row * ld + (size_t)(index[k] - row * w)];
    }
}

/* Computes `vectors` vectors of a row: the weighted sum of n rows of b. */
static inline __attribute__((always_inline)) void sum_row(int vectors, float *y,
                                                          const int32_t *index, const float *value,
                                                          int n, const float *b, size_t ld)
{
    vec sum[VECTORS];
    for (int j = 0; j < vectors; j++)
        sum[j] = (vec){0};
    for (int k = 0; k < n; k++) {
        for (int j = 0; j < vectors; j++)
            sum[j] += value[k] * *(const vec_at *)(b + (size_t)index[k] * ld + j * LANES);
    }
    for (int j = 0; j < vectors; j++)
        *(vec_at *)(y + j * LANES) = sum[j];
}

static void sum_tile_rows(float *y, int rows, int w, size_t ld, const int32_t *index,
                          const float *value, int n, const float *bw)
{
    const struct index_divisor by = divisor_of(w);
    size_t c = 0;
    for (; c + VECTORS * LANES <= ld && rows == 1; c += VECTORS * LANES)
        sum_row(VECTORS, y + c, index, value, n, bw + c, ld);
    for (; c < ld && rows == 1; c += LANES)
        sum_row(1, y + c, index, value, n, bw + c, ld);
    if (rows == 1)
        return;
    memset(y, 0, (size_t)rows * ld * sizeof *y);
    for (int k = 0; k < n; k++) { /* in order of index: rows have an unpredictable number */
        const int row = divide_index(index[k], by);
        float *to = y + (size_t)row * ld;
        const float *from = bw + (size_t)(index[k] - row * w) * ld;
        for (c = 0; c < ld; c += LANES)
            *(vec_at *)(to + c) += value[k] * *(const vec_at *)(from + c);
    }
}

static void fold_mirror(float *y, const float *x, int n)
{
    const int half = n / 2;
#pragma omp simd
    for (int i = 0; i < half; i++) {
        const float a = x[i], b = x[n - 1 - i];
        y[i] = a + b;
        y[half + i] = a - b;
    }
}

static void weave_pair(float *y, const float *a, const float *b, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        y[2 * i] = a[i];
        y[2 * i + 1] = b[i];
    }
}

static void mirror_columns(float *a, float *b, size_t n, bool back)
{
    if (back) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const float sum = a[i] + b[i], difference = a[i] - b[i];
            a[i] = difference;
            b[i] = sum;
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const float sum = a[i] + b[i], difference = b[i] - a[i];
            a[i] = sum;
            b[i] = difference;
        }
    }
}

static void subtract_vector(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] -= x[i];
}

static void sign_vector(float *y, const float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? 1 : x[i] < 0 ? -1 : x[i] + 0; /* 0, not -0; a NaN stays */
}

const struct codec_kernels KERNELS(fast_codec) = {
    .rows = dct_rows,
    .columns = dct_columns,
    .columns_back = dct_columns_back,
    .select = select_largest,
    .sum_rows = sum_tile_rows,
    .fold = fold_mirror,
    .weave = weave_pair,
    .mirror = mirror_columns,
    .subtract = subtract_vector,
    .sign = sign_vector,
};
