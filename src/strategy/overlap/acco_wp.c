/* ACCO with weight prediction instead of two halves (ACCO, section 3.2): as DPU, but gradients are
 * computed where the parameters will probably be when they are applied.
 *
 *   g(t) at est(t+1)   beside   theta(t+1) = step(theta(t), gbar(t-1)),
 *                               est(t+2)   = peek(theta(t+1), gbar(t-1))
 *
 * Between rounds what is computed with is the estimate; evaluations and checkpoints gather theta.
 * Behind parameters that were pulled from a server (async-diloco) est is theta itself, so that it
 * makes no difference whether a group pulls in a step or behind a meeting of all. */
#include "strategy/method.h"
#include "strategy/overlap/overlap.h"

/* The step leaves the gradient in its place, since nobody computes with theta(t+1) itself. */
static void hide_theta(struct replicate *r, bool hide)
{
    for (int k = 0; k < r->is.n_part; k++) {
        r->is.part[k].copied = !hide;
        r->is.part[k].theta = hide ? view_none : r->is.part[k].g;
    }
}

static enum sotto_status apply_and_predict(void *arg)
{
    struct overlap *o = arg;
    struct replicate *r = o->shard.replicate;
    double scale;
    TRY(overlap_reduce(o, o->plan.want_norm, &scale)); /* gbar = sum g / sum N            */
    hide_theta(r, true);
    TRY(replicate_step(r, &o->plan, scale)); /* theta <- step(theta, gbar)      */
    hide_theta(r, false);
    if (overlap_pulled(o))
        TRY(replicate_publish(r)); /* est   <- theta, which is another  */
    else
        TRY(replicate_peek(r, o->plan.next_lr, scale)); /* est   <- peek(theta, gbar)      */
    return overlap_gather(o);
}

static enum sotto_status run_round(struct strategy *s, const struct plan *plan, struct round *out)
{
    struct overlap *o = (struct overlap *)s;
    TRY(overlap_begin(o, plan, true)); /* g(t-1): the last round's, or one micro-batch */
    if (overlap_idle(o))
        return overlap_sit_out(o, out);
    TRY(overlap_send(o));
    TRY(overlap_compute(o, apply_and_predict)); /* g(t) at est(t+1)                         */
    overlap_take(o);                            /* est(t+2)                                 */
    return overlap_end(o, out);
}

/* Whose estimates there are: those of groups that differ are each one's own, and of no use to
 * another number of them, which begin with theta itself, as where nothing was predicted yet. */
static enum sotto_status enter(struct overlap *o, struct state_visitor *v, bool *found)
{
    const struct replicate *r = o->shard.replicate;
    const struct mesh *mesh = r->is.mesh;
    const bool loads = state_loading(v), own = !r->ops->in_step;
    const bool saves = !loads && o->shard.carried;
    *found = true;
    if (own && (loads ? state_has(v, "ests.") && r->from.groups == mesh->n_r
                      : saves && mesh->s == 0)) /* by the first of a group */
        return state_enter_own(v, "ests", mesh->r, mesh->n_r);
    if (loads ? state_has(v, "est.") : saves && !own)
        return state_enter(v, "est");
    *found = false;
    return SOTTO_OK;
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct overlap *o = (struct overlap *)s;
    bool found;
    TRY(overlap_visit(s, v));
    TRY(enter(o, v, &found));
    if (found) {
        TRY(state_table(v, o->shard.is.oracle->table, NULL, MEMORY_PARAMETERS, o->shard.is.dev,
                        o->room[o->theta].view));
        state_leave(v);
    }
    return state_loading(v) ? state_ignore(v, "ests.") : SOTTO_OK;
}

static const struct strategy_ops ops = {
    OVERLAP_OPS,
    .round = run_round,
    .gather = shard_gather,
    .visit = visit,
};

const struct method method_acco_wp = {
    .name = "acco-wp",
    OVERLAP_METHOD,
    .about =
        "acco with weight prediction: as dpu, but gradients are computed where the parameters will "
        "probably be",
    METHOD_OPTIONS(struct overlap_config, overlap_options),
    .shard = &ops,
};
