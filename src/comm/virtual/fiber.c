/* ucontext makes the stacks; the kernel gives memory only to the pages that are touched. sigsetjmp
 * switches: swapcontext would also save the signal mask, by a system call that takes longer than
 * all other work. Sanitizers, which watch every jump, get swapcontext. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#undef _FORTIFY_SOURCE  /* its longjmp allows only jumps up one stack */
#include "comm/virtual/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sanitized.h"

#ifdef SANITIZED_ADDRESS
#include <sanitizer/asan_interface.h>
#endif
#ifdef SANITIZED_THREAD
#include <sanitizer/tsan_interface.h>
#endif

#if defined(SANITIZED_ADDRESS) || defined(SANITIZED_THREAD)
enum { JUMPS = 0 };
#else
enum { JUMPS = 1 };
#endif

enum { STACK = 1 << 20 };

/* Returns an offset for the top of a stack. Stacks begin at multiples of the page; with equal
 * offsets, all would share the same few cache lines. */
static size_t stack_skew(const void *map, size_t page)
{
    return (uintptr_t)map / page % 32 * 128;
}

static void leave_fiber(struct fiber *from, struct fiber *to, bool last)
{
#ifdef SANITIZED_ADDRESS
    to->previous = from;
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->bottom, to->room);
#endif
#ifdef SANITIZED_THREAD
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from, (void)to, (void)last;
}

/* Called first after every switch to a fiber. */
static void enter_fiber(struct fiber *f)
{
#ifdef SANITIZED_ADDRESS
    __sanitizer_finish_switch_fiber(f->fake_stack, &f->previous->bottom, &f->previous->room);
#endif
    (void)f;
}

static void fiber_main(unsigned high, unsigned low)
{
    struct fiber *f = (struct fiber *)((uintptr_t)high << 16 << 16 | low);
    enter_fiber(f);
    f->body(f->arg);
    abort(); /* a body does not return */
}

void fiber_adopt(struct fiber *f)
{
    *f = (struct fiber){0};
#ifdef SANITIZED_THREAD
    f->tsan = __tsan_get_current_fiber();
#endif
}

enum sotto_status fiber_init(struct fiber *f, fiber_body *body, void *arg)
{
    *f = (struct fiber){.body = body, .arg = arg};
    size_t guard =
        (size_t)sysconf(_SC_PAGESIZE); /* one page: stacks are an odd number of pages long */
    f->bytes = guard + STACK;
    f->map = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        return fail_errno(SOTTO_ENOMEM, "no memory for the stack of a simulated worker or lane");
    }
    if (mprotect(f->map, guard, PROT_NONE) != 0 || getcontext(&f->context) != 0) {
        fail_errno(SOTTO_ENOMEM, "cannot protect the stack of a simulated worker or lane "
                                 "(too many? each takes two of vm.max_map_count)");
        munmap(f->map, f->bytes);
        f->map = NULL;
        return SOTTO_ENOMEM;
    }
    f->bottom = (char *)f->map + guard;
    f->room = STACK;
    f->context.uc_stack.ss_sp = (char *)f->map + guard;
    f->context.uc_stack.ss_size = STACK - stack_skew(f->map, guard);
    f->context.uc_link = NULL;
    uintptr_t self = (uintptr_t)f; /* makecontext passes ints only */
    makecontext(&f->context, (void (*)(void))fiber_main, 2, (unsigned)(self >> 16 >> 16),
                (unsigned)self);
#ifdef SANITIZED_ADDRESS
    /* With a known stack size, AddressSanitizer's swapcontext would clear its data of the stack,
     * which takes longer than all other work and is needless: leave_fiber reports each switch. Data
     * of an earlier stack at this address are cleared here, once. */
    __asan_unpoison_memory_region(f->bottom, f->room);
    f->context.uc_stack.ss_size = 0;
#endif
#ifdef SANITIZED_THREAD
    f->tsan = __tsan_create_fiber(0);
#endif
    return SOTTO_OK;
}

void fiber_free(struct fiber *f)
{
    if (!f->map)
        return;
#ifdef SANITIZED_THREAD
    __tsan_destroy_fiber(f->tsan);
#endif
    munmap(f->map, f->bytes);
    f->map = NULL;
}

void fiber_prefetch(const struct fiber *f)
{
    enum { LINE = 64, LINES = 12 };
    const char *top = (const char *)f->at;
    for (int i = 0; i < LINES && top; i++)
        __builtin_prefetch(top + i * LINE);
    __asm__ volatile(""); /* gcc drops calls of a function that only prefetches */
}

static void jump_to_fiber(struct fiber *from, struct fiber *to)
{
    sigjmp_buf here;
    from->at = &here;
    if (sigsetjmp(here, 0) != 0)
        return; /* back in this fiber */
    if (to->at)
        siglongjmp(*to->at, 1);
    setcontext(&to->context);
    abort(); /* only for a context that was never made */
}

void fiber_switch(struct fiber *from, struct fiber *to, bool last)
{
    leave_fiber(from, to, last);
    if (JUMPS)
        jump_to_fiber(from, to);
    else if (swapcontext(&from->context, &to->context) != 0)
        abort();
    enter_fiber(from);
}
