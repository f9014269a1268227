/* Asynchronous DiLoCo on the quadratic: groups, server and messages, against the same sequence of
 * pushes in double precision. */
#include "strategy/async/async_lab.h"

#include "strategy/async/journal.h"
#include "strategy/async/outer_rules.h"

struct rule {
    int outer; /* enum async_outer_rule */
    int64_t N;
    double c, beta, eps;
};

static void inner_steps(const struct lab *lab, const struct quadratic *q, struct async_span span,
                        double x[COUNT], double velocity[COUNT])
{
    const int size = lab->groups * lab->slices;
    for (int64_t k = 0; k < span.steps; k++) {
        const double lr = lab_lr(span.first + k);
        for (int i = 0; i < COUNT; i++) {
            double g = 0;
            for (int s = 0; s < lab->slices; s++)
                for (int m = 0; m < 2; m++) {
                    const int64_t rank = span.shard * lab->slices + s;
                    const int64_t index = (2 * (span.first + k) + m) * size + rank;
                    g += (double)q->a[i] * q->a[i] * (x[i] - centre(index % BATCHES, i));
                }
            g /= 2 * lab->slices;
            velocity[i] = 0.5 * velocity[i] + g;
            x[i] -= lr * velocity[i];
        }
    }
}

/* Returns the cosine of two pushes; NAN if a push is zero. */
static double cosine_of(const double a[COUNT], const double b[COUNT])
{
    double product = 0, left = 0, right = 0;
    for (int i = 0; i < COUNT; i++) {
        product += a[i] * b[i];
        left += a[i] * a[i];
        right += b[i] * b[i];
    }
    return left > 0 && right > 0 ? product / sqrt(left * right) : NAN;
}

static void follow(const struct lab *lab, const struct async_journal *j, struct rule rule,
                   double x0[COUNT], double cosine[PUSHES])
{
    static double version[PUSHES + 1][COUNT];
    double pushed[2][COUNT] = {{0}};
    double m[COUNT] = {0}, Delta[COUNT] = {0}, velocity[MOST][COUNT] = {{0}};
    const double N = rule.N ? (double)rule.N : lab->groups;
    struct quadratic q;
    float first[COUNT];
    int pushes[MOST] = {0};
    quadratic_make(&q, NULL);
    lab_start(first);
    for (int i = 0; i < COUNT; i++)
        version[0][i] = x0[i] = first[i];
    assert_true(j->n <= PUSHES);
    for (int64_t t = 0; t < j->n; t++) {
        const struct async_entry *e = &j->entry[t];
        const int n = pushes[e->group]++;
        double x[COUNT];
        memcpy(x, version[e->version], sizeof x);
        inner_steps(lab, &q, e->span, x, velocity[e->group]);
        for (int i = 0; i < COUNT; i++) {
            double g = version[e->version][i] - x[i];
            if (lab->moved)
                g = bf16_widen(bf16_round(lab->moved[e->group][n][i]));
            pushed[t % 2][i] = g;
            if (rule.outer == ASYNC_DELAYED) {
                Delta[i] += g;
                const bool full = (t + 1) % (int64_t)N == 0;
                if (full)
                    m[i] = rule.beta * m[i] + Delta[i] / N;
                const double part = full ? 1 - rule.c * N + rule.c : rule.c;
                x0[i] -= rule.eps * (part * rule.beta * m[i] + g / N);
                Delta[i] = full ? 0 : Delta[i];
            } else {
                g /= sqrt(lab->groups);
                m[i] = rule.outer == ASYNC_NESTEROV ? rule.beta * m[i] + g : 0;
                x0[i] -= rule.eps * (g + (rule.outer == ASYNC_NESTEROV ? rule.beta * m[i] : 0));
            }
            version[t + 1][i] = x0[i];
        }
        cosine[t] = cosine_of(pushed[0], pushed[1]);
    }
    table_free(&q.table);
}

static void agrees(const struct lab *lab, struct rule rule)
{
    struct async_journal j;
    double x0[COUNT], cosine[PUSHES];
    int64_t steps = 0;
    assert_ok(journal_read(&j, lab->pushes, lab->groups));
    follow(lab, &j, rule, x0, cosine);
    for (int i = 0; i < COUNT; i++) /* rounding errors of hundreds of steps */
        if (!(fabs(lab->x[i] - x0[i]) < 1e-5))
            fail_with("%s, %dx%d: element %d is %.9g, not %.9g", lab->shard, lab->groups,
                      lab->slices, i, lab->x[i], x0[i]);
    for (int64_t i = 0; i < j.n; i++)
        steps += j.entry[i].span.steps;
    assert_int_equal(j.n, lab->n_pushed);
    for (int64_t i = 0; i < j.n; i++) {
        assert_int_equal(lab->pushed[i].number, i);
        assert_int_equal(lab->pushed[i].group, j.entry[i].group);
        assert_int_equal(lab->pushed[i].staleness, i - j.entry[i].version);
        const double is = lab->pushed[i].cosine, want = lab->cosine ? cosine[i] : NAN;
        if (isnan(want) ? !isnan(is)
                        : !(fabs(is - want) < 1e-4)) /* pushes get short: rounding errors */
            fail_with("%s, %dx%d: push %d has a cosine of %.9g to the one before it, not %.9g",
                      lab->shard, lab->groups, lab->slices, (int)i, is, want);
    }
    if (!lab->stop_at) {
        assert_int_equal(steps, lab->groups * lab->rounds);
        assert_int_equal(lab->samples, 2 * steps * lab->slices);
    }
    journal_free(&j);
}

static const struct rule delayed = {ASYNC_DELAYED, 0, 0, 0.9, 0.7};

static void by_the_rules(void **state)
{
    (void)state;
    static const struct {
        const char *shard;
        int groups, slices;
    } mesh[] = {{"ddp", 1, 1},   {"ddp", 2, 1},  {"ddp", 4, 1},   {"ddp", 3, 2},
                {"zero1", 2, 2}, {"fsdp", 2, 2}, {"zero1", 2, 4}, {"fsdp", 4, 1}};
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++)
        for (int threads = 0; threads < 2; threads++) {
            struct lab lab = {.shard = mesh[i].shard,
                              .groups = mesh[i].groups,
                              .slices = mesh[i].slices,
                              .threads = threads,
                              .options = {"async-diloco.H=3", "async-diloco.cosine=true"},
                              .rounds = 20,
                              .speed = {1, 0.5, 0.25, 0.3},
                              .pushes = at("pushes.tsv"),
                              .cosine = true};
            assert_ok(lab_run(&lab));
            assert_int_equal(lab.meetings, 1);
            assert_int_equal(lab.step[0], 20);
            agrees(&lab, delayed);
        }
}

static void outer_rules(void **state)
{
    (void)state;
    static const struct {
        const char *options[5];
        struct rule rule;
    } cases[] = {
        {{"async-diloco.outer=sgd", "async-diloco.outer_lr=0.5"}, {ASYNC_SGD, 0, 0, 0, 0.5}},
        {{"async-diloco.outer=nesterov"}, {ASYNC_NESTEROV, 0, 0, 0.9, 0.7}},
        {{"async-diloco.N=2", "async-diloco.c=0.25"}, {ASYNC_DELAYED, 2, 0.25, 0.9, 0.7}},
        {{"async-diloco.dylu=true"}, {ASYNC_DELAYED, 0, 0, 0.9, 0.7}},
        {{"async-diloco.grace=2.5"}, {ASYNC_DELAYED, 0, 0, 0.9, 0.7}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lab lab = {.shard = "ddp",
                          .groups = 4,
                          .slices = 1,
                          .options = {"async-diloco.H=4"},
                          .rounds = 30,
                          .speed = {1, 0.5, 0.25, 0.3},
                          .pushes = at("pushes.tsv")};
        for (int k = 0; cases[i].options[k]; k++)
            lab.options[k + 1] = cases[i].options[k];
        assert_ok(lab_run(&lab));
        agrees(&lab, cases[i].rule);
    }
}

static void same(const struct lab *a, const struct lab *b)
{
    assert_memory_equal(a->x, b->x, sizeof a->x);
}

static void same_file(const char *a, const char *b)
{
    char *x, *y;
    assert_ok(file_read_text(a, 1 << 20, &x));
    assert_ok(file_read_text(b, 1 << 20, &y));
    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* The server applies displacements rounded once to bf16, with half the bytes. */
static void rounded(void **state)
{
    (void)state;
    static float moved[MOST][PUSHES][COUNT];
    static const struct {
        const char *option;
        struct rule rule;
        int64_t saved; /* bytes a push, of ddp */
    } cases[] = {{NULL, {ASYNC_DELAYED, 0, 0, 0.9, 0.7}, 2 * COUNT},
                 {"async-diloco.outer=nesterov", {ASYNC_NESTEROV, 0, 0, 0.9, 0.7}, 2 * COUNT},
                 /* 8 values of rows of 2, 8 and 4, and the bits of 24 */
                 {"async-diloco.prune=0.75", {0}, 4 * (1 + 8) - 2 * (2 + 8)}};
    for (int i = 0; i < 6; i++) {
        struct lab a = {.shard = i % 2 ? "zero1" : "ddp",
                        .groups = i % 2 ? 2 : 4,
                        .slices = i % 2 ? 2 : 1,
                        .options = {"async-diloco.H=3", cases[i / 2].option},
                        .rounds = 21,
                        .speed = {1, 0.5, 0.25, 0.3},
                        .pushes = at("pushes.tsv")};
        struct lab b = a;
        assert_ok(lab_run(&a));
        b.options[cases[i / 2].option ? 2 : 1] = "async-diloco.dtype=bf16";
        b.moved = moved;
        assert_ok(lab_run(&b));
        assert_int_equal(a.n_pushed, b.n_pushed);
        int64_t pushes = 0;
        for (int k = 0; k < b.n_pushed; k++)
            pushes += b.pushed[k].group == b.groups - 1;
        assert_int_equal(pushes, b.n_moved[3]);
        if (i % 2 == 0)
            assert_int_equal(a.sent - b.sent, pushes * cases[i / 2].saved);
        if (i < 4)
            agrees(&b, cases[i / 2].rule);
    }
}

/* One group equals diloco to the bit; equal groups that wait for each other equal it to rounding.
 */
static void like_diloco(void **state)
{
    (void)state;
    static const struct {
        const char *shard;
        int slices;
    } mesh[] = {{"ddp", 1}, {"zero1", 2}, {"fsdp", 2}};
    for (int i = 0; i < 12; i++)
        for (int groups = 1; groups <= (i < 6 ? 4 : 1); groups += 3) {
            const bool prunes = i / 3 % 2, rounds = i >= 6;
            struct lab a = {.shard = mesh[i % 3].shard,
                            .groups = groups,
                            .slices = mesh[i % 3].slices,
                            .options = {"async-diloco.H=3", "async-diloco.grace=0.5"},
                            .rounds = 21};
            struct lab b = a, dense = a;
            b.diloco = true;
            b.options[0] = "diloco.H=3";
            b.options[1] = prunes ? "diloco.prune=0.75" : "diloco.prune=0";
            b.options[2] = rounds ? "diloco.dtype=bf16" : NULL;
            a.options[2] = prunes ? "async-diloco.prune=0.75" : "async-diloco.prune=0";
            a.options[3] = rounds ? "async-diloco.dtype=bf16" : NULL;
            assert_ok(lab_run(&a));
            assert_ok(lab_run(&b));
            if (prunes && groups > 1) {
                assert_ok(lab_run(&dense));
                assert_true(a.sent < dense.sent);
            }
            if (groups == 1)
                same(&a, &b);
            for (int k = 0; k < COUNT; k++)
                assert_true(fabsf(a.x[k] - b.x[k]) < 2e-6f);
            assert_int_equal(a.n_pushed, 7 * groups);
        }
}

static struct lab uneven(int groups, int slices)
{
    return (struct lab){.shard = slices > 1 ? "zero1" : "ddp",
                        .groups = groups,
                        .slices = slices,
                        .options = {"async-diloco.H=4"},
                        .rounds = 40,
                        .speed = {1, 0.53, 0.21, 0.37, 0.9, 0.9, 0.7, 0.7}};
}

/* Virtual time repeats itself, and a replay has the bits of a run of threads or in virtual time. */
static void replayed(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {1e9, 1e-6}, .inter = {100, 0.01}};
    for (int how = 0; how < 6; how++) {
        char option[256];
        struct lab a = uneven(how % 2 ? 2 : 4, how % 2 ? 2 : 1);
        a.links = how < 2 ? &links : NULL;
        if (how >= 4)
            a.options[1] = "async-diloco.grace=3";
        struct lab b = a, c = a, d;
        a.pushes = at("a.tsv");
        b.pushes = at("b.tsv");
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        same(&a, &b);
        same_file(at("a.tsv"), at("b.tsv"));
        assert_true(a.seconds == b.seconds);
        c.threads = true;
        c.links = NULL;
        c.options[1] = NULL;
        c.pushes = at("a.tsv");
        assert_ok(lab_run(&c));
        snprintf(option, sizeof option, "async-diloco.replay=%s", at("a.tsv"));
        for (int threads = 0; threads < 2; threads++) {
            d = uneven(c.groups, c.slices);
            d.threads = threads;
            d.options[2] = d.options[1] = option;
            d.options[2] = NULL;
            d.save_every = threads ? 0 : 10; /* saves change no bits */
            d.pushes = at("b.tsv");
            assert_ok(lab_run(&d));
            same(&c, &d);
            same_file(at("a.tsv"), at("b.tsv"));
        }
    }
}

/* A run that resumes from any save has the bits of the run without a break or saves. */
static void saved(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct lab a = uneven(how & 1 ? 2 : 4, how & 1 ? 2 : 1);
        if (how & 1 && how & 4)
            a.shard = "fsdp";
        if (how & 2)
            a.options[1] = "async-diloco.grace=3";
        if (how & 4)
            a.options[2 - !(how & 2)] = "async-diloco.dylu=true";
        a.pushes = at("a.tsv");
        struct lab whole = a;
        assert_ok(lab_run(&whole));
        assert_int_equal(whole.meetings, 1);
        a.save_every = 10;
        a.eval_every = 2; /* some evaluations are due with a save */
        struct lab b = a;
        assert_ok(lab_run(&a));
        assert_int_equal(a.meetings, 4);
        if (!(how & 2)) /* an open period of grace waits for the meeting */
            same(&whole, &a);
        for (int k = 1; k <= 3; k++) {
            assert_true(a.step[k - 1] >= 10 * k && a.step[k - 1] < 10 * k + 4);
            struct lab first = b, second = b;
            first.to = second.from = at("state");
            first.save = k;
            first.ends_there = true;
            first.pushes = NULL;
            second.pushes = at("b.tsv");
            assert_ok(lab_run(&first));
            assert_int_equal(first.meetings, k);
            memcpy(second.trained, first.trained, sizeof first.trained);
            assert_ok(lab_run(&second));
            assert_int_equal(second.meetings, 4 - k);
            assert_int_equal(first.samples + second.samples, a.samples);
            assert_int_equal(first.n_pushed + second.n_pushed, a.n_pushed);
            same(&a, &second);
            same_file(at("a.tsv"), at("b.tsv"));
        }
    }
}

/* Saves by time. A resumed run does not wait for the rest of a longer interval. */
static void save_intervals(void **state)
{
    (void)state;
    struct lab a = uneven(4, 1);
    a.save_seconds = 12;
    assert_ok(lab_run(&a));
    assert_true(a.meetings > 3);
    struct lab first = uneven(4, 1), second = first;
    first.to = second.from = at("state");
    first.save = 1;
    first.ends_there = true;
    first.save_every = 10;
    first.save_seconds = 1000;
    second.save_seconds = 12;
    assert_ok(lab_run(&first));
    memcpy(second.trained, first.trained, sizeof first.trained);
    assert_ok(lab_run(&second));
    assert_true(second.meetings > 2);
}

static void between_threads(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct lab a = uneven(how & 1 ? 2 : 4, how & 1 ? 2 : 1), b;
        a.threads = true;
        a.save_every = 10;
        a.eval_every = 5;
        a.pushes = at("pushes.tsv");
        if (how & 2)
            a.options[1] = "async-diloco.grace=0.001";
        b = a;
        assert_ok(lab_run(&a));
        agrees(&a, delayed);
        b.to = at("state");
        b.save = 2;
        b.ends_there = true;
        assert_ok(lab_run(&b));
        struct lab rest = a;
        memset(rest.x, 0, sizeof rest.x);
        rest.meetings = rest.evaluations = rest.n_pushed = 0;
        rest.samples = 0;
        rest.from = at("state");
        assert_ok(lab_run(&rest));
        assert_int_equal(b.samples + rest.samples, a.samples);
        assert_int_equal(b.n_pushed + rest.n_pushed, rest.pushed[rest.n_pushed - 1].number + 1);
    }
}

static void evaluated(void **state)
{
    (void)state;
    for (int slices = 1; slices <= 2; slices++) {
        struct lab a = uneven(4 / slices, slices);
        a.eval_every = 5;
        assert_ok(lab_run(&a));
        assert_int_equal(a.evaluations, 8);
        for (int i = 0; i < 8; i++)
            assert_true(a.evaluated[i] >= 5 * (i + 1) && a.evaluated[i] < 5 * (i + 2));
    }
}

static void stopped(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct lab a = uneven(how & 1 ? 2 : 4, how & 1 ? 2 : 1);
        a.threads = how & 2;
        a.stop_at = 13;
        a.pushes = at("pushes.tsv");
        if (how & 4)
            a.options[1] = "async-diloco.grace=2";
        assert_ok(lab_run(&a));
        assert_int_equal(a.meetings, 1);
        if (!a.threads) {
            assert_true(a.step[0] < 40);
            agrees(&a, delayed);
        }
    }
}

static void failing(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct lab a = uneven(how & 1 ? 2 : 4, how & 1 ? 2 : 1);
        a.threads = how & 2;
        a.fails = 3;
        assert_fails(lab_run(&a), SOTTO_EIO, "worker 3: the disk is gone");
    }
}

/* No worker waits for a server that has failed. */
static void failing_server(void **state)
{
    (void)state;
    const char *text = "0\t4\t0\t0\t0\n1\t4\t1\t0\t0\n0\t4\t0\t4\t0\n";
    char option[256];
    assert_ok(file_write(at("bad.tsv"), text, strlen(text)));
    snprintf(option, sizeof option, "async-diloco.replay=%s", at("bad.tsv"));
    for (int how = 0; how < 4; how++) {
        struct lab a = uneven(how & 1 ? 2 : 4, how & 1 ? 2 : 1);
        a.threads = how & 2;
        a.options[1] = option;
        assert_fails(lab_run(&a), SOTTO_EFORMAT,
                     "worker 0: replay of push 2: it was pulled at 0 pushes, not 1");
    }
}

/* The other groups continue without a failed group, and train the steps of its task. A failure of
 * the first group, which has the server, ends the run. */
static void left(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct lab a = uneven(4, 1);
        a.threads = how & 1;
        a.options[1] = "async-diloco.lost=drop";
        a.options[2] = how & 2 ? "async-diloco.grace=2" : NULL;
        a.save_every = 10;
        a.fails = 2;
        a.pushes = at("pushes.tsv");
        assert_ok(lab_run(&a));
        for (int i = 0; i < a.n_pushed; i++)
            assert_int_not_equal(a.pushed[i].group, 2);
        assert_int_equal(a.pushed[a.n_pushed - 1].step, 40);
        assert_int_equal(a.samples, 2 * (4 * 40 + 2)); /* and two lost steps of the failed group */
        a.samples -= 4;
        agrees(&a, delayed);
    }
}

/* A failed group may have more steps than all other groups, with a task that was not pushed: its
 * counts are saved with the same length as the other groups' counts, and loaded. */
static void left_ahead(void **state)
{
    (void)state;
    struct lab a = {.shard = "acco",
                    .groups = 4,
                    .slices = 1,
                    .options = {"async-diloco.H=4", "async-diloco.lost=drop"},
                    .rounds = 12,
                    .speed = {0.1, 0.1, 0.1, 1}};
    struct lab b = a;
    a.fails = 3;
    a.fails_after = 7; /* a task, and three steps of the next task */
    a.save_seconds = 20;
    a.to = b.from = at("state");
    a.save = 1;
    a.ends_there = true;
    assert_ok(lab_run(&a));
    assert_true(a.meetings == 1 && a.step[0] == 1);
    memcpy(b.trained, a.trained, sizeof b.trained);
    assert_ok(lab_run(&b));
}

static void refused(const char *shard, const char *option, const char *part)
{
    struct strategy_config *c = calloc(1, sizeof *c);
    strategy_defaults(c);
    strcpy(c->shard, shard);
    strcpy(c->replicate, "async-diloco");
    strcpy(c->mesh, strcmp(shard, "zero1") == 0 ? "2x2" : "4x1");
    assert_ok(set_options(c, &option, option ? 1 : 0));
    assert_fails(strategy_resolve(c, 4), SOTTO_EINVAL, part);
    free(c);
}

static void senseless(void **state)
{
    (void)state;
    refused("cdp", NULL, "cdp");
    refused("zero1", "async-diloco.lost=drop", "groups of one worker, and these groups have 2");
    refused("ddp", "async-diloco.c=0.3", "c = 0.3 is more than 1/N = 1/4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_the_rules, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(outer_rules, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(rounded, scratch_make, scratch_remove),
        cmocka_unit_test(like_diloco),
        cmocka_unit_test_setup_teardown(replayed, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(saved, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(save_intervals, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(between_threads, scratch_make, scratch_remove),
        cmocka_unit_test(evaluated),
        cmocka_unit_test_setup_teardown(stopped, scratch_make, scratch_remove),
        cmocka_unit_test(failing),
        cmocka_unit_test_setup_teardown(failing_server, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(left, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(left_ahead, scratch_make, scratch_remove),
        cmocka_unit_test(senseless),
    };
    return run_cases(tests, RACE_STRIDE, NULL, NULL);
}
