#include "train/report/letters.h"

#include <math.h>
#include <stdlib.h>

/* What travels, in fp32 pairs. */
struct words {
    double step, seconds, loss, targets, hits, near, content;
    double mark; /* not a letter: all of this group's that were sent so far are before it */
};
enum { WORDS = sizeof(struct words) / sizeof(float) };

struct entry {
    struct letters *letters;
    struct entry *next;
    struct words words;
};

struct letters {
    struct worker *worker;
    int group;
    struct comm *comm;     /* NULL: one group only */
    struct lane *lane;     /* of those that send   */
    struct entry *arrived; /* on rank 0, oldest first */
    int marks;             /* on rank 0: that have come since the last flush */
};

enum sotto_status letters_open(struct letters **out, struct worker *w, int group)
{
    struct letters *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for evaluations");
    l->worker = w;
    l->group = group;
    if (w->size == group)
        return SOTTO_OK;
    TRY(comm_duplicate(w->world, &l->comm));
    TRY(w->ops->lane(w, &l->lane));
    if (w->rank > 0)
        l->comm->lane = l->lane;
    if (l->lane->ops->set_untimed)
        l->lane->ops->set_untimed(l->lane);
    return SOTTO_OK;
}

void letters_close(struct letters *l)
{
    if (!l)
        return;
    lane_close(l->lane);
    comm_free(l->comm);
    for (struct entry *e = l->arrived, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(l);
}

static struct entry *make(struct letters *l, const struct words *w)
{
    struct entry *e = malloc(sizeof *e);
    if (e)
        *e = (struct entry){.letters = l, .words = *w};
    else
        fail(SOTTO_ENOMEM, "no memory for an evaluation");
    return e;
}

static enum sotto_status arrive(struct letters *l, const struct words *w)
{
    struct entry **end = &l->arrived;
    if (w->mark != 0) {
        l->marks++;
        return SOTTO_OK;
    }
    while (*end)
        end = &(*end)->next;
    return (*end = make(l, w)) ? SOTTO_OK : SOTTO_ENOMEM;
}

/* Whether one has come until then, a time of the worker's clock. */
static enum sotto_status receive(struct letters *l, double until, bool *came)
{
    struct words w;
    int from;
    TRY(comm_recv_any(l->comm, view_of(&w, DTYPE_F32), WORDS, NULL, until, &from));
    *came = from >= 0;
    return *came ? arrive(l, &w) : SOTTO_OK;
}

static enum sotto_status send_one(void *arg)
{
    struct entry *e = arg;
    enum sotto_status st = comm_send(e->letters->comm, view_of(&e->words, DTYPE_F32), WORDS, 0);
    free(e);
    return st;
}

static enum sotto_status post(struct letters *l, const struct words *w)
{
    if (l->worker->rank == 0)
        return arrive(l, w);
    struct entry *e = make(l, w);
    return e ? lane_start(l->lane, send_one, e) : SOTTO_ENOMEM;
}

enum sotto_status letters_send(struct letters *l, const struct letter *letter)
{
    const struct evaluation *e = &letter->evaluation;
    const struct words w = {.step = (double)letter->step,
                            .seconds = letter->seconds,
                            .loss = e->loss,
                            .targets = (double)e->targets,
                            .hits = (double)e->hits,
                            .near = (double)e->near,
                            .content = e->content};
    return post(l, &w);
}

enum sotto_status letters_next(struct letters *l, struct letter *out, bool *found)
{
    *found = l->comm && !l->arrived;
    if (*found)
        TRY(receive(l, clock_now(l->worker->clock), found));
    struct entry *e = l->arrived;
    *found = e != NULL;
    if (!e)
        return SOTTO_OK;
    const struct words *w = &e->words;
    *out = (struct letter){.step = (int64_t)w->step,
                           .seconds = w->seconds,
                           .evaluation = {.loss = w->loss,
                                          .targets = (int64_t)w->targets,
                                          .hits = (int64_t)w->hits,
                                          .near = (int64_t)w->near,
                                          .content = (enum sample_content)w->content}};
    l->arrived = e->next;
    free(e);
    return SOTTO_OK;
}

enum sotto_status letters_mark(struct letters *l)
{
    const struct words mark = {.mark = 1};
    return l->comm && l->worker->rank % l->group == 0 && l->worker->rank > 0 ? post(l, &mark)
                                                                             : SOTTO_OK;
}

enum sotto_status letters_flush(struct letters *l)
{
    const int others = l->worker->size / l->group - 1;
    if (!l->comm)
        return SOTTO_OK;
    if (l->worker->rank > 0)
        return lane_wait(l->lane);
    for (bool came; l->marks < others;)
        TRY(receive(l, INFINITY, &came));
    l->marks = 0;
    return SOTTO_OK;
}
