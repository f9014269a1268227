#include "train/report/roundup.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* What a worker says, in fp32 pairs on the way. */
struct numbers {
    double loss, targets;   /* of its group, from one worker of it; targets 0: from another */
    double tokens, samples; /* run_step.own_*, from the same worker */
    double before;          /* its seconds before the round */
    struct cost cost;
};

struct entry {
    struct roundup *roundup;
    struct entry *next;
    struct run_step step;
    struct numbers mine;
    double loss, targets, tokens, samples, before;
    struct cost_joint cost;
    atomic_bool done; /* the lane has nothing to do with it any more */
};

struct roundup {
    struct worker *worker;
    struct comm *comm; /* NULL: alone */
    struct lane *lane;
    struct entry *first, **last; /* started, oldest first */
    struct entry *idle;
};

enum sotto_status roundup_open(struct roundup **out, struct worker *w)
{
    struct roundup *r = calloc(1, sizeof *r);
    *out = r;
    if (!r)
        return fail(SOTTO_ENOMEM, "no memory for the numbers of workers");
    r->worker = w;
    r->last = &r->first;
    if (w->size == 1)
        return SOTTO_OK;
    TRY(comm_duplicate(w->world, &r->comm));
    TRY(w->ops->lane(w, &r->lane));
    if (r->lane->ops->set_untimed)
        r->lane->ops->set_untimed(r->lane);
    return SOTTO_OK;
}

static void free_entries(struct entry *e)
{
    while (e) {
        struct entry *next = e->next;
        free(e);
        e = next;
    }
}

void roundup_close(struct roundup *r)
{
    if (!r)
        return;
    lane_close(r->lane);
    comm_free(r->comm);
    free_entries(r->first);
    free_entries(r->idle);
    free(r);
}

static void join(struct entry *e, const struct numbers *n)
{
    e->loss += n->loss * n->targets;
    e->targets += n->targets;
    e->tokens += n->tokens;
    e->samples += n->samples;
    e->before = fmax(e->before, n->before);
    cost_join(&e->cost, &n->cost);
}

/* Messages to rank 0, so that its memory and time grow with the workers alone. */
static enum sotto_status bring(void *arg)
{
    struct entry *e = arg;
    struct comm *c = e->roundup->comm;
    enum { WORDS = sizeof(struct numbers) / sizeof(float) };
    if (c->rank == 0)
        join(e, &e->mine);
    else
        TRY(comm_send(c, view_of(&e->mine, DTYPE_F32), WORDS, 0));
    for (int from = 1; from < c->size && c->rank == 0; from++) {
        struct numbers theirs;
        TRY(comm_recv(c, view_of(&theirs, DTYPE_F32), WORDS, from));
        join(e, &theirs);
    }
    atomic_store(&e->done, true);
    return SOTTO_OK;
}

/* The oldest entry, if the lane is done with it. */
static struct entry *take_done(struct roundup *r)
{
    struct entry *e = r->first;
    if (!e || !atomic_load(&e->done))
        return NULL;
    if (!(r->first = e->next))
        r->last = &r->first;
    e->next = r->idle; /* it may be read until the next one is started */
    r->idle = e;
    return e;
}

static struct entry *take(struct roundup *r)
{
    while (r->worker->rank != 0 && take_done(r)) /* nobody asks for them there */
        continue;
    struct entry *e = r->idle;
    if (e)
        r->idle = e->next;
    else
        e = malloc(sizeof *e);
    if (e)
        *e = (struct entry){.roundup = r};
    return e;
}

enum sotto_status roundup_start(struct roundup *r, const struct run_step *s, bool speaks)
{
    struct entry *e = take(r);
    if (!e)
        return fail(SOTTO_ENOMEM, "no memory for the numbers of a round");
    e->step = *s;
    e->mine = (struct numbers){.loss = s->round.loss,
                               .targets = speaks ? (double)s->round.targets : 0,
                               .tokens = speaks ? (double)s->own_tokens : 0,
                               .samples = speaks ? (double)s->own_samples : 0,
                               .before = s->slowest - s->seconds,
                               .cost = s->cost};
    *r->last = e;
    r->last = &e->next;
    if (r->lane)
        return lane_start(r->lane, bring, e);
    join(e, &e->mine);
    atomic_store(&e->done, true);
    return SOTTO_OK;
}

enum sotto_status roundup_next(struct roundup *r, bool wait, struct run_step *s, bool *found)
{
    if (wait && r->lane)
        TRY(lane_wait(r->lane));
    const struct entry *e = r->worker->rank == 0 ? take_done(r) : NULL;
    *found = e != NULL;
    if (!e)
        return SOTTO_OK;
    *s = e->step;
    s->tokens += (int64_t)e->tokens;
    s->samples += (int64_t)e->samples;
    s->cost = cost_mean(&e->cost);
    s->slowest = e->cost.slowest;
    s->seconds = s->slowest - e->before;
    if (!s->round.whole && e->targets > 0)
        s->round.loss = e->loss / e->targets;
    return SOTTO_OK;
}
