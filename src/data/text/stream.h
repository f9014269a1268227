/* An open loader of tokens: a stream of sources, for stream.c and stream_fill.c only. */
#ifndef SOTTO_DATA_TEXT_STREAM_H
#define SOTTO_DATA_TEXT_STREAM_H

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

/* Members of its op table, as in data/loader.h. */
enum sotto_status stream_fill(const struct loader *loader, struct loader_place place, int rows,
                              int t, struct batch *batch);
int64_t stream_batches(const struct loader *loader, int rows, int t);
enum sotto_status stream_fill_in_order(const struct loader *loader, int64_t index, int rows, int t,
                                       struct batch *batch);
double stream_share(const struct loader *loader, int rank, int size);
enum sotto_status stream_check(const struct loader *loader, int size, int t);

#endif
