/* Sums over ranks that share the GPU: a single thread adds an element in the order of all sums
 * (comm/comm.h), so results have the same bits as on the host. */
#include "tensor/cuda/kernels/element.cuh"

namespace {

struct ranks_each {
    ranks p;

    /* Rounds as the host does; a NaN stays NaN. */
    static __device__ float round_as_host(float x)
    {
        return __bfloat162float(__float2bfloat16_rn(x));
    }

    template <int V> __device__ void run(size_t i) const
    {
        const int half = p.half, all = p.nodes * p.each;
        few<V> total, node;
        for (int n = 0; n < all; n++) {
            const few<V> x = load_few<V>(vec{(void *)p.x[n], half}, i);
            const bool first = n % p.each == 0, last = n % p.each == p.each - 1;
            for (int e = 0; e < V; e++)
                node.at[e] = first ? x.at[e] : __fadd_rn(node.at[e], x.at[e]);
            if (!last)
                continue;
            for (int e = 0; e < V; e++) {
                const float sum =
                    half && p.each > 1 && p.nodes > 1 ? round_as_host(node.at[e]) : node.at[e];
                total.at[e] = n < p.each ? sum : __fadd_rn(total.at[e], sum);
            }
        }
        for (int n = 0; n < p.n_out; n++)
            store_few<V>(vec{p.out[n], half}, i, total);
    }
};

} // namespace

int launch_sum_ranks(stream_t s, const struct ranks *p, size_t count)
{
    bool four = true;
    for (int i = 0; i < p->nodes * p->each; i++)
        four = four && by_four(vec{(void *)p->x[i], p->half});
    for (int i = 0; i < p->n_out; i++)
        four = four && by_four(vec{p->out[i], p->half});
    return launch_each(s, ranks_each{*p}, count, four ? 4 : 1);
}
