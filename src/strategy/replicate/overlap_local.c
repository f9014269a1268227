/* Overlap-Local-SGD (Wang, Liang and Joshi 2020): groups are pulled towards an anchor whose average
 * is in flight while the groups step, one boundary stale. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

#include "tensor/ops.h"

#define S struct momentum_config
static const struct option options[] = {
    OPTION_TAU("steps between boundaries"),
    OPTION_REAL(S, alpha, "0.6", 0, 100, "pull towards the anchor"),
    OPTION_REAL(S, beta, "0.7", 0, 1, "momentum of the anchor"),
};
#undef S

struct overlap_local {
    struct replicate base;
    struct buffer z;  /* anchor                                    */
    struct buffer v;  /* velocity of the anchor, each group's own  */
    struct buffer to; /* z - lr v, the next z: average in flight   */
    struct lane *lane;
    struct comm *across;
    bool in_flight;
    struct group_totals sent; /* summed with `to` */
};

static void anchor(struct replicate *r)
{
    struct overlap_local *o = (struct overlap_local *)r;
    r->is.dev->ops->copy(r->is.dev, o->z.view, r->x, r->count);
    r->is.dev->ops->fill(r->is.dev, o->v.view, r->count, 0);
    o->in_flight = false;
}

static enum sotto_status average_anchor(void *arg)
{
    struct overlap_local *o = arg;
    struct replicate *r = &o->base;
    TRY(comm_allreduce(o->across, o->to.view, o->to.view, r->count));
    return group_totals_sum(&o->sent, o->across);
}

/* Waits for the average that the last boundary started, and takes it as the anchor z. */
static enum sotto_status adopt_anchor(struct overlap_local *o)
{
    struct replicate *r = &o->base;
    if (!o->in_flight)
        return SOTTO_OK;
    TRY(lane_wait(o->lane));
    TRY(work_copy(&r->on, o->z.view, o->to.view, r->count));
    TRY(work_scale(&r->on, o->z.view, 1 / (float)r->is.mesh->n_r, r->count));
    group_totals_report(&o->sent, r);
    o->in_flight = false;
    return SOTTO_OK;
}

/* Pulls x towards the new anchor z, updates the velocity, and prepares the next average in `to`. */
static enum sotto_status pull_to_anchor(struct overlap_local *o, double inner_lr)
{
    struct replicate *r = &o->base;
    const struct momentum_config *c = replicate_options(r);
    const struct work *on = &r->on;
    const struct view z = o->z.view, v = o->v.view, to = o->to.view;
    const float a = (float)c->alpha, lr = (float)inner_lr;
    TRY(work_scale(on, r->x, 1 - a, r->count));
    TRY(work_axpy(on, r->x, a, z, r->count)); /* x <- (1-a) x + a z           */
    TRY(work_scale(on, v, (float)c->beta, r->count));
    if (!replicate_divides(inner_lr)) /* limit lr -> 0: lr v -> z - x, and v gains 0 */
        return work_copy(on, to, r->x, r->count);
    TRY(work_axpy(on, v, 1 / lr, z, r->count));
    TRY(work_axpy(on, v, -1 / lr, r->x, r->count)); /* v <- b v + (z - x)/lr        */
    TRY(work_copy(on, to, z, r->count));
    return work_axpy(on, to, -lr, v, r->count); /* z - lr v                     */
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct overlap_local *o = (struct overlap_local *)r;
    TRY(replicate_local_step(r, plan->lr, scale));
    if (!replicate_boundary(r, tau_every(replicate_options(r))))
        return SOTTO_OK;
    TRY(adopt_anchor(o)); /* z, and the groups' votes */
    TRY(pull_to_anchor(o, plan->lr));
    TRY(replicate_publish(r));
    o->in_flight = true;
    group_totals_take(&o->sent, r);
    return lane_start(o->lane, average_anchor, o); /* of z - lr v, during tau steps */
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct overlap_local *o = (struct overlap_local *)r;
    int64_t in_flight = o->in_flight;
    if (!state_loading(v) && o->in_flight)
        TRY(lane_wait(o->lane)); /* saved values are equal in all groups */
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(replicate_visit_vector(r, v, "outer.z", &o->z));
    TRY(state_count(v, "outer.under_way", &in_flight, 1));
    o->in_flight = in_flight;
    if (o->in_flight)
        TRY(replicate_visit_sum(r, v, "outer.to", &o->to));
    return replicate_visit_own(r, v, "velocity", "v", &o->v);
}

static void free_overlap_local(struct replicate *r)
{
    struct overlap_local *o = (struct overlap_local *)r;
    if (o->lane)
        lane_wait(o->lane);
    buffer_free(&o->z);
    buffer_free(&o->v);
    buffer_free(&o->to);
}

static enum sotto_status init(struct replicate *r)
{
    struct overlap_local *o = (struct overlap_local *)r;
    struct mesh *mesh = r->is.mesh;
    TRY(replicate_buffer(r, &o->z, MEMORY_OUTER));
    TRY(replicate_buffer(r, &o->v, MEMORY_OUTER));
    TRY(replicate_buffer(r, &o->to, MEMORY_COMMUNICATION));
    TRY(mesh_lane(mesh, r->is.across, &o->lane));
    return mesh_duplicate(mesh, mesh->replicate, o->lane, &o->across);
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct overlap_local),
    .init = init,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_overlap_local,
};

const struct method method_overlap_local = {
    .name = "overlap-local",
    .axis = METHOD_REPLICATE,
    .about =
        "Overlap-Local-SGD: groups are pulled towards an anchor whose average is in flight while "
        "the groups step, one boundary late",
    METHOD_OPTIONS(struct momentum_config, options),
    METHOD_EVERY_TAU,
    .replicate = &ops,
};
