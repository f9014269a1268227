#include "train/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cost_add(struct cost *sum, const struct cost *c, int sign)
{
    sum->seconds += sign * c->seconds;
    sum->compute += sign * c->compute;
    sum->wire += sign * c->wire;
    sum->waited_others += sign * c->waited_others;
    sum->waited_wire += sign * c->waited_wire;
    sum->update += sign * c->update;
    sum->inside += sign * c->inside;
    sum->between += sign * c->between;
    sum->microbatches += sign * c->microbatches;
}

void cost_join(struct cost_joint *j, const struct cost *c)
{
    cost_add(&j->sum, c, 1);
    j->slowest = fmax(j->slowest, c->seconds);
    j->workers++;
}

struct cost cost_mean(const struct cost_joint *j)
{
    struct cost c = j->sum;
    const int n = j->workers > 0 ? j->workers : 1;
    c.seconds /= n;
    c.compute /= n;
    c.wire /= n;
    c.waited_others /= n;
    c.waited_wire /= n;
    c.update /= n;
    c.inside /= n;
    c.between /= n;
    c.microbatches /= n;
    return c;
}

static struct cost of_account(const struct mesh_account *a)
{
    return (struct cost){.wire = a->wire,
                         .waited_others = a->waited_others,
                         .waited_wire = a->waited_wire,
                         .update = a->update,
                         .inside = a->inside,
                         .between = a->between};
}

/* What the clocks show; and what lanes sent, which may be after the last round. */
static struct cost own(const struct meter *m)
{
    const struct mesh_account a = mesh_account_own(m->mesh);
    struct cost c = of_account(&a);
    c.wire += mesh_account_lanes(m->mesh).wire;
    c.seconds = clock_now(m->worker->clock);
    c.compute = m->oracle->seconds;
    c.microbatches = m->oracle->microbatches;
    return c;
}

static struct cost lanes(const struct meter *m)
{
    const struct mesh_account a = mesh_account_lanes(m->mesh);
    return (struct cost){.inside = a.inside, .between = a.between};
}

enum sotto_status meter_init(struct meter *m, struct worker *w, const struct oracle *oracle,
                             struct mesh *mesh)
{
    *m = (struct meter){.worker = w, .oracle = oracle, .mesh = mesh};
    m->each = calloc((size_t)w->size * COST_FIELDS, sizeof *m->each);
    m->each_owed = calloc((size_t)w->size * MESH_LANES, sizeof *m->each_owed);
    if (!m->each || !m->each_owed)
        return fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", w->size);
    return SOTTO_OK;
}

void meter_free(struct meter *m)
{
    free(m->each);
    free(m->each_owed);
    *m = (struct meter){0};
}

void meter_start(struct meter *m)
{
    const struct cost now = own(m);
    cost_add(&m->pause, &now, 1);
    cost_add(&m->pause, &m->mark, -1);
    m->running = true;
}

/* Whether lanes are still to be waited for, for what an earlier pause has put off. */
static bool lanes_owe(const struct meter *m)
{
    double owed[MESH_LANES], sum = 0;
    mesh_owed(m->mesh, owed);
    for (int i = 0; i < MESH_LANES; i++)
        sum += owed[i];
    return sum > 0;
}

void meter_stop(struct meter *m)
{
    if (!lanes_owe(m))
        m->kept = 0;
    m->mark = own(m);
    m->beside = mesh_account_lanes(m->mesh).wire;
    m->running = false;
}

void meter_keep_lanes(struct meter *m)
{
    const double wire = mesh_account_lanes(m->mesh).wire;
    m->kept += wire - m->beside;
    m->mark.wire += wire - m->beside;
    m->beside = wire;
}

void meter_forget_lanes(struct meter *m)
{
    m->mark.wire -= m->kept;
    m->kept = 0;
}

void meter_owe(struct meter *m)
{
    mesh_owe(m->mesh, m->owed);
    memset(m->owed, 0, sizeof m->owed);
}

struct cost meter_read(const struct meter *m)
{
    const struct cost beside = lanes(m);
    struct cost c = m->running ? own(m) : m->mark;
    cost_add(&c, &beside, 1);
    cost_add(&c, &m->base, 1);
    cost_add(&c, &m->pause, -1);
    double *const rounded[] = {&c.compute, &c.wire, &c.waited_others, &c.waited_wire, &c.update};
    for (int i = 0; i < 5; i++)
        *rounded[i] = fmax(0, *rounded[i]);
    return c;
}

/* In nanoseconds and bytes. */
static void pack(const struct cost *c, int64_t *to)
{
    const double seconds[] = {c->seconds,       c->compute,     c->wire,
                              c->waited_others, c->waited_wire, c->update};
    for (int i = 0; i < 6; i++)
        to[i] = llround(seconds[i] * 1e9);
    to[6] = c->inside;
    to[7] = c->between;
    to[8] = c->microbatches;
}

static struct cost unpack(const int64_t *from)
{
    return (struct cost){.seconds = (double)from[0] / 1e9,
                         .compute = (double)from[1] / 1e9,
                         .wire = (double)from[2] / 1e9,
                         .waited_others = (double)from[3] / 1e9,
                         .waited_wire = (double)from[4] / 1e9,
                         .update = (double)from[5] / 1e9,
                         .inside = from[6],
                         .between = from[7],
                         .microbatches = from[8]};
}

enum sotto_status meter_tell(struct meter *m, struct meter_row *row)
{
    TRY(mesh_rest(m->mesh)); /* what is on its way now is saved with its result ... */
    struct cost mine = meter_read(m);
    double owed[MESH_LANES];
    mesh_owed(m->mesh, owed);
    if (m->worker->ops->go_on) /* ... and what it takes is waited for behind the pause */
        mine.wire += mesh_account_lanes(m->mesh).wire - m->beside;
    pack(&mine, row->cost);
    for (int i = 0; i < MESH_LANES; i++)
        row->owed[i] = llround(owed[i] * 1e9);
    return SOTTO_OK;
}

void meter_take(struct meter *m, int rank, const struct meter_row *row)
{
    memcpy(m->each + rank * COST_FIELDS, row->cost, sizeof row->cost);
    memcpy(m->each_owed + rank * MESH_LANES, row->owed, sizeof row->owed);
}

enum sotto_status meter_gather(struct meter *m)
{
    struct meter_row row;
    TRY(meter_tell(m, &row));
    TRY(comm_gather_bytes(m->worker->world, m->each, row.cost, sizeof row.cost));
    return comm_gather_bytes(m->worker->world, m->each_owed, row.owed, sizeof row.owed);
}

static struct cost join_packed(const struct meter *m)
{
    struct cost_joint all = {0};
    for (int i = 0; i < m->worker->size; i++) {
        const struct cost c = unpack(m->each + i * COST_FIELDS);
        cost_join(&all, &c);
    }
    struct cost c = cost_mean(&all);
    c.seconds = all.slowest;
    return c;
}

static enum sotto_status visit_joined(struct state_visitor *v, struct cost *c)
{
    TRY(state_real(v, "cost.seconds", &c->seconds));
    TRY(state_real(v, "cost.compute", &c->compute));
    TRY(state_int(v, "cost.inside", &c->inside));
    TRY(state_int(v, "cost.between", &c->between));
    if (state_loading(v) && !state_has(v, "cost.wire")) /* of a version that did not know it */
        return SOTTO_OK;
    TRY(state_real(v, "cost.wire", &c->wire));
    TRY(state_real(v, "cost.waited_others", &c->waited_others));
    TRY(state_real(v, "cost.waited_wire", &c->waited_wire));
    if (!state_loading(v) || state_has(v, "cost.update"))
        TRY(state_real(v, "cost.update", &c->update));
    return state_int(v, "cost.microbatches", &c->microbatches);
}

/* What a file says is added up and compared with budgets. */
static enum sotto_status check(const struct cost *c)
{
    const double seconds[] = {c->seconds,       c->compute,     c->wire,
                              c->waited_others, c->waited_wire, c->update};
    const int64_t counts[] = {c->inside, c->between, c->microbatches};
    for (int i = 0; i < 6; i++)
        if (!(seconds[i] >= 0 && seconds[i] < 1e9)) /* thirty years */
            return fail(SOTTO_EFORMAT, "the costs of a worker are %g seconds", seconds[i]);
    for (int i = 0; i < 3; i++)
        if (counts[i] < 0 || counts[i] > STATE_TOTAL)
            return fail(SOTTO_EFORMAT, "the costs of a worker are %lld bytes or micro-batches",
                        (long long)counts[i]);
    return SOTTO_OK;
}

/* The jitter goes on where it was; one more worker goes on as another did. */
enum sotto_status meter_visit_begun(struct meter *m, struct state_visitor *v)
{
    struct worker *w = m->worker;
    int64_t of = w->size;
    if (state_loading(v) && (of = state_owners(v, "jitter", "begun")) < 1)
        return state_ignore(v, "jitter."); /* of a version that counted otherwise */
    TRY(state_enter_own(v, "jitter", w->rank % of, of));
    TRY(state_count(v, "begun", &w->begun, STATE_TOTAL));
    state_leave(v);
    return state_loading(v) ? state_ignore(v, "jitter.") : SOTTO_OK;
}

/* As many workers as there were owe what these did; others begin afresh. */
static enum sotto_status visit_owed(struct meter *m, struct state_visitor *v, int64_t workers)
{
    const bool loading = state_loading(v);
    const int size = m->worker->size;
    if (loading && (workers != size || !state_has(v, "cost.owed")))
        return SOTTO_OK;
    TRY(state_ints(v, "cost.owed", m->each_owed, (size_t)size * MESH_LANES));
    for (int i = 0; i < MESH_LANES && loading; i++) {
        m->owed[i] = (double)m->each_owed[m->worker->rank * MESH_LANES + i] / 1e9;
        if (!(m->owed[i] >= 0 && m->owed[i] < 1e9))
            return fail(SOTTO_EFORMAT, "an exchange is to take %g seconds more", m->owed[i]);
    }
    return SOTTO_OK;
}

enum sotto_status meter_visit_costs(struct meter *m, struct state_visitor *v)
{
    const bool loading = state_loading(v);
    const int size = m->worker->size;
    struct cost joined = {0};
    int64_t workers = size;
    if (!loading)
        joined = join_packed(m);
    TRY(visit_joined(v, &joined));
    TRY(check(&joined));
    if (!loading || state_has(v, "cost.workers"))
        TRY(state_int(v, "cost.workers", &workers));
    if (!loading || (workers == size && state_has(v, "cost.each") && state_has(v, "cost.update")))
        TRY(state_ints(v, "cost.each", m->each, (size_t)size * COST_FIELDS));
    else
        pack(&joined, m->each + m->worker->rank * COST_FIELDS);
    TRY(visit_owed(m, v, workers));
    if (loading) {
        m->base = unpack(m->each + m->worker->rank * COST_FIELDS);
        TRY(check(&m->base));
        const struct cost beside = lanes(m);
        m->mark = m->pause = own(m); /* what was before counts no more */
        cost_add(&m->pause, &beside, 1);
        m->running = false;
        state_ignore(v, "cost.");
    }
    return SOTTO_OK;
}

enum sotto_status meter_visit(struct meter *m, struct state_visitor *v)
{
    TRY(meter_visit_costs(m, v));
    return meter_visit_begun(m, v);
}
