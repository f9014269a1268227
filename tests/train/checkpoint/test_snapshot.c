/* Saves of groups without common rounds for which nobody waits: a group is in the middle of a step
 * while the others come to the save and train on; what all have kept is one moment of the run. */
#include "strategy/async/async_lab.h"

#include <errno.h>

#include "train/run/gather.h"

enum { BEHIND = 20 }; /* steps of the first group behind its save, while the other is in one */

struct kept;
struct server {
    struct kept *kept;
    int rank;
};

struct kept {
    struct lab lab;
    struct memory memory;
    struct packed part[2 * MOST]; /* each worker's own, and what its server had */
    pthread_cond_t moved;
    int64_t at[MOST];  /* micro-batches begun    */
    int64_t own[MOST]; /* ... when it kept what it has; 0: not yet */
    int saves;         /* begun                  */
    struct server server[MOST];
    bool late; /* the first group has waited for the other */
};

static bool ready(void *arg)
{
    struct kept *k = ((struct server *)arg)->kept;
    pthread_mutex_lock(&k->lab.lock);
    const bool is = k->saves == 0;
    pthread_mutex_unlock(&k->lab.lock);
    return is;
}

/* In the server's lane; of a group of two by each of them. */
static enum sotto_status keep_server(void *arg, state_owner *visit, void *owner)
{
    const struct server *s = arg;
    struct kept *k = s->kept;
    pthread_mutex_lock(&k->lab.lock);
    k->saves++;
    pthread_mutex_unlock(&k->lab.lock);
    return packed_make(&k->part[MOST + s->rank], &k->memory, s->rank, true, visit, owner);
}

static enum sotto_status keep(struct lab *lab, struct pupil *p)
{
    struct kept *k = (struct kept *)lab;
    const int rank = p->worker->rank;
    pthread_mutex_lock(&lab->lock);
    k->own[rank] = k->at[rank];
    pthread_mutex_unlock(&lab->lock);
    return packed_make(&k->part[rank], &k->memory, rank, p->mesh.r == 0,
                       (state_owner *)p->s->ops->visit, p->s);
}

/* The first worker of the second group stays in its third step. */
static enum sotto_status hold(struct lab *lab, struct worker *w)
{
    struct kept *k = (struct kept *)lab;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&lab->lock);
    const bool holds = ++k->at[w->rank] == 6 && w->rank == lab->slices;
    while (holds && !k->late && !(k->own[0] > 0 && k->at[0] >= k->own[0] + 2 * BEHIND))
        k->late = pthread_cond_timedwait(&k->moved, &lab->lock, &until) == ETIMEDOUT;
    pthread_cond_broadcast(&k->moved);
    pthread_mutex_unlock(&lab->lock);
    return SOTTO_OK;
}

static void write_kept(struct kept *k, const char *path)
{
    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    for (int i = 0; i < 2 * MOST; i++)
        assert_ok(packed_show(&k->part[i], &v));
    assert_ok(state_saver_write(&v, path));
    state_free(&v);
    for (int i = 0; i < 2 * MOST; i++)
        packed_free(&k->part[i]);
    assert_int_equal(k->memory.total, 0);
}

static struct lab pair(int slices, const char *pushes)
{
    return (struct lab){.shard = slices > 1 ? "zero1" : "ddp",
                        .groups = 2,
                        .slices = slices,
                        .options = {"async-diloco.H=3"},
                        .rounds = 40,
                        .threads = true,
                        .pushes = pushes};
}

static void nobody_waits(void **state)
{
    (void)state;
    for (int slices = 1; slices <= 2; slices++) {
        struct kept k = {.lab = pair(slices, NULL)};
        char option[256];
        k.lab.save_every = 4;
        for (int i = 0; i < MOST; i++) {
            k.server[i] = (struct server){&k, i};
            k.lab.keeper[i] =
                (struct snapshot_hook){.arg = &k.server[i], .ready = ready, .keep = keep_server};
        }
        k.lab.keep = keep;
        k.lab.before = hold;
        pthread_cond_init(&k.moved, NULL);
        assert_ok(lab_run(&k.lab));
        pthread_cond_destroy(&k.moved);
        assert_false(k.late);
        assert_int_equal(k.saves, slices);
        assert_int_equal(k.lab.meetings, 1); /* at the end */
        write_kept(&k, at("state"));
        /* What goes on from there, and nothing of what followed, is a run that was in one piece. */
        struct lab rest = pair(slices, at("rest.tsv")), whole = pair(slices, at("whole.tsv"));
        rest.from = at("state");
        assert_ok(lab_run(&rest));
        snprintf(option, sizeof option, "async-diloco.replay=%s", at("rest.tsv"));
        whole.options[1] = option;
        assert_ok(lab_run(&whole));
        assert_memory_equal(whole.x, rest.x, sizeof rest.x);
        assert_int_equal(whole.samples, 2 * 2 * 40 * slices);
        const int64_t before = k.own[0] + k.own[slices]; /* of each worker of two groups */
        assert_int_equal(rest.samples + slices * before, whole.samples);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
