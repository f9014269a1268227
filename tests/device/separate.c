/* The separate-memory device, for tests: the cpu table under the conditions that a GPU sets. Its
 * name as an option is "apart".
 *
 * Addresses of its memory are invalid for the process, so a host access crashes. Ops run late, in
 * the order they were issued, so a caller that does not wait for them, or for those of another
 * context, gets other bits than from the cpu. With the right waits the results are the cpu's, to
 * the bit. Settings are variables of the environment:
 *
 *     SOTTO_APART_DELAY   microseconds, at most, that an op runs late on the device's own thread; 0
 *                         (default): ops run when a caller waits for them
 *     SOTTO_APART_MEMORY  bytes reported as free, in place of the host's free memory
 *     SOTTO_APART_GPU     number of the GPU that the device reports to be; default: no GPU */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/available.h"
#include "base/option/option.h"
#include "op_queue.h"
#include "tensor/cpu/cpu.h"

struct separate_settings {
    int64_t memory; /* bytes; -1: the host's free memory */
    int delay;      /* microseconds */
    int gpu;        /* -1: no GPU */
};
static const struct option variables[] = {
    {.key = "SOTTO_APART_MEMORY",
     .type = OPTION_TYPE_LONG,
     .offset = offsetof(struct separate_settings, memory),
     .max = 1e18},
    {.key = "SOTTO_APART_DELAY",
     .type = OPTION_TYPE_INT,
     .offset = offsetof(struct separate_settings, delay),
     .max = 1e6},
    {.key = "SOTTO_APART_GPU",
     .type = OPTION_TYPE_INT,
     .offset = offsetof(struct separate_settings, gpu),
     .max = 1e6},
};

static enum sotto_status read_variables(struct separate_settings *out)
{
    const struct option_section all = OPTION_SECTION("", "", variables, out);
    *out = (struct separate_settings){.memory = -1, .gpu = -1};
    for (int i = 0; i < all.count; i++) {
        const char *text = getenv(variables[i].key);
        if (text)
            TRY(option_set(&all, 1, variables[i].key, text));
    }
    return SOTTO_OK;
}

struct separate {
    struct device cpu; /* the device that computes; only queued calls use it while any is pending */
    struct op_queue *queue;
    struct separate_settings settings;
};

static struct separate *separate_of(const struct device *dev)
{
    return (struct separate *)(void *)(uintptr_t)dev->impl;
}

/* Distance from host memory to the device's addresses: above all mapped addresses, also with five
 * levels of page tables, and below the bits in which pointers carry tags. */
static const uintptr_t address_offset = (uintptr_t)1 << 54;

/* Returns the view of host memory under a view of the device. */
static struct view host_view(struct view v)
{
    assert(!v.data || v.place == PLACE_DEVICE);
    v.place = PLACE_HOST;
    if (v.data)
        v.data = (void *)((uintptr_t)v.data - address_offset);
    return v;
}

/* Appends a call of `run` with a copy of `bytes` of `call` to the device's queue. */
static void issue_call(struct device *dev, queued_function *run, const void *call, size_t bytes)
{
    op_queue_issue(separate_of(dev)->queue, run, call, bytes, NULL, 0);
}

/* Also takes over the failure of a call that is done. */
static void separate_sync(struct device *dev)
{
    struct separate *a = separate_of(dev);
    op_queue_wait(a->queue, op_queue_issued(a->queue));
    if (dev->failure.code == SOTTO_OK)
        dev->failure = a->cpu.failure;
}

static enum sotto_status separate_open(struct device *dev)
{
    struct separate *a = calloc(1, sizeof *a);
    if (!a)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    enum sotto_status st = read_variables(&a->settings);
    a->cpu = (struct device){.ops = &ops_cpu, .memory = dev->memory, .threads = dev->threads};
    if (st == SOTTO_OK)
        st = ops_cpu.open(&a->cpu);
    if (st == SOTTO_OK)
        st = op_queue_open(&a->queue, &a->cpu, (unsigned)a->settings.delay);
    if (st != SOTTO_OK)
        free(a);
    else
        dev->impl = a;
    return st;
}

static void separate_close(struct device *dev)
{
    struct separate *a = separate_of(dev);
    if (!a)
        return;
    op_queue_close(a->queue);
    device_close(&a->cpu);
    free(a);
}

static int separate_number(const struct device *dev)
{
    return separate_of(dev)->settings.gpu;
}

static uint64_t separate_mark(struct device *dev)
{
    return op_queue_issued(separate_of(dev)->queue);
}

struct follow_call {
    struct op_queue *queue;
    uint64_t at;
};

/* Functions named *_late run a queued call on the cpu device. */
static void follow_late(struct device *cpu, void *call)
{
    const struct follow_call *f = call;
    (void)cpu;
    op_queue_wait(f->queue, f->at);
    op_queue_release(f->queue);
}

static void separate_follow(struct device *dev, struct device_mark mark)
{
    struct op_queue *queue = separate_of(mark.dev)->queue;
    op_queue_hold(queue);
    issue_call(dev, follow_late, &(struct follow_call){queue, mark.at}, sizeof(struct follow_call));
}

static void *separate_alloc(struct device *dev, size_t bytes)
{
    void *memory = host_alloc(dev, bytes);
    return memory ? (void *)((uintptr_t)memory + address_offset) : NULL;
}

static void release_late(struct device *cpu, void *call)
{
    host_release(cpu, *(void **)call, 0);
}

static void separate_release(struct device *dev, void *memory, size_t bytes)
{
    void *real = (void *)((uintptr_t)memory - address_offset);
    (void)bytes;
    issue_call(dev, release_late, &real, sizeof real);
}

static void separate_left(struct device *dev, size_t *left, size_t *all)
{
    const int64_t bytes = separate_of(dev)->settings.memory;
    const double host = available_memory("").bytes;
    *left = *all = bytes >= 0 ? (size_t)bytes : isfinite(host) ? (size_t)host : SIZE_MAX;
}

/* The data follow the call in the queue, or are in `copy` if they are too long for the queue. */
struct write_call {
    struct view to;
    size_t count;
    void *copy; /* freed after the call; NULL: data follow the call */
};

static void write_late(struct device *cpu, void *call)
{
    struct write_call *w = call;
    host_write(cpu, w->to, w->copy ? w->copy : w + 1, w->count);
    free(w->copy);
}

static void separate_write(struct device *dev, struct view to, const void *host, size_t count)
{
    const size_t bytes = count * dtype_size(to.type);
    struct write_call w = {.to = host_view(to), .count = count};
    const bool fits = sizeof w + bytes <= OP_QUEUE_CALL;
    if (!fits && !(w.copy = malloc(bytes))) {
        separate_sync(dev);
        host_write(dev, w.to, host, count);
        return;
    }
    if (!fits)
        memcpy(w.copy, host, bytes);
    op_queue_issue(separate_of(dev)->queue, write_late, &w, sizeof w, host, fits ? bytes : 0);
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

static void separate_read(struct device *dev, void *host, struct view from, size_t count)
{
    issue_call(dev, read_late, &(struct read_call){host, host_view(from), count},
               sizeof(struct read_call));
    separate_sync(dev);
}

struct squares_call {
    const struct vector_pair *p;
    int n;
    double *sum, *each;
};

static void squares_late(struct device *cpu, void *call)
{
    const struct squares_call *s = call;
    *s->sum = 0;
    for (int i = 0; i < s->n; i++) {
        const struct vector_pair p = {host_view(s->p[i].x), host_view(s->p[i].y), s->p[i].count};
        const double part = cpu->ops->sum_squares(cpu, &p, 1, NULL);
        *s->sum += part;
        if (s->each)
            s->each[i] = part;
    }
}

static double separate_sum_squares(struct device *dev, const struct vector_pair *p, int n,
                                   double *each)
{
    double sum;
    issue_call(dev, squares_late, &(struct squares_call){p, n, &sum, each},
               sizeof(struct squares_call));
    separate_sync(dev);
    return sum;
}

/* Views of the outputs and of the inputs follow the call. */
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

static void separate_sum_ranks(struct device *dev, const struct rank_sum *p, const struct view *out,
                               int n_out, const struct view *x)
{
    const struct ranks_call c = {*p, n_out, p->nodes * p->each};
    struct view all[2 * RANKS_MOST];
    assert(c.n_out <= RANKS_MOST && c.n <= RANKS_MOST);
    for (int i = 0; i < c.n_out; i++)
        all[i] = host_view(out[i]);
    for (int i = 0; i < c.n; i++)
        all[c.n_out + i] = host_view(x[i]);
    op_queue_issue(separate_of(dev)->queue, ranks_late, &c, sizeof c, all,
                   (size_t)(c.n_out + c.n) * sizeof *all);
}

/* `n` views and the argument of `call` follow. */
struct foreign_call {
    device_call *call;
    int n; /* views */
};

static void foreign_late(struct device *cpu, void *call)
{
    const struct foreign_call *c = call;
    const struct view *v = (const struct view *)(const void *)(c + 1);
    const enum sotto_status st = c->call(NULL, v, v + c->n);
    if (st != SOTTO_OK)
        device_fail(cpu, st);
}

static void separate_call(struct device *dev, device_call *call, const struct view *v, int n,
                          const void *arg, size_t bytes)
{
    struct {
        struct view v[DEVICE_CALL_VIEWS];
        char arg[DEVICE_CALL_BYTES];
    } with;
    assert(n <= DEVICE_CALL_VIEWS && bytes <= DEVICE_CALL_BYTES);
    for (int i = 0; i < n; i++)
        with.v[i] = host_view(v[i]);
    if (bytes)
        memcpy((char *)&with.v[n], arg, bytes);
    op_queue_issue(separate_of(dev)->queue, foreign_late, &(struct foreign_call){call, n},
                   sizeof(struct foreign_call), &with, (size_t)n * sizeof *with.v + bytes);
}

/* Returns a copy of `n` stretches with host views, to be freed. */
static struct stretch *host_stretch(const struct stretch *s, int n)
{
    struct stretch *copy = malloc((size_t)(n + 1) * sizeof *copy);
    if (!copy)
        abort(); /* for tests */
    for (int i = 0; i < n; i++)
        copy[i] = (struct stretch){host_view(s[i].x), host_view(s[i].theta), host_view(s[i].g),
                                   host_view(s[i].m), host_view(s[i].v),     s[i].count,
                                   s[i].decay};
    return copy;
}

/* The other ops: struct axpy_call has the arguments of axpy, with host views; separate_axpy issues
 * the call, axpy_late runs it. */
#define FIELD_VIEW(name) struct view name;
#define FIELD_OPTIONAL(name) struct view name;
#define FIELD_VALUE(type, name) type name;
#define FIELD_STRUCT(tag, name) struct tag name;
#define FIELD_ARRAY(tag, name, n)                                                                  \
    struct tag *name;                                                                              \
    int n;
#define COPY_VIEW(name) host_view(name),
#define COPY_OPTIONAL(name) host_view(name),
#define COPY_VALUE(type, name) name,
#define COPY_STRUCT(tag, name) *name,
#define COPY_ARRAY(tag, name, n) host_##tag(name, n), n,
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
    __attribute__((unused)) static void separate_##op(OP_PARAMETERS(__VA_ARGS__))                  \
    {                                                                                              \
        const struct op##_call c = {OP_EACH(COPY_, __VA_ARGS__)};                                  \
        issue_call(dev, op##_late, &c, sizeof c);                                                  \
    }
#include "tensor/op_list.h"

const struct ops ops_separate = {
    .name = "apart",
    .place = PLACE_DEVICE,
    .computed_by = "cpu",
    .open = separate_open,
    .close = separate_close,
    .alloc = separate_alloc,
    .release = separate_release,
    .left = separate_left,
    .write = separate_write,
    .read = separate_read,
    .sync = separate_sync,
    .mark = separate_mark,
    .follow = separate_follow,
    .sum_ranks = separate_sum_ranks,
    .call = separate_call,
    .number = separate_number,
    .linear_backward = separate_linear_backward,
    .sum_squares = separate_sum_squares,
#define OP(op, ...) .op = separate_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
};
