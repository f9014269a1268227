/* What an open loader of tokens holds: a stream; for stream*.c only. */
#ifndef SOTTO_DATA_TEXT_STREAM_H
#define SOTTO_DATA_TEXT_STREAM_H

#include <assert.h>

#include "data/loader.h"
#include "data/text/source.h"

struct stream {
    struct loader base;
    struct source *sources;
    int64_t *before; /* (sources + 1): tokens, or examples, of the split in earlier sources */
    enum data_sharding sharding;
    double holdout; /* 0: all of the sources is in the split */
    int pad;        /* the token of padded positions */
};

extern const struct loader_ops stream_ops;
void stream_close(struct loader *loader);
int64_t stream_tokens(const struct loader *loader);

static inline const struct stream *stream_of(const struct loader *loader)
{
    assert(loader->ops == &stream_ops);
    return (const struct stream *)loader;
}

#endif
