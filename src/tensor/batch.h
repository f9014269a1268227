/* A micro-batch of samples, the one thing that flows from data to models. Host memory, owned. */
#ifndef SOTTO_TENSOR_BATCH_H
#define SOTTO_TENSOR_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

/* A sample is a sequence of tokens with a target at each position, or an array of numbers with a
 * few targets (an image has one, its class). */
enum sample_content { SAMPLE_TOKENS, SAMPLE_FLOATS };
enum { SAMPLE_DIMS = 3 };

/* The words of messages and reports for samples, and what users set and count of them. */
struct sample_kind {
    const char *noun;  /* input of a model: "text", "images"                                 */
    const char *unit;  /* plural of what has one target and is counted: "tokens", "images"   */
    const char *score; /* key of an evaluation's figure next to loss and accuracy            */
    bool sequences;    /* a sample has a length, which users set, and its tokens are counted */
};
extern const struct sample_kind sample_kinds[]; /* by enum sample_content */

struct sample {
    enum sample_content content;
    int dims[SAMPLE_DIMS]; /* floats: rows, columns, channels; 0 behind the last     */
    int targets;           /* floats: of a sample                                    */
    int positions;         /* floats: that a model cuts it into (extent.t), 1: none  */
};

struct batch {
    struct sample sample;
    int rows, t;       /* samples in use, and the targets of each; rows * t <= room */
    int32_t *tokens;   /* (rows, t), or ...                                         */
    float *floats;     /* (rows, dims)                                              */
    int32_t *targets;  /* (rows, t): the token or class to predict, negative: none  */
    int64_t n_targets; /* targets that are not negative                             */
    int64_t room;      /* targets allocated                                         */
};

/* Tokens; and samples of any kind, `t` for tokens only. */
enum sotto_status batch_init(struct batch *batch, int rows, int t);
enum sotto_status batch_init_of(struct batch *batch, const struct sample *sample, int rows, int t);
void batch_free(struct batch *batch);

/* Numbers and targets of one sample, of `t` tokens if it is of tokens. */
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
