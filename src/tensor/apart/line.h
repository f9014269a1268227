/* Calls that run late, one after another, in the order they were issued: when somebody waits for
 * them, or with a delay at any time, on a thread of their own. */
#ifndef SOTTO_TENSOR_APART_LINE_H
#define SOTTO_TENSOR_APART_LINE_H

#include "tensor/device.h"

struct line;

/* `call` is a copy of what was issued, of the line until the job returns. */
typedef void line_job(struct device *dev, void *call);

/* Its jobs run on `dev`, which stays the caller's; `delay` microseconds late, at most. */
enum sotto_status line_open(struct line **out, struct device *dev, unsigned delay);
void line_close(struct line *line); /* waits for all jobs */

/* For whoever is to wait for it, perhaps when it is closed. */
void line_hold(struct line *line);
void line_drop(struct line *line);

enum { LINE_CALL = 16 << 10 }; /* bytes that a call may have, at most */

/* Takes a copy of `bytes` of call and of `more`, which follow each other. */
void line_issue(struct line *line, line_job *job, const void *call, size_t bytes, const void *more,
                size_t more_bytes);

/* How many jobs have been issued; waits until so many are done. */
uint64_t line_issued(struct line *line);
void line_wait(struct line *line, uint64_t jobs);

#endif
