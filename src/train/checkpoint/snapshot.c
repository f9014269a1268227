#include "train/checkpoint/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/async/journal.h"
#include "train/checkpoint/save.h"
/* Sent with a worker's state. */
struct snapshot_note {
    struct meter_row row;
    int64_t tokens, samples; /* of the group, not in the sums yet; 0: another worker sends them */
};

struct snapshots {
    struct run_worker *w;
    struct training *t; /* of w */
    struct comm *comm;
    struct lane *lane; /* NULL: in virtual time */
    bool in_progress;
    pthread_mutex_t lock; /* of the next three */
    pthread_cond_t free;
    bool kept;            /* `server` has the server's state */
    struct packed server; /* owned */
    /* While a snapshot is in progress, the lane owns the following. */
    struct snapshot_note note;
    struct packed own;
    struct run_worker common; /* on rank 0: a copy for save_visit_common */
    float *state;             /* on rank 0: the model's own state; NULL: none; owned */
    char folder[FILE_PATH_ROOM];
};

static bool snapshots_lead(const struct snapshots *s)
{
    return s->t->worker->rank == 0;
}

static bool snapshots_ready(void *arg)
{
    struct snapshots *s = arg;
    pthread_mutex_lock(&s->lock);
    const bool is = !s->kept;
    pthread_mutex_unlock(&s->lock);
    return is;
}

/* Packs a worker's state, or the server's, that `visit` shows. */
static enum sotto_status pack_state(struct snapshots *s, struct packed *p, state_owner *visit,
                                    void *owner)
{
    struct training *t = s->t;
    return packed_make(p, &t->memory, t->worker->rank, t->mesh.r == 0, visit, owner);
}

/* Keeps the server's state, in a lane of the method. Waits until the last snapshot is written. */
static enum sotto_status keep_server(void *arg, state_owner *visit, void *owner)
{
    struct snapshots *s = arg;
    pthread_mutex_lock(&s->lock);
    while (s->kept)
        pthread_cond_wait(&s->free, &s->lock);
    s->kept = true;
    pthread_mutex_unlock(&s->lock);
    return pack_state(s, &s->server, visit, owner);
}

static void drop_packed(struct snapshots *s)
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
    meter_free(&s->common.training.meter);
    drop_packed(s);
    pthread_cond_destroy(&s->free);
    pthread_mutex_destroy(&s->lock);
    free(s->state);
    free(s);
}

enum sotto_status snapshots_open(struct run_worker *w)
{
    struct training *t = &w->training;
    struct worker *worker = t->worker;
    struct snapshots *s = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for checkpoints");
    w->snapshots = s;
    w->free_snapshots = free_snapshots;
    s->w = w;
    s->t = t;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->free, NULL);
    if (snapshots_lead(s))
        TRY(meter_init(&s->common.training.meter, worker, NULL, NULL));
    TRY(comm_duplicate(worker->world, &s->comm));
    if (worker->ops->end_pause)
        return SOTTO_OK;
    TRY(worker->ops->lane(worker, &s->lane));
    s->comm->lane = s->lane;
    if (!w->oracle.running.own.dev && !t->strategy->ops->history && run_keeps(w->run))
        w->snapshot_hook = (struct snapshot_hook){s, snapshots_ready, keep_server};
    return SOTTO_OK;
}

static void take_note(struct snapshots *s, int rank, const struct snapshot_note *n)
{
    meter_store_row(&s->common.training.meter, rank, &n->row);
    s->common.training.count.tokens += n->tokens;
    s->common.training.count.samples += n->samples;
}

/* Shows the states of all ranks to a saver; `all` has two packed states a rank. */
static enum sotto_status receive_states(struct snapshots *s, struct packed *all,
                                        struct state_visitor *v)
{
    struct memory *memory = &s->t->memory;
    take_note(s, 0, &s->note);
    TRY(packed_show(&s->own, v));
    TRY(packed_show(&s->server, v));
    for (int r = 1; r < s->comm->size; r++) {
        struct snapshot_note n;
        TRY(comm_recv_bytes(s->comm, &n, sizeof n, r));
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
        st = receive_states(s, all, &v);
    if (st == SOTTO_OK)
        st = rescue_try(s->w->run, c, save_put_state, &v);
    state_free(&v);
    for (int i = 0; i < 2 * size; i++)
        packed_free(&all[i]);
    free(all);
    return st;
}

/* Reads the server's parameters and order of pushes from the state that is written. */
static enum sotto_status read_server(struct snapshots *s, const char *path, float *flat,
                                     struct async_journal *journal)
{
    struct state_visitor v;
    TRY(state_loader_open(&v, path));
    enum sotto_status st = state_enter(&v, "outer.x0");
    if (st == SOTTO_OK)
        st = state_table(&v, s->w->run->table, NULL, MEMORY_PARAMETERS, NULL,
                         view_of(flat, DTYPE_F32));
    state_leave(&v);
    if (st == SOTTO_OK)
        st = state_enter(&v, "server");
    if (st == SOTTO_OK)
        st = journal_visit(journal, &v, s->t->mesh.n_r);
    state_free(&v);
    return st;
}

static enum sotto_status write_journal(const struct run *run, const struct async_journal *journal)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, run->config.train.out, "pushes.tsv"));
    save_warn(path, journal_write(journal, path));
    return SOTTO_OK;
}

static enum sotto_status write_model(struct snapshots *s, struct checkpoint *c)
{
    struct run *run = s->w->run;
    char state[FILE_PATH_ROOM];
    struct memory *memory = &s->t->memory;
    struct async_journal journal = {0};
    const size_t bytes = table_count(run->table) * sizeof(float);
    TRY(file_join(state, c->folder, "state.safetensors"));
    float *flat = memory_resize(memory, MEMORY_CHECKPOINT, NULL, 0, bytes);
    if (!flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", table_count(run->table));
    memset(flat, 0, bytes); /* files have no padding */
    enum sotto_status st = read_server(s, state, flat, &journal);
    if (st == SOTTO_OK)
        st = rescue_try(run, c, save_put_model, &(struct save_model){run, flat, s->state});
    if (st == SOTTO_OK)
        st = write_journal(run, &journal);
    journal_free(&journal);
    memory_give(memory, MEMORY_CHECKPOINT, flat, bytes);
    return st;
}

static enum sotto_status write_snapshot_files(struct snapshots *s, struct checkpoint *c)
{
    TRY(write_state(s, c));
    packed_free(&s->own);
    packed_free(&s->server);
    TRY(write_model(s, c));
    return rescue_try(s->w->run, c, save_put_config, s->w->run);
}

static enum sotto_status write_snapshot(struct snapshots *s)
{
    struct run *run = s->w->run;
    struct checkpoint c;
    TRY(rescue_begin(run, &c, s->common.training.step));
    TRY(save_commit(run, &c, write_snapshot_files(s, &c)));
    strcpy(s->folder, c.folder);
    return SOTTO_OK;
}

/* Sends a worker's copy to rank 0, which writes the checkpoint. */
static enum sotto_status hand_over_state(void *arg)
{
    struct snapshots *s = arg;
    enum sotto_status st;
    if (snapshots_lead(s)) {
        st = fail_in(write_snapshot(s), "step %lld: ", (long long)s->common.training.step);
    } else {
        st = comm_send_bytes(s->comm, &s->note, sizeof s->note, 0);
        if (st == SOTTO_OK)
            st = packed_send(s->comm, &s->own, 0);
        if (st == SOTTO_OK)
            st = packed_send(s->comm, &s->server, 0);
    }
    drop_packed(s);
    return st;
}

/* Copies what rank 0 knows of the run, and the model's own state; training continues meanwhile. */
static enum sotto_status copy_common(struct snapshots *s, int64_t step)
{
    struct training *t = s->t;
    const struct run_worker *w = s->w;
    const struct buffer *mean = &w->oracle.running.mean;
    const struct meter meter = s->common.training.meter;
    s->common = (struct run_worker){.run = w->run, .totals = w->totals};
    s->common.training = (struct training){
        .config = t->config, .worker = t->worker, .step = step, .count = t->count, .meter = meter};
    if (!mean->count)
        return SOTTO_OK;
    if (!s->state && !(s->state = calloc(mean->count, sizeof *s->state)))
        return fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model's state", mean->count);
    t->dev.ops->read(&t->dev, s->state, mean->view, mean->count);
    return device_check(&t->dev);
}

enum sotto_status snapshots_take(struct snapshots *s, int64_t step)
{
    struct run_worker *w = s->w;
    struct training *t = s->t;
    const bool speaks = t->mesh.s == 0; /* for its group */
    if (!run_keeps(w->run))
        return SOTTO_OK;
    TRY(snapshots_look(s, true));
    TRY(running_stats_average(&w->oracle.running, t->worker->world));
    TRY(meter_fill_row(&t->meter, &s->note.row));
    s->note.tokens = speaks ? t->count.own_tokens : 0;
    s->note.samples = speaks ? t->count.own_samples : 0;
    TRY(pack_state(s, &s->own, save_visit_own, w));
    TRY(save_write_counts(w)); /* of methods whose workers meet */
    if (snapshots_lead(s))
        TRY(copy_common(s, step));
    s->in_progress = true;
    if (s->lane)
        return lane_start(s->lane, hand_over_state, s);
    TRY(hand_over_state(s));
    return snapshots_look(s, true);
}

enum sotto_status snapshots_look(struct snapshots *s, bool wait)
{
    const struct run_watch *watch = &s->w->run->watch;
    bool done = true;
    if (!s->in_progress)
        return SOTTO_OK;
    if (s->lane && wait)
        TRY(lane_wait(s->lane));
    else if (s->lane)
        TRY(lane_done(s->lane, &done));
    if (!done)
        return SOTTO_OK;
    s->in_progress = false;
    if (snapshots_lead(s) && watch->saved)
        watch->saved(watch->arg, s->common.training.step, s->folder);
    return SOTTO_OK;
}
