/* DeMo (Peng et al. 2024) and FlexDeMo (From et al. 2025): in every step groups exchange the
 * largest coefficients of the cosine transform of their momenta, in chunks of a worker's elements
 * under any sharding, or in tiles of whole tensors, one message for each section.
 *
 * A chunk that begins at the end of a section and reaches into the next is in the first section's
 * message. */
#include <math.h>

#include "strategy/decoupled/codec.h"
#include "strategy/decoupled/decoupled.h"

enum demo_shape { SHAPE_AUTO, SHAPE_FLAT, SHAPE_TILE };
static const char *const shapes[] = {"auto", "flat", "tile", NULL};

struct demo_config {
    struct decoupled_config decoupled;
    int chunk, top;
    double rate;
    bool rate_said, top_said;
    int shape; /* enum demo_shape */
};

#define DEMO_RATE 0.03125
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define S struct demo_config
static const struct option options[] = {
    OPTION_INT(S, chunk, "64", 1, TILE_SIDE, "elements of a chunk; longest side of a tile"),
    {OPTION_OF(S, rate, OPTION_TYPE_REAL, TEXT(DEMO_RATE),
               "share of the coefficients of each chunk or tile that is sent, rounded down, at "
               "least one"),
     .min = 1e-12, .max = 1, .set_flag = offsetof(S, rate_said)},
    {OPTION_OF(S, top, OPTION_TYPE_INT, "0",
               "coefficients of each chunk or tile that are sent, at most all; 0: by rate; chunk = "
               "64, top = 32 is the published optimizer's default"),
     .max = TILE_SIDE * TILE_SIDE, .set_flag = offsetof(S, top_said)},
    OPTION_ENUM(
        S, shape, "auto", shapes,
        "flat: chunks of a worker's own elements; tile: tiles of tensors, if each worker owns all "
        "of them: under ddp, or in groups of one worker; auto: tile if possible"),
    DECOUPLED_OPTIONS,
    MESSAGE_OPTION,
};
#undef S

struct demo {
    struct decoupled decoupled;
    struct codec codec;
    int now;        /* section that is encoded or decoded */
    size_t decoded; /* own elements that are decoded in this step */
};

static bool in_tiles(const struct demo_config *c, const struct strategy_config *config)
{
    return c->shape == SHAPE_TILE || (c->shape == SHAPE_AUTO && strategy_owns_all(config));
}

static enum sotto_status resolve(void *own, const struct strategy_config *config)
{
    const struct demo_config *c = own;
    TRY(decoupled_resolve(own, config));
    if (c->top && c->rate != DEMO_RATE)
        return fail(SOTTO_EINVAL, "demo.top = %d and demo.rate = %g set the same: give one of them",
                    c->top, c->rate);
    if (c->shape == SHAPE_TILE && !strategy_owns_all(config))
        return fail(SOTTO_EINVAL,
                    "demo.shape = tile transforms whole tensors, but with %s each of the %d "
                    "workers of a group has a part: take flat, ddp, or groups of one worker",
                    config->sharding->name, config->workers / config->groups);
    const bool tiles = in_tiles(c, config);
    const int most = tiles ? c->chunk * c->chunk : c->chunk;
    if (c->top > most)
        return fail(SOTTO_EINVAL,
                    "demo.top = %d: %s of demo.chunk = %d has at most %d coefficients", c->top,
                    tiles ? "a tile" : "a chunk", c->chunk, most);
    return SOTTO_OK;
}

/* Of rate and top, drops the option that only the base configuration sets. */
static void set_aside_rate(void *own, const void *before)
{
    struct demo_config *c = own;
    const struct demo_config *base = before;
    const bool rate = c->rate != base->rate || (c->rate_said && !base->rate_said);
    const bool top = c->top != base->top || (c->top_said && !base->top_said);
    if (rate && !top)
        c->top = 0;
    if (top && !rate && c->top)
        c->rate = DEMO_RATE;
}

static void add_gradient_block(void *arg, size_t begin, size_t end)
{
    (void)begin;                  /* elements before it may have no tiles */
    decoupled_add_here(arg, end); /* m <- decay m + g       */
}

static enum sotto_status encode_job(void *arg)
{
    struct demo *m = arg;
    struct decoupled *d = &m->decoupled;
    codec_encode(&m->codec, m->now, d->base.is.across->rank, d->m.view, add_gradient_block, d);
    decoupled_add_here(d, m->codec.tiling.section[m->now].end); /* the rest, without tiles */
    return device_failed(m->codec.dev);
}

/* Applies Q to the decoded elements of the section. Decoded elements after the section belong to
 * the next one, which is applied before anything else is decoded. */
static void apply_decoded(struct demo *m)
{
    const size_t own = m->decoupled.ends[m->now];
    decoupled_apply_here(&m->decoupled, m->decoded < own ? m->decoded : own);
}

static void apply_block(void *arg, size_t begin, size_t end)
{
    struct demo *m = arg;
    m->decoupled.q_begin = m->decoupled.step.applied = begin;
    m->decoded = end;
    apply_decoded(m); /* Q <- sign Q, x <- Base(x, Q) */
}

static enum sotto_status decode_job(void *arg)
{
    struct demo *m = arg;
    struct decoupled *d = &m->decoupled;
    apply_decoded(m); /* decoded with the section before */
    codec_decode(&m->codec, m->now, d->q.view, apply_block, m);
    d->step.applied = d->ends[m->now];
    return device_failed(m->codec.dev);
}

static enum sotto_status demo_take(struct decoupled *d, int k)
{
    struct demo *m = (struct demo *)d;
    m->now = k;
    return work_run(&d->base.on, encode_job, m, /* m <- decay m + g;  q;  m <- m - decode(q) */
                    codec_encode_bytes(&m->codec, k) +
                        decoupled_gradient_bytes(d, m->codec.tiling.section[k].end));
}

static enum sotto_status demo_exchange(struct decoupled *d, struct comm *across, int k)
{
    const struct codec *c = &((struct demo *)d)->codec;
    const struct view all = codec_messages(c, k);
    const size_t bytes = c->section[k].bytes;
    return comm_allgather(across, all, view_at(all, (size_t)across->rank * bytes),
                          (size_t)across->size * bytes); /* q of all groups        */
}

static enum sotto_status demo_put(struct decoupled *d, int k)
{
    struct demo *m = (struct demo *)d;
    m->now = k;
    return work_run(&d->base.on, decode_job, m, /* Q = decode(their mean) */
                    codec_decode_bytes(&m->codec, k) + decoupled_apply_bytes(d, d->ends[k]));
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    static const struct section_ops section_ops = {demo_take, demo_exchange, demo_put};
    ((struct demo *)r)->decoded = 0;
    return decoupled_step((struct decoupled *)r, &section_ops, plan, scale); /* x <- Base(x, Q) */
}

static void free_demo(struct replicate *r)
{
    codec_free(&((struct demo *)r)->codec);
    decoupled_free(r);
}

static enum sotto_status init(struct replicate *r)
{
    struct demo *m = (struct demo *)r;
    const struct demo_config *c = replicate_options(r);
    const struct update_config *update = &c->decoupled.update;
    const struct tiling_rule rule = {c->chunk, c->top, c->top ? 0 : c->rate,
                                     in_tiles(c, r->is.config)};
    const enum codec_values values = update->sign == SIGN_BEFORE   ? CODEC_SIGNS
                                     : update->dtype == DTYPE_BF16 ? CODEC_BF16
                                                                   : CODEC_F32;
    const double size = rule.tiles ? c->chunk * c->chunk : c->chunk; /* an upper bound */
    const double value = values == CODEC_F32 ? 4 : values == CODEC_BF16 ? 2 : 0.25;
    struct decoupled *d = &m->decoupled;
    TRY(decoupled_init(r, (c->top ? c->top / size : c->rate) * (value + log2(size) / 8)));
    TRY(codec_init(&m->codec, r->is.dev, &rule, values, r->is.table, r->is.own, d->section,
                   r->is.across->size));
    TRY(replicate_buffer(r, &d->m, MEMORY_OUTER));
    return buffer_init(&d->q, r->is.dev, DTYPE_F32, codec_room(&m->codec), MEMORY_OUTER);
}

static const struct replicate_ops ops = {
    .in_step = true,
    .bytes = sizeof(struct demo),
    .init = init,
    .step = step,
    .ready = decoupled_ready,
    .visit = decoupled_visit,
    .free = free_demo,
};

const struct method method_demo = {
    .name = "demo",
    .axis = METHOD_REPLICATE,
    .about = "DeMo, with fsdp FlexDeMo: in every step groups exchange the largest cosine "
             "coefficients of their momenta",
    METHOD_OPTIONS(struct demo_config, options),
    METHOD_ONLY(decoupled_rules),
    .resolve = resolve,
    .set_aside = set_aside_rate,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .replicate = &ops,
};
