#include "tensor/batch.h"

#include <stdlib.h>

enum sotto_status batch_init(struct batch *batch, int rows, int t)
{
    *batch = (struct batch){.rows = rows, .t = t, .room = (int64_t)rows * t};
    batch->tokens = calloc((size_t)batch->room, sizeof *batch->tokens);
    batch->targets = calloc((size_t)batch->room, sizeof *batch->targets);
    if (!batch->tokens || !batch->targets) {
        batch_free(batch);
        return fail(SOTTO_ENOMEM, "no memory for a batch of %d x %d tokens", rows, t);
    }
    return SOTTO_OK;
}

void batch_free(struct batch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    *batch = (struct batch){0};
}
