/* Many threads share nothing but what they read: each packs a block of rows of one slice, which
 * stays in its second cache, and then the columns of part after part of that block. What several
 * of them pack costs less than packed strips that travel from one core to the others. Who has
 * finished a block helps with another of which much is left.
 *
 * Where the product is deep and its result small, several slices of a block are multiplied at once,
 * by threads of their own, each for more columns than if all of them shared one slice: less is
 * packed. An element is the sum of its slices in their order all the same. The thread that has the
 * next one adds it where the result lies; who is early leaves its sums apart, and goes on, and they
 * are added by the one that adds the slice before. */
#include "tensor/cpu/gemm/many.h"

#include <sched.h>

/* What a part is added to comes while its columns are packed. */
static void fetch_c(const struct gemm_part *p)
{
    const struct gemm *g = p->plan->g;
    for (int r = 0; g->c_from && p->l == 0 && r < p->m; r++)
        __builtin_prefetch(g->c_from + (size_t)(p->i + r) * g->ld_half + p->j, 1, 2);
}

/* One part of the result, of all slices: `added` is twice the slices that are in it, and one more
 * while somebody adds the next. */
struct result_spot {
    const struct gemm_plan *plan;
    int block, j;
    atomic_int *added, *left; /* left (abreast): which slice, counted from 1, has left its sums */
    float *sums;              /* (abreast)                                                      */
};

static struct result_spot result_spot_of(const struct gemm_plan *plan, int block, int j)
{
    const size_t at = (size_t)block * (size_t)plan->across + (size_t)j;
    const size_t abreast = (size_t)plan->abreast;
    return (struct result_spot){plan,
                                block,
                                j,
                                plan->added + at,
                                plan->left + at * abreast,
                                plan->sums +
                                    at * abreast * (size_t)plan->rows * (size_t)plan->columns};
}

static struct gemm_part spot_slice(const struct result_spot *p, int slice)
{
    const struct gemm_plan *plan = p->plan;
    return part_of(plan, (p->j * plan->deep + slice) * plan->down + p->block);
}

static float *spot_sums(const struct result_spot *p, int slice)
{
    const size_t turn = (size_t)(slice % p->plan->abreast);
    return p->sums + turn * (size_t)p->plan->rows * (size_t)p->plan->columns;
}

/* Whether the slice is the next: nobody else adds until it is counted. */
static bool enter_slice(const struct result_spot *p, int slice)
{
    int expected = 2 * slice;
    return atomic_compare_exchange_strong(p->added, &expected, expected + 1);
}

/* Adds the slices that are next and have left their sums. Who leaves some while another adds is
 * seen by that one, which looks again behind what it has added. */
static void add_left(const struct result_spot *p)
{
    for (;;) {
        const int slice = atomic_load(p->added) / 2;
        if (slice == p->plan->deep ||
            atomic_load(&p->left[slice % p->plan->abreast]) != slice + 1 || !enter_slice(p, slice))
            return;
        struct gemm_part part = spot_slice(p, slice);
        part.sums = spot_sums(p, slice);
        part_add(&part);
        atomic_store(p->added, 2 * (slice + 1));
    }
}

static void multiply_tiles(const struct gemm_part *p)
{
    for (int tile = 0; tile < part_tiles(p); tile++)
        part_multiply(p, tile);
}

static void add_slice(const struct result_spot *at, struct gemm_part *p, int slice)
{
    const int abreast = at->plan->abreast;
    while (!enter_slice(at, slice)) {
        if (abreast > 1 &&
            atomic_load(at->added) / 2 > slice - abreast) { /* the last sums are gone */
            p->sums = spot_sums(at, slice);
            break;
        }
        sched_yield();
    }
    multiply_tiles(p);
    if (p->sums)
        atomic_store(&at->left[slice % abreast], slice + 1);
    else
        atomic_store(at->added, 2 * (slice + 1));
    if (abreast > 1)
        add_left(at);
}

/* Takes parts of a block of rows, of one slice, until none is left. Slices at once begin at
 * columns apart, so that most find the one before them added. */
static void work_on_block(const struct gemm_plan *plan, int slice, int block)
{
    const size_t own = (size_t)thread_index() * plan->apart;
    const int turn = slice % plan->abreast,
              ahead = plan->across - turn * plan->across / plan->abreast;
    atomic_int *taken = &plan->taken[slice * plan->down + block];
    bool packed = false;
    for (int i; (i = atomic_fetch_add(taken, 1)) < plan->across; packed = true) {
        const struct result_spot at = result_spot_of(plan, block, (i + ahead) % plan->across);
        struct gemm_part p = spot_slice(&at, slice);
        p.a += own, p.b += own;
        p.new_a = !packed, p.new_b = true;
        fetch_c(&p);
        for (int strip = 0; strip < part_strips(&p); strip++)
            part_pack(&p, strip);
        add_slice(&at, &p, slice);
    }
}

/* Whether so much of a block is left that it pays to pack its rows once more. */
static bool wants_help(const struct gemm_plan *plan, int slice, int block)
{
    return plan->across - atomic_load(&plan->taken[slice * plan->down + block]) >= plan->help;
}

/* With those of so many blocks, from a slice on, of which enough is left. */
static void help_with(const struct gemm_plan *plan, int slice, int blocks, int self)
{
    for (int i = 0; i < blocks; i++) {
        const int other = (self + i) % blocks;
        if (wants_help(plan, slice + other / plan->down, other % plan->down))
            work_on_block(plan, slice + other / plan->down, other % plan->down);
    }
}

static int blocks_at_once(const struct gemm_plan *plan, int slice)
{
    return plan->down * min_int(plan->abreast, plan->deep - slice);
}

/* Blocks of its own, as one of so many threads, which it may share, then others'. */
static void work_as(const struct gemm_plan *plan, int self, int threads)
{
    for (int slice = 0; slice < plan->deep; slice += plan->abreast) {
        const int blocks = blocks_at_once(plan, slice);
        for (int i = self % blocks; i < blocks; i += threads)
            work_on_block(plan, slice + i / plan->down, i % plan->down);
        help_with(plan, slice, blocks, self);
    }
}

void gemm_work(const struct gemm_plan *plan)
{
    work_as(plan, thread_index(), thread_count());
}

void gemm_work_both(const struct gemm_plan *one, const struct gemm_plan *other)
{
    const int self = thread_index(), threads = thread_count();
    const int first = threads * one->threads / (one->threads + other->threads);
    if (first == 0) { /* fewer came than were asked for */
        work_as(one, self, threads);
        work_as(other, self, threads);
        return;
    }
    const bool of_one = self < first;
    if (of_one)
        work_as(one, self, first);
    else
        work_as(other, self - first, threads - first);
    const struct gemm_plan *rest = of_one ? other : one;
    for (int slice = 0; slice < rest->deep; slice += rest->abreast)
        help_with(rest, slice, blocks_at_once(rest, slice), self);
}
