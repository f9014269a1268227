#include "train/plan/call_log.h"

#include <stdlib.h>

enum sotto_status call_log_add(struct call_log *t, enum logged_kind kind, int slot, int stage)
{
    if (t->n == CALL_LOG_MOST)
        return SOTTO_OK;
    if (t->n == t->room) {
        const size_t room = t->room ? 2 * t->room : 64;
        struct logged_call *call = realloc(t->call, room * sizeof *call);
        if (!call)
            return fail(SOTTO_ENOMEM, "no memory for %zu calls of a round", room);
        t->call = call;
        t->room = room;
    }
    t->call[t->n++] = (struct logged_call){kind, slot, stage};
    return SOTTO_OK;
}

bool call_log_in_flight(const struct call_log *t)
{
    size_t forwards = 0, backwards = 0;
    for (size_t i = 0; i < t->n; i++) {
        forwards += t->call[i].kind == LOGGED_FORWARD;
        backwards += t->call[i].kind == LOGGED_BACKWARD;
    }
    return forwards != backwards;
}

bool call_log_same(const struct call_log *a, const struct call_log *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->call[i].kind != b->call[i].kind || a->call[i].slot != b->call[i].slot ||
            a->call[i].stage != b->call[i].stage)
            return false;
    return true;
}

void call_log_free(struct call_log *t)
{
    free(t->call);
    *t = (struct call_log){0};
}

enum sotto_status call_log_replay(const struct call_log *t, size_t *at, struct tape *tape,
                                  const struct batch *batch, const struct view *theta,
                                  const struct view *grad)
{
    while (*at < t->n && t->call[*at].kind != LOGGED_PAUSE) {
        const struct logged_call *a = &t->call[(*at)++];
        struct tape *to = &tape[a->slot];
        struct view edge;
        switch (a->kind) {
        case LOGGED_BEGIN:
            TRY(tape_begin(to, batch, TAPE_TRAIN, 1));
            break;
        case LOGGED_FORWARD:
            TRY(tape_forward(to, a->stage, theta));
            break;
        case LOGGED_BACKWARD:
            TRY(tape_backward(to, a->stage, theta, grad));
            break;
        case LOGGED_EDGE:
            TRY(tape_edge(to, a->stage, &edge));
            break;
        case LOGGED_EDGE_GRADIENT:
            TRY(tape_edge_gradient(to, a->stage, &edge));
            break;
        default:
            tape_edge_drop(to, a->stage);
        }
    }
    *at += *at < t->n;
    return SOTTO_OK;
}
