/* A lane as a process in virtual time: a job begins at its starter's time, or at the end of the job
 * before. */
#ifndef SOTTO_COMM_VIRTUAL_LANE_H
#define SOTTO_COMM_VIRTUAL_LANE_H

#include "comm/lane.h"
#include "comm/virtual/sim.h"

struct virtual_lane;

/* Opens a lane of worker `rank`, kept in the worker's list `*all` until it is closed. */
enum sotto_status virtual_lane_open(struct virtual_sim *sim, int rank, struct virtual_lane **all,
                                    struct lane **out);
void virtual_lanes_free(struct virtual_lane **all); /* frees the lanes that were not closed */

/* Begins and ends, at `now`, a pause of the worker that has these lanes. No training time passes in
 * a pause, so jobs in flight end later by the length of the pause. */
void virtual_lanes_pause(struct virtual_lane *all, double now);
void virtual_lanes_end_pause(struct virtual_lane *all, double now);

/* Returns the failure of the first failed job of a lane's process `p`. */
const struct status_note *virtual_lane_failure(const struct virtual_process *p);

#endif
