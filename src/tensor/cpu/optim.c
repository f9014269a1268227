/* Optimizer steps over flat state: one pass, chunk by chunk, theta written while x is in the
 * cache. */
#include <assert.h>
#include <math.h>

#include "tensor/cpu/cpu.h"

/* Returns the threads for a step over all stretches. */
static int stretches_team(const struct device *dev, const struct stretch *s, int n)
{
    size_t all = 0;
    for (int i = 0; i < n; i++)
        all += s[i].count;
    return team_size(dev, all);
}

/* Steps a stretch. Runs on every thread of a team; threads wait only after the last stretch. */
static void cpu_adamw_stretch(struct device *dev, const struct adamw *p, const struct stretch *s)
{
    const struct kernels *k = kernels_of(dev);
    const struct view x = s->x, theta = s->theta, g = s->g, m = s->m, v = s->v;
    const size_t count = s->count;
    assert(theta.data || !p->peek);
    const size_t chunks = (count + CHUNK - 1) / CHUNK;
#pragma omp for schedule(dynamic, chunks_per_turn(chunks, thread_count())) nowait
    for (size_t c = 0; c < chunks; c++) {
        float x_room[CHUNK], g_room[CHUNK], m_room[CHUNK], v_room[CHUNK], theta_room[CHUNK];
        size_t at = c * CHUNK, n = min_size(CHUNK, count - at);
        float *x_c = load_floats(k, x, at, n, x_room), *g_c = load_floats(k, g, at, n, g_room);
        float *m_c = load_floats(k, m, at, n, m_room), *v_c = load_floats(k, v, at, n, v_room);
        if (p->peek) {
            float *out = theta.data == g.data ? theta_room : place_floats(theta, at, theta_room);
            k->optim->adamw_peek(p, s->decay, out, x_c, g_c, m_c, v_c, n);
            store_floats(k, theta, at, n, out);
            continue;
        }
        k->optim->adamw_step(p, s->decay, x_c, g_c, m_c, v_c, n);
        store_floats(k, theta, at, n, x_c);
        store_floats(k, x, at, n, x_c);
        store_floats(k, m, at, n, m_c);
        store_floats(k, v, at, n, v_c);
    }
}

void cpu_adamw(struct device *dev, const struct adamw *p, const struct stretch *s, int n)
{
    const int threads = stretches_team(dev, s, n);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < n; i++)
        cpu_adamw_stretch(dev, p, &s[i]);
}

/* As cpu_adamw_stretch. */
static void cpu_sgd_stretch(struct device *dev, const struct sgd *p, const struct stretch *s)
{
    const struct kernels *k = kernels_of(dev);
    const struct view x = s->x, theta = s->theta, g = s->g, m = s->m;
    const size_t count = s->count;
    assert(theta.data || !p->peek);
    assert(m.data || p->momentum == 0);
    const size_t chunks = (count + CHUNK - 1) / CHUNK;
#pragma omp for schedule(dynamic, chunks_per_turn(chunks, thread_count())) nowait
    for (size_t c = 0; c < chunks; c++) {
        float x_room[CHUNK], g_room[CHUNK], m_room[CHUNK], theta_room[CHUNK];
        size_t at = c * CHUNK, n = min_size(CHUNK, count - at);
        float *x_c = load_floats(k, x, at, n, x_room), *g_c = load_floats(k, g, at, n, g_room);
        float *m_c = load_floats(k, m, at, n, m_room);
        if (p->peek) {
            float *out = theta.data == g.data ? theta_room : place_floats(theta, at, theta_room);
            k->optim->sgd_peek(p, s->decay, out, x_c, g_c, m_c, n);
            store_floats(k, theta, at, n, out);
            continue;
        }
        k->optim->sgd_step(p, s->decay, x_c, g_c, m_c, n);
        store_floats(k, theta, at, n, x_c);
        store_floats(k, x, at, n, x_c);
        store_floats(k, m, at, n, m_c);
    }
}

void cpu_sgd(struct device *dev, const struct sgd *p, const struct stretch *s, int n)
{
    const int threads = stretches_team(dev, s, n);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < n; i++)
        cpu_sgd_stretch(dev, p, &s[i]);
}

/* An outer update happens every tau steps at most, so plain loops are fast enough. */
void cpu_co2(struct device *dev, const struct co2_step *p, struct view x_view, struct view now_view,
             struct view m_view, struct view sent_view, struct view d_view, size_t count)
{
    const float eps = 1e-12f;
    float *x = x_view.data, *now = now_view.data, *m = m_view.data, *sent = sent_view.data;
    const float *d = d_view.data;
#pragma omp parallel for simd schedule(static) num_threads(team_size(dev, count))
    for (size_t i = 0; i < count; i++) {
        m[i] = p->beta * m[i] + p->mean * sent[i] / p->lambda;
        float before = now[i], moved = before - x[i];
        now[i] = before - p->alpha * fmaxf(-p->clip, fminf(m[i], p->clip));
        if (d)
            moved /= fabsf(now[i] - before) / (p->tau * fabsf(p->mean * d[i]) + eps) + 1;
        sent[i] = moved;
        x[i] = before;
    }
}
