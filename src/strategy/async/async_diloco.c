/* Asynchronous DiLoCo as a method: its options, and what a worker opens for it. */
#include "strategy/async/group.h"
#include "strategy/method.h"
#include "tensor/ops.h"

static const char *const lost_names[] = {"end", "drop", NULL};

#define S struct async_config
static const struct option options[] = {
    OPTION_LONG(S, H, "500", 1, 1e15, "steps of a task; with dylu: of the fastest group's"),
    OPTION_ENUM(S, outer, "delayed-nesterov", async_outer_names, "outer optimizer"),
    OPTION_REAL(S, outer_lr, "0.7", 0, 100, "outer learning rate"),
    OPTION_REAL(S, outer_momentum, "0.9", 0, 1, "outer momentum"),
    OPTION_LONG(S, N, "0", 0, 1e9,
                "pushes between two updates of the momentum; 0: as many as groups"),
    OPTION_REAL(S, c, "0", 0, 1, "share of the momentum between two of its updates, up to 1/N"),
    OPTION_REAL(S, weight, "0", 0, 100,
                "of a push; 0: 1 with delayed-nesterov, else 1 over the root of the groups"),
    OPTION_BOOL(S, staleness, "false",
                "weigh pushes by (1 + s)^-1/2, s = pushes of others since the group has pulled"),
    OPTION_BOOL(S, dylu, "false", "groups train as many steps as they are fast"),
    OPTION_REAL(S, grace, "0", 0, 1e9,
                "seconds that a push waits for others, to pull the same parameters"),
    OPTION_REAL(S, prune, "0", 0, 1,
                "share of what a group has moved, the smallest of every row, that is not sent"),
    OPTION_ENUM(S, dtype, "fp32", replicate_dtypes,
                "of what a group has moved on the wire; parameters come back in fp32"),
    OPTION_ENUM(
        S, lost, "end", lost_names,
        "where a group fails: the run ends, or (drop) the others go on and do its steps; only "
        "groups of one worker, and not the first, which has the server"),
    OPTION_REAL(
        S, eval_seconds, "0", 0, 1e9,
        "seconds after which a push is evaluated, besides train.eval_every; 0: by that alone"),
    OPTION_REAL(S, save_seconds, "0", 0, 1e9,
                "seconds between checkpoints, besides train.save_every and save_minutes, pushes or "
                "not; 0: by those alone"),
    OPTION_BOOL(S, cosine, "false",
                "measure how alike each push is to the one before it; one more vector"),
    OPTION_TEXT(S, replay, "", "a run's pushes.tsv: take pushes in that order, to the bit"),
};
#undef S

static const struct option_only only[] = {
    {"outer_momentum", "outer", "delayed-nesterov, nesterov"},
    {"N", "outer", "delayed-nesterov"},
    {"c", "outer", "delayed-nesterov"},
};

/* The bits of a run whose groups' rounds go by time are in both of its files. */
static enum sotto_status check_replays(const struct async_config *c,
                                       const struct strategy_config *strategy)
{
    const char *shard = strategy->sharding->name;
    if (!strategy_elastic(strategy) || !*c->replay == strategy_timed(strategy))
        return SOTTO_OK;
    if (*c->replay)
        return fail(SOTTO_EINVAL,
                    "async-diloco.replay with %s: how many micro-batches its rounds took is in the "
                    "same run's counts.tsv; give %s.replay, too",
                    shard, shard);
    return fail(SOTTO_EINVAL,
                "%s.replay with async-diloco: which rounds these were is in the same run's "
                "pushes.tsv; give async-diloco.replay, too",
                shard);
}

static enum sotto_status resolve(void *own, const struct strategy_config *strategy)
{
    const struct async_config *c = own;
    const struct async_rules rules = async_rules_of(c, strategy->groups);
    struct async_journal journal;
    TRY(rules_check(&rules));
    TRY(check_replays(c, strategy));
    if (c->prune >= 1)
        return fail(SOTTO_EINVAL, "async-diloco.prune = 1 sends nothing");
    if (c->lost == LOST_DROP && strategy->workers > strategy->groups)
        return fail(SOTTO_EINVAL,
                    "async-diloco.lost = drop is for groups of one worker, and these have %d: the "
                    "others of a group would wait for the one that fails",
                    strategy->workers / strategy->groups);
    if (!*c->replay)
        return SOTTO_OK;
    TRY(journal_read(&journal, c->replay, strategy->groups));
    const int64_t pushes = journal.n;
    journal_free(&journal);
    return pushes > 0 ? SOTTO_OK : fail(SOTTO_EINVAL, "%s has no pushes to be followed", c->replay);
}

static void async_dry_run(void *own)
{
    struct async_config *c = own;
    c->replay[0] = '\0';
    c->grace = 0;
    c->dylu = false;
}

static int64_t every(const void *own)
{
    return ((const struct async_config *)own)->H;
}

static enum sotto_status truth(struct replicate *r, struct comm *across, struct view y)
{
    struct async *a = (struct async *)r;
    struct device *dev = r->is.mesh->dev;
    TRY(async_wait_idle(a));
    if (a->service)
        dev->ops->copy(dev, y, service_x0(a->service), r->count);
    return comm_broadcast(across, y, r->count, 0);
}

static enum sotto_status end_service(void *arg)
{
    struct async *a = arg;
    return service_end(a->service, a->up);
}

static void free_async(struct replicate *r)
{
    struct async *a = (struct async *)r;
    if (a->service) {
        (void)async_in_line(a, end_service); /* where that fails, so does the server */
        service_close(a->service);
    }
    buffer_free(&a->x0);
    buffer_free(&a->delta);
    buffer_free(&a->wire);
    sparse_free(&a->sparse);
}

/* `up` and `down` as the worker has them, and in group 0 as the server has them. */
static enum sotto_status open_ways(struct async *a)
{
    struct replicate *r = &a->base;
    struct mesh *mesh = r->is.mesh;
    struct lane *lane = NULL, *mine = r->is.across->lane;
    struct comm *up, *down, *within;
    if (mesh->r == 0) {
        TRY(mesh_lane(mesh, r->is.across, &lane));
        mesh_serves(mesh, lane);
    }
    TRY(mesh_duplicate(mesh, mesh->replicate, lane ? lane : mine, &up));
    TRY(mesh_duplicate(mesh, mesh->replicate, mine, &a->down));
    TRY(mesh_duplicate(mesh, mesh->shard, lane ? lane : mine, &within));
    a->up = up;
    if (mesh->r > 0)
        return SOTTO_OK;
    TRY(mesh_twin(mesh, up, mine, &a->up));
    TRY(mesh_twin(mesh, a->down, lane, &down));
    return service_open(&a->service, r, &a->setup, up, down, within, lane);
}

static enum sotto_status init(struct replicate *r)
{
    struct async *a = (struct async *)r;
    if (r->is.async_setup)
        a->setup = *r->is.async_setup;
    *r->is.async = a;
    TRY(replicate_buffer(r, &a->x0, MEMORY_OUTER));
    TRY(replicate_buffer(r, &a->delta, MEMORY_COMMUNICATION));
    const struct async_config *c = async_options(a);
    const enum dtype type = (enum dtype)c->dtype;
    if (c->prune > 0)
        TRY(sparse_init_message(&a->sparse, &r->on, r->is.table, r->is.own, c->prune, type));
    else if (type != DTYPE_F32)
        TRY(buffer_init(&a->wire, r->is.dev, type, r->count, MEMORY_COMMUNICATION));
    a->goes = true;
    a->beside = r->is.across->lane;
    return open_ways(a);
}

static const struct replicate_ops ops = {
    .async = true,
    .bytes = sizeof(struct async),
    .init = init,
    .anchor = async_anchor,
    .begin = async_begin,
    .step = async_step,
    .visit = async_visit,
    .truth = truth,
    .free = free_async,
};

const struct method method_async_diloco = {
    .name = "async-diloco",
    .axis = METHOD_REPLICATE,
    .about =
        "asynchronous DiLoCo: groups pull parameters from a server, train H steps, and push what "
        "they moved, which is applied at once; nobody waits for a slower group",
    METHOD_OPTIONS(struct async_config, options),
    METHOD_ONLY(only),
    .resolve = resolve,
    .dry_run = async_dry_run,
    .every = every,
    .every_key = "H",
    .replicate = &ops,
};
