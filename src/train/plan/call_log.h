/* The calls of a method to its oracle during rounds: logged by an oracle that computes nothing,
 * then replayed on tapes, which gives the memory of activations. */
#ifndef SOTTO_TRAIN_PLAN_CALL_LOG_H
#define SOTTO_TRAIN_PLAN_CALL_LOG_H

#include "nn/tape.h"

enum logged_kind {
    LOGGED_BEGIN,
    LOGGED_FORWARD,
    LOGGED_BACKWARD,
    LOGGED_EDGE,
    LOGGED_EDGE_GRADIENT,
    LOGGED_DROP,
    LOGGED_PAUSE /* between rounds */
};

struct call_log {
    struct logged_call {
        enum logged_kind kind;
        int slot, stage;
    } * call;
    size_t n, room;
};

/* Logs a call. Calls after the first CALL_LOG_MOST repeat earlier rounds and are left out. */
enum { CALL_LOG_MOST = 1 << 16 };
enum sotto_status call_log_add(struct call_log *t, enum logged_kind kind, int slot, int stage);
/* True if a micro-batch is in flight at the end of the log. */
bool call_log_in_flight(const struct call_log *t);
bool call_log_same(const struct call_log *a, const struct call_log *b);
void call_log_free(struct call_log *t);

/* Replays calls from *at up to a pause or to the end; *at is then the call after the pause. `tape`:
 * one a slot, on a device that computes nothing. `theta`, `grad`: views of all stages, with a type
 * and without data. */
enum sotto_status call_log_replay(const struct call_log *t, size_t *at, struct tape *tape,
                                  const struct batch *batch, const struct view *theta,
                                  const struct view *grad);

#endif
