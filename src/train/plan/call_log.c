#include "train/plan/call_log.h"

#include <stdlib.h>

enum sotto_status asked_add(struct asked *t, enum asked_what what, int slot, int stage)
{
    if (t->n == ASKED_MOST)
        return SOTTO_OK;
    if (t->n == t->room) {
        const size_t room = t->room ? 2 * t->room : 64;
        struct asked_act *act = realloc(t->act, room * sizeof *act);
        if (!act)
            return fail(SOTTO_ENOMEM, "no memory for %zu acts of a round", room);
        t->act = act;
        t->room = room;
    }
    t->act[t->n++] = (struct asked_act){what, slot, stage};
    return SOTTO_OK;
}

bool asked_goes_on(const struct asked *t)
{
    size_t forwards = 0, backwards = 0;
    for (size_t i = 0; i < t->n; i++) {
        forwards += t->act[i].what == ASKED_FORWARD;
        backwards += t->act[i].what == ASKED_BACKWARD;
    }
    return forwards != backwards;
}

bool asked_same(const struct asked *a, const struct asked *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->act[i].what != b->act[i].what || a->act[i].slot != b->act[i].slot ||
            a->act[i].stage != b->act[i].stage)
            return false;
    return true;
}

void asked_free(struct asked *t)
{
    free(t->act);
    *t = (struct asked){0};
}

enum sotto_status asked_run(const struct asked *t, size_t *at, struct tape *tape,
                            const struct batch *batch, const struct view *theta,
                            const struct view *grad)
{
    while (*at < t->n && t->act[*at].what != ASKED_PAUSE) {
        const struct asked_act *a = &t->act[(*at)++];
        struct tape *to = &tape[a->slot];
        struct view edge;
        switch (a->what) {
        case ASKED_BEGIN:
            TRY(tape_begin(to, batch, TAPE_TRAIN, 1));
            break;
        case ASKED_FORWARD:
            TRY(tape_forward(to, a->stage, theta));
            break;
        case ASKED_BACKWARD:
            TRY(tape_backward(to, a->stage, theta, grad));
            break;
        case ASKED_EDGE:
            TRY(tape_edge(to, a->stage, &edge));
            break;
        case ASKED_EDGE_GRADIENT:
            TRY(tape_edge_gradient(to, a->stage, &edge));
            break;
        default:
            tape_edge_drop(to, a->stage);
        }
    }
    *at += *at < t->n;
    return SOTTO_OK;
}
