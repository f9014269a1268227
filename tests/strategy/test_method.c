/* A method is one file and one line: this program has toy.c and a methods.c with one line more, and
 * no other file names the method. */
#include "strategy/method.h"

#include "comm/worker.h"
#include "strategy/quadratic.h"

enum { WORKERS = 4, ROUNDS = 5, EACH = 2 };

struct lab {
    const char *options[4];
    float x[COUNT];
    struct round round[ROUNDS]; /* as the last worker saw them */
    struct agreed agreed[ROUNDS];
};

static enum sotto_status configure(const struct lab *lab, struct strategy_config *config)
{
    strategy_defaults(config);
    TRY(set_options(config, lab->options, 4));
    config->accumulate = EACH;
    return strategy_resolve(config, WORKERS);
}

static enum sotto_status train(struct pupil *p, void *arg)
{
    struct lab *lab = arg;
    struct strategy *s = p->s;
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 2 - 0.1f * (float)i;
    TRY(s->ops->import(s, x));
    for (int t = 0; t < ROUNDS; t++) {
        struct round r;
        TRY(s->ops->round(s, &(struct plan){.lr = 0.05}, &r));
        if (p->worker->rank == WORKERS - 1) {
            lab->round[t] = r;
            lab->agreed[t] = *r.agreed;
        }
    }
    TRY(s->ops->export(s, x));
    if (p->worker->rank == 0)
        memcpy(lab->x, x, sizeof x);
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct pupil p = {0};
    struct quadratic q;
    optim_defaults(&p.optim);
    TRY(configure(arg, &p.config));
    TRY(pupil_open(&p, &q, w));
    return pupil_train(&p, train, arg);
}

static void run(struct lab *lab)
{
    assert_ok(engine_virtual(&(struct engine_config){.workers = WORKERS}, work, lab));
}

/* The method sums each group's gradient itself; its counts are of all workers: the same bits and
 * numbers as sync. */
static void equals_sync(void **state)
{
    (void)state;
    static const char *const shards[] = {"shard=ddp", "shard=zero1", "shard=fsdp"};
    for (int i = 0; i < 3; i++) {
        struct lab sync = {.options = {"replicate=sync", shards[i], "mesh=4x1"}};
        struct lab toy = {.options = {"replicate=toy", shards[i], "mesh=4x1"}};
        struct lab other = {.options = {"replicate=toy", shards[i], "mesh=4x1", "gain=2"}};
        run(&sync);
        run(&toy);
        run(&other);
        assert_memory_equal(sync.x, toy.x, sizeof sync.x);
        assert_memory_not_equal(sync.x, other.x, sizeof sync.x);
        for (int t = 0; t < ROUNDS; t++) {
            assert_int_equal(toy.round[t].microbatches, WORKERS * EACH);
            assert_int_equal(toy.round[t].tokens, sync.round[t].tokens);
            assert_true(toy.round[t].whole && toy.round[t].loss == sync.round[t].loss);
            assert_int_equal(toy.agreed[t].microbatches, WORKERS * EACH);
        }
    }
}

static void has_its_own_options(void **state)
{
    (void)state;
    struct strategy_config config;
    struct lab lab = {.options = {"preset=toy", "toy.gain=0"}};
    assert_non_null(method_find(METHOD_REPLICATE, "toy"));
    assert_null(method_find(METHOD_SHARD, "toy"));
    assert_fails(configure(&lab, &config), SOTTO_EINVAL,
                 "toy.gain = 0 leaves 4 groups where they are");
    lab.options[1] = "gain=3";
    assert_ok(configure(&lab, &config));
    assert_string_equal(config.sharding->name, "ddp");
    assert_string_equal(config.replicating->name, "toy");
    lab = (struct lab){.options = {"preset=toi"}};
    assert_fails(configure(&lab, &config), SOTTO_EINVAL,
                 "strategy.preset = toi: no such method; did you mean 'toy'?");
    lab = (struct lab){.options = {"gain=3"}};
    assert_fails(configure(&lab, &config), SOTTO_EINVAL,
                 "key 'gain' belongs to toy, which is not chosen");
    lab = (struct lab){.options = {"toy.gain=3"}};
    assert_fails(configure(&lab, &config), SOTTO_EINVAL,
                 "toy.gain = 3 has no effect: the method is ddp x sync");
}

/* What every line of the table must have; configurations do not overlap. */
static void table(void **state)
{
    (void)state;
    struct strategy_config *config = calloc(1, sizeof *config);
    const struct method *m;
    const char *end = (const char *)config->own;
    for (int i = 0; (m = method_at(i)); i++) {
        assert_true(m->name && m->about);
        assert_ptr_equal(method_find(m->axis, m->name), m);
        assert_int_equal(m->axis == METHOD_SHARD, m->shard != NULL);
        assert_int_equal(m->axis == METHOD_REPLICATE, m->replicate != NULL);
        assert_int_equal(m->n_options > 0, m->config_bytes > 0);
        assert_true((const char *)method_own(config, m) >= end);
        end = (const char *)method_own(config, m) + m->config_bytes;
        for (int k = 0; k < m->n_options; k++)
            assert_true(m->options[k].offset < m->config_bytes);
    }
    assert_true(end <= (const char *)config->own + sizeof config->own);
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_sync),
        cmocka_unit_test(has_its_own_options),
        cmocka_unit_test(table),
    };
    return run_cases(tests, 1, NULL, NULL);
}
