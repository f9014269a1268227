/* An oracle with given gradients, independent of the parameters: of any tensors, in any mesh.
 *
 * Numbers are in the order of the tensors, without gaps; the layout, which depends on the
 * sharding's padding, belongs to the lab. */
#ifndef SOTTO_TESTS_STRATEGY_GIVEN_H
#define SOTTO_TESTS_STRATEGY_GIVEN_H

#include <math.h>

#include "base/scratch.h"
#include "comm/worker.h"
#include "strategy/names.h"
#include "strategy/shard/shard.h"
#include "tensor/ops.h"

enum { GIVEN_TENSORS = 6, GIVEN_STEPS = 5, GIVEN_WORKERS = 4, GIVEN_ROOM = 8192 };

struct given {
    struct given_tensor {
        int64_t shape[TABLE_DIMS + 1]; /* ends with 0 */
        int stage;
    } tensor[GIVEN_TENSORS];
    int n, stages; /* tensors */
    const char *shard, *replicate;
    int groups, slices; /* the mesh */
    int steps;
    double lr[GIVEN_STEPS];
    const char *options[12]; /* up to a NULL */
    bool threads;            /* the engine; else virtual */
    bool blind;              /* parameters are read only after the last step */
    float start[GIVEN_ROOM];
    float grad[GIVEN_STEPS][GIVEN_WORKERS][GIVEN_ROOM];

    /* Results. */
    float x[GIVEN_STEPS][GIVEN_ROOM];
    int64_t sent[GIVEN_STEPS][GIVEN_WORKERS]; /* bytes of all-gathers between the groups */
    int64_t calls[GIVEN_WORKERS];             /* of these, in all steps */
};

static inline size_t given_count(const struct given *g, int tensor)
{
    size_t count = 1;
    for (int i = 0; g->tensor[tensor].shape[i]; i++)
        count *= (size_t)g->tensor[tensor].shape[i];
    return count;
}

static inline void given_table(const struct given *g, struct table *t)
{
    *t = (struct table){0};
    for (int i = 0; i < g->n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(table_add(t, name, g->tensor[i].shape, TABLE_ZERO, 0), i);
        t->entry[i].stage = g->tensor[i].stage;
    }
    assert_ok(table_layout(t, g->stages, g->slices));
    assert_true(table_count(t) <= GIVEN_ROOM);
}

/* Where the elements are in a vector of the table's. */
static inline void given_scatter(const struct given *g, const struct table *t, const float *from,
                                 float *flat)
{
    memset(flat, 0, table_count(t) * sizeof *flat);
    for (int i = 0; i < g->n; from += given_count(g, i), i++)
        memcpy(flat + table_range(t, i).begin, from, given_count(g, i) * sizeof *flat);
}

static inline void given_gather(const struct given *g, const struct table *t, const float *flat,
                                float *to)
{
    for (int i = 0; i < g->n; to += given_count(g, i), i++)
        memcpy(to, flat + table_range(t, i).begin, given_count(g, i) * sizeof *flat);
}

struct given_oracle {
    struct oracle base;
    struct given *given;
    struct device *dev;
    struct table table;
    int64_t index;
    float flat[GIVEN_ROOM];
};

static inline enum sotto_status given_begin(struct oracle *o, int slot, int64_t index, int rank,
                                            bool sum)
{
    struct given_oracle *g = (struct given_oracle *)o;
    assert_true(slot == 0 && !sum && index < GIVEN_STEPS);
    given_scatter(g->given, &g->table, g->given->grad[index][rank], g->flat);
    return SOTTO_OK;
}

static inline enum sotto_status given_forward(struct oracle *o, int slot, int k,
                                              const struct view *theta)
{
    (void)o, (void)slot, (void)k, (void)theta;
    return SOTTO_OK;
}

/* One micro-batch a round: gradients are added to 0. */
static inline enum sotto_status given_backward(struct oracle *o, int slot, int k,
                                               const struct view *theta, const struct view *grad)
{
    struct given_oracle *g = (struct given_oracle *)o;
    (void)slot, (void)theta;
    g->dev->ops->write(g->dev, grad[k], g->flat + g->table.stage_start[k],
                       table_stage_count(&g->table, k));
    return SOTTO_OK;
}

static inline enum sotto_status given_result(struct oracle *o, int slot, struct device *dev,
                                             struct oracle_result *out)
{
    (void)o, (void)slot, (void)dev;
    *out = (struct oracle_result){1, 1, 1};
    return SOTTO_OK;
}

static const struct oracle_ops given_ops = {.begin = given_begin,
                                            .forward = given_forward,
                                            .backward = given_backward,
                                            .result = given_result};

static inline int64_t given_sent(const struct strategy *s)
{
    const struct mesh *mesh = ((const struct shard *)s)->is.mesh;
    const struct comm_stats *own = &mesh->replicate->stats[COMM_ALLGATHER];
    const struct comm_stats *beside = &mesh->lane_replicate->stats[COMM_ALLGATHER];
    return own->inside + own->between + beside->inside + beside->between;
}

static inline int64_t given_calls(const struct strategy *s)
{
    const struct mesh *mesh = ((const struct shard *)s)->is.mesh;
    return mesh->replicate->stats[COMM_ALLGATHER].calls +
           mesh->lane_replicate->stats[COMM_ALLGATHER].calls;
}

static inline enum sotto_status given_train(struct given_oracle *o, struct strategy *s, int rank)
{
    struct given *g = o->given;
    float flat[GIVEN_ROOM], x[GIVEN_ROOM] = {0};
    given_scatter(g, &o->table, g->start, flat);
    TRY(s->ops->import(s, flat));
    for (int t = 0; t < g->steps; t++) {
        struct round round;
        const struct plan plan = {.lr = g->lr[t], .next_lr = g->lr[t], .step = t};
        const int64_t before = given_sent(s);
        TRY(s->ops->round(s, &plan, &round));
        if (g->blind && t + 1 < g->steps)
            continue;
        TRY(s->ops->settle(s));
        g->sent[t][rank] = given_sent(s) - before;
        TRY(s->ops->export(s, flat));
        given_gather(g, &o->table, flat, x);
        if (rank == 0)
            memcpy(g->x[t], x, sizeof x);
    }
    g->calls[rank] = given_calls(s);
    return SOTTO_OK;
}

static inline enum sotto_status given_configure(const struct given *g, struct strategy_config *c,
                                                struct optim_config *optim)
{
    strategy_defaults(c);
    optim_defaults(optim);
    optim->kind = OPTIM_SGD;
    optim->weight_decay = 0;
    snprintf(c->shard, sizeof c->shard, "%s", g->shard);
    snprintf(c->replicate, sizeof c->replicate, "%s", g->replicate);
    snprintf(c->mesh, sizeof c->mesh, "%dx%d", g->groups, g->slices);
    TRY(set_options(c, g->options, 12));
    TRY(strategy_resolve(c, g->groups * g->slices));
    return strategy_optim(c, optim, NULL);
}

static inline enum sotto_status given_work(struct worker *w, void *arg)
{
    struct given_oracle o = {.base = {.ops = &given_ops, .slots = 1, .rank = w->rank},
                             .given = arg};
    struct strategy_config config;
    struct optim_config optim;
    struct memory memory = {0};
    struct device dev;
    struct mesh mesh;
    struct strategy *s;
    given_table(arg, &o.table);
    o.base.table = &o.table;
    o.dev = &dev;
    TRY(given_configure(arg, &config, &optim));
    TRY(device_open(&dev, test_device(), &memory, 1));
    TRY(mesh_open(&mesh, w, config.groups, &dev));
    const struct strategy_setup setup = {
        .config = &config, .optim = &optim, .oracle = &o.base, .dev = &dev, .mesh = &mesh};
    enum sotto_status st = strategy_open(&s, &setup);
    if (st == SOTTO_OK) {
        st = given_train(&o, s, w->rank);
        if (st != SOTTO_OK)
            mesh_abort(&mesh, st);
        s->ops->free(s);
    }
    mesh_close(&mesh);
    device_close(&dev);
    table_free(&o.table);
    if (st == SOTTO_OK && memory.total)
        st = fail(SOTTO_EINVAL, "%zu bytes were not freed", (size_t)memory.total);
    return st;
}

static inline enum sotto_status given_run(struct given *g)
{
    struct engine_config engine = {.workers = g->groups * g->slices};
    return (g->threads ? engine_threads : engine_virtual)(&engine, given_work, g);
}

#endif
