/* The timeline of a schedule of cyclic data parallelism, as text and as a figure. */
#ifndef SOTTO_CLI_SCHEDULE_H
#define SOTTO_CLI_SCHEDULE_H

#include "strategy/cdp/schedule/schedule.h"

enum { SCHEDULE_MOST = 64 }; /* stages */

/* Kinds of schedules, first none. Placements are those of cdp, after `auto`. */
enum schedule_kind { SCHEDULE_NONE, SCHEDULE_V2, SCHEDULE_V1, SCHEDULE_DP, SCHEDULE_1F1B };
extern const char *const schedule_names[];
extern const char *const schedule_placements[];

enum sotto_status schedule_make(enum schedule_kind kind, int placement, int stages,
                                struct cdp_schedule *out);

/* Prints the schedule as text, with its costs below. */
enum sotto_status schedule_print(const struct cdp_schedule *s, enum schedule_kind kind);

/* Writes the schedule as a figure. */
enum sotto_status schedule_svg(const struct cdp_schedule *s, enum schedule_kind kind,
                               const char *path);

/* Returns the rows of both drawings: devices, or the micro-batches of a single device.
 * schedule_task: the task of a row in a time step; schedule_times: time steps to draw, those of two
 * training steps. */
int schedule_rows(const struct cdp_schedule *s);
bool schedule_task(const struct cdp_schedule *s, int row, int64_t time, struct cdp_task *out);
int64_t schedule_times(const struct cdp_schedule *s);

/* Writes a row's label ("worker 0"). schedule_number: the number of a task in its row, from 1: the
 * stage, or the micro-batch if rows are stages. */
void schedule_label(const struct cdp_schedule *s, int row, char out[32]);
int schedule_number(const struct cdp_schedule *s, const struct cdp_task *task);

/* Returns the stage that is updated after a time step, from 1; 0: none; -1: several. */
int schedule_update(const struct cdp_schedule *s, int64_t time);

#endif
