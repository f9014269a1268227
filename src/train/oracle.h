/* The gradient oracle of a real model and its data: one worker's tape and place in the loader. */
#ifndef SOTTO_TRAIN_ORACLE_H
#define SOTTO_TRAIN_ORACLE_H

#include "data/loader.h"
#include "nn/tape.h"
#include "strategy/oracle.h"

struct model_oracle {
    struct oracle base;
    const struct loader *loader;
    struct loader_place place; /* seed, rank, size; the index comes with each micro-batch */
    int t;
    struct batch batch;
    struct tape tape;
};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model *model,
                                    struct device *dev, struct pool *pool,
                                    const struct loader *loader, struct loader_place place,
                                    int rows, int t, bool recompute);
void model_oracle_free(struct model_oracle *o);

#endif
