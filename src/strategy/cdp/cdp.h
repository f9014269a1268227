/* Cyclic data parallelism: declarations that the files of its executor share.
 *
 * The schedule (strategy/cdp/schedule/schedule.h) defines which device computes which task when,
 * with which version of a stage's parameters, and which messages are sent. A worker is one device
 * of the schedule and does the device's acts in order. A worker sends in one lane and receives in
 * another, and waits only for messages that its acts need, never for all workers.
 *
 * A round makes one training step. At the end of a round micro-batches of the next step are in
 * flight; a run that resumes from a checkpoint runs these micro-batches again.
 *
 * Files call each other in one direction: room < store < transfer < report < update < walk < show <
 * cdp. */
#ifndef SOTTO_STRATEGY_CDP_CDP_H
#define SOTTO_STRATEGY_CDP_CDP_H

#include <stdatomic.h>

#include "strategy/cdp/schedule/schedule.h"
#include "strategy/shard/shard.h"
#include "tensor/pool.h"

struct cdp_config {
    int rule, placement; /* enum cdp_rule, enum cdp_placement */
    int stages;          /* single; 0: not set by the user    */
};

extern const struct method method_cdp;

/* Memory of one stage on this worker: parameters for computing, sums of gradients and, if the
 * worker updates the stage, the optimizer's state, with fp32 parameters if the computing ones are
 * rounded. Every stage of a worker has a room. In zero a worker has two rooms, since one stage
 * arrives while another leaves: stages of even number use one room, stages of odd number the other,
 * and each room fits the largest of its stages. */
struct cdp_room {
    struct buffer theta[2], g[2], x, state[2];
    uint64_t sent; /* the last state message from this room, in the lane `out` */
};

/* A stage on this worker. */
struct cdp_stage {
    size_t count;           /* parameters                                               */
    bool here;              /* the worker computes or updates the stage, at times       */
    bool owned;             /* the worker updates the stage, at times                   */
    bool two;               /* the worker holds two versions, at times                  */
    bool shared;            /* other stages read the parameters, too                    */
    struct cdp_room *room;  /* NULL: the stage is on another worker                     */
    int64_t version;        /* newest version here                                      */
    struct view theta[2];   /* `version` and, if `two`, version - 1                     */
    uint64_t theta_sent[2]; /* the last message that reads theta[i], in the lane `out`  */
    struct view g[2];       /* sum of gradients of a step, by the step's parity; two different
                             * vectors if a sum may wait for its update while the next begins */
    uint64_t g_sent[2];     /* the last message that reads g[i], in the lane `out`      */
    struct optim steps;     /* owned: over the room's state                             */
};

/* A message in flight in a lane. */
struct cdp_message {
    struct comm *comm;
    struct view view;
    size_t count;
    int peer;
    int slot, edge; /* the oracle's edge that is dropped once the message is sent; edge 0: none */
    atomic_bool done;
};

/* A lane with its messages in a ring. Jobs are counted from 1. */
struct cdp_line {
    struct lane *lane;
    struct cdp_message *ring; /* (room) */
    uint64_t room, started, waited;
};

/* A micro-batch in flight, in a slot of the oracle. */
struct cdp_flight {
    struct cdp *cdp;
    int slot;
    int64_t step;
    int micro;
    uint64_t counted;             /* the job of mesh->lane that reads the loss        */
    uint64_t edges;               /* the last message that reads an edge of the slot  */
    struct pool_block **own_grad; /* (n) separate gradients of shared stages, until the stage's own
                                   * backward */
};

/* The walk through the time steps of a schedule. */
struct cdp_walk {
    bool started;               /* false: the next round starts a schedule with step t      */
    int64_t time;               /* next time step                                           */
    struct view *theta, *grad;  /* (n) of the task that runs                                */
    struct cdp_act *act, *next; /* used in the lane only: the next step to send, to receive */
    int n_act;                  /* of `act`                                                 */
    int early;                  /* receives of the next time step that were posted already */
};

/* Counts of a step: sent to the worker of the step's last loss, summed there, sent to all. Steps
 * alternate between two places, since the next step begins before this one is summed. */
struct cdp_sums {
    struct counts own[2],
        total[2];               /* (n, n): true at (j, k) if stage j reads parameters of stage k */
    int64_t reported;           /* last step whose own counts the worker has queued to send */
    uint64_t jobs;              /* jobs of mesh->lane that were started                     */
    uint64_t total_job;         /* the job that receives the total of this round            */
    int64_t sending, receiving; /* used in the lane only: the next step of either kind of job */
};

struct cdp {
    struct shard shard;
    struct cdp_schedule is;
    int device, devices; /* of the schedule: this worker, number of workers */
    int64_t t;           /* training step that the next round makes         */

    struct cdp_stage *stage;   /* (n)                                                       */
    bool *needs;               /* (n, n): true at (j, k) if stage j reads parameters of stage k */
    struct cdp_room *room;     /* (rooms)                                                   */
    int rooms;                 /* number of rooms                                           */
    struct buffer added;       /* receives a sum, for the worker to add to its own */
    bool spread;               /* all devices have the versions that the schedule begins with */
    struct cdp_flight *flight; /* (slots)                                                   */
    struct pool own_grads;     /* blocks of cdp_flight.own_grad                             */

    struct cdp_line in, out; /* lanes that receive and send                                 */
    struct comm **comm;      /* (2 bits) see transfer.c; owned by the mesh                  */

    struct cdp_walk walk;
    struct cdp_sums sums;
    struct {                     /* the round in progress                             */
        const struct plan *plan; /* the caller's; NULL between rounds                 */
        double squares;          /* summed over averaged gradients that were applied  */
        double clip;             /* factor of all updates; 0: not known yet           */
    } round;
};

/* Returns the device that has the newest version and the optimizer's state of a stage between
 * rounds. */
static inline int cdp_stage_home(const struct cdp *c, int k)
{
    return cdp_home(&c->is, c->t - 1, k);
}

/* ---- memory, and the state of a stage that moves between workers (room.c) ---- */

enum sotto_status cdp_rooms_open(struct cdp *c); /* after cdp_store_open */
void cdp_rooms_free(struct cdp *c);
/* Returns the fp32 parameters of a stage. */
struct view cdp_truth(const struct cdp_stage *st);
/* Puts a stage into a room. */
void cdp_enter_room(struct cdp_stage *st, struct cdp_room *room);
/* zero: returns the room for a stage, which no other stage is in. */
struct cdp_room *cdp_vacant_room(struct cdp *c, int k);
/* Lists the vectors of a state message in the order of sending. Returns their number. */
enum { CDP_VECTORS = 6 };
int cdp_state_vectors(const struct cdp *c, const struct cdp_move *move, bool receives,
                      struct view out[CDP_VECTORS]);
/* Makes theta_version the newest version of a stage, which has been written to the place of the
 * oldest. With two versions the newest before becomes the older. */
void cdp_advance_version(struct cdp_stage *st, int64_t version);
/* Makes a stage's state ready for use after its message was received. */
enum sotto_status cdp_install_state(struct cdp *c, const struct cdp_move *move);

/* ---- the versions that each worker holds (store.c) ---- */

enum sotto_status cdp_store_open(struct cdp *c);
void cdp_store_free(struct cdp *c);
struct view cdp_theta(struct cdp *c, int k, int64_t version);
/* Sets schedule and versions for a schedule that begins with step t. */
void cdp_start_schedule(struct cdp *c);
/* Starts a schedule and sends all workers the versions of its beginning. Called by all. */
enum sotto_status cdp_spread_versions(struct cdp *c);

/* ---- messages (transfer.c) ---- */

enum sotto_status cdp_transfer_open(struct cdp *c);
void cdp_transfer_free(struct cdp *c);
/* Waits until a message of a line, by its number, is sent or received. */
enum sotto_status cdp_wait_message(struct cdp_line *line, uint64_t message);
enum sotto_status cdp_send(struct cdp *c, const struct cdp_move *move);
/* Posts the receive of a message. `out`: the message's number in the line `in`. */
enum sotto_status cdp_receive(struct cdp *c, const struct cdp_move *move, int slot, uint64_t *out);
/* Drops the oracle's edges whose messages are sent. */
void cdp_drop_sent_edges(struct cdp *c);
/* Waits until all edges of a micro-batch are sent, and drops them. */
enum sotto_status cdp_wait_edges(struct cdp *c, const struct cdp_flight *f);

/* ---- counts of a step, summed over the workers (report.c) ---- */

/* Counts the loss of a micro-batch, in the mesh's lane. */
enum sotto_status cdp_count_loss(struct cdp *c, struct cdp_flight *f);
/* Waits for a job of the mesh's lane, by its number. */
enum sotto_status cdp_wait_report(struct cdp *c, uint64_t job);
/* Sends this worker's counts of a step, in the mesh's lane. */
enum sotto_status cdp_send_counts(struct cdp *c, int64_t step);
/* Receives the total of the round's step, in the mesh's lane; cdp_wait_total waits for it. */
enum sotto_status cdp_receive_total(struct cdp *c);
enum sotto_status cdp_wait_total(struct cdp *c);
/* Sums the squares of the round's gradients for worker 0, which reports the norm. Called by all. */
enum sotto_status cdp_sum_norm(struct cdp *c, struct round *out);

/* ---- steps of the optimizer (update.c) ---- */

enum sotto_status cdp_update(struct cdp *c, const struct cdp_update *u);
/* Computes the factor that clips the round's updates. Called by all workers if factors depend on
 * the norm of all gradients. */
enum sotto_status cdp_clip(struct cdp *c);

/* ---- acts (walk.c) ---- */

enum sotto_status cdp_round(struct strategy *s, const struct plan *plan, struct round *out);
/* Computes the factor that clips the round's updates. Called by all workers if the factor depends
 * on the norm of all gradients. */
enum sotto_status cdp_settle(struct cdp *c);

/* ---- parameters and state between rounds (show.c): ops of the strategy ---- */

enum sotto_status cdp_gather(struct strategy *s, const struct view **theta);
enum sotto_status cdp_export(struct strategy *s, float *flat);
enum sotto_status cdp_import(struct strategy *s, const float *flat);
enum sotto_status cdp_visit(struct strategy *s, struct state_visitor *v);
enum sotto_status cdp_show_optimizer(void *cdp, struct state_visitor *v, int i);

#endif
