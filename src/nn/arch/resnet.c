/* ResNet (He et al. 2015): groups of residual blocks, of two 3x3 convolutions or of a bottleneck of
 * three; each group after the first halves the image. Batch norm after every convolution. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/arch/image.h"

enum { GROUPS = 8, REDUCTION = 4 }; /* a bottleneck is narrower inside by this factor */
enum { BLOCK_OPEN, BLOCK_BASIC, BLOCK_BOTTLENECK };
enum { STEM_OPEN, STEM_IMAGENET, STEM_CIFAR };
enum { NO_WORD, NO, YES };

static const char *const blocks[] = {"preset", "basic", "bottleneck", NULL};
static const char *const stems[] = {"preset", "imagenet", "cifar", NULL};
static const char *const words[] = {"preset", "no", "yes", NULL};

struct resnet_config {
    struct image_sizes image;
    int block, stem, stem_width, first_halves, halves_early;
    char depths[64], widths[64];
};

#define S struct resnet_config
static const struct option options[] = {
    OPTION_TEXT(S, depths, "", "blocks of each group, as 2,2,2,2; empty: the preset's"),
    OPTION_TEXT(S, widths, "", "channels of each group, as 64,128,256,512; empty: the preset's"),
    OPTION_ENUM(S, block, "preset", blocks, "two 3x3 convolutions, or 1x1, 3x3 and 1x1"),
    OPTION_ENUM(S, stem, "preset", stems,
                "imagenet: 7x7 at every second pixel and max pooling; cifar: 3x3"),
    OPTION_INT(S, stem_width, "0", 0, 1 << 16,
               "channels of the stem; 0: the first group's, or a quarter for bottlenecks"),
    OPTION_ENUM(S, first_halves, "preset", words, "whether the first group halves the image, too"),
    OPTION_ENUM(S, halves_early, "preset", words,
                "whether a bottleneck halves in its first convolution, not in its second"),
    IMAGE_OPTIONS(S),
};
#undef S

static const struct resnet_config *resnet_own(const struct model_config *c)
{
    return arch_own(c, &arch_resnet);
}

/* Reads a list of numbers into `out`. Returns their count, 0 if the text is no list. */
static int read_list(const char *text, int out[GROUPS])
{
    int n = 0;
    for (const char *at = text; n < GROUPS; at++) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 1 || number > 1 << 16)
            return 0;
        out[n++] = (int)number;
        at = end + strspn(end, " ");
        if (*at == '\0')
            return n;
        if (*at != ',')
            return 0;
    }
    return 0;
}

static void write_list(char out[64], const int *list, int n)
{
    size_t at = 0;
    memset(out, 0, 64);
    for (int i = 0; i < n && at < 56; i++)
        at += (size_t)sprintf(out + at, "%s%d", i ? "," : "", list[i]);
}

struct resnet_groups {
    int n, depth[GROUPS], width[GROUPS], blocks;
};

static enum sotto_status read_groups(const struct resnet_config *r, struct resnet_groups *g)
{
    g->blocks = 0;
    g->n = read_list(r->depths, g->depth);
    if (!g->n)
        return fail(SOTTO_EINVAL, "resnet.depths = '%s' must be 1 to %d numbers from 1 to 65536",
                    r->depths, GROUPS);
    if (read_list(r->widths, g->width) != g->n)
        return fail(SOTTO_EINVAL,
                    "resnet.widths = '%s' must be numbers from 1 to 65536, the same number of them "
                    "as of depths (%d)",
                    r->widths, g->n);
    for (int i = 0; i < g->n; i++)
        g->blocks += g->depth[i];
    return SOTTO_OK;
}

static void resnet_defaults(struct model_config *c)
{
    struct resnet_config *r = arch_config(c, &arch_resnet);
    struct resnet_groups g;
    r->block = r->block ? r->block : BLOCK_BASIC;
    r->stem = r->stem ? r->stem : STEM_IMAGENET;
    r->first_halves = r->first_halves ? r->first_halves : NO;
    r->halves_early = r->halves_early ? r->halves_early : NO;
    const bool basic = r->block == BLOCK_BASIC;
    if (!*r->depths)
        strcpy(r->depths, basic ? "2,2,2,2" : "3,4,6,3");
    if (!*r->widths)
        strcpy(r->widths, basic ? "64,128,256,512" : "256,512,1024,2048");
    if (read_groups(r, &g) != SOTTO_OK)
        return; /* check reports the error */
    write_list(r->depths, g.depth, g.n);
    write_list(r->widths, g.width, g.n);
    if (!r->stem_width)
        r->stem_width = basic || g.width[0] < REDUCTION ? g.width[0] : g.width[0] / REDUCTION;
}

static enum sotto_status resnet_check(const struct model_config *c)
{
    const struct resnet_config *r = resnet_own(c);
    struct resnet_groups g;
    TRY(read_groups(r, &g));
    if (g.blocks > 1024)
        return fail(SOTTO_EINVAL, "resnet.depths = '%s' are %d blocks, at most 1024 are possible",
                    r->depths, g.blocks);
    for (int i = 0; i < g.n; i++)
        if (r->block == BLOCK_BOTTLENECK && g.width[i] % REDUCTION)
            return fail(SOTTO_EINVAL,
                        "resnet.widths: %d channels of bottlenecks are no multiple "
                        "of %d",
                        g.width[i], REDUCTION);
    if (r->stem_width < 1 || r->stem_width > 1 << 16)
        return fail(SOTTO_EINVAL, "resnet.stem_width = %d must be in 1 to 65536", r->stem_width);
    return image_check(&r->image, "resnet");
}

static struct image_sizes *resnet_image(struct model_config *c)
{
    return &((struct resnet_config *)arch_config(c, &arch_resnet))->image;
}

/* Sizes and channels of the input of the next convolution or block; updated as layers are added. */
struct block_input {
    int h, w, width;
};

static struct block_input output_of_conv(const struct conv_part *p)
{
    return (struct block_input){conv_side(p, p->h), conv_side(p, p->w), p->out};
}

/* Adds a convolution and its norm. Kernels start with He et al. 2015's std for the output channels.
 */
static struct conv_part add_conv(struct model *m, const char *name, struct block_input x, int out,
                                 int kernel, int stride)
{
    const double std = sqrt(2.0 / ((double)out * kernel * kernel));
    return (struct conv_part){
        .h = x.h,
        .w = x.w,
        .in = x.width,
        .out = out,
        .kernel = kernel,
        .stride = stride,
        .weight = model_kernel(m, std, out, kernel, x.width, "%s.convolution.weight", name),
        .gain = model_ones(m, out, "%s.normalization.weight", name),
        .bias = model_zeros(m, out, "%s.normalization.bias", name),
        .mean = model_state(m, false, out, "%s.normalization.running_mean", name),
        .variance = model_state(m, true, out, "%s.normalization.running_var", name),
        .seen = model_counter(m, "%s.normalization.num_batches_tracked", name)};
}

static enum sotto_status add_stem(struct model *m, struct block_input *s)
{
    const struct resnet_config *r = resnet_own(&m->config);
    struct stem_layer *stem = model_begin(m, &stem_ops, sizeof *stem);
    if (!stem)
        return fail(SOTTO_ENOMEM, "no memory for the stem");
    const bool wide = r->stem == STEM_IMAGENET;
    const struct block_input images = {r->image.height, r->image.width, r->image.channels};
    stem->conv =
        add_conv(m, "resnet.embedder.embedder", images, r->stem_width, wide ? 7 : 3, wide ? 2 : 1);
    stem->pools = wide;
    stem_sides(stem, &s->h, &s->w);
    s->width = r->stem_width;
    return SOTTO_OK;
}

/* Cuts the block that was begun last into a slice for each convolution. */
static enum sotto_status slice_block(struct model *m)
{
    struct slice_layer *l = (struct slice_layer *)m->layer[m->n_layer - 1];
    l->block.base.ops = &slice_ops;
    l->to = 1;
    for (int i = 1; i < l->block.parts; i++) {
        struct slice_layer *next = model_split(m, &slice_ops, sizeof *next);
        if (!next)
            return fail(SOTTO_ENOMEM, "no memory for the slices of a block");
        next->from = i;
        next->to = i + 1;
        model_take(m, next->block.part[i].weight);
        model_take(m, next->block.part[i].gain);
        model_take(m, next->block.part[i].bias);
    }
    return SOTTO_OK;
}

static enum sotto_status add_block(struct model *m, struct block_input *s, int group, int block,
                                   int width, int stride)
{
    const struct resnet_config *r = resnet_own(&m->config);
    const bool basic = r->block == BLOCK_BASIC, early = r->halves_early == YES;
    struct residual_layer *l = model_begin(m, &residual_ops, sizeof(struct slice_layer));
    char name[RESIDUAL_PARTS + 1][64];
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for block %d of group %d", block, group);
    for (int i = 0; i < RESIDUAL_PARTS; i++)
        snprintf(name[i], sizeof *name, "resnet.encoder.stages.%d.layers.%d.layer.%d", group, block,
                 i);
    snprintf(name[3], sizeof *name, "resnet.encoder.stages.%d.layers.%d.shortcut", group, block);
    if (basic) {
        l->parts = 2;
        l->part[0] = add_conv(m, name[0], *s, width, 3, stride);
        l->part[1] = add_conv(m, name[1], output_of_conv(&l->part[0]), width, 3, 1);
    } else {
        const int inside = width / REDUCTION;
        l->parts = 3;
        l->part[0] = add_conv(m, name[0], *s, inside, 1, early ? stride : 1);
        l->part[1] =
            add_conv(m, name[1], output_of_conv(&l->part[0]), inside, 3, early ? 1 : stride);
        l->part[2] = add_conv(m, name[2], output_of_conv(&l->part[1]), width, 1, 1);
    }
    l->projects = s->width != width || stride != 1;
    if (l->projects)
        l->shortcut = add_conv(m, name[3], *s, width, 1, stride);
    *s = output_of_conv(&l->part[l->parts - 1]);
    return SOTTO_OK;
}

static enum sotto_status resnet_build(struct model *m)
{
    const struct resnet_config *r = resnet_own(&m->config);
    struct resnet_groups g;
    struct block_input s;
    TRY(read_groups(r, &g));
    const bool slices = m->n_stage > g.blocks + 2; /* more stages than blocks, stem and head */
    TRY(add_stem(m, &s));
    for (int i = 0; i < g.n; i++)
        for (int j = 0; j < g.depth[i]; j++) {
            const bool halves = j == 0 && (i > 0 || r->first_halves == YES);
            TRY(add_block(m, &s, i, j, g.width[i], halves ? 2 : 1));
            if (slices)
                TRY(slice_block(m));
        }
    struct classify_layer *head = model_begin(m, &classify_ops, sizeof *head);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the classifier");
    head->width = s.width;
    head->classes = r->image.classes;
    head->pixels = s.h * s.w;
    head->w =
        model_matrix(m, m->config.init_std, r->image.classes, s.width, ARCH_CLASSIFIER "1.weight");
    head->b = model_zeros(m, r->image.classes, ARCH_CLASSIFIER "1.bias");
    m->sample = image_sample(&r->image, 1);
    return SOTTO_OK;
}

static enum sotto_status read_numbers(const json_t *json, const char *key, const char *absent,
                                      char out[64])
{
    const json_t *list = json_object_get(json, key), *one;
    int numbers[GROUPS];
    size_t i;
    if (!list || json_is_null(list)) {
        strcpy(out, absent);
        return SOTTO_OK;
    }
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > GROUPS)
        return fail(SOTTO_EFORMAT, "\"%s\" must be a list of 1 to %d integers", key, GROUPS);
    json_array_foreach(list, i, one)
    {
        if (!json_is_integer(one) || json_integer_value(one) < 1 ||
            json_integer_value(one) > 1 << 16)
            return fail(SOTTO_EFORMAT, "\"%s\" must be integers from 1 to 65536", key);
        numbers[i] = (int)json_integer_value(one);
    }
    write_list(out, numbers, (int)json_array_size(list));
    return SOTTO_OK;
}

/* Reads config.json. "stem" is sotto's own: transformers has only ImageNet's. */
static enum sotto_status resnet_from_json(struct model_config *c, const json_t *json)
{
    static const char *const relu[] = {"relu", NULL}, *const kinds[] = {"bottleneck", "basic",
                                                                        NULL};
    static const char *const stem[] = {"imagenet", "cifar", NULL};
    struct resnet_config *r = arch_config(c, &arch_resnet);
    TRY(arch_expect(json, "hidden_act", relu));
    TRY(arch_expect(json, "layer_type", kinds));
    TRY(arch_expect(json, "stem", stem));
    TRY(read_numbers(json, "depths", "3,4,6,3", r->depths));
    TRY(read_numbers(json, "hidden_sizes", "256,512,1024,2048", r->widths));
    r->stem_width = 64;
    TRY(image_integer(json, "embedding_size", &r->stem_width));
    const char *kind = json_string_value(json_object_get(json, "layer_type"));
    const char *first = json_string_value(json_object_get(json, "stem"));
    r->block = kind && strcmp(kind, "basic") == 0 ? BLOCK_BASIC : BLOCK_BOTTLENECK;
    r->stem = first && strcmp(first, "cifar") == 0 ? STEM_CIFAR : STEM_IMAGENET;
    r->first_halves = json_get_bool_or(json, "downsample_in_first_stage", false) ? YES : NO;
    r->halves_early = json_get_bool_or(json, "downsample_in_bottleneck", false) ? YES : NO;
    return image_read(&r->image, json);
}

static json_t *resnet_to_json(const struct model_config *c)
{
    const struct resnet_config *r = resnet_own(c);
    json_t *json = json_object(), *depths = json_array(), *widths = json_array();
    struct resnet_groups g = {0};
    if (read_groups(r, &g) == SOTTO_OK)
        for (int i = 0; i < g.n; i++) {
            json_array_append_new(depths, json_integer(g.depth[i]));
            json_array_append_new(widths, json_integer(g.width[i]));
        }
    json_object_set_new(json, "architectures", json_pack("[s]", arch_resnet.hf_class));
    json_object_set_new(json, "depths", depths);
    json_object_set_new(json, "hidden_sizes", widths);
    json_object_set_new(json, "embedding_size", json_integer(r->stem_width));
    json_object_set_new(json, "layer_type", json_string(blocks[r->block]));
    json_object_set_new(json, "hidden_act", json_string("relu"));
    json_object_set_new(json, "downsample_in_first_stage", json_boolean(r->first_halves == YES));
    json_object_set_new(json, "downsample_in_bottleneck", json_boolean(r->halves_early == YES));
    if (r->stem != STEM_IMAGENET)
        json_object_set_new(json, "stem", json_string(stems[r->stem]));
    image_write(&r->image, json);
    return json;
}

static bool resnet_alone(const struct model_config *c)
{
    const struct resnet_config *r = arch_own(c, &arch_resnet);
    return r->stem == STEM_CIFAR;
}

const struct arch arch_resnet = {.number = ARCH_RESNET,
                                 .name = "resnet",
                                 .about =
                                     "ResNet (2015): residual blocks of convolutions over images",
                                 .hf_class = "ResNetForImageClassification",
                                 ARCH_OPTIONS(struct resnet_config, options),
                                 .defaults = resnet_defaults,
                                 .check = resnet_check,
                                 .image = resnet_image,
                                 .alone = resnet_alone,
                                 .from_json = resnet_from_json,
                                 .to_json = resnet_to_json,
                                 .build = resnet_build};
