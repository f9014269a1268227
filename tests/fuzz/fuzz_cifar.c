/* libFuzzer: any bytes as a file of CIFAR-10 or -100. What is accepted has as many images as it has
 * records, and labels below the number of classes. */
#include <assert.h>

#include "data/image/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int way = 0; way < 4; way++) {
        const bool hundred = way & 1, grey = way & 2;
        struct image_set set = {.given = grey};
        if (grey) { /* of another size, and in grey */
            set.height = 5;
            set.width = 7;
            set.channels = 1;
        }
        if (cifar_read(&set, data, size, "fuzz", hundred) == SOTTO_OK) {
            assert((size_t)set.count == size / (hundred ? 3074 : 3073) && set.n_sources == 1);
            for (int64_t i = 0; i < set.count; i++)
                assert(set.labels[i] >= 0 && set.labels[i] < set.classes);
        }
        image_set_free(&set);
    }
    return 0;
}
