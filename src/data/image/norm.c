#include "data/image/norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum sotto_status parse_channels(const char *key, const char *text, bool positive,
                                        float *out, int *count)
{
    const char *at = text;
    for (*count = 0; *count < IMAGES_CHANNELS;) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || !(fabs(value) < 1e6) || (positive && !(value > 1e-6)))
            break;
        out[(*count)++] = (float)value;
        at = end + strspn(end, " ");
        if (!*at)
            return SOTTO_OK;
        if (*at++ != ',')
            break;
    }
    return fail(SOTTO_EINVAL, "data.%s = %.80s: want one number or three with commas%s", key, text,
                positive ? ", all above 0" : "");
}

enum sotto_status norm_parse(struct image_norm *norm, const char *mean, const char *std)
{
    int n;
    *norm = (struct image_norm){0};
    if (!*mean != !*std)
        return fail(SOTTO_EINVAL, "data.%s is given and data.%s is not", *mean ? "mean" : "std",
                    *mean ? "std" : "mean");
    if (!*mean)
        return SOTTO_OK;
    TRY(parse_channels("mean", mean, false, norm->mean, &norm->channels));
    TRY(parse_channels("std", std, true, norm->std, &n));
    for (int c = 0; c < norm->channels; c++)
        if (norm->mean[c] < 0 || norm->mean[c] > 1 || (c < n && norm->std[c] > 2))
            return fail(SOTTO_EINVAL,
                        "data.mean = %.80s, data.std = %.80s: values are from 0 to 1, so a mean is "
                        "one of them and a deviation about 0.5 at most",
                        mean, std);
    if (n == norm->channels)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "data.mean = %.80s has %d numbers, data.std = %.80s %d", mean,
                norm->channels, std, n);
}

void norm_print(const float *values, int channels, char out[OPTION_ROOM])
{
    for (int c = 0, used = 0; c < channels; c++)
        used += snprintf(out + used, OPTION_ROOM - (size_t)used, "%s%.5g", c ? "," : "",
                         (double)values[c]);
}

static float round_as_printed(double value)
{
    char text[OPTION_ROOM];
    norm_print((float[]){(float)value}, 1, text);
    return strtof(text, NULL);
}

struct image_norm norm_of(const struct image_set *set, const int64_t *begin, const int64_t *end)
{
    uint64_t count[IMAGES_CHANNELS][256] = {0};
    struct image_norm norm = {.channels = set->channels};
    const size_t channels = (size_t)set->channels, bytes = image_set_bytes(set);
    for (int s = 0; s < set->n_sources; s++) {
        const uint8_t *last = set->pixels + (size_t)end[s] * bytes;
        for (const uint8_t *p = set->pixels + (size_t)begin[s] * bytes; p < last; p += channels)
            for (size_t c = 0; c < channels; c++)
                count[c][p[c]]++;
    }
    for (size_t c = 0; c < channels; c++) {
        double n = 0, sum = 0, squares = 0;
        for (int v = 0; v < 256; v++) {
            n += (double)count[c][v];
            sum += (double)count[c][v] * v / 255;
        }
        const double mean = n > 0 ? sum / n : 0;
        for (int v = 0; v < 256; v++)
            squares += (double)count[c][v] * (v / 255.0 - mean) * (v / 255.0 - mean);
        const double std = n > 0 ? sqrt(squares / n) : 0;
        norm.mean[c] = round_as_printed(mean);
        norm.std[c] = std > 1e-3 ? round_as_printed(std) : 1; /* all of one value */
    }
    return norm;
}

struct image_norm norm_spread(struct image_norm norm, int channels)
{
    if (norm.channels != 1)
        return norm;
    for (; norm.channels < channels; norm.channels++) {
        norm.mean[norm.channels] = norm.mean[0];
        norm.std[norm.channels] = norm.std[0];
    }
    return norm;
}

void norm_table(const struct image_norm *norm, int channel, float table[256])
{
    const int c = norm->channels == 1 ? 0 : channel;
    for (int v = 0; v < 256; v++)
        table[v] = ((float)v / 255 - norm->mean[c]) / norm->std[c];
}
