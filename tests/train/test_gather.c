/* State that workers send to rank 0: what arrives is what each of them has. */
#include "base/scratch.h"

#include "comm/worker.h"
#include "train/run/gather.h"

/* The names alone take more than was set aside for them, so the large tensor no longer fits. */
enum { WORKERS = 3, NAMES = 1000, LARGE = 1 << 15 };

struct owner {
    struct device dev;
    int index, of; /* slice `index` of `of` */
    float small[WORKERS * NAMES], large[WORKERS * LARGE];
};

static enum sotto_status visit(void *arg, struct state_visitor *v)
{
    struct owner *o = arg;
    const size_t of = (size_t)o->of, index = (size_t)o->index, each = WORKERS / of;
    for (int i = 0; i < NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "a.name.that.is.as.long.as.those.of.models.%d", i);
        struct view x = view_of(o->small + (size_t)i * each, DTYPE_F32);
        TRY(state_slice(v, name, MEMORY_OPTIMIZER, &o->dev, x, WORKERS, index * each, each));
    }
    struct view x = view_of(o->large, DTYPE_F32);
    return state_slice(v, "large", MEMORY_OPTIMIZER, &o->dev, x, WORKERS * LARGE,
                       index * each * LARGE, each * LARGE);
}

static enum sotto_status save(struct worker *w, void *arg)
{
    struct owner *o = &((struct owner *)arg)[w->rank];
    struct memory memory = {0};
    struct state_visitor v = {0};
    struct gathered parcels = {0};
    o->index = w->rank;
    o->of = w->size;
    for (int i = 0; i < NAMES; i++)
        o->small[i] = (float)(i * WORKERS + w->rank);
    for (int i = 0; i < LARGE; i++)
        o->large[i] = (float)(w->rank * LARGE + i);
    TRY(device_open(&o->dev, "cpu", &memory, 1));
    enum sotto_status st = w->rank == 0 ? state_saver_init(&v) : SOTTO_OK;
    if (st == SOTTO_OK)
        st = gather_state(w->world, true, visit, o, &memory, &v, &parcels);
    if (st == SOTTO_OK && w->rank == 0)
        st = state_saver_write(&v, at("state"));
    if (w->rank == 0) {
        state_free(&v);
        gathered_free(&parcels);
    }
    device_close(&o->dev);
    if (st == SOTTO_OK && memory.now[MEMORY_CHECKPOINT] != 0)
        st = fail(SOTTO_EINVAL, "worker %d keeps a parcel", w->rank);
    return st;
}

static void many_names(void **state)
{
    (void)state;
    static struct owner owners[WORKERS], all;
    struct memory memory = {0};
    struct state_visitor v;
    assert_ok(engine_threads(&(struct engine_config){.workers = WORKERS}, save, owners));
    assert_ok(device_open(&all.dev, "cpu", &memory, 1));
    all.of = 1;
    assert_ok(state_loader_open(&v, at("state")));
    assert_ok(visit(&all, &v));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
    device_close(&all.dev);
    for (int i = 0; i < WORKERS * NAMES; i++)
        assert_true(all.small[i] == (float)i);
    for (int i = 0; i < WORKERS * LARGE; i++)
        assert_true(all.large[i] == (float)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_names, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
