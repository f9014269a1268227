/* local, overlap-local, slowmo and co2 against their formulas: every step of every group, in every
 * mesh and sharding, with several optimizers and a changing learning rate; identities between
 * methods, memory, and refused options. */
#include "strategy/method.h"
#include "strategy/replicate/replicate_lab.h"
#include "strategy/replicate/tau_auto.h"

/* Differences that rounding makes: parameters are at most 3, where an fp32 step rounds to 1.2e-7,
 * and 14 contracting steps add up to less than 1e-6. A wrong formula is off by 1e-3. */
static const double near_enough = 3e-6;

static const int meshes[][2] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2},
                                {2, 2}, {4, 2}, {1, 4}, {2, 4}, {1, 8}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void optimizer(struct rule *rule, int which)
{
    rule->kind = which == 2 ? OPTIM_ADAMW : OPTIM_SGD;
    rule->momentum = which == 1 ? 0.9 : 0;
}

/* All meshes, shardings and optimizers. */
static void check_everywhere(const struct lab *like)
{
    EACH_SHARED(i, STRIDE, MESHES * 9) {
        struct lab lab = *like;
        lab.rule.groups = meshes[i / 9][0];
        lab.rule.workers = meshes[i / 9][0] * meshes[i / 9][1];
        lab.rule.shard = SHARD_DDP + i / 3 % 3;
        optimizer(&lab.rule, i % 3);
        lab_check(&lab, near_enough);
    }
}

static void check_method(int replicate)
{
    struct lab lab = lab_make(replicate, SHARD_DDP, 1, 1);
    check_everywhere(&lab); /* with the method's defaults */
    lab.rule.alpha = 0.8;
    lab.rule.beta = 0.3;
    lab.rule.tau = 4;
    check_everywhere(&lab);
    lab.rule.tau = 1;
    lab.rule.groups = lab.rule.workers = 4;
    lab_check(&lab, near_enough);
    lab.threads = true; /* real lanes */
    for (lab.rule.tau = 1; lab.rule.tau < 4; lab.rule.tau++)
        lab_check(&lab, near_enough);
}

static void local(void **state)
{
    (void)state;
    check_method(REPLICATE_LOCAL);
}

static void overlap_local(void **state)
{
    (void)state;
    check_method(REPLICATE_OVERLAP_LOCAL);
}

static void slowmo(void **state)
{
    (void)state;
    check_method(REPLICATE_SLOWMO);
}

/* Most elements, but not all, exceed a momentum of 0.05. */
static void co2(void **state)
{
    (void)state;
    static const double phi[] = {0, 0.05};
    check_method(REPLICATE_CO2);
    for (int i = 0; i < 6; i++) {
        struct lab lab = lab_make(REPLICATE_CO2, SHARD_DDP, 1, 1);
        lab.rule.penalty = i / 2;
        lab.rule.phi = phi[i % 2];
        check_everywhere(&lab);
    }
}

static const int methods[] = {REPLICATE_LOCAL, REPLICATE_OVERLAP_LOCAL, REPLICATE_SLOWMO,
                              REPLICATE_CO2, REPLICATE_DILOCO};
enum { METHODS = sizeof methods / sizeof *methods };

/* Several micro-batches a step; each group clips its own gradient. */
static void local_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < METHODS * 6; i++) {
        struct lab lab = lab_make(methods[i / 6], SHARD_DDP + i % 3, 2, i / 3 % 2 + 1);
        optimizer(&lab.rule, 1);
        lab.rule.accumulate = 1 + i % 2;
        lab.rule.clip = 1.5; /* the first gradients are longer */
        lab_check(&lab, near_enough);
    }
}

/* Gradients of 8 bits. The groups compute with the rounded parameters on which all agree. */
static void mixed_precision(void **state)
{
    (void)state;
    for (int i = 0; i < METHODS * 3; i++) {
        struct lab lab = lab_make(methods[i / 3], SHARD_DDP + i % 3, 2, 2);
        lab.precision = PRECISION_MIXED;
        lab_check(&lab, 0.02);
    }
}

static void assert_same_steps(const struct lab *a, const struct lab *b, double tolerance)
{
    char what[2][200];
    lab_describe(a, what[0]);
    lab_describe(b, what[1]);
    for (int t = 0; t < a->steps; t++)
        for (int i = 0; i < COUNT; i++)
            if (!(fabs(a->x[t][i] - b->x[t][i]) <= tolerance))
                fail_with("step %d: x[%d] is %.9g of %s, %.9g of %s", t, i, a->x[t][i], what[0],
                          b->x[t][i], what[1]);
}

/* slowmo with alpha 1 and beta 0 is local; local with tau 1 and plain SGD is ddp. */
static void identities(void **state)
{
    (void)state;
    EACH_SHARED(i, STRIDE, MESHES * 3) {
        const int *mesh = meshes[i / 3];
        struct lab a = lab_make(REPLICATE_SLOWMO, SHARD_DDP + i % 3, mesh[0], mesh[1]);
        struct lab b = lab_make(REPLICATE_LOCAL, SHARD_DDP + i % 3, mesh[0], mesh[1]);
        optimizer(&a.rule, i % 2 + 1);
        optimizer(&b.rule, i % 2 + 1);
        a.rule.alpha = 1;
        a.rule.beta = 0;
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        assert_same_steps(&a, &b, near_enough);
        a = lab_make(REPLICATE_LOCAL, SHARD_DDP + i % 3, mesh[0], mesh[1]);
        b = lab_make(REPLICATE_SYNC, SHARD_DDP, 1, a.rule.workers);
        a.rule.tau = 1;
        assert_ok(lab_run(&a));
        assert_ok(lab_run(&b));
        assert_same_steps(&a, &b, near_enough);
    }
}

/* With links of any speed co2 uses the average of the round before: the first boundary leads back
 * to the start, and the bits are the same. */
static void co2_is_a_round_stale(void **state)
{
    (void)state;
    static const struct link_model slow = {.intra = {1e3, 0.1}, .inter = {1e3, 0.1}};
    struct lab fast = lab_make(REPLICATE_CO2, SHARD_ZERO1, 4, 2);
    struct lab late = fast, threads = fast;
    float start[COUNT];
    late.links = &slow;
    threads.threads = true;
    assert_ok(lab_run(&fast));
    assert_ok(lab_run(&late));
    assert_ok(lab_run(&threads));
    lab_start(start);
    assert_memory_equal(fast.x[2], start, sizeof start);
    assert_true(memcmp(fast.x[1], start, sizeof start) != 0);
    assert_memory_equal(fast.own, late.own, sizeof fast.own);
    assert_memory_equal(fast.own, threads.own, sizeof fast.own);
}

/* One group sends only the messages of the sharding. local equals the sharding alone to the bit,
 * and slowmo to rounding without its outer step (alpha 1, beta 0). Other methods have an outer step
 * of one group, which the tests above check. */
static void one_group(void **state)
{
    (void)state;
    EACH_SHARED(i, STRIDE, METHODS * 9) {
        const int slices = 1 << i / METHODS % 3, shard = SHARD_DDP + i / METHODS / 3;
        struct lab alone = lab_make(REPLICATE_SYNC, shard, 1, slices);
        struct lab lab = lab_make(methods[i % METHODS], shard, 1, slices);
        if (lab.rule.replicate == REPLICATE_SLOWMO)
            lab.rule.alpha = 1, lab.rule.beta = 0;
        optimizer(&alone.rule, 2);
        optimizer(&lab.rule, 2);
        assert_ok(lab_run(&alone));
        assert_ok(lab_run(&lab));
        assert_memory_equal(lab.sent, alone.sent, sizeof lab.sent);
        if (lab.rule.replicate == REPLICATE_LOCAL)
            assert_memory_equal(lab.x, alone.x, sizeof lab.x);
        if (lab.rule.replicate == REPLICATE_SLOWMO)
            assert_same_steps(&lab, &alone, near_enough);
    }
}

/* One worker votes to stop: all workers learn of the vote after the same step, at the next
 * exchange, or a boundary later if the exchange is delayed. */
static void one_wants_to_stop(void **state)
{
    (void)state;
    for (int i = 0; i < METHODS * 4; i++) {
        struct lab lab = lab_make(methods[i / 4], SHARD_DDP + i % 2, i / 2 % 2 ? 4 : 2, 2);
        const bool later =
            lab.rule.replicate == REPLICATE_CO2 || lab.rule.replicate == REPLICATE_OVERLAP_LOCAL;
        lab.stopper = lab.rule.workers - 2;
        lab.steps = 7;
        assert_ok(lab_run(&lab));
        for (int r = 0; r < lab.rule.workers; r++)
            for (int t = 0; t < lab.steps; t++)
                assert_int_equal(lab.stop[r][t], t == 5 || (t == 2 && !later));
    }
}

/* With a learning rate of 0 no parameter changes, and no rule divides by the rate. */
static void learning_rate_of_zero(void **state)
{
    (void)state;
    float start[COUNT];
    lab_start(start);
    for (int i = 0; i < METHODS; i++) {
        struct lab lab = lab_make(methods[i], SHARD_DDP, 4, 1);
        lab.still = true;
        assert_ok(lab_run(&lab));
        for (int k = 0; k < COUNT; k++)
            assert_true(fabsf(lab.x[lab.steps - 1][k] - start[k]) < 1e-6f);
    }
}

/* A learning rate that has fallen to about 0 at an exchange: displacements before count, and the
 * rate may rise again. */
static void fading_learning_rate(void **state)
{
    (void)state;
    static const double faded[] = {0, 1e-44, 1e-38};
    EACH_SHARED(i, STRIDE, METHODS * 9) {
        struct lab lab = lab_make(methods[i / 9], SHARD_DDP + i / 3 % 3, 2, 2);
        lab.fades = i % 2 ? 3 : 6;
        lab.faded = faded[i % 3];
        lab_check(&lab, near_enough);
        if (lab.rule.replicate == REPLICATE_SLOWMO || lab.rule.replicate == REPLICATE_LOCAL) {
            lab.rule.alpha = 0.6;
            lab.rule.tau = 1;
            lab_check(&lab, near_enough);
        }
    }
}

/* fp32 vectors of the own slice's length: a method's state, and buffers for sending. */
static void memory_table(void **state)
{
    (void)state;
    static const struct {
        int replicate, penalty, outer;
        size_t keeps, sends;
    } needs[] = {
        {REPLICATE_LOCAL, 0, 0, 0, 0},
        {REPLICATE_OVERLAP_LOCAL, 0, 0, 2, 1},         /* z, v                                   */
        {REPLICATE_SLOWMO, 0, 0, 2, 0},                /* x0, m                                  */
        {REPLICATE_CO2, PENALTY_ELEMENTWISE, 0, 2, 2}, /* x_{t,0}, m; displacement, d            */
        {REPLICATE_CO2, PENALTY_NORM, 0, 2, 1},
        {REPLICATE_CO2, PENALTY_OFF, 0, 2, 1},
        {REPLICATE_DILOCO, 0, OUTER_NESTEROV, 2, 1}, /* x0, buf; delta */
        {REPLICATE_DILOCO, 0, OUTER_SGD, 1, 1},
        {REPLICATE_DILOCO, 0, OUTER_ADAM, 3, 1},
    };
    EACH_SHARED(i, STRIDE, 9 * sizeof needs / sizeof *needs) {
        const int slices = 1 << i % 3, shard = SHARD_DDP + (int)i / 3 % 3;
        struct lab lab = lab_make(needs[i / 9].replicate, shard, 2, slices);
        struct lab plain = lab_make(REPLICATE_SYNC, shard, 2, slices);
        lab.steps = plain.steps = 0;
        lab.rule.penalty = needs[i / 9].penalty;
        lab.rule.outer = needs[i / 9].outer;
        assert_ok(lab_run(&lab));
        assert_ok(lab_run(&plain));
        const size_t own = sizeof(float) * COUNT / (shard == SHARD_DDP ? 1 : (size_t)slices);
        assert_int_equal(lab.bytes[MEMORY_OUTER], needs[i / 9].keeps * own);
        assert_int_equal(lab.bytes[MEMORY_COMMUNICATION] - plain.bytes[MEMORY_COMMUNICATION],
                         needs[i / 9].sends * own);
        assert_int_equal(lab.bytes[MEMORY_OPTIMIZER], plain.bytes[MEMORY_OPTIMIZER]);
        assert_int_equal(lab.bytes[MEMORY_PARAMETERS], plain.bytes[MEMORY_PARAMETERS]);
        assert_int_equal(lab.bytes[MEMORY_GRADIENTS], plain.bytes[MEMORY_GRADIENTS]);
    }
}

static enum sotto_status resolve(const char *const *option, int n)
{
    struct strategy_config config;
    struct option_section sections[STRATEGY_SECTIONS];
    strategy_defaults(&config);
    strategy_sections(&config, sections);
    for (int i = 0; i < n && option[i]; i++) {
        char key[64];
        const char *value = strchr(option[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - option[i]), option[i]);
        TRY(option_set(sections, STRATEGY_SECTIONS, key, value + 1));
    }
    return strategy_resolve(&config, 8);
}

/* A saved configuration has the options that were set, and takes another method. */
static void resolved(void **state)
{
    (void)state;
    for (int i = 0; strategy_preset(i); i++) {
        struct strategy_config config;
        strategy_defaults(&config);
        strcpy(config.preset, strategy_preset(i));
        assert_ok(strategy_resolve(&config, 8));
        assert_string_equal(config.shard, "auto");
        assert_string_equal(config.replicate, "auto");
        for (int k = 0; strategy_preset(k); k++) {
            struct strategy_config other = config;
            strcpy(other.preset, strategy_preset(k));
            assert_ok(strategy_resolve(&other, 8));
        }
    }
}

/* Options of another method are reset if the base has set them, and refused if the run has. */
static void set_aside(void **state)
{
    (void)state;
    struct strategy_config base, config;
    struct option_section sections[STRATEGY_SECTIONS];
    strategy_defaults(&base);
    set_own(&base, "diloco", "H", "20");
    set_own(&base, "diloco", "outer_momentum", "0.5");
    config = base;
    assert_fails(strategy_resolve(&config, 8), SOTTO_EINVAL, "diloco.H = 20 has no effect");
    strategy_set_aside(&config, &base);
    assert_ok(strategy_resolve(&config, 8));
    config = base;
    set_own(&config, "diloco", "H", "21");
    strategy_set_aside(&config, &base);
    assert_fails(strategy_resolve(&config, 8), SOTTO_EINVAL, "diloco.H = 21 has no effect");
    config = base;
    strcpy(config.preset, "diloco");
    set_own(&config, "diloco", "outer", "sgd");
    strategy_set_aside(&config, &base);
    assert_ok(strategy_resolve(&config, 8));
    strategy_sections(&config, sections);
    assert_ok(option_set(sections, STRATEGY_SECTIONS, "H", "7"));
    char *text = option_dump(sections, STRATEGY_SECTIONS);
    assert_non_null(strstr(text, "[diloco]\nH = 7\n"));
    assert_null(strstr(text, "[slowmo]"));
    free(text);
}

static bool has_key(const struct method *m, const char *key)
{
    bool has = false;
    for (int i = 0; i < m->n_options; i++)
        has |= strcmp(m->options[i].key, key) == 0;
    return has;
}

/* Lists the methods with the key, as in messages: "local, co2", or with the key in quotes. */
static const char *owners(const char *key, bool whole)
{
    static char list[512];
    size_t at = 0;
    list[0] = '\0';
    for (int i = 0; method_at(i); i++)
        if (has_key(method_at(i), key))
            at += (size_t)snprintf(list + at, sizeof list - at, whole ? "%s'%s.%s'" : "%s%s",
                                   at ? ", " : "", method_at(i)->name, key);
    return list;
}

/* Keys of methods that are not chosen: the message names all methods with the key. */
static void keys_of_others(void **state)
{
    (void)state;
    static const struct {
        const char *option[3], *key;
        bool whole;
    } bad[] = {
        {{"preset=ddp", "tau=3"}, "tau", false},
        {{"preset=co2", "drop=0.5"}, "drop", false},
        {{"preset=local-sgd", "alpha=0.5"}, "alpha", false},
        {{"preset=co2", "replay=counts.tsv"}, "replay", false},
        {{"preset=co2", "strategy.tau=3"}, "tau", true},
        {{"preset=diloco", "strategy.H=3"}, "H", true},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *all = owners(bad[i].key, bad[i].whole);
        char says[600];
        if (bad[i].whole)
            snprintf(says, sizeof says, "did you mean %s?", all);
        else
            snprintf(says, sizeof says, "key '%s' belongs to %s, which %s not chosen", bad[i].key,
                     all, strchr(all, ',') ? "are" : "is");
        assert_fails(resolve(bad[i].option, 3), SOTTO_EINVAL, says);
    }
    assert_non_null(strstr(owners("tau", false), ", slowmo, "));
    assert_non_null(strstr(owners("H", true), "'diloco.H', '"));
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *option[3], *says;
    } bad[] = {
        {{"preset=diloco", "prune=1"}, "diloco.prune = 1 sends nothing"},
        {{"preset=co2", "diloco.prune=0.5"},
         "diloco.prune = 0.5 has no effect: the method is ddp x co2"},
        {{"preset=zero1", "dpu.warmup=3"}, "dpu.warmup = 3 has no effect: the method is zero1"},
        {{"preset=slowmo", "co2.phi=0.1"}, "co2.phi = 0.1 has no effect"},
        {{"preset=diloco", "outer=sgd", "outer_momentum=0.5"}, "it is for nesterov, adam"},
        {{"preset=acco", "replicate=diloco", "replicas=4x3"},
         "common rounds, which acco does not have"},
        {{"preset=dpu", "replicate=diloco", "replicas=4x3"},
         "common rounds, which dpu does not have"},
        {{"preset=diloco", "replicas=9x3"}, "diloco.replicas = 9x3: there are only 8 groups"},
        {{"preset=diloco", "mesh=4x2", "replicas=5x3"}, "there are only 4 groups"},
        {{"preset=diloco", "replicas=4"}, "want groups x rounds with commas"},
        {{"preset=diloco", "replicas=0x3"}, "want groups x rounds with commas"},
        {{"preset=diloco", "replicas=4x3;2x3"}, "want groups x rounds with commas"},
        {{"preset=local-sgd", "tau=auto"}, "tau = auto: want an integer"},
        {{"preset=slowmo", "tau=0"}, "tau = 0 is out of range"},
        {{"preset=co2", "tau=soon"}, "co2.tau = soon: want a number of steps, 1 to 1e9, or auto"},
        {{"preset=co2", "tau=3x"}, "co2.tau = 3x: want a number of steps, 1 to 1e9, or auto"},
        {{"preset=co2", "mesh=3x2"}, "strategy.mesh = 3x2 needs 6 workers, there are 8"},
        {{"preset=slow-mo"}, "did you mean 'slowmo'?"},
        {{"shard=zero"}, "strategy.shard = zero: no such method; did you mean 'zero1'?"},
        {{"shard=diloco"}, "strategy.shard = diloco: that is a method for strategy.replicate"},
        {{"replicate=locl"}, "strategy.replicate = locl: no such method; did you mean 'local'?"},
    };
    static const char *const good[][3] = {
        {"preset=co2", "tau=auto"},
        {"preset=ddp", "local.tau=12", "diloco.H=500"}, /* the defaults are accepted */
        {"preset=diloco", "replicas=8x3,4x2,1x9", "drop=1"},
        {"preset=acco", "replicate=diloco", "mesh=2x4"},
        {"preset=fsdp", "replicate=co2", "mesh=4x2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(resolve(bad[i].option, 3), SOTTO_EINVAL, bad[i].says);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_ok(resolve(good[i], 3));
}

/* A lane whose exchange is done at a given time of a clock that the test sets. */
struct paced {
    struct lane lane;
    struct clock clock;
    double now, finish, busy;
    bool started;
};

static double paced_now(const struct clock *clock)
{
    return ((const struct paced *)(const void *)((const char *)clock -
                                                 offsetof(struct paced, clock)))
        ->now;
}

static enum sotto_status paced_start(struct lane *lane, struct lane_call call)
{
    (void)call;
    ((struct paced *)lane)->started = true;
    return SOTTO_OK;
}

static enum sotto_status paced_done(struct lane *lane, bool *done)
{
    struct paced *p = (struct paced *)lane;
    *done = p->started && p->now >= p->finish;
    lane->busy = *done ? p->busy : 0;
    return SOTTO_OK;
}

/* Two groups of two. Steps take 0.1 s, the first step 0.5 s, a step of worker 1 0.35 s; 7 s before
 * the fourth step are between steps. The exchange is busy for 1 s on worker 0, 0.1 s more on each
 * next worker, and ends after 1.5 s, later than the first comparison. All workers take the interval
 * of worker 1, (1.1 + 0.25) / 0.1 steps. */
static enum sotto_status pace(struct worker *w, void *arg)
{
    static const struct lane_ops ops = {.start = paced_start, .done = paced_done};
    struct paced p = {.clock = {paced_now}, .finish = 1.5, .busy = 1 + 0.1 * w->rank};
    struct replicate r = {0};
    struct tau_auto measured = {0};
    int64_t tau = 0;
    int steps = 0;
    (void)arg;
    p.lane.ops = &ops;
    p.lane.clock = &p.clock;
    TRY(comm_split(w->world, w->rank % 2, &r.is.across));
    TRY(comm_split(w->world, w->rank / 2, &r.is.within));
    while (!tau && steps < 100) {
        const struct plan plan = {.seconds = p.now, .between = steps == 4 ? 7 : 0};
        TRY(tau_auto_step(&measured, &r, &plan, &p.lane, NULL, NULL, &tau));
        steps++;
        p.now += steps == 1 ? 0.5 : steps == 6 && w->rank == 1 ? 0.35 : 0.1;
        p.now += steps == 4 ? 7 : 0;
        p.finish += steps == 4 ? 7 : 0;
    }
    comm_free(r.is.across);
    comm_free(r.is.within);
    if (tau != 14 || steps != 17)
        return fail(SOTTO_EINVAL, "tau = %lld after %d steps", (long long)tau, steps);
    return SOTTO_OK;
}

static void tau_of_all(void **state)
{
    (void)state;
    struct engine_config engine = {.workers = 4};
    assert_ok(engine_threads(&engine, pace, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local),
        cmocka_unit_test(overlap_local),
        cmocka_unit_test(slowmo),
        cmocka_unit_test(co2),
        cmocka_unit_test(local_gradients),
        cmocka_unit_test(mixed_precision),
        cmocka_unit_test(identities),
        cmocka_unit_test(co2_is_a_round_stale),
        cmocka_unit_test(one_group),
        cmocka_unit_test(learning_rate_of_zero),
        cmocka_unit_test(fading_learning_rate),
        cmocka_unit_test(one_wants_to_stop),
        cmocka_unit_test(memory_table),
        cmocka_unit_test(resolved),
        cmocka_unit_test(set_aside),
        cmocka_unit_test(refused),
        cmocka_unit_test(keys_of_others),
        cmocka_unit_test(tau_of_all),
    };
    return run_cases(tests, 1, NULL, NULL);
}
