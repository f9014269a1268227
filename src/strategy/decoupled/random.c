/* Random replication (From et al. 2025): in every step the groups exchange the same pseudo-random
 * elements of their momenta. The seed and the round decide the elements, so only values are
 * sent. */
#include "strategy/decoupled/selection.h"

#include <math.h>

#include "tensor/ops.h"

struct random_config {
    struct decoupled_config decoupled;
    double rate;
    int64_t seed;
};

#define S struct random_config
static const struct option options[] = {
    OPTION_REAL(S, rate, "0.03125", 1e-12, 1, "share of the elements that a step exchanges"),
    OPTION_LONG(S, seed, "1", 0, 1e15, "seed of the choice of elements"),
    DECOUPLED_OPTIONS,
};
#undef S

struct random {
    struct selection selection;
    struct buffer index; /* (count) int32: the elements of a step */
    struct shuffle now;  /* of the step in progress */
};

static size_t elements_exchanged(double rate, size_t count)
{
    const size_t n = (size_t)(rate * (double)count);
    return count == 0 ? 0 : n < 1 ? 1 : n < count ? n : count;
}

static enum sotto_status choose_job(void *arg)
{
    struct random *m = arg;
    struct device *dev = m->selection.decoupled.base.is.dev;
    dev->ops->choose(dev, &m->now, m->index.view, m->index.count);
    return device_failed(dev);
}

/* Returns the cost of drawing an element, in bytes of memory: the index is written, and each step
 * of the shuffle's walk takes 2 ns on a core (docs/results/speed.md), as long as 24 bytes at
 * 12 GB/s. */
static double draw_bytes(const struct shuffle *s)
{
    const double walk = fmax(1, ((double)s->mask + 1) / (double)s->count);
    return sizeof(int32_t) + 24 * walk;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct random *m = (struct random *)r;
    const struct random_config *c = replicate_options(r);
    const struct picks picks = {.count = m->index.count};
    m->now = shuffle_make((uint64_t)c->seed, (uint64_t)plan->step, r->count);
    TRY(work_run(&r->on, choose_job, m, draw_bytes(&m->now) * (double)m->index.count));
    return selection_step(&m->selection, plan, scale, picks, m->index.view);
}

static void free_random(struct replicate *r)
{
    struct random *m = (struct random *)r;
    buffer_free(&m->index);
    selection_free(r);
}

static enum sotto_status init(struct replicate *r)
{
    struct random *m = (struct random *)r;
    const struct random_config *c = replicate_options(r);
    const size_t count = elements_exchanged(c->rate, r->count);
    if (r->count > INT32_MAX && r->is.dev->ops->alloc)
        return fail(SOTTO_EINVAL,
                    "random: a worker owns %zu elements, and can choose from at most %d; share the "
                    "parameters among the workers of a group (zero1, fsdp)",
                    r->count, INT32_MAX);
    TRY(selection_init(r, 0, count));
    return buffer_init(&m->index, r->is.dev, DTYPE_I32, count, MEMORY_COMMUNICATION);
}

static const struct replicate_ops ops = {
    .in_step = true,
    .bytes = sizeof(struct random),
    .init = init,
    .step = step,
    .ready = decoupled_ready,
    .visit = decoupled_visit,
    .free = free_random,
};

const struct method method_random = {
    .name = "random",
    .axis = METHOD_REPLICATE,
    .about = "groups exchange the same pseudo-random elements of their momenta in every step",
    METHOD_OPTIONS(struct random_config, options),
    METHOD_ONLY(decoupled_rules),
    .resolve = decoupled_resolve,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .replicate = &ops,
};
