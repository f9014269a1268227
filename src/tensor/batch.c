#include "tensor/batch.h"

#include <stdlib.h>

const struct sample_kind sample_kinds[] = {
    [SAMPLE_TOKENS] = {"text", "tokens", "perplexity", true},
    [SAMPLE_FLOATS] = {"images", "images", "top5", false},
};

size_t sample_count(const struct sample *sample, int t)
{
    size_t count = 1;
    if (sample->content == SAMPLE_TOKENS)
        return (size_t)t;
    for (int d = 0; d < SAMPLE_DIMS && sample->dims[d]; d++)
        count *= (size_t)sample->dims[d];
    return count;
}

int sample_targets(const struct sample *sample, int t)
{
    return sample->content == SAMPLE_TOKENS ? t : sample->targets;
}

enum sotto_status batch_init(struct batch *batch, int rows, int t)
{
    return batch_init_of(batch, &(struct sample){.content = SAMPLE_TOKENS}, rows, t);
}

enum sotto_status batch_init_of(struct batch *batch, const struct sample *sample, int rows, int t)
{
    const int targets = sample_targets(sample, t);
    const size_t count = (size_t)rows * sample_count(sample, t);
    *batch = (struct batch){
        .sample = *sample, .rows = rows, .t = targets, .room = (int64_t)rows * targets};
    if (sample->content == SAMPLE_TOKENS)
        batch->tokens = calloc(count, sizeof *batch->tokens);
    else
        batch->floats = calloc(count, sizeof *batch->floats);
    batch->targets = calloc((size_t)batch->room, sizeof *batch->targets);
    if (!batch_input(batch) || !batch->targets) {
        batch_free(batch);
        return sample->content == SAMPLE_TOKENS
                   ? fail(SOTTO_ENOMEM, "no memory for a batch of %d x %d tokens", rows, t)
                   : fail(SOTTO_ENOMEM, "no memory for a batch of %d x %zu numbers", rows,
                          sample_count(sample, t));
    }
    return SOTTO_OK;
}

void batch_free(struct batch *batch)
{
    free(batch->tokens);
    free(batch->floats);
    free(batch->targets);
    *batch = (struct batch){0};
}
