/* Rounds of a method with the null oracle on the null device, in virtual time, and their times. */
#ifndef SOTTO_TESTS_TRAIN_ORACLE_NULL_LAB_H
#define SOTTO_TESTS_TRAIN_ORACLE_NULL_LAB_H

#include "base/scratch.h"
#include "strategy/names.h"
#include "train/oracle/null_oracle.h"

enum { NULL_ROUNDS = 3, NULL_WORKERS = 64, NULL_TARGETS = 100 };

struct null_lab {
    struct strategy_config config;
    struct optim_config optim;
    struct table table;
    double seconds; /* of a micro-batch          */
    size_t activations;

    /* Results. */
    double end[NULL_WORKERS];                                 /* when each worker was done */
    struct mesh_account account[NULL_WORKERS];                /* of its own line of work   */
    size_t bytes[MEMORY_CATEGORIES], peak[MEMORY_CATEGORIES]; /* of the last rank          */
    size_t left;                                              /* when all is freed         */
    struct round round;                                       /* the last                  */
    double computed;                                          /* seconds                   */
    int32_t history[2 * NULL_ROUNDS];                         /* of rank 0, if there is one */
    int64_t beside; /* computations during the lane's jobs */
};

static inline void null_lab_defaults(struct null_lab *lab)
{
    strategy_defaults(&lab->config);
    optim_defaults(&lab->optim);
}

static inline enum sotto_status null_lab_rounds(struct null_lab *lab, struct worker *w,
                                                struct strategy *s)
{
    for (int t = 0; t < NULL_ROUNDS; t++)
        TRY(s->ops->round(s, &(struct plan){.lr = 1e-3, .next_lr = 1e-3}, &lab->round));
    lab->end[w->rank] = clock_now(w->clock);
    if (s->ops->history && w->rank == 0) {
        const int32_t *counts = s->ops->history(s, &lab->beside);
        memcpy(lab->history, counts, (size_t)lab->beside * sizeof *counts);
    }
    return SOTTO_OK;
}

/* Runs the method on a worker; the configuration is resolved and the table laid out. */
static inline enum sotto_status null_lab_work(struct worker *w, void *arg)
{
    struct null_lab *lab = arg;
    struct memory memory = {0};
    struct device dev;
    struct null_oracle oracle;
    struct mesh mesh;
    struct strategy *s;
    const struct null_config micro_batch = {
        .seconds = lab->seconds, .tokens = NULL_TARGETS, .activations = lab->activations};
    TRY(device_open(&dev, "null", &memory, 1));
    TRY(null_oracle_init(&oracle, &lab->table, w, &dev, &micro_batch));
    TRY(mesh_open(&mesh, w, lab->config.groups, &dev));
    const struct strategy_setup setup = {.config = &lab->config,
                                         .optim = &lab->optim,
                                         .oracle = &oracle.base,
                                         .dev = &dev,
                                         .mesh = &mesh};
    enum sotto_status st = strategy_open(&s, &setup);
    if (st == SOTTO_OK) {
        st = null_lab_rounds(lab, w, s);
        if (st != SOTTO_OK)
            mesh_abort(&mesh, st);
        for (int i = 0; i < MEMORY_CATEGORIES; i++) {
            lab->bytes[i] = memory.now[i];
            lab->peak[i] = memory.peak[i];
        }
        lab->computed = oracle.base.seconds;
        lab->account[w->rank] = mesh_account_own(&mesh);
        s->ops->free(s);
    }
    mesh_close(&mesh);
    null_oracle_free(&oracle);
    device_close(&dev);
    lab->left = memory.total;
    return st;
}

#endif
