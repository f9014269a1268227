/* DeMo (Peng et al. 2024) and FlexDeMo (From et al. 2025): in every step groups exchange the
 * largest coefficients of the cosine transform of their momenta. Chunks of what a worker owns under
 * any sharding, or tiles of whole tensors, in a message for each section.
 *
 * A chunk may begin at the end of one section and reach into the next: it is in the first one's
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
               "coefficients of each chunk or tile that are sent, or all that it has; 0: by rate; "
               "chunk = 64, top = 32 is the published optimizer's default"),
     .max = TILE_SIDE * TILE_SIDE, .set_flag = offsetof(S, top_said)},
    OPTION_ENUM(
        S, shape, "auto", shapes,
        "flat: chunks of what a worker owns; tile: tiles of tensors, where each worker owns "
        "all: under ddp, or in groups of one worker; auto: tile where that can be"),
    DECOUPLED_OPTIONS,
    MESSAGE_OPTION,
};
#undef S

struct demo {
    struct decoupled decoupled;
    struct codec codec;
    int now;        /* section that is coded */
    size_t decoded; /* of the step under way: elements before this one are */
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
        return fail(SOTTO_EINVAL, "demo.top = %d and demo.rate = %g say the same: give one of them",
                    c->top, c->rate);
    if (c->shape == SHAPE_TILE && !strategy_owns_all(config))
        return fail(SOTTO_EINVAL,
                    "demo.shape = tile transforms whole tensors, of which with %s each of the %d "
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

/* Of rate and top the one that is new. */
static void set_aside(void *own, const void *before)
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

static void add(void *arg, size_t begin, size_t end)
{
    (void)begin;                  /* and where nothing is encoded */
    decoupled_add_here(arg, end); /* m <- decay m + g       */
}

static enum sotto_status encode(void *arg)
{
    struct demo *m = arg;
    struct decoupled *d = &m->decoupled;
    codec_encode(&m->codec, m->now, d->base.is.across->rank, d->m.view, add, d);
    decoupled_add_here(d, m->codec.cut.section[m->now].end); /* and where nothing is encoded */
    return device_failed(m->codec.dev);
}

/* What is decoded of the section. Of the rest there are no parameters; or the section that it
 * belongs to is next, before anything else is decoded. */
static void apply_decoded(struct demo *m)
{
    const size_t own = m->decoupled.ends[m->now];
    decoupled_apply_here(&m->decoupled, m->decoded < own ? m->decoded : own);
}

static void apply(void *arg, size_t begin, size_t end)
{
    struct demo *m = arg;
    m->decoupled.from = m->decoupled.applied = begin;
    m->decoded = end;
    apply_decoded(m); /* Q <- sign Q, x <- Base(x, Q) */
}

static enum sotto_status decode(void *arg)
{
    struct demo *m = arg;
    struct decoupled *d = &m->decoupled;
    apply_decoded(m); /* with the section before */
    codec_decode(&m->codec, m->now, d->q.view, apply, m);
    d->applied = d->ends[m->now];
    return device_failed(m->codec.dev);
}

static enum sotto_status take(struct decoupled *d, int k)
{
    struct demo *m = (struct demo *)d;
    m->now = k;
    return work_run(&d->base.on, encode, m, /* m <- decay m + g;  q;  m <- m - decode(q) */
                    codec_encode_bytes(&m->codec, k) +
                        decoupled_gradient_bytes(d, m->codec.cut.section[k].end));
}

static enum sotto_status exchange(struct decoupled *d, struct comm *across, int k)
{
    const struct codec *c = &((struct demo *)d)->codec;
    const struct view all = codec_messages(c, k);
    const size_t bytes = c->section[k].bytes;
    return comm_allgather(across, all, view_at(all, (size_t)across->rank * bytes),
                          (size_t)across->size * bytes); /* q of all groups        */
}

static enum sotto_status put(struct decoupled *d, int k)
{
    struct demo *m = (struct demo *)d;
    m->now = k;
    return work_run(&d->base.on, decode, m, /* Q = decode(their mean) */
                    codec_decode_bytes(&m->codec, k) + decoupled_apply_bytes(d, d->ends[k]));
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    static const struct decoupled_sections does = {take, exchange, put};
    ((struct demo *)r)->decoded = 0;
    return decoupled_step((struct decoupled *)r, &does, plan, scale); /* x <- Base(x, Q) */
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
    const struct cut_rule rule = {c->chunk, c->top, c->top ? 0 : c->rate,
                                  in_tiles(c, r->is.config)};
    const enum codec_values values = update->sign == SIGN_BEFORE   ? CODEC_SIGNS
                                     : update->dtype == DTYPE_BF16 ? CODEC_BF16
                                                                   : CODEC_F32;
    const double size = rule.tiles ? c->chunk * c->chunk : c->chunk; /* or less */
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
    .set_aside = set_aside,
    .optimizer = decoupled_optimizer,
    .optimizer_key = "base",
    .replicate = &ops,
};
