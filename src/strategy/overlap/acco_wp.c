/* ACCO with weight prediction instead of two halves (ACCO, section 3.2): as DPU, but gradients are
 * computed at a prediction of the parameters for the step that applies them.
 *
 *   computed           meanwhile in the lane
 *   g(t) at est(t+1)   theta(t+1) = step(theta(t), gbar(t-1)),
 *                      est(t+2)   = peek(theta(t+1), gbar(t-1))
 *
 * Between rounds the room for computing has the estimate; evaluations and checkpoints gather theta.
 * After parameters were pulled from a server (async-diloco) est is theta itself, so that a group's
 * pull in a step and after a meeting of all workers give the same bits. */
#include "strategy/method.h"
#include "strategy/overlap/overlap.h"

/* The step leaves the gradient in its place, since nothing is computed at theta(t+1) itself. */
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
        TRY(replicate_publish(r)); /* est <- theta, just pulled */
    else
        TRY(replicate_peek(r, o->plan.next_lr, scale)); /* est   <- peek(theta, gbar)      */
    return overlap_gather(o);
}

static enum sotto_status acco_wp_round(struct strategy *s, const struct plan *plan,
                                       struct round *out)
{
    struct overlap *o = (struct overlap *)s;
    TRY(overlap_begin(o, plan, true)); /* g(t-1): from the last round, or one micro-batch */
    if (overlap_idle(o))
        return overlap_sit_out(o, out);
    TRY(overlap_send(o));
    TRY(overlap_compute(o, apply_and_predict)); /* g(t) at est(t+1)                         */
    overlap_take(o);                            /* est(t+2)                                 */
    return overlap_end(o, out);
}

/* Enters the section with the estimates, if there is one. Groups that differ save an estimate each,
 * which fits only the same number of groups; other runs begin with theta itself, as a new run
 * does. */
static enum sotto_status enter_estimates(struct overlap *o, struct state_visitor *v, bool *found)
{
    const struct replicate *r = o->shard.replicate;
    const struct mesh *mesh = r->is.mesh;
    const bool loads = state_loading(v), own = !r->ops->in_step;
    const bool saves = !loads && o->shard.carried;
    *found = true;
    if (own && (loads ? state_has(v, "ests.") && r->from.groups == mesh->n_r
                      : saves && mesh->s == 0)) /* by the group's first worker */
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
    TRY(enter_estimates(o, v, &found));
    if (found) {
        TRY(state_table(v, o->shard.is.oracle->table, NULL, MEMORY_PARAMETERS, o->shard.is.dev,
                        o->room[o->theta].view));
        state_leave(v);
    }
    return state_loading(v) ? state_ignore(v, "ests.") : SOTTO_OK;
}

static const struct strategy_ops ops = {
    OVERLAP_OPS,
    .round = acco_wp_round,
    .gather = shard_gather,
    .visit = visit,
};

const struct method method_acco_wp = {
    .name = "acco-wp",
    OVERLAP_METHOD,
    .about =
        "acco with weight prediction: as dpu, but gradients are computed at a prediction of the "
        "parameters",
    METHOD_OPTIONS(struct overlap_config, overlap_options),
    .shard = &ops,
};
