/* Real models trained by several workers: N workers with one micro-batch each equal one worker with
 * N, to rounding, for every architecture and several cuts into stages; two runs give equal bits. */
#include "nn/tiny.h"

#include "data/text/token_files.h"
#include "strategy/names.h"
#include "train/oracle/model_oracle.h"

enum { ROUNDS = 4, ROWS = 2, MOST = 1 << 15 };

struct setting {
    const struct model *model;
    const struct loader *loader;
    int accumulate;
    int method, groups; /* ddp, zero1, fsdp; |R| */
    float x[MOST];      /* of rank 0, in the end */
    double loss[ROUNDS];
};

static enum sotto_status train(struct setting *g, struct worker *w, struct device *dev,
                               struct model_oracle *oracle, struct mesh *mesh)
{
    struct strategy_config config;
    struct optim_config optim;
    struct strategy *s;
    strategy_defaults(&config);
    optim_defaults(&optim);
    config.accumulate = g->accumulate;
    choose(&config, SHARD_DDP + g->method, REPLICATE_AUTO);
    snprintf(config.mesh, sizeof config.mesh, "%dx%d", g->groups, w->size / g->groups);
    TRY(strategy_resolve(&config, w->size));
    struct strategy_setup setup = {
        .config = &config, .optim = &optim, .oracle = &oracle->base, .dev = dev, .mesh = mesh};
    TRY(strategy_open(&s, &setup));
    float x[MOST];
    tiny_parameters(g->model, 3, x);
    enum sotto_status st = s->ops->import(s, x);
    for (int t = 0; t < ROUNDS && st == SOTTO_OK; t++) {
        struct round r;
        st = s->ops->round(s, &(struct plan){.lr = 1e-2, .want_norm = true}, &r);
        if (w->rank == 0)
            g->loss[t] = r.loss;
    }
    if (st == SOTTO_OK)
        st = s->ops->export(s, x);
    if (w->rank == 0)
        memcpy(g->x, x, table_count(&g->model->table) * sizeof *x);
    s->ops->free(s);
    return st;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct setting *g = arg;
    struct memory memory = {0};
    struct device dev;
    struct pool pool;
    struct model_oracle oracle;
    struct mesh mesh = {0};
    TRY(device_open(&dev, "cpu", &memory, 1));
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    struct model_oracle_setup setup = {.model = g->model,
                                       .dev = &dev,
                                       .pool = &pool,
                                       .loader = g->loader,
                                       .seed = 7,
                                       .rows = ROWS,
                                       .t = g->model->config.positions,
                                       .worker = w,
                                       .seconds = 0.01};
    enum sotto_status st = model_oracle_init(&oracle, &setup);
    if (st == SOTTO_OK)
        st = mesh_open(&mesh, w, g->groups, &dev);
    if (st == SOTTO_OK)
        st = train(g, w, &dev, &oracle, &mesh);
    if (mesh.worker)
        mesh_close(&mesh);
    model_oracle_free(&oracle);
    pool_free(&pool);
    device_close(&dev);
    return st;
}

static void equals_alone(void **state)
{
    (void)state;
    int32_t ids[2000];
    for (int i = 0; i < 2000; i++)
        ids[i] = (i * i + 3 * i / 7) % 29;
    assert_ok(tokens_save(at("data.bin"), ids, 2000, 29));
    struct data_config data;
    data_defaults(&data);
    strcpy(data.train, at("data.bin"));
    data.holdout = 0;
    struct loader *loader;
    assert_ok(loader_open(&loader, &data, DATA_TRAIN, NULL));
    static struct setting many, again, one;
    EACH_SHARED(which, STRIDE, TINY) {
        for (int workers = 1; workers <= 4; workers++) {
            struct model model;
            tiny_model(&model, which, 1 + workers % 3, workers);
            assert_true(table_count(&model.table) <= MOST);
            one = (struct setting){
                .model = &model, .loader = loader, .accumulate = 2 * workers, .groups = 1};
            assert_ok(engine_threads(&(struct engine_config){.workers = 1}, work, &one));
            for (int method = 0; method < 3; method++) {
                many = (struct setting){.model = &model, .loader = loader, .accumulate = 2};
                many.method = method;
                many.groups = workers == 4 ? 2 : 1;
                again = many;
                struct engine_config engine = {.workers = workers};
                assert_ok(engine_threads(&engine, work, &many));
                assert_ok(engine_virtual(&engine, work, &again));
                assert_memory_equal(many.x, again.x, sizeof many.x);
                assert_memory_equal(many.loss, again.loss, sizeof many.loss);
                for (int t = 0; t < ROUNDS;
                     t++) /* AdamW amplifies rounding where gradients are tiny */
                    if (fabs(many.loss[t] - one.loss[t]) > 1e-4)
                        fail_with("model %d, %d workers, method %d: loss %d is %g, alone %g", which,
                                  workers, method, t, many.loss[t], one.loss[t]);
            }
            model_free(&model);
        }
    }
    loader_close(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equals_alone, scratch_make, scratch_remove),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, NULL, NULL);
}
