/* A queue of calls that run late, in the order they were issued: when a caller waits for them, or,
 * with a delay, at any time on the queue's own thread. */
#ifndef SOTTO_TEST_OP_QUEUE_H
#define SOTTO_TEST_OP_QUEUE_H

#include "tensor/device.h"

struct op_queue;

/* `call` is the queue's copy of the issued bytes, valid until the function returns. */
typedef void queued_function(struct device *dev, void *call);

/* Calls run with `dev`, which stays the caller's. `delay`: microseconds that a call runs late, at
 * most; 0: no thread, calls run in the thread that waits for them. */
enum sotto_status op_queue_open(struct op_queue **out, struct device *dev, unsigned delay);
void op_queue_close(struct op_queue *queue); /* waits for all calls */

/* A reference keeps the queue valid for a thread that may wait for it after op_queue_close. */
void op_queue_hold(struct op_queue *queue);
void op_queue_release(struct op_queue *queue);

enum { OP_QUEUE_CALL = 16 << 10 }; /* bytes of a call, at most */

/* Appends a call of `run` with a copy of `bytes` of `call`, followed by `more_bytes` of `more`. */
void op_queue_issue(struct op_queue *queue, queued_function *run, const void *call, size_t bytes,
                    const void *more, size_t more_bytes);

/* Returns the number of calls issued so far. */
uint64_t op_queue_issued(struct op_queue *queue);
/* Waits until the first `calls` calls are done. */
void op_queue_wait(struct op_queue *queue, uint64_t calls);

#endif
