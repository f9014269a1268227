/* The backend of docs/internals/adding-a-backend.md: workers are threads of this process, and a
 * message is a letter that its sender leaves in an office. office.c keeps letters, mail.c has the
 * calls of a communicator, mail_engine.c the workers. */
#ifndef SOTTO_TESTS_COMM_MAIL_H
#define SOTTO_TESTS_COMM_MAIL_H

#include <pthread.h>

#include "comm/worker.h"

enum { MAIL_MOST = 64 }; /* workers */

/* Messages of collectives never meet those of comm_send. */
enum letter_kind {
    LETTER_MESSAGE,
    LETTER_CALL, /* of a collective */
    LETTER_END   /* the sender has ended: no letter follows */
};

struct letter {
    struct letter *next;
    uint64_t box; /* number of the communicator */
    enum letter_kind kind;
    int from, to; /* ranks of the communicator */
    size_t bytes;
    char data[];
};

/* Shared by all communicators of a world. */
struct office {
    pthread_mutex_t lock;         /* of all fields */
    pthread_cond_t moved;         /* a letter was left, or the world was aborted */
    struct letter *first, **last; /* in the order of sending */
    uint64_t boxes;               /* numbers of communicators given so far */
    bool aborted;
    struct status_note note; /* reason of the abort */
};

void office_open(struct office *o);
void office_close(struct office *o);

/* Returns the first of `n` new numbers of communicators. */
uint64_t office_number(struct office *o, int n);

/* Leaves a letter with this head and a copy of `data`; does not wait for the receiver. */
enum sotto_status office_put(struct office *o, struct letter head, const void *data);

/* Takes the first letter with this box, kind and `to` from one of the ranks of `among` (MAIL_MOST);
 * waits at most until the time `until`. *out: to be freed; NULL: no letter came in time. *ended:
 * none can come, since all these ranks have ended. Fails if the world was aborted. */
enum sotto_status office_take(struct office *o, struct letter head, const bool *among, double until,
                              struct letter **out, bool *ended);

/* Ends the waits of all ranks; the first note counts. */
void office_abort(struct office *o, const struct status_note *note);

/* Makes the communicator of rank `rank` of `size`; node: (size), copied. */
enum sotto_status mail_open(struct office *o, uint64_t box, int rank, int size, const int *node,
                            struct comm **out);

/* Reports to all ranks that this rank sends no more. */
void mail_end(struct comm *c);

/* As engine_threads; takes `workers` and `node` of the configuration. */
enum sotto_status engine_mail(const struct engine_config *config, worker_job *job, void *arg);

#endif
