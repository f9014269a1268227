/* Parts that language models share: sizes of a transformer, given and derived. */
#include <string.h>

#include "nn/config.h"

void text_take(struct model_config *c, const struct model_config *from)
{
#define TAKE(field)                                                                                \
    if (!c->field)                                                                                 \
    c->field = from->field
    /* Derived sizes are not inherited once the user has changed the sizes before them. */
    bool reshaped = c->width && c->width != from->width;
    bool reheaded = reshaped || (c->heads && c->heads != from->heads);
    if (!reheaded) {
        TAKE(kv_heads);
        TAKE(head_width);
    }
    if (!reshaped)
        TAKE(mlp_width);
    TAKE(layers);
    TAKE(width);
    TAKE(heads);
    TAKE(vocab);
    TAKE(positions);
    TAKE(window);
    TAKE(norm_eps);
    TAKE(rope_theta);
    TAKE(init_std);
    TAKE(tied);
#undef TAKE
    if (!*c->pattern)
        strcpy(c->pattern, from->pattern);
    if (!*c->activation)
        strcpy(c->activation, from->activation);
}

void text_inherit(struct model_config *c, const struct model_config *preset)
{
    if (c->arch == preset->arch) {
        text_take(c, preset);
        return;
    }
    const struct model_config sizes = {.layers = preset->layers, /* all else is another's */
                                       .width = preset->width,
                                       .heads = preset->heads,
                                       .vocab = preset->vocab,
                                       .positions = preset->positions};
    text_take(c, &sizes);
}

enum sotto_status text_sizes(struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (c->head_width || !c->heads)
        return SOTTO_OK;
    if (c->width % c->heads)
        return fail(SOTTO_EINVAL, "heads = %d do not divide width = %d", c->heads, c->width);
    c->head_width = c->width / c->heads;
    return SOTTO_OK;
}

enum sotto_status text_check(const struct model_config *c)
{
    if (c->layers < 1 || c->width < 1 || c->heads < 1 || c->vocab < 1 || c->positions < 1)
        return fail(SOTTO_EINVAL,
                    "a model needs layers, width, heads, vocab and positions of at least 1: "
                    "got %d, %d, %d, %d, %d",
                    c->layers, c->width, c->heads, c->vocab, c->positions);
    if (c->layers > 1024 || c->width > 1 << 20 || c->vocab > 1 << 24 || c->positions > 1 << 22 ||
        c->mlp_width > 1 << 22 || c->heads > 4096 || c->head_width > 4096)
        return fail(SOTTO_EINVAL,
                    "model sizes are out of range: layers %d, width %d, vocab %d, mlp %d",
                    c->layers, c->width, c->vocab, c->mlp_width);
    if (c->kv_heads < 1 || c->heads % c->kv_heads)
        return fail(SOTTO_EINVAL, "heads = %d is not a multiple of kv_heads = %d", c->heads,
                    c->kv_heads);
    if (c->head_width < 1 || c->mlp_width < 1)
        return fail(SOTTO_EINVAL, "head_width = %d and mlp_width = %d must be at least 1",
                    c->head_width, c->mlp_width);
    if (!(c->norm_eps >= 0 && c->norm_eps <= 1) || !(c->rope_theta >= 0 && c->rope_theta <= 1e12))
        return fail(SOTTO_EINVAL,
                    "norm_eps = %g and rope_theta = %g must be in [0, 1] and [0, 1e12]",
                    c->norm_eps, c->rope_theta);
    return SOTTO_OK;
}

bool model_config_local(const struct model_config *c, int i)
{
    size_t length = strlen(c->pattern);
    return length && c->pattern[(size_t)i % length] == 'l';
}
