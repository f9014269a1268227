/* A method with memory of its own whose groups never agree, for docs/internals/adding-a-method.md.
 * EASGD (Zhang, Choromanska and LeCun 2015): every tau steps N groups x_i and a centre z pull at
 * each other. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"
#include "tensor/ops.h"

struct easgd_config {
    struct tau_config meets; /* first, for OPTION_TAU and METHOD_EVERY_TAU */
    double beta;
};

static const struct option options[] = {
    OPTION_TAU("steps between pulls"),
    OPTION_REAL(struct easgd_config, beta, "0.9", 0, 1,
                "share of the way to the groups' mean that the centre goes"),
};

struct easgd {
    struct replicate base;
    struct buffer z; /* centre, the same in all groups */
    struct buffer d; /* x_i - z, then its mean         */
};

/* The parameters were set: the centre begins there. */
static void anchor(struct replicate *r)
{
    struct easgd *e = (struct easgd *)r;
    r->is.dev->ops->copy(r->is.dev, e->z.view, r->x, r->count);
}

static enum sotto_status pull(struct easgd *e, float beta)
{
    struct replicate *r = &e->base;
    const struct view z = e->z.view, d = e->d.view;
    TRY(work_copy(&r->on, d, r->x, r->count));
    TRY(work_axpy(&r->on, d, -1, z, r->count));
    const float share = beta / (float)r->is.mesh->n_r;
    TRY(work_axpy(&r->on, r->x, -share, d, r->count)); /* x_i -= b/N (x_i - z) */
    TRY(replicate_mean(r, r->is.across, d));
    return work_axpy(&r->on, z, beta, d, r->count); /* z += b mean(x_i - z) */
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    const struct easgd_config *c = replicate_options(r);
    TRY(replicate_local_step(r, plan->lr, scale)); /* the optimizer's, on x_i                */
    if (!replicate_boundary(r, c->meets.tau))      /* counts; groups diverge from here on */
        return SOTTO_OK;
    TRY(pull((struct easgd *)r, (float)c->beta));
    TRY(replicate_publish(r)); /* x_i is what gradients are computed with */
    return replicate_agree(r); /* all groups' counts since the last pull  */
}

/* The model for evaluations and checkpoints; by default the groups' mean. */
static enum sotto_status truth(struct replicate *r, struct comm *across, struct view y)
{
    (void)across;
    return work_copy(&r->on, y, ((struct easgd *)r)->z.view, r->count);
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    TRY(replicate_visit(r, v)); /* the optimizer's state; x_i, as groups diverge */
    if (!r->from.same)          /* another method's checkpoint: z is as `anchor` has set it */
        return SOTTO_OK;
    return replicate_visit_vector(r, v, "outer.z", &((struct easgd *)r)->z);
}

static enum sotto_status init(struct replicate *r)
{
    struct easgd *e = (struct easgd *)r;
    TRY(replicate_buffer(r, &e->z, MEMORY_OUTER));
    return replicate_buffer(r, &e->d, MEMORY_COMMUNICATION);
}

/* Also where init has failed half-way. */
static void free_easgd(struct replicate *r)
{
    struct easgd *e = (struct easgd *)r;
    buffer_free(&e->z);
    buffer_free(&e->d);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct easgd),
    .init = init,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .truth = truth,
    .free = free_easgd,
};

extern const struct method method_easgd;
const struct method method_easgd = {
    .name = "easgd",
    .axis = METHOD_REPLICATE,
    .about = "EASGD: groups and a centre pull at each other every tau steps",
    METHOD_OPTIONS(struct easgd_config, options),
    METHOD_EVERY_TAU,
    .replicate = &ops,
};
