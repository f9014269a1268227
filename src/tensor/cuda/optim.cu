/* Steps of optimizers: many stretches in one launch, a block inside one of them. */
#include "tensor/cuda/element.cuh"

namespace {

struct runs {
    run of[RUNS];
    bool eight[RUNS];         /* can be loaded by eight */
    unsigned first[RUNS + 1]; /* block of each, and one behind the last */
    int n;
};

enum { EACH = 8 * THREADS }; /* elements of a block */

template <class F> __global__ void runs_kernel(const __grid_constant__ runs list, F f)
{
    int k = 0;
    while (blockIdx.x >= list.first[k + 1])
        k++;
    const run &r = list.of[k];
    const size_t begin = (size_t)(blockIdx.x - list.first[k]) * EACH;
    if (list.eight[k] && begin + EACH <= r.count) {
        f.template step<8>(r, begin + threadIdx.x * 8);
        return;
    }
    for (size_t i = begin + threadIdx.x; i < r.count && i < begin + EACH; i += THREADS)
        f.template step<1>(r, i);
}

template <class F> int each_run(stream_t s, F f, const run *from, int n)
{
    for (int at = 0; at < n; at += RUNS) {
        runs list = {};
        list.n = n - at < RUNS ? n - at : RUNS;
        for (int k = 0; k < list.n; k++) {
            const run &r = from[at + k];
            list.of[k] = r;
            list.eight[k] = lanes_of(r.x, r.theta, r.g, r.m, r.v) == 8;
            list.first[k + 1] = list.first[k] + (unsigned)((r.count + EACH - 1) / EACH);
        }
        if (list.first[list.n])
            runs_kernel<<<list.first[list.n], THREADS, 0, s>>>(list, f);
    }
    return cudaGetLastError();
}

struct adamw_each {
    adamw_step p;
    template <int V> __device__ void step(const run &r, size_t i) const
    {
        const few<V> g = load<V>(r.g, i);
        few<V> x = load<V>(r.x, i), m = load<V>(r.m, i), v = load<V>(r.v, i);
        for (int e = 0; e < V; e++) {
            const float d = g.at[e] * p.grad_scale;
            m.at[e] = p.beta1 * m.at[e] + (1 - p.beta1) * d;
            v.at[e] = p.beta2 * v.at[e] + (1 - p.beta2) * d * d;
            const float move = m.at[e] / p.correct1 / (sqrtf(v.at[e] / p.correct2) + p.eps);
            x.at[e] -= p.lr * (move + r.decay * x.at[e]);
        }
        if (r.theta.data)
            store<V>(r.theta, i, x);
        if (p.peek)
            return;
        store<V>(r.x, i, x);
        store<V>(r.m, i, m);
        store<V>(r.v, i, v);
    }
};

struct sgd_each {
    sgd_step p;
    template <int V> __device__ void step(const run &r, size_t i) const
    {
        const few<V> g = load<V>(r.g, i);
        const few<V> m = r.m.data && !p.first ? load<V>(r.m, i) : few<V>{};
        few<V> x = load<V>(r.x, i), velocity;
        for (int e = 0; e < V; e++) {
            const float d = g.at[e] * p.grad_scale + r.decay * x.at[e];
            velocity.at[e] = r.m.data && !p.first ? p.momentum * m.at[e] + d : d;
            x.at[e] -= p.lr * (p.nesterov && r.m.data ? d + p.momentum * velocity.at[e]
                                                      : velocity.at[e]);
        }
        if (r.theta.data)
            store<V>(r.theta, i, x);
        if (p.peek)
            return;
        store<V>(r.x, i, x);
        if (r.m.data)
            store<V>(r.m, i, velocity);
    }
};

struct co2_each {
    co2_update p;
    float *x, *now, *m, *sent, *d;
    template <int V> __device__ void run(size_t i) const
    {
        const float before = now[i], moved = before - x[i];
        const float momentum = p.beta * m[i] + p.mean * sent[i] / p.lambda;
        const float next = before - p.alpha * fmaxf(-p.clip, fminf(momentum, p.clip));
        float lambda = 1;
        if (d)
            lambda += fabsf(next - before) / (p.tau * fabsf(p.mean * d[i]) + 1e-12f);
        m[i] = momentum;
        now[i] = next;
        sent[i] = moved / lambda;
        x[i] = before;
    }
};

} // namespace

int launch_adamw(stream_t s, const adamw_step *p, const run *list, int n)
{
    return each_run(s, adamw_each{*p}, list, n);
}

int launch_sgd(stream_t s, const sgd_step *p, const run *list, int n)
{
    return each_run(s, sgd_each{*p}, list, n);
}

int launch_co2(stream_t s, const co2_update *p, float *x, float *now, float *m, float *sent,
               float *d, size_t n)
{
    return each_one(s, co2_each{*p, x, now, m, sent, d}, n);
}
