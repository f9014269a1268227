/* The speed of simulating a cluster: a method's rounds on the null device, with the null oracle
 * (--preset, --mesh and the like select the method). Prints a line: the configuration, wall-clock
 * and virtual seconds, peak memory of this process, and the forwards and backwards of a stage by a
 * worker each second. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/option/option.h"
#include "strategy/strategy.h"
#include "train/oracle/null_oracle.h"

struct config {
    int workers, rounds, stages, nodes, adapters;
    double parameters, seconds, jitter;
    char link[OPTION_ROOM];
};

#define S struct config
static const struct option table[] = {
    OPTION_INT(S, workers, "1024", 1, 1e6, "workers"),
    OPTION_INT(S, nodes, "128", 1, 1e6, "nodes that the workers lie on, as equally as they can"),
    OPTION_INT(S, adapters, "8", 0, 1e6, "network adapters of a node"),
    OPTION_REAL(S, parameters, "7e9", 1, 1e15, "parameters of the model"),
    OPTION_INT(S, stages, "8", 1, 1e4, "stages of the model"),
    OPTION_INT(S, rounds, "1000", 1, 1e9, "rounds"),
    OPTION_REAL(S, seconds, "1", 0, 1e6, "seconds of a micro-batch"),
    OPTION_REAL(S, jitter, "0", 0, 10, "standard deviation of a computation's time, as a share"),
    OPTION_TEXT(S, link, "100Gbit/s,5us",
                "links between nodes; inside one they are 10 times as fast"),
};
#undef S

struct bench {
    struct config c;
    struct table table;
    struct strategy_config strategy;
    struct optim_config optim;
    double seconds; /* virtual, of rank 0 */
    size_t bytes;   /* memory that a worker would need */
};

static enum sotto_status rounds(struct bench *b, struct strategy *s)
{
    for (int t = 0; t < b->c.rounds; t++) {
        struct round round;
        TRY(s->ops->round(s, &(struct plan){.lr = 1e-3, .next_lr = 1e-3}, &round));
    }
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct bench *b = arg;
    struct memory memory = {0};
    struct device dev;
    struct null_oracle oracle;
    struct mesh mesh;
    struct strategy *s;
    const struct null_config micro_batch = {.seconds = b->c.seconds, .tokens = 4096};
    TRY(device_open(&dev, "null", &memory, 1));
    TRY(null_oracle_init(&oracle, &b->table, w, &dev, &micro_batch));
    TRY(mesh_open(&mesh, w, b->strategy.groups, &dev));
    const struct strategy_setup setup = {.config = &b->strategy,
                                         .optim = &b->optim,
                                         .oracle = &oracle.base,
                                         .dev = &dev,
                                         .mesh = &mesh};
    enum sotto_status st = strategy_open(&s, &setup);
    if (st == SOTTO_OK) {
        st = rounds(b, s);
        if (st != SOTTO_OK)
            mesh_abort(&mesh, st);
        s->ops->free(s);
    }
    if (w->rank == 0) {
        b->seconds = clock_now(w->clock);
        b->bytes = memory.total_peak;
    }
    mesh_close(&mesh);
    null_oracle_free(&oracle);
    device_close(&dev);
    return st;
}

static enum sotto_status run(struct bench *b)
{
    const struct config *c = &b->c;
    struct link_model links = {.adapters = c->adapters};
    TRY(link_parse(&links.inter, c->link));
    links.intra = (struct link){10 * links.inter.bandwidth, links.inter.latency / 10};
    char method[OPTION_ROOM];
    TRY(strategy_resolve(&b->strategy, c->workers));
    strategy_describe(&b->strategy, method);
    TRY(null_table(&b->table, (size_t)c->parameters, c->stages, c->workers));
    int *node = calloc((size_t)c->workers, sizeof *node);
    enum sotto_status st = node ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory");
    for (int r = 0; r < c->workers && node; r++)
        node[r] = (int)((int64_t)r * c->nodes / c->workers);
    const struct engine_config engine = {
        .workers = c->workers, .node = node, .links = &links, .jitter = c->jitter};
    double begin = clock_now(&clock_real);
    if (st == SOTTO_OK)
        st = engine_virtual(&engine, work, b);
    double wall = clock_now(&clock_real) - begin;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    if (st == SOTTO_OK)
        printf("%-6s %d workers x %.3g parameters in %d stages, %d rounds: %.2f s wall, %.6g s "
               "virtual, %.3g stages/s, %.0f MB here, %.2f GB a worker there\n",
               method, c->workers, c->parameters, c->stages, c->rounds, wall, b->seconds,
               2.0 * c->workers * c->stages * c->rounds / wall, (double)used.ru_maxrss / 1e3,
               (double)b->bytes / 1e9);
    free(node);
    table_free(&b->table);
    return st;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    enum { SECTIONS = 2 + STRATEGY_SECTIONS };
    struct option_section sections[SECTIONS] = {
        OPTION_SECTION("", "", table, &b.c),
        optim_section(&b.optim),
    };
    strategy_sections(&b.strategy, sections + 2);
    const char *rest[64];
    int n_rest;
    option_defaults(sections, SECTIONS);
    b.strategy.precision = PRECISION_MIXED; /* as in the training of models of this size */
    enum sotto_status st = argc > 64 ? fail(SOTTO_EINVAL, "too many arguments")
                                     : option_parse(sections, SECTIONS, argc - 1,
                                                    (const char *const *)argv + 1, rest, &n_rest);
    if (st == SOTTO_OK)
        st = run(&b);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_virtual: %s\n", sotto_error());
    return st != SOTTO_OK;
}
