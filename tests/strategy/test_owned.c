/* Replicate methods work with any ranges that a shard method's workers own: with "one stage only"
 * (stages.c) every replicate method gives the bits of ddp, and checkpoints load with slices and
 * back. */
#include "strategy/quadratic.h"
#include "strategy/shard/shard.h"

enum { ROUNDS = 11 }; /* co2's penalty begins at the fourth boundary */

struct lab {
    const char *shard, *options[4]; /* of the replicate method             */
    bool runs;                      /* shard = stages: short ranges instead */
    int groups, workers, rounds;
    const char *from, *to;  /* files of state; NULL: none  */
    float x[COUNT];         /* parameters, in and out      */
    struct state_visitor v; /* the workers' visits in turn */
    size_t most;            /* of the optimizer's state, of any worker, in elements */
};

static enum sotto_status configure(const struct lab *lab, struct strategy_config *config,
                                   struct optim_config *optim)
{
    strategy_defaults(config);
    optim_defaults(optim);
    strcpy(config->shard, lab->shard);
    if (lab->runs)
        TRY(set_options(config, &(const char *){"stages.runs=true"}, 1));
    TRY(set_options(config, lab->options, 4));
    snprintf(config->mesh, sizeof config->mesh, "%dx%d", lab->groups, lab->workers / lab->groups);
    return SOTTO_OK;
}

/* Saves the workers' states, one after the other in one process. */
static enum sotto_status save(struct lab *lab, struct strategy *s, const struct mesh *mesh)
{
    struct worker *w = mesh->worker;
    if (w->rank == 0)
        TRY(state_saver_init(&lab->v));
    for (int r = 0; r < w->size; r++) {
        TRY(comm_barrier(w->world));
        if (r != w->rank)
            continue;
        lab->v.skip_common = r != 0;
        lab->v.skip_slices = mesh->r != 0;
        TRY(s->ops->visit(s, &lab->v));
    }
    TRY(comm_barrier(w->world));
    if (w->rank == 0) {
        TRY(state_saver_write(&lab->v, lab->to));
        state_free(&lab->v);
    }
    return comm_barrier(w->world); /* what is written stays until here */
}

static enum sotto_status load(const char *path, struct strategy *s)
{
    struct state_visitor v;
    TRY(state_loader_open(&v, path));
    TRY(s->ops->visit(s, &v));
    TRY(state_loader_finish(&v));
    state_free(&v);
    return SOTTO_OK;
}

/* Counts calls of the rule: ranges of other workers are listed at the beginning, not in a step. */
static enum sotto_status asked_again(struct owned *out, const struct table *table, int index,
                                     int of)
{
    (void)out, (void)table;
    return fail(SOTTO_EINVAL, "what %d of %d owns is asked again", index, of);
}

static enum sotto_status train(struct pupil *p, void *arg)
{
    struct lab *lab = arg;
    struct strategy *s = p->s;
    const struct mesh *mesh = &p->mesh;
    const size_t own = ((struct shard *)s)->replicate->optim.count;
    if (p->worker->rank == 0 || own > lab->most)
        lab->most = own;
    const struct view *stage;
    float x[COUNT], shown[COUNT];
    if (((struct shard *)s)->rule != owned_slices)
        ((struct shard *)s)->rule = asked_again;
    TRY(s->ops->import(s, lab->x));
    if (lab->from)
        TRY(load(lab->from, s));
    TRY(comm_barrier(mesh->worker->world));
    for (int t = 0; t < lab->rounds; t++) {
        struct round r;
        TRY(s->ops->round(s, &(struct plan){.lr = 0.05}, &r));
    }
    TRY(s->ops->export(s, x));
    TRY(s->ops->gather(s, &stage));
    for (int k = 0; k < STAGES; k++) {
        read_floats(((struct shard *)s)->is.dev, stage[k], COUNT / STAGES, shown);
        if (memcmp(shown, x + k * COUNT / STAGES, sizeof x / STAGES) != 0)
            return fail(SOTTO_EINVAL, "stage %d is gathered and exported otherwise", k);
    }
    if (lab->to)
        TRY(save(lab, s, mesh));
    if (mesh->worker->rank == 0)
        memcpy(lab->x, x, sizeof x);
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct pupil p = {0};
    struct quadratic q;
    TRY(configure(arg, &p.config, &p.optim));
    TRY(pupil_open(&p, &q, w));
    return pupil_train(&p, train, arg);
}

static void run(struct lab *lab)
{
    if (engine_virtual(&(struct engine_config){.workers = lab->workers}, work, lab) != SOTTO_OK)
        fail_with("%s, %s: %s", lab->shard, lab->options[0], sotto_error());
}

static void start(struct lab *lab)
{
    for (int i = 0; i < COUNT; i++)
        lab->x[i] = 2 - 0.1f * (float)i;
}

static const struct {
    const char *options[4];
    int groups;
    bool rounded; /* sums in another order                    */
    bool rows;    /* goes by rows, which ranges cut elsewhere */
} methods[] = {
    {{"replicate=sync"}, 1, false, false},
    {{"replicate=local", "local.tau=3"}, 2, false, false},
    {{"replicate=overlap-local", "overlap-local.tau=2"}, 2, false, false},
    {{"replicate=slowmo", "slowmo.tau=3"}, 2, false, false},
    {{"replicate=co2", "co2.tau=2"}, 2, false, false},
    {{"replicate=co2", "co2.tau=2", "co2.penalty=norm"}, 2, true, false},
    {{"replicate=diloco", "diloco.H=3", "diloco.outer=adam"}, 2, false, false},
    {{"replicate=diloco", "diloco.H=3", "diloco.prune=0.5"}, 2, false, true},
    {{"replicate=easgd", "easgd.tau=3"}, 2, false, false}, /* tests/strategy/easgd.c */
    {{"replicate=easgd", "easgd.tau=3"}, 1, false, false},
};
enum { METHODS = sizeof methods / sizeof *methods };

static struct lab lab_of(const char *shard, int method, int slices)
{
    struct lab lab = {.shard = shard,
                      .groups = methods[method].groups,
                      .workers = methods[method].groups * slices};
    memcpy(lab.options, methods[method].options, sizeof lab.options);
    return lab;
}

static void compare(const struct lab *a, const struct lab *b, int method)
{
    for (int i = 0; i < COUNT; i++)
        if (methods[method].rounded ? fabsf(a->x[i] - b->x[i]) > 1e-6f : a->x[i] != b->x[i])
            fail_with("%s, %s: x[%d] = %.9g, not %.9g", b->shard, b->options[0], i, b->x[i],
                      a->x[i]);
}

/* Three workers a group own a stage each, of four one owns nothing. */
static void stages_equal_ddp(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++) {
        for (int slices = 3; slices <= 4; slices++) {
            struct lab ddp = lab_of("ddp", method, slices);
            struct lab own = lab_of("stages", method, slices), runs = own;
            runs.runs = true;
            ddp.rounds = own.rounds = runs.rounds = ROUNDS;
            start(&ddp);
            start(&own);
            start(&runs);
            run(&ddp);
            run(&own);
            run(&runs);
            compare(&ddp, &own, method);
            if (!methods[method].rows)
                compare(&ddp, &runs, method);
            assert_int_equal(ddp.most, COUNT);
            assert_int_equal(own.most, COUNT / STAGES);
            assert_int_equal(runs.most, COUNT / slices);
        }
    }
}

/* In the middle of a run its state moves from stages on 3 workers a group to slices on 4, to slices
 * on 2 and back: the bits are those of an uninterrupted run. */
static void stages_to_slices_and_back(void **state)
{
    (void)state;
    enum { BEFORE = 4 }; /* not a multiple of tau or H: groups have diverged */
    for (int which = 0; which < 2 * METHODS; which++) {
        const int method = which / 2;
        struct lab straight = lab_of("stages", method, 3);
        straight.runs = which % 2;
        struct lab first = straight, last = straight;
        start(&straight);
        straight.rounds = ROUNDS;
        run(&straight);
        start(&first);
        first.rounds = BEFORE;
        first.to = at("first");
        run(&first);
        struct lab slices = lab_of("zero1", method, 4);
        memcpy(slices.x, first.x, sizeof slices.x);
        slices.from = at("first");
        slices.to = at("slices");
        run(&slices);
        assert_memory_equal(slices.x, first.x, sizeof slices.x);
        struct lab full = lab_of("fsdp", method, 2);
        memcpy(full.x, slices.x, sizeof full.x);
        full.from = at("slices");
        full.to = at("full");
        run(&full);
        memcpy(last.x, full.x, sizeof last.x);
        last.from = at("full");
        last.rounds = ROUNDS - BEFORE;
        run(&last);
        assert_memory_equal(straight.x, last.x, sizeof last.x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_equal_ddp),
        cmocka_unit_test(stages_to_slices_and_back),
    };
    return run_cases(tests, 1, scratch_make, scratch_remove);
}
