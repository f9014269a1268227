/* Dense layers over the pixels of an image and a norm before the classes: the smallest model of
 * images, in a format of sotto's own. */
#include <math.h>
#include <stddef.h>

#include "nn/arch/image.h"

struct mlp_config {
    struct image_sizes image;
    int hidden, layers;
};

#define S struct mlp_config
static const struct option options[] = {
    IMAGE_OPTIONS(S),
    OPTION_INT(S, hidden, "0", 0, 1 << 20, "units of a layer; 0: 256"),
    OPTION_INT(S, layers, "0", 0, 1024, "layers before the classes; 0: 2"),
};
#undef S

static struct image_sizes *mlp_image(struct model_config *c)
{
    return &((struct mlp_config *)arch_config(c, &arch_mlp))->image;
}

static void mlp_defaults(struct model_config *c)
{
    struct mlp_config *m = arch_config(c, &arch_mlp);
    if (!m->hidden)
        m->hidden = 256;
    if (!m->layers)
        m->layers = 2;
}

static enum sotto_status mlp_check(const struct model_config *c)
{
    const struct mlp_config *m = arch_own(c, &arch_mlp);
    if (m->hidden < 1 || m->layers < 1 || m->hidden > 1 << 20 || m->layers > 1024)
        return fail(SOTTO_EINVAL, "sizes of mlp are out of range: hidden %d, layers %d", m->hidden,
                    m->layers);
    return image_check(&m->image, "mlp");
}

/* Members of config.json, with their offsets in struct mlp_config. */
static const struct {
    const char *hf;
    size_t offset;
} members[] = {
    {"image_height", offsetof(struct mlp_config, image.height)},
    {"image_width", offsetof(struct mlp_config, image.width)},
    {"num_channels", offsetof(struct mlp_config, image.channels)},
    {"num_labels", offsetof(struct mlp_config, image.classes)},
    {"hidden_size", offsetof(struct mlp_config, hidden)},
    {"num_hidden_layers", offsetof(struct mlp_config, layers)},
};
enum { MEMBERS = sizeof members / sizeof *members };

static enum sotto_status mlp_from_json(struct model_config *c, const json_t *json)
{
    char *own = arch_config(c, &arch_mlp);
    for (int i = 0; i < MEMBERS; i++) {
        const json_t *value = json_object_get(json, members[i].hf);
        if (!json_is_integer(value))
            return fail(SOTTO_EFORMAT, "\"%s\" must be an integer, got %s", members[i].hf,
                        value ? json_kind(value) : "nothing");
        const json_int_t n = json_integer_value(value);
        if (n < 1 || n > 1 << 20)
            return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", members[i].hf,
                        (long long)n);
        *(int *)(void *)(own + members[i].offset) = (int)n;
    }
    return SOTTO_OK;
}

static json_t *mlp_to_json(const struct model_config *c)
{
    const char *own = arch_own(c, &arch_mlp);
    json_t *json = json_object();
    for (int i = 0; i < MEMBERS; i++)
        json_object_set_new(json, members[i].hf,
                            json_integer(*(const int *)(const void *)(own + members[i].offset)));
    return json;
}

/* Builds the chain. Initial weights keep the outputs of a layer about as large as its inputs. */
static enum sotto_status mlp_build(struct model *m)
{
    const struct mlp_config *c = arch_own(&m->config, &arch_mlp);
    const struct image_sizes *s = &c->image;
    int in = s->height * s->width * s->channels;
    for (int i = 0; i < c->layers; i++, in = c->hidden) {
        struct dense_layer *dense = model_begin(m, &dense_ops, sizeof *dense);
        if (!dense)
            return fail(SOTTO_ENOMEM, "no memory for layer %d", i);
        dense->in = in;
        dense->out = c->hidden;
        dense->first = i == 0;
        dense->w = model_matrix(m, sqrt(2.0 / in), c->hidden, in, "layers.%d.weight", i);
        dense->b = model_zeros(m, c->hidden, "layers.%d.bias", i);
    }
    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the classes");
    head->width = c->hidden;
    head->vocab = s->classes;
    head->norm = (struct norm_part){NORM_LAYER, model_ones(m, c->hidden, "norm.weight"),
                                    model_zeros(m, c->hidden, "norm.bias"), 1e-5f};
    head->w = model_matrix(m, m->config.init_std, s->classes, c->hidden, ARCH_CLASSIFIER "weight");
    m->sample = image_sample(s, 1);
    return SOTTO_OK;
}

static bool mlp_alone(const struct model_config *c)
{
    (void)c;
    return true;
}

const struct arch arch_mlp = {.number = ARCH_MLP,
                              .name = "mlp",
                              .about = "dense layers over the pixels of images",
                              .hf_class = "SottoMLP",
                              ARCH_OPTIONS(struct mlp_config, options),
                              .defaults = mlp_defaults,
                              .check = mlp_check,
                              .image = mlp_image,
                              .alone = mlp_alone,
                              .from_json = mlp_from_json,
                              .to_json = mlp_to_json,
                              .build = mlp_build};
