/* Walks through a schedule as its devices would, noting versions instead of computing: every act
 * must find its inputs on its device, and leaves its result there. A device sends one message after
 * another, each once the message before is received, and a receive waits for its own message. */
#ifndef SOTTO_TESTS_STRATEGY_CDP_CDP_WALK_H
#define SOTTO_TESTS_STRATEGY_CDP_CDP_WALK_H

#include "strategy/cdp/schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    WALK_N = 8,
    WALK_DEVICES = WALK_N * (WALK_N + 1) / 2,
    WALK_QUEUE = 4 * WALK_N,
    WALK_VERSIONS = 3
};

struct walk_stage { /* what a device has of a stage */
    int64_t version[WALK_VERSIONS];
    int versions;
    unsigned sum[2];   /* micro-batches in the gradient sum of an even and an odd step */
    int64_t optimizer; /* updates made so far; -1: on another device */
};

struct walk_slot { /* a micro-batch in flight on a device */
    int64_t step;
    int micro;
    int64_t version[WALK_N];             /* version of the stage's forward; -1: no activations */
    bool edge[WALK_N], gradient[WALK_N]; /* before stage j, after stage j */
};

struct walk_message {
    struct cdp_move move;
    unsigned sum[2];
    int64_t optimizer;
};

struct walk_device {
    struct walk_stage stage[WALK_N];
    struct walk_slot slot[WALK_N];
};

struct walk {
    struct cdp_schedule s;
    struct walk_device device[WALK_DEVICES];
    struct walk_message queue[WALK_DEVICES][WALK_QUEUE]; /* from */
    int queued[WALK_DEVICES];
    int64_t sent[CDP_STATE + 1]; /* messages so far */
};

static bool walk_has(const struct walk_stage *stage, int64_t version)
{
    for (int k = 0; k < stage->versions; k++)
        if (stage->version[k] == version)
            return true;
    return false;
}

static void walk_install(struct walk_stage *stage, int64_t version)
{
    if (walk_has(stage, version))
        return;
    assert_true(stage->versions < WALK_VERSIONS);
    stage->version[stage->versions++] = version;
}

/* Drops all versions but those that the schedule lists in a time step. */
static void walk_purge(struct walk *w, int device, int64_t time)
{
    for (int j = 0; j < w->s.n; j++) {
        struct walk_stage *stage = &w->device[device].stage[j];
        int64_t held[2];
        const int n = cdp_holds(&w->s, device, j, time, held);
        int left = 0;
        for (int k = 0; k < stage->versions; k++)
            if ((n > 0 && stage->version[k] == held[0]) || (n > 1 && stage->version[k] == held[1]))
                stage->version[left++] = stage->version[k];
        stage->versions = left;
    }
}

static void walk_begin(struct walk *w, const struct cdp_schedule *s)
{
    memset(w, 0, sizeof *w);
    w->s = *s;
    for (int d = 0; d < cdp_devices(s); d++) {
        for (int j = 0; j < s->n; j++) {
            struct walk_stage *stage = &w->device[d].stage[j];
            const bool home = cdp_home(s, s->first - 1, j) == d;
            stage->versions = cdp_holds(s, d, j, 0, stage->version);
            stage->optimizer = home ? s->first : -1;
            assert_true(!home || walk_has(stage, s->first));
        }
        for (int k = 0; k < WALK_N; k++) {
            w->device[d].slot[k].micro = -1;
            for (int j = 0; j < WALK_N; j++)
                w->device[d].slot[k].version[j] = -1;
        }
    }
}

/* Returns the slot of a micro-batch on a device; a free slot becomes the micro-batch's. */
static struct walk_slot *walk_slot(struct walk *w, int device, int64_t step, int micro, int k)
{
    assert_in_range(k, 0, cdp_slots(&w->s, device) - 1);
    struct walk_slot *slot = &w->device[device].slot[k];
    if (slot->micro < 0) {
        slot->step = step;
        slot->micro = micro;
    }
    assert_int_equal(slot->micro, micro);
    assert_int_equal(slot->step, step);
    return slot;
}

static void walk_leave(struct walk *w, struct walk_slot *slot)
{
    for (int j = 0; j < w->s.n; j++)
        if (slot->version[j] >= 0 || slot->edge[j] || slot->gradient[j])
            return;
    slot->micro = -1;
}

static void walk_run(struct walk *w, int device, const struct cdp_task *t)
{
    const int n = w->s.n, j = t->stage;
    struct walk_stage *stage = &w->device[device].stage[j];
    struct walk_slot *slot = walk_slot(w, device, t->step, t->micro, t->slot);
    unsigned *sum = &stage->sum[t->step % 2];
    assert_true(walk_has(stage, t->version));
    if (!t->backward) {
        assert_true(j == 0 || slot->edge[j]);
        assert_int_equal(slot->version[j], -1);
        slot->edge[j] = false;
        slot->version[j] = t->version;
        if (j + 1 < n)
            slot->edge[j + 1] = true;
        return;
    }
    assert_true(j == n - 1 || slot->gradient[j]);
    assert_int_equal(slot->version[j], t->version);
    assert_int_equal(t->opens, *sum == 0);
    assert_int_equal(*sum >> t->micro, 0); /* sums run in the order of micro-batches */
    *sum |= 1U << t->micro;
    slot->version[j] = -1;
    slot->gradient[j] = false;
    if (j > 0)
        slot->gradient[j - 1] = true;
    walk_leave(w, slot);
}

static void walk_update(struct walk *w, int device, const struct cdp_update *u)
{
    struct walk_stage *stage = &w->device[device].stage[u->stage];
    assert_true(walk_has(stage, u->step));
    assert_int_equal(stage->sum[u->step % 2], (1U << w->s.n) - 1);
    assert_int_equal(stage->optimizer, u->step);
    stage->optimizer++;
    stage->sum[u->step % 2] = 0;
    walk_install(stage, u->step + 1);
}

static struct walk_slot *walk_find_slot(struct walk *w, int device, const struct cdp_move *m)
{
    int k = 0;
    while (w->device[device].slot[k].micro != m->micro || w->device[device].slot[k].step != m->step)
        assert_in_range(++k, 0, cdp_slots(&w->s, device) - 1);
    return &w->device[device].slot[k];
}

static void walk_send_state(struct walk *w, struct walk_stage *stage, struct walk_message *msg)
{
    const struct cdp_move *m = &msg->move;
    const unsigned parts = m->parts;
    assert_true(!(parts & CDP_PART_NEWEST) || walk_has(stage, m->version));
    assert_true(!(parts & CDP_PART_OLDER) || walk_has(stage, m->version - 1));
    assert_true(parts & CDP_PART_OPTIMIZER);
    assert_true(stage->optimizer >= 0);
    msg->optimizer = stage->optimizer;
    stage->optimizer = -1;
    if (w->s.placement == CDP_MP) /* devices have sums of their own */
        return;
    const unsigned waiting = stage->sum[(m->step + 1) % 2];
    assert_int_equal(!!(parts & CDP_PART_SUM), !!stage->sum[m->step % 2]);
    assert_int_equal(!!(parts & CDP_PART_WAITING), !!waiting);
    assert_true(!waiting || waiting == (1U << w->s.n) - 1);
    memcpy(msg->sum, stage->sum, sizeof msg->sum);
    stage->sum[0] = stage->sum[1] = 0;
}

static void walk_send(struct walk *w, int device, const struct cdp_move *m)
{
    struct walk_stage *stage = &w->device[device].stage[m->stage];
    struct walk_message *msg = &w->queue[device][w->queued[device]++];
    struct walk_slot *slot;
    assert_true(w->queued[device] <= WALK_QUEUE);
    assert_int_equal(m->from, device);
    assert_int_not_equal(m->to, device);
    assert_in_range(m->to, 0, cdp_devices(&w->s) - 1);
    *msg = (struct walk_message){.move = *m};
    w->sent[m->what]++;
    switch (m->what) {
    case CDP_ACTIVATION:
        slot = walk_find_slot(w, device, m);
        assert_true(slot->edge[m->stage]);
        slot->edge[m->stage] = false;
        walk_leave(w, slot);
        break;
    case CDP_ACTIVATION_GRADIENT:
        slot = walk_find_slot(w, device, m);
        assert_true(slot->gradient[m->stage]);
        slot->gradient[m->stage] = false;
        walk_leave(w, slot);
        break;
    case CDP_SUM:
        msg->sum[0] = stage->sum[m->step % 2];
        assert_int_equal(msg->sum[0] >> m->micro, 1);
        stage->sum[m->step % 2] = 0;
        break;
    case CDP_PARAMETERS:
        assert_true(walk_has(stage, m->version));
        break;
    case CDP_STATE:
        walk_send_state(w, stage, msg);
    }
}

static void walk_same(const struct cdp_move *a, const struct cdp_move *b)
{
    assert_int_equal(a->what, b->what);
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->micro, b->micro);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->parts, b->parts);
    assert_int_equal(a->add, b->add);
    assert_int_equal(a->after, b->after);
    assert_int_equal(a->before, b->before);
}

/* True if the message has arrived. */
static bool walk_receive(struct walk *w, int device, const struct cdp_move *m, int64_t time)
{
    struct walk_stage *stage = &w->device[device].stage[m->stage];
    struct walk_message *queue = w->queue[m->from], msg = queue[0];
    assert_int_equal(m->to, device);
    if (w->queued[m->from] == 0 || msg.move.to != device)
        return false;
    walk_same(&msg.move, m); /* the order is the sender's */
    memmove(queue, queue + 1, sizeof *queue * (size_t)--w->queued[m->from]);
    assert_true(m->after < m->before);
    assert_in_range(time, m->after, m->before);
    switch (m->what) {
    case CDP_ACTIVATION:
    case CDP_ACTIVATION_GRADIENT: {
        struct cdp_task task;
        assert_true(cdp_stage_task(&w->s, m->stage, m->before, &task));
        struct walk_slot *slot = walk_slot(w, device, m->step, m->micro, task.slot);
        *(m->what == CDP_ACTIVATION ? &slot->edge[m->stage] : &slot->gradient[m->stage]) = true;
        break;
    }
    case CDP_SUM:
        assert_int_equal(stage->sum[m->step % 2] & msg.sum[0], 0);
        assert_true(m->add || stage->sum[m->step % 2] == 0);
        stage->sum[m->step % 2] |= msg.sum[0];
        break;
    case CDP_PARAMETERS:
        walk_install(stage, m->version);
        break;
    case CDP_STATE:
        assert_int_equal(stage->optimizer, -1);
        stage->optimizer = msg.optimizer;
        stage->sum[0] |= msg.sum[0];
        stage->sum[1] |= msg.sum[1];
        if (m->parts & CDP_PART_NEWEST)
            walk_install(stage, m->version);
        if (m->parts & CDP_PART_OLDER)
            walk_install(stage, m->version - 1);
    }
    return true;
}

static bool walk_act(struct walk *w, int device, const struct cdp_act *act, int64_t time)
{
    switch (act->what) {
    case CDP_SEND:
        walk_send(w, device, &act->move);
        return true;
    case CDP_RECEIVE:
        return walk_receive(w, device, &act->move, time);
    case CDP_RUN:
        walk_run(w, device, &act->task);
        return true;
    default:
        walk_update(w, device, &act->update);
        return true;
    }
}

/* Checks that a device holds in a time step all versions that the schedule lists. */
static void walk_check_held(struct walk *w, int device, int64_t time)
{
    for (int j = 0; j < w->s.n; j++) {
        int64_t held[2];
        const int n = cdp_holds(&w->s, device, j, time, held);
        assert_in_range(n, 0, 2);
        assert_true(n < 2 || held[1] == held[0] + 1);
        for (int k = 0; k < n; k++)
            assert_true(walk_has(&w->device[device].stage[j], held[k]));
    }
}

/* All devices, each as far as it gets, until the time step is done. */
static void walk_time(struct walk *w, int64_t time)
{
    static struct cdp_act act[WALK_DEVICES][CDP_ACTS(WALK_N)];
    const int devices = cdp_devices(&w->s);
    int n[WALK_DEVICES], at[WALK_DEVICES] = {0}, left = 0;
    for (int d = 0; d < devices; d++) {
        n[d] = cdp_acts(&w->s, d, time, act[d]);
        assert_in_range(n[d], 0, CDP_ACTS(w->s.n));
        for (; at[d] < n[d] && act[d][at[d]].what == CDP_SEND; at[d]++)
            walk_send(w, d, &act[d][at[d]].move);
        walk_purge(w, d, time); /* what was sent may be gone */
        left += n[d] - at[d];
    }
    for (int before = left + 1; left > 0 && left < before;) {
        before = left;
        for (int d = 0; d < devices; d++)
            for (; at[d] < n[d] && walk_act(w, d, &act[d][at[d]], time); at[d]++)
                left--;
    }
    assert_int_equal(left, 0); /* otherwise they wait for each other */
    for (int d = 0; d < devices; d++)
        walk_check_held(w, d, time);
}

#endif
