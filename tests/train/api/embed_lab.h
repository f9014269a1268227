/* A quadratic whose every step is known, as a problem of the public interface: micro-batch i of all
 * has n_i targets and the mean loss 1/2 |a (theta - c_i)|^2; the n-th of rank r of N is number
 * n*N + r. */
#ifndef SOTTO_TESTS_TRAIN_API_EMBED_LAB_H
#define SOTTO_TESTS_TRAIN_API_EMBED_LAB_H

#include "base/scratch.h"

#include <math.h>
#include <stdatomic.h>

enum { COUNT = 29, STAGES = 3, ROUNDS = 8, MOST_WORKERS = 8 };

static const struct sotto_tensor staged[] = {
    {"w", {4, 2}, 0}, {"b", {7}, 0}, {"scale", {0}, 1}, {"u", {3, 2, 2}, 2}, {"end", {1}, 2},
};
static const struct sotto_tensor whole[] = {
    {"w", {4, 2}, 0}, {"b", {7}, 0}, {"scale", {0}, 0}, {"u", {3, 2, 2}, 0}, {"end", {1}, 0},
};
enum { TENSORS = 5 };
static const int first[TENSORS + 1] = {0, 8, 15, 16, 28, 29}; /* element of the whole vector */

static double a_of(int i)
{
    return 0.5 + 0.05 * i;
}

static double c_of(int64_t number, int i)
{
    return sin(1.7 * (double)number + 0.3 * i);
}

static int64_t targets_of(int64_t number)
{
    return 3 + number % 5;
}

/* What all workers share, and what each has for itself. */
struct lab {
    int fail_rank;      /* -1: none                                */
    int64_t fail_index; /* micro-batch at which it fails           */
    int how;            /* 0: with a message, 1: without, 2: a NaN, 3: negative targets */
    int open_fails;     /* rank whose worker_open fails, -1: none  */
    bool tied;          /* stage 2 uses tensor "b" of stage 0 too  */
    bool wanders;       /* workers compute with others' data, too  */
    atomic_int opened, closed, trouble;
};

struct hand {
    struct lab *lab;
    int rank;
    atomic_int busy;
    int next; /* forward 0 .. n-1, backward n-1 .. 0 as 0 .. 2n-1 */
};

static enum sotto_status open_hand(void *user, int rank, int size, void **worker)
{
    struct lab *lab = user;
    if (rank >= size)
        atomic_fetch_add(&lab->trouble, 1);
    if (rank == lab->open_fails)
        return sotto_fail(SOTTO_EIO, "no data for %d", rank);
    struct hand *h = calloc(1, sizeof *h);
    h->lab = lab;
    h->rank = rank;
    *worker = h;
    atomic_fetch_add(&lab->opened, 1);
    return SOTTO_OK;
}

static void close_hand(void *worker)
{
    struct hand *h = worker;
    atomic_fetch_add(&h->lab->closed, 1);
    free(h);
}

static void check(struct hand *h, bool right)
{
    if (!right)
        atomic_fetch_add(&h->lab->trouble, 1);
}

/* Tensors [from, to): the loss of their part where `loss`, and the gradient where `grad`. */
static void part(struct sotto_microbatch *b, int from, int to, const float *const *theta,
                 float *const *grad, bool loss)
{
    int64_t number = b->index * b->size + b->rank, n = targets_of(number);
    for (int t = from; t < to; t++)
        for (int i = first[t]; i < first[t + 1]; i++) {
            double d = a_of(i) * (theta[t][i - first[t]] - c_of(number, i));
            if (loss)
                b->loss += 0.5 * d * d * (double)n;
            if (grad)
                grad[t][i - first[t]] += (float)(a_of(i) * d * (b->sum ? (double)n : 1));
        }
    b->targets = n;
}

static enum sotto_status fault(struct hand *h, struct sotto_microbatch *b)
{
    struct lab *lab = h->lab;
    if (b->index + 1 == lab->fail_index && lab->how == 1)
        (void)sotto_fail(SOTTO_EIO, "a trouble that it could help itself out of");
    if (h->rank != lab->fail_rank || b->index < lab->fail_index)
        return SOTTO_OK;
    if (lab->how == 2)
        b->loss = NAN;
    if (lab->how == 3)
        b->targets = -3;
    return lab->how == 0   ? sotto_fail(SOTTO_EIO, "the disk of %d is full", h->rank)
           : lab->how == 1 ? SOTTO_EPEER
                           : SOTTO_OK;
}

static enum sotto_status gradient(void *worker, struct sotto_microbatch *b,
                                  const float *const *theta, float *const *grad)
{
    struct hand *h = worker;
    check(h, atomic_fetch_add(&h->busy, 1) == 0 && (b->rank == h->rank || h->lab->wanders) &&
                 b->seed == 11);
    for (int t = 1; t < TENSORS; t++)
        check(h, theta[t] == theta[0] + first[t] && grad[t] == grad[0] + first[t]);
    part(b, 0, TENSORS, theta, grad, true);
    atomic_fetch_sub(&h->busy, 1);
    return fault(h, b);
}

static const int stage_first[STAGES + 1] = {0, 2, 3, TENSORS};

/* Only what the stage may see is there. */
static void check_seen(struct hand *h, int stage, const float *const *theta, float *const *grad)
{
    for (int t = 0; t < TENSORS; t++) {
        bool seen = (t >= stage_first[stage] && t < stage_first[stage + 1]) ||
                    (h->lab->tied && stage == 2 && t < stage_first[1]);
        check(h, (theta[t] != NULL) == seen && (!grad || (grad[t] != NULL) == seen));
    }
}

static enum sotto_status forward(void *worker, struct sotto_microbatch *b, int stage,
                                 const float *const *theta)
{
    struct hand *h = worker;
    if (stage == 0)
        h->next = 0;
    check(h, atomic_fetch_add(&h->busy, 1) == 0 && h->next++ == stage);
    check_seen(h, stage, theta, NULL);
    part(b, stage_first[stage], stage_first[stage + 1], theta, NULL, true);
    atomic_fetch_sub(&h->busy, 1);
    return SOTTO_OK;
}

static enum sotto_status backward(void *worker, struct sotto_microbatch *b, int stage,
                                  const float *const *theta, float *const *grad)
{
    struct hand *h = worker;
    check(h, atomic_fetch_add(&h->busy, 1) == 0 && h->next++ == 2 * STAGES - 1 - stage);
    check_seen(h, stage, theta, grad);
    if (h->lab->tied && stage == 0)
        part(b, 0, 1, theta, grad, false); /* b's gradient came with stage 2 */
    else
        part(b, stage_first[stage], stage_first[stage + 1], theta, grad, false);
    if (h->lab->tied && stage == 2)
        part(b, 1, 2, theta, grad, false);
    atomic_fetch_sub(&h->busy, 1);
    return fault(h, b);
}

static const bool ties[STAGES * STAGES] = {[2 * STAGES + 0] = true};

static struct lab lab_new(void)
{
    return (struct lab){.fail_rank = -1, .open_fails = -1};
}

static struct sotto_problem problem_of(struct lab *lab, bool stages)
{
    struct sotto_problem p = {.struct_size = sizeof p,
                              .tensors = stages ? staged : whole,
                              .count = TENSORS,
                              .user = lab,
                              .worker_open = open_hand,
                              .worker_close = close_hand,
                              .needs = lab->tied ? ties : NULL};
    if (stages) {
        p.forward = forward;
        p.backward = backward;
    } else {
        p.gradient = gradient;
    }
    return p;
}

/* What methods with an optimizer of their own are told beside the settings of options_of, which the
 * others share: with `adamw`, or with sgd, and to step with all elements where they take a share.
 */
static inline const char *own_settings(const char *method, bool adamw)
{
    static const char *const names[] = {"every", "demo", "flexdemo", "random", "striding"};
    for (int i = 0; i < 5; i++)
        if (strcmp(names[i], method) == 0)
            return adamw ? " base=decoupled-adamw"
                         : (i ? " optim.momentum=0 rate=1" : " optim.momentum=0");
    return "";
}

static struct sotto_options *options_of(const char *settings)
{
    struct sotto_options *o;
    char text[1024], *save = NULL;
    assert_ok(sotto_options_create(&o));
    snprintf(text, sizeof text,
             "seed=11 steps=8 kind=sgd lr=0.05 optim.momentum=0.5 weight_decay=0 schedule=step "
             "step_every=3 step_factor=0.5 threads=2 device=%s %s",
             test_device(), settings);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_ok(sotto_options_set(o, word, value));
    }
    return o;
}

static void start_at(float *x)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)cos(i);
}

struct seen {
    double loss[ROUNDS];
    int64_t calls;
    int64_t stop_at; /* 0: never */
    struct sotto_round last;
};

static int observe(void *observer, const struct sotto_round *r)
{
    struct seen *s = observer;
    if (r->step > 0)
        s->loss[(r->step - 1) % ROUNDS] = r->loss;
    s->calls++;
    s->last = *r;
    return s->stop_at > 0 && r->step == s->stop_at;
}

/* Trains as the settings say, from start_at. */
static enum sotto_status train(struct lab *lab, bool stages, const char *settings, float *x,
                               struct seen *seen, struct sotto_result *result)
{
    struct sotto_problem p = problem_of(lab, stages);
    struct sotto_options *o = options_of(settings);
    struct seen ignored = {0};
    lab->wanders = strstr(settings, "async-diloco");
    start_at(x);
    struct sotto_training t = {.struct_size = sizeof t,
                               .problem = &p,
                               .options = o,
                               .parameters = x,
                               .observe = observe,
                               .observer = seen ? seen : &ignored};
    enum sotto_status st = sotto_train(&t, result);
    sotto_options_destroy(o);
    assert_int_equal(lab->trouble, 0);
    assert_int_equal(lab->opened, lab->closed);
    return st;
}

/* The same by the formula: SGD with momentum on the mean over micro-batches, or over targets. */
static void sequential(int workers, int accumulate, bool tokens, double *x, double *loss)
{
    double v[COUNT] = {0};
    for (int t = 0; t < ROUNDS; t++) {
        double g[COUNT] = {0}, sum = 0, targets = 0, weight = 0;
        for (int64_t k = 0; k < (int64_t)workers * accumulate; k++) {
            int64_t number = (t * accumulate + k / workers) * workers + k % workers;
            double n = (double)targets_of(number);
            for (int i = 0; i < COUNT; i++) {
                double d = a_of(i) * (x[i] - c_of(number, i));
                sum += 0.5 * d * d * n;
                g[i] += a_of(i) * d * (tokens ? n : 1);
            }
            targets += n;
            weight += tokens ? n : 1;
        }
        loss[t] = sum / targets;
        for (int i = 0; i < COUNT; i++) {
            v[i] = 0.5 * v[i] + g[i] / weight;
            x[i] -= 0.05 * pow(0.5, t / 3) * v[i];
        }
    }
}

#endif
