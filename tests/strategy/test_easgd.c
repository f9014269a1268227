/* What the test of a method with memory of its own looks like (docs/internals/adding-a-method.md):
 * easgd.c against its formula in every mesh and sharding, and where it is another method. Saving it
 * in the middle, and other divisions of the vector, are a row of test_owned.c. */
#include "strategy/replicate/replicate_lab.h"

enum { TAU = 3 };

struct formula {
    struct reference ref; /* groups, and their local steps */
    double z[COUNT];
};

static struct lab easgd_lab(int shard, int groups, int slices, const char *const *options)
{
    struct lab lab = lab_make(REPLICATE_SYNC, shard, groups, slices);
    lab.options = options; /* which choose the method */
    return lab;
}

static void pull_groups(struct formula *f, double beta)
{
    const int n = f->ref.is.groups;
    for (int i = 0; i < COUNT; i++) {
        double mean = 0;
        for (int r = 0; r < n; r++)
            mean += (f->ref.x[r][i] - f->z[i]) / n;
        for (int r = 0; r < n; r++)
            f->ref.x[r][i] -= beta / n * (f->ref.x[r][i] - f->z[i]);
        f->z[i] += beta * mean;
    }
}

/* Every step of every group, and the evaluated model: the centre, once groups have diverged. */
static void equals_formula(struct lab *lab, double beta)
{
    struct formula f;
    float start[COUNT];
    assert_ok(lab_run(lab));
    lab_start(start);
    reference_start(&f.ref, &lab->rule, start);
    for (int i = 0; i < COUNT; i++)
        f.z[i] = start[i];
    for (int t = 0; t < lab->steps; t++) {
        for (int r = 0; r < lab->rule.groups; r++)
            reference_inner(&f.ref, r, lab_lr_of(lab, t));
        if (t % TAU == TAU - 1)
            pull_groups(&f, beta);
        for (int i = 0; i < COUNT; i++) {
            const double shown = lab->rule.groups > 1 ? f.z[i] : f.ref.x[0][i];
            for (int r = 0; r < lab->rule.groups; r++)
                if (!(fabs(lab->own[t][r][i] - f.ref.x[r][i]) <= 1e-5))
                    fail_with("step %d: group %d has x[%d] = %.9g, not %.9g", t, r, i,
                              lab->own[t][r][i], f.ref.x[r][i]);
            if (!(fabs(lab->x[t][i] - shown) <= 1e-5))
                fail_with("step %d: x[%d] = %.9g is exported, not %.9g", t, i, lab->x[t][i], shown);
        }
    }
}

static void formula(void **state)
{
    (void)state;
    static const char *const options[] = {"replicate=easgd", "tau=3", "beta=0.6", NULL};
    static const int meshes[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 2}, {2, 2}, {3, 2}, {2, 4}};
    for (int i = 0; i < 8 * 3; i++) {
        struct lab lab = easgd_lab(SHARD_DDP + i % 3, meshes[i / 3][0], meshes[i / 3][1], options);
        lab.threads = i % 2;
        equals_formula(&lab, 0.6);
    }
}

/* One group without a pull is plain training, to the bit. */
static void identity(void **state)
{
    (void)state;
    static const char *const options[] = {"replicate=easgd", "tau=3", "beta=0", NULL};
    struct lab easgd = easgd_lab(SHARD_DDP, 1, 2, options);
    struct lab plain = lab_make(REPLICATE_SYNC, SHARD_DDP, 1, 2);
    assert_ok(lab_run(&easgd));
    assert_ok(lab_run(&plain));
    assert_memory_equal(easgd.x, plain.x, sizeof plain.x);
}

static void refused(void **state)
{
    (void)state;
    static const char *const options[] = {"replicate=easgd", "beta=2", NULL};
    struct lab lab = easgd_lab(SHARD_DDP, 2, 1, options);
    assert_fails(lab_run(&lab), SOTTO_EINVAL, "beta = 2 is out of range: want 0 to 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula),
        cmocka_unit_test(identity),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
