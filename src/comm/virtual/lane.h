/* A lane as a process in virtual time: jobs begin at their starter's time or when the one before
 * has ended. */
#ifndef SOTTO_COMM_VIRTUAL_LANE_H
#define SOTTO_COMM_VIRTUAL_LANE_H

#include "comm/lane.h"
#include "comm/virtual/sim.h"

struct virtual_lane;

/* A lane of worker `rank`, kept in its list `*all` until it is closed. */
enum sotto_status virtual_lane_open(struct virtual_sim *sim, int rank, struct virtual_lane **all,
                                    struct lane **out);
void virtual_lanes_free(struct virtual_lane **all); /* those that nobody closed */

/* A pause of the worker whose lanes these are begins, and ends, at `now`. In the worker's time of
 * training none passes meanwhile, so what its lanes had under way is done as much later than it is
 * as the pause was long. */
void virtual_lanes_pause(struct virtual_lane *all, double now);
void virtual_lanes_end_pause(struct virtual_lane *all, double now);

/* Of the first job that failed, where `p` is a lane. */
const struct status_note *virtual_lane_failure(const struct virtual_process *p);

#endif
