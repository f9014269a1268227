/* Softmax cross-entropy of a row of logits, up to 50 thousand wide: the row is read from memory
 * once, and then again from the second cache. */
#include <math.h>

#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/math.h"

static float largest_logit(const float *x, int n)
{
    float m = x[0], m2 = x[0]; /* two chains: a single chain waits for itself */
    int half = n / 2;
#pragma omp simd reduction(max : m, m2)
    for (int i = 0; i < half; i++) {
        m = x[i] > m ? x[i] : m;
        m2 = x[half + i] > m2 ? x[half + i] : m2;
    }
    m = m2 > m ? m2 : m;
    return x[n - 1] > m ? x[n - 1] : m;
}

/* Blocks keep sums in fp32 lanes short; the sums are added in double. A block also prefetches the
 * next row's lines, which are read from memory while this row is computed. */
enum { BLOCK = 256 };

static void fetch_next_row(const float *x, int vocab)
{
    for (int i = 0; i < BLOCK; i += 16)
        __builtin_prefetch(x + vocab + i, 0, 2);
}

static double sum_exp(const float *x, float max, int n)
{
    double total = 0;
    for (int at = 0; at < n; at += BLOCK) {
        int end = n - at < BLOCK ? n : at + BLOCK;
        float sum = 0;
        fetch_next_row(x + at, n);
#pragma omp simd reduction(+ : sum)
        for (int i = at; i < end; i++)
            sum += fast_exp(x[i] - max);
        total += sum;
    }
    return total;
}

static double sum_exp_in_place(float *x, float max, int n)
{
    double total = 0;
    for (int at = 0; at < n; at += BLOCK) {
        int end = n - at < BLOCK ? n : at + BLOCK;
        float sum = 0;
        fetch_next_row(x + at, n);
#pragma omp simd reduction(+ : sum)
        for (int i = at; i < end; i++) {
            float e = fast_exp(x[i] - max);
            x[i] = e;
            sum += e;
        }
        total += sum;
    }
    return total;
}

/* Returns the target's place among the logits, counted from 1 and at most LAST. */
static uint8_t target_place(const float *x, int vocab, int target)
{
    enum { LAST = 255, PART = 1024 };
    const float own = x[target];
    int before = 0;
    if (own != own) /* a NaN is after all numbers */
        return LAST;
    for (int from = 0; from < vocab && before < LAST; from += PART) {
        const int to = vocab - from < PART ? vocab : from + PART;
        const int equal = target < from ? from : target < to ? target : to;
#pragma omp simd reduction(+ : before)
        for (int i = from; i < to; i++)
            before += x[i] > own;
#pragma omp simd reduction(+ : before)
        for (int i = from; i < equal; i++)
            before += x[i] == own;
    }
    return (uint8_t)(before < LAST ? before + 1 : LAST);
}

static float cross_entropy(float *logits, int vocab, int target, float scale, uint8_t *place)
{
    float max = largest_logit(logits, vocab);
    float chosen = logits[target];
    if (place)
        *place = target_place(logits, vocab, target);
    if (scale == 0)
        return (float)(log(sum_exp(logits, max, vocab)) - ((double)chosen - max));

    double sum = sum_exp_in_place(logits, max, vocab);
    float factor = (float)(scale / sum);
#pragma omp simd
    for (int i = 0; i < vocab; i++)
        logits[i] *= factor;
    logits[target] = (float)((double)scale * (exp((double)chosen - max) / sum - 1));
    return (float)(log(sum) - ((double)chosen - max));
}

const struct loss_kernels KERNELS(fast_loss) = {.cross_entropy = cross_entropy};
