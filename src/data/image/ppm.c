/* Netpbm's binary images of bytes: P5 (grey) and P6 (colours). The header is the magic, width,
 * height and the largest value, with white space and comments between, and one white space. */
#include <stdlib.h>
#include <string.h>

#include "data/image/set.h"

bool ppm_recognise(const uint8_t *data, size_t size)
{
    return size >= 2 && data[0] == 'P' && (data[1] == '5' || data[1] == '6');
}

static bool is_ppm_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns the next number of the header, 0 if there is none or the number is too large. */
static int next_header_number(const uint8_t *data, size_t size, size_t *at)
{
    int value = 0;
    size_t i = *at;
    while (i < size && (is_ppm_space(data[i]) || data[i] == '#'))
        if (data[i++] == '#')
            while (i < size && data[i] != '\n' && data[i] != '\r')
                i++;
    for (; i < size && data[i] >= '0' && data[i] <= '9'; i++) {
        value = 10 * value + (data[i] - '0');
        if (value > 1 << 20)
            return 0;
    }
    *at = i;
    return value;
}

enum sotto_status ppm_read(struct picture *out, const uint8_t *data, size_t size, const char *name)
{
    size_t at = 2;
    *out = (struct picture){0};
    if (!ppm_recognise(data, size))
        return fail(SOTTO_EFORMAT, "%s is no binary PPM or PGM: these begin with P6 or P5", name);
    const int width = next_header_number(data, size, &at),
              height = next_header_number(data, size, &at);
    const int most = next_header_number(data, size, &at), channels = data[1] == '6' ? 3 : 1;
    if (width < 1 || height < 1 || width > IMAGES_SIDE || height > IMAGES_SIDE)
        return fail(SOTTO_EFORMAT, "%s: want a width and a height of 1 to %d in its header", name,
                    IMAGES_SIDE);
    if (most < 1 || most > 255)
        return fail(SOTTO_EFORMAT, "%s: want values of one byte, at most 1 to 255", name);
    const size_t bytes = (size_t)width * (size_t)height * (size_t)channels;
    if (at >= size || !is_ppm_space(data[at]) || size - at - 1 < bytes)
        return fail(SOTTO_EFORMAT,
                    "%s ends too soon: %d x %d x %d values need %zu bytes after the header, there "
                    "are %zu",
                    name, height, width, channels, bytes, at < size ? size - at - 1 : 0);
    uint8_t *pixels = malloc(bytes);
    if (!pixels)
        return fail(SOTTO_ENOMEM, "no memory for %s, of %d x %d", name, height, width);
    memcpy(pixels, data + at + 1, bytes);
    for (size_t i = 0; most < 255 && i < bytes; i++)
        pixels[i] = (uint8_t)(pixels[i] > most ? 255 : (pixels[i] * 255 + most / 2) / most);
    *out = (struct picture){height, width, channels, pixels};
    return SOTTO_OK;
}
