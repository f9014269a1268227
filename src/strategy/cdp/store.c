/* Which versions of its stages a worker of cyclic data parallelism holds, and how everybody comes
 * to have those that a schedule begins with. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <stdlib.h>

int cdp_stage_home(const struct cdp *c, int k)
{
    return cdp_home(&c->is, c->t - 1, k);
}

/* Whether the worker computes with a stage, or updates it, and whether it has two versions of it at
 * times. In mp devices take turns at updating, and it is all the same again after n steps at the
 * most; in zero every stage comes to everybody, and whoever has two sends both. */
static void look_ahead(const struct cdp *c, int k, struct cdp_stage *st)
{
    const struct cdp_schedule *s = &c->is;
    const bool zero = s->placement == CDP_ZERO, mp = s->placement == CDP_MP;
    const int64_t turns = mp ? s->n : 1, end = cdp_end(s, turns + 1);
    for (int64_t t = 0; t < turns; t++) {
        st->owned |= zero || cdp_home(s, t, k) == c->device;
        for (int i = 0; i < s->n && !st->here; i++)
            st->here = zero || cdp_device(s, t, i, k) == c->device;
    }
    st->here |= st->owned;
    for (int64_t time = 0; time < end && st->here && !st->two; time++) {
        int64_t held[2];
        for (int d = zero ? 0 : c->device; d <= (zero ? s->n - 1 : c->device); d++)
            st->two |= cdp_holds(s, d, k, time, held) == 2;
    }
}

static enum sotto_status open_stage(struct cdp *c, int k)
{
    struct shard *s = &c->shard;
    const struct table *table = s->is.oracle->table;
    struct cdp_stage *st = &c->stage[k];
    struct owned all = {0};
    st->count = table_stage_count(table, k);
    for (int j = 0; j < c->is.n; j++)
        st->shared |= j != k && c->needs[j * c->is.n + k];
    look_ahead(c, k, st);
    if (!st->owned)
        return SOTTO_OK;
    enum sotto_status status = owned_add(&all, table->stage_start[k], table->stage_start[k + 1]);
    if (status == SOTTO_OK)
        status = optim_init_lent(&st->steps, s->is.optim, s->is.dev, table, &all);
    owned_free(&all);
    return status;
}

enum sotto_status cdp_store_open(struct cdp *c)
{
    struct shard *s = &c->shard;
    const int n = c->is.n;
    const bool adds = c->is.rule == CDP_SYNC || c->is.placement == CDP_MP;
    c->stage = calloc((size_t)n, sizeof *c->stage);
    if (!c->stage)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    for (int k = 0; k < n; k++)
        TRY(open_stage(c, k));
    TRY(cdp_rooms_open(c));
    if (adds && c->devices > 1)
        TRY(buffer_init(&c->added, s->is.dev, strategy_grad_type(s->is.config), shard_largest(s),
                        MEMORY_COMMUNICATION));
    TRY(shard_replicate(s, NULL, NULL, shard_g_at)); /* of nothing: it counts steps */
    s->replicate->is.show = cdp_show_optimizer;
    s->replicate->is.owner = c;
    return SOTTO_OK;
}

void cdp_store_free(struct cdp *c)
{
    for (int k = 0; c->stage && k < c->is.n; k++)
        optim_free(&c->stage[k].steps);
    cdp_rooms_free(c);
    buffer_free(&c->added);
    free(c->stage);
}

struct view cdp_theta(struct cdp *c, int k, int64_t version)
{
    const struct cdp_stage *st = &c->stage[k];
    assert(st->room);
    assert(version == st->version || (st->two && version == st->version - 1));
    return st->theta[version != st->version];
}

/* Whether a device holds a version when a schedule begins with step t. */
static bool begins_with(const struct cdp *c, int device, int k, int64_t version)
{
    int64_t held[2];
    const int n = cdp_holds(&c->is, device, k, 0, held);
    for (int i = 0; i < n; i++)
        if (held[i] == version)
            return true;
    return false;
}

void cdp_number(struct cdp *c)
{
    c->is.first = c->t;
    c->time = 0;
    for (int k = 0; k < c->is.n; k++)
        c->stage[k].version = begins_with(c, c->device, k, c->t) ? c->t : c->t - 1;
}

/* One version of a stage, from the device that has it to those that begin with it. */
static enum sotto_status spread(struct cdp *c, int k, int64_t version, int from)
{
    struct comm *group = c->shard.is.mesh->shard;
    struct cdp_stage *st = &c->stage[k];
    for (int d = 0; d < c->devices; d++) {
        if (d == from || !begins_with(c, d, k, version))
            continue;
        if (c->device == from)
            TRY(comm_send(group, cdp_theta(c, k, version), st->count, d));
        if (c->device == d)
            TRY(comm_recv(group, cdp_theta(c, k, version), st->count, from));
    }
    return SOTTO_OK;
}

enum sotto_status cdp_spread(struct cdp *c)
{
    cdp_number(c);
    if (c->spread)
        return SOTTO_OK;
    for (int k = 0; k < c->is.n; k++) {
        const int keeper = cdp_keeper(&c->is, c->t - 1, k);
        TRY(spread(c, k, c->t, cdp_stage_home(c, k)));
        if (c->t > 0 && keeper >= 0)
            TRY(spread(c, k, c->t - 1, keeper));
    }
    c->spread = true;
    return SOTTO_OK;
}
