/* A gradient oracle of declared sizes and times, without data or arithmetic: a micro-batch takes
 * its seconds in virtual time and holds its activations from forward to backward. With the null
 * device, methods simulate clusters and models that are larger than the machine. */
#ifndef SOTTO_TRAIN_ORACLE_NULL_ORACLE_H
#define SOTTO_TRAIN_ORACLE_NULL_ORACLE_H

#include "comm/worker.h"
#include "strategy/oracle.h"
#include "tensor/device.h"
#include "train/oracle/trace.h"

/* Sizes of a whole micro-batch; a stage has the share of its parameters. */
struct null_config {
    double seconds; /* a third of the time is forward */
    int64_t tokens;
    size_t activations;  /* bytes */
    size_t edge;         /* elements between two stages, a part of the activations */
    int slots;           /* micro-batches in flight at once; 0: one */
    struct trace *trace; /* (optional) records the activations of each stage */
};

struct null_oracle {
    struct oracle base;
    struct worker *worker; /* not owned */
    struct device *dev;    /* not owned */
    struct null_config config;
    int64_t *number; /* (slots) worker.begun */
    int64_t *place;  /* (slots) in the order of the data, over all workers */
    size_t *held;    /* (slots, n_stage) bytes of activations of the micro-batches in flight */
};

/* `table` is the caller's; workers may share it. */
enum sotto_status null_oracle_init(struct null_oracle *o, const struct table *table,
                                   struct worker *worker, struct device *dev,
                                   const struct null_config *config);
void null_oracle_free(struct null_oracle *o);

/* Makes a table of `parameters` parameters in `n_stage` stages of about equal size, one tensor
 * each, padded to a multiple of `pad`. */
enum sotto_status null_table(struct table *table, size_t parameters, int n_stage, int pad);

#endif
