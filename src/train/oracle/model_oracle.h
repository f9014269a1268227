/* The gradient oracle of a real model and its data: one worker's tapes and place in the loader. */
#ifndef SOTTO_TRAIN_ORACLE_MODEL_ORACLE_H
#define SOTTO_TRAIN_ORACLE_MODEL_ORACLE_H

#include "comm/worker.h"
#include "data/loader.h"
#include "nn/tape.h"
#include "strategy/oracle.h"
#include "train/oracle/trace.h"

struct model_oracle_setup {
    const struct model *model;
    struct device *dev;
    struct pool *pool;
    const struct loader *loader;
    uint64_t seed; /* of the order of the data */
    int rows, t;   /* of a micro-batch         */
    int slots;     /* micro-batches that may be under way at once; 0: one */
    bool all;      /* as of an extent */
    bool recompute;
    enum dtype activations;
    struct view state;     /* of the model that is not trained, this worker's; without data: none */
    struct worker *worker; /* whose share of the data it reads and whose time it takes */
    double seconds;        /* of a micro-batch, where time is modelled                 */
    struct trace *trace;   /* (optional) is told what every stage holds                */
};

/* A micro-batch under way. */
struct model_slot {
    int64_t number; /* worker.begun */
    int64_t place;  /* in the order of the data, over all workers */
    struct batch batch;
    struct tape tape;
};

struct model_oracle {
    struct oracle base;
    struct model_oracle_setup is;
    struct model_slot *slot; /* (slots) */
    struct buffer found;     /* (slots, state) notes: what forwards have found                 */
    struct buffer sum[2];    /* ... and the sums of it                                          */
    struct device reader;    /* reads losses while the rest of backward runs; only of a GPU      */
    struct {                 /* the stage being computed, for the line of work that does it */
        struct model_slot *slot;
        int k;
        const struct view *theta, *grad;
    } now;
};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model_oracle_setup *setup);
void model_oracle_free(struct model_oracle *o);

#endif
