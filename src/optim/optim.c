#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "base/option/only.h"
#include "tensor/ops.h"

static const char *const kind_names[] = {"adamw", "sgd", NULL};
static const char *const decay_names[] = {"matrices", "all", NULL};
static const char *const schedule_names[] = {"constant", "linear", "cosine", "wsd",
                                             "step",     "cyclic", NULL};

/* An option whose flag `field`_said records if the user set the option. */
#define OPTION_SAID(S, field, kind, initial, about)                                                \
    OPTION_OF(S, field, kind, initial, about), .set_flag = offsetof(S, field##_said)

#define S struct optim_config
static const struct option options[] = {
    {OPTION_SAID(S, kind, OPTION_TYPE_ENUM, "adamw",
                 "optimizer; left out where the method has an option for it (`base`)"),
     .names = kind_names},
    {OPTION_SAID(S, lr, OPTION_TYPE_REAL, "1e-3",
                 "learning rate (the highest, where a schedule moves it)"),
     .min = 0, .max = 1e3, .also = "learning_rate"},
    OPTION_REAL(S, beta1, "0.9", 0, 0.999999, "adamw: decay of the first moment"),
    {OPTION_SAID(S, beta2, OPTION_TYPE_REAL, "0.95",
                 "adamw: decay of the second moment; a method's `base` may have its own default"),
     .min = 0, .max = 0.999999999},
    OPTION_REAL(S, eps, "1e-8", 0, 1, "adamw: added to the root of the second moment"),
    OPTION_REAL(S, momentum, "0", 0, 0.999999, "sgd: momentum"),
    OPTION_BOOL(S, nesterov, "false", "sgd: look ahead"),
    {OPTION_SAID(S, weight_decay, OPTION_TYPE_REAL, "0.1",
                 "adamw: decoupled; sgd: added to the gradient; a method's `base` may have its own "
                 "default"),
     .min = 0, .max = 1e3},
    OPTION_ENUM(S, decay, "matrices", decay_names, "tensors that are decayed"),
    OPTION_REAL(S, clip, "0", 0, 1e9, "largest global norm of the gradient; 0: off"),
    OPTION_ENUM(S, schedule, "cosine", schedule_names,
                "how the learning rate moves over the run; wsd: warm-up, stable, decay"),
    OPTION_LONG(S, warmup, "0", 0, 1e15, "rounds of linear warm-up"),
    OPTION_REAL(S, final, "0.1", 0, 1, "linear, cosine, wsd: share of lr left at the end"),
    OPTION_REAL(S, wsd_decay, "0.2", 0, 1,
                "wsd: share of the rounds, at the end, with a falling lr"),
    OPTION_REAL(S, step_factor, "0.1", 0, 1, "step: factor at each drop"),
    OPTION_LONG(S, step_every, "1000", 1, 1e15, "step: rounds between drops"),
    OPTION_REAL(S, cycle_floor, "0.1", 0, 1, "cyclic: lowest share of lr"),
    OPTION_LONG(S, cycle_rounds, "1000", 2, 1e15,
                "cyclic: rounds of one cycle; its peak halves each time"),
};
#undef S

static const struct option_only only[] = {
    {"beta1", "kind", "adamw"},
    {"beta2", "kind", "adamw"},
    {"eps", "kind", "adamw"},
    {"momentum", "kind", "sgd"},
    {"nesterov", "kind", "sgd"},
    {"final", "schedule", "linear, cosine, wsd"},
    {"wsd_decay", "schedule", "wsd"},
    {"step_factor", "schedule", "step"},
    {"step_every", "schedule", "step"},
    {"cycle_floor", "schedule", "cyclic"},
    {"cycle_rounds", "schedule", "cyclic"},
};
enum { OF_KIND = 5, RULES = sizeof only / sizeof *only }; /* rules of `kind` are first */

struct option_section optim_section(struct optim_config *c)
{
    struct option_section section =
        OPTION_SECTION("optim", "optimizer, learning rate and its schedule, clipping", options, c);
    section.only = only;
    section.n_only = RULES;
    return section;
}

void optim_defaults(struct optim_config *c)
{
    const struct option_section section = optim_section(c);
    option_defaults(&section, 1);
}

const char *optim_name(const struct optim_config *c)
{
    return kind_names[c->kind];
}

bool optim_keeps(const struct optim_config *c)
{
    return c->kind != OPTIM_SGD || c->momentum != 0;
}

enum sotto_status optim_check(struct optim_config *c, const char *chosen_by)
{
    const struct option_section section = optim_section(c);
    if (c->nesterov && c->kind == OPTIM_SGD && c->momentum == 0)
        return fail(SOTTO_EINVAL, "optim.nesterov needs optim.momentum > 0");
    const enum sotto_status st = option_only_check(&section, only, OF_KIND);
    if (st != SOTTO_OK)
        return chosen_by ? fail_in(st, "%s: ", chosen_by) : st;
    return option_only_check(&section, only + OF_KIND, RULES - OF_KIND);
}

void optim_set_aside(struct optim_config *c, const struct optim_config *base)
{
    const struct option_section section = optim_section(c);
    option_only_set_aside(&section, only, RULES, base);
}

double optim_clip(const struct optim_config *c, double squared_norm)
{
    double norm = sqrt(squared_norm);
    return c->clip > 0 && norm > c->clip ? c->clip / norm : 1;
}

double optim_bytes(const struct optim *o, size_t count, enum dtype g, size_t copy, bool peek)
{
    const int kept =
        1 + (o->state[0].dev != NULL) + (o->state[1].dev != NULL); /* x and the state */
    const size_t each = dtype_size(g) + copy + (peek ? 1 : 2) * (size_t)kept * sizeof(float);
    return (double)each * (double)count;
}

static const struct optim_ops *const members[] = {
    [OPTIM_ADAMW] = &optim_adamw,
    [OPTIM_SGD] = &optim_sgd,
};

int optim_states(const struct optim_config *config)
{
    return optim_keeps(config) ? members[config->kind]->states : 0;
}

enum sotto_status optim_init_lent(struct optim *o, const struct optim_config *config,
                                  struct device *dev, const struct table *table,
                                  const struct owned *owned)
{
    *o = (struct optim){.ops = members[config->kind], .config = config, .dev = dev, .lent = true};
    o->count = owned_count(owned, table);
    return owned_segments(owned, table, config->decay == DECAY_ALL, &o->segment, &o->n_segment);
}

void optim_lend(struct optim *o, const struct buffer state[2])
{
    o->state[0] = state[0];
    o->state[1] = state[1];
}

enum sotto_status optim_init(struct optim *o, const struct optim_config *config, struct device *dev,
                             const struct table *table, const struct owned *owned,
                             enum memory_category category)
{
    enum sotto_status st;
    TRY_DONE(optim_init_lent(o, config, dev, table, owned));
    o->lent = false;
    for (int i = 0; i < optim_states(config); i++)
        TRY_DONE(buffer_init(&o->state[i], dev, DTYPE_F32, o->count, category));
done:
    if (st != SOTTO_OK)
        optim_free(o);
    return st;
}

void optim_free(struct optim *o)
{
    free(o->segment);
    for (int i = 0; i < 2 && !o->lent; i++)
        buffer_free(&o->state[i]);
    *o = (struct optim){0};
}

/* Launches take stretches of parts, cut where the decay of the tensors changes: up to 16 at once,
 * so that no memory is needed for a list of all stretches. */
enum { STRETCHES = 16 };

struct optim_launch {
    struct optim *o;
    double lr, grad_scale;
    bool peek;
    struct stretch list[STRETCHES];
    int n;
};

static void launch_stretches(struct optim_launch *l)
{
    if (l->n)
        l->o->ops->apply(l->o, l->list, l->n, l->lr, l->grad_scale, l->peek);
    l->n = 0;
}

/* Adds the stretch of `p` inside segment `s`, if not empty. */
static void add_stretch(struct optim_launch *l, const struct part *p, const struct segment *s)
{
    const struct optim *o = l->o;
    const size_t begin = s->begin > p->begin ? s->begin : p->begin;
    const size_t end = s->end < p->end ? s->end : p->end;
    if (begin >= end)
        return;
    if (l->n == STRETCHES)
        launch_stretches(l);
    l->list[l->n++] = (struct stretch){.x = view_at(p->x, begin - p->begin),
                                       .theta = view_at(p->theta, begin - p->begin),
                                       .g = view_at(p->g, begin - p->begin),
                                       .m = view_at(o->state[0].view, begin),
                                       .v = view_at(o->state[1].view, begin),
                                       .count = end - begin,
                                       .decay = s->decay ? (float)o->config->weight_decay : 0};
}

static void apply_parts(struct optim *o, const struct part *part, int n, double lr,
                        double grad_scale, bool peek)
{
    struct optim_launch l; /* set field by field: the list needs no zeros */
    l.o = o;
    l.lr = lr;
    l.grad_scale = grad_scale;
    l.peek = peek;
    l.n = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < o->n_segment; k++)
            add_stretch(&l, &part[i], &o->segment[k]);
    launch_stretches(&l);
}

void optim_step_some(struct optim *o, const struct part *part, int n, double lr, double grad_scale)
{
    apply_parts(o, part, n, lr, grad_scale, false);
}

void optim_next(struct optim *o)
{
    o->t++;
}

void optim_step_parts(struct optim *o, const struct part *part, int n, double lr, double grad_scale)
{
    optim_step_some(o, part, n, lr, grad_scale);
    optim_next(o);
}

void optim_peek_parts(struct optim *o, const struct part *part, int n, double lr, double grad_scale)
{
    apply_parts(o, part, n, lr, grad_scale, true);
}

void optim_step(struct optim *o, struct view x, struct view theta, struct view g, double lr,
                double grad_scale)
{
    const struct part all = {.end = o->count, .x = x, .theta = theta, .g = g};
    optim_step_parts(o, &all, 1, lr, grad_scale);
}

void optim_peek(struct optim *o, struct view x, struct view out, struct view g, double lr,
                double grad_scale)
{
    const struct part all = {.end = o->count, .x = x, .theta = out, .g = g};
    optim_peek_parts(o, &all, 1, lr, grad_scale);
}
