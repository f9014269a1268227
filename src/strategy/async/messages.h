/* Asynchronous DiLoCo (Liu et al. 2024): what its two sides tell each other.
 *
 * Each worker of group 0 has a lane with a server of the slice that it owns (server_api.h): x0
 * and the outer optimizer. The first of them, the leader, has the book of all groups
 * (async/server.h) and tells the others what is due. Worker s of a group sends what it moved to the
 * server of its slice, and gets x0 and the next task from it (group.h):
 *
 *     up      to the server:      what was moved, or nothing, and then a word (to the leader)
 *     down    from the server:    a word, and x0 with a task
 *
 * With dtype = bf16 what was moved is rounded once, to nearest, ties to even, and the server adds
 * that to fp32 state; what is lost by it is not kept for later. x0 comes back in fp32: it is no
 * small difference whose roundings would average out, but what all go on from.
 *
 * All groups meet when the leader rings: their first workers look between two rounds. A group has
 * come when it has said so; the server rests when all have, and goes on with the first that says it
 * goes. While the leader rings, groups that wait for an answer are told to wait until behind the
 * meeting, so that they come, too. A push that a meeting has put off is applied before the leader
 * rings for another save, unless its group stands still: where saves are due more often than a push
 * takes over the link, the run would not get on otherwise.
 *
 * Where the time of a run is over, its groups push what they have done of their tasks before they
 * meet, as shorter ones: by the same rule, as all whose tasks are not of one length (with
 * dylu, and the last of each data shard). The steps that are left are given out by a run that goes
 * on.
 *
 * For a save nobody waits, where somebody keeps state (struct snapshot_hook): the leader sends a
 * mark down every way, and what it has itself is kept at that moment. A group that comes to the
 * mark keeps what it has, and goes on. Whatever was sent down before the mark is before it for both
 * sides; what was pushed, and not applied before it, is pushed again by the run that goes on from
 * there.
 */
#ifndef SOTTO_STRATEGY_ASYNC_MESSAGES_H
#define SOTTO_STRATEGY_ASYNC_MESSAGES_H

#include "strategy/async/async.h"
#include "strategy/async/outer.h"
#include "strategy/async/server.h"
#include "strategy/replicate/replicate.h"

enum async_lost { LOST_END, LOST_DROP };

struct async_config {
    int64_t H;
    int outer; /* enum async_outer_rule */
    double outer_lr, outer_momentum;
    int64_t N;
    double c, weight;
    bool staleness, dylu;
    double grace, prune;
    double eval_seconds, save_seconds;
    int dtype; /* enum dtype: fp32 or bf16 */
    int lost;  /* enum async_lost          */
    bool cosine;
    char replay[OPTION_ROOM];
};

enum up_kind {
    UP_GO,    /* the group begins, or goes on behind a meeting       */
    UP_PUSH,  /* with what it moved before it                        */
    UP_CAME,  /* to the meeting                                      */
    UP_STOP,  /* it wants to stop, with `cut` for good               */
    UP_LEAVE, /* it cannot go on, but comes to meetings              */
    UP_END    /* of the server, whatever is under way                */
};
struct up_word {
    int64_t kind;
    int64_t rounds; /* T, as far as is known */
    int64_t cut;    /* tasks under way are to be pushed as they are before */
    int64_t step;   /* UP_GO: where the run begins, unless the server's state came with it */
    int64_t pushes; /* UP_GO: the group's task is done, and its push is still to be applied */
    struct async_push push;
};

enum down_kind {
    DOWN_TASK,  /* with x0 behind it                                */
    DOWN_HOLD,  /* the answer comes behind the meeting              */
    DOWN_AGAIN, /* it was not applied: to be pushed behind it       */
    DOWN_CUT,   /* the task ends with this step                     */
    DOWN_BELL,  /* all are to meet                                  */
    DOWN_MARK,  /* the group is to keep what it has                 */
    DOWN_REST   /* all have come: the server's state may be looked at */
};
struct down_word {
    int64_t kind;
    struct async_task task;
    int64_t step; /* the run's */
    int64_t most; /* no group has trained more steps than these */
    int64_t evaluate, stop;
    int64_t applied; /* with a mark: the push that an answer is owed for */
};

#endif
