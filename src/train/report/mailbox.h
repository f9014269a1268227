/* Records of one size from the workers to rank 0, while training continues. A lane of its own sends
 * a worker's records, and rank 0 takes the records that have arrived: no worker waits for another.
 * In virtual time the records take no time. */
#ifndef SOTTO_TRAIN_REPORT_MAILBOX_H
#define SOTTO_TRAIN_REPORT_MAILBOX_H

#include "comm/worker.h"

struct mailbox;

/* Opens a mailbox for records of `bytes` bytes; called by all workers. After a failure the mailbox
 * is closed as after success. */
enum sotto_status mailbox_open(struct mailbox **out, struct worker *w, size_t bytes);
void mailbox_close(struct mailbox *m); /* NULL is fine */

/* Sends a copy of `record` to rank 0, which may send to itself. Returns at once. */
enum sotto_status mailbox_send(struct mailbox *m, const void *record);

/* On rank 0: takes the oldest record of rank `from`, or of any rank if `from` is MAILBOX_ANY.
 * `wait`: waits for the record; else *found is false if no record has arrived by now. */
enum { MAILBOX_ANY = -1 };
enum sotto_status mailbox_take(struct mailbox *m, int from, bool wait, void *record, bool *found);

/* Waits until rank 0 has taken, or holds, all records of this worker. On rank 0: does nothing. */
enum sotto_status mailbox_flush(struct mailbox *m);

#endif
