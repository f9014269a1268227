/* Pairs of queries and keys in attention, and the offsets of a head's rows. */
#ifndef SOTTO_TENSOR_CUDA_ATTEND_CUH
#define SOTTO_TENSOR_CUDA_ATTEND_CUH

#include "tensor/cuda/kernels/launch.h"

static __device__ __forceinline__ bool query_sees(const attention_shape &p, int i, int j)
{
    const int position = p.t_k - p.t_q + i;
    return p.whole ? j < p.t_k
                   : j <= position && (p.window <= 0 || j > position - p.window);
}

struct index_range {
    int begin, end;
};

/* Return the keys that queries [i, i + n) may see, and the queries that may see keys [j, j + n). */
static __device__ __forceinline__ index_range keys_of(const attention_shape &p, int i, int n)
{
    if (p.whole)
        return index_range{0, p.t_k};
    const int first = p.t_k - p.t_q + i, end = min(first + n, p.t_k);
    return index_range{p.window > 0 ? max(first - p.window + 1, 0) : 0, end};
}

static __device__ __forceinline__ index_range queries_of(const attention_shape &p, int j, int n)
{
    if (p.whole)
        return index_range{0, p.t_q};
    const int before = p.t_k - p.t_q;
    const int end = p.window > 0 ? min(j + n - 1 + p.window - before, p.t_q) : p.t_q;
    return index_range{max(j - before, 0), end};
}

/* Offsets of the first row of a query head in q, o and lse, and of its key head in k and v. */
struct heads_at {
    size_t q, k, v, o, lse;
};

static __device__ __forceinline__ heads_at heads_of(const attention_shape &p, int b, int head)
{
    const int kv = head / (p.heads / p.kv_heads);
    heads_at at;
    at.q = (size_t)b * p.t_q * p.q_stride + (size_t)head * p.width;
    at.o = (size_t)b * p.t_q * p.o_stride + (size_t)head * p.width;
    at.k = b * p.k_batch + (size_t)kv * p.width;
    at.v = b * p.v_batch + (size_t)kv * p.width;
    at.lse = ((size_t)b * p.heads + head) * p.t_q;
    return at;
}

#endif
