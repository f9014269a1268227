/* Optimizer steps in a single pass over memory, which is the whole cost. A step and a peek share
 * their formula, so a peek at a step and the step agree in every bit. */
#include <math.h>

#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/math.h"

/* AdamW (Loshchilov and Hutter 2019, algorithm 2) with its constants folded. */
struct adamw_terms {
    float g, b1, c1, b2, c2; /* factors of g, m, g, v, g^2   */
    float keep, step;        /* 1 - lr decay, lr / correct1  */
    float root, eps;         /* 1 / sqrt(correct2)           */
};

static struct adamw_terms fold_adamw(const struct adamw *p, float decay)
{
    return (struct adamw_terms){.g = p->grad_scale,
                                .b1 = p->beta1,
                                .c1 = 1 - p->beta1,
                                .b2 = p->beta2,
                                .c2 = 1 - p->beta2,
                                .keep = 1 - p->lr * decay,
                                .step = p->lr / p->correct1,
                                .root = 1 / sqrtf(p->correct2),
                                .eps = p->eps};
}

/* A moment without gradients, for example of a token that has become rare, shrinks until it is
 * denormal and stays denormal, since rounding keeps the moment from zero; processors take twenty
 * times as long for denormal numbers. So m becomes zero earlier, where its product with a step size
 * would be denormal too, and v, whose root divides m, shrinks no further. */
static const float LEAST_M = 0x1p-100f, LEAST_V = 0x1p-120f;

static inline float unless_faded(float m)
{
    return fabsf(m) < LEAST_M ? 0 : m;
}

static inline float floor_moment(float v)
{
    return v > 0 && v < LEAST_V ? LEAST_V : v;
}

static inline float adamw_one(const struct adamw_terms *t, float x, float g, float *m, float *v)
{
    g *= t->g;
    *m = unless_faded(mul_add(t->b1, *m, t->c1 * g));
    *v = floor_moment(mul_add(t->b2, *v, t->c2 * g * g));
    return mul_add(t->keep, x, -(t->step * *m / mul_add(sqrtf(*v), t->root, t->eps)));
}

static void adamw_step(const struct adamw *p, float decay, float *restrict x,
                       const float *restrict g, float *restrict m, float *restrict v, size_t n)
{
    const struct adamw_terms t = fold_adamw(p, decay);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = adamw_one(&t, x[i], g[i], &m[i], &v[i]);
}

static void adamw_peek(const struct adamw *p, float decay, float *restrict theta,
                       const float *restrict x, const float *restrict g, const float *restrict m,
                       const float *restrict v, size_t n)
{
    const struct adamw_terms t = fold_adamw(p, decay);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float m_next = m[i], v_next = v[i];
        theta[i] = adamw_one(&t, x[i], g[i], &m_next, &v_next);
    }
}

static inline float sgd_one(const struct sgd *p, float decay, float keep, float take, float look,
                            float x, float g, float *m)
{
    g = mul_add(g, p->grad_scale, decay * x);
    *m = unless_faded(mul_add(keep, *m, g));
    return mul_add(-p->lr, mul_add(take, g, look * *m), x);
}

/* m <- keep m + g; the step is take g + look m. */
static void sgd_step(const struct sgd *p, float decay, float *restrict x, const float *restrict g,
                     float *restrict m, size_t n)
{
    float keep = p->first ? 0 : p->momentum;
    float take = m && !p->nesterov ? 0 : 1, look = !m ? 0 : p->nesterov ? p->momentum : 1;
    if (m) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            x[i] = sgd_one(p, decay, keep, take, look, x[i], g[i], &m[i]);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float none = 0;
        x[i] = sgd_one(p, decay, keep, take, look, x[i], g[i], &none);
    }
}

static void sgd_peek(const struct sgd *p, float decay, float *restrict theta,
                     const float *restrict x, const float *restrict g, const float *restrict m,
                     size_t n)
{
    float keep = p->first ? 0 : p->momentum;
    float take = m && !p->nesterov ? 0 : 1, look = !m ? 0 : p->nesterov ? p->momentum : 1;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float m_next = m ? m[i] : 0;
        theta[i] = sgd_one(p, decay, keep, take, look, x[i], g[i], &m_next);
    }
}

const struct optim_kernels KERNELS(fast_optim) = {
    .adamw_step = adamw_step,
    .adamw_peek = adamw_peek,
    .sgd_step = sgd_step,
    .sgd_peek = sgd_peek,
};
