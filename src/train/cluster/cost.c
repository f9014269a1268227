#include "train/cluster/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = sizeof(struct meter_row) / sizeof(int64_t) };
_Static_assert(ROW == 9 + MESH_LANES + 1, "all of a row is kept");

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

static struct cost cost_of_account(const struct mesh_account *a)
{
    return (struct cost){.wire = a->wire,
                         .waited_others = a->waited_others,
                         .waited_wire = a->waited_wire,
                         .update = a->update,
                         .inside = a->inside,
                         .between = a->between};
}

/* Returns this worker's clocks, without bytes of lanes, which may be sent after the last round. */
static struct cost read_clocks(const struct meter *m)
{
    const struct mesh_account a = mesh_account_own(m->mesh);
    struct cost c = cost_of_account(&a);
    c.wire += mesh_account_lanes(m->mesh).wire;
    c.seconds = clock_now(m->worker->clock);
    c.compute = m->oracle->seconds;
    c.microbatches = m->oracle->microbatches;
    return c;
}

static struct cost lane_bytes(const struct meter *m)
{
    const struct mesh_account a = mesh_account_lanes(m->mesh);
    return (struct cost){.inside = a.inside, .between = a.between};
}

enum sotto_status meter_init(struct meter *m, struct worker *w, const struct oracle *oracle,
                             struct mesh *mesh)
{
    *m = (struct meter){.worker = w, .oracle = oracle, .mesh = mesh};
    m->each = calloc((size_t)w->size, sizeof *m->each);
    return m->each ? SOTTO_OK
                   : fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", w->size);
}

void meter_free(struct meter *m)
{
    free(m->each);
    *m = (struct meter){0};
}

void meter_start(struct meter *m)
{
    m->started = read_clocks(m);
    m->running = true;
}

/* True if lanes still wait for messages that an earlier pause has delayed. */
static bool lanes_owe(const struct meter *m)
{
    double owed[MESH_LANES], sum = 0;
    mesh_owed(m->mesh, owed);
    for (int i = 0; i < MESH_LANES; i++)
        sum += owed[i];
    return sum > 0;
}

/* Adds the time since the last start. */
static void add_running(const struct meter *m, struct cost *c)
{
    if (!m->running)
        return;
    const struct cost now = read_clocks(m);
    cost_add(c, &now, 1);
    cost_add(c, &m->started, -1);
}

/* Adds the time since the last start to `base`, which a resumed run begins with. */
void meter_stop(struct meter *m)
{
    if (!m->running)
        return;
    if (!lanes_owe(m))
        m->pause_wire = 0;
    add_running(m, &m->base);
    m->lane_wire = mesh_account_lanes(m->mesh).wire;
    m->running = false;
}

static void keep_lanes(struct meter *m)
{
    const double wire = mesh_account_lanes(m->mesh).wire;
    m->pause_wire += wire - m->lane_wire;
    m->base.wire += wire - m->lane_wire;
    m->lane_wire = wire;
}

void meter_forget_lanes(struct meter *m)
{
    m->base.wire -= m->pause_wire;
    m->pause_wire = 0;
}

enum sotto_status meter_resume(struct meter *m)
{
    struct worker *w = m->worker;
    if (!w->ops->end_pause)
        return SOTTO_OK;
    TRY(w->ops->end_pause(w, meter_read(m).seconds, m->least_clock));
    mesh_owe(m->mesh, m->owed);
    memset(m->owed, 0, sizeof m->owed);
    keep_lanes(m);
    return SOTTO_OK;
}

struct cost meter_read(const struct meter *m)
{
    const struct cost beside = lane_bytes(m);
    struct cost c = m->base;
    add_running(m, &c);
    cost_add(&c, &beside, 1);
    cost_add(&c, &m->sent, -1);
    double *const rounded[] = {&c.compute, &c.wire, &c.waited_others, &c.waited_wire, &c.update};
    for (int i = 0; i < 5; i++)
        *rounded[i] = fmax(0, *rounded[i]);
    return c;
}

enum sotto_status meter_fill_row(struct meter *m, struct meter_row *row)
{
    *row = (struct meter_row){0};
    TRY(mesh_rest(m->mesh)); /* messages in flight are saved with their result */
    row->cost = meter_read(m);
    mesh_owed(m->mesh, row->owed);
    if (!m->worker->ops->end_pause)
        return SOTTO_OK;
    row->cost.wire += /* their time is waited for after the pause */
        mesh_account_lanes(m->mesh).wire - m->lane_wire;
    row->clock = clock_now(m->worker->clock);
    return SOTTO_OK;
}

void meter_store_row(struct meter *m, int rank, const struct meter_row *row)
{
    m->each[rank] = *row;
}

enum sotto_status meter_gather(struct meter *m)
{
    struct meter_row row;
    TRY(meter_fill_row(m, &row));
    return comm_gather_bytes(m->worker->world, m->each, &row, sizeof row);
}

static struct cost join_rows(const struct meter *m)
{
    struct cost_joint all = {0};
    for (int i = 0; i < m->worker->size; i++)
        cost_join(&all, &m->each[i].cost);
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
    TRY(state_real(v, "cost.wire", &c->wire));
    TRY(state_real(v, "cost.waited_others", &c->waited_others));
    TRY(state_real(v, "cost.waited_wire", &c->waited_wire));
    TRY(state_real(v, "cost.update", &c->update));
    return state_int(v, "cost.microbatches", &c->microbatches);
}

/* Visits the number of micro-batches, so that the jitter continues where it was; an additional
 * worker takes another's number. */
enum sotto_status meter_visit_jitter(struct meter *m, struct state_visitor *v)
{
    struct worker *w = m->worker;
    int64_t of = w->size;
    if (state_loading(v) && (of = state_owners(v, "jitter", "begun")) < 1)
        return fail(SOTTO_EFORMAT, "the file has no state 'jitter.begun'");
    TRY(state_enter_own(v, "jitter", w->rank % of, of));
    TRY(state_count(v, "begun", &w->begun, STATE_TOTAL));
    state_leave(v);
    return state_loading(v) ? state_ignore(v, "jitter.") : SOTTO_OK;
}

/* Loads the rows of all workers; if their number has changed, this worker continues from the joined
 * costs. */
static enum sotto_status load_rows(struct meter *m, struct state_visitor *v,
                                   const struct cost *joined)
{
    const int size = m->worker->size;
    int64_t workers = size;
    TRY(state_int(v, "cost.workers", &workers));
    memset(m->each, 0, (size_t)size * sizeof *m->each);
    m->each[m->worker->rank].cost = *joined;
    return workers == size ? state_ints(v, "cost.rows", (int64_t *)m->each, (size_t)size * ROW)
                           : SOTTO_OK;
}

static bool time_lasts(double seconds)
{
    return seconds >= 0 && seconds < 1e9; /* thirty years */
}

/* Checks costs from a file, which are summed and compared with budgets. */
static enum sotto_status check_cost(const struct cost *c)
{
    const double seconds[] = {c->seconds,       c->compute,     c->wire,
                              c->waited_others, c->waited_wire, c->update};
    const int64_t counts[] = {c->inside, c->between, c->microbatches};
    for (int i = 0; i < 6; i++)
        if (!time_lasts(seconds[i]))
            return fail(SOTTO_EFORMAT, "the costs of a worker are %g seconds", seconds[i]);
    for (int i = 0; i < 3; i++)
        if (counts[i] < 0 || counts[i] > STATE_TOTAL)
            return fail(SOTTO_EFORMAT, "the costs of a worker are %lld bytes or micro-batches",
                        (long long)counts[i]);
    return SOTTO_OK;
}

/* Starts this worker from its row. */
static enum sotto_status take_row(struct meter *m)
{
    const struct meter_row *row = &m->each[m->worker->rank];
    TRY(check_cost(&row->cost));
    m->least_clock = 0;
    for (int i = 0; i < MESH_LANES; i++)
        if (!time_lasts(row->owed[i]))
            return fail(SOTTO_EFORMAT, "an exchange is to take %g seconds more", row->owed[i]);
    for (int r = 0; r < m->worker->size; r++) {
        if (!time_lasts(m->each[r].clock))
            return fail(SOTTO_EFORMAT, "the clock of worker %d is at %g seconds", r,
                        m->each[r].clock);
        m->least_clock = fmax(m->least_clock, m->each[r].clock);
    }
    m->base = row->cost;
    memcpy(m->owed, row->owed, sizeof m->owed);
    m->sent = lane_bytes(m);
    m->lane_wire = mesh_account_lanes(m->mesh).wire;
    m->running = false;
    return SOTTO_OK;
}

enum sotto_status meter_visit_costs(struct meter *m, struct state_visitor *v)
{
    const bool loading = state_loading(v);
    int64_t workers = m->worker->size;
    struct cost joined = {0};
    if (!loading)
        joined = join_rows(m);
    TRY(visit_joined(v, &joined));
    if (!loading) {
        TRY(state_int(v, "cost.workers", &workers));
        return state_ints(v, "cost.rows", (int64_t *)m->each, (size_t)workers * ROW);
    }
    TRY(check_cost(&joined));
    TRY(load_rows(m, v, &joined));
    TRY(take_row(m));
    return state_ignore(v, "cost.");
}
