/* libFuzzer: any bytes as PNG or PPM, which begin otherwise. What is accepted has all its pixels,
 * and can be brought to any size. */
#include <assert.h>
#include <stdlib.h>

#include "data/image/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct picture p, small = {3, 5, 0, NULL};
    unsigned sum = 0;
    if (png_read(&p, data, size, "fuzz") != SOTTO_OK) {
        assert(!p.pixels);
        if (ppm_read(&p, data, size, "fuzz") != SOTTO_OK) {
            assert(!p.pixels);
            return 0;
        }
    }
    assert(p.height > 0 && p.width > 0 && (p.channels == 1 || p.channels == 3));
    const size_t count = (size_t)p.height * (size_t)p.width * (size_t)p.channels;
    for (size_t i = 0; i < count; i++)
        sum += p.pixels[i];
    small.channels = p.channels;
    for (int filter = 0; count < 1 << 20 && filter <= FILTER_NEAREST; filter++)
        if (picture_resize(&p, filter % 2 ? DATA_CROP : DATA_STRETCH, 1,
                           (enum picture_filter)filter, &small) == SOTTO_OK) {
            sum += small.pixels[(size_t)(15 * p.channels - 1)];
            free(small.pixels);
        }
    free(p.pixels);
    return sum == 0 && count == 0;
}
