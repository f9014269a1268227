/* Workers as threads of this process, and the only worker of an MPI process. */
#include "comm/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/threads/threads.h"

struct threads_team;

struct threads_seat {
    struct worker worker;
    struct threads_team *team;
    pthread_t thread;
};

struct threads_team {
    worker_job *job;
    void *arg;
};

static enum sotto_status threads_open_lane(struct worker *w, struct lane **out)
{
    (void)w;
    return lane_open_thread(out);
}

static enum sotto_status threads_compute(struct worker *w, lane_job *work, void *arg,
                                         double seconds)
{
    (void)w, (void)seconds;
    return work ? work(arg) : SOTTO_OK;
}

static enum sotto_status threads_move(struct worker *w, lane_job *work, void *arg, double bytes)
{
    return threads_compute(w, work, arg, bytes);
}

static const struct worker_ops thread_worker = {
    .name = "threads", .lane = threads_open_lane, .compute = threads_compute, .move = threads_move};

enum sotto_status worker_alone(struct worker *w)
{
    *w = (struct worker){.ops = &thread_worker, .size = 1, .clock = &clock_real};
    return threads_world(&(struct threads_config){.size = 1}, &w->world);
}

static void *run_seat(void *arg)
{
    struct threads_seat *seat = arg;
    struct threads_team *team = seat->team;
    enum sotto_status st = team->job(&seat->worker, team->arg);
    if (st == SOTTO_OK) {
        threads_end(seat->worker.world);
        return NULL;
    }
    struct status_note note;
    status_save(&note, st);
    seat->worker.world->ops->abort(seat->worker.world, &note);
    return NULL;
}

enum sotto_status engine_threads(const struct engine_config *config, worker_job *job, void *arg)
{
    const int n = config->workers;
    struct threads_team team = {.job = job, .arg = arg};
    struct threads_seat *seat = calloc((size_t)n, sizeof *seat);
    struct comm **world = calloc((size_t)n, sizeof *world);
    enum sotto_status st = SOTTO_OK;
    int started = 0;
    if (!seat || !world)
        st = fail(SOTTO_ENOMEM, "no memory for %d workers", n);
    const struct threads_config threads = {n, config->node, config->links, config->patience};
    if (st == SOTTO_OK)
        st = threads_world(&threads, world);
    for (; started < n && st == SOTTO_OK; started++) {
        seat[started] = (struct threads_seat){.worker = {.ops = &thread_worker,
                                                         .rank = started,
                                                         .size = n,
                                                         .world = world[started],
                                                         .clock = &clock_real},
                                              .team = &team};
        const int error =
            n > 1 ? pthread_create(&seat[started].thread, NULL, run_seat, &seat[started]) : 0;
        if (error) {
            st =
                fail(SOTTO_ENOMEM, "cannot start thread %d of %d: %s", started, n, strerror(error));
            struct status_note note;
            status_save(&note, st);
            world[started]->ops->abort(world[started], &note);
            break;
        }
    }
    if (n == 1 && started) /* a single worker runs on the caller's thread */
        st = job(&seat[0].worker, arg);
    for (int r = 0; r < started && n > 1; r++)
        pthread_join(seat[r].thread, NULL);
    struct status_note why = {0};
    if (st == SOTTO_OK)
        status_save(&why, threads_aborted(world[0]));
    for (int r = 0; world && r < n; r++)
        comm_free(world[r]);
    free(world);
    free(seat);
    return st == SOTTO_OK ? status_raise(&why) : st;
}

enum sotto_status engine_mpi(struct comm *world, worker_job *job, void *arg)
{
    static const struct worker_ops mpi_worker = {
        .name = "mpi", .lane = threads_open_lane, .compute = threads_compute, .move = threads_move};
    struct worker w = {.ops = &mpi_worker,
                       .rank = world->rank,
                       .size = world->size,
                       .world = world,
                       .clock = world->clock};
    enum sotto_status st = job(&w, arg);
    if (st != SOTTO_OK) {
        struct status_note note;
        status_save(&note, st);
        world->ops->abort(world, &note);
    }
    return st;
}
