/* Steps of optimizers: many stretches in one launch, each block inside a single stretch.
 *
 * An element is computed with seven others or alone, depending on the ends of its stretch, and has
 * the same bits either way, so workers may share a vector in any slices. Therefore fused
 * multiply-adds are explicit: in a sum of two products a compiler may fuse either product, and a
 * different product in each path. The formulas are those of cpu/simd/optim.c. */
#include "tensor/cuda/kernels/element.cuh"

namespace {

struct runs {
    optim_run of[RUNS];
    bool eight[RUNS];         /* can be loaded by eight */
    unsigned first[RUNS + 1]; /* first block of each stretch; the last entry is the number of
                                 blocks */
    int n;
};

enum { EACH = 8 * THREADS }; /* elements of a block */

template <class F> __global__ void runs_kernel(const __grid_constant__ runs list, F f)
{
    int k = 0;
    while (blockIdx.x >= list.first[k + 1])
        k++;
    const optim_run &r = list.of[k];
    const size_t begin = (size_t)(blockIdx.x - list.first[k]) * EACH;
    if (list.eight[k] && begin + EACH <= r.count) {
        f.template step<8>(r, begin + threadIdx.x * 8);
        return;
    }
    for (size_t i = begin + threadIdx.x; i < r.count && i < begin + EACH; i += THREADS)
        f.template step<1>(r, i);
}

template <class F> int each_run(stream_t s, F f, const optim_run *from, int n)
{
    for (int at = 0; at < n; at += RUNS) {
        runs list = {};
        list.n = n - at < RUNS ? n - at : RUNS;
        for (int k = 0; k < list.n; k++) {
            const optim_run &r = from[at + k];
            list.of[k] = r;
            list.eight[k] = lanes_of(r.x, r.theta, r.g, r.m, r.v) == 8;
            list.first[k + 1] = list.first[k] + (unsigned)((r.count + EACH - 1) / EACH);
        }
        if (list.first[list.n])
            runs_kernel<<<list.first[list.n], THREADS, 0, s>>>(list, f);
    }
    return cudaGetLastError();
}

/* AdamW with its constants folded. */
struct adamw_each {
    float g, b1, c1, b2, c2; /* factors of g, m, g, v, g^2 */
    float lr, rate;          /* rate: lr / correct1        */
    float root, eps;         /* 1 / sqrt(correct2)         */
    int peek;
    template <int V> __device__ void step(const optim_run &r, size_t i) const
    {
        const few<V> grad = load_few<V>(r.g, i);
        const float keep = fmaf(-lr, r.decay, 1);
        few<V> x = load_few<V>(r.x, i), m = load_few<V>(r.m, i), v = load_few<V>(r.v, i);
        for (int e = 0; e < V; e++) {
            const float d = g * grad.at[e];
            m.at[e] = fmaf(b1, m.at[e], c1 * d);
            v.at[e] = fmaf(b2, v.at[e], c2 * d * d);
            x.at[e] = fmaf(keep, x.at[e], -(rate * m.at[e] / fmaf(sqrtf(v.at[e]), root, eps)));
        }
        if (r.theta.data)
            store_few<V>(r.theta, i, x);
        if (peek)
            return;
        store_few<V>(r.x, i, x);
        store_few<V>(r.m, i, m);
        store_few<V>(r.v, i, v);
    }
};

struct sgd_each {
    sgd_step p;
    template <int V> __device__ void step(const optim_run &r, size_t i) const
    {
        const few<V> g = load_few<V>(r.g, i);
        const few<V> m = r.m.data && !p.first ? load_few<V>(r.m, i) : few<V>{};
        few<V> x = load_few<V>(r.x, i), velocity;
        for (int e = 0; e < V; e++) {
            const float d = fmaf(g.at[e], p.grad_scale, r.decay * x.at[e]);
            velocity.at[e] = r.m.data && !p.first ? fmaf(p.momentum, m.at[e], d) : d;
            const float ahead = __fadd_rn(d, __fmul_rn(p.momentum, velocity.at[e]));
            x.at[e] = fmaf(-p.lr, p.nesterov && r.m.data ? ahead : velocity.at[e], x.at[e]);
        }
        if (r.theta.data)
            store_few<V>(r.theta, i, x);
        if (p.peek)
            return;
        store_few<V>(r.x, i, x);
        if (r.m.data)
            store_few<V>(r.m, i, velocity);
    }
};

struct co2_each {
    co2_update p;
    float *x, *now, *m, *sent, *d;
    template <int V> __device__ void run(size_t i) const
    {
        const float before = now[i], moved = before - x[i];
        const float momentum = fmaf(p.beta, m[i], p.mean * sent[i] / p.lambda);
        const float next = fmaf(-p.alpha, fmaxf(-p.clip, fminf(momentum, p.clip)), before);
        float lambda = 1;
        if (d)
            lambda += fabsf(next - before) / fmaf(p.tau, fabsf(p.mean * d[i]), 1e-12f);
        m[i] = momentum;
        now[i] = next;
        sent[i] = moved / lambda;
        x[i] = before;
    }
};

} // namespace

int launch_adamw(stream_t s, const adamw_step *p, const optim_run *list, int n)
{
    const adamw_each step = {p->grad_scale,
                             p->beta1,
                             1 - p->beta1,
                             p->beta2,
                             1 - p->beta2,
                             p->lr,
                             p->lr / p->correct1,
                             1 / sqrtf(p->correct2),
                             p->eps,
                             p->peek};
    return each_run(s, step, list, n);
}

int launch_sgd(stream_t s, const sgd_step *p, const optim_run *list, int n)
{
    return each_run(s, sgd_each{*p}, list, n);
}

int launch_co2(stream_t s, const co2_update *p, float *x, float *now, float *m, float *sent,
               float *d, size_t n)
{
    return launch_each_one(s, co2_each{*p, x, now, m, sent, d}, n);
}
