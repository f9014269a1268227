/* Whole runs on a simulated cluster: time of a round and memory of a worker, against arithmetic. */
#define _GNU_SOURCE /* cpu_set_t */
#include <sched.h>

#include "train/fixture.h"

#include "base/machine/cores.h"
#include "comm/formula.h"
#include "train/report/report.h"
#include "train/run/run_worker.h"

enum { WORKERS = 4, STEPS = 3, MAX_OPTIONS = 12 };
#define STEP 0.030 /* seconds of a micro-batch at speed 1 */

/* Results of a run, and the stages of its model. */
struct outcome {
    struct run_result result;
    struct worker_report worker[WORKERS];
    struct report report;
    int stages;
    double flops, stage_flops[8]; /* of forward and backward, of forward */
    size_t parameters, count[8];  /* of all without padding, of stages   */
    bool kept[8];                 /* other stages read it too            */
};

static void describe(struct outcome *o, const struct run *run)
{
    const struct model *m = &run->model;
    const struct extent e = {run->config.train.batch, run->config.train.seq, DTYPE_F32, false};
    bool needs[8];
    o->stages = m->table.n_stage;
    assert_in_range(o->stages, 2, 8);
    o->parameters = m->table.parameters;
    o->flops = model_flops(m, e);
    for (int k = 0; k < o->stages; k++) {
        o->stage_flops[k] = model_stage_flops(m, k, e);
        o->count[k] = table_stage_count(&m->table, k);
        model_stage_needs(m, k, needs);
        for (int j = 0; j < o->stages; j++)
            o->kept[j] |= needs[j] && j != k;
    }
}

/* Four simulated workers on four nodes and a model of some ten thousand parameters, trained. */
static struct outcome simulate(const char *const *options)
{
    static const char *const basic[] = {
        "model.layers=4",     "model.width=32",    "model.heads=2",        "model.positions=16",
        "train.batch=2",      "train.log_every=1", "train.threads=1",      "data.holdout=0",
        "train.time=virtual", "worker.step=30ms",  "train.nodes=4",        "train.workers=4",
        "train.steps=3",      "optim.warmup=0",    "train.eval_batches=1",
    };
    static int runs;
    char out[32];
    struct run run;
    struct outcome o = {0};
    snprintf(out, sizeof out, "run.%d", runs++);
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, MAX_OPTIONS);
    assert_ok(run_open(&run, &c, NULL));
    describe(&o, &run);
    assert_ok(run_train(&run));
    o.result = run.result;
    o.report = report_of(&run);
    memcpy(o.worker, run.result.worker, sizeof o.worker);
    o.result.worker = NULL;
    run_close(&run);
    return o;
}

static struct link_model links_of(const char *text)
{
    struct link_model links = {0};
    assert_ok(link_parse(&links.inter, text));
    return links;
}

/* Seconds of an all-reduce, or of one turn around the ring. */
static double ring(const struct link_model *links, size_t bytes, int turns)
{
    const struct formula f = {WORKERS, 1, links->intra, links->inter};
    if (turns == 2)
        return formula_allreduce(&f, (double)bytes);
    return formula_turn(&f, (double)bytes);
}

static double gather(const struct link_model *links, size_t bytes)
{
    const struct formula f = {WORKERS, 1, links->intra, links->inter};
    return formula_gather(&f, (double)bytes);
}

struct times {
    double compute, communication, exposed, seconds;
};

/* Computes a round from its definition: forward, then backward from the last stage to the first;
 * the lane sends the round's ten counts after the first backward, and each stage's sum (`turns`
 * around the ring) when its backward is done and the lane is free. The rest of the lane's work is
 * exposed, as is `behind`, work after the step. */
static struct times predict(const struct outcome *o, const struct link_model *links, int turns,
                            double behind)
{
    struct times t = {0};
    double now = 0, lane = 0;
    for (int k = 0; k < o->stages; k++)
        now += STEP * o->stage_flops[k] / o->flops;
    for (int k = o->stages - 1; k >= 0; k--) {
        double jobs = ring(links, o->count[k] * sizeof(float), turns);
        now += STEP * 2 * o->stage_flops[k] / o->flops;
        if (k == o->stages - 1)
            jobs += gather(links, WORKERS * 10 * sizeof(double));
        lane = fmax(lane, now) + jobs;
        t.communication += jobs;
    }
    t.compute = now;
    t.communication += behind;
    t.exposed = fmax(0, lane - now) + behind;
    t.seconds = now + t.exposed;
    return t;
}

static void assert_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want) + 1e-12))
        fail_with("%s is %.9g, want %.9g", what, got, want);
}

static void assert_times(const char *name, const struct outcome *o, struct times want)
{
    char what[64];
    for (int r = 0; r < WORKERS; r++) {
        const struct cost *c = &o->worker[r].cost;
        const double pairs[][2] = {{c->seconds, want.seconds},
                                   {c->compute, want.compute},
                                   {c->wire, want.communication},
                                   {cost_exposed(c), want.exposed}};
        static const char *const names[] = {"seconds", "compute", "communication", "exposed"};
        for (int i = 0; i < 4; i++) {
            snprintf(what, sizeof what, "%s: worker %d's %s", name, r, names[i]);
            assert_near(what, pairs[i][0], STEPS * pairs[i][1], 0.01);
        }
    }
}

/* A link so slow that most is exposed, a link with only the last stage's sum exposed, and a link
 * dominated by latency. */
static void a_round_takes_its_time(void **state)
{
    (void)state;
    static const char *const speeds[] = {"10MB/s,1ms", "100MB/s,100us", "10GB/s,2ms"};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        char link[64];
        snprintf(link, sizeof link, "link.inter=%s", speeds[i]);
        struct link_model links = links_of(speeds[i]);
        struct outcome ddp = simulate((const char *[]){link, "strategy.preset=ddp", NULL});
        struct times want = predict(&ddp, &links, 2, 0);
        assert_true(want.exposed > 0 && want.exposed < want.communication);
        assert_times("ddp", &ddp, want);

        /* the norm of the sliced gradient and the new parameters are sent afterwards */
        struct outcome zero1 = simulate((const char *[]){link, "strategy.preset=zero1", NULL});
        double behind = gather(&links, WORKERS * sizeof(double));
        for (int k = 0; k < zero1.stages; k++)
            behind += gather(&links, zero1.count[k] * sizeof(float));
        assert_times("zero1", &zero1, predict(&zero1, &links, 1, behind));
        assert_true(ddp.result.hash == zero1.result.hash);
    }
}

/* What is sent: twice (N-1)/N of the gradients, and the counts. */
static void a_round_sends_its_bytes(void **state)
{
    (void)state;
    struct outcome o = simulate((const char *[]){"link.inter=10MB/s", NULL});
    double bytes = 10 * sizeof(double) * (WORKERS - 1);
    for (int k = 0; k < o.stages; k++)
        bytes += 2.0 * (double)(o.count[k] * sizeof(float)) * (WORKERS - 1) / WORKERS;
    for (int r = 0; r < WORKERS; r++) {
        assert_near("bytes", (double)o.worker[r].cost.between, STEPS * bytes, 1e-3);
        assert_int_equal(o.worker[r].cost.inside, 0);
    }
    o = simulate((const char *[]){"link.intra=10MB/s", "train.nodes=1", NULL});
    assert_near("bytes inside", (double)o.worker[0].cost.inside, STEPS * bytes, 1e-3);
    assert_int_equal(o.worker[0].cost.between, 0);
    /* across two nodes a third of the bytes; the counts, which are small, pass one rank and two
     * ranks */
    const double counts = 10 * sizeof(double), vectors = bytes - 3 * counts;
    o = simulate((const char *[]){"link.inter=10MB/s", "train.nodes=2", NULL});
    for (int r = 0; r < WORKERS; r++) {
        const double near = r % 2 * counts;
        assert_near("bytes across", (double)o.worker[r].cost.between,
                    STEPS * (vectors / 3 + 3 * counts - near), 1e-3);
        assert_near("bytes in a node", (double)o.worker[r].cost.inside,
                    STEPS * (vectors * 2 / 3 + near), 1e-3);
    }
}

static void no_link_exposes_nothing(void **state)
{
    (void)state;
    static const char *const methods[] = {"strategy.preset=ddp", "strategy.preset=zero1",
                                          "strategy.preset=fsdp"};
    for (int m = 0; m < 3; m++) {
        struct outcome o = simulate((const char *[]){methods[m], NULL});
        assert_near("seconds", o.result.seconds, STEPS * STEP, 1e-9);
        assert_near("exposed", cost_exposed(&o.report.cost), 0, 0);
        assert_near("communication", o.report.cost.wire, 0, 0);
        assert_true(o.report.exposed_share == 0);
    }
}

/* A worker at a quarter of the speed makes the round of all workers four times as long; the others
 * wait for three quarters of the round. */
static void a_straggler_sets_the_pace(void **state)
{
    (void)state;
    struct outcome o = simulate((const char *[]){"worker.speed=1,1,1,0.25", NULL});
    assert_near("seconds", o.result.seconds, STEPS * 4 * STEP, 1e-9);
    assert_near("its computing", o.worker[3].cost.compute, STEPS * 4 * STEP, 1e-9);
    assert_near("its waiting", cost_exposed(&o.worker[3].cost), 0, 0);
    for (int r = 0; r < 3; r++) {
        assert_near("computing", o.worker[r].cost.compute, STEPS * STEP, 1e-9);
        assert_near("waiting", cost_exposed(&o.worker[r].cost), STEPS * 3 * STEP, 1e-9);
    }
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_true(a->result.hash == b->result.hash);
    assert_memory_equal(&a->worker[0].cost, &b->worker[0].cost, sizeof(struct cost));
    for (int r = 0; r < WORKERS; r++)
        assert_memory_equal(&a->worker[r].cost, &b->worker[r].cost, sizeof(struct cost));
}

/* Two runs are equal to the last bit of every clock, on one core or two; jitter follows its seed
 * and changes times but not the training. */
static void runs_repeat(void **state)
{
    (void)state;
    static const char *const methods[] = {"strategy.preset=ddp", "strategy.preset=zero1",
                                          "strategy.preset=fsdp"};
    uint64_t hash = 0;
    for (int m = 0; m < 3; m++) {
        const char *plain[] = {
            methods[m], "link.inter=20MB/s,300us", "worker.speed=1,0.7,1.3", NULL, NULL, NULL,
            NULL};
        struct outcome once = simulate(plain);
        plain[3] = "train.threads=2";
        struct outcome again = simulate(plain);
        assert_same(&once, &again);
        plain[4] = "worker.jitter=0.3";
        struct outcome jitter = simulate(plain);
        again = simulate(plain);
        assert_same(&jitter, &again);
        assert_true(jitter.result.seconds != once.result.seconds);
        plain[5] = "worker.jitter_seed=2";
        struct outcome other = simulate(plain);
        assert_true(other.result.seconds != jitter.result.seconds);
        hash = m ? hash : once.result.hash;
        assert_true(once.result.hash == hash && jitter.result.hash == hash &&
                    other.result.hash == hash);
    }
}

/* Bytes a parameter with mixed precision and AdamW (parameters, gradients, optimizer), on every
 * worker, as in table 1 of ZeRO (Rajbhandari et al. 2020): 2 + 2 + 12, of which methods share out
 * some. */
static void memory_of_methods(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        double parameters, gradients, optimizer;
    } table[] = {
        {"strategy.preset=ddp", 2, 2, 12},
        {"strategy.preset=zero1", 2, 2, 12.0 / WORKERS},
        {"strategy.preset=fsdp", 2.0 / WORKERS, 2.0 / WORKERS, 12.0 / WORKERS},
    };
    static const char *const tied[] = {"model.tied=yes", "model.tied=no"};
    enum { BUFFERS = 4, LINE = 64 }; /* of a category, and what each may be rounded up by */
    for (int i = 0; i < 6; i++) {
        struct outcome o = simulate(
            (const char *[]){table[i / 2].method, tied[i % 2], "strategy.precision=mixed", NULL});
        size_t whole = 0, largest = 0, kept = 0;
        for (int k = 0; k < o.stages; k++) {
            whole += o.count[k];
            kept += o.kept[k] ? o.count[k] : 0;
            if (!o.kept[k] && o.count[k] > largest)
                largest = o.count[k];
        }
        assert_true(whole >= o.parameters && whole < o.parameters + (size_t)o.stages * WORKERS);
        assert_true((kept > 0) == (i % 2 == 0));
        const double want[] = {table[i / 2].parameters, table[i / 2].gradients,
                               table[i / 2].optimizer};
        static const enum memory_category category[] = {MEMORY_PARAMETERS, MEMORY_GRADIENTS,
                                                        MEMORY_OPTIMIZER};
        for (int r = 0; r < WORKERS; r++) {
            const size_t *memory = o.worker[r].memory;
            for (int c = 0; c < 3; c++) {
                double bytes = want[c] * (double)whole, is = (double)memory[category[c]];
                if (!(is >= bytes && is <= bytes + BUFFERS * LINE))
                    fail_with("%s, worker %d: %s %.0f bytes (%.3f a parameter), want %.0f",
                              table[i / 2].method, r, memory_category_name(category[c]), is,
                              is / (double)o.parameters, bytes);
            }
            /* gathered stages, bf16, and their gradients: two in turn, and stages that others
             * read */
            size_t rooms = i / 2 == 2 ? 2 * 2 * (2 * largest + kept) : 0;
            assert_in_range(memory[MEMORY_COMMUNICATION], rooms, rooms + (rooms ? 8 * LINE : 0));
            assert_true(o.report.memory[MEMORY_OPTIMIZER] >= memory[MEMORY_OPTIMIZER]);
        }
    }
}

/* Opens a cluster with `options`: assignments, spaces between them. */
static enum sotto_status open_cluster(struct cluster *cluster, struct run_config *c,
                                      const char *options)
{
    struct option_section sections[RUN_SECTIONS];
    char all[512], *save = NULL;
    memset(c, 0, sizeof *c);
    run_sections(c, sections);
    option_defaults(sections, RUN_SECTIONS);
    snprintf(all, sizeof all, "%s", options);
    for (char *one = strtok_r(all, " ", &save); one; one = strtok_r(NULL, " ", &save))
        set(c, one);
    return cluster_open(cluster, c);
}

/* The cluster decides the nodes of ranks, with any method. */
static void methods_share_a_cluster(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int node[6], nodes;
        const char *line;
    } cases[] = {
        {"workers=6", {0, 0, 0, 0, 0, 0}, 1, "1 node x 6 workers"},
        {"workers=6 nodes=3 time=virtual link.intra=10GB/s,5us link.inter=1Gbit/s,100us "
         "link.speed=1,0.5 link.adapters=2 worker.speed=1,0.5 worker.jitter=0.25 worker.memory=20GB/s",
         {0, 0, 1, 1, 2, 2},
         3,
         "3 nodes x 2 workers; inside 10GB/s,5us; between 1Gbit/s,100us, 2 adapters a node; "
         "adapters' speeds 1,0.5; speeds 1,0.5; memory 20GB/s; jitter 0.25"},
        {"workers=6 nodes=4 time=virtual",
         {0, 0, 1, 1, 2, 3},
         4,
         "4 nodes x 1 to 2 workers, 6 in all; inside no limit; between no limit"},
        {"workers=6 nodes=6 link.inter=1GB/s link.adapters=0",
         {0, 1, 2, 3, 4, 5},
         6,
         "6 nodes x 1 worker; inside no limit; between 1GB/s, an adapter a worker"},
    };
    static const char *const methods[] = {"ddp", "local-sgd local.tau=1", "fsdp strategy.mesh=2x3",
                                          "acco", "diloco strategy.mesh=3x2"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            struct cluster cluster;
            struct run_config c;
            char options[512], line[CLUSTER_ROOM];
            snprintf(options, sizeof options, "%s strategy.preset=%s", cases[i].cluster,
                     methods[m]);
            assert_ok(open_cluster(&cluster, &c, options));
            assert_int_equal(cluster.nodes, cases[i].nodes);
            assert_memory_equal(cluster.node, cases[i].node, sizeof cases[i].node);
            cluster_describe(&cluster, line);
            assert_string_equal(line, cases[i].line);
            cluster_close(&cluster);
        }
    }
}

/* Groups, where no mesh is given: nodes for methods that share inside and meet over slow links. */
static void groups_of_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int groups;
    } cases[] = {
        {"workers=8 nodes=2 strategy.preset=flexdemo", 2},
        {"workers=8 nodes=4 strategy.preset=diloco strategy.shard=zero1", 4},
        {"workers=8 nodes=2 strategy.preset=diloco strategy.shard=acco", 2},
        {"workers=8 nodes=8 strategy.preset=flexdemo", 8},
        {"workers=8 nodes=2 strategy.preset=flexdemo strategy.mesh=4x2", 4},
        {"workers=8 strategy.preset=flexdemo", 8},         /* one node */
        {"workers=8 nodes=3 strategy.preset=flexdemo", 8}, /* of 3, 3 and 2 */
        {"workers=8 nodes=2 strategy.preset=demo", 8},     /* each worker has all */
        {"workers=8 nodes=2 strategy.preset=diloco", 8},
        {"workers=8 nodes=2 strategy.preset=fsdp", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster;
        struct run_config c;
        assert_ok(open_cluster(&cluster, &c, cases[i].options));
        if (c.strategy.groups != cases[i].groups)
            fail_with("%s: %d groups, not %d", cases[i].options, c.strategy.groups,
                      cases[i].groups);
        cluster_close(&cluster);
    }
}

/* What the links' model gets. */
static void links_of_nodes(void **state)
{
    (void)state;
    struct cluster cluster;
    struct run_config c;
    assert_ok(open_cluster(&cluster, &c,
                           "workers=5 nodes=3 link.inter=1GB/s,1ms link.adapters=2 "
                           "link.speed=1,0.25"));
    static const double speeds[] = {1, 0.25, 0.25};
    assert_int_equal(cluster.links.adapters, 2);
    assert_memory_equal(cluster.links.speed, speeds, sizeof speeds);
    assert_true(cluster.links.inter.bandwidth == 1e9 && cluster.links.inter.latency == 1e-3);
    cluster_close(&cluster);
}

struct pinned {
    struct cluster *cluster;
    cpu_set_t set[2];
};

static enum sotto_status pin(struct worker *w, void *arg)
{
    struct pinned *p = arg;
    cpu_set_t mine;
    TRY(cluster_pin(p->cluster, w, cluster_threads(p->cluster)));
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    if (w->rank < 2)
        p->set[w->rank] = mine;
    return SOTTO_OK;
}

/* Every worker has cores of its own; the caller keeps its cores. */
static void workers_keep_to_their_cores(void **state)
{
    (void)state;
    struct cluster cluster;
    struct run_config c;
    struct pinned p = {.cluster = &cluster};
    char options[128];
    cpu_set_t all, now, both;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    const int cores = CPU_COUNT(&all);
    snprintf(options, sizeof options, "train.pin=true train.workers=%d", cores + 1);
    assert_fails(open_cluster(&cluster, &c, options), SOTTO_EINVAL, "workers of 1 thread on");
    assert_non_null(strstr(sotto_error(), "take fewer workers, or train.pin = false"));
    snprintf(options, sizeof options, "train.pin=true train.workers=2 train.threads=%d",
             2 * cores + 2);
    assert_fails(open_cluster(&cluster, &c, options), SOTTO_EINVAL, "take a smaller train.threads");
    assert_fails(open_cluster(&cluster, &c, "train.pin=true train.workers=2 train.time=virtual"),
                 SOTTO_EINVAL, "workers of virtual time have no cores");
    if (cores < 2)
        return;
    snprintf(options, sizeof options, "train.pin=true train.workers=2 train.threads=%d", cores);
    assert_ok(open_cluster(&cluster, &c, options));
    assert_ok(cluster_run(&cluster, pin, &p));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(CPU_COUNT(&p.set[r]), cores / 2);
        CPU_AND(&both, &all, &p.set[r]);
        assert_true(CPU_EQUAL(&both, &p.set[r]));
    }
    CPU_AND(&both, &p.set[0], &p.set[1]);
    assert_int_equal(CPU_COUNT(&both), 0);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &all));
    cluster_close(&cluster);
}

/* Ranks that a launcher has bound share cores, or have some of their own. */
static void ranks_around_share_cores(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    static const struct {
        uint64_t core[RANKS]; /* the second word */
        int around[RANKS], before[RANKS];
    } cases[] = {
        {{0xff, 0xff, 0xff, 0xff}, {4, 4, 4, 4}, {0, 1, 2, 3}}, /* none is bound */
        {{0x03, 0x0c, 0x30, 0xc0}, {1, 1, 1, 1}, {0}},          /* each to its own */
        {{0x0f, 0xf0, 0x0f, 0xf0}, {2, 2, 2, 2}, {0, 0, 1, 1}}, /* to sockets, in turn */
        {{0x0f, 0x00, 0x0f, 0x00}, {2, 1, 2, 1}, {0, 0, 1, 0}}, /* others on another machine */
        {{0x07, 0x0c, 0x08, 0x10}, {2, 3, 2, 1}, {0, 1, 1, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster_mask all[RANKS] = {{{0}}};
        for (int r = 0; r < RANKS; r++)
            all[r].word[1] = cases[i].core[r];
        for (int r = 0; r < RANKS; r++) {
            struct cluster c = {0};
            cluster_count_around(&c, all, RANKS, r);
            assert_int_equal(c.around, cases[i].around[r]);
            assert_int_equal(c.before, cases[i].before[r]);
        }
    }
}

/* Workers of a machine divide the cores that they share, which may be fewer than the machine's. */
static void threads_of_what_is_shared(void **state)
{
    (void)state;
    struct cluster cluster;
    struct run_config c;
    assert_ok(open_cluster(&cluster, &c, "workers=2"));
    assert_int_equal(cluster.around, 2);
    cluster.cores = 13;
    const int quota = cores_quota("") ? cores_quota("") / 2 : 13, most = quota > 0 ? quota : 1;
    assert_int_equal(cluster_threads(&cluster), most < 6 ? most : 6);
    cluster.around = 1; /* cores of its own */
    assert_int_equal(cluster_threads(&cluster), most < 13 ? most : 13);
    cluster_close(&cluster);
}

/* Machines of several kinds compute with the best kernels that all have. */
static void kernels_that_all_have(void **state)
{
    (void)state;
    static const struct {
        const char *has[3], *best;
    } cases[] = {
        {{"amx v4 v3 baseline", "amx v4 v3 baseline", "amx v4 v3 baseline"}, "amx"},
        {{"amx v4 v3 baseline", "v4 v3 baseline", "v3 baseline"}, "v3"},
        {{"baseline", "v4 v3 baseline", "v3 baseline"}, "baseline"},
        {{"bf16 baseline", "baseline", "bf16 baseline"}, "baseline"},
        {{"v4 v3", "v40 v3", "av4 v3"}, "v3"},
        {{"v4", "v3", "v4"}, ""},
        {{"", "", ""}, ""}, /* they were named */
    };
    char best[DEVICE_KERNELS_ROOM];
    struct cluster_kernels all[3];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int r = 0; r < 3; r++) {
            strcpy(all[r].device, "cpu");
            strcpy(all[r].has, cases[i].has[r]);
        }
        assert_ok(cluster_common_kernels(all, 3, best));
        assert_string_equal(best, cases[i].best);
    }
    strcpy(all[2].device, "cuda");
    assert_fails(cluster_common_kernels(all, 3, best), SOTTO_EINVAL,
                 "rank 0 computes on 'cpu' and rank 2 on 'cuda', and their copies of parameters "
                 "would diverge");
    char has[DEVICE_KERNELS_ROOM];
    device_kernels("cpu", has); /* of this machine: its best kernels are the first */
    struct memory memory = {0};
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    assert_int_equal(strncmp(has, device_describe(&dev), strlen(device_describe(&dev))), 0);
    device_close(&dev);
    device_kernels("cpu:baseline", has);
    assert_string_equal(has, "");
    device_kernels("reference", has);
    assert_string_equal(has, "");
    assert_string_equal(device_named("cpu:v3"), "cpu");
    assert_null(device_named("tpu"));
}

static void clusters_that_cannot_be(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"workers=2 nodes=3", "train.nodes = 3, but train.workers = 2"},
        {"nodes=2", "train.nodes = 2, but train.workers = 1"},
        {"workers=4 link.inter=1GB/s,1ms",
         "link.inter is the link between nodes, and there is one node: --nodes=N places the 4 "
         "workers on several"},
        {"workers=4 link.adapters=2", "link.adapters is about the link between nodes, and there is "
                                      "none: set --link.inter=BANDWIDTH,LATENCY and --nodes=N"},
        {"workers=4 nodes=2 link.speed=1,2",
         "link.speed is about the link between nodes, and there is none: set "
         "--link.inter=BANDWIDTH,LATENCY"},
        {"workers=4 nodes=2 link.inter=1GB/s link.speed=", "link.speed is empty"},
        {"workers=4 nodes=2 link.inter=1GB/s link.speed=1,2,3",
         "link.speed = 1,2,3 names more than 2 nodes"},
        {"workers=4 nodes=2 link.inter=1GB/s link.speed=1,0",
         "link.speed = 1,0: want numbers from 0.001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster;
        struct run_config c;
        assert_fails(open_cluster(&cluster, &c, cases[i][0]), SOTTO_EINVAL, cases[i][1]);
    }
}

/* Both ends of what is allowed are allowed. */
static void bounds_of_speeds_and_times(void **state)
{
    (void)state;
    double x[2];
    assert_ok(config_speeds("speed", "0.001,1000", "nodes", 2, x));
    assert_true(x[0] == 1 / CONFIG_SPEED && x[1] == CONFIG_SPEED);
    assert_fails(config_speeds("speed", "1,1001", "nodes", 2, x), SOTTO_EINVAL, "to 1000");
    assert_fails(config_speeds("speed", "0.0009", "nodes", 1, x), SOTTO_EINVAL, "from 0.001");
    assert_ok(config_seconds("time", "100000s", x));
    assert_true(x[0] == CONFIG_SECONDS);
    assert_fails(config_seconds("time", "100001s", x), SOTTO_EINVAL, "time = 100001s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_takes_its_time),
        cmocka_unit_test(a_round_sends_its_bytes),
        cmocka_unit_test(no_link_exposes_nothing),
        cmocka_unit_test(a_straggler_sets_the_pace),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(memory_of_methods),
        cmocka_unit_test(methods_share_a_cluster),
        cmocka_unit_test(groups_of_nodes),
        cmocka_unit_test(links_of_nodes),
        cmocka_unit_test(workers_keep_to_their_cores),
        cmocka_unit_test(ranks_around_share_cores),
        cmocka_unit_test(threads_of_what_is_shared),
        cmocka_unit_test(kernels_that_all_have),
        cmocka_unit_test(clusters_that_cannot_be),
        cmocka_unit_test(bounds_of_speeds_and_times),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
