/* Matrix products of many threads, which share nothing but their inputs: each thread packs a block
 * of rows of one slice, which stays in the thread's second cache, and then the columns of part
 * after part of that block. Packing the same columns in several threads costs less than moving
 * packed strips from core to core. A thread that has finished its block helps with a block of which
 * much is left.
 *
 * If the product is deep and its result small, several slices of a block are multiplied at once by
 * different threads. Each thread then has more columns than if all threads shared one slice, so
 * less is packed. An element is still the sum of its slices in order: the thread with the next
 * slice adds its product to the result. A thread that is early stores its sums separately and
 * continues; the thread that adds the slice before adds these sums too. */
#include "tensor/cpu/gemm/many.h"

#include <sched.h>

/* Prefetches the elements that a part is added to, while the part's columns are packed. */
static void fetch_c(const struct gemm_part *p)
{
    const struct gemm *g = p->plan->g;
    for (int r = 0; g->c_from && p->l == 0 && r < p->m; r++)
        __builtin_prefetch(g->c_from + (size_t)(p->i + r) * g->ld_half + p->j, 1, 2);
}

/* A part of the result, over all slices. `added` is twice the number of added slices, plus one
 * while a thread adds the next slice. */
struct result_spot {
    const struct gemm_plan *plan;
    int block, j;
    /* Slices that threads compute in parallel: plan->abreast. `left`: the slice, counted from 1, of
     * stored sums; 0: none. */
    atomic_int *added, *left; /* left (abreast) */
    float *sums;              /* (abreast)      */
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

/* Returns true if `slice` is the next slice; no other thread then adds until `added` counts the
 * slice. */
static bool enter_slice(const struct result_spot *p, int slice)
{
    int expected = 2 * slice;
    return atomic_compare_exchange_strong(p->added, &expected, expected + 1);
}

/* Adds the next slices with stored sums. A thread looks again after each addition, and so finds
 * sums that were stored meanwhile. */
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
            atomic_load(at->added) / 2 > slice - abreast) { /* the sums' place is free again */
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

/* Takes parts of a block of rows, of one slice, until no part is left. Slices at once start at
 * different columns, so in most parts the slice before is already added. */
static void work_on_block(const struct gemm_plan *plan, int slice, int block)
{
    const size_t own = (size_t)thread_index() * plan->thread_stride;
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

/* True if enough of a block is left to pack the block's rows once more. */
static bool wants_help(const struct gemm_plan *plan, int slice, int block)
{
    return plan->across - atomic_load(&plan->taken[slice * plan->down + block]) >= plan->help;
}

/* Helps with the blocks of `slice` and the slices at once of which enough is left. */
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

/* Works as thread `self` of `threads`: on the thread's own blocks, which other threads may share,
 * then on blocks that want help. */
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
    if (first == 0) { /* the team is smaller than requested */
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
