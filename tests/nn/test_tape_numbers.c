/* What one tape computes: slopes, scales, ignored targets, small batches, evaluation, bf16. */
#include "nn/lab.h"

#include "tensor/ops.h"

static double loss_at(struct lab *l, struct tape *tape, const struct batch *batch)
{
    assert_ok(tape_run(tape, batch, TAPE_EVALUATE, 0, l->theta_stage, NULL));
    struct tape_result r = tape_result(tape, tape->dev);
    return r.loss / (double)r.targets;
}

/* The gradient against central differences of the loss, one random direction a tensor and one
 * through all of them. With unit directions and h = 4e-3 the truncation h^2 f'''/6 and the fp32
 * rounding of parameters and losses, about 1e-7 / h, are both some 1e-5. */
static void finite_differences(void **state)
{
    (void)state;
    const double h = 4e-3;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        float *gradient;
        lab_open(&l, "reference", 1, &tiny_configs[which], 2);
        tiny_batch(&batch, 2, 6, 29, 51, true);
        lab_gradient(&l, &batch, false, &gradient);
        free(gradient);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 6, DTYPE_F32, false}, false));
        const size_t count = l.theta.count;
        float *theta = l.theta.view.data, *g = l.grad.view.data;
        float *start = malloc(count * sizeof *start), *d = malloc(count * sizeof *d);
        memcpy(start, theta, count * sizeof *start);
        const struct table *table = &l.model.table;
        for (int i = -1; i < table->n; i++) { /* -1: all tensors */
            size_t begin = 0, end = count;
            if (i >= 0) {
                begin = table->stage_start[table->entry[i].stage] + table->entry[i].offset;
                end = begin + table->entry[i].count;
            }
            struct rng rng = rng_make(61, (uint64_t)i);
            double norm = 0, slope = 0, value[2];
            rng_normal(&rng, d + begin, end - begin, 0, 1);
            for (size_t j = begin; j < end; j++)
                norm += (double)d[j] * d[j];
            for (int side = 0; side < 2; side++) {
                for (size_t j = begin; j < end; j++)
                    theta[j] = start[j] + (float)((side ? h : -h) / sqrt(norm) * d[j]);
                value[side] = loss_at(&l, &tape, &batch);
            }
            for (size_t j = begin; j < end; j++)
                slope += (double)g[j] * d[j] / sqrt(norm);
            memcpy(theta, start, count * sizeof *start);
            double difference = (value[1] - value[0]) / (2 * h);
            if (!(fabs(difference - slope) < 1e-4 + 1e-3 * fabs(slope)))
                fail_with("%s: slope %g, differences %g", i < 0 ? "all" : table->entry[i].name,
                          slope, difference);
        }
        free(start);
        free(d);
        tape_free(&tape);
        batch_free(&batch);
        lab_close(&l);
    }
}

/* Rows without targets add nothing to loss or gradient, and a batch without any gives exactly 0. */
static void ignored_targets(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch both, one;
        float *a, *b, *none;
        lab_open(&l, "cpu", 1, &tiny_configs[which], 2);
        tiny_batch(&both, 2, 9, 29, 71, false);
        tiny_batch(&one, 1, 9, 29, 71, false);
        for (int i = 9; i < 18; i++)
            both.targets[i] = -1;
        both.n_targets = 9;
        double loss = lab_gradient(&l, &both, false, &a), want = lab_gradient(&l, &one, false, &b);
        assert_true(fabs(loss - want) < 1e-6);
        assert_true(lab_distance(a, b, l.model.table.parameters) < 1e-5);
        for (int i = 0; i < 9; i++)
            one.targets[i] = -100;
        struct tape tape;
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){1, 9, DTYPE_F32, false}, false));
        lab_zero(&l);
        assert_ok(tape_run(&tape, &one, TAPE_TRAIN, 1, l.theta_stage, l.grad_stage));
        struct tape_result r = tape_result(&tape, tape.dev);
        assert_true(r.loss == 0 && r.targets == 0);
        none = lab_tensors(&l, l.grad.view);
        for (size_t i = 0; i < l.model.table.parameters; i++)
            assert_true(none[i] == 0);
        free(a);
        free(b);
        free(none);
        tape_free(&tape);
        batch_free(&both);
        batch_free(&one);
        lab_close(&l);
    }
}

/* The gradient is linear in `scale` (exactly, for powers of two) and adds to what is there; the
 * loss is not scaled. */
static void scale_and_accumulation(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        lab_open(&l, "cpu", 1, &tiny_configs[which], 3);
        tiny_batch(&batch, 2, 9, 29, 81, true);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 9, DTYPE_F32, false}, false));
        lab_zero(&l);
        assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1, l.theta_stage, l.grad_stage));
        double loss = tape_result(&tape, tape.dev).loss;
        float *once = lab_tensors(&l, l.grad.view);
        lab_zero(&l);
        assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 0.25f, l.theta_stage, l.grad_stage));
        assert_true(tape_result(&tape, tape.dev).loss == loss);
        float *quarter = lab_tensors(&l, l.grad.view);
        for (size_t i = 0; i < l.model.table.parameters; i++)
            assert_true(quarter[i] == once[i] / 4);
        lab_zero(&l);
        for (int i = 0; i < 3; i++)
            assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1, l.theta_stage, l.grad_stage));
        float *thrice = lab_tensors(&l, l.grad.view);
        for (size_t i = 0; i < l.model.table.parameters; i++)
            quarter[i] = 3 * once[i];
        assert_true(lab_distance(thrice, quarter, l.model.table.parameters) < 1e-6);
        free(once);
        free(quarter);
        free(thrice);
        tape_free(&tape);
        batch_free(&batch);
        lab_close(&l);
    }
}

/* A batch of fewer rows and positions than the tape was made for gives the bits of a tape made for
 * it, also after a full one has passed. */
static void small_batches(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            struct lab l;
            struct batch small, full;
            struct tape tape;
            float *want;
            lab_open(&l, "cpu", 1, &tiny_configs[which], 3);
            tiny_batch(&small, 2, 5, 29, 91, true);
            tiny_batch(&full, 3, 12, 29, 92, false);
            double loss = lab_gradient(&l, &small, false, &want);
            assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                                (struct extent){3, 12, DTYPE_F32, false}, recompute));
            assert_ok(tape_run(&tape, &full, TAPE_TRAIN, 1, l.theta_stage, l.grad_stage));
            lab_zero(&l);
            assert_ok(tape_run(&tape, &small, TAPE_TRAIN, 1 / (float)small.n_targets, l.theta_stage,
                               l.grad_stage));
            struct tape_result r = tape_result(&tape, tape.dev);
            assert_true(r.loss / (double)r.targets == loss);
            float *have = lab_tensors(&l, l.grad.view);
            lab_assert_bits(have, want, l.model.table.parameters, "gradient");
            free(have);
            free(want);
            tape_free(&tape);
            batch_free(&small);
            batch_free(&full);
            lab_close(&l);
        }
    }
}

/* The one with place - 1 larger ones. */
static int in_place(const float *x, int n, int place)
{
    int i = 0;
    for (;; i++) {
        int larger = 0;
        for (int k = 0; k < n; k++)
            larger += x[k] > x[i];
        if (larger == place - 1)
            return i;
        assert_true(i + 1 < n);
    }
}

/* Evaluation has training's losses, keeps no activations, and counts as hits the targets with the
 * largest logit, as near those with one of the largest five. */
static void evaluation(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        float *gradient;
        static float logits[2 * 12 * 29];
        lab_open(&l, "cpu", 1, &tiny_configs[which], 3);
        tiny_batch(&batch, 2, 12, 29, 17, false);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 12, DTYPE_F32, false}, false));
        tape.want_hits = true;
        assert_ok(tape_begin(&tape, &batch, TAPE_EVALUATE, 0));
        tape.pass.logits = logits;
        for (int k = 0; k < 3; k++)
            assert_ok(tape_forward(&tape, k, l.theta_stage));
        int hits = 0, near = 0;
        for (int i = 0; i < 24; i++) { /* every fourth is ignored, others are in places 1 to 7 */
            const int place = 1 + i % 7;
            batch.targets[i] = i % 4 == 0 ? -1 : in_place(logits + (size_t)i * 29, 29, place);
            batch.n_targets -= i % 4 == 0;
            hits += i % 4 != 0 && place == 1;
            near += i % 4 != 0 && place <= 5;
        }
        assert_ok(tape_run(&tape, &batch, TAPE_EVALUATE, 0, l.theta_stage, NULL));
        struct tape_result r = tape_result(&tape, tape.dev);
        assert_int_equal(r.hits, hits);
        assert_int_equal(r.near, near);
        assert_int_equal(r.targets, batch.n_targets);
        for (int k = 0; k <= 3; k++)
            assert_true(!tape.stage[k].edge && !tape.stage[k].dedge && !tape.stage[k].saved);
        assert_int_equal(lab_idle(&l.pool), l.memory.now[MEMORY_ACTIVATIONS]);
        assert_true(lab_gradient(&l, &batch, false, &gradient) == r.loss / (double)batch.n_targets);
        double check = 0; /* -log softmax from the logits */
        for (int i = 0; i < 24; i++) {
            double sum = 0;
            for (int v = 0; v < 29; v++)
                sum += exp(logits[i * 29 + v]);
            if (batch.targets[i] >= 0)
                check += log(sum) - logits[i * 29 + batch.targets[i]];
        }
        assert_true(fabs(check - r.loss) < 1e-4);
        free(gradient);
        tape_free(&tape);
        batch_free(&batch);
        lab_close(&l);
    }
}

/* Attention hears of bf16 parameters, forward and backward. */
static const struct ops *listened_to;
static int told, untold;

static void hear_forward(struct device *dev, const struct attention *p, struct view o,
                         struct view q, struct view k, struct view v, struct view lse)
{
    *(p->half ? &told : &untold) += 1;
    listened_to->attention_forward(dev, p, o, q, k, v, lse);
}

static void hear_backward(struct device *dev, const struct attention *p, struct view dq,
                          struct view dk, struct view dv, struct view dy, struct view o,
                          struct view q, struct view k, struct view v, struct view lse)
{
    *(p->half ? &told : &untold) += 1;
    listened_to->attention_backward(dev, p, dq, dk, dv, dy, o, q, k, v, lse);
}

/* With bf16 parameters what products multiply may be rounded, 2^-9 relative a value and sublayer,
 * and gradients are rounded each time something is added to them; with bf16 activations everything
 * that is kept is rounded too. Errors of a dozen roundings in a row, amplified by norms of small
 * numbers, stay below some percent. */
static void bf16(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct buffer theta, grad;
        struct view theta_stage[3], grad_stage[3];
        float *want;
        lab_open(&l, "cpu", 1, &tiny_configs[which], 3);
        const size_t count = l.theta.count;
        tiny_batch(&batch, 2, 12, 29, 17, false);
        assert_ok(buffer_init(&theta, &l.dev, DTYPE_BF16, count, MEMORY_PARAMETERS));
        assert_ok(buffer_init(&grad, &l.dev, DTYPE_BF16, count, MEMORY_GRADIENTS));
        table_stages(&l.model.table, theta.view, theta_stage);
        table_stages(&l.model.table, grad.view, grad_stage);
        l.dev.ops->copy(&l.dev, theta.view, l.theta.view, count);
        l.dev.ops->copy(&l.dev, l.theta.view, theta.view, count); /* the rounded values */
        double loss = lab_gradient(&l, &batch, false, &want);
        struct ops ops = *l.dev.ops;
        ops.attention_forward = hear_forward;
        ops.attention_backward = hear_backward;
        listened_to = l.dev.ops;
        l.dev.ops = &ops;
        told = untold = 0;
        for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
            struct tape tape;
            assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                                (struct extent){2, 12, (enum dtype)type, false},
                                type == DTYPE_BF16));
            l.dev.ops->fill(&l.dev, grad.view, count, 0);
            assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1 / (float)batch.n_targets, theta_stage,
                               grad_stage));
            double have_loss = tape_result(&tape, tape.dev).loss / (double)batch.n_targets;
            l.dev.ops->copy(&l.dev, l.grad.view, grad.view, count);
            float *have = lab_tensors(&l, l.grad.view);
            double off = lab_distance(have, want, l.model.table.parameters);
            if (!(fabs(have_loss - loss) < (type == DTYPE_F32 ? 3e-3 : 2e-2) &&
                  off < (type == DTYPE_F32 ? 1.5e-2 : 5e-2) && off > 0))
                fail_with("model %d, activations %d: loss %g off, gradient %g", which, type,
                          fabs(have_loss - loss), off);
            free(have);
            tape_free(&tape);
        }
        assert_true(told > 0 && untold == 0);
        l.dev.ops = listened_to;
        free(want);
        buffer_free(&theta);
        buffer_free(&grad);
        batch_free(&batch);
        lab_close(&l);
    }
}

/* bf16 parameters, gradients that are added up in fp32: the same micro-batch n times makes n times
 * its gradient in every tensor, matrices, biases, norms and embeddings alike. In bf16 the sums
 * would stop at some hundred times. */
static void many_micro_batches(void **state)
{
    (void)state;
    enum { MANY = 600 };
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        struct buffer theta;
        struct view theta_stage[2];
        lab_open(&l, "cpu", 1, &tiny_configs[which], 2);
        const struct table *table = &l.model.table;
        tiny_batch(&batch, 2, 6, 29, 17, false);
        assert_ok(buffer_init(&theta, &l.dev, DTYPE_BF16, l.theta.count, MEMORY_PARAMETERS));
        table_stages(table, theta.view, theta_stage);
        l.dev.ops->copy(&l.dev, theta.view, l.theta.view, l.theta.count);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 6, DTYPE_F32, false}, false));
        lab_zero(&l);
        float *one = NULL;
        for (int i = 0; i < MANY; i++) {
            assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1e-3f, theta_stage, l.grad_stage));
            if (i == 0)
                one = lab_tensors(&l, l.grad.view);
        }
        float *all = lab_tensors(&l, l.grad.view);
        for (size_t i = 0, at = 0; i < (size_t)table->n; at += table->entry[i++].count) {
            double off = 0, norm = 0;
            for (size_t j = at; j < at + table->entry[i].count; j++) {
                off += pow(all[j] - MANY * (double)one[j], 2);
                norm += pow(MANY * (double)one[j], 2);
            }
            if (!(norm > 0 && sqrt(off / norm) < 1e-4))
                fail_with("%s: %g of its norm off", table->entry[i].name, sqrt(off / norm));
        }
        free(one);
        free(all);
        tape_free(&tape);
        buffer_free(&theta);
        batch_free(&batch);
        lab_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(ignored_targets),
        cmocka_unit_test(scale_and_accumulation),
        cmocka_unit_test(small_batches),
        cmocka_unit_test(evaluation),
        cmocka_unit_test(bf16),
        cmocka_unit_test(many_micro_batches),
    };
    return run_cases(tests, SANITIZED ? 2 : 1, NULL, NULL);
}
