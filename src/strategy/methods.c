/* The methods, a line each. */
#include "strategy/method.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "strategy/config.h"

#define METHODS(METHOD)                                                                            \
    METHOD(ddp)                                                                                    \
    METHOD(zero1)                                                                                  \
    METHOD(fsdp)                                                                                   \
    METHOD(dpu)                                                                                    \
    METHOD(acco_wp)                                                                                \
    METHOD(acco)                                                                                   \
    METHOD(cdp)                                                                                    \
    METHOD(sync)                                                                                   \
    METHOD(local)                                                                                  \
    METHOD(overlap_local)                                                                          \
    METHOD(slowmo)                                                                                 \
    METHOD(co2)                                                                                    \
    METHOD(diloco)                                                                                 \
    METHOD(async_diloco)                                                                           \
    METHOD(demo)                                                                                   \
    METHOD(random)                                                                                 \
    METHOD(striding)                                                                               \
    METHOD(every)

#define DECLARE(id) extern const struct method method_##id;
METHODS(DECLARE)

#define ADDRESS(id) &method_##id,
static const struct method *const methods[] = {METHODS(ADDRESS)};
enum { COUNT = sizeof methods / sizeof *methods };
_Static_assert((int)COUNT <= (int)METHODS_MOST, "raise METHODS_MOST");

const struct method_preset method_plain = {"ddp", &method_ddp, &method_sync};

/* Names of pairs. A method's own name is a pair with one method of method_plain. */
static const struct method_preset presets[] = {
    {"local-sgd", &method_ddp, &method_local},
    {"overlap-local-sgd", &method_ddp, &method_overlap_local},
    {"flexdemo", &method_fsdp, &method_demo},
};
enum { PRESETS = sizeof presets / sizeof *presets };

const struct method *method_at(int i)
{
    return i >= 0 && i < COUNT ? methods[i] : NULL;
}

const struct method_preset *method_preset(int i)
{
    return i >= 0 && i < PRESETS ? &presets[i] : NULL;
}

const struct method *method_find(enum method_axis axis, const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (methods[i]->axis == axis && strcmp(methods[i]->name, name) == 0)
            return methods[i];
    return NULL;
}

/* Returns the offset of a method's configuration: configurations are contiguous. */
static size_t config_place(const struct method *method)
{
    const size_t unit = _Alignof(max_align_t);
    size_t at = 0, found = 0;
    for (int i = 0; i < COUNT; i++) {
        if (methods[i] == method)
            found = at;
        at += (methods[i]->config_bytes + unit - 1) / unit * unit;
    }
    assert(at <= sizeof((struct strategy_config *)0)->own && "raise METHODS_ROOM");
    return found;
}

void *method_config(struct strategy_config *config, const struct method *method)
{
    return config->own + config_place(method);
}

const void *method_own(const struct strategy_config *config, const struct method *method)
{
    return config->own + config_place(method);
}
