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
    int slots;     /* micro-batches in flight at once; 0: one */
    bool all;      /* see extent.all */
    bool recompute;
    enum dtype activations;
    struct view
        state; /* this worker's state of the model (running statistics); without data: none */
    struct worker *worker; /* reads this worker's share of the data, takes its time */
    double seconds;        /* of a micro-batch, in modelled time */
    struct trace *trace;   /* (optional) records the activations of each stage */
};

/* A micro-batch in flight. */
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
    struct buffer found;     /* (slots, state) notes: changes of the state by forwards */
    struct buffer sum[2];    /* sums of these changes */
    struct device reader;    /* of a GPU: reads losses while the rest of backward runs */
    struct {                 /* the stage in work, for the line of work that computes */
        struct model_slot *slot;
        int k;
        const struct view *theta, *grad;
    } now;
};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model_oracle_setup *setup);
void model_oracle_free(struct model_oracle *o);

#endif
