/* dpu, acco-wp and acco in the groups of asynchronous DiLoCo: rounds and pushes depend on time.
 * Whole runs against double precision, in the order of the runs' files. */
#include "strategy/async/async_lab.h"

#include "strategy/async/journal.h"

static const char *const methods[] = {"dpu", "acco-wp", "acco"};
enum { DPU, ACCO_WP, ACCO, METHODS };

/* Speeds such that fast workers compute two or three micro-batches a round. */
static const struct link_model links = {.intra = {1e9, 0.11}, .inter = {1000, 0.37}};

/* Links are for virtual time. */
static void on_threads(struct lab *lab, bool threads)
{
    lab->threads = threads;
    lab->links = threads ? NULL : &links;
}

static struct lab make(int method, int groups, int slices)
{
    return (struct lab){.shard = methods[method],
                        .groups = groups,
                        .slices = slices,
                        .options = {"async-diloco.H=3"},
                        .rounds = 20,
                        .links = &links,
                        .speed = {1, 0.83, 0.41, 0.57, 0.67, 0.31, 0.9, 0.7},
                        .pushes = at("pushes.tsv")};
}

/* ---- reference, one push after the other ---- */

struct group {
    double x[COUNT], est[COUNT], v[COUNT]; /* v: the momentum          */
    double g[COUNT], n;                    /* computed and not applied */
    int64_t next[MOST], at;                /* of the workers; counts used so far */
    bool begun;
};

/* `count` micro-batches of worker `rank` at y. */
static void add(struct group *p, const struct quadratic *q, int rank, int worker, int size,
                int64_t count, const double y[COUNT])
{
    for (int64_t m = 0; m < count; m++, p->next[worker]++)
        for (int i = 0; i < COUNT; i++)
            p->g[i] += (double)q->a[i] * q->a[i] *
                       (y[i] - centre((p->next[worker] * size + rank) % BATCHES, i));
    p->n += (double)count;
}

/* Computes the next micro-batches of all workers of a group. */
static void compute(const struct lab *lab, const struct quadratic *q, struct group *p, int group,
                    const double y[COUNT])
{
    for (int s = 0; s < lab->slices; s++) {
        const int rank = group * lab->slices + s;
        add(p, q, rank, s, lab->groups * lab->slices, lab->history[rank][p->at], y);
    }
    p->at++;
}

/* Computes a step of SGD with a momentum of 0.5; `moves`: makes the step. */
static void step(struct group *p, const double g[COUNT], double n, double lr, double to[COUNT],
                 bool moves)
{
    for (int i = 0; i < COUNT; i++) {
        const double v = 0.5 * p->v[i] + g[i] / n;
        to[i] = p->x[i] - lr * v;
        if (moves)
            p->v[i] = v;
    }
}

/* Makes a round; returns the number of micro-batches of its step. */
static double one_round(const struct lab *lab, const struct quadratic *q, struct group *p,
                        int group, int method, int64_t place)
{
    const double lr = lab_lr(place), next_lr = lab_lr(place + 1);
    double g[COUNT], n, y[COUNT];
    if (!p->begun)
        for (int s = 0; s < lab->slices; s++)
            add(p, q, group * lab->slices + s, s, lab->groups * lab->slices, 1, p->x);
    if (!p->begun)
        memcpy(p->est, p->x, sizeof p->est);
    p->begun = true;
    memcpy(y, method == DPU ? p->x : p->est, sizeof y);
    if (method == ACCO) {
        step(p, p->g, p->n, lr, y, false); /* est = peek(x, gt) */
        compute(lab, q, p, group, p->x);
    }
    memcpy(g, p->g, sizeof g);
    n = p->n;
    memset(p->g, 0, sizeof p->g);
    p->n = 0;
    compute(lab, q, p, group, y);
    step(p, g, n, lr, p->x, true);
    step(p, g, n, next_lr, p->est, false); /* of acco-wp */
    return n;
}

/* By delayed Nesterov, N = groups. */
static void apply(double x0[COUNT], double m[COUNT], double Delta[COUNT], const double g[COUNT],
                  int64_t number, int N)
{
    for (int i = 0; i < COUNT; i++) {
        Delta[i] += g[i];
        const bool full = (number + 1) % N == 0;
        if (full)
            m[i] = 0.9 * m[i] + Delta[i] / N;
        x0[i] -= 0.7 * ((full ? 0.9 * m[i] : 0) + g[i] / N);
        Delta[i] = full ? 0 : Delta[i];
    }
}

static void agrees(const struct lab *lab, int method)
{
    static double version[PUSHES + 1][COUNT];
    struct group group[MOST] = {0};
    double x0[COUNT], m[COUNT] = {0}, Delta[COUNT] = {0}, all = 0;
    struct async_journal j;
    struct quadratic q;
    float first[COUNT];
    quadratic_make(&q, NULL);
    lab_start(first);
    assert_ok(journal_read(&j, lab->pushes, lab->groups));
    assert_true(j.n <= PUSHES && j.n == lab->n_pushed);
    for (int i = 0; i < COUNT; i++)
        version[0][i] = x0[i] = first[i];
    for (int64_t t = 0; t < j.n; t++) {
        const struct async_entry *e = &j.entry[t];
        struct group *p = &group[e->group];
        double g[COUNT], n = 0;
        memcpy(p->x, version[e->version], sizeof p->x);
        memcpy(p->est, p->x, sizeof p->est);
        for (int64_t k = 0; k < e->span.steps; k++)
            n += one_round(lab, &q, p, (int)e->group, method, e->span.first + k);
        assert_int_equal(lab->pushed[t].microbatches, (int64_t)n);
        all += n;
        for (int i = 0; i < COUNT; i++)
            g[i] = version[e->version][i] - p->x[i];
        apply(x0, m, Delta, g, t, lab->groups);
        memcpy(version[t + 1], x0, sizeof x0);
    }
    /* Rounding errors of hundreds of steps, and of fp32 sums over the many micro-batches of a
     * worker while another worker has no core. */
    for (int i = 0; i < COUNT; i++)
        if (!(fabs(lab->x[i] - x0[i]) < 1e-5 + 1e-9 * all))
            fail_with("%s, %dx%d, %s: element %d is %.9g, not %.9g", lab->shard, lab->groups,
                      lab->slices, lab->threads ? "threads" : "virtual", i, lab->x[i], x0[i]);
    if (!lab->stop_at && !lab->fails)
        assert_int_equal(lab->samples, (int64_t)all); /* each micro-batch once */
    journal_free(&j);
    table_free(&q.table);
}

static const int meshes[][2] = {{1, 1}, {1, 2}, {2, 2}, {4, 1}, {3, 2}, {2, 4}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void by_the_rules(void **state)
{
    (void)state;
    bool uneven = false;
    for (int i = 0; i < MESHES * METHODS * 2; i++) {
        const int *mesh = meshes[i / METHODS / 2];
        struct lab lab = make(i % METHODS, mesh[0], mesh[1]);
        on_threads(&lab, i / METHODS % 2);
        assert_ok(lab_run(&lab));
        assert_int_equal(lab.step[0], 20);
        agrees(&lab, i % METHODS);
        for (int k = 0; k < lab.n_history[0]; k++)
            uneven |= !lab.threads && lab.history[0][k] > 2;
    }
    assert_true(uneven); /* else no round has depended on time */
}

static void same(const struct lab *a, const struct lab *b)
{
    assert_memory_equal(a->x, b->x, sizeof a->x);
    assert_memory_equal(a->history, b->history, sizeof a->history);
    assert_int_equal(a->n_pushed, b->n_pushed);
}

/* Virtual time repeats itself. A replay of the two files of a run of threads has its bits, in real
 * and virtual time, with and without meetings. */
static void replayed(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * METHODS; i++) {
        const int method = i % METHODS, slices = i / METHODS + 1;
        char pushes[256], counts[256];
        struct lab a = make(method, 4 / slices, slices), b = a, c = a;
        a.pushes = b.pushes = NULL;
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        same(&a, &b);
        assert_true(a.seconds == b.seconds);
        on_threads(&c, true);
        c.pushes = at("c.tsv");
        c.counts = at("c.counts");
        c.save_every = slices == 1 ? 5 : 0;
        assert_ok(lab_run(&c));
        snprintf(pushes, sizeof pushes, "async-diloco.replay=%s", at("c.tsv"));
        snprintf(counts, sizeof counts, "%s.replay=%s", methods[method], at("c.counts"));
        for (int threads = 0; threads < 2; threads++) {
            struct lab d = make(method, 4 / slices, slices);
            d.pushes = NULL;
            on_threads(&d, threads);
            d.save_every = slices == 1 ? 0 : 3;
            d.options[1] = pushes;
            d.options[2] = counts;
            assert_ok(lab_run(&d));
            same(&c, &d);
        }
    }
}

/* A run that resumes from any save has the bits of the run without the break. A group that meets
 * with a task done computes nothing while it waits for the next task, so saves change counts. */
static void saved(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * METHODS; i++) {
        const int slices = i / METHODS + 1;
        struct lab a = make(i % METHODS, 4 / slices, slices);
        a.options[1] = i % 2 ? "async-diloco.dylu=true" : NULL;
        a.save_every = 5;
        a.eval_every = 2;
        struct lab b = a;
        assert_ok(lab_run(&a));
        assert_int_equal(a.meetings, 4);
        agrees(&a, i % METHODS);
        for (int k = 1; k <= 3; k++) {
            struct lab first = b, second = b;
            first.to = second.from = at("state");
            first.save = k;
            first.ends_there = true;
            first.pushes = second.pushes = NULL;
            assert_ok(lab_run(&first));
            memcpy(second.trained, first.trained, sizeof first.trained);
            assert_ok(lab_run(&second));
            assert_int_equal(first.samples + second.samples, a.samples);
            assert_int_equal(first.n_pushed + second.n_pushed, a.n_pushed);
            assert_memory_equal(a.x, second.x, sizeof a.x);
            assert_memory_equal(a.history, second.history, sizeof a.history);
        }
    }
}

/* A run whose groups would read other data than the groups of the checkpoint is refused. */
static void other_data(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct lab first = make(ACCO, 2, 2), second = first;
        *(i ? &second.shard : &first.shard) = "zero1";
        first.to = second.from = at("state");
        first.save = 1;
        first.save_every = 5;
        first.ends_there = true;
        assert_ok(lab_run(&first));
        assert_fails(
            lab_run(&second), SOTTO_EINVAL,
            i ? "zero1 x async-diloco reads the data of each task, but the groups of the "
              : "acco x async-diloco reads each worker's own data, but the groups of the ");
    }
}

static void stopped_and_failed(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * METHODS; i++) {
        struct lab a = make(i % METHODS, 2, 2);
        on_threads(&a, i / METHODS);
        a.stop_at = 7;
        assert_ok(lab_run(&a));
        assert_int_equal(a.meetings, 1);
        agrees(&a, i % METHODS);
        a = make(i % METHODS, 2, 2);
        on_threads(&a, i / METHODS);
        a.fails = 3;
        assert_fails(lab_run(&a), SOTTO_EIO, "worker 3: the disk is gone");
    }
}

/* The other groups train the steps of a failed group, and a run resumes from a save after that. */
static void left(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * METHODS; i++) {
        struct lab a = make(i % METHODS, 4, 1);
        on_threads(&a, i / METHODS);
        a.options[1] = "async-diloco.lost=drop";
        a.save_every = 5;
        a.fails = 2;
        struct lab first = a, second = a;
        assert_ok(lab_run(&a));
        int64_t steps = 0;
        for (int k = 0; k < a.n_pushed; k++) {
            assert_int_not_equal(a.pushed[k].group, 2);
            steps += a.pushed[k].steps;
        }
        assert_int_equal(steps, 4 * 20);
        agrees(&a, i % METHODS);
        if (a.threads)
            continue;
        first.to = second.from = at("state");
        first.save = 2;
        first.ends_there = true;
        assert_ok(lab_run(&first));
        memcpy(second.trained, first.trained, sizeof first.trained);
        second.fails = 0;
        assert_ok(lab_run(&second));
        assert_memory_equal(a.x, second.x, sizeof a.x);
    }
}

static void refused(int method, const char *option, const char *part)
{
    struct strategy_config *c = calloc(1, sizeof *c);
    strategy_defaults(c);
    strcpy(c->shard, methods[method]);
    strcpy(c->replicate, "async-diloco");
    strcpy(c->mesh, "2x2");
    assert_ok(set_options(c, &option, 1));
    assert_fails(strategy_resolve(c, 4), SOTTO_EINVAL, part);
    free(c);
}

static void senseless(void **state)
{
    (void)state;
    char option[256];
    assert_ok(file_write(at("pushes.tsv"), "", 0));
    snprintf(option, sizeof option, "async-diloco.replay=%s", at("pushes.tsv"));
    refused(ACCO, option, "set acco.replay to counts.tsv of the same run");
    assert_ok(file_write(at("counts.tsv"), "1 1 1 1\n", 8));
    snprintf(option, sizeof option, "dpu.replay=%s", at("counts.tsv"));
    refused(DPU, option, "set async-diloco.replay to pushes.tsv of the same run");
    refused(DPU, "dpu.warmup=3", "dpu.warmup = 3 counts rounds of all groups together");
}

/* Counts of workers that ended early are filled up with zeros at the end alone. */
static void counts(void **state)
{
    (void)state;
    static const char good[] = "1 2\n3 0\n4 0\n", bad[] = "1 2\n3 0\n4 1\n";
    struct history h;
    assert_ok(file_write(at("good"), good, strlen(good)));
    assert_ok(file_write(at("bad"), bad, strlen(bad)));
    assert_ok(history_read(&h, at("good"), 0, 2, true));
    assert_int_equal(h.n, 3);
    history_free(&h);
    assert_ok(history_read(&h, at("good"), 1, 2, true));
    assert_int_equal(h.n, 1);
    history_free(&h);
    assert_fails(history_read(&h, at("bad"), 1, 2, true), SOTTO_EFORMAT,
                 "bad: count 2 of a worker is 0, and others follow");
    assert_fails(history_read(&h, at("good"), 0, 2, false), SOTTO_EFORMAT,
                 "good:2: want 2 counts of 1 or more, got '3 0'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_the_rules, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(replayed, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(saved, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(other_data, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(stopped_and_failed, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(left, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(senseless, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(counts, scratch_make, scratch_remove),
    };
    return run_cases(tests, RACE_STRIDE, NULL, NULL);
}
