/* Tapes: one micro-batch, or several at once, through a model cut anywhere. Bits are compared
 * wherever the arithmetic is the same; the CPU table promises the same bits for any number of
 * threads. */
#include "nn/lab.h"

/* The same loss and gradient bits for any number of stages, with and without recomputation, on one
 * thread, two, or many, which may add to gradients elsewhere. */
static void cuts_change_nothing(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, MANY_THREADS + 1};
    for (int which = 0; which < TINY; which++) {
        struct lab whole;
        struct batch batch;
        float *want, *have;
        lab_open(&whole, "cpu", 1, &tiny_configs[which], 1);
        tiny_batch(&batch, 2, 11, 29, 5, true);
        double loss = lab_gradient(&whole, &batch, false, &want);
        const size_t count = whole.model.table.parameters;
        for (int n = 1; n <= whole.model.n_layer; n++) {
            for (int recompute = 0; recompute < 2; recompute++) {
                struct lab l;
                lab_open(&l, "cpu", threads[(n + 2 * recompute) % 3], &tiny_configs[which], n);
                assert_true(lab_gradient(&l, &batch, recompute, &have) == loss);
                lab_assert_bits(have, want, count, "gradient");
                free(have);
                lab_close(&l);
            }
        }
        double norm = 0;
        for (size_t i = 0; i < count; i++)
            norm += (double)want[i] * want[i];
        assert_true(norm > 1e-4 && isfinite(norm));
        free(want);
        batch_free(&batch);
        lab_close(&whole);
    }
}

static int idle_of(const struct pool *pool, size_t count)
{
    int n = 0;
    for (const struct pool_block *b = pool->idle; b; b = b->next)
        n += b->buffer.view.type == DTYPE_F32 && b->buffer.count == count;
    return n;
}

/* Where many threads keep all they can, gradients go from block to block: the same ones in every
 * round. Otherwise there is one, which layers add to. */
static void gradients_elsewhere(void **state)
{
    (void)state;
    struct batch batch;
    tiny_batch(&batch, 2, 11, 29, 5, true);
    for (int many = 0; many < 2; many++) {
        struct lab l;
        float *gradient;
        lab_open(&l, "cpu", many ? MANY_THREADS + 1 : MANY_THREADS, &tiny_configs[0], 1);
        const size_t count = 2 * 11 * (size_t)l.model.config.width;
        const int want = many && l.dev.ops->own_caches ? POOL_RESTING + 1 : 1;
        for (int round = 0; round < 3; round++) {
            lab_gradient(&l, &batch, false, &gradient);
            free(gradient);
            assert_int_equal(idle_of(&l.pool, count), want);
        }
        lab_close(&l);
    }
    batch_free(&batch);
}

/* Weights of projections are written, and a table where the head reads it too. */
static void check_written(const struct model *m)
{
    for (int i = 0; i < m->table.n; i++) {
        const struct table_entry *e = &m->table.entry[i];
        const bool table = strstr(e->name, "wte") || strstr(e->name, "embed_tokens");
        const bool added = strstr(e->name, "wpe") || (table && m->config.tied != TIED_YES);
        if (e->written != (e->ndim == 2 && !added))
            fail_with("%s is%s written", e->name, e->written ? "" : " not");
    }
}

/* In every model, tied and not, however it is cut. */
static void fresh_gradients(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2 * TINY; variant++) {
        struct model_config config = tiny_configs[variant / 2];
        struct batch batch;
        config.tied = variant % 2 ? TIED_YES : TIED_NO;
        tiny_batch(&batch, 2, 11, 29, 5, true);
        for (int n = 1, layers = 1; n <= layers; n++) {
            struct lab l;
            struct tape tape;
            lab_open(&l, "cpu", 1 + n % 2, &config, n);
            layers = l.model.n_layer;
            assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                                (struct extent){3, 11, DTYPE_F32, n % 3 == 1}, n % 2));
            check_written(&l.model);
            lab_check_fresh(&l, &tape, &batch);
            tape_free(&tape);
            lab_close(&l);
        }
        batch_free(&batch);
    }
}

/* Of a head that has more rows than it makes logits of at once. */
static void fresh_in_chunks(void **state)
{
    (void)state;
    const struct model_config config = {
        .arch = ARCH_GPT2, .layers = 1, .width = 4, .heads = 1, .vocab = 16500, .positions = 520};
    struct lab l;
    struct batch batch;
    struct tape tape;
    lab_open(&l, "cpu", 2, &config, 2);
    tiny_batch(&batch, 2, 520, 16500, 5, false);
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool, (struct extent){2, 520, DTYPE_F32, false},
                        false));
    lab_check_fresh(&l, &tape, &batch);
    tape_free(&tape);
    batch_free(&batch);
    lab_close(&l);
}

/* Of a micro-batch without targets, which has a gradient of zeros. */
static void fresh_without_targets(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        lab_open(&l, "cpu", 1, &tiny_configs[which], 3);
        tiny_batch(&batch, 2, 11, 29, 5, false);
        for (int i = 0; i < 2 * 11; i++)
            batch.targets[i] = -100;
        batch.n_targets = 1; /* which the loss is divided by */
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 11, DTYPE_F32, false}, false));
        l.dev.ops->fill(&l.dev, l.grad.view, l.grad.count, NAN);
        lab_run_fresh(&l, &tape, &batch);
        float *g = lab_read(&l, l.grad.view, l.grad.count);
        for (size_t i = 0; i < l.grad.count; i++)
            assert_true(g[i] == 0);
        free(g);
        tape_free(&tape);
        batch_free(&batch);
        lab_close(&l);
    }
}

enum { N = 4 }; /* micro-batches and stages of the cyclic schedule */

/* Cyclic data parallelism on one device: micro-batch i starts 2 time steps after the one before it;
 * `rounds` of them a tape. */
static void run_cyclic(struct tape *tape, struct batch *batch, int rounds, const struct view *theta,
                       struct view (*grad)[LAB_STAGES])
{
    for (int s = 0; s < 2 * N * rounds + 2 * (N - 1); s++) {
        for (int i = 0; i < N; i++) {
            int u = s - 2 * i, p = u >= 0 ? u % (2 * N) : 0;
            if (u < 0 || u / (2 * N) >= rounds)
                continue;
            struct batch *b = &batch[(u / (2 * N) + i) % N];
            if (p == 0)
                assert_ok(tape_begin(&tape[i], b, TAPE_TRAIN, 1 / (float)b->n_targets));
            if (p < N)
                assert_ok(tape_forward(&tape[i], p, theta));
            else
                assert_ok(tape_backward(&tape[i], 2 * N - 1 - p, theta, grad[i]));
        }
    }
}

/* Tapes in flight together, each stage of each at another time, give the bits of one after the
 * other. */
static void interleaved_tapes(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            struct lab l;
            struct batch batch[N];
            struct tape tape[N];
            struct buffer grad[N];
            struct view stages[N][LAB_STAGES];
            double loss[N] = {0}, want_loss[N] = {0};
            lab_open(&l, "cpu", 1, &tiny_configs[which], N);
            for (int i = 0; i < N; i++) {
                tiny_batch(&batch[i], 2, 6 + i, 29, 10 + (uint64_t)i, true);
                assert_ok(tape_init(&tape[i], &l.model, &l.dev, &l.pool,
                                    (struct extent){2, 6 + N, DTYPE_F32, false}, recompute));
                assert_ok(buffer_init(&grad[i], &l.dev, DTYPE_F32, l.grad.count, MEMORY_GRADIENTS));
                table_stages(&l.model.table, grad[i].view, stages[i]);
            }
            run_cyclic(tape, batch, 2, l.theta_stage, stages);
            for (int i = 0; i < N; i++)
                loss[i] = tape_result(&tape[i], tape[i].dev).loss;
            for (int i = 0; i < N; i++) {
                lab_zero(&l);
                for (int round = 0; round < 2; round++) {
                    struct batch *b = &batch[(round + i) % N];
                    assert_ok(tape_run(&tape[0], b, TAPE_TRAIN, 1 / (float)b->n_targets,
                                       l.theta_stage, l.grad_stage));
                }
                want_loss[i] = tape_result(&tape[0], tape[0].dev).loss;
                float *have = lab_tensors(&l, grad[i].view), *want = lab_tensors(&l, l.grad.view);
                lab_assert_bits(have, want, l.model.table.parameters, "gradient");
                free(have);
                free(want);
            }
            assert_memory_equal(loss, want_loss, sizeof loss);
            for (int i = 0; i < N; i++) {
                tape_free(&tape[i]);
                batch_free(&batch[i]);
                buffer_free(&grad[i]);
            }
            lab_close(&l);
        }
    }
}

/* Stage j computed with version A while the others use B equals the vector that is B with A's stage
 * j in it. */
static void mixed_versions(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        struct batch batch;
        struct tape tape;
        struct buffer other, mixed;
        lab_open(&l, "cpu", 1, &tiny_configs[which], N);
        const struct table *table = &l.model.table;
        tiny_batch(&batch, 2, 9, 29, 21, false);
        assert_ok(buffer_init(&other, &l.dev, DTYPE_F32, l.theta.count, MEMORY_PARAMETERS));
        assert_ok(buffer_init(&mixed, &l.dev, DTYPE_F32, l.theta.count, MEMORY_PARAMETERS));
        lab_randomize(&l, 99, &other);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){2, 9, DTYPE_F32, false}, which % 2));
        float *pure;
        double pure_loss = lab_gradient(&l, &batch, false, &pure);
        for (int j = 0; j < N; j++) {
            struct view versions[N], flat[N];
            for (int k = 0; k < N; k++)
                versions[k] = l.theta_stage[k];
            versions[j] = view_at(other.view, table->stage_start[j]);
            lab_zero(&l);
            assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1, versions, l.grad_stage));
            double loss = tape_result(&tape, tape.dev).loss;
            float *have = lab_tensors(&l, l.grad.view);

            l.dev.ops->copy(&l.dev, mixed.view, l.theta.view, l.theta.count);
            l.dev.ops->copy(&l.dev, view_at(mixed.view, table->stage_start[j]),
                            view_at(other.view, table->stage_start[j]),
                            table_stage_count(table, j));
            table_stages(table, mixed.view, flat);
            lab_zero(&l);
            assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1, flat, l.grad_stage));
            assert_true(tape_result(&tape, tape.dev).loss == loss);
            assert_true(fabs(loss / (double)batch.n_targets - pure_loss) > 1e-6);
            float *want = lab_tensors(&l, l.grad.view);
            lab_assert_bits(have, want, table->parameters, "gradient");
            free(have);
            free(want);
        }
        free(pure);
        tape_free(&tape);
        buffer_free(&other);
        buffer_free(&mixed);
        batch_free(&batch);
        lab_close(&l);
    }
}

/* Keeps of `theta` what a worker that runs stages [from, to) has been given. */
static void restrict_views(const struct model *m, int from, int to, const struct view *theta,
                           struct view *out)
{
    for (int j = 0; j < m->n_stage; j++)
        out[j] = view_none;
    for (int k = from; k < to; k++) {
        bool needs[LAB_STAGES];
        model_stage_needs(m, k, needs);
        for (int j = 0; j < m->n_stage; j++)
            if (needs[j])
                out[j] = theta[j];
    }
}

/* A two-process pipeline in miniature: P runs the first stages and Q the rest, each with a device
 * and pool of its own and only the parameters that its stages need; the activations travel there
 * and their gradient back as plain memory. A tied table's gradient from Q's head is P's starting
 * point. */
static void pipeline_over_edges(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab p, q;
        struct batch batch;
        struct tape tp, tq;
        float *want;
        lab_open(&p, "cpu", 1, &tiny_configs[which], N);
        lab_open(&q, "cpu", 1, &tiny_configs[which], N);
        tiny_batch(&batch, 2, 7, 29, 31, true);
        const float scale = 1 / (float)batch.n_targets;
        double want_loss = lab_gradient(&p, &batch, false, &want);
        const struct extent most = {3, 9, DTYPE_F32, false}; /* more than the batch */
        assert_ok(tape_init(&tp, &p.model, &p.dev, &p.pool, most, false));
        assert_ok(tape_init(&tq, &q.model, &q.dev, &q.pool, most, which % 2));
        for (int cut = 1; cut < N; cut++) {
            struct view p_theta[N], q_theta[N], p_grad[N], q_grad[N], from, to;
            restrict_views(&p.model, 0, cut, p.theta_stage, p_theta);
            restrict_views(&p.model, 0, cut, p.grad_stage, p_grad);
            restrict_views(&q.model, cut, N, q.theta_stage, q_theta);
            restrict_views(&q.model, cut, N, q.grad_stage, q_grad);
            lab_zero(&p);
            lab_zero(&q);
            assert_ok(tape_begin(&tp, &batch, TAPE_TRAIN, scale));
            assert_ok(tape_begin(&tq, &batch, TAPE_TRAIN, scale));
            for (int k = 0; k < cut; k++)
                assert_ok(tape_forward(&tp, k, p_theta));
            const size_t count = tape_edge_count(&tp, cut);
            assert_int_equal(count, 2 * 7 * 16);
            assert_ok(tape_edge(&tp, cut, &from));
            assert_ok(tape_edge(&tq, cut, &to));
            lab_send(&q, to, &p, from, count);
            for (int k = cut; k < N; k++)
                assert_ok(tape_forward(&tq, k, q_theta));
            for (int k = N - 1; k >= cut; k--)
                assert_ok(tape_backward(&tq, k, q_theta, q_grad));
            assert_ok(tape_edge_gradient(&tq, cut, &from));
            assert_ok(tape_edge_gradient(&tp, cut, &to));
            lab_send(&p, to, &q, from, count);
            if (p.model.config.tied == TIED_YES)
                lab_send(&p, p.grad_stage[0], &q, q.grad_stage[0],
                         table_stage_count(&p.model.table, 0));
            for (int k = cut - 1; k >= 0; k--)
                assert_ok(tape_backward(&tp, k, p_theta, p_grad));
            assert_true(tape_result(&tq, tq.dev).loss / (double)batch.n_targets == want_loss);
            for (int k = cut; k < N; k++)
                lab_send(&p, p.grad_stage[k], &q, q.grad_stage[k],
                         table_stage_count(&p.model.table, k));
            float *have = lab_tensors(&p, p.grad.view);
            lab_assert_bits(have, want, p.model.table.parameters, "gradient");
            free(have);
        }
        free(want);
        tape_free(&tp);
        tape_free(&tq);
        batch_free(&batch);
        lab_close(&p);
        lab_close(&q);
    }
}

struct usage {
    size_t peak;  /* of activations */
    size_t total; /* of everything  */
};

/* N micro-batches through N equal stages, in lockstep or cyclically. Checks that later rounds
 * allocate nothing and that everything comes back to the pool. */
static struct usage measure(bool cyclic, bool recompute)
{
    struct model_config c = {.arch = ARCH_LLAMA,
                             .layers = 2 * N,
                             .width = 16,
                             .heads = 2,
                             .mlp_width = 32,
                             .vocab = 29,
                             .positions = 8};
    struct lab l;
    struct batch batch[N];
    struct tape tape[N];
    struct view grad[N][LAB_STAGES];
    struct usage first = {0};
    lab_open(&l, "cpu", 1, &c, N);
    const struct extent extent = {2, 8, DTYPE_F32, false};
    for (int i = 0; i < N; i++) {
        tiny_batch(&batch[i], 2, 8, 29, 40 + (uint64_t)i, false);
        assert_ok(tape_init(&tape[i], &l.model, &l.dev, &l.pool, extent, recompute));
        memcpy(grad[i], l.grad_stage, sizeof grad[i]);
    }
    for (int round = 0; round < 3; round++) {
        if (cyclic) {
            run_cyclic(tape, batch, 2, l.theta_stage, grad);
        } else {
            for (int i = 0; i < N; i++)
                assert_ok(tape_begin(&tape[i], &batch[i], TAPE_TRAIN, 1));
            for (int k = 0; k < N; k++)
                for (int i = 0; i < N; i++)
                    assert_ok(tape_forward(&tape[i], k, l.theta_stage));
            for (int k = N - 1; k >= 0; k--)
                for (int i = 0; i < N; i++)
                    assert_ok(tape_backward(&tape[i], k, l.theta_stage, grad[i]));
        }
        assert_int_equal(lab_idle(&l.pool), l.memory.now[MEMORY_ACTIVATIONS]);
        struct usage now = {l.memory.peak[MEMORY_ACTIVATIONS], l.memory.total_peak};
        assert_int_equal(l.memory.now[MEMORY_ACTIVATIONS], now.peak); /* idle, not given back */
        if (round == 0)
            first = now;
        assert_int_equal(now.peak, first.peak);
        assert_int_equal(now.total, first.total);
    }
    if (!cyclic && !recompute) { /* all of every micro-batch at once, gradients of edges on top */
        size_t alive = N * tape_bytes(&l.model, extent, false);
        assert_true(first.peak >= alive);
        assert_true(first.peak <= alive + 2 * N * 2 * 8 * 16 * sizeof(float));
    }
    for (int i = 0; i < N; i++) {
        tape_free(&tape[i]);
        batch_free(&batch[i]);
    }
    lab_close(&l);
    return first;
}

/* Cyclic micro-batches hold (N + 1) / 2 of them at once instead of N: 0.625 for N = 4. Stages that
 * are not quite equal, and edges that sit in blocks made for stages, cost some of it. */
static void cyclic_order_needs_less_memory(void **state)
{
    (void)state;
    struct usage lockstep = measure(false, false), cyclic = measure(true, false);
    double ratio = (double)cyclic.peak / (double)lockstep.peak;
    if (!(ratio > 0.5 && ratio < 0.7))
        fail_with("cyclic %zu bytes, lockstep %zu: %.3f", cyclic.peak, lockstep.peak, ratio);
    assert_true(measure(false, true).peak < lockstep.peak);
    assert_true(measure(true, true).peak < cyclic.peak);
}

static void errors(void **state)
{
    (void)state;
    struct lab l;
    struct batch batch;
    struct tape tape;
    lab_open(&l, "cpu", 1, &tiny_configs[0], 2);
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool, (struct extent){2, 20, DTYPE_F32, false},
                        false));
    tiny_batch(&batch, 3, 13, 29, 1, false);
    assert_fails(tape_begin(&tape, &batch, TAPE_TRAIN, 1), SOTTO_EINVAL,
                 "3 x 13 tokens does not fit a tape of 2 x 20");
    batch.rows = 2;
    assert_fails(tape_begin(&tape, &batch, TAPE_TRAIN, 1), SOTTO_EINVAL,
                 "13 tokens is longer than the model's 12 positions");
    batch.t = 21;
    assert_fails(tape_begin(&tape, &batch, TAPE_EVALUATE, 1), SOTTO_EINVAL, "2 x 21");
    batch.t = 0;
    assert_fails(tape_begin(&tape, &batch, TAPE_TRAIN, 1), SOTTO_EINVAL, "2 x 0");
    batch.t = 12;
    assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1, l.theta_stage, l.grad_stage));
    tape_free(&tape);
    batch_free(&batch);
    lab_close(&l);
}

/* A micro-batch that is dropped half way (an error elsewhere, a new one begun) leaves nothing. */
static void abandoned_tapes(void **state)
{
    (void)state;
    struct lab l;
    struct batch batch;
    struct tape tape;
    float *want;
    lab_open(&l, "cpu", 1, &tiny_configs[2], N);
    tiny_batch(&batch, 2, 9, 29, 5, false);
    lab_gradient(&l, &batch, false, &want);
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool, (struct extent){2, 9, DTYPE_F32, false},
                        false));
    for (int steps = 1; steps < 2 * N; steps++) {
        assert_ok(tape_begin(&tape, &batch, TAPE_TRAIN, 1));
        for (int p = 0; p < steps; p++) {
            if (p < N)
                assert_ok(tape_forward(&tape, p, l.theta_stage));
            else
                assert_ok(tape_backward(&tape, 2 * N - 1 - p, l.theta_stage, l.grad_stage));
        }
        lab_zero(&l);
        assert_ok(tape_run(&tape, &batch, TAPE_TRAIN, 1 / (float)batch.n_targets, l.theta_stage,
                           l.grad_stage));
        float *have = lab_tensors(&l, l.grad.view);
        lab_assert_bits(have, want, l.model.table.parameters, "gradient");
        free(have);
    }
    assert_ok(tape_begin(&tape, &batch, TAPE_TRAIN, 1));
    assert_ok(tape_forward(&tape, 0, l.theta_stage));
    tape_free(&tape); /* with stage 0 still held */
    free(want);
    batch_free(&batch);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(gradients_elsewhere),
        cmocka_unit_test(fresh_gradients),
        cmocka_unit_test(fresh_in_chunks),
        cmocka_unit_test(fresh_without_targets),
        cmocka_unit_test(interleaved_tapes),
        cmocka_unit_test(mixed_versions),
        cmocka_unit_test(pipeline_over_edges),
        cmocka_unit_test(cyclic_order_needs_less_memory),
        cmocka_unit_test(errors),
        cmocka_unit_test(abandoned_tapes),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, NULL, NULL);
}
