#include "profile.h"

#include "base/clock.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/ops.h"

enum slot {
#define OP(op, ...) SLOT_##op,
#include "tensor/op_list.h"
    SLOT_linear_loss,
    SLOTS
};
static const char *const slot_name[SLOTS] = {
#define OP(op, ...) [SLOT_##op] = #op,
#include "tensor/op_list.h"
    [SLOT_linear_loss] = "linear_loss",
};

static struct ops timed;
static const struct ops *real;
static double seconds[SLOTS], flops[SLOTS], started;

/* Capacity for ops of a device with a clock of its own that were issued but not read yet. */
enum { ISSUED = 24 };
static struct {
    int slot;
    uint64_t begin, end;
} issued[ISSUED];
static int n_issued;

static void read_issued(struct device *dev)
{
    for (int i = 0; i < n_issued; i++)
        seconds[issued[i].slot] += real->elapsed(dev, issued[i].begin, issued[i].end);
    n_issued = 0;
}

static void note_issued(struct device *dev, int slot, uint64_t begin)
{
    issued[n_issued].slot = slot;
    issued[n_issued].begin = begin;
    issued[n_issued++].end = real->mark(dev);
    if (n_issued == ISSUED)
        read_issued(dev);
}

/* Operations of a product, of all scores of an attention, of a convolution. */
static double product_flops(const struct linear *p)
{
    return 2.0 * p->rows * p->in * p->out;
}

static double score_flops(const struct attention *p)
{
    return 2.0 * p->batch * p->heads * p->width * p->t_q * (p->whole ? p->t_q : (p->t_q + 1) / 2.0);
}

static double conv_flops(const struct conv *p)
{
    const double windows = (double)window_count(p->h, p->kernel, p->stride, p->pad) *
                           window_count(p->w, p->kernel, p->stride, p->pad);
    return 2 * windows * p->rows * p->in * p->out * p->kernel * p->kernel;
}

/* Returns the operations of an op with the parameters `p`; 0: not counted. */
static double op_flops(enum slot slot, const void *p)
{
    switch (slot) {
    case SLOT_linear_forward:
    case SLOT_linear_backward_x:
    case SLOT_linear_backward_w:
        return product_flops(p);
    case SLOT_linear_backward:
        return 2 * product_flops(p);
    case SLOT_attention_forward:
        return 2 * score_flops(p);
    case SLOT_attention_backward:
        return 5 * score_flops(p);
    case SLOT_conv_forward:
    case SLOT_conv_backward_x:
    case SLOT_conv_backward_w:
        return conv_flops(p);
    default:
        return 0;
    }
}

#define TIMED(slot, work, call)                                                                    \
    do {                                                                                           \
        const uint64_t mark = real->elapsed ? real->mark(dev) : 0;                                 \
        double begin = clock_now(&clock_real);                                                     \
        call;                                                                                      \
        if (real->elapsed)                                                                         \
            note_issued(dev, slot, mark);                                                          \
        else                                                                                       \
            seconds[slot] += clock_now(&clock_real) - begin;                                       \
        flops[slot] += (work);                                                                     \
    } while (0)

#define ARGUMENT_VIEW(name) , name
#define ARGUMENT_OPTIONAL(name) , name
#define ARGUMENT_VALUE(type, name) , name
#define ARGUMENT_STRUCT(tag, name) , name
#define ARGUMENT_ARRAY(tag, name, n) , name, n
#define STRUCTS_VIEW(name)
#define STRUCTS_OPTIONAL(name)
#define STRUCTS_VALUE(type, name)
#define STRUCTS_STRUCT(tag, name) name,
#define STRUCTS_ARRAY(tag, name, n)
#define OP(op, ...)                                                                                \
    static void timed_##op(OP_PARAMETERS(__VA_ARGS__))                                             \
    {                                                                                              \
        const void *const structs[] = {OP_EACH(STRUCTS_, __VA_ARGS__) NULL};                       \
        TIMED(SLOT_##op, op_flops(SLOT_##op, structs[0]),                                          \
              real->op(dev OP_EACH(ARGUMENT_, __VA_ARGS__)));                                      \
    }
#include "tensor/op_list.h"

static void timed_linear_loss(struct device *dev, const struct linear *p,
                              const struct linear_loss *l)
{
    TIMED(SLOT_linear_loss, (l->scale ? 3 : 1) * product_flops(p), real->linear_loss(dev, p, l));
}

void profile_start(struct device *dev)
{
    real = dev->ops;
    timed = *real;
#define OP(op, ...) timed.op = real->op ? timed_##op : NULL;
#include "tensor/op_list.h"
    timed.linear_loss = real->linear_loss ? timed_linear_loss : NULL;
    if (real->linear_backward && !cpu_gemm_takes_both(dev))
        timed.linear_backward = NULL; /* two products one after the other, each timed */
    dev->ops = &timed;
}

void profile_reset(struct device *dev)
{
    read_issued(dev);
    for (int i = 0; i < SLOTS; i++)
        seconds[i] = flops[i] = 0;
    started = clock_now(&clock_real);
}

void profile_print(struct device *dev, int steps, FILE *out)
{
    read_issued(dev);
    double total = clock_now(&clock_real) - started, known = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (seconds[i] == 0)
            continue;
        known += seconds[i];
        fprintf(out, "%-20s %8.2f ms  %5.1f %%", slot_name[i], 1e3 * seconds[i] / steps,
                100 * seconds[i] / total);
        if (flops[i] > 0)
            fprintf(out, "  %6.1f GFLOP/s", flops[i] / seconds[i] / 1e9);
        fputc('\n', out);
    }
    fprintf(out, "%-20s %8.2f ms  %5.1f %%\n", "the rest", 1e3 * (total - known) / steps,
            100 * (total - known) / total);
}
