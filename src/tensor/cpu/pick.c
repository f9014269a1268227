/* Selected elements of vectors, and packed signs: chunks over threads. No element is selected
 * twice, so threads may work on chunks at once. */
#include "tensor/cpu/cpu.h"

void cpu_choose(struct device *dev, const struct shuffle *p, struct view index, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK)
        k->vector->shuffle(p, at, (int32_t *)index.data + at, min_size(CHUNK, count - at));
}

/* Copies selected elements [at, at + n) of m to `value`. */
static void gather_selected(float *value, const float *m, const struct picks *p,
                            const int32_t *index, size_t at, size_t n)
{
    if (index) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            value[i] = m[index[at + i]];
        return;
    }
    const float *from = m + p->first + at * p->stride;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        value[i] = from[i * p->stride];
}

static void subtract_selected(float *m, const float *value, const struct picks *p,
                              const int32_t *index, size_t at, size_t n)
{
    float *from = m + p->first + at * p->stride;
    if (index)
        for (size_t i = 0; i < n; i++)
            m[index[at + i]] -= value[i];
    else
        for (size_t i = 0; i < n; i++)
            from[i * p->stride] -= value[i];
}

void cpu_pick(struct device *dev, const struct picks *p, struct view value, struct view m,
              struct view index)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, p->count))
    for (size_t at = 0; at < p->count; at += CHUNK) {
        float room[CHUNK];
        const size_t n = min_size(CHUNK, p->count - at);
        float *out = place_floats(value, at, room);
        gather_selected(out, m.data, p, index.data, at, n);
        store_floats(k, value, at, n, out);
        subtract_selected(m.data, load_floats(k, value, at, n, room), p, index.data, at, n);
    }
}

void cpu_put(struct device *dev, const struct picks *p, struct view y, float a, struct view value,
             struct view index)
{
    const struct kernels *k = kernels_of(dev);
    const int32_t *where = index.data;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, p->count))
    for (size_t at = 0; at < p->count; at += CHUNK) {
        float room[CHUNK];
        const size_t n = min_size(CHUNK, p->count - at);
        const float *from = load_floats(k, value, at, n, room);
        float *to = y.data;
        if (where)
            for (size_t i = 0; i < n; i++)
                to[where[at + i]] = a * from[i];
        else
            for (size_t i = 0; i < n; i++)
                to[p->first + (at + i) * p->stride] = a * from[i];
    }
}

_Static_assert(CHUNK % 4 == 0, "a chunk of signs is whole bytes");

void cpu_signs_pack(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK) {
        float room[CHUNK];
        const size_t n = min_size(CHUNK, count - at);
        k->vector->signs_pack((uint8_t *)y.data + at / 4, load_floats(k, x, at, n, room), n);
    }
}

void cpu_signs_unpack(struct device *dev, struct view y, struct view x, size_t count, bool add)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK) {
        float room[CHUNK], sum[CHUNK];
        const size_t n = min_size(CHUNK, count - at);
        float *out = add ? load_floats(k, y, at, n, sum) : place_floats(y, at, sum);
        float *signs = add ? room : out;
        k->vector->signs_unpack(signs, (const uint8_t *)x.data + at / 4, n);
        if (add)
            k->vector->add(out, signs, n);
        store_floats(k, y, at, n, out);
    }
}
