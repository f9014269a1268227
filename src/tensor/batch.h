/* A micro-batch of samples, which data hand to models. Host memory, owned. */
#ifndef SOTTO_TENSOR_BATCH_H
#define SOTTO_TENSOR_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

/* Content of a sample: a sequence of tokens with a target at each position, or an array of
 * numbers with a few targets (an image has one target, its class). */
enum sample_content { SAMPLE_TOKENS, SAMPLE_FLOATS };
enum { SAMPLE_DIMS = 3 };

/* Words of messages and reports for samples, and the quantities that users set and sotto counts. */
struct sample_kind {
    const char *noun;  /* input of a model: "text", "images"                                 */
    const char *unit;  /* elements with a target, plural: "tokens", "images" */
    const char *score; /* key of the third figure of an evaluation, after loss and accuracy */
    bool sequences;    /* true: users set a sample's length, and reports count its tokens */
};
extern const struct sample_kind sample_kinds[]; /* by enum sample_content */

struct sample {
    enum sample_content content;
    int dims[SAMPLE_DIMS]; /* floats: rows, columns, channels; 0 after the last */
    int targets;           /* floats: targets of a sample */
    int positions; /* floats: positions that a model cuts a sample into (extent.t); 1: none */
};

struct batch {
    struct sample sample;
    int rows, t;       /* samples in use; targets of each; rows * t <= room */
    int32_t *tokens;   /* (rows, t); NULL for floats */
    float *floats;     /* (rows, dims); NULL for tokens */
    int32_t *targets;  /* (rows, t): the token or class to predict, negative: none  */
    int64_t n_targets; /* targets >= 0 */
    int64_t room;      /* targets allocated                                         */
};

/* Allocate a batch of tokens; a batch of samples of any kind, `t` used by tokens only. */
enum sotto_status batch_init(struct batch *batch, int rows, int t);
enum sotto_status batch_init_of(struct batch *batch, const struct sample *sample, int rows, int t);
void batch_free(struct batch *batch);

/* Return the numbers, and the targets, of one sample; `t`: tokens of a sample of tokens. */
size_t sample_count(const struct sample *sample, int t);
int sample_targets(const struct sample *sample, int t);

static inline enum dtype sample_type(const struct sample *sample)
{
    return sample->content == SAMPLE_TOKENS ? DTYPE_I32 : DTYPE_F32;
}

static inline const void *batch_input(const struct batch *batch)
{
    return batch->sample.content == SAMPLE_TOKENS ? (const void *)batch->tokens : batch->floats;
}

#endif
