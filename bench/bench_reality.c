/* The measurements that reality.sh compares: the same work under mpirun and in virtual time, in
 * seconds of either clock.
 *
 *     bench_reality train MILLISECONDS [--option=value ...]     micro-batches that sleep
 *     bench_reality calls MEGABYTES [--option=value ...]        messages and collectives at once
 *
 * Options as for sotto train; --time=virtual simulates. A micro-batch sleeps instead of computing,
 * so that workers share cores without delaying each other. It has STAGES stages of COUNT
 * parameters; messages are real. */
#include <sotto/sotto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/api/api_impl.h"

enum { STAGES = 4, COUNT = 125000 };

static const struct sotto_tensor tensors[STAGES] = {
    {"a", {COUNT}, 0}, {"b", {COUNT}, 1}, {"c", {COUNT}, 2}, {"d", {COUNT}, 3}};

struct sleeper {
    double seconds; /* of a micro-batch; 0: virtual time */
    int64_t microbatches;
};

static void sleep_for(double seconds)
{
    double left, end = clock_now(&clock_real) + seconds;
    while ((left = end - clock_now(&clock_real)) > 0) {
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&t, NULL);
    }
}

/* Virtual time counts backward as twice the work of forward. */
static enum sotto_status forward(void *user, struct sotto_microbatch *batch, int stage,
                                 const float *const *theta)
{
    const struct sleeper *s = user;
    (void)batch, (void)stage, (void)theta;
    sleep_for(s->seconds / STAGES / 3);
    return SOTTO_OK;
}

static enum sotto_status backward(void *user, struct sotto_microbatch *batch, int stage,
                                  const float *const *theta, float *const *grad)
{
    const struct sleeper *s = user;
    sleep_for(s->seconds / STAGES * 2 / 3);
    grad[stage][0] += theta[stage][0];
    batch->loss = 1;
    return SOTTO_OK;
}

static int observe(void *user, const struct sotto_round *round)
{
    struct sleeper *s = user;
    s->microbatches += round->microbatches;
    return 0;
}

static enum sotto_status train(struct sotto_options *options, double milliseconds)
{
    struct sleeper sleeper = {0};
    const struct sotto_problem problem = {.struct_size = sizeof problem,
                                          .tensors = tensors,
                                          .count = STAGES,
                                          .forward = forward,
                                          .backward = backward,
                                          .user = &sleeper};
    struct sotto_result r = {.struct_size = sizeof r};
    char step[32];
    if (options->config.train.time != TIME_VIRTUAL)
        sleeper.seconds = milliseconds / 1e3;
    snprintf(step, sizeof step, "%gms", milliseconds);
    if (options->config.train.time == TIME_VIRTUAL)
        TRY(sotto_options_set(options, "worker.step", step));
    float *x = calloc(STAGES * COUNT, sizeof *x);
    if (!x)
        return fail(SOTTO_ENOMEM, "no memory for parameters");
    for (size_t i = 0; i < STAGES * COUNT; i++)
        x[i] = 1;
    enum sotto_status st =
        sotto_train(&(struct sotto_training){sizeof(struct sotto_training), &problem, options, x,
                                             observe, &sleeper, NULL, NULL},
                    &r);
    free(x);
    if (st == SOTTO_OK && r.rank == 0)
        printf(
            "train %.6f s, %lld micro-batches, computing %.6f s, wire %.6f s, %lld + %lld bytes\n",
            r.cost.seconds, (long long)sleeper.microbatches, r.cost.compute, r.cost.wire,
            (long long)r.cost.inside, (long long)r.cost.between);
    return st;
}

/* A lane with a communicator of its own, and the messages or collectives of the lane. */
enum { LANES = 8 };
struct side {
    struct comm *comm;
    struct lane *lane;
    float *x, *y;
    size_t count;
    int to, from; /* -1: no rank */
};

struct calls {
    size_t count; /* elements of a message or vector */
    struct worker *worker;
    struct side side[LANES];
};

static enum sotto_status exchange(void *arg)
{
    struct side *s = arg;
    size_t came;
    struct view x = view_of(s->x, DTYPE_F32), y = view_of(s->y, DTYPE_F32);
    if (s->to >= 0 && s->from >= 0)
        return comm_exchange(s->comm, x, s->count, s->to, y, s->count, s->from, &came);
    if (s->to >= 0)
        return comm_send(s->comm, x, s->count, s->to);
    return s->from >= 0 ? comm_recv(s->comm, y, s->count, s->from) : SOTTO_OK;
}

static enum sotto_status allreduce(void *arg)
{
    struct side *s = arg;
    struct view x = view_of(s->x, DTYPE_F32);
    return comm_allreduce(s->comm, x, x, s->count);
}

/* Sets the ranks that `rank` sends to and receives from on lane i; -1 for both: the lane is
 * idle. */
typedef void plan_messages(int rank, int size, int i, int *to, int *from);

static void single(int rank, int size, int i, int *to, int *from)
{
    *to = i == 0 && rank == 0 ? size - 1 : -1;
    *from = i == 0 && rank == size - 1 ? 0 : -1;
}

static void incast(int rank, int size, int i, int *to, int *from)
{
    *to = rank == i + 1 ? 0 : -1;
    *from = rank == 0 && i + 1 < size ? i + 1 : -1;
}

static void pairs(int rank, int size, int i, int *to, int *from)
{
    *to = i == 0 ? (rank + size / 2) % size : -1;
    *from = i == 0 ? (rank + size - size / 2) % size : -1;
}

static const struct scene {
    const char *name;
    int lanes; /* 0: a lane for each other rank */
    lane_job *job;
    plan_messages *plan; /* ranks of the messages */
} scenes[] = {
    {"message", 1, exchange, single},       {"allreduce", 1, allreduce, NULL},
    {"two allreduces", 2, allreduce, NULL}, {"incast", 0, exchange, incast},
    {"pairs across", 1, exchange, pairs},
};

static enum sotto_status play(struct calls *c, const struct scene *scene, size_t count,
                              double *seconds)
{
    struct comm *world = c->worker->world;
    const int lanes = scene->lanes ? scene->lanes : world->size - 1;
    TRY(comm_barrier(world));
    const double begin = clock_now(c->worker->clock);
    for (int i = 0; i < lanes; i++) {
        struct side *s = &c->side[i];
        s->count = count;
        if (scene->plan)
            scene->plan(world->rank, world->size, i, &s->to, &s->from);
        TRY(lane_start(s->lane, scene->job, s));
    }
    for (int i = 0; i < lanes; i++)
        TRY(lane_wait(c->side[i].lane));
    double mine = clock_now(c->worker->clock) - begin, all[64];
    TRY(comm_gather_bytes(world, all, &mine, sizeof mine));
    *seconds = 0;
    for (int r = 0; r < world->size; r++)
        *seconds = all[r] > *seconds ? all[r] : *seconds; /* until the last rank has ended */
    return SOTTO_OK;
}

static enum sotto_status play_all(struct calls *c)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        double seconds;
        TRY(play(c, &scenes[i], c->count / 16, &seconds)); /* opens connections */
        TRY(play(c, &scenes[i], c->count, &seconds));
        if (c->worker->rank == 0)
            printf("%s %.6f s\n", scenes[i].name, seconds);
    }
    return SOTTO_OK;
}

static enum sotto_status call(struct sotto_worker *w, void *arg)
{
    struct calls c = {.count = *(const size_t *)arg, .worker = w->worker};
    enum sotto_status st = SOTTO_OK;
    if (w->worker->size < 2 || w->worker->size > LANES)
        return fail(SOTTO_EINVAL, "%d workers: want 2 to %d", w->worker->size, LANES);
    for (int i = 0; i < LANES && st == SOTTO_OK; i++) {
        struct side *s = &c.side[i];
        s->x = calloc(c.count, sizeof *s->x);
        s->y = calloc(c.count, sizeof *s->y);
        st = s->x && s->y ? comm_duplicate(w->worker->world, &s->comm)
                          : fail(SOTTO_ENOMEM, "no memory for %zu elements", c.count);
        if (st == SOTTO_OK)
            st = w->worker->ops->lane(w->worker, &s->lane);
        if (st == SOTTO_OK)
            s->comm->lane = s->lane;
    }
    if (st == SOTTO_OK)
        st = play_all(&c);
    for (int i = 0; i < LANES; i++) {
        lane_close(c.side[i].lane);
        comm_free(c.side[i].comm);
        free(c.side[i].x);
        free(c.side[i].y);
    }
    return st;
}

int main(int argc, char **argv)
{
    struct sotto_options *options = NULL;
    enum sotto_status st = sotto_options_create(&options);
    if (st == SOTTO_OK)
        st = sotto_options_parse(options, &argc, argv);
    const double number = argc == 3 ? atof(argv[2]) : 0;
    size_t count = (size_t)(number * 1e6 / sizeof(float));
    if (st == SOTTO_OK && !(number > 0 && number < 1e4))
        st = fail(SOTTO_EINVAL, "usage: bench_reality train MILLISECONDS | calls MEGABYTES "
                                "[--option=value ...]");
    else if (st == SOTTO_OK && strcmp(argv[1], "train") == 0)
        st = train(options, number);
    else if (st == SOTTO_OK && strcmp(argv[1], "calls") == 0)
        st = sotto_run(options, call, &count);
    else if (st == SOTTO_OK)
        st = fail(SOTTO_EINVAL, "%s: want train or calls", argv[1]);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_reality: %s\n", sotto_error());
    sotto_options_destroy(options);
    return st != SOTTO_OK;
}
