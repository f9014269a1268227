/* What an open loader holds; for loader*.c only. */
#ifndef SOTTO_DATA_LOADER_STATE_H
#define SOTTO_DATA_LOADER_STATE_H

#include "data/source/source.h"

struct loader {
    struct source *sources;
    int count;
    int64_t *before; /* (count + 1): tokens, or examples, of the split in the sources before */
    bool instruct;
    enum data_sharding sharding;
    double holdout; /* 0: all of the sources is in the split */
    int64_t vocab;
    int pad; /* the token of padded positions */
};

#endif
