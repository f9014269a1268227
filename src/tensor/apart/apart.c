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

/* Returns a copy of `n` stretches with host views, to be freed. */
static struct stretch *here_stretch(const struct stretch *s, int n)
{
    struct stretch *copy = malloc((size_t)(n + 1) * sizeof *copy);
    if (!copy)
        abort(); /* for tests */
    for (int i = 0; i < n; i++)
        copy[i] = (struct stretch){here(s[i].x), here(s[i].theta), here(s[i].g), here(s[i].m),
                                   here(s[i].v), s[i].count,       s[i].decay};
    return copy;
}

/* The other ops: struct axpy_call has the arguments of axpy, with host views; apart_axpy issues the
 * call, axpy_late runs it. */
#define FIELD_VIEW(name) struct view name;
#define FIELD_OPTIONAL(name) struct view name;
#define FIELD_VALUE(type, name) type name;
#define FIELD_STRUCT(tag, name) struct tag name;
#define FIELD_ARRAY(tag, name, n)                                                                  \
    struct tag *name;                                                                              \
    int n;
#define COPY_VIEW(name) here(name),
#define COPY_OPTIONAL(name) here(name),
#define COPY_VALUE(type, name) name,
#define COPY_STRUCT(tag, name) *name,
#define COPY_ARRAY(tag, name, n) here_##tag(name, n), n,
#define PASS_VIEW(name) , c->name
#define PASS_OPTIONAL(name) , c->name
#define PASS_VALUE(type, name) , c->name
#define PASS_STRUCT(tag, name) , &c->name
#define PASS_ARRAY(tag, name, n) , c->name, c->n
#define FREE_VIEW(name)
#define FREE_OPTIONAL(name)
#define FREE_VALUE(type, name)
#define FREE_STRUCT(tag, name)
#define FREE_ARRAY(tag, name, n) free(c->name);
#define OP(op, ...)                                                                                \
    struct op##_call {                                                                             \
        OP_EACH(FIELD_, __VA_ARGS__)                                                               \
    };                                                                                             \
    static void op##_late(struct device *cpu, void *call)                                          \
    {                                                                                              \
        const struct op##_call *c = call;                                                          \
        cpu->ops->op(cpu OP_EACH(PASS_, __VA_ARGS__));                                             \
        OP_EACH(FREE_, __VA_ARGS__)                                                                \
    }                                                                                              \
    __attribute__((unused)) static void apart_##op(OP_PARAMETERS(__VA_ARGS__))                     \
    {                                                                                              \
        const struct op##_call c = {OP_EACH(COPY_, __VA_ARGS__)};                                  \
        issue(dev, op##_late, &c, sizeof c);                                                       \
    }
#include "tensor/op_list.h"

const struct ops ops_apart = {
    .name = "apart",
    .place = PLACE_DEVICE,
    .computed_by = "cpu",
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
    .sum_squares = apart_sum_squares,
#define OP(op, ...) .op = apart_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
};
