/* libFuzzer: any bytes as IDX: the first two say how many of the rest are labels, or that it is all
 * one compressed file. What is accepted is as large as its header says. */
#include <assert.h>
#include <stdlib.h>

#include "data/image/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image_set set = {0};
    uint8_t *out;
    size_t out_size;
    if (size < 2)
        return 0;
    const size_t labels = (size_t)data[0] | (size_t)data[1] << 8;
    data += 2;
    size -= 2;
    if (image_inflate(data, size, "fuzz.gz", &out, &out_size) == SOTTO_OK) {
        assert(out_size == idx_claims(out, out_size));
        free(out);
    }
    if (labels > size)
        return 0;
    if (idx_read(&set, data + labels, size - labels, "images", data, labels, "labels") ==
        SOTTO_OK) {
        assert(set.count > 0 && set.classes > 0 && set.channels == 1);
        assert(16 + (size_t)set.count * image_set_bytes(&set) == size - labels);
        for (int64_t i = 0; i < set.count; i++)
            assert(set.labels[i] >= 0 && set.labels[i] < set.classes);
    }
    image_set_free(&set);
    return 0;
}
