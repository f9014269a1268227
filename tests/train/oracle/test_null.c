/* The null device and the null oracle: methods take the time and memory of the arithmetic, for
 * clusters and models larger than the machine. */
#include "train/oracle/null_lab.h"

#include <math.h>

#include "comm/formula.h"
#include "tensor/ops.h"
#include "tensor/pool.h"

enum which { DDP, ZERO1, FSDP, METHODS };
enum { STAGES = 5, ROUNDS = NULL_ROUNDS, PARAMETERS = 70000001, ACTIVATIONS = 1000003 };

static const char *const method_names[] = {"ddp", "zero1", "fsdp"};

struct case_ {
    struct null_lab lab;
    enum which method;
    int workers;
    const struct link_model *links;
    int node[NULL_WORKERS];
};

static void run(struct case_ *c)
{
    struct null_lab *lab = &c->lab;
    null_lab_defaults(lab);
    choose(&lab->config, SHARD_DDP + (int)c->method, REPLICATE_AUTO);
    lab->config.precision = PRECISION_MIXED;
    lab->activations = ACTIVATIONS;
    assert_ok(strategy_resolve(&lab->config, c->workers));
    for (int r = 0; r < c->workers; r++)
        c->node[r] = r / 8;
    assert_ok(null_table(&lab->table, PARAMETERS, STAGES, c->workers));
    const struct engine_config engine = {.workers = c->workers, .node = c->node, .links = c->links};
    assert_ok(engine_virtual(&engine, null_lab_work, lab));
}

static struct formula formula_of(const struct case_ *c)
{
    const int nodes = (c->workers + 7) / 8;
    return (struct formula){nodes, c->workers / nodes, c->links->intra, c->links->inter};
}

/* Seconds of a collective over bf16 stage k: its turns, 1 or 2. */
static double stage_ring(const struct case_ *c, int k, int turns)
{
    const struct formula f = formula_of(c);
    return turns * formula_turn(&f, 2.0 * (double)table_stage_count(&c->lab.table, k));
}

static double forward_time(const struct case_ *c, int k)
{
    return c->lab.seconds / 3 * (double)table_stage_count(&c->lab.table, k) /
           (double)table_count(&c->lab.table);
}

/* The counts of a round, five numbers from each worker. */
static double count_time(const struct case_ *c)
{
    const struct formula f = formula_of(c);
    return formula_rounds(&f, 10 * 8.0);
}

/* Computes one round from its beginning at 0. The lane sends the counts first; each stage's
 * reduction waits for its backward and for the reduction before; zero1 gathers in the end. */
static double replicated_round(const struct case_ *c)
{
    double t = 0, lane = 0;
    for (int k = 0; k < STAGES; k++)
        t += forward_time(c, k);
    for (int k = STAGES - 1; k >= 0; k--) {
        t += 2 * forward_time(c, k);
        lane = fmax(lane, t) + (k == STAGES - 1 ? count_time(c) : 0) +
               stage_ring(c, k, c->method == DDP ? 2 : 1);
    }
    t = fmax(t, lane);
    for (int k = 0; k < STAGES && c->method == ZERO1; k++)
        t += stage_ring(c, k, 1);
    return t;
}

/* Visits 0 .. n-1 forward, n-1 .. 0 backward; each waits for its parameters, which are gathered
 * during the visit before (the first backward has the last forward's), and each backward for the
 * reduction of the one before it. The counts follow the first reduction. */
static double fsdp_round(const struct case_ *c)
{
    double t = 0, gathered = stage_ring(c, 0, 1), reduced = 0;
    for (int visit = 0; visit < 2 * STAGES; visit++) {
        int next = visit + 1;
        int k = visit < STAGES ? visit : 2 * STAGES - 1 - visit;
        t = fmax(t, gathered);
        if (next != STAGES && next < 2 * STAGES)
            gathered = t + stage_ring(c, next < STAGES ? next : 2 * STAGES - 1 - next, 1);
        t += (visit < STAGES ? 1 : 2) * forward_time(c, k);
        if (visit >= STAGES) {
            t = fmax(t, reduced);
            reduced = t + stage_ring(c, k, 1) + (visit == STAGES ? count_time(c) : 0);
        }
    }
    return fmax(t, reduced);
}

/* A slow network, where communication hides the compute, a fast network, where the compute hides
 * communication, and one between. fsdp's gathers and sums would share the links: its network has
 * latency alone. */
static void time_is_arithmetic(void **state)
{
    (void)state;
    static const struct link_model latencies[] = {{.intra = {0, 1e-3}, .inter = {0, 1e-2}},
                                                  {.intra = {0, 1e-7}, .inter = {0, 1e-7}},
                                                  {.intra = {0, 1e-3}, .inter = {0, 2e-3}}};
    static const struct link_model links[] = {{.intra = {1e10, 1e-6}, .inter = {1e8, 1e-3}},
                                              {.intra = {1e12, 1e-7}, .inter = {1e12, 1e-7}},
                                              {.intra = {3e9, 1e-6}, .inter = {2.5e9, 2e-6}}};
    static const int sizes[] = {1, 8, 64};
    for (int i = 0; i < 27; i++) {
        struct case_ c = {.method = (enum which)(i % METHODS),
                          .workers = sizes[i / METHODS % 3],
                          .links = &links[i / 9],
                          .lab.seconds = 0.25};
        if (c.method == FSDP)
            c.links = &latencies[i / 9];
        run(&c);
        double want = ROUNDS * (c.method == FSDP ? fsdp_round(&c) : replicated_round(&c));
        for (int r = 0; r < c.workers; r++)
            if (fabs(c.lab.end[r] - want) > 1e-9 * want)
                fail_with("%s, %d workers, links %d: worker %d ends at %.12g, not %.12g",
                          method_names[c.method], c.workers, i / 9, r, c.lab.end[r], want);
        assert_true(fabs(c.lab.computed - ROUNDS * c.lab.seconds) < 1e-9 * want);
        const struct mesh_account *a = &c.lab.account[c.workers - 1];
        assert_true(fabs(a->waited_others + a->waited_wire - (want - c.lab.computed)) <
                    1e-9 * want);
        assert_int_equal(c.lab.round.targets, NULL_TARGETS * c.workers);
        assert_int_equal(c.lab.round.microbatches, c.workers);
        assert_true(c.lab.round.loss == 0);
        table_free(&c.lab.table);
    }
}

/* What real devices count (tests/strategy): mixed, bytes a parameter, ddp 2 + 2 + 12, zero1 2 + 2 +
 * 12/N, fsdp (2 + 2 + 12)/N and two stages of parameters and gradients for communication. */
static void memory_is_arithmetic(void **state)
{
    (void)state;
    static const int sizes[] = {8, 64};
    for (int i = 0; i < 2 * METHODS; i++) {
        struct case_ c = {
            .method = (enum which)(i % METHODS), .workers = sizes[i / METHODS], .lab.seconds = 1};
        run(&c);
        size_t count = table_count(&c.lab.table), n = (size_t)c.workers;
        size_t whole = c.method == FSDP ? count / n : count;
        size_t own = c.method == DDP ? count : count / n;
        assert_true(count >= PARAMETERS && count < PARAMETERS + STAGES * n && count % n == 0);
        assert_int_equal(c.lab.bytes[MEMORY_PARAMETERS], 2 * whole);
        assert_int_equal(c.lab.bytes[MEMORY_GRADIENTS], 2 * whole);
        assert_int_equal(c.lab.bytes[MEMORY_OPTIMIZER], 12 * own);
        assert_int_equal(c.lab.bytes[MEMORY_COMMUNICATION],
                         c.method == FSDP ? 4 * 2 * table_stage_count(&c.lab.table, 0) : 0);
        assert_int_equal(c.lab.bytes[MEMORY_ACTIVATIONS], 0);
        assert_int_equal(c.lab.peak[MEMORY_ACTIVATIONS], ACTIVATIONS);
        assert_int_equal(c.lab.left, 0);
        table_free(&c.lab.table);
    }
}

/* Buffers, scratch and pools are paid for and hold nothing; views stay empty; what is read is
 * zeros. */
static void device_holds_nothing(void **state)
{
    (void)state;
    struct memory m = {0};
    struct device dev;
    struct buffer b, none;
    assert_ok(device_open(&dev, "null", &m, 1));
    const size_t huge = (size_t)1 << 45;
    assert_ok(buffer_init(&b, &dev, DTYPE_BF16, huge, MEMORY_OUTER));
    assert_ok(buffer_init(&none, &dev, DTYPE_F32, 0, MEMORY_OUTER));
    assert_int_equal(m.now[MEMORY_OUTER], 2 * huge);
    assert_null(b.view.data);
    assert_null(view_at(b.view, huge - 1).data);
    assert_fails(buffer_init(&none, &dev, DTYPE_F32, SIZE_MAX / 4, MEMORY_OUTER), SOTTO_ENOMEM,
                 "outer");
    device_scratch(&dev, 100);
    device_scratch(&dev, 5000);
    device_scratch(&dev, 10);
    assert_int_equal(m.now[MEMORY_SCRATCH], 5000);
    struct pool pool;
    struct pool_block *block, *again;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    assert_ok(pool_take(&pool, DTYPE_F32, 1000, &block));
    pool_give(&pool, block);
    assert_ok(pool_take(&pool, DTYPE_F32, 900, &again));
    assert_ptr_equal(block, again);
    assert_int_equal(m.now[MEMORY_ACTIVATIONS], 4000);
    pool_give(&pool, again);
    pool_free(&pool);
    float host[4] = {1, 2, 3, 4};
    dev.ops->write(&dev, b.view, host, 4);
    dev.ops->read(&dev, host, view_of(NULL, DTYPE_F32), 3);
    assert_true(host[0] == 0 && host[1] == 0 && host[2] == 0 && host[3] == 4);
    assert_true(dev.ops->sum_squares(&dev, &(struct vector_pair){.x = b.view, .count = huge}, 1,
                                     NULL) == 0);
    assert_ok(device_check(&dev));
    buffer_free(&b);
    assert_int_equal(m.now[MEMORY_OUTER], 0);
    assert_int_equal(m.total, 5000);
    device_close(&dev);
    assert_int_equal(m.total, 0);
}

static void tables(void **state)
{
    (void)state;
    struct table t;
    assert_ok(null_table(&t, (size_t)7e9, 3, 1024));
    assert_int_equal(t.parameters, (size_t)7e9);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(table_stage_count(&t, k) % 1024, 0);
        assert_int_equal(table_stage_count(&t, k) / 1024, (7000000000 / 3 + 1023) / 1024);
        assert_int_equal(t.entry[k].stage, k);
    }
    table_free(&t);
    assert_fails(null_table(&t, 2, 3, 1), SOTTO_EINVAL, "2 parameters cannot be cut into 3");
    assert_fails(null_table(&t, 2, 0, 1), SOTTO_EINVAL, "into 0 stages");
}

/* Sums in the order of ranks, of more numbers than the front has room for: the last would differ in
 * any other order. In virtual time they cost an all-gather. */
enum { NUMBERS = 5 };

static enum sotto_status sum_up(struct worker *w, void *arg)
{
    const struct link *link = arg;
    const double n = w->size;
    double x[NUMBERS] = {1, w->rank, -w->rank, 0.5, w->rank ? 0x1p-70 * w->rank : 1};
    TRY(comm_sum(w->world, x, NUMBERS));
    if (x[0] != n || x[1] != n * (n - 1) / 2 || x[2] != -x[1] || x[3] != n / 2 || x[4] != 1)
        return fail(SOTTO_EINVAL, "the sums are %g %g %g %g %a", x[0], x[1], x[2], x[3], x[4]);
    const struct comm_stats *t = &w->world->stats[COMM_ALLGATHER];
    if (t->calls != 1 || t->inside != (int64_t)sizeof x * (w->size - 1))
        return fail(SOTTO_EINVAL, "%lld bytes were counted", (long long)t->inside);
    struct formula f = {.nodes = 1, .each = w->size};
    if (link)
        f.intra = *link;
    double want = link ? formula_rounds(&f, sizeof x) : t->seconds;
    if (fabs(t->seconds - want) > 1e-9 * want)
        return fail(SOTTO_EINVAL, "it took %g s, not %g", t->seconds, want);
    return SOTTO_OK;
}

static void sums_of_many(void **state)
{
    (void)state;
    struct link_model links = {.intra = {1e6, 1e-3}, .inter = {1, 1}};
    struct engine_config simulated = {.workers = 1500, .links = &links};
    struct engine_config threads = {.workers = 1024 / NUMBERS + 1};
    assert_ok(engine_virtual(&simulated, sum_up, &links.intra));
    assert_ok(engine_threads(&threads, sum_up, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_holds_nothing), cmocka_unit_test(tables),
        cmocka_unit_test(sums_of_many),         cmocka_unit_test(time_is_arithmetic),
        cmocka_unit_test(memory_is_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
