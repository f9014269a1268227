/* A fiber: a stack of its own. The thread switches to the fiber and back. */
#ifndef SOTTO_COMM_VIRTUAL_FIBER_H
#define SOTTO_COMM_VIRTUAL_FIBER_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

#include "base/status.h"

typedef void fiber_body(void *arg); /* ends with a last switch, never by returning */

struct fiber {
    sigjmp_buf *at; /* where the fiber continues; NULL: at its beginning */
    fiber_body *body;
    void *arg;
    void *map; /* guard page and stack; NULL: the thread's own stack */
    size_t bytes;
    ucontext_t context; /* start of the fiber */
    /* For sanitizers, which need every switch: bounds of the stack, the fiber switched from, and
     * the sanitizers' own data. */
    const void *bottom;
    size_t room;
    struct fiber *previous;
    void *fake_stack, *tsan;
};

/* Makes the thread's own stack a fiber to return to; nothing to free. */
void fiber_adopt(struct fiber *f);

enum sotto_status fiber_init(struct fiber *f, fiber_body *body, void *arg);
void fiber_free(struct fiber *f); /* for a fiber that has ended or is never switched to again */

/* Prefetches the top of the stack of a fiber that will be switched to soon. */
void fiber_prefetch(const struct fiber *f);

/* Switches to `to`. Returns when a fiber switches back to `from`; with `last`, never. */
void fiber_switch(struct fiber *from, struct fiber *to, bool last);

#endif
