/* Asynchronous DiLoCo as a method: the options, and the opening and closing of a worker's side. */
#include "strategy/async/group.h"
#include "strategy/method.h"
#include "tensor/ops.h"

static const char *const lost_names[] = {"end", "drop", NULL};

#define S struct async_config
static const struct option options[] = {
    OPTION_LONG(S, H, "500", 1, 1e15, "steps of a task; with dylu: of the fastest group's task"),
    OPTION_ENUM(S, outer, "delayed-nesterov", async_outer_names, "outer optimizer"),
    OPTION_REAL(S, outer_lr, "0.7", 0, 100, "outer learning rate"),
    OPTION_REAL(S, outer_momentum, "0.9", 0, 1, "outer momentum"),
    OPTION_LONG(S, N, "0", 0, 1e9,
                "pushes between two updates of the momentum; 0: the number of groups"),
    OPTION_REAL(S, c, "0", 0, 1,
                "share of the momentum that pushes between two of its updates apply, up to 1/N"),
    OPTION_REAL(S, weight, "0", 0, 100,
                "weight of a push; 0: 1 with delayed-nesterov, else 1 / sqrt(groups)"),
    OPTION_BOOL(S, staleness, "false",
                "weigh a push by (1 + s)^-1/2, s = pushes of other groups since the group pulled"),
    OPTION_BOOL(S, dylu, "false",
                "tasks of slower groups have fewer steps, in proportion to the speed"),
    OPTION_REAL(S, grace, "0", 0, 1e9,
                "seconds a finished group waits so that several groups start their next task "
                "from the same parameters"),
    OPTION_REAL(
        S, prune, "0", 0, 1,
        "share of a group's displacement that is not sent: the smallest values of every row"),
    OPTION_ENUM(S, dtype, "fp32", replicate_dtypes,
                "type of a group's displacement on the wire; parameters are sent in fp32"),
    OPTION_ENUM(
        S, lost, "end", lost_names,
        "if a group fails: the run ends, or (drop) the other groups continue and train its "
        "steps; only for groups of one worker, and not for the first group, which has the server"),
    OPTION_BOOL(S, cosine, "false",
                "measure the cosine of each push to the push before; takes one more vector"),
    OPTION_TEXT(
        S, replay, "",
        "a run's pushes.tsv: applies pushes in its order, which gives the bits of that run"),
};
#undef S

static const struct option_only only[] = {
    {"outer_momentum", "outer", "delayed-nesterov, nesterov"},
    {"N", "outer", "delayed-nesterov"},
    {"c", "outer", "delayed-nesterov"},
};

/* Refuses one replay without the other: a run whose rounds depend on time has its order in two
 * files. */
static enum sotto_status check_replays(const struct async_config *c,
                                       const struct strategy_config *strategy)
{
    const char *shard = strategy->sharding->name;
    if (!strategy_elastic(strategy) || !*c->replay == strategy_timed(strategy))
        return SOTTO_OK;
    if (*c->replay)
        return fail(SOTTO_EINVAL,
                    "async-diloco.replay with %s needs the numbers of micro-batches, too: set "
                    "%s.replay to counts.tsv of the same run",
                    shard, shard);
    return fail(SOTTO_EINVAL,
                "%s.replay with async-diloco needs the order of pushes, too: set "
                "async-diloco.replay to pushes.tsv of the same run",
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
        return fail(
            SOTTO_EINVAL,
            "async-diloco.lost = drop is for groups of one worker, and these groups have %d: "
            "the other workers of a group would wait for a worker that failed",
            strategy->workers / strategy->groups);
    if (!*c->replay)
        return SOTTO_OK;
    TRY(journal_read(&journal, c->replay, strategy->groups));
    const int64_t pushes = journal.n;
    journal_free(&journal);
    return pushes > 0 ? SOTTO_OK
                      : fail(SOTTO_EINVAL, "async-diloco.replay = %s has no pushes", c->replay);
}

static void async_dry_run(void *own)
{
    struct async_config *c = own;
    c->replay[0] = '\0';
    c->grace = 0;
    c->dylu = false;
}

static int64_t task_length(const void *own)
{
    return ((const struct async_config *)own)->H;
}

static enum sotto_status truth(struct replicate *r, struct comm *across, struct view y)
{
    struct async *a = (struct async *)r;
    struct device *dev = r->is.mesh->dev;
    TRY(async_wait_idle(a));
    if (a->server)
        dev->ops->copy(dev, y, server_x0(a->server), r->count);
    return comm_broadcast(across, y, r->count, 0);
}

static enum sotto_status end_server_job(void *arg)
{
    struct async *a = arg;
    return server_end(a->server, a->to_server);
}

static void free_async(struct replicate *r)
{
    struct async *a = (struct async *)r;
    if (a->server) {
        (void)async_run_in_line(a, end_server_job); /* after a failure the server fails, too */
        server_close(a->server);
    }
    buffer_free(&a->x0);
    buffer_free(&a->delta);
    buffer_free(&a->wire);
    sparse_free(&a->sparse);
}

/* Opens the communicators with the server, on group 0 for the server's side, too. */
static enum sotto_status open_server_comms(struct async *a)
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
    TRY(mesh_duplicate(mesh, mesh->replicate, mine, &a->from_server));
    TRY(mesh_duplicate(mesh, mesh->shard, lane ? lane : mine, &within));
    a->to_server = up;
    if (mesh->r > 0)
        return SOTTO_OK;
    TRY(mesh_twin(mesh, up, mine, &a->to_server));
    TRY(mesh_twin(mesh, a->from_server, lane, &down));
    return server_open(&a->server, r, &a->setup, up, down, within, lane);
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
    a->announces = true;
    a->overlaps = r->is.across->lane;
    return open_server_comms(a);
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
        "asynchronous DiLoCo: groups pull parameters from a server, train H steps, and push their "
        "displacement, which is applied at once; no group waits for a slower group",
    METHOD_OPTIONS(struct async_config, options),
    METHOD_ONLY(only),
    .resolve = resolve,
    .dry_run = async_dry_run,
    .every = task_length,
    .every_key = "H",
    .replicate = &ops,
};
