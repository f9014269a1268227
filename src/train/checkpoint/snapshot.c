#include "train/checkpoint/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/async/journal.h"
#include "train/checkpoint/save.h"
#include "train/run/gather.h"

/* What travels with a worker's state; in fp32 pairs. */
struct note {
    struct meter_row row;
    int64_t tokens,
        samples; /* of its group, which others have not counted; from one worker of it */
};
enum { WORDS = sizeof(struct note) / sizeof(float) };

struct snapshots {
    struct trainer *t;
    struct comm *comm;
    struct lane *lane; /* NULL: in virtual time */
    bool under_way;
    pthread_mutex_t lock; /* of what the server has shown: */
    pthread_cond_t free;
    bool kept;
    struct packed server;
    /* The one under way; what follows is the lane's then. */
    struct note note;
    struct packed own;
    struct trainer common; /* on rank 0: what save_visit_common shows */
    float *state;          /* on rank 0: the model's, NULL: it has none; owned */
    char folder[FILE_PATH_ROOM];
};

static bool leads(const struct snapshots *s)
{
    return s->t->worker->rank == 0;
}

static bool ready(void *arg)
{
    struct snapshots *s = arg;
    pthread_mutex_lock(&s->lock);
    const bool is = !s->kept;
    pthread_mutex_unlock(&s->lock);
    return is;
}

/* In a lane of the method; what there was before is on its last way out, if it is not gone. */
static enum sotto_status keep(void *arg, state_owner *visit, void *owner)
{
    struct snapshots *s = arg;
    const struct trainer *t = s->t;
    pthread_mutex_lock(&s->lock);
    while (s->kept)
        pthread_cond_wait(&s->free, &s->lock);
    s->kept = true;
    pthread_mutex_unlock(&s->lock);
    return packed_make(&s->server, &s->t->memory, t->worker->rank, t->mesh.r == 0, visit, owner);
}

static void drop(struct snapshots *s)
{
    packed_free(&s->own);
    packed_free(&s->server);
    pthread_mutex_lock(&s->lock);
    s->kept = false;
    pthread_cond_signal(&s->free);
    pthread_mutex_unlock(&s->lock);
}

static void free_snapshots(struct snapshots *s)
{
    lane_close(s->lane);
    comm_free(s->comm);
    meter_free(&s->common.meter);
    drop(s);
    pthread_cond_destroy(&s->free);
    pthread_mutex_destroy(&s->lock);
    free(s->state);
    free(s);
}

enum sotto_status snapshots_open(struct trainer *t)
{
    struct worker *w = t->worker;
    struct snapshots *s = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for checkpoints");
    t->snapshots = s;
    t->free_snapshots = free_snapshots;
    s->t = t;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->free, NULL);
    if (leads(s))
        TRY(meter_init(&s->common.meter, w, NULL, NULL));
    TRY(comm_duplicate(w->world, &s->comm));
    if (w->ops->end_pause)
        return SOTTO_OK;
    TRY(w->ops->lane(w, &s->lane));
    s->comm->lane = s->lane;
    if (!t->running.own.dev && !t->strategy->ops->history && run_keeps(t->run))
        t->snapshot_hook = (struct snapshot_hook){.arg = s, .ready = ready, .keep = keep};
    return SOTTO_OK;
}

static void take_note(struct snapshots *s, int rank, const struct note *n)
{
    meter_take(&s->common.meter, rank, &n->row);
    s->common.tokens += n->tokens;
    s->common.samples += n->samples;
}

/* `all`: two of each rank. */
static enum sotto_status receive(struct snapshots *s, struct packed *all, struct state_visitor *v)
{
    struct memory *memory = &s->t->memory;
    take_note(s, 0, &s->note);
    TRY(packed_show(&s->own, v));
    TRY(packed_show(&s->server, v));
    for (int r = 1; r < s->comm->size; r++) {
        struct note n;
        TRY(comm_recv(s->comm, view_of(&n, DTYPE_F32), WORDS, r));
        take_note(s, r, &n);
        for (int i = 2 * r; i < 2 * r + 2; i++) {
            TRY(packed_receive(s->comm, &all[i], memory, r));
            TRY(packed_show(&all[i], v));
        }
    }
    return save_visit_common(&s->common, v);
}

static enum sotto_status write_state(struct snapshots *s, struct checkpoint *c)
{
    struct state_visitor v = {0};
    const int size = s->comm->size;
    struct packed *all = calloc(2 * (size_t)size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the state of %d workers", size);
    enum sotto_status st = state_saver_init(&v);
    if (st == SOTTO_OK)
        st = receive(s, all, &v);
    if (st == SOTTO_OK)
        st = rescue_try(s->t->run, c, save_put_state, &v);
    state_free(&v);
    for (int i = 0; i < 2 * size; i++)
        packed_free(&all[i]);
    free(all);
    return st;
}

/* The parameters and the order of pushes are the server's, which are in the state. */
static enum sotto_status read_server(struct snapshots *s, const char *path, float *flat,
                                     struct async_journal *journal)
{
    struct state_visitor v;
    TRY(state_loader_open(&v, path));
    enum sotto_status st = state_enter(&v, "outer.x0");
    if (st == SOTTO_OK)
        st = state_table(&v, s->t->run->table, NULL, MEMORY_PARAMETERS, NULL,
                         view_of(flat, DTYPE_F32));
    state_leave(&v);
    if (st == SOTTO_OK)
        st = state_enter(&v, "server");
    if (st == SOTTO_OK)
        st = journal_visit(journal, &v, s->t->mesh.n_r);
    state_free(&v);
    return st;
}

static enum sotto_status write_pushes(const struct run *run, const struct async_journal *journal)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, run->config.train.out, "pushes.tsv"));
    save_warn(path, journal_write(journal, path));
    return SOTTO_OK;
}

static enum sotto_status write_model(struct snapshots *s, struct checkpoint *c)
{
    struct run *run = s->t->run;
    char state[FILE_PATH_ROOM];
    struct memory *memory = &s->t->memory;
    struct async_journal journal = {0};
    const size_t bytes = table_count(run->table) * sizeof(float);
    TRY(file_join(state, c->folder, "state.safetensors"));
    float *flat = memory_resize(memory, MEMORY_CHECKPOINT, NULL, 0, bytes);
    if (!flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", table_count(run->table));
    memset(flat, 0, bytes); /* what pads tensors is in no file */
    enum sotto_status st = read_server(s, state, flat, &journal);
    if (st == SOTTO_OK)
        st = rescue_try(run, c, save_put_model, &(struct save_model){run, flat, s->state});
    if (st == SOTTO_OK)
        st = write_pushes(run, &journal);
    journal_free(&journal);
    memory_give(memory, MEMORY_CHECKPOINT, flat, bytes);
    return st;
}

static enum sotto_status write_files(struct snapshots *s, struct checkpoint *c)
{
    TRY(write_state(s, c));
    packed_free(&s->own);
    packed_free(&s->server);
    TRY(write_model(s, c));
    return rescue_try(s->t->run, c, save_put_config, s->t->run);
}

static enum sotto_status write_all(struct snapshots *s)
{
    struct run *run = s->t->run;
    struct checkpoint c;
    TRY(rescue_begin(run, &c, s->common.step));
    TRY(save_commit(run, &c, write_files(s, &c)));
    strcpy(s->folder, c.folder);
    return SOTTO_OK;
}

/* What a worker does with its copy. */
static enum sotto_status hand_over(void *arg)
{
    struct snapshots *s = arg;
    enum sotto_status st;
    if (leads(s)) {
        st = fail_in(write_all(s), "step %lld: ", (long long)s->common.step);
    } else {
        st = comm_send(s->comm, view_of(&s->note, DTYPE_F32), WORDS, 0);
        if (st == SOTTO_OK)
            st = packed_send(s->comm, &s->own, 0);
        if (st == SOTTO_OK)
            st = packed_send(s->comm, &s->server, 0);
    }
    drop(s);
    return st;
}

/* What goes on meanwhile is not looked at. */
static enum sotto_status copy_common(struct snapshots *s, int64_t step)
{
    const struct trainer *t = s->t;
    const size_t count = t->running.mean.count;
    const struct meter meter = s->common.meter;
    s->common = (struct trainer){.run = t->run,
                                 .worker = t->worker,
                                 .step = step,
                                 .tokens = t->tokens,
                                 .samples = t->samples,
                                 .pushed_tokens = t->pushed_tokens,
                                 .pushed_samples = t->pushed_samples,
                                 .tail_loss = t->tail_loss,
                                 .tail_reports = t->tail_reports,
                                 .cosine = t->cosine,
                                 .cosines = t->cosines,
                                 .evaluation = t->evaluation,
                                 .meter = meter};
    if (!count)
        return SOTTO_OK;
    if (!s->state && !(s->state = calloc(count, sizeof *s->state)))
        return fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model's state", count);
    s->t->dev.ops->read(&s->t->dev, s->state, t->running.mean.view, count);
    return device_check(&s->t->dev);
}

enum sotto_status snapshots_take(struct snapshots *s, int64_t step)
{
    struct trainer *t = s->t;
    if (!run_keeps(t->run))
        return SOTTO_OK;
    TRY(snapshots_look(s, true));
    TRY(running_average(&t->running, t->worker->world));
    TRY(meter_tell(&t->meter, &s->note.row));
    s->note.tokens = t->mesh.s == 0 ? t->own_tokens : 0;
    s->note.samples = t->mesh.s == 0 ? t->own_samples : 0;
    TRY(packed_make(&s->own, &t->memory, t->worker->rank, t->mesh.r == 0, save_visit_own, t));
    TRY(save_write_counts(t)); /* of methods that meet */
    if (leads(s))
        TRY(copy_common(s, step));
    s->under_way = true;
    if (s->lane)
        return lane_start(s->lane, hand_over, s);
    TRY(hand_over(s));
    return snapshots_look(s, true);
}

enum sotto_status snapshots_look(struct snapshots *s, bool wait)
{
    const struct run_watch *watch = &s->t->run->watch;
    bool done = true;
    if (!s->under_way)
        return SOTTO_OK;
    if (s->lane && wait)
        TRY(lane_wait(s->lane));
    else if (s->lane)
        TRY(lane_done(s->lane, &done));
    if (!done)
        return SOTTO_OK;
    s->under_way = false;
    if (leads(s) && watch->saved)
        watch->saved(watch->arg, s->common.step, s->folder);
    return SOTTO_OK;
}
