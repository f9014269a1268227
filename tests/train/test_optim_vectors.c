/* Optimizer trajectories against torch (tools/make_vectors.py). */
#include "base/scratch.h"

#include <math.h>

#include "base/json.h"
#include "io/safetensors.h"
#include "optim/optim.h"

enum { COUNT = 37, STEPS = 5 };

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Hyper-parameters from the file's metadata. */
static struct optim_config read_config(const struct safetensors *set, const char *name)
{
    struct optim_config c;
    json_t *json;
    const char *text = safetensors_metadata(set, name);
    assert_non_null(text);
    assert_ok(json_parse(&json, text, strlen(text), name));
    optim_defaults(&c);
    c.decay = DECAY_ALL; /* torch decays all that it is given */
    c.lr = number(json, "lr");
    c.weight_decay = number(json, "weight_decay");
    if (strcmp(name, "adamw") == 0) {
        c.beta1 = json_number_value(json_array_get(json_object_get(json, "betas"), 0));
        c.beta2 = json_number_value(json_array_get(json_object_get(json, "betas"), 1));
        c.eps = number(json, "eps");
    } else {
        c.kind = OPTIM_SGD;
        c.momentum = number(json, "momentum");
        c.nesterov = json_is_true(json_object_get(json, "nesterov"));
    }
    json_decref(json);
    return c;
}

static void read(const struct safetensors *set, const char *name, float *out, size_t count)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    assert_non_null(e);
    assert_int_equal(e->count, count);
    assert_ok(safetensors_read_f32(e, out));
}

/* Both compute in fp32 but round in another order: a few last places of values around 1. */
static void follow(const char *name, const char *device)
{
    struct safetensors set;
    float x[COUNT], grads[STEPS * COUNT], want[STEPS * COUNT];
    char key[64];
    assert_ok(safetensors_open(&set, TEST_VECTORS "/adamw_sgd.safetensors"));
    struct optim_config config = read_config(&set, name);
    snprintf(key, sizeof key, "%s.x", name);
    read(&set, "x0", x, COUNT);
    read(&set, "grads", grads, STEPS * COUNT);
    read(&set, key, want, STEPS * COUNT);
    struct table table = {0};
    const int64_t shape[TABLE_DIMS] = {COUNT};
    struct memory memory = {0};
    struct device dev;
    struct optim optim;
    assert_int_equal(table_add(&table, "x", shape, TABLE_ZERO, 0), 0);
    assert_ok(table_layout(&table, 1, 1));
    assert_ok(device_open(&dev, device, &memory, 1));
    assert_ok(optim_init(&optim, &config, &dev, &table, NULL, MEMORY_OPTIMIZER));
    for (int t = 0; t < STEPS; t++) {
        optim_step(&optim, view_of(x, DTYPE_F32), view_none, view_of(grads + t * COUNT, DTYPE_F32),
                   config.lr, 1);
        for (int i = 0; i < COUNT; i++)
            if (!(fabs((double)x[i] - want[t * COUNT + i]) < 1e-6))
                fail_with("%s on %s, step %d: x[%d] = %.9g, torch has %.9g", name, device, t, i,
                          x[i], want[t * COUNT + i]);
    }
    optim_free(&optim);
    table_free(&table);
    device_close(&dev);
    safetensors_close(&set);
}

static void trajectories(void **state)
{
    (void)state;
    static const char *const names[] = {"adamw", "sgd", "sgd_momentum", "sgd_nesterov"};
    for (int i = 0; i < 4; i++) {
        follow(names[i], "cpu");
        follow(names[i], "reference");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
