/* Ops on flat vectors, and steps of optimizers. */
#include "tensor/cuda/cuda.h"

void cuda_fill(struct device *dev, struct view y, size_t count, float value)
{
    cuda_check(dev, launch_fill(cuda_stream(dev), cuda_vec(y), count, value), "fill");
}

void cuda_copy(struct device *dev, struct view y, struct view x, size_t count)
{
    stream_t s = cuda_stream(dev);
    if (y.type == x.type)
        cuda_check(dev,
                   cudaMemcpyAsync(y.data, x.data, count * dtype_size(y.type),
                                   cudaMemcpyDeviceToDevice, s),
                   "copy");
    else
        cuda_check(dev, launch_copy(s, cuda_vec(y), cuda_vec(x), count), "copy");
}

void cuda_call(struct device *dev, device_call *call, const struct view *v, int n, const void *arg,
               size_t bytes)
{
    (void)n, (void)bytes;
    const enum sotto_status st = call(cuda_stream(dev), v, arg);
    if (st != SOTTO_OK)
        device_fail(dev, st);
}

void cuda_sum_ranks(struct device *dev, const struct rank_sum *p, const struct view *out, int n_out,
                    const struct view *x)
{
    struct ranks r = {
        .nodes = p->nodes, .each = p->each, .n_out = n_out, .half = out[0].type == DTYPE_BF16};
    _Static_assert((int)LAUNCH_RANKS == (int)RANKS_MOST, "the ranks of ops.h");
    assert(n_out <= RANKS_MOST && p->nodes * p->each <= RANKS_MOST);
    for (int i = 0; i < p->nodes * p->each; i++)
        r.x[i] = view_at(x[rank_sum_turn(p, i)], p->begin).data;
    for (int i = 0; i < n_out; i++)
        r.out[i] = view_at(out[i], p->begin).data;
    cuda_check(dev, launch_sum_ranks(cuda_stream(dev), &r, p->end - p->begin), "add up");
}

void cuda_copy_rows(struct device *dev, const struct row_copy *p, struct view y, struct view x)
{
    cuda_check(dev,
               launch_copy_rows(cuda_stream(dev), cuda_vec(y), cuda_vec(x), p->batch, p->rows,
                                p->width, p->y_stride, p->x_stride, p->y_batch_stride,
                                p->x_batch_stride),
               "copy rows");
}

void cuda_axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
    cuda_axpby(dev, y, 1, a, x, count);
}

void cuda_axpby(struct device *dev, struct view y, float b, float a, struct view x, size_t count)
{
    cuda_check(dev, launch_axpby(cuda_stream(dev), cuda_vec(y), b, a, cuda_vec(x), count), "add");
}

void cuda_scale(struct device *dev, struct view y, float a, size_t count)
{
    cuda_check(dev, launch_scale(cuda_stream(dev), cuda_vec(y), a, count), "scale");
}

/* Computes up to CUDA_SUMS sums, with one wait for all. */
static double some_squares(struct device *dev, const struct vector_pair *p, int n, double *each,
                           double *parts)
{
    double *sums = cuda_of(dev)->flags->sums, sum = 0;
    stream_t s = cuda_stream(dev);
    for (int k = 0; k < n; k++)
        cuda_check(
            dev,
            launch_sum_squares(s, &sums[k], parts, cuda_vec(p[k].x), cuda_vec(p[k].y), p[k].count),
            "add up squares");
    cuda_check(dev, cudaStreamSynchronize(s), "add up squares");
    for (int k = 0; k < n; k++) {
        sum += sums[k];
        if (each)
            each[k] = sums[k];
    }
    return sum;
}

double cuda_sum_squares(struct device *dev, const struct vector_pair *p, int n, double *each)
{
    size_t most = 0;
    double sum = 0;
    for (int k = 0; k < n; k++)
        most = p[k].count > most ? p[k].count : most;
    double *parts = device_scratch(dev, (most / SQUARES_BLOCK + 1) * sizeof *parts);
    for (int at = 0; parts && at < n; at += CUDA_SUMS)
        sum += some_squares(dev, p + at, n - at < CUDA_SUMS ? n - at : CUDA_SUMS,
                            each ? each + at : NULL, parts);
    return sum;
}

void cuda_gelu_forward(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                       size_t count)
{
    cuda_check(
        dev,
        launch_gelu_forward(cuda_stream(dev), kind == GELU_EXACT, cuda_vec(y), cuda_vec(x), count),
        "compute gelu");
}

void cuda_gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx, struct view dy,
                        struct view x, size_t count)
{
    cuda_check(dev,
               launch_gelu_backward(cuda_stream(dev), kind == GELU_EXACT, cuda_vec(dx),
                                    cuda_vec(dy), cuda_vec(x), count),
               "compute gelu");
}

void cuda_gelu_bias_backward(struct device *dev, enum gelu_kind kind, int rows, int width,
                             struct view dx, struct view dbias, struct view dy, struct view x)
{
    double *parts = device_scratch(dev, column_parts(rows, width, 1) * sizeof *parts);
    if (parts)
        cuda_check(dev,
                   launch_gelu_bias_backward(cuda_stream(dev), kind == GELU_EXACT, rows, width,
                                             cuda_vec(dx), cuda_vec(dbias), cuda_vec(dy),
                                             cuda_vec(x), parts),
                   "compute gelu");
}

void cuda_swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                         size_t count)
{
    cuda_check(
        dev,
        launch_swiglu_forward(cuda_stream(dev), cuda_vec(y), cuda_vec(gate), cuda_vec(up), count),
        "compute swiglu");
}

void cuda_swiglu_backward(struct device *dev, struct view dgate, struct view dup, struct view dy,
                          struct view gate, struct view up, size_t count)
{
    cuda_check(dev,
               launch_swiglu_backward(cuda_stream(dev), cuda_vec(dgate), cuda_vec(dup),
                                      cuda_vec(dy), cuda_vec(gate), cuda_vec(up), count),
               "compute swiglu");
}

void cuda_relu_forward(struct device *dev, struct view y, struct view x, size_t count)
{
    cuda_check(dev, launch_relu_forward(cuda_stream(dev), cuda_vec(y), cuda_vec(x), count),
               "compute relu");
}

void cuda_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                        size_t count)
{
    cuda_check(
        dev, launch_relu_backward(cuda_stream(dev), cuda_vec(dx), cuda_vec(dy), cuda_vec(y), count),
        "compute relu");
}

/* Fills `to` with up to RUNS stretches, for one launch. Returns their number. */
static int take_runs(struct optim_run *to, const struct stretch *s, int n)
{
    n = n < RUNS ? n : RUNS;
    for (int i = 0; i < n; i++)
        to[i] = (struct optim_run){cuda_vec(s[i].x), cuda_vec(s[i].theta), cuda_vec(s[i].g),
                                   cuda_vec(s[i].m), cuda_vec(s[i].v),     s[i].count,
                                   s[i].decay};
    return n;
}

void cuda_adamw(struct device *dev, const struct adamw *p, const struct stretch *s, int n)
{
    const struct adamw_step step = {p->lr,       p->beta1,    p->beta2,      p->eps,
                                    p->correct1, p->correct2, p->grad_scale, p->peek};
    struct optim_run runs[RUNS];
    for (int at = 0; at < n;) {
        const int here = take_runs(runs, s + at, n - at);
        cuda_check(dev, launch_adamw(cuda_stream(dev), &step, runs, here), "step");
        at += here;
    }
}

void cuda_sgd(struct device *dev, const struct sgd *p, const struct stretch *s, int n)
{
    const struct sgd_step step = {p->lr,       p->momentum, p->grad_scale,
                                  p->nesterov, p->peek,     p->first};
    struct optim_run runs[RUNS];
    for (int at = 0; at < n;) {
        const int here = take_runs(runs, s + at, n - at);
        cuda_check(dev, launch_sgd(cuda_stream(dev), &step, runs, here), "step");
        at += here;
    }
}

void cuda_co2(struct device *dev, const struct co2_step *p, struct view x, struct view now,
              struct view m, struct view sent, struct view d, size_t count)
{
    const struct co2_update u = {p->mean, p->tau, p->alpha, p->beta, p->clip, p->lambda};
    cuda_check(dev,
               launch_co2(cuda_stream(dev), &u, x.data, now.data, m.data, sent.data, d.data, count),
               "step");
}
