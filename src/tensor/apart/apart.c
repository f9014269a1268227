/* A device for tests: the cpu table behind what a GPU asks of its callers.
 *
 * Its memory is at addresses that no process has, so that whoever reads or writes it on the host
 * crashes. Its ops run late, in the order they were issued, so that whoever does not wait for them
 * or for another context's has other bits than the cpu: as late as can be, when somebody waits for
 * them, or with SOTTO_APART_DELAY, microseconds at most, now sooner and now later on a thread of
 * their own. The results are those of the cpu table, to the bit. SOTTO_APART_MEMORY is how many
 * bytes it says that it has left, in place of the host's, and SOTTO_APART_GPU which GPU it says
 * that it is. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/available.h"
#include "base/option/option.h"
#include "tensor/apart/line.h"
#include "tensor/cpu/cpu.h"

/* By variables of the environment, read as options are. */
struct asked {
    int64_t memory; /* -1: as the host's */
    int delay;
    int gpu; /* -1: none */
};
static const struct option variables[] = {
    {.key = "SOTTO_APART_MEMORY",
     .type = OPTION_TYPE_LONG,
     .offset = offsetof(struct asked, memory),
     .max = 1e18},
    {.key = "SOTTO_APART_DELAY",
     .type = OPTION_TYPE_INT,
     .offset = offsetof(struct asked, delay),
     .max = 1e6},
    {.key = "SOTTO_APART_GPU",
     .type = OPTION_TYPE_INT,
     .offset = offsetof(struct asked, gpu),
     .max = 1e6},
};

static enum sotto_status read_variables(struct asked *out)
{
    const struct option_section all = OPTION_SECTION("", "", variables, out);
    *out = (struct asked){.memory = -1, .gpu = -1};
    for (int i = 0; i < all.count; i++) {
        const char *text = getenv(variables[i].key);
        if (text)
            TRY(option_set(&all, 1, variables[i].key, text));
    }
    return SOTTO_OK;
}

struct apart {
    struct device cpu; /* what computes; the thread's, but while nothing runs */
    struct line *line;
    struct asked asked;
};

static struct apart *apart_of(const struct device *dev)
{
    return (struct apart *)(void *)(uintptr_t)dev->impl;
}

/* Above all that is mapped, also with five levels of page tables and below what pointers carry
 * tags in. */
static const uintptr_t away = (uintptr_t)1 << 54;

static struct view here(struct view v)
{
    assert(!v.data || v.place == PLACE_DEVICE);
    v.place = PLACE_HOST;
    if (v.data)
        v.data = (void *)((uintptr_t)v.data - away);
    return v;
}

static void issue(struct device *dev, line_job *job, const void *call, size_t bytes)
{
    line_issue(apart_of(dev)->line, job, call, bytes, NULL, 0);
}

/* Also takes over what has failed meanwhile. */
static void apart_sync(struct device *dev)
{
    struct apart *a = apart_of(dev);
    line_wait(a->line, line_issued(a->line));
    if (dev->failure.code == SOTTO_OK)
        dev->failure = a->cpu.failure;
}

static enum sotto_status apart_open(struct device *dev)
{
    struct apart *a = calloc(1, sizeof *a);
    if (!a)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    enum sotto_status st = read_variables(&a->asked);
    if (st == SOTTO_OK)
        st = device_open(&a->cpu, "cpu", dev->memory, dev->threads);
    if (st == SOTTO_OK)
        st = line_open(&a->line, &a->cpu, (unsigned)a->asked.delay);
    if (st != SOTTO_OK)
        free(a);
    else
        dev->impl = a;
    return st;
}

static void apart_close(struct device *dev)
{
    struct apart *a = apart_of(dev);
    if (!a)
        return;
    line_close(a->line);
    device_close(&a->cpu);
    free(a);
}

static int apart_number(const struct device *dev)
{
    return apart_of(dev)->asked.gpu;
}

static uint64_t apart_mark(struct device *dev)
{
    return line_issued(apart_of(dev)->line);
}

struct follow_call {
    struct line *line;
    uint64_t at;
};

static void follow_late(struct device *cpu, void *call)
{
    const struct follow_call *f = call;
    (void)cpu;
    line_wait(f->line, f->at);
    line_drop(f->line);
}

static void apart_follow(struct device *dev, struct device_mark mark)
{
    struct line *line = apart_of(mark.dev)->line;
    line_hold(line);
    issue(dev, follow_late, &(struct follow_call){line, mark.at}, sizeof(struct follow_call));
}

static void *apart_alloc(struct device *dev, size_t bytes)
{
    void *memory = host_alloc(dev, bytes);
    return memory ? (void *)((uintptr_t)memory + away) : NULL;
}

static void release_late(struct device *cpu, void *call)
{
    host_release(cpu, *(void **)call, 0);
}

static void apart_release(struct device *dev, void *memory, size_t bytes)
{
    void *real = (void *)((uintptr_t)memory - away);
    (void)bytes;
    issue(dev, release_late, &real, sizeof real);
}

static void apart_left(struct device *dev, size_t *left, size_t *all)
{
    const int64_t bytes = apart_of(dev)->asked.memory;
    const double host = available_memory("").bytes;
    *left = *all = bytes >= 0 ? (size_t)bytes : isfinite(host) ? (size_t)host : SIZE_MAX;
}

/* What is written travels with the call, or in memory that comes and goes where that is too long.
 */
struct write_call {
    struct view to;
    size_t count;
    void *copy;
};

static void write_late(struct device *cpu, void *call)
{
    struct write_call *w = call;
    host_write(cpu, w->to, w->copy ? w->copy : w + 1, w->count);
    free(w->copy);
}

static void apart_write(struct device *dev, struct view to, const void *host, size_t count)
{
    const size_t bytes = count * dtype_size(to.type);
    struct write_call w = {.to = here(to), .count = count};
    const bool fits = sizeof w + bytes <= LINE_CALL;
    if (!fits && !(w.copy = malloc(bytes))) {
        apart_sync(dev);
        host_write(dev, w.to, host, count);
        return;
    }
    if (!fits)
        memcpy(w.copy, host, bytes);
    line_issue(apart_of(dev)->line, write_late, &w, sizeof w, host, fits ? bytes : 0);
}

struct read_call {
    void *host;
    struct view from;
    size_t count;
};

static void read_late(struct device *cpu, void *call)
{
    const struct read_call *r = call;
    host_read(cpu, r->host, r->from, r->count);
}

static void apart_read(struct device *dev, void *host, struct view from, size_t count)
{
    issue(dev, read_late, &(struct read_call){host, here(from), count}, sizeof(struct read_call));
    apart_sync(dev);
}

struct squares_call {
    const struct pair *p;
    int n;
    double *sum, *each;
};

static void squares_late(struct device *cpu, void *call)
{
    const struct squares_call *s = call;
    *s->sum = 0;
    for (int i = 0; i < s->n; i++) {
        const struct pair p = {here(s->p[i].x), here(s->p[i].y), s->p[i].count};
        const double part = cpu->ops->sum_squares(cpu, &p, 1, NULL);
        *s->sum += part;
        if (s->each)
            s->each[i] = part;
    }
}

static double apart_sum_squares(struct device *dev, const struct pair *p, int n, double *each)
{
    double sum;
    issue(dev, squares_late, &(struct squares_call){p, n, &sum, each}, sizeof(struct squares_call));
    apart_sync(dev);
    return sum;
}

struct ranks_call {
    struct rank_sum p;
    int n_out, n;
};

static void ranks_late(struct device *cpu, void *call)
{
    const struct ranks_call *c = call;
    struct view all[2 * RANKS_MOST];
    (void)cpu;
    memcpy(all, c + 1, (size_t)(c->n_out + c->n) * sizeof *all);
    sum_ranks(&c->p, all, c->n_out, all + c->n_out);
}

static void apart_sum_ranks(struct device *dev, const struct rank_sum *p, const struct view *out,
                            int n_out, const struct view *x)
{
    const struct ranks_call c = {*p, n_out, p->nodes * p->each};
    struct view all[2 * RANKS_MOST];
    assert(c.n_out <= RANKS_MOST && c.n <= RANKS_MOST);
    for (int i = 0; i < c.n_out; i++)
        all[i] = here(out[i]);
    for (int i = 0; i < c.n; i++)
        all[c.n_out + i] = here(x[i]);
    line_issue(apart_of(dev)->line, ranks_late, &c, sizeof c, all,
               (size_t)(c.n_out + c.n) * sizeof *all);
}

struct foreign_call {
    device_call *call;
    int n;
};

static void foreign_late(struct device *cpu, void *call)
{
    const struct foreign_call *c = call;
    const struct view *v = (const struct view *)(const void *)(c + 1);
    const enum sotto_status st = c->call(NULL, v, v + c->n);
    if (st != SOTTO_OK)
        device_fail(cpu, st);
}

static void apart_call(struct device *dev, device_call *call, const struct view *v, int n,
                       const void *arg, size_t bytes)
{
    struct {
        struct view v[DEVICE_CALL_VIEWS];
        char arg[DEVICE_CALL_BYTES];
    } with;
    assert(n <= DEVICE_CALL_VIEWS && bytes <= DEVICE_CALL_BYTES);
    for (int i = 0; i < n; i++)
        with.v[i] = here(v[i]);
    if (bytes)
        memcpy((char *)&with.v[n], arg, bytes);
    line_issue(apart_of(dev)->line, foreign_late, &(struct foreign_call){call, n},
               sizeof(struct foreign_call), &with, (size_t)n * sizeof *with.v + bytes);
}

struct adamw_call {
    struct adamw p;
    int n;
};

struct sgd_call {
    struct sgd p;
    int n;
};

/* As many stretches as fit a call at once; they follow it. */
enum { STRETCHES = (LINE_CALL - 256) / sizeof(struct stretch) };

static void issue_stretches(struct device *dev, line_job *job, const void *call, size_t bytes,
                            const struct stretch *s, int n)
{
    struct stretch real[STRETCHES];
    for (int i = 0; i < n; i++)
        real[i] = (struct stretch){here(s[i].x), here(s[i].theta), here(s[i].g), here(s[i].m),
                                   here(s[i].v), s[i].count,       s[i].decay};
    line_issue(apart_of(dev)->line, job, call, bytes, real, (size_t)n * sizeof *real);
}

static void adamw_late(struct device *cpu, void *call)
{
    const struct adamw_call *c = call;
    for (int i = 0; i < c->n; i++) {
        struct stretch s;
        memcpy(&s, (const char *)(c + 1) + (size_t)i * sizeof s, sizeof s);
        cpu->ops->adamw(cpu, &c->p, &s, 1);
    }
}

static void apart_adamw(struct device *dev, const struct adamw *p, const struct stretch *s, int n)
{
    for (int at = 0; at < n; at += STRETCHES) {
        const struct adamw_call c = {*p, n - at < STRETCHES ? n - at : STRETCHES};
        issue_stretches(dev, adamw_late, &c, sizeof c, s + at, c.n);
    }
}

static void sgd_late(struct device *cpu, void *call)
{
    const struct sgd_call *c = call;
    for (int i = 0; i < c->n; i++) {
        struct stretch s;
        memcpy(&s, (const char *)(c + 1) + (size_t)i * sizeof s, sizeof s);
        cpu->ops->sgd(cpu, &c->p, &s, 1);
    }
}

static void apart_sgd(struct device *dev, const struct sgd *p, const struct stretch *s, int n)
{
    for (int at = 0; at < n; at += STRETCHES) {
        const struct sgd_call c = {*p, n - at < STRETCHES ? n - at : STRETCHES};
        issue_stretches(dev, sgd_late, &c, sizeof c, s + at, c.n);
    }
}

/* The other ops, each by its parameters behind the device: V a view, N a number, P a struct by
 * address, which is copied. LATE makes of them what a call carries, the function that issues it and
 * the job that runs it. */
#define ARGS_fill(V, N, P) V(y) N(size_t, count) N(float, value)
#define ARGS_copy(V, N, P) V(y) V(x) N(size_t, count)
#define ARGS_copy_rows(V, N, P) P(struct row_copy, p) V(y) V(x)
#define ARGS_axpy(V, N, P) V(y) N(float, a) V(x) N(size_t, count)
#define ARGS_axpby(V, N, P) V(y) N(float, b) N(float, a) V(x) N(size_t, count)
#define ARGS_scale(V, N, P) V(y) N(float, a) N(size_t, count)
#define ARGS_linear_forward(V, N, P) P(struct linear, p) V(y) V(x) V(w) V(bias) V(residual)
#define ARGS_linear_backward_x(V, N, P) P(struct linear, p) V(dx) V(dy) V(w) N(bool, add)
#define ARGS_linear_backward_w(V, N, P) P(struct linear, p) V(dw) V(dbias) V(dy) V(x)
#define ARGS_linear_backward(V, N, P)                                                              \
    P(struct linear, p) V(dx) V(dw) V(dbias) V(dy) V(x) V(w) N(bool, add)
#define ARGS_layernorm_forward(V, N, P) P(struct norm, p) V(y) V(x) V(gain) V(bias) V(stats)
#define ARGS_layernorm_backward(V, N, P)                                                           \
    P(struct norm, p) V(dx) V(dgain) V(dbias) V(dy) V(x) V(gain) V(stats) V(from)
#define ARGS_rmsnorm_forward(V, N, P) P(struct norm, p) V(y) V(x) V(gain) V(stats)
#define ARGS_rmsnorm_backward(V, N, P)                                                             \
    P(struct norm, p) V(dx) V(dgain) V(dy) V(x) V(gain) V(stats) V(from)
#define ARGS_gelu_forward(V, N, P) N(enum gelu_kind, kind) V(y) V(x) N(size_t, count)
#define ARGS_gelu_backward(V, N, P) N(enum gelu_kind, kind) V(dx) V(dy) V(x) N(size_t, count)
#define ARGS_swiglu_forward(V, N, P) V(y) V(gate) V(up) N(size_t, count)
#define ARGS_swiglu_backward(V, N, P) V(dgate) V(dup) V(dy) V(gate) V(up) N(size_t, count)
#define ARGS_rope(V, N, P) P(struct rope, p) V(x) N(bool, inverse)
#define ARGS_embedding_forward(V, N, P)                                                            \
    N(int, batch)                                                                                  \
    N(int, t) N(int, width) N(int, start) V(y) V(tokens) V(table) V(positions)
#define ARGS_embedding_backward(V, N, P)                                                           \
    N(int, batch) N(int, t) N(int, width) V(dtable) V(dpositions) V(tokens) V(dy)
#define ARGS_attention_forward(V, N, P) P(struct attention, p) V(o) V(q) V(k) V(v) V(lse)
#define ARGS_attention_backward(V, N, P)                                                           \
    P(struct attention, p) V(dq) V(dk) V(dv) V(dy) V(o) V(q) V(k) V(v) V(lse)
#define ARGS_conv_forward(V, N, P) P(struct conv, p) V(y) V(x) V(w) V(bias)
#define ARGS_conv_backward_x(V, N, P) P(struct conv, p) V(dx) V(dy) V(w) N(bool, add)
#define ARGS_conv_backward_w(V, N, P) P(struct conv, p) V(dw) V(dbias) V(dy) V(x)
#define ARGS_maxpool_forward(V, N, P) P(struct pooling, p) V(y) V(winner) V(x)
#define ARGS_maxpool_backward(V, N, P) P(struct pooling, p) V(dx) V(dy) V(winner)
#define ARGS_meanpool_forward(V, N, P) N(int, rows) N(int, pixels) N(int, channels) V(y) V(x)
#define ARGS_meanpool_backward(V, N, P) N(int, rows) N(int, pixels) N(int, channels) V(dx) V(dy)
#define ARGS_batchnorm_forward(V, N, P)                                                            \
    P(struct batchnorm, p)                                                                         \
    V(y) V(x) V(gain) V(bias) V(residual) V(running_mean) V(running_variance) V(stats)
#define ARGS_batchnorm_backward(V, N, P)                                                           \
    P(struct batchnorm, p) V(dx) V(dgain) V(dbias) V(dresidual) V(dy) V(x) V(y) V(gain) V(stats)
#define ARGS_relu_forward(V, N, P) V(y) V(x) N(size_t, count)
#define ARGS_relu_backward(V, N, P) V(dx) V(dy) V(y) N(size_t, count)
#define ARGS_cross_entropy(V, N, P)                                                                \
    N(int, rows)                                                                                   \
    N(int, vocab) V(logits) V(targets) N(float, scale) V(losses) V(places)
#define ARGS_tiles_encode(V, N, P) P(struct tiling, p) V(basis) V(m) V(index) V(value)
#define ARGS_tiles_decode(V, N, P)                                                                 \
    P(struct tiling, p)                                                                            \
    V(basis) N(int, senders) V(y) V(index) N(size_t, index_step) V(value) N(size_t, value_step)
#define ARGS_bits_pack(V, N, P) N(int, bits) V(y) V(x) N(size_t, count)
#define ARGS_bits_unpack(V, N, P) N(int, bits) V(y) V(x) N(size_t, count)
#define ARGS_sign(V, N, P) V(y) V(x) N(size_t, count)
#define ARGS_choose(V, N, P) P(struct shuffle, p) V(index) N(size_t, count)
#define ARGS_pick(V, N, P) P(struct picks, p) V(value) V(m) V(index)
#define ARGS_put(V, N, P) P(struct picks, p) V(y) N(float, a) V(value) V(index)
#define ARGS_signs_pack(V, N, P) V(y) V(x) N(size_t, count)
#define ARGS_signs_unpack(V, N, P) V(y) V(x) N(size_t, count) N(bool, add)
#define ARGS_co2(V, N, P) P(struct co2_step, p) V(x) V(now) V(m) V(sent) V(d) N(size_t, count)

#define FIELD_V(name) struct view name;
#define FIELD_N(type, name) type name;
#define PARAMETER_V(name) , struct view name
#define PARAMETER_N(type, name) , type name
#define PARAMETER_P(type, name) , const type *name
#define TAKE_V(name) here(name),
#define TAKE_N(type, name) name,
#define TAKE_P(type, name) *name,
#define PASS_V(name) , c->name
#define PASS_N(type, name) , c->name
#define PASS_P(type, name) , &c->name

#define LATE(op)                                                                                   \
    struct op##_call {                                                                             \
        ARGS_##op(FIELD_V, FIELD_N, FIELD_N)                                                       \
    };                                                                                             \
    static void op##_late(struct device *cpu, void *call)                                          \
    {                                                                                              \
        const struct op##_call *c = call;                                                          \
        cpu->ops->op(cpu ARGS_##op(PASS_V, PASS_N, PASS_P));                                       \
    }                                                                                              \
    static void apart_##op(struct device *dev ARGS_##op(PARAMETER_V, PARAMETER_N, PARAMETER_P))    \
    {                                                                                              \
        const struct op##_call c = {ARGS_##op(TAKE_V, TAKE_N, TAKE_P)};                            \
        issue(dev, op##_late, &c, sizeof c);                                                       \
    }

/* clang-format off */
LATE(fill) LATE(copy) LATE(copy_rows) LATE(axpy) LATE(axpby) LATE(scale)
LATE(linear_forward) LATE(linear_backward_x) LATE(linear_backward_w) LATE(linear_backward)
LATE(layernorm_forward) LATE(layernorm_backward) LATE(rmsnorm_forward) LATE(rmsnorm_backward)
LATE(gelu_forward) LATE(gelu_backward) LATE(swiglu_forward) LATE(swiglu_backward)
LATE(rope) LATE(embedding_forward) LATE(embedding_backward)
LATE(attention_forward) LATE(attention_backward) LATE(cross_entropy) LATE(co2)
LATE(conv_forward) LATE(conv_backward_x) LATE(conv_backward_w)
LATE(maxpool_forward) LATE(maxpool_backward) LATE(meanpool_forward) LATE(meanpool_backward)
LATE(batchnorm_forward) LATE(batchnorm_backward) LATE(relu_forward) LATE(relu_backward)
LATE(tiles_encode) LATE(tiles_decode) LATE(bits_pack) LATE(bits_unpack) LATE(sign)
LATE(choose) LATE(pick) LATE(put) LATE(signs_pack) LATE(signs_unpack)
    /* clang-format on */

    const struct ops ops_apart = {
        .name = "apart",
        .place = PLACE_DEVICE,
        .behind = "cpu",
        .open = apart_open,
        .close = apart_close,
        .alloc = apart_alloc,
        .release = apart_release,
        .left = apart_left,
        .write = apart_write,
        .read = apart_read,
        .sync = apart_sync,
        .mark = apart_mark,
        .follow = apart_follow,
        .sum_ranks = apart_sum_ranks,
        .call = apart_call,
        .number = apart_number,
        .linear_backward = apart_linear_backward,
        OPS_COMPUTE(apart),
};
