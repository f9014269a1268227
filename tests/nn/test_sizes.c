/* Memory that was made for a large micro-batch serves every smaller one: no layer of any
 * architecture wants more for less, and a tape gives the same bits whatever it was made for. */
#include "nn/lab.h"

enum { ROWS = 8, T = 64 };

static const int vocabularies[] = {29, 8191, 50257, 1 << 21};

struct sizes {
    size_t saved, scratch[2], output;
};

static struct sizes sizes_of(const struct layer *l, struct extent e)
{
    const struct edge edge = layer_output(l, e);
    return (struct sizes){
        layer_saved(l, e),
        {layer_scratch(l, e, false), layer_scratch(l, e, true)},
        edge_count(&edge),
    };
}

static void assert_no_more(const struct layer *l, struct extent small, struct extent large)
{
    const struct sizes a = sizes_of(l, small), b = sizes_of(l, large);
    if (a.saved > b.saved || a.scratch[0] > b.scratch[0] || a.scratch[1] > b.scratch[1] ||
        a.output > b.output)
        fail_with("%s: %d x %d wants saved %zu, scratch %zu and %zu, edge %zu; %d x %d only "
                  "%zu, %zu, %zu, %zu",
                  l->ops->name, small.rows, small.t, a.saved, a.scratch[0], a.scratch[1], a.output,
                  large.rows, large.t, b.saved, b.scratch[0], b.scratch[1], b.output);
}

/* One more row, or one more position, never wants less: so the largest does for all. */
static void sizes_grow(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
            struct model_config config = tiny_configs[which];
            struct model model;
            config.vocab = vocabularies[v];
            assert_ok(model_config_resolve(&config));
            assert_ok(model_init(&model, &config, 1, 1));
            for (int i = 0; i < model.n_layer; i++) {
                for (int kind = 0; kind < 4; kind++) {
                    const enum dtype type = kind & 1 ? DTYPE_BF16 : DTYPE_F32;
                    const bool all = kind & 2;
                    for (int rows = 1; rows <= ROWS; rows++) {
                        for (int t = 1; t <= T; t++) {
                            const struct extent e = {rows, t, type, all};
                            assert_no_more(model.layer[i], e,
                                           (struct extent){rows + 1, t, type, all});
                            assert_no_more(model.layer[i], e,
                                           (struct extent){rows, t + 1, type, all});
                        }
                    }
                    for (int rows = 1; rows < 3000; rows++)
                        assert_no_more(model.layer[i], (struct extent){rows, 1, type, all},
                                       (struct extent){rows + 1, 1, type, all});
                }
            }
            model_free(&model);
        }
    }
}

/* The gradient of a batch on a tape made for `most`. */
static float *gradient(struct lab *l, struct batch *batch, struct extent most, double *loss)
{
    struct tape tape;
    assert_ok(tape_init(&tape, &l->model, &l->dev, &l->pool, most, false));
    lab_zero(l);
    assert_ok(tape_run(&tape, batch, TAPE_TRAIN, 1 / (float)batch->n_targets, l->theta_stage,
                       l->grad_stage));
    *loss = tape_result(&tape, tape.dev).loss;
    tape_free(&tape);
    return lab_tensors(l, l->grad.view);
}

/* A tape of 6 x 12 tokens computes every smaller batch, and the same; keeping more, too. */
static void smaller_batches_fit(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        lab_open(&l, "cpu", 2, &tiny_configs[which], 3);
        for (int rows = 1; rows <= 6; rows++) {
            for (int t = 1; t <= 12; t += rows % 2 + 1) {
                struct batch batch;
                double loss[2];
                tiny_batch(&batch, rows, t, 29, 5, false);
                const struct extent same = {rows, t, DTYPE_F32, false};
                const struct extent more = {6, 12, DTYPE_F32, (rows + t) % 3 == 0};
                float *want = gradient(&l, &batch, same, &loss[0]);
                float *have = gradient(&l, &batch, more, &loss[1]);
                assert_true(loss[0] == loss[1]);
                lab_assert_bits(have, want, l.model.table.parameters, "gradient");
                free(have);
                free(want);
                batch_free(&batch);
            }
        }
        lab_close(&l);
    }
}

/* Sequences [first, first + rows) of a batch, with targets at the ends of the first and the last of
 * them, and at the batch's first token: what the softmax of other rows costs is not what is tested.
 * Behind them lies another row, whose target nobody asks for. */
static void ends_of(const struct batch *all, int first, int rows, struct batch *out)
{
    const int n = rows * all->t;
    assert_ok(batch_init(out, rows, all->t + 1));
    out->t = all->t;
    memcpy(out->tokens, all->tokens + first * all->t, sizeof *out->tokens * (size_t)n);
    for (int i = 0; i < n; i++)
        out->targets[i] = -1;
    out->targets[all->t - 1] = all->targets[(first + 1) * all->t - 1];
    out->targets[n - 1] = all->targets[(first + rows) * all->t - 1];
    if (first == 0)
        out->targets[0] = all->targets[0];
    for (int i = 0; i < n; i++)
        out->n_targets += out->targets[i] >= 0;
}

/* The loss that a row's logits make. */
static double loss_of(const float *logits, int vocab, int target)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - logits[target]);
    return log(sum);
}

/* The loss without a gradient, and what the logits make it; then with a target that comes first. */
static void check_evaluation(struct lab *l, struct tape *tape, struct batch *batch, double loss)
{
    const int n = batch->rows * batch->t, vocab = l->model.config.vocab;
    float *logits = calloc((size_t)n * (size_t)vocab, sizeof *logits);
    double sum = 0;
    assert_ok(tape_begin(tape, batch, TAPE_EVALUATE, 0));
    tape->pass.logits = logits;
    assert_ok(tape_forward(tape, 0, l->theta_stage));
    for (int i = 0; i < n; i++)
        if (batch->targets[i] >= 0)
            sum += loss_of(logits + (size_t)i * (size_t)vocab, vocab, batch->targets[i]);
    assert_true(tape_result(tape, tape->dev).loss == loss && fabs(sum - loss) < 1e-5 * loss);
    assert_int_equal(tape_result(tape, tape->dev).hits, 0);
    const float *row = logits + (size_t)(n - 1) * (size_t)vocab;
    for (int i = batch->targets[n - 1] = 0; i < vocab; i++)
        if (row[i] > row[batch->targets[n - 1]])
            batch->targets[n - 1] = i;
    assert_ok(tape_run(tape, batch, TAPE_EVALUATE, 0, l->theta_stage, NULL));
    assert_int_equal(tape_result(tape, tape->dev).hits, 1);
    free(logits);
}

static float *run_ends(struct lab *l, struct tape *tape, const struct batch *all, int first,
                       int rows, double *loss)
{
    struct batch batch;
    ends_of(all, first, rows, &batch);
    lab_zero(l);
    assert_ok(tape_run(tape, &batch, TAPE_TRAIN, 1, l->theta_stage, l->grad_stage));
    const struct tape_result r = tape_result(tape, tape->dev);
    assert_int_equal(r.targets, batch.n_targets);
    check_evaluation(l, tape, &batch, r.loss);
    batch_free(&batch);
    *loss += r.loss;
    return lab_tensors(l, l->grad.view);
}

/* A batch of a large vocabulary has what its first and its last sequence have alone, on a tape that
 * was made for ROWS x T: in one chunk of 320 rows, where the largest batch has two of 256; in two
 * that are not equal, one of them of as many rows as are ever held. */
static void large_vocabulary(void **state)
{
    (void)state;
    static const int shapes[][3] = {{163841, ROWS, 40}, {254000, 7, 61}};
    for (int i = 0; i < 2; i++) {
        const int vocab = shapes[i][0], rows = shapes[i][1];
        const struct model_config config = {.arch = ARCH_LLAMA,
                                            .layers = 1,
                                            .width = 16,
                                            .heads = 1,
                                            .vocab = vocab,
                                            .positions = T,
                                            .mlp_width = 1,
                                            .tied = TIED_YES};
        struct lab l;
        struct tape tape;
        struct batch batch;
        double loss = 0, alone = 0;
        lab_open(&l, "cpu", 1, &config, 1);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){ROWS, T, DTYPE_F32, false}, false));
        tape.want_hits = true;
        tiny_batch(&batch, rows, shapes[i][2], vocab, 5, false);
        float *all = run_ends(&l, &tape, &batch, 0, rows, &loss);
        float *first = run_ends(&l, &tape, &batch, 0, 1, &alone);
        float *last = run_ends(&l, &tape, &batch, rows - 1, 1, &alone);
        assert_true(fabs(loss - alone) < 1e-5 * alone && loss > 10);
        for (size_t k = 0; k < l.model.table.parameters; k++)
            first[k] += last[k];
        assert_true(lab_distance(all, first, l.model.table.parameters) < 1e-5);
        free(all);
        free(first);
        free(last);
        batch_free(&batch);
        tape_free(&tape);
        lab_close(&l);
    }
}

#ifdef SANITIZED_ADDRESS
/* What the present micro-batch has no use for is out of bounds, though the tape has it. */
static void edges_end_with_the_batch(void **state)
{
    (void)state;
    struct lab l;
    struct tape tape;
    struct batch batch;
    lab_open(&l, "cpu", 1, &tiny_configs[0], 3);
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool, (struct extent){3, 12, DTYPE_F32, false},
                        false));
    for (int t = 1; t <= 12; t++) {
        tiny_batch(&batch, 3, t, 29, 5, false);
        struct view edge;
        assert_ok(tape_begin(&tape, &batch, TAPE_TRAIN, 1));
        assert_ok(tape_edge(&tape, 1, &edge));
        const size_t count = tape_edge_count(&tape, 1);
        assert_int_equal(count, 3 * (size_t)t * 16);
        assert_false(__asan_address_is_poisoned(view_at(edge, count - 1).data));
        assert_true(__asan_address_is_poisoned(view_at(edge, count).data));
        batch_free(&batch);
    }
    tape_free(&tape);
    lab_close(&l);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_grow),
        cmocka_unit_test(smaller_batches_fit),
        cmocka_unit_test(large_vocabulary),
#ifdef SANITIZED_ADDRESS
        cmocka_unit_test(edges_end_with_the_batch),
#endif
    };
    return run_cases(tests, SANITIZED ? 2 : 1, NULL, NULL);
}
