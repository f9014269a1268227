/* A gradient oracle of declared sizes and times, without data or arithmetic: a micro-batch costs
 * its seconds in virtual time and holds its activations between forward and backward. With the null
 * device the methods simulate clusters and models that are not there. */
#ifndef SOTTO_TRAIN_ORACLE_NULL_ORACLE_H
#define SOTTO_TRAIN_ORACLE_NULL_ORACLE_H

#include "comm/worker.h"
#include "strategy/oracle.h"
#include "tensor/device.h"
#include "train/oracle/trace.h"

/* Of one micro-batch, whole; a stage has its parameters' share. */
struct null_config {
    double seconds; /* a third of it forward */
    int64_t tokens;
    size_t activations;  /* bytes */
    size_t edge;         /* elements that pass between two stages, among those activations */
    int slots;           /* micro-batches that may be under way at once; 0: one */
    struct trace *trace; /* (optional) is told what every stage holds */
};

struct null_oracle {
    struct oracle base;
    struct worker *worker; /* not owned */
    struct device *dev;    /* not owned */
    struct null_config config;
    int64_t *number; /* (slots) worker.begun */
    int64_t *place;  /* (slots) in the order of the data, over all workers */
    size_t *held;    /* (slots, n_stage) bytes of activations of the micro-batches under way */
};

/* `table` stays the caller's; workers may share one. */
enum sotto_status null_oracle_init(struct null_oracle *o, const struct table *table,
                                   struct worker *worker, struct device *dev,
                                   const struct null_config *config);
void null_oracle_free(struct null_oracle *o);

/* A table of so many parameters in `n_stage` stages, as equal as they can be, each one tensor and
 * padded to a multiple of `pad`. */
enum sotto_status null_table(struct table *table, size_t parameters, int n_stage, int pad);

#endif
