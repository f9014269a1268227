/* Gradients that are added up in fp32 (strategy.grads): many micro-batches that all point the same
 * way move the parameters as in double precision, under every method, and no more bytes are sent
 * than with sums in bf16, which stop growing. */
#include "strategy/overlap/overlap_reference.h"

enum { MANY = 400, FEW_ROUNDS = 2 };

static struct lab coherent(int method, int workers, int grads)
{
    struct lab lab = lab_make(method, workers);
    lab.still = true; /* every micro-batch is the same one */
    lab.kind = OPTIM_SGD;
    lab.accumulate = MANY;
    lab.warmup = method == SHARD_DPU ? 1 : 0;
    lab.precision = PRECISION_MIXED;
    lab.grads = grads;
    lab.rounds = FEW_ROUNDS;
    return lab;
}

/* Returns the largest error of a parameter, as a share of its way. Two roundings to bf16, of theta
 * and of the sent gradient, and the sum over the workers are below one in a hundred. */
static double worst(const struct lab *lab)
{
    struct reference r;
    double most = 0;
    reference_init(&r, lab, NULL);
    for (int t = 0; t < lab->rounds; t++) {
        struct plan plan = lab_plan(t);
        reference_round(&r, &plan);
        for (int i = 0; i < COUNT; i++) {
            double way = fabs(r.theta[i] - lab_start(i));
            double share = fabs(lab->x[t][i] - r.theta[i]) / way;
            if (!(share <= most)) /* fmax is more than gcc 12 can compile here for aarch64 */
                most = share;
        }
    }
    return most;
}

static void as_in_double(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_ACCO; method++)
        for (int variant = 0; variant < 6; variant++) {
            const int shapes[][2] = {{1, 1}, {4, 1}, {4, 2}};
            const int *shape = shapes[variant / 2];
            struct lab lab = coherent(method, shape[0], variant % 2 ? GRADS_FP32 : GRADS_AUTO);
            lab.groups = shape[1];
            assert_ok(lab_virtual(&lab));
            double off = worst(&lab);
            if (!(off < 0.01))
                fail_with("method %d, %d workers in %d groups, grads %d: %g of the way off", method,
                          shape[0], shape[1], lab.grads, off);
        }
}

/* The purpose of the option: the test above would notice bf16 sums. */
static void bf16_sums_stop_growing(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_ACCO; method++) {
        struct lab lab = coherent(method, 2, GRADS_BF16);
        assert_ok(lab_virtual(&lab));
        assert_true(worst(&lab) > 0.1);
    }
}

/* Counts bytes sent by rank 0 in its lane. */
static enum sotto_status count_bytes(struct seat *seat)
{
    const struct mesh *m = &seat->mesh;
    const struct comm *const comms[] = {m->lane_world, m->lane_shard, m->lane_replicate};
    TRY(seat_train(seat));
    int64_t *sent = seat->lab->arg;
    for (size_t i = 0; i < sizeof comms / sizeof *comms && seat->worker->rank == 0; i++)
        for (int op = 0; op < COMM_CALLS; op++)
            *sent += comms[i]->stats[op].inside + comms[i]->stats[op].between;
    return SOTTO_OK;
}

static void the_wire_stays_bf16(void **state)
{
    (void)state;
    for (int method = SHARD_DDP; method <= SHARD_ACCO; method++)
        for (int groups = 1; groups <= 2; groups++) {
            int64_t sent[2] = {0};
            for (int i = 0; i < 2; i++) {
                struct lab lab = coherent(method, 4, i ? GRADS_FP32 : GRADS_BF16);
                lab.groups = groups;
                lab.accumulate = 3;
                lab.body = count_bytes;
                lab.arg = &sent[i];
                assert_ok(lab_virtual(&lab));
            }
            assert_true(sent[0] > 0);
            assert_int_equal(sent[0], sent[1]);
        }
}

static void only_in_mixed_precision(void **state)
{
    (void)state;
    for (int grads = GRADS_FP32; grads <= GRADS_BF16; grads++) {
        struct lab lab = lab_make(SHARD_DDP, 1);
        lab.grads = grads;
        assert_fails(lab_virtual(&lab), SOTTO_EINVAL, "strategy.grads");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_double),
        cmocka_unit_test(bf16_sums_stop_growing),
        cmocka_unit_test(the_wire_stays_bf16),
        cmocka_unit_test(only_in_mixed_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
