/* State and faults of dpu, acco-wp and acco: tentative steps move nothing, readers see the real
 * parameters, memory is as in ACCO's table 1, and a fault ends all workers. */
#include "strategy/overlap/overlap.h"
#include "strategy/overlap/overlap_lab.h"

static const int methods[] = {SHARD_DPU, SHARD_ACCO_WP, SHARD_ACCO};

static struct lab optimizer(int method, int workers, int which)
{
    struct lab lab = lab_make(method, workers);
    lab.kind = which < 2 ? OPTIM_SGD : OPTIM_ADAMW;
    lab.momentum = which == 1 ? 0.9 : 0;
    lab.decay = 0.1;
    return lab;
}

/* Hashes this worker's state and its part of the parameters. */
static enum sotto_status hash_of(struct seat *seat, uint64_t *hash)
{
    struct state_visitor v;
    struct overlap *o = (struct overlap *)seat->s;
    state_hasher_init(&v);
    enum sotto_status st = seat->s->ops->visit(seat->s, &v);
    if (st == SOTTO_OK)
        st = state_table(&v, &seat->q.table, &o->shard.own, MEMORY_PARAMETERS, &seat->dev,
                         o->shard.x.view);
    *hash = v.hash;
    state_free(&v);
    return st;
}

/* Between any two rounds, and before the first. */
static enum sotto_status peeks(struct seat *seat)
{
    struct overlap *o = (struct overlap *)seat->s;
    struct replicate *r = o->shard.replicate;
    struct buffer away;
    TRY(seat_import(seat));
    TRY(buffer_init(&away, r->is.dev, DTYPE_F32, COUNT, MEMORY_SCRATCH));
    for (int t = 0; t < ROUNDS; t++) {
        uint64_t before, after;
        float room[COUNT];
        for (int i = 0; i < COUNT; i++)
            room[i] = 1 + (float)i;
        write_floats(r->is.dev, away.view, COUNT, room);
        for (int k = 0; k < r->is.n_part; k++) /* the next round sets its own views */
            r->is.part[k].theta = r->is.part[k].g = view_at(away.view, r->is.part[k].begin);
        TRY(hash_of(seat, &before));
        for (int i = 0; i < 3; i++)
            TRY(replicate_peek(r, 0.1, 0.5));
        TRY(hash_of(seat, &after));
        read_floats(r->is.dev, away.view, COUNT, room);
        if (before != after || room[0] == 1)
            return fail(SOTTO_EINVAL, "a peek before round %d moved something", t);
        TRY(seat_rounds(seat, t, t + 1));
    }
    buffer_free(&away);
    return SOTTO_OK;
}

static void tentative_steps_move_nothing(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int workers = 1; workers <= 4; workers *= 4) {
            struct lab plain = optimizer(SHARD_ACCO, workers, which), peeked = plain;
            peeked.body = peeks;
            assert_ok(lab_virtual(&plain));
            assert_ok(lab_virtual(&peeked));
            assert_memory_equal(plain.x, peeked.x, sizeof plain.x);
        }
}

/* gather and export agree and show theta, also where gradients are computed elsewhere; whether
 * anybody looks makes no difference. */
static enum sotto_status looks(struct seat *seat)
{
    TRY(seat_import(seat));
    for (int t = 0; t < ROUNDS; t++) {
        struct round round;
        double theta[COUNT];
        float x[COUNT];
        TRY(seat_round(seat, t, true, &round));
        TRY(seat_gather(seat, theta));
        TRY(seat->s->ops->export(seat->s, x));
        if (seat->worker->rank == 0)
            memcpy(seat->lab->x[t], x, sizeof x);
    }
    return SOTTO_OK;
}

static void real_parameters_are_shown(void **state)
{
    (void)state;
    for (int m = 0; m < 3; m++)
        for (int variant = 0; variant < 8; variant++) {
            struct lab plain = optimizer(methods[m], 4, variant % 2 ? 2 : 0);
            plain.precision = variant & 2 ? PRECISION_MIXED : PRECISION_FP32;
            plain.groups = variant & 4 ? 2 : 1;
            struct lab looked = plain;
            looked.body = looks;
            assert_ok(lab_virtual(&plain));
            assert_ok(lab_virtual(&looked));
            assert_memory_equal(plain.x, looked.x, sizeof plain.x);
        }
}

static enum sotto_status trains_unseen(struct seat *seat)
{
    struct round round;
    TRY(seat_import(seat));
    for (int t = 0; t < ROUNDS; t++)
        TRY(seat_round(seat, t, false, &round));
    return SOTTO_OK;
}

static void check_memory(int method, int workers, int groups, int grads)
{
    struct lab lab = optimizer(method, workers, 2);
    lab.groups = groups;
    lab.precision = PRECISION_MIXED;
    lab.grads = grads;
    lab.body = trains_unseen;
    assert_ok(lab_virtual(&lab));
    assert_int_equal(lab.bytes[MEMORY_PARAMETERS], 2 * COUNT);
    assert_int_equal(lab.bytes[MEMORY_GRADIENTS], (grads == GRADS_BF16 ? 2 : 4) * COUNT);
    assert_int_equal(lab.bytes[MEMORY_COMMUNICATION], 2 * COUNT);
    assert_int_equal(lab.bytes[MEMORY_OPTIMIZER], 12 * COUNT / (workers / groups));
    assert_int_equal(lab.bytes[MEMORY_OUTER], 0);
    assert_int_equal(lab.bytes[MEMORY_SCRATCH], 0);
    for (int i = 0; i < MEMORY_SCRATCH; i++) /* the norm's sum has some scratch */
        assert_int_equal(lab.peak[i], lab.bytes[i]);
}

/* Bytes a parameter, mixed: 2 + 2 + 2 + 12/|S|, before the first round and in all of them; with
 * gradients in fp32, as is usual, 2 + 4 + 2 + 12/|S|. */
static void memory_table(void **state)
{
    (void)state;
    for (int m = 0; m < 3; m++)
        for (int workers = 1; workers <= 8; workers *= 2)
            for (int groups = 1; groups <= workers; groups *= 2)
                for (int grads = GRADS_AUTO; grads <= GRADS_BF16; grads++)
                    check_memory(methods[m], workers, groups, grads);
}

/* The first gradients, half 1 and half 2 of the first and of a later round: micro-batch n of worker
 * 1 ends all workers, and the message names it. */
static void no_number(void **state)
{
    (void)state;
    int32_t count[LINES][MOST];
    for (int i = 0; i < LINES; i++)
        for (int r = 0; r < MOST; r++)
            count[i][r] = 1;
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < 6; n++) {
            struct lab lab = optimizer(methods[m], 4, 2);
            char part[64];
            snprintf(part, sizeof part, "worker 1: the loss of micro-batch %d is", n);
            lab.nan_at = 4 * n + 1;
            assert_fails(lab_virtual(&lab), SOTTO_ENUMERIC, part);
            assert_fails(lab_threads(&lab), SOTTO_ENUMERIC, part);
            lab_replay(&lab, "ones", count, LINES);
            assert_fails(lab_virtual(&lab), SOTTO_ENUMERIC, part);
            assert_fails(lab_threads(&lab), SOTTO_ENUMERIC, part);
        }
}

/* Another worker fails while this worker is slower, faster, or waits in its lane. */
static void no_number_among_unequal_workers(void **state)
{
    (void)state;
    const double speed[4] = {1, 0.1, 3, 0.3};
    const int node[4] = {0, 1, 2, 3};
    const struct link_model links = {.inter = {.latency = 0.7}};
    const struct engine_config engine = {
        .workers = 4, .node = node, .links = &links, .speed = speed};
    for (int m = 0; m < 3; m++)
        for (int bad = 0; bad < 24; bad++) {
            struct lab lab = optimizer(methods[m], 4, 2);
            char part[64];
            snprintf(part, sizeof part, "worker %d: the loss of micro-batch %d is", bad % 4,
                     bad / 4);
            lab.nan_at = bad;
            assert_fails(engine_virtual(&engine, seat_work, &lab), SOTTO_ENUMERIC, part);
        }
}

static void write_text(struct lab *lab, const char *text)
{
    snprintf(lab->replay, sizeof lab->replay, "%s", at("bad"));
    assert_ok(file_write(lab->replay, text, strlen(text)));
}

static void bad_replays(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum sotto_status code;
        const char *part;
    } bad[] = {
        {"1 1\n2 1\n", SOTTO_EINVAL, "has no counts for further rounds"},
        {"", SOTTO_EINVAL, "has no counts for further rounds"},
        {"# nothing\n", SOTTO_EINVAL, "has no counts for further rounds"},
        {"1 1\n1\n", SOTTO_EFORMAT, "bad:2: want 2 counts of 1 or more, got '1'"},
        {"1 1\n1 0\n", SOTTO_EFORMAT, "bad:2: want 2 counts of 1 or more, got '1 0'"},
        {"0 1\n", SOTTO_EFORMAT, "bad:1: want 2 counts of 1 or more"},
        {"1 -1\n", SOTTO_EFORMAT, "bad:1: want 2 counts of 1 or more"},
        {"1 1 1\n", SOTTO_EFORMAT, "bad:1: more than 2 counts"},
        {"1 one\n", SOTTO_EFORMAT, "bad:1: want 2 counts"},
        {"1 9999999999\n", SOTTO_EFORMAT, "bad:1: want 2 counts"},
        {"1 1.5\n", SOTTO_EFORMAT, "bad:1: more than 2 counts"},
    };
    for (int m = 0; m < 3; m++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct lab lab = optimizer(methods[m], 2, 2);
            write_text(&lab, bad[i].text);
            assert_fails(lab_virtual(&lab), bad[i].code, bad[i].part);
            assert_fails(lab_threads(&lab), bad[i].code, bad[i].part);
            assert_non_null(strstr(sotto_error(), lab.replay));
        }
    struct lab lab = optimizer(SHARD_ACCO, 2, 2);
    snprintf(lab.replay, sizeof lab.replay, "%s", at("nowhere"));
    assert_fails(lab_virtual(&lab), SOTTO_EIO, "nowhere");
    lab = optimizer(SHARD_ACCO, 2, 2); /* as written by a run, and as saved by editors */
    write_text(&lab, "# counts\n1\t2\r\n\n2 1 \n");
    lab.rounds = 1;
    assert_ok(lab_virtual(&lab));
    assert_int_equal(lab.lines, 2);
    assert_int_equal(lab.count[0][1], 2);
    assert_int_equal(lab.round[0].microbatches, 2 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tentative_steps_move_nothing),
        cmocka_unit_test(real_parameters_are_shown),
        cmocka_unit_test(memory_table),
        cmocka_unit_test(no_number),
        cmocka_unit_test(no_number_among_unequal_workers),
        cmocka_unit_test(bad_replays),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
