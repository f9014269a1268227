#include "comm/links/link.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct link_unit {
    const char *name;
    double factor;
};

/* Parses a number and a unit of `units` up to `end`; false for other text. */
static bool parse_quantity(const char *text, const char *end, const struct link_unit *units,
                           double *out)
{
    char *rest;
    double value = strtod(text, &rest);
    if (rest == text || rest > end || !(value >= 0) || !isfinite(value))
        return false;
    for (; units->name; units++) {
        size_t length = strlen(units->name);
        if ((size_t)(end - rest) == length && strncmp(rest, units->name, length) == 0) {
            *out = value * units->factor;
            return true;
        }
    }
    return false;
}

static const struct link_unit rates[] = {
    {"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},
    {"GB/s", 1e9},       {"bit/s", 1.0 / 8},  {"kbit/s", 1e3 / 8},
    {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {NULL, 0},
};

enum sotto_status link_parse_rate(double *rate, const char *text)
{
    *rate = 0;
    if (*text == '\0' || strcmp(text, "none") == 0)
        return SOTTO_OK;
    if (!parse_quantity(text, text + strlen(text), rates, rate) || *rate <= 0)
        return fail(SOTTO_EINVAL, "'%s': want a bandwidth such as 20GB/s, or none", text);
    if (*rate < 1 || *rate > 1e15)
        return fail(SOTTO_EINVAL, "'%s': want 1B/s to 1e6GB/s", text);
    return SOTTO_OK;
}

enum sotto_status link_parse(struct link *link, const char *text)
{
    static const struct link_unit times[] = {
        {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
    *link = (struct link){0};
    if (*text == '\0' || strcmp(text, "none") == 0)
        return SOTTO_OK;
    const char *comma = strchr(text, ','), *end = text + strlen(text);
    if (!parse_quantity(text, comma ? comma : end, rates, &link->bandwidth) ||
        link->bandwidth <= 0 || (comma && !parse_quantity(comma + 1, end, times, &link->latency)))
        return fail(SOTTO_EINVAL,
                    "link '%s': want BANDWIDTH,LATENCY such as 100Mbit/s,5ms or 25GB/s,2us", text);
    if (link->bandwidth < 1 || link->bandwidth > 1e15 || link->latency > 1e3)
        return fail(SOTTO_EINVAL, "link '%s': want 1B/s to 1e6GB/s, and at most 1000s", text);
    return SOTTO_OK;
}
