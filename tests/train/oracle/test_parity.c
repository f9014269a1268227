/* Models against vectors made by transformers (tools/make_vectors.py): logits, loss, every
 * gradient, ten AdamW losses; for every cut into stages, with and without recomputation. */
#include "train/oracle/parity_lab.h"

static void read_ints(const struct safetensors *set, const char *name, int32_t *out)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    assert_non_null(e);
    int64_t *wide = malloc(e->count * sizeof *wide);
    assert_ok(safetensors_read_i64(e, wide));
    for (size_t i = 0; i < e->count; i++)
        out[i] = (int32_t)wide[i];
    free(wide);
}

static void open_text(struct parity *p, const char *arch, const struct parity_way *way)
{
    struct model_config config;
    parity_open(p, arch, &config);
    assert_ok(model_init(&p->model, &config, way->stages, 8));
    const struct safetensors_entry *tokens = safetensors_find(&p->vectors, "tokens");
    int rows = (int)tokens->shape[0], t = (int)tokens->shape[1];
    assert_ok(batch_init(&p->batch, rows, t));
    read_ints(&p->vectors, "tokens", p->batch.tokens);
    read_ints(&p->vectors, "targets", p->batch.targets);
    for (int i = 0; i < rows * t; i++)
        p->batch.n_targets += p->batch.targets[i] >= 0;
    parity_place(p, way, rows, DTYPE_F32);
    for (int i = 0; i < p->model.table.n; i++) {
        char name[256];
        size_t count;
        snprintf(name, sizeof name, "param.%s", p->model.table.entry[i].name);
        float *x = parity_read(&p->vectors, name, &count);
        assert_int_equal(count, p->model.table.entry[i].count);
        p->dev.ops->write(&p->dev, table_view(&p->model.table, p->theta_stage, i), x, count);
        free(x);
    }
}

static void check_gradients(struct parity *p)
{
    parity_loss(p, parity_gradient(p));
    for (int i = 0; i < p->model.table.n; i++) {
        char name[256];
        size_t count;
        snprintf(name, sizeof name, "grad.%s", p->model.table.entry[i].name);
        float *want = parity_read(&p->vectors, name, &count);
        float *have = malloc((count + 1) * sizeof *have);
        p->dev.ops->read(&p->dev, have, table_view(&p->model.table, p->grad_stage, i), count);
        parity_tensor(p, name, have, want, count, 1e-5);
        free(want);
        free(have);
    }
}

static void check_adamw(struct parity *p)
{
    struct optim_config config;
    optim_defaults(&config);
    config.weight_decay = 0.1;
    struct optim optim;
    size_t count;
    float *want = parity_read(&p->vectors, "adamw.losses", &count);
    assert_int_equal(count, 10);
    assert_ok(optim_init(&optim, &config, &p->dev, &p->model.table, NULL, MEMORY_OPTIMIZER));
    for (size_t step = 0; step < count; step++) {
        const double loss = parity_gradient(p);
        if (!(fabs(loss - want[step]) < 1e-4))
            fail_with("AdamW step %zu: loss %f, transformers %f", step, loss, want[step]);
        optim_step(&optim, p->theta.view, view_none, p->grad.view, 1e-2, 1);
    }
    optim_free(&optim);
    free(want);
}

static void check(const char *arch)
{
    static const struct parity_way ways[] = {{"reference", 1, false}, {"cpu", 1, false},
                                             {"cpu", 2, false},       {"cpu", 3, true},
                                             {"cpu", 5, false},       {"cpu", 1, true}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct parity p;
        open_text(&p, arch, &ways[i]);
        parity_logits(&p, 1e-4);
        check_gradients(&p);
        check_adamw(&p);
        parity_close(&p);
    }
}

static void gpt2(void **state)
{
    (void)state;
    check("gpt2");
}

static void gpt_neo(void **state)
{
    (void)state;
    check("gpt_neo");
}

static void llama(void **state)
{
    (void)state;
    check("llama");
    check("llama_tied");
    check("llama3");
    check("llama_linear");
}

static void olmo2(void **state)
{
    (void)state;
    check("olmo2");
}

static void mistral(void **state)
{
    (void)state;
    check("mistral");
}

static void qwen2(void **state)
{
    (void)state;
    check("qwen2");
    check("qwen2_window");
}

static void qwen3(void **state)
{
    (void)state;
    check("qwen3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),  cmocka_unit_test(gpt_neo), cmocka_unit_test(llama),
        cmocka_unit_test(olmo2), cmocka_unit_test(mistral), cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, NULL, NULL);
}
