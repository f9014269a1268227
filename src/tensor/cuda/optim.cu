/* Steps of optimizers: many stretches in one launch, a block inside one of them. */
#include "tensor/cuda/element.cuh"

namespace {

struct runs {
    run of[RUNS];
    unsigned first[RUNS + 1]; /* block of each, and one behind the last */
    int n;
};

enum { EACH = 4 * THREADS }; /* elements of a block */

template <class F> __global__ void runs_kernel(const __grid_constant__ runs list, F f)
{
    int k = 0;
    while (blockIdx.x >= list.first[k + 1])
        k++;
    const run &r = list.of[k];
    const size_t begin = (size_t)(blockIdx.x - list.first[k]) * EACH;
    for (int e = 0; e < 4; e++) {
        const size_t i = begin + (size_t)e * THREADS + threadIdx.x;
        if (i < r.count)
            f.step(r, i);
    }
}

template <class F> int each_run(stream_t s, F f, const run *from, int n)
{
    for (int at = 0; at < n; at += RUNS) {
        runs list = {};
        list.n = n - at < RUNS ? n - at : RUNS;
        for (int k = 0; k < list.n; k++) {
            list.of[k] = from[at + k];
            list.first[k + 1] =
                list.first[k] + (unsigned)((from[at + k].count + EACH - 1) / EACH);
        }
        if (list.first[list.n])
            runs_kernel<<<list.first[list.n], THREADS, 0, s>>>(list, f);
    }
    return cudaGetLastError();
}

struct adamw_each {
    adamw_step p;
    __device__ void step(const run &r, size_t i) const
    {
        const float g = get(r.g, i) * p.grad_scale, x = get(r.x, i);
        const float m = p.beta1 * get(r.m, i) + (1 - p.beta1) * g;
        const float v = p.beta2 * get(r.v, i) + (1 - p.beta2) * g * g;
        const float move = m / p.correct1 / (sqrtf(v / p.correct2) + p.eps);
        const float next = x - p.lr * (move + r.decay * x);
        if (r.theta.data)
            put(r.theta, i, next);
        if (p.peek)
            return;
        put(r.x, i, next);
        put(r.m, i, m);
        put(r.v, i, v);
    }
};

struct sgd_each {
    sgd_step p;
    __device__ void step(const run &r, size_t i) const
    {
        const float x = get(r.x, i), g = get(r.g, i) * p.grad_scale + r.decay * x;
        float velocity = g;
        if (r.m.data && !p.first)
            velocity = p.momentum * get(r.m, i) + g;
        const float move = p.nesterov && r.m.data ? g + p.momentum * velocity : velocity;
        const float next = x - p.lr * move;
        if (r.theta.data)
            put(r.theta, i, next);
        if (p.peek)
            return;
        put(r.x, i, next);
        if (r.m.data)
            put(r.m, i, velocity);
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
