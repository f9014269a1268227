/* Letters and numbers that Unicode 15 to 16 added to Unicode 14, in order. */
#ifndef SOTTO_DATA_BPE_RECENT_H
#define SOTTO_DATA_BPE_RECENT_H

#include <stdint.h>

#include "data/bpe.h"

struct bpe_recent {
    uint32_t from, to;
    enum bpe_class kind;
};

extern const struct bpe_recent bpe_recent[];
extern const int bpe_recent_count;

#endif
