/* The timeline of a schedule of cyclic data parallelism, drawn. */
#ifndef SOTTO_CLI_SCHEDULE_H
#define SOTTO_CLI_SCHEDULE_H

#include "strategy/cdp/schedule/schedule.h"

enum { SCHEDULE_MOST = 64 }; /* stages */

/* What there is to choose from; the first: none. Placements are those of cdp, behind `auto`. */
enum schedule_kind { SCHEDULE_NONE, SCHEDULE_V2, SCHEDULE_V1, SCHEDULE_DP, SCHEDULE_1F1B };
extern const char *const schedule_names[];
extern const char *const schedule_placements[];

enum sotto_status schedule_make(enum schedule_kind kind, int placement, int stages,
                                struct cdp_schedule *out);

/* As text, with what it takes below. */
enum sotto_status schedule_print(const struct cdp_schedule *s, enum schedule_kind kind);

/* As a figure. */
enum sotto_status schedule_svg(const struct cdp_schedule *s, enum schedule_kind kind,
                               const char *path);

/* For both: rows are devices, or the micro-batches of a single one; the task of a row in a time
 * step; and how many time steps are drawn, those of two training steps. */
int schedule_rows(const struct cdp_schedule *s);
bool schedule_task(const struct cdp_schedule *s, int row, int64_t time, struct cdp_task *out);
int64_t schedule_times(const struct cdp_schedule *s);

/* What a row is ("worker 0"), and the number that a task goes by in it, from 1: its stage or, where
 * a row is a stage, its micro-batch. */
void schedule_label(const struct cdp_schedule *s, int row, char out[32]);
int schedule_number(const struct cdp_schedule *s, const struct cdp_task *task);

/* The stage that is updated behind a time step, from 1; 0: none; -1: several. */
int schedule_update(const struct cdp_schedule *s, int64_t time);

#endif
