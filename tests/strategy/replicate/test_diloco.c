/* diloco against its formula: outer optimizers, pruned outer gradients, dropped groups, schedules
 * of workers and uneven data; identities, and bytes sent. */
#include "strategy/replicate/sparse.h"
#include "strategy/replicate/replicate_lab.h"

/* As in test_replicate: differences below 1e-6 are rounding errors. */
static const double near_enough = 3e-6;

static const int meshes[][2] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}, {2, 4}, {1, 4}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static struct lab diloco(int shard, int groups, int slices, int optimizer)
{
    struct lab lab = lab_make(REPLICATE_DILOCO, shard, groups, slices);
    lab.rule.kind = optimizer == 2 ? OPTIM_ADAMW : OPTIM_SGD;
    lab.rule.momentum = optimizer == 1 ? 0.9 : 0;
    return lab;
}

static void outer_optimizers(void **state)
{
    (void)state;
    EACH_SHARED(i, STRIDE, MESHES * 27) {
        const int *mesh = meshes[i / 27];
        struct lab lab = diloco(SHARD_DDP + i / 3 % 3, mesh[0], mesh[1], i % 3);
        lab.rule.outer = i / 9 % 3;
        lab_check(&lab, near_enough);
        lab.rule.outer_lr = 0.4;
        lab.rule.outer_momentum = 0.5;
        lab.rule.tau = 4;
        lab_check(&lab, near_enough);
    }
    struct lab threads = diloco(SHARD_ZERO1, 4, 2, 2);
    threads.threads = true;
    lab_check(&threads, near_enough);
}

/* Prunes rows of 2, 4 and 8 elements and the pieces of rows that slices have. */
static void pruned(void **state)
{
    (void)state;
    static const double share[] = {0.25, 0.5, 0.75};
    EACH_SHARED(i, STRIDE, MESHES * 9) {
        const int *mesh = meshes[i / 9];
        struct lab lab = diloco(SHARD_DDP + i / 3 % 3, mesh[0], mesh[1], i % 2 + 1);
        lab.rule.prune = share[i % 3];
        lab_check(&lab, near_enough);
    }
    struct lab lab = diloco(SHARD_ZERO1, 4, 2, 2);
    lab.rule.prune = 0.5;
    lab.threads = true;
    lab_check(&lab, near_enough);
}

/* With these seeds all, none and some groups are dropped in some rounds. */
static void dropped(void **state)
{
    (void)state;
    int whole = 0, none = 0, some = 0;
    for (int i = 0; i < 48; i++) {
        struct lab lab = diloco(SHARD_DDP + i % 3, i & 1 ? 2 : 4, i & 2 ? 2 : 1, i % 2 + 1);
        lab.rule.drop = i & 4 ? 0.3 : 0.6;
        lab.rule.drop_seed = i;
        lab.rule.tau = 2;
        lab.rule.prune = i & 8 ? 0.5 : 0;
        if (i % STRIDE == share_first(STRIDE, 48))
            lab_check(&lab, near_enough);
        struct reference ref = {.is = lab.rule};
        for (ref.round = 0; ref.round < 7; ref.round++) {
            int drops = 0;
            for (int r = 0; r < lab.rule.groups; r++)
                drops += reference_drops(&ref, r);
            whole += drops == lab.rule.groups;
            none += drops == 0;
            some += drops > 0 && drops < lab.rule.groups;
        }
    }
    assert_true(whole > 5 && none > 5 && some > 5);
}

/* All groups are always dropped: each group trains alone. */
static void all_dropped(void **state)
{
    (void)state;
    struct lab lab = diloco(SHARD_DDP, 4, 1, 1), apart = lab_make(REPLICATE_LOCAL, SHARD_DDP, 4, 1);
    lab.rule.drop = 1;
    apart.rule.momentum = 0.9;
    apart.rule.tau = 1000;
    assert_ok(lab_run(&lab));
    assert_ok(lab_run(&apart));
    assert_memory_equal(lab.own, apart.own, sizeof lab.own);
}

/* Groups leave and join, at the exchange of a border, or at the next exchange after the border. The
 * last phase has no end. */
static void schedules(void **state)
{
    (void)state;
    static const int plan[][PHASES][2] = {
        {{4, 6}, {2, 6}},         {{1, 3}, {4, 6}, {2, 3}, {3, 3}}, {{2, 6}, {1, 3}, {4, 3}},
        {{4, 4}, {2, 5}, {4, 3}}, {{4, 7}, {1, 1}, {3, 1}},
    };
    EACH_SHARED(i, STRIDE, 5 * 12) {
        struct lab lab = diloco(SHARD_DDP + i % 3, 4, i / 3 % 2 + 1, i / 6 % 2 + 1);
        for (int k = 0; k < PHASES; k++) {
            lab.rule.phase[k].groups = plan[i / 12][k][0];
            lab.rule.phase[k].steps = plan[i / 12][k][1];
        }
        lab_check(&lab, near_enough);
        lab.rule.prune = 0.5;
        lab.rule.drop = 0.3;
        lab.rule.drop_seed = i;
        lab.steps = STEPS;
        lab_check(&lab, near_enough);
    }
}

/* A group's weight is its share of the data. */
static void uneven_data(void **state)
{
    (void)state;
    static const double data[MOST] = {1, 3, 0.5, 7, 2, 2, 10, 0.25};
    EACH_SHARED(i, STRIDE, MESHES * 6) {
        const int *mesh = meshes[i / 6];
        struct lab lab = diloco(SHARD_DDP + i % 3, mesh[0], mesh[1], 1);
        memcpy(lab.rule.data, data, sizeof data);
        lab.rule.prune = i / 3 % 2 ? 0.25 : 0;
        lab.rule.drop = i / 3 % 2 ? 0.25 : 0;
        lab_check(&lab, near_enough);
    }
}

static void assert_same_steps(const struct lab *a, const struct lab *b)
{
    for (int t = 0; t < a->steps; t++)
        for (int i = 0; i < COUNT; i++)
            if (!(fabs(a->x[t][i] - b->x[t][i]) <= near_enough))
                fail_with("step %d: x[%d] is %.9g here, %.9g there", t, i, a->x[t][i], b->x[t][i]);
}

/* H = 1 with plain inner SGD and outer SGD of rate 1 is ddp; with any H and inner optimizer diloco
 * is local (FedAvg), and with one group the sharding alone. */
static void identities(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES * 3; i++) {
        const int *mesh = meshes[i / 3], shard = SHARD_DDP + i % 3;
        struct lab a = diloco(shard, mesh[0], mesh[1], 0);
        struct lab b = lab_make(REPLICATE_SYNC, SHARD_DDP, 1, a.rule.workers);
        a.rule.tau = 1;
        a.rule.outer = OUTER_SGD;
        a.rule.outer_lr = 1;
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        assert_same_steps(&a, &b);
        a.rule.tau = 3;
        a.rule.kind = OPTIM_ADAMW;
        b = a;
        b.rule.replicate = mesh[0] == 1 ? REPLICATE_SYNC : REPLICATE_LOCAL;
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        assert_same_steps(&a, &b);
    }
}

/* Returns the bytes of a block of n values of `unit` bytes: a bit a value and the kept values, or
 * all values, whichever is less. */
static int64_t block_bytes(int64_t n, int64_t kept, int64_t unit)
{
    int64_t words = (n + 8 * unit - 1) / (8 * unit) + kept;
    return unit * (words < n ? words : n);
}

/* Returns the bytes that worker `rank` sends of pruned vectors: to each other worker the block of
 * that worker, then to all the sum of its own block. Each of two workers sends all its values. */
static int64_t pruned_bytes(double sent[][COUNT], int rank, int size, int64_t unit)
{
    int64_t bytes = 0, begin = 0, all = 0;
    for (int to = 0; to < size; to++) {
        int64_t n = COUNT / size + (to < COUNT % size), kept = 0, any = 0;
        for (int64_t i = begin; i < begin + n; i++) {
            bool by_any = false;
            for (int r = 0; r < size; r++)
                by_any |= sent[r][i] != 0;
            any += by_any;
            kept += sent[rank][i] != 0;
        }
        begin += n;
        all += kept;
        bytes += to == rank ? (size - 1) * block_bytes(n, any, unit) : block_bytes(n, kept, unit);
    }
    return size == 2 ? block_bytes(COUNT, all, unit) : bytes;
}

/* Only an exchange sends bytes: the outer gradient, and the groups' totals. */
static void bytes_of_an_exchange(void **state)
{
    (void)state;
    static const double share[] = {0, 0.25, 0.5, 0.75};
    for (int i = 0; i < 12; i++) {
        const int size = 2 << i / 4;
        struct lab lab = diloco(SHARD_DDP, size, 1, 1);
        struct reference ref;
        float start[COUNT];
        lab.rule.prune = share[i % 4];
        lab_check(&lab, near_enough);
        lab_start(start);
        reference_start(&ref, &lab.rule, start);
        for (int t = 0; t < lab.steps; t++) {
            reference_step(&ref, lab_lr(t));
            for (int r = 0; r < size; r++) {
                int64_t want = lab.rule.prune > 0 ? pruned_bytes(ref.pruned, r, size, 4)
                                                  : 4 * COUNT * (size - 1); /* small */
                want = t % 3 == 2 ? want + (int64_t)sizeof(struct group_totals) * (size - 1) : 0;
                assert_int_equal(lab.sent[r][t], want);
            }
        }
    }
}

/* Returns delta as sent: each group's displacement is rounded once, and the sum once. Sums of so
 * few bits are exact. */
static void reference_rounded(struct reference *ref, const float x0[COUNT], float x[][COUNT],
                              float delta[COUNT])
{
    const struct rule *rule = &ref->is;
    double sum[COUNT] = {0}, share[MOST] = {0}, all = 0;
    for (int r = 0; r < rule->workers; r++) {
        const double data = rule->data[r] > 0 ? rule->data[r] : 1;
        share[r / rule_slices(rule)] += data;
        all += data;
    }
    for (int r = 0; r < rule->groups; r++) {
        for (int i = 0; i < COUNT; i++)
            ref->pruned[r][i] = (x0[i] - x[r][i]) * (float)(share[r] / all);
        reference_prune(ref, ref->pruned[r]);
        for (int i = 0; i < COUNT; i++)
            sum[i] += bf16_widen(bf16_round((float)ref->pruned[r][i]));
    }
    const bool sent_on = rule->prune <= 0 || rule->groups > 2;
    for (int i = 0; i < COUNT; i++)
        delta[i] = sent_on ? bf16_widen(bf16_round((float)sum[i])) : (float)sum[i];
}

/* To the bit, and to the byte: no group moves in the step of an exchange, so that the displacement
 * is known before, and x0 <- x0 - delta has fp32 rounding alone. */
static void rounded(void **state)
{
    (void)state;
    static const char *const bf16[] = {"diloco.dtype=bf16", NULL};
    static const double data[MOST] = {1, 3, 0.5, 7, 2, 2, 10, 0.25};
    for (int i = 0; i < MESHES * 6; i++) {
        const int *mesh = meshes[i / 6], size = mesh[0] * mesh[1];
        struct lab lab = diloco(SHARD_DDP + i % 3, mesh[0], mesh[1], 0);
        lab.options = bf16;
        lab.rule.prune = i / 3 % 2 ? 0.5 : 0;
        lab.rule.outer = OUTER_SGD;
        lab.rule.outer_lr = 1;
        lab.fades = lab.rule.tau;
        lab.bare = true;
        lab.threads = i % 5 == 0;
        if (i % 4 == 1)
            memcpy(lab.rule.data, data, sizeof data);
        assert_ok(lab_run(&lab));
        struct reference ref;
        float x0[COUNT], delta[COUNT];
        lab_start(x0);
        reference_start(&ref, &lab.rule, x0);
        for (int t = lab.rule.tau - 1; t < lab.steps; t += lab.rule.tau) {
            reference_rounded(&ref, x0, lab.own[t - 1], delta);
            for (int k = 0; k < COUNT; k++)
                x0[k] -= delta[k];
            for (int r = 0; r < mesh[0]; r++)
                if (memcmp(lab.own[t][r], x0, sizeof x0) != 0)
                    fail_with("%dx%d, %s, prune %g: group %d is elsewhere at step %d", mesh[0],
                              mesh[1], shard_name(lab.rule.shard), lab.rule.prune, r, t);
            for (int r = 0; r < size && mesh[1] == 1 && size > 1; r++)
                assert_int_equal(lab.sent[r][t],
                                 (lab.rule.prune > 0 ? pruned_bytes(ref.pruned, r, size, 2)
                                                     : 2 * COUNT * (size - 1)) +
                                     (int64_t)sizeof(struct group_totals) * (size - 1));
        }
    }
}

/* Memory in addition to delta: all values, a row, and with two groups all values in each direction;
 * half of these in bf16, which needs a message without pruning, too. */
static void memory_of_the_wire(void **state)
{
    (void)state;
    static const char *const bf16[] = {"diloco.dtype=bf16", NULL};
    for (int slices = 1; slices <= 4; slices *= 2) {
        struct lab dense = diloco(SHARD_FSDP, 2, slices, 0), sparse = dense;
        const size_t own = COUNT / (size_t)slices;
        dense.steps = sparse.steps = 0;
        sparse.rule.prune = 0.5;
        assert_ok(lab_run(&dense));
        assert_ok(lab_run(&sparse));
        assert_int_equal(sparse.bytes[MEMORY_OUTER], dense.bytes[MEMORY_OUTER]);
        assert_int_equal(sparse.bytes[MEMORY_COMMUNICATION] - dense.bytes[MEMORY_COMMUNICATION],
                         sizeof(float) * (own + 8 + 2 * own));
        sparse.options = bf16;
        assert_ok(lab_run(&sparse));
        assert_int_equal(sparse.bytes[MEMORY_COMMUNICATION] - dense.bytes[MEMORY_COMMUNICATION],
                         sizeof(float) * (own + 8) + 2 * 2 * own);
        const size_t fp32 = dense.bytes[MEMORY_COMMUNICATION];
        dense.options = bf16;
        assert_ok(lab_run(&dense));
        assert_int_equal(dense.bytes[MEMORY_COMMUNICATION] - fp32, 2 * own);
    }
}

enum { LONG = 100003, ROW = 1000 };

static double value_of(int rank, int i)
{
    return sin(1e-3 * (i + 1) * (rank + 1)) * ((i * 7919 + rank) % 1013 - 506);
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The values that each rank keeps. */
static float largest_kept[MOST][LONG];

/* Finds the values that a rank keeps: the largest quarter of every row, by sorting. */
static void keep_largest(int rank, float *x)
{
    float row[ROW];
    for (int i = 0; i < LONG; i += ROW) {
        int n = LONG - i < ROW ? LONG - i : ROW, keep = (n + 3) / 4;
        for (int j = 0; j < n; j++)
            row[j] = fabsf((float)value_of(rank, i + j));
        qsort(row, (size_t)n, sizeof *row, descending);
        for (int j = 0; j < n; j++) {
            float value = (float)value_of(rank, i + j);
            x[i + j] = fabsf(value) >= row[keep - 1] ? value : 0;
        }
    }
}

static enum sotto_status sum_pruned(struct worker *w, void *arg)
{
    const struct table *table = arg;
    struct sparse s;
    struct memory memory = {0};
    struct device dev;
    TRY(device_open(&dev, "cpu", &memory, 1));
    struct mesh mesh = {.worker = w, .n_r = w->size};
    const struct work on = {&mesh, NULL, &dev};
    float *want = calloc(LONG, sizeof *want);
    enum sotto_status st = sparse_init(&s, &on, table, NULL, 0.75, DTYPE_F32);
    for (int i = 0; i < LONG; i++)
        s.value[i] = (float)value_of(w->rank, i);
    if (st == SOTTO_OK)
        st = sparse_prune(&s);
    for (int r = 0; r < w->size; r++) {
        const float *mine = largest_kept[r];
        for (int i = 0; i < LONG && st == SOTTO_OK; i++) {
            want[i] += mine[i];
            if (r == w->rank && s.value[i] != mine[i])
                st = fail(SOTTO_EINVAL, "value %d is %g, not %g", i, s.value[i], mine[i]);
        }
    }
    if (st == SOTTO_OK)
        st = sparse_sum(&s, w->world);
    for (int i = 0; i < LONG && st == SOTTO_OK; i++)
        if (fabsf(s.value[i] - want[i]) > 1e-3f) /* of sums up to 2000, in another order */
            st = fail(SOTTO_EINVAL, "sum %d is %g, not %g", i, s.value[i], want[i]);
    const double sent = (double)w->world->stats[COMM_EXCHANGE].inside;
    const double dense = 8.0 * LONG * (w->size - 1) / w->size;
    double any = 0;
    for (int i = 0; i < LONG; i++)
        any += want[i] != 0;
    double share = (0.25 + any / LONG + 2.0 / 32) / 2; /* both ways */
    if (w->size == 2)
        share = 0.25 + 1.0 / 32;
    if (st == SOTTO_OK && fabs(sent / dense - share) > 0.02 * share)
        st = fail(SOTTO_EINVAL, "%g of the dense bytes, not %g", sent / dense, share);
    sparse_free(&s);
    device_close(&dev);
    free(want);
    return st;
}

/* A long vector with a quarter sent: 1/4 + 1/32 of the dense bytes one way, and on the way back the
 * values that any rank kept. */
static void bytes_of_a_long_vector(void **state)
{
    (void)state;
    struct table table = {0};
    const int64_t rows[] = {LONG / ROW, ROW, 0}, rest[] = {LONG % ROW, 0};
    table_add(&table, "rows", rows, TABLE_ZERO, 0);
    table_add(&table, "rest", rest, TABLE_ZERO, 0);
    assert_ok(table_layout(&table, 1, 1));
    const int most = LEAP > 1 ? 5 : 8;
    for (int r = 0; r < most; r++)
        keep_largest(r, largest_kept[r]);
    for (int size = 2; size <= most; size += 3) {
        struct engine_config engine = {.workers = size};
        assert_ok(engine_threads(&engine, sum_pruned, &table));
    }
    table_free(&table);
}

/* Fewer values than workers, all of them -0: sums have the same bits everywhere. */
static enum sotto_status sum_of_nothing(struct worker *w, void *arg)
{
    const struct table *table = arg;
    const size_t count = table->entry[0].count;
    struct sparse s;
    struct memory memory = {0};
    struct device dev;
    TRY(device_open(&dev, "cpu", &memory, 1));
    struct mesh mesh = {.worker = w, .n_r = w->size};
    enum sotto_status st =
        sparse_init(&s, &(struct work){&mesh, NULL, &dev}, table, NULL, 0.5, DTYPE_F32);
    for (size_t i = 0; i < count && st == SOTTO_OK; i++)
        s.value[i] = -0.0f;
    if (st == SOTTO_OK)
        st = sparse_sum(&s, w->world);
    for (size_t i = 0; i < count && st == SOTTO_OK; i++)
        if (s.value[i] != 0 || (signbit(s.value[i]) && w->size > 1))
            st = fail(SOTTO_EINVAL, "sum %zu of %d is %g", i, w->size, s.value[i]);
    sparse_free(&s);
    device_close(&dev);
    return st;
}

static void odd_values(void **state)
{
    (void)state;
    static const float row[3][5] = {{1, -1, 1, 1, 1}, {3, 1, NAN, 2, -4}, {9, 8, 1, 2}};
    static const bool kept[3][5] = {{1, 1, 1, 0, 0}, {1, 0, 1, 0, 1}, {1, 0, 0, 1}};
    for (int64_t n = 1; n <= 5; n++) {
        struct table table = {0};
        const int64_t shape[] = {n, 0};
        table_add(&table, "x", shape, TABLE_ZERO, 0);
        assert_ok(table_layout(&table, 1, 1));
        for (int size = 1; size <= 6; size++) {
            struct engine_config engine = {.workers = size};
            assert_ok(engine_threads(&engine, sum_of_nothing, &table));
        }
        for (int k = 0; n == 5 && k < 3; k++) { /* ties; no number; two ends of the row */
            struct sparse s;
            struct owned owned = {0};
            struct memory memory = {0};
            struct device dev;
            assert_ok(device_open(&dev, "cpu", &memory, 1));
            struct worker w;
            assert_ok(worker_alone(&w));
            struct mesh mesh = {.worker = &w, .n_r = 1};
            assert_ok(owned_add(&owned, 0, 2));
            assert_ok(owned_add(&owned, 3, 5));
            assert_ok(sparse_init(&s, &(struct work){&mesh, NULL, &dev}, &table,
                                  k == 2 ? &owned : NULL, 0.5, DTYPE_F32));
            memcpy(s.value, row[k], s.count * sizeof row[k][0]);
            assert_ok(sparse_prune(&s));
            comm_free(w.world);
            for (size_t i = 0; i < s.count; i++)
                assert_int_equal(s.value[i] != 0, kept[k][i]);
            sparse_free(&s);
            owned_free(&owned);
            device_close(&dev);
        }
        table_free(&table);
    }
}

static const char *const with_cosine[] = {"diloco.cosine=true", NULL};

/* Checks the cosine of each exchange: the same on all workers, and as in the reference. */
static void check_cosines(const struct lab *lab, int *exchanges, int *partial)
{
    struct reference ref;
    float start[COUNT];
    lab_start(start);
    reference_start(&ref, &lab->rule, start);
    for (int t = 0; t < lab->steps; t++) {
        reference_step(&ref, lab_lr_of(lab, t));
        *exchanges += ref.pairs > 0;
        *partial += ref.pairs > 0 && ref.pairs < lab->rule.groups * (lab->rule.groups - 1) / 2;
        for (int w = 0; w < lab->rule.workers; w++) {
            if (lab->pairs[w][t] != ref.pairs ||
                !(fabs(lab->cosine[w][t] - (ref.pairs ? ref.cosine : 0)) < 1e-5))
                fail_with("step %d: worker %d has %.9g of %lld pairs, not %.9g of %d", t, w,
                          lab->cosine[w][t], (long long)lab->pairs[w][t], ref.cosine, ref.pairs);
            assert_memory_equal(&lab->cosine[w][t], &lab->cosine[0][t], sizeof(double));
        }
    }
}

/* The cosine is over groups that are neither dropped nor sit out, of displacements before pruning,
 * and changes no bits. */
static void cosines(void **state)
{
    (void)state;
    int exchanges = 0, partial = 0;
    for (int i = 0; i < MESHES * 12; i += 5) {
        const int *mesh = meshes[i / 12];
        struct lab lab = diloco(SHARD_DDP + i % 3, mesh[0], mesh[1], i % 2 + 1);
        lab.rule.prune = i / 3 % 2 ? 0.5 : 0;
        lab.rule.drop = i / 6 % 2 ? 0.3 : 0;
        if (i % 2 == 0 && mesh[0] == 4) {
            lab.rule.phase[0].groups = 2;
            lab.rule.phase[0].steps = 6;
            lab.rule.phase[1].groups = 4;
            lab.rule.phase[1].steps = 6;
        }
        struct lab without = lab;
        lab.options = with_cosine;
        lab_check(&lab, near_enough);
        check_cosines(&lab, &exchanges, &partial);
        assert_ok(lab_run(&without));
        assert_memory_equal(lab.own, without.own, sizeof lab.own);
        for (int t = 0; t < lab.steps; t++)
            assert_int_equal(without.pairs[0][t], 0);
        assert_memory_equal(lab.bytes, without.bytes, sizeof lab.bytes); /* no memory of its own */
    }
    assert_true(exchanges > 40 && partial > 5);
}

/* A group that has not moved has no direction; one group has no pair. */
static void no_cosines(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct lab lab = diloco(SHARD_DDP + i % 3, i < 3 ? 4 : 1, 2, 0);
        lab.options = with_cosine;
        lab.still = lab.bare = i < 3;
        assert_ok(lab_run(&lab));
        for (int w = 0; w < lab.rule.workers; w++)
            for (int t = 0; t < lab.steps; t++)
                assert_int_equal(lab.pairs[w][t], 0);
    }
}

/* A cosine sends the vector once more, and a number of each group. */
static void bytes_of_a_cosine(void **state)
{
    (void)state;
    for (int size = 2; size <= 8; size *= 2) {
        struct lab lab = diloco(SHARD_DDP, size, 1, 1);
        lab.options = with_cosine;
        assert_ok(lab_run(&lab));
        for (int t = 0; t < lab.steps; t++)
            assert_int_equal(
                lab.sent[0][t],
                t % 3 == 2 ? (2 * 4 * COUNT + (int64_t)sizeof(struct group_totals) + 8) * (size - 1)
                           : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outer_optimizers),
        cmocka_unit_test(pruned),
        cmocka_unit_test(dropped),
        cmocka_unit_test(all_dropped),
        cmocka_unit_test(schedules),
        cmocka_unit_test(uneven_data),
        cmocka_unit_test(identities),
        cmocka_unit_test(bytes_of_an_exchange),
        cmocka_unit_test(rounded),
        cmocka_unit_test(memory_of_the_wire),
        cmocka_unit_test(bytes_of_a_long_vector),
        cmocka_unit_test(odd_values),
        cmocka_unit_test(cosines),
        cmocka_unit_test(no_cosines),
        cmocka_unit_test(bytes_of_a_cosine),
    };
    return run_cases(tests, 1, NULL, NULL);
}
