/* libFuzzer: any JSON as preprocessor_config.json. What is accepted is in range, and comes back
 * from what is written of it. */
#include <assert.h>
#include <string.h>

#include "data/image/processor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json;
    struct image_processor p, back;
    if (json_parse(&json, (const char *)data, size, "fuzz") != SOTTO_OK)
        return 0;
    if (processor_from_json(&p, json, NULL) == SOTTO_OK) {
        assert(p.height >= 0 && p.height <= IMAGES_SIDE && p.keep > 0 && p.keep <= 1);
        assert(p.norm.channels >= 0 && p.norm.channels <= IMAGES_CHANNELS);
        for (int c = 0; c < p.norm.channels; c++)
            assert(p.norm.std[c] > 0);
        if (p.height && p.norm.channels) {
            json_t *out = processor_to_json(&p);
            assert(out && processor_from_json(&back, out, NULL) == SOTTO_OK);
            assert(back.height == p.height && back.width == p.width);
            assert(memcmp(&back.norm, &p.norm, sizeof p.norm) == 0);
            json_decref(out);
        }
    }
    json_decref(json);
    return 0;
}
