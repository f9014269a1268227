/* Ledger and outer optimizer of asynchronous DiLoCo against a reference of the rules: in double
 * precision, one group after the other, without code of the server. */
#include "base/scratch.h"

#include <math.h>

#include "comm/worker.h"
#include "strategy/async/outer.h"
#include "strategy/async/ledger.h"
#include "tensor/ops.h"

enum { COUNT = 12, MOST = 8 };

/* ---- reference of the rules ---- */

struct reference {
    struct async_rules r;
    double x0[COUNT], m[COUNT], Delta[COUNT];
    int64_t pushes;
    int64_t given[MOST], pulled[MOST];
    double speed[MOST];
    int queue[MOST], queued; /* pushed, not answered */
    double closes;           /* of the open period of grace */
    bool open, gone[MOST];
};

static void reference_push(struct reference *f, int i, const double *pushed, double speed,
                           double now)
{
    const struct async_rules *r = &f->r;
    const double K = r->groups, N = r->N ? (double)r->N : K, s = (double)(f->pushes - f->pulled[i]);
    const double b = r->outer_momentum, eps = r->outer_lr, c = r->c;
    double w = r->weight > 0 ? r->weight : r->outer == ASYNC_DELAYED ? 1 : 1 / sqrt(K);
    if (r->staleness)
        w *= pow(1 + s, -0.5);
    const bool fills = (f->pushes + 1) % (int64_t)N == 0;
    for (int e = 0; e < COUNT; e++) {
        const double g = w * pushed[e];
        if (r->outer == ASYNC_SGD) {
            f->x0[e] -= eps * g;
        } else if (r->outer == ASYNC_NESTEROV) {
            f->m[e] = b * f->m[e] + g;
            f->x0[e] -= eps * (g + b * f->m[e]);
        } else {
            f->Delta[e] += g;
            if (fills) {
                f->m[e] = b * f->m[e] + f->Delta[e] / N;
                f->x0[e] -= eps * ((1 - c * N + c) * b * f->m[e] + g / N);
                f->Delta[e] = 0;
            } else {
                f->x0[e] -= eps * (c * b * f->m[e] + g / N);
            }
        }
    }
    f->pushes++;
    f->speed[i] = speed;
    f->queue[f->queued++] = i;
    if (!f->open) {
        f->open = true;
        f->closes = now + r->grace;
    }
}

static int64_t reference_steps(const struct reference *f, int i)
{
    double fastest = 0;
    for (int g = 0; g < f->r.groups; g++) {
        if (f->gone[g])
            continue;
        if (f->speed[g] == 0)
            return f->r.H;
        fastest = fmax(fastest, f->speed[g]);
    }
    const int64_t H = (int64_t)floor((double)f->r.H * (f->speed[i] / fastest));
    return !f->r.dylu ? f->r.H : H < 1 ? 1 : H;
}

/* Returns the shard with the fewest steps given out; none if all are given out. */
static struct async_span reference_take(struct reference *f, int i)
{
    int best = 0;
    for (int d = 1; d < f->r.groups; d++)
        if (f->given[d] < f->given[best])
            best = d;
    const int64_t left = f->r.steps - f->given[best], H = reference_steps(f, i);
    const struct async_span span = {best, f->given[best], H < left ? H : left};
    f->given[best] += span.steps;
    f->pulled[i] = f->pushes;
    f->gone[i] = span.steps == 0;
    return span;
}

/* Returns the group that is answered next; -1: none. */
static int reference_answer(struct reference *f, double now, struct async_span *span)
{
    int at_work = 0;
    for (int i = 0; i < f->r.groups; i++)
        at_work += !f->gone[i];
    if (f->queued == 0 || (f->open && now < f->closes && f->queued < at_work))
        return -1;
    f->open = false;
    const int i = f->queue[0];
    memmove(f->queue, f->queue + 1, (size_t)--f->queued * sizeof *f->queue);
    *span = reference_take(f, i);
    return i;
}

/* ---- groups whose tasks take time ---- */

struct lab {
    struct async_rules rules;
    double speed[MOST]; /* steps a second                       */
    const char *replay;
    bool check; /* against the reference                */
    struct worker worker;
    struct memory memory;
    struct device dev;
    struct mesh mesh;
    struct table table;
    struct owned own;
    struct async_ledger ledger;
    struct async_outer outer;
    struct buffer g;
    struct reference f;
    double now;
    struct pupil {
        double done; /* time of the end of its task */
        float x0[COUNT];
        double f0[COUNT]; /* reference */
    } group[MOST];
    int answered[4096], answers; /* order                               */
};

static const struct async_rules plain = {.outer = ASYNC_DELAYED,
                                         .outer_lr = 0.7,
                                         .outer_momentum = 0.9,
                                         .H = 5,
                                         .groups = 4,
                                         .steps = 60};

static void open_lab(struct lab *l)
{
    const int64_t shape[] = {COUNT, 0};
    float x[COUNT];
    table_add(&l->table, "x", shape, TABLE_ZERO, 0);
    assert_ok(table_layout(&l->table, 1, 1));
    assert_ok(device_open(&l->dev, test_device(), &l->memory, 1));
    assert_ok(worker_alone(&l->worker));
    l->mesh = (struct mesh){.worker = &l->worker, .n_r = 1};
    assert_ok(owned_all(&l->own, &l->table, 0, 1));
    assert_ok(ledger_init(&l->ledger, &l->rules, l->replay));
    assert_ok(outer_init(&l->outer, &l->rules, &(struct work){&l->mesh, NULL, &l->dev}, &l->table,
                         &l->own));
    assert_ok(buffer_init(&l->g, &l->dev, DTYPE_F32, COUNT, MEMORY_COMMUNICATION));
    l->f.r = l->rules;
    for (int e = 0; e < COUNT; e++)
        l->f.x0[e] = x[e] = sinf((float)e);
    l->dev.ops->write(&l->dev, l->g.view, x, COUNT);
    outer_set_x0(&l->outer, l->g.view);
    assert_ok(device_check(&l->dev));
}

static void close_lab(struct lab *l)
{
    outer_free(&l->outer);
    ledger_free(&l->ledger);
    buffer_free(&l->g);
    owned_free(&l->own);
    table_free(&l->table);
    comm_free(l->worker.world);
    device_close(&l->dev);
    assert_int_equal(l->memory.total, 0);
}

static void read_x0(struct lab *l, float *x)
{
    l->dev.ops->read(&l->dev, x, l->outer.x0.view, COUNT);
    assert_ok(device_check(&l->dev));
}

static void pull(struct lab *l, int64_t i, struct async_span want)
{
    const struct async_task *t = &l->ledger.group[i].task;
    struct pupil *p = &l->group[i];
    read_x0(l, p->x0);
    memcpy(p->f0, l->f.x0, sizeof p->f0);
    p->done = t->span.steps > 0 ? l->now + (double)t->span.steps / l->speed[i] : INFINITY;
    assert_int_equal(t->group, i);
    if (!l->check)
        return;
    assert_int_equal(t->version, l->f.pulled[i]);
    assert_int_equal(t->span.steps, want.steps);
    if (want.steps > 0) {
        assert_int_equal(t->span.shard, want.shard);
        assert_int_equal(t->span.first, want.first);
    }
}

static void begin(struct lab *l)
{
    assert_ok(ledger_begin(&l->ledger, 0));
    for (int i = 0; i < l->rules.groups; i++)
        pull(l, i, reference_take(&l->f, i));
}

/* Returns a displacement from x, different in each call. */
static double moved(double x, int64_t i, const struct async_span *s, int e)
{
    const double way = sin((double)(7 * i + 3 * s->shard + s->first) + 0.5 * e);
    return 0.02 * (double)s->steps * (x - way);
}

/* Pushes the first steps of a task, or all steps. */
static void push_some(struct lab *l, int64_t i, int64_t steps)
{
    struct pupil *p = &l->group[i];
    struct async_span span = l->ledger.group[i].task.span;
    span.steps = steps > 0 ? steps : span.steps;
    const double seconds = (double)span.steps / l->speed[i];
    const struct async_push told = {.group = i,
                                    .steps = steps,
                                    .microbatches = 2 * span.steps,
                                    .tokens = 8 * span.steps,
                                    .seconds = seconds,
                                    .idle = 0.25};
    float g[COUNT];
    double f[COUNT], w;
    for (int e = 0; e < COUNT; e++) {
        g[e] = (float)moved(p->x0[e], i, &span, e);
        f[e] = moved(p->f0[e], i, &span, e);
    }
    p->done = INFINITY;
    assert_ok(ledger_push(&l->ledger, &told, l->now, &w));
    l->dev.ops->write(&l->dev, l->g.view, g, COUNT);
    assert_ok(outer_push(&l->outer, l->g.view, w));
    if (l->check)
        reference_push(&l->f, (int)i, f, (double)span.steps / seconds, l->now);
}

static void push(struct lab *l, int64_t i)
{
    push_some(l, i, 0);
}

static void answer(struct lab *l)
{
    for (;;) {
        struct async_task task;
        struct async_span want = {0};
        bool found;
        const int next = l->check ? reference_answer(&l->f, l->now, &want) : -1;
        assert_ok(ledger_answer(&l->ledger, l->now, &task, &found));
        if (l->check)
            assert_int_equal(next, found ? task.group : -1);
        if (!found)
            return;
        l->answered[l->answers++ % 4096] = (int)task.group;
        pull(l, task.group, want);
    }
}

/* Runs the next event. On ties: the lower group, and a push before the deadline. */
static void happen(struct lab *l)
{
    int64_t first = ledger_next(&l->ledger);
    for (int i = 0; first < 0 && i < l->rules.groups; i++)
        if (l->group[i].done < INFINITY)
            first = i;
    for (int i = 0; ledger_next(&l->ledger) < 0 && i < l->rules.groups; i++)
        if (l->group[i].done < l->group[first].done)
            first = i;
    const double deadline = ledger_deadline(&l->ledger);
    if (first >= 0 && l->group[first].done <= deadline) {
        l->now = fmax(l->now, l->group[first].done);
        push(l, first);
    } else {
        assert_true(deadline < INFINITY);
        l->now = deadline;
    }
    answer(l);
}

static void leave(struct lab *l, int i)
{
    ledger_drop_group(&l->ledger, i);
    l->group[i].done = INFINITY;
}

static void agrees(struct lab *l)
{
    float x[COUNT];
    read_x0(l, x);
    for (int e = 0; e < COUNT; e++) /* rounding errors of some hundred numbers of about 1 */
        if (!(fabs(x[e] - l->f.x0[e]) < 2e-5))
            fail_with("push %lld, element %d: %.9g, and by the rules %.9g",
                      (long long)l->ledger.version, e, x[e], l->f.x0[e]);
}

static void run(struct lab *l)
{
    while (!ledger_is_over(&l->ledger)) {
        happen(l);
        if (l->check)
            agrees(l);
    }
}

/* Checks that all steps of all shards were given out once. */
static void all_done_once(const struct lab *l)
{
    static bool done[MOST][4096];
    const struct async_journal *j = &l->ledger.journal;
    memset(done, 0, sizeof done);
    int64_t steps = 0;
    for (int64_t i = 0; i < j->n; i++)
        for (int64_t k = 0; k < j->entry[i].span.steps; k++, steps++) {
            bool *at = &done[j->entry[i].span.shard][j->entry[i].span.first + k];
            assert_false(*at);
            *at = true;
        }
    assert_int_equal(steps, l->rules.groups * l->rules.steps);
    assert_int_equal(l->ledger.steps, steps);
    assert_int_equal(l->ledger.microbatches, 2 * steps);
    assert_int_equal(l->ledger.tokens, 8 * steps);
}

static void by_the_rules(const struct async_rules *rules, double slowest)
{
    struct lab l = {.rules = *rules, .check = true};
    for (int i = 0; i < MOST; i++) /* 1 to `slowest` */
        l.speed[i] = pow(slowest, (double)i / (rules->groups - 1 + (rules->groups == 1)));
    open_lab(&l);
    begin(&l);
    run(&l);
    all_done_once(&l);
    close_lab(&l);
}

static void outer_rules(void **state)
{
    (void)state;
    static const struct {
        int outer;
        int64_t N;
        double c;
    } cases[] = {
        {ASYNC_SGD, 0, 0},        {ASYNC_NESTEROV, 0, 0},      {ASYNC_DELAYED, 0, 0},
        {ASYNC_DELAYED, 0, 0.1},  {ASYNC_DELAYED, 0, 0.25},    {ASYNC_DELAYED, 1, 0},
        {ASYNC_DELAYED, 1, 1},    {ASYNC_DELAYED, 3, 0},       {ASYNC_DELAYED, 3, 1. / 3},
        {ASYNC_DELAYED, 7, 0.05}, {ASYNC_DELAYED, 16, 0.0625},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int w = 0; w < 4; w++) {
            struct async_rules r = plain;
            r.outer = cases[k].outer;
            r.N = cases[k].N;
            r.c = cases[k].c;
            r.staleness = w & 1;
            r.weight = w & 2 ? 0.3 : 0;
            by_the_rules(&r, w & 1 ? 1. / 8 : 1);
        }
}

static void groups_and_speeds(void **state)
{
    (void)state;
    for (int K = 1; K <= 8; K++)
        for (int how = 0; how < 8; how++) {
            struct async_rules r = plain;
            r.groups = K;
            r.steps = 41; /* the last task of a shard is short */
            r.dylu = how & 1;
            r.grace = how & 2 ? 3 : 0;
            r.staleness = true;
            by_the_rules(&r, how & 4 ? 1. / 8 : 1);
        }
}

/* N pushes from the same x0, which fill a buffer, equal a Nesterov step on their mean. */
static void one_buffer(void **state)
{
    (void)state;
    for (int K = 1; K <= 4; K++) {
        struct lab l = {.rules = plain, .speed = {1, 1, 1, 1}};
        double x[COUNT], m[COUNT] = {0};
        l.rules.groups = K;
        l.rules.grace = 1;
        open_lab(&l);
        begin(&l);
        for (int e = 0; e < COUNT; e++)
            x[e] = l.f.x0[e];
        for (int round = 0; round < 5; round++) {
            double mean[COUNT] = {0};
            for (int i = 0; i < K; i++)
                for (int e = 0; e < COUNT; e++)
                    mean[e] += moved(x[e], i, &l.ledger.group[i].task.span, e) / K;
            for (int i = 0; i < K; i++)
                happen(&l);
            float got[COUNT];
            read_x0(&l, got);
            for (int e = 0; e < COUNT; e++) {
                m[e] = 0.9 * m[e] + mean[e];
                x[e] -= 0.7 * (mean[e] + 0.9 * m[e]);
                assert_true(fabs(got[e] - x[e]) < 1e-5);
            }
            assert_int_equal(l.answers, K * (round + 1)); /* all groups at once */
        }
        close_lab(&l);
    }
}

/* Pushes at 10, 13 and 14, at 20 with a grace of 4, and at 25 when no group trains. */
static void grace(void **state)
{
    (void)state;
    struct async_rules r = plain;
    struct lab l = {.rules = r, .speed = {5. / 10, 5. / 13, 5. / 14, 5. / 20}};
    l.rules.grace = 4;
    l.rules.steps = 1000;
    open_lab(&l);
    begin(&l);
    happen(&l);
    assert_true(l.now == 10 && l.answers == 0 && ledger_deadline(&l.ledger) == 14);
    happen(&l);
    happen(&l); /* the period closes */
    assert_true(l.now == 14 && l.answers == 3);
    assert_true(l.answered[0] == 0 && l.answered[1] == 1 && l.answered[2] == 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(l.ledger.group[i].task.version, 3);
    assert_true(ledger_deadline(&l.ledger) == INFINITY);
    happen(&l); /* 20: opens the next period */
    assert_true(l.now == 20 && l.answers == 3 && ledger_deadline(&l.ledger) == 24);
    happen(&l); /* 24 = 14 + 10 and the deadline */
    assert_true(l.now == 24 && l.answers == 5);
    /* 1 pushes at 27, 2 at 28; 0 and 3 are gone: no group trains */
    happen(&l);
    assert_true(l.now == 27 && l.answers == 5);
    leave(&l, 0);
    leave(&l, 3);
    happen(&l);
    assert_true(l.now == 28 && l.answers == 7);
    /* a group that leaves while another group waits ends the period, too */
    happen(&l);
    assert_int_equal(l.answers, 7);
    assert_int_equal(l.ledger.group[1].state, ASYNC_WAITS);
    leave(&l, 2);
    answer(&l);
    assert_int_equal(l.answers, 8);
    close_lab(&l);
}

/* Steps of a group that leaves are given to other groups, once. */
static void leaving(void **state)
{
    (void)state;
    int holes = 0;
    for (int when = 1; when < 40; when += 3) {
        struct lab l = {.rules = plain, .speed = {1, 0.1, 0.9, 0.8}};
        open_lab(&l);
        begin(&l);
        for (int k = 0; k < when; k++)
            happen(&l);
        leave(&l, 1);
        if (when % 2)
            leave(&l, (when + 1) % 4);
        holes += l.ledger.shards.holes;
        answer(&l);
        run(&l);
        all_done_once(&l);
        close_lab(&l);
    }
    assert_true(holes > 0);
}

/* All tasks are truncated, repeatedly: the remaining steps are given out once. */
static void cut_short(void **state)
{
    (void)state;
    int holes = 0;
    for (int how = 0; how < 8; how++) {
        struct lab l = {.rules = plain, .speed = {1, 0.5, 0.3, 0.07}};
        l.rules.groups = how & 4 ? 3 : 4;
        l.rules.H = 16;
        l.rules.dylu = how & 1;
        l.rules.steps = 300;
        open_lab(&l);
        begin(&l);
        for (int k = 0; k < 30 && !ledger_is_over(&l.ledger); k++) {
            for (int n = 0; n < (how & 2 ? k % 3 : 1) && !ledger_is_over(&l.ledger); n++)
                happen(&l);
            for (int i = l.rules.groups - 1; i >= 0; i--)
                if (l.ledger.group[i].state == ASYNC_TRAINS)
                    push_some(&l, i, 1 + (k + i) % l.ledger.group[i].task.span.steps);
            assert_false(ledger_trains(&l.ledger));
            holes = l.ledger.shards.holes > holes ? l.ledger.shards.holes : holes;
            answer(&l);
        }
        run(&l);
        all_done_once(&l);
        close_lab(&l);
    }
    assert_true(holes > 1);
}

/* Returned steps join adjacent holes, and are given out again in the order of the data. */
static void holes(void **state)
{
    (void)state;
    struct async_shards s;
    struct async_span span[6];
    assert_ok(shards_init(&s, 1, 100));
    for (int i = 0; i < 6; i++)
        span[i] = shards_take(&s, 10);
    shards_give_back(&s, span[4]);
    shards_give_back(&s, span[0]);
    shards_give_back(&s, span[2]);
    assert_int_equal(s.holes, 3);
    const struct async_span first = shards_take(&s, 10);
    assert_true(first.first == 0 && first.steps == 10);
    shards_give_back(&s, first);
    shards_give_back(&s, span[1]); /* between two holes */
    shards_give_back(&s, span[3]); /* after a hole, and before a hole */
    assert_int_equal(s.holes, 1);
    const struct async_span all = shards_take(&s, 100);
    assert_true(all.first == 0 && all.steps == 50 && s.holes == 0);
    shards_free(&s);
}

/* Groups that left for lack of steps return when another group fails. */
static void leaving_last(void **state)
{
    (void)state;
    struct lab l = {.rules = plain, .speed = {1, 0.001, 0.9, 0.8}};
    open_lab(&l);
    begin(&l);
    while (l.ledger.group[0].state != ASYNC_LEFT || l.ledger.group[2].state != ASYNC_LEFT ||
           l.ledger.group[3].state != ASYNC_LEFT)
        happen(&l);
    ledger_recall_groups(&l.ledger); /* no steps are left: no group returns */
    assert_int_equal(l.ledger.group[0].state, ASYNC_LEFT);
    leave(&l, 1);
    assert_true(ledger_is_over(&l.ledger));
    ledger_recall_groups(&l.ledger);
    assert_int_equal(l.ledger.group[1].state, ASYNC_LEFT);
    answer(&l);
    run(&l);
    all_done_once(&l);
    close_lab(&l);
}

static void dylu(void **state)
{
    (void)state;
    const struct async_rules r = {.dylu = true, .H = 10};
    assert_int_equal(rules_steps(&r, 2, 2), 10);
    assert_int_equal(rules_steps(&r, 1, 2), 5);
    assert_int_equal(rules_steps(&r, 0.99, 2), 4);
    assert_int_equal(rules_steps(&r, 0.01, 2), 1);
    struct lab l = {.rules = plain, .speed = {4, 2, 1, 0.5}};
    l.rules.dylu = true;
    l.rules.H = 16;
    l.rules.steps = 400;
    open_lab(&l);
    begin(&l);
    while (l.ledger.version < 60)
        happen(&l);
    for (int i = 0; i < 4; i++) /* in proportion to speed: all push at the same time */
        assert_int_equal(l.ledger.group[i].task.span.steps, 16 >> i);
    leave(&l, 0);
    while (l.ledger.version < 80)
        happen(&l);
    for (int i = 1; i < 4; i++) /* of the groups that remain */
        assert_int_equal(l.ledger.group[i].task.span.steps, 32 >> i);
    close_lab(&l);
}

static void numbers_of_groups(void **state)
{
    (void)state;
    struct lab l = {.rules = plain, .speed = {1, 0.5, 0.25, 0.125}};
    int64_t pushes = 0, steps = 0, late = 0;
    open_lab(&l);
    begin(&l);
    run(&l);
    for (int i = 0; i < 4; i++) {
        const struct async_group *g = &l.ledger.group[i];
        pushes += g->pushes;
        steps += g->steps;
        late += g->staleness;
        assert_true(fabs(g->idle - 0.25 * (double)g->pushes) < 1e-9);
        assert_true(fabs(g->seconds * l.speed[i] - (double)g->steps) < 1e-9);
    }
    assert_int_equal(pushes, l.ledger.version);
    assert_int_equal(steps, 240);
    const struct async_journal *j = &l.ledger.journal;
    for (int64_t i = 0; i < j->n; i++)
        late -= i - j->entry[i].version;
    assert_int_equal(late, 0);
    assert_true(l.ledger.group[0].pushes > 4 * l.ledger.group[3].pushes);
    close_lab(&l);
}

/* A replay follows the order of another run to the bit at any speeds; after its end, its own order.
 */
static void replay(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        for (int part = 0; part < 2; part++) {
            struct lab a = {.rules = plain, .speed = {1, 0.5, 0.7, 0.3}};
            struct lab b = {.rules = plain, .speed = {0.2, 0.9, 0.9, 1}};
            float x[COUNT], y[COUNT];
            a.rules.grace = b.rules.grace = how & 1 ? 4 : 0;
            a.rules.dylu = b.rules.dylu = how & 2;
            a.rules.staleness = b.rules.staleness = true;
            open_lab(&a);
            begin(&a);
            if (part) {
                while (a.ledger.version < 23)
                    happen(&a);
            } else {
                run(&a);
            }
            const int64_t n = a.ledger.version;
            read_x0(&a, x);
            assert_ok(journal_write(&a.ledger.journal, at("pushes.tsv")));
            close_lab(&a);
            b.replay = at("pushes.tsv");
            open_lab(&b);
            begin(&b);
            while (b.ledger.version < n)
                happen(&b);
            read_x0(&b, y);
            assert_memory_equal(x, y, sizeof x);
            run(&b);
            all_done_once(&b);
            close_lab(&b);
        }
}

static void refused(const char *text, enum sotto_status code, const char *part)
{
    struct lab l = {.rules = plain, .speed = {1, 1, 1, 1}};
    enum sotto_status st = SOTTO_OK;
    assert_ok(file_write(at("bad.tsv"), text, strlen(text)));
    open_lab(&l);
    st = journal_read(&l.ledger.replay, at("bad.tsv"), l.rules.groups);
    if (st == SOTTO_OK)
        st = ledger_begin(&l.ledger, 0);
    while (st == SOTTO_OK && l.ledger.version < 3) {
        struct async_task task;
        bool found;
        double w;
        st = ledger_push(&l.ledger, &(struct async_push){.group = ledger_next(&l.ledger)}, 0, &w);
        while (st == SOTTO_OK && (st = ledger_answer(&l.ledger, 0, &task, &found)) == SOTTO_OK &&
               found)
            ;
    }
    assert_fails(st, code, part);
    close_lab(&l);
}

/* An edited file may lack the last newline. */
static void last_lines(void **state)
{
    (void)state;
    static const char text[] = "# group\n0 5 0 0 0\n\n3 5 1 0 1";
    struct async_journal j;
    assert_ok(file_write(at("edited.tsv"), text, sizeof text - 1));
    assert_ok(journal_read(&j, at("edited.tsv"), 4));
    assert_int_equal(j.n, 2);
    assert_true(j.entry[1].group == 3 && j.entry[1].span.shard == 1 && j.entry[1].version == 1);
    journal_free(&j);
}

static void wrong_replays(void **state)
{
    (void)state;
    refused("0 5 0 0\n", SOTTO_EFORMAT, "want 5 numbers");
    refused("# a\n0 5 0 0 0 1\n", SOTTO_EFORMAT, "bad.tsv:2: more than 5");
    refused("4 5 0 0 0\n", SOTTO_EFORMAT, "push 0 of a run with 4 groups");
    refused("0 5 0 0 1\n", SOTTO_EFORMAT, "pulled at 1 pushes");
    refused("0 0 0 0 0\n", SOTTO_EFORMAT, "cannot be 0 steps");
    refused("0 5 0 99999999999999999999 0\n", SOTTO_EFORMAT, "want 5 numbers");
    refused("0 5 0 58 0\n", SOTTO_EINVAL, "the next step of this shard is 0");
    refused("0 61 0 0 0\n", SOTTO_EINVAL, "61 steps from step 0");
    refused("0 5 0 0 0\n0 5 0 5 0\n", SOTTO_EFORMAT, "replay of push 1: it was pulled at 0");
}

/* A run that resumes from a file has the same bits. */
static void survives(void **state)
{
    (void)state;
    for (int how = 0; how < 12; how++) {
        struct lab l = {.rules = plain, .speed = {1, 0.5, 0.25, 0.125}}; /* times are exact */
        struct state_visitor v;
        float x[COUNT], y[COUNT];
        l.rules.H = 8;
        l.rules.outer = how % 3;
        l.rules.c = how % 2 ? 0.2 : 0;
        l.rules.grace = how & 4 ? 2.5 : 0;
        l.rules.dylu = how & 8;
        open_lab(&l);
        begin(&l);
        for (int k = 0; k < 17 + how; k++)
            happen(&l);
        if (how == 5)
            leave(&l, 0); /* a hole */
        assert_ok(state_saver_init(&v));
        ledger_pause(&l.ledger, l.now);
        assert_ok(ledger_visit(&l.ledger, &v));
        assert_ok(outer_visit(&l.outer, &v));
        assert_ok(state_saver_write(&v, at("state")));
        state_free(&v);

        struct lab other = {.rules = l.rules};
        memcpy(other.speed, l.speed, sizeof l.speed);
        memcpy(other.group, l.group, sizeof l.group);
        other.now = 1000 + l.now; /* another clock */
        for (int i = 0; i < MOST; i++)
            other.group[i].done += 1000;
        open_lab(&other);
        assert_ok(state_loader_open(&v, at("state")));
        assert_ok(ledger_visit(&other.ledger, &v));
        ledger_continue(&other.ledger, other.now);
        assert_ok(outer_visit(&other.outer, &v));
        assert_ok(state_loader_finish(&v));
        state_free(&v);
        run(&l);
        run(&other);
        read_x0(&l, x);
        read_x0(&other, y);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(l.ledger.journal.n, other.ledger.journal.n);
        assert_memory_equal(l.ledger.journal.entry, other.ledger.journal.entry,
                            (size_t)l.ledger.journal.n * sizeof *l.ledger.journal.entry);
        all_done_once(&other);
        close_lab(&l);
        close_lab(&other);
    }
}

/* Loads the outer optimizer's state of a run with other rules, and checks the reset. */
static void load_outer(struct lab *l, const char *dropped, const float *x0)
{
    struct state_visitor v;
    float x[COUNT];
    open_lab(l);
    assert_ok(state_loader_open(&v, at("state")));
    assert_ok(outer_visit(&l->outer, &v));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
    if (!dropped != !l->outer.reset || (dropped && strcmp(dropped, l->outer.reset) != 0))
        fail_with("it continues with %s, not %s", l->outer.reset ? l->outer.reset : "all of it",
                  dropped ? dropped : "all of it");
    read_x0(l, x);
    assert_memory_equal(x, x0, sizeof x);
}

/* Another rule, or a smaller N, drops state with another meaning: the run continues as from x0
 * alone. */
static void other_rules(void **state)
{
    (void)state;
    static const struct {
        int outer;
        int64_t N;
        double momentum;
    } rule[] = {{ASYNC_DELAYED, 4, 0.9},  {ASYNC_DELAYED, 2, 0.9}, {ASYNC_DELAYED, 1, 0.9},
                {ASYNC_NESTEROV, 0, 0.9}, {ASYNC_NESTEROV, 0, 0},  {ASYNC_SGD, 0, 0.9}};
    enum { RULES = sizeof rule / sizeof *rule };
    static const char *const dropped[] = {"no momentum", "a momentum of 0", "a momentum of 0"};
    for (int n = 0; n < 2 * RULES * RULES; n++) {
        const int k = n / 2, pushes = 6 + n % 2; /* 2 or 3 pushes in a buffer of 4 */
        struct lab l[2] = {{.rules = plain}, {.rules = plain}};
        const int has[] = {k / RULES < 2 ? 2 : k / RULES < 4, k % RULES < 2 ? 2 : k % RULES < 4};
        struct state_visitor v;
        float x0[COUNT], x[COUNT], y[COUNT];
        for (int i = 0; i < 2; i++) {
            const int which = i ? k % RULES : k / RULES;
            l[i].rules.outer = rule[which].outer;
            l[i].rules.N = rule[which].N;
            l[i].rules.outer_momentum = rule[which].momentum;
        }
        open_lab(&l[0]);
        begin(&l[0]);
        for (int push = 0; push < pushes; push++)
            assert_ok(outer_push(&l[0].outer, l[0].outer.x0.view, 0.1));
        read_x0(&l[0], x0);
        assert_ok(state_saver_init(&v));
        assert_ok(outer_visit(&l[0].outer, &v));
        assert_ok(state_saver_write(&v, at("state")));
        state_free(&v);
        const bool full = k / RULES == 0 && k % RULES == 1; /* a buffer of 2 is full */
        load_outer(&l[1], full ? "an empty buffer" : has[0] == has[1] ? NULL : dropped[has[1]], x0);
        if (has[0] != has[1]) {
            struct lab fresh = {.rules = l[1].rules};
            open_lab(&fresh);
            outer_set_x0(&fresh.outer, view_of(x0, DTYPE_F32));
            for (int push = 0; push < 5; push++) {
                assert_ok(outer_push(&fresh.outer, fresh.outer.x0.view, 0.1));
                assert_ok(outer_push(&l[1].outer, l[1].outer.x0.view, 0.1));
            }
            read_x0(&fresh, x);
            read_x0(&l[1], y);
            assert_memory_equal(x, y, sizeof x);
            close_lab(&fresh);
        }
        close_lab(&l[0]);
        close_lab(&l[1]);
    }
}

/* Impossible groups and data of a file are refused. */
static void damaged(void **state)
{
    (void)state;
    for (int how = 0; how < 10; how++) {
        struct lab l = {.rules = plain, .speed = {1, 0.1, 0.9, 0.8}}, other = {.rules = plain};
        struct state_visitor v;
        open_lab(&l);
        begin(&l);
        for (int k = 0; k < 16; k++)
            happen(&l);
        leave(&l, 1); /* a hole */
        struct async_group *g = &l.ledger.group[0];
        struct async_shard *d = &l.ledger.shards.shard[3];
        assert_int_equal(l.ledger.shards.holes, 1);
        g->task.span.shard = how == 1 ? 4 : how == 2 ? -1 : g->task.span.shard;
        g->state = how == 3 ? 3 : g->state;
        g->task.span.steps = how == 4 ? 0 : g->task.span.steps;
        g->speed = how == 5 ? (double)NAN : g->speed;
        g->order = how == 6 ? l.ledger.version + 1 : g->order;
        d->given = how == 7 ? d->next + 1 : d->given;
        d->in_progress += how == 8;
        l.ledger.shards.hole[0].shard = how == 9 ? 4 : l.ledger.shards.hole[0].shard;
        assert_ok(state_saver_init(&v));
        assert_ok(ledger_visit(&l.ledger, &v));
        assert_ok(state_saver_write(&v, at("state")));
        state_free(&v);
        open_lab(&other);
        assert_ok(state_loader_open(&v, at("state")));
        if (how == 0)
            assert_ok(ledger_visit(&other.ledger, &v));
        else
            assert_fails(ledger_visit(&other.ledger, &v), SOTTO_EFORMAT, "is inconsistent");
        state_free(&v);
        close_lab(&l);
        close_lab(&other);
    }
}

/* A longer run has tasks for groups that had left; another number of groups is refused. */
static void longer_runs(void **state)
{
    (void)state;
    struct lab l = {.rules = plain, .speed = {1, 0.5, 0.7, 0.3}};
    struct state_visitor v;
    open_lab(&l);
    begin(&l);
    run(&l);
    assert_ok(state_saver_init(&v));
    assert_ok(ledger_visit(&l.ledger, &v));
    assert_ok(state_saver_write(&v, at("state")));
    state_free(&v);
    close_lab(&l);
    for (int K = 3; K <= 4; K++) {
        struct lab more = {.rules = plain, .speed = {1, 0.5, 0.7, 0.3}};
        more.rules.groups = K;
        more.rules.steps = 100;
        open_lab(&more);
        assert_ok(state_loader_open(&v, at("state")));
        if (K == 3) {
            assert_fails(ledger_visit(&more.ledger, &v), SOTTO_EINVAL,
                         "has 4 groups, and this run has");
        } else {
            assert_ok(ledger_visit(&more.ledger, &v));
            assert_true(ledger_is_over(&more.ledger));
            assert_int_equal(more.ledger.shards.steps, 60);
            more.ledger.shards.steps = 100;
            ledger_revive_groups(&more.ledger);
            answer(&more);
            assert_int_equal(more.answers, 4);
            run(&more);
            all_done_once(&more);
        }
        state_free(&v);
        close_lab(&more);
    }
}

static void senseless(void **state)
{
    (void)state;
    struct async_rules r = plain;
    struct async_ledger s;
    r.c = 0.26;
    assert_fails(ledger_init(&s, &r, NULL), SOTTO_EINVAL, "c = 0.26 is more than 1/N = 1/4");
    ledger_free(&s);
    r.N = 3;
    assert_ok(ledger_init(&s, &r, NULL));
    ledger_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outer_rules),
        cmocka_unit_test(groups_and_speeds),
        cmocka_unit_test(one_buffer),
        cmocka_unit_test(grace),
        cmocka_unit_test(leaving),
        cmocka_unit_test(holes),
        cmocka_unit_test(leaving_last),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(dylu),
        cmocka_unit_test(numbers_of_groups),
        cmocka_unit_test_setup_teardown(replay, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(last_lines, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(wrong_replays, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(survives, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(other_rules, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(damaged, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(longer_runs, scratch_make, scratch_remove),
        cmocka_unit_test(senseless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
