/* What a method asks of a model in a round, written down by an oracle that computes nothing, and
 * asked again of tapes: the memory of activations as it will be taken. */
#ifndef SOTTO_TRAIN_PLAN_CALL_LOG_H
#define SOTTO_TRAIN_PLAN_CALL_LOG_H

#include "nn/tape.h"

enum asked_what {
    ASKED_BEGIN,
    ASKED_FORWARD,
    ASKED_BACKWARD,
    ASKED_EDGE,
    ASKED_EDGE_GRADIENT,
    ASKED_DROP,
    ASKED_PAUSE /* between rounds */
};

struct asked {
    struct asked_act {
        enum asked_what what;
        int slot, stage;
    } * act;
    size_t n, room;
};

/* What comes behind the first ASKED_MOST is more of the same, and left out. */
enum { ASKED_MOST = 1 << 16 };
enum sotto_status asked_add(struct asked *t, enum asked_what what, int slot, int stage);
/* Whether a micro-batch is under way at its end. */
bool asked_goes_on(const struct asked *t);
bool asked_same(const struct asked *a, const struct asked *b);
void asked_free(struct asked *t);

/* From act *at on up to a pause, which *at is behind then, or to the end. With tapes for its slots,
 * whose device computes nothing: views of all stages that have a type and hold nothing. */
enum sotto_status asked_run(const struct asked *t, size_t *at, struct tape *tape,
                            const struct batch *batch, const struct view *theta,
                            const struct view *grad);

#endif
