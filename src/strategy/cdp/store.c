/* Versions of the stages of a worker of cyclic data parallelism, and the exchange of versions at
 * the beginning of a schedule. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <stdlib.h>

/* Finds out if the worker computes with a stage, or updates it, and if it holds two versions at
 * times. In mp devices take turns at updating and the pattern repeats after at most n steps; in
 * zero every stage visits every device, and a device with two versions sends both. */
static void find_stage_uses(const struct cdp *c, int k, struct cdp_stage *st)
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
    find_stage_uses(c, k, st);
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
    const int n = c->is.n;
    c->stage = calloc((size_t)n, sizeof *c->stage);
    if (!c->stage)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    for (int k = 0; k < n; k++)
        TRY(open_stage(c, k));
    return SOTTO_OK;
}

void cdp_store_free(struct cdp *c)
{
    for (int k = 0; c->stage && k < c->is.n; k++)
        optim_free(&c->stage[k].steps);
    free(c->stage);
}

struct view cdp_theta(struct cdp *c, int k, int64_t version)
{
    const struct cdp_stage *st = &c->stage[k];
    assert(st->room);
    assert(version == st->version || (st->two && version == st->version - 1));
    return st->theta[version != st->version];
}

/* True if a device holds a version when a schedule begins with step t. */
static bool begins_with(const struct cdp *c, int device, int k, int64_t version)
{
    int64_t held[2];
    const int n = cdp_holds(&c->is, device, k, 0, held);
    for (int i = 0; i < n; i++)
        if (held[i] == version)
            return true;
    return false;
}

void cdp_start_schedule(struct cdp *c)
{
    c->is.first = c->t;
    c->walk.time = 0;
    for (int k = 0; k < c->is.n; k++)
        c->stage[k].version = begins_with(c, c->device, k, c->t) ? c->t : c->t - 1;
}

/* Sends a version of a stage from device `from` to all devices that begin with the version. */
static enum sotto_status spread_version(struct cdp *c, int k, int64_t version, int from)
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

enum sotto_status cdp_spread_versions(struct cdp *c)
{
    cdp_start_schedule(c);
    if (c->spread)
        return SOTTO_OK;
    for (int k = 0; k < c->is.n; k++) {
        const int keeper = cdp_keeper(&c->is, c->t - 1, k);
        TRY(spread_version(c, k, c->t, cdp_stage_home(c, k)));
        if (c->t > 0 && keeper >= 0)
            TRY(spread_version(c, k, c->t - 1, keeper));
    }
    c->spread = true;
    return SOTTO_OK;
}
