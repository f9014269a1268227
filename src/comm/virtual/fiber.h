/* A fiber: a stack of its own that the thread it was made on switches to and from. */
#ifndef SOTTO_COMM_VIRTUAL_FIBER_H
#define SOTTO_COMM_VIRTUAL_FIBER_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

#include "base/status.h"

typedef void fiber_body(void *arg); /* ends by a last switch, never by returning */

struct fiber {
    sigjmp_buf *at; /* where it goes on, on its stack; NULL: at the beginning */
    fiber_body *body;
    void *arg;
    void *map; /* guard page and stack, NULL: the thread's own */
    size_t bytes;
    ucontext_t context; /* where it begins */
    /* For the sanitizers, which must be told of every switch: */
    const void *bottom;
    size_t room;
    struct fiber *previous;
    void *fake_stack, *tsan;
};

/* The thread's own stack as a fiber to come back to; nothing to free. */
void fiber_adopt(struct fiber *f);

enum sotto_status fiber_init(struct fiber *f, fiber_body *body, void *arg);
void fiber_free(struct fiber *f); /* one that ended or is never switched to again */

/* It will be switched to soon: the top of its stack is asked into the cache. */
void fiber_prefetch(const struct fiber *f);

/* Returns when something switches back to `from`; never where `last`. */
void fiber_switch(struct fiber *from, struct fiber *to, bool last);

#endif
