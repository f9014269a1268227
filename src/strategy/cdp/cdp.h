/* Cyclic data parallelism: what the files of its executor share.
 *
 * The schedule (strategy/cdp/schedule/schedule.h) says who computes what and when, with which version of a
 * stage's parameters, and what travels; a worker is one of its devices and does its acts one behind
 * the other. It sends in a lane and receives in another, waits for nothing but the messages that
 * it needs, and never for everybody.
 *
 * A round makes one training step. Micro-batches of the next are under way when it ends; a run that
 * goes on from a checkpoint runs them again. */
#ifndef SOTTO_STRATEGY_CDP_CDP_H
#define SOTTO_STRATEGY_CDP_CDP_H

#include <stdatomic.h>

#include "strategy/cdp/schedule/schedule.h"
#include "strategy/shard/shard.h"
#include "tensor/pool.h"

struct cdp_config {
    int rule, placement; /* enum cdp_rule, enum cdp_placement */
    int stages;          /* single; 0: not said               */
};

extern const struct method method_cdp;

/* Memory for a stage that is here: what it is computed with, sums of gradients and, where updates
 * are made, the optimizer's state, with the truth where that is another vector than the newest
 * version. Each stage of a worker has one. In zero there are two, as one stage comes while another
 * leaves: a worker goes up and down through the stages, so those of even number are in the one and
 * those of odd number in the other, and each has room for the largest of its own. */
struct cdp_room {
    struct buffer theta[2], g[2], x, state[2];
    uint64_t sent; /* the last message of a state that was here, of the lane `out` */
};

/* What this worker has of a stage. */
struct cdp_stage {
    size_t count;
    bool here;             /* it computes with it, or owns it, at times */
    bool owned;            /* it makes the updates, at times            */
    bool two;              /* it holds two versions at times            */
    bool shared;           /* other stages read it, too                 */
    struct cdp_room *room; /* NULL: it is elsewhere                     */
    int64_t version;
    struct view theta[2];   /* `version`, and where there are two the one before it */
    uint64_t theta_sent[2]; /* the last message that these are in, of the lane `out` */
    struct view g[2]; /* the sum of gradients of a step, by its parity: two where one may wait for
                       * its update while the next begins */
    uint64_t g_sent[2];
    struct optim steps; /* owned: with the room's state */
};

/* A message under way in a lane. */
struct cdp_message {
    struct comm *comm;
    struct view view;
    size_t count;
    int peer;
    int slot, edge; /* an edge that is dropped behind it; edge 0: none */
    atomic_bool done;
};

/* A lane with its messages, in a ring; jobs are counted from 1. */
struct cdp_line {
    struct lane *lane;
    struct cdp_message *ring; /* (room) */
    uint64_t room, started, waited;
};

/* A micro-batch under way in a slot of the oracle. */
struct cdp_flight {
    struct cdp *cdp;
    int slot;
    int64_t step;
    int micro;
    uint64_t counted;          /* the job of mesh->lane that reads its loss */
    uint64_t edges;            /* the last message that an edge of it is in */
    struct pool_block **apart; /* (n) gradients of shared stages, until the stage's own backward */
};

struct cdp {
    struct shard shard;
    struct cdp_schedule is;
    int device, devices;
    int64_t t;    /* the training step that the next round makes      */
    int64_t time; /* the time step that comes next                    */
    bool walks;   /* false: the next round begins a schedule with t   */
    bool spread;  /* every device has what the schedule begins with   */
    const struct plan *plan;
    struct cdp_stage *stage;    /* (n) */
    bool *needs;                /* (n, n): what stage j reads of stage k */
    struct view *theta, *grad;  /* (n) of the task that runs */
    struct cdp_act *act, *next; /* (CDP_ACTS) of this time step and of the one behind it */
    int n_act;
    int taken;                 /* messages of the next time step that are being received already */
    struct cdp_flight *flight; /* (slots) */
    struct pool apart;
    struct buffer added;   /* a sum that is to be added */
    struct cdp_room *room; /* (rooms) */
    int rooms;
    struct cdp_line in, out;
    struct comm **comm; /* (2 bits): see wire.c; the mesh's */

    uint64_t told;                  /* jobs of mesh->lane that were started */
    struct counts own[2], total[2]; /* of a step: this worker's, everybody's; of the next as well */
    uint64_t agreed;                /* the job that brings everybody's of this round */
    int64_t reported;               /* the last step whose numbers this worker gives away */
    int64_t telling, hearing;       /* the lane's: the step that is next */
    double squares;                 /* of the averaged gradients that this round has applied */
    double clipped;                 /* the factor of a round's updates; 0: not known yet */
};

/* room.c: memory, and a stage's state that moves through it. */
enum sotto_status cdp_rooms_open(struct cdp *c);
void cdp_rooms_free(struct cdp *c);
struct view cdp_truth(const struct cdp_stage *st);
/* The stage is in this room from now on. */
void cdp_enter_room(struct cdp_stage *st, struct cdp_room *room);
/* zero: the stage's, which no other is in. */
struct cdp_room *cdp_free_room(struct cdp *c, int k);
/* The vectors of a message of state, in the order they are sent in: how many. */
enum { CDP_VECTORS = 6 };
int cdp_state_vectors(const struct cdp *c, const struct cdp_move *move, bool receives,
                      struct view out[CDP_VECTORS]);
/* theta_version is there, beside the one before where there are two. */
void cdp_next_version(struct cdp_stage *st, int64_t version);
enum sotto_status cdp_state_came(struct cdp *c, const struct cdp_move *move);

/* store.c: which versions are held where. */
enum sotto_status cdp_store_open(struct cdp *c);
void cdp_store_free(struct cdp *c);
struct view cdp_theta(struct cdp *c, int k, int64_t version);
void cdp_number(struct cdp *c); /* a schedule is to begin with step t */
enum sotto_status cdp_spread(struct cdp *c);
/* Where the newest version and the optimizer's state of a stage are between rounds. */
int cdp_stage_home(const struct cdp *c, int k);

/* show.c: what others see of it between rounds. */
enum sotto_status cdp_gather(struct strategy *s, const struct view **theta);
enum sotto_status cdp_export(struct strategy *s, float *flat);
enum sotto_status cdp_import(struct strategy *s, const float *flat);
enum sotto_status cdp_visit(struct strategy *s, struct state_visitor *v);
enum sotto_status cdp_show_optimizer(void *cdp, struct state_visitor *v, int i);

/* wire.c: messages. */
enum sotto_status cdp_wire_open(struct cdp *c);
void cdp_wire_free(struct cdp *c);
enum sotto_status cdp_wait(struct cdp_line *line, uint64_t message);
enum sotto_status cdp_send(struct cdp *c, const struct cdp_move *move);
/* Starts to receive; the message's number. */
enum sotto_status cdp_receive(struct cdp *c, const struct cdp_move *move, int slot, uint64_t *out);
/* Gives edges back that have left; all of a micro-batch's have. */
void cdp_drop_sent(struct cdp *c);
enum sotto_status cdp_edges_sent(struct cdp *c, const struct cdp_flight *f);

/* walk.c: acts. */
enum sotto_status cdp_round(struct strategy *s, const struct plan *plan, struct round *out);
/* Receives what is under way, so that a new schedule can begin, or none. */
enum sotto_status cdp_settle(struct cdp *c);

/* update.c: steps. */
enum sotto_status cdp_update(struct cdp *c, const struct cdp_update *u);
enum sotto_status cdp_clip(struct cdp *c); /* the round's factor is there */

/* report.c: what a step counted, and how everybody comes to know it. */
enum sotto_status cdp_note(struct cdp *c, struct cdp_flight *f);
enum sotto_status cdp_counted(struct cdp *c, uint64_t job);
enum sotto_status cdp_report(struct cdp *c, int64_t step);
enum sotto_status cdp_hear(struct cdp *c);
enum sotto_status cdp_agree(struct cdp *c);                   /* the round's total is there */
enum sotto_status cdp_norm(struct cdp *c, struct round *out); /* told to worker 0 */

#endif
