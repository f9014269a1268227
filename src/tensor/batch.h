/* A micro-batch of sequences, the one thing that flows from data to models. Host memory, owned. */
#ifndef SOTTO_TENSOR_BATCH_H
#define SOTTO_TENSOR_BATCH_H

#include <stdint.h>

#include "base/status.h"

struct batch {
    int rows, t;       /* sequences and positions in use; rows * t <= room */
    int32_t *tokens;   /* (rows, t)                                        */
    int32_t *targets;  /* (rows, t): the token to predict, negative: none  */
    int64_t n_targets; /* targets that are not negative                    */
    int64_t room;      /* elements allocated                               */
};

enum sotto_status batch_init(struct batch *batch, int rows, int t);
void batch_free(struct batch *batch);

#endif
