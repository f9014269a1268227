/* Checkpoints in the middle of dpu, acco-wp and acco, with gradients that are computed and not
 * applied yet: the same workers continue with the same bits; another number of workers, or another
 * method, applies each of these gradients once. */
#include "strategy/overlap/overlap_reference.h"
#include "train/run/gather.h"

/* What a run does between two checkpoints: round `from` to `to`, with a checkpoint before `middle`.
 */
struct leg {
    const char *load, *save; /* NULL: starts from zero; saves nothing */
    int from, middle, to;
    const float *start; /* the parameters in `load` */
};

static enum sotto_status visit(void *arg, struct state_visitor *v)
{
    struct strategy *s = ((struct seat *)arg)->s;
    return s->ops->visit(s, v);
}

static enum sotto_status save(struct seat *seat, const char *path)
{
    const bool leads = seat->worker->rank == 0;
    struct state_visitor v = {0};
    struct gathered parcels = {0};
    if (leads)
        TRY(state_saver_init(&v));
    enum sotto_status st = gather_state(seat->worker->world, seat->mesh.r == 0, visit, seat,
                                        &seat->memory, &v, &parcels);
    if (leads) {
        if (st == SOTTO_OK)
            st = state_saver_write(&v, path);
        state_free(&v);
        gathered_free(&parcels);
    }
    TRY(st);
    return comm_barrier(seat->worker->world);
}

/* Only an estimate and counts may be of no use. */
static enum sotto_status load(struct seat *seat, const char *path)
{
    struct state_visitor v;
    TRY(state_loader_open(&v, path));
    const bool predicts = seat->lab->method == SHARD_ACCO_WP;
    seat->predicted = predicts && state_has(&v, "est.");
    enum sotto_status st = visit(seat, &v);
    if (!predicts)
        TRY(state_ignore(&v, "est."));
    if (!seat->s->ops->history)
        TRY(state_ignore(&v, "history."));
    if (st == SOTTO_OK)
        st = state_loader_finish(&v);
    state_free(&v);
    return st;
}

static enum sotto_status run_leg(struct seat *seat)
{
    const struct leg *leg = seat->lab->arg;
    if (leg->load)
        TRY(seat->s->ops->import(seat->s, leg->start));
    else
        TRY(seat_import(seat));
    if (leg->load)
        TRY(load(seat, leg->load));
    TRY(seat_rounds(seat, leg->from, leg->middle));
    if (leg->save)
        TRY(save(seat, leg->save));
    return seat_rounds(seat, leg->middle, leg->to);
}

static void run(struct lab *lab, struct leg leg)
{
    lab->body = run_leg;
    lab->arg = &leg;
    assert_ok(lab_virtual(lab));
    lab->arg = NULL;
}

/* Rounds [from, ROUNDS) and all counts are the same. */
static void assert_same(const struct lab *a, const struct lab *b, int from)
{
    assert_memory_equal(a->x[from], b->x[from], (size_t)(ROUNDS - from) * sizeof a->x[0]);
    for (int t = from; t < ROUNDS; t++)
        assert_true(a->round[t].loss == b->round[t].loss &&
                    a->round[t].microbatches == b->round[t].microbatches);
    assert_int_equal(a->lines, b->lines);
    assert_memory_equal(a->count, b->count, sizeof a->count);
}

/* What is loaded and saved again at once is the same checkpoint. */
static void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x, *y;
    assert_ok(file_read(a, 1 << 24, &x, &n));
    assert_ok(file_read(b, 1 << 24, &y, &m));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void same_workers(void **state)
{
    (void)state;
    static const int methods[] = {SHARD_DPU, SHARD_DPU, SHARD_ACCO_WP, SHARD_ACCO};
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int which = 0; which < 4; which++)
        for (int variant = 0; variant < 8; variant++)
            for (int k = 1; k < ROUNDS - 1; k++) {
                struct lab lab = lab_make(methods[which], 4);
                lab.warmup = which == 1 ? 2 : 0;
                lab.weight = WEIGHT_TOKENS;
                lab.decay = 0.1;
                lab.groups = variant & 1 ? 2 : 1;
                lab.precision = variant & 2 ? PRECISION_MIXED : PRECISION_FP32;
                lab.grads = variant & 2 && k % 2 ? GRADS_BF16 : GRADS_AUTO;
                if (variant & 4)
                    lab_replay(&lab, "counts", count, LINES);
                struct lab whole = lab, resumed = lab, again = lab;
                run(&whole, (struct leg){NULL, at("state"), 0, k, ROUNDS, NULL});
                const float *x = whole.x[k - 1];
                run(&resumed, (struct leg){at("state"), at("same"), k, k, ROUNDS, x});
                assert_same_file(at("state"), at("same"));
                assert_same(&whole, &resumed, k);
                run(&again, (struct leg){at("same"), NULL, k, k + 1, ROUNDS, x});
                assert_same(&whole, &again, k);
            }
}

/* Continues the reference as `lab`. A run that cannot keep each worker's place in the data
 * continues after the furthest, so that no data are used twice. */
static void change(struct reference *r, const struct lab *lab)
{
    int64_t furthest = 0;
    const int workers = r->is.workers;
    for (int w = 0; w < workers; w++)
        furthest = r->next[w] > furthest ? r->next[w] : furthest;
    for (int w = 0; w < lab->workers; w++)
        if (lab->workers != workers || lab->method < SHARD_DPU)
            r->next[w] = (furthest * workers + lab->workers - 1) / lab->workers;
    r->predicted = r->predicted && lab->method == SHARD_ACCO_WP;
    r->is = *lab;
    r->count = NULL;
}

static void compare_changed(const struct lab *before, int32_t (*count)[MOST],
                            const struct lab *after, int k)
{
    struct reference r;
    int lines = 0; /* that belong to other workers */
    reference_init(&r, before, count);
    for (int t = 0; t < ROUNDS; t++) {
        struct plan plan = lab_plan(t);
        if (t == k && after->workers != before->workers)
            lines = r.line;
        if (t == k)
            change(&r, after);
        reference_round(&r, &plan);
        reference_compare(&r, t < k ? before : after, t);
    }
    if (after->method >= SHARD_DPU)
        assert_int_equal(after->lines, r.line - lines);
}

/* dpu, acco-wp and acco with 4 workers that are unequally far, resumed by all methods with 2, 4 and
 * 8 workers; and these are stopped once more, and continue their own bits. */
static void others(void **state)
{
    (void)state;
    enum { K = 3, STOP = 5 };
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int from = SHARD_DPU; from <= SHARD_ACCO; from++)
        for (int variant = 0; variant < 4; variant++) {
            struct lab first = lab_make(from, 4);
            first.kind = variant & 1 ? OPTIM_ADAMW : OPTIM_SGD;
            first.weight = variant & 2 ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
            lab_replay(&first, "counts", count, LINES);
            run(&first, (struct leg){NULL, at("first"), 0, K, K, NULL});
            for (int to = SHARD_DDP; to <= SHARD_ACCO; to++)
                for (int workers = 2; workers <= 8; workers *= 2) {
                    struct lab second = first;
                    second.method = to;
                    second.workers = workers;
                    second.groups = variant & 1 && to != SHARD_DDP ? 2 : 1;
                    second.warmup = to == SHARD_DPU ? K + 1 : 0; /* not with gradients ahead */
                    second.accumulate = 1 + variant % 2;
                    second.lines = 0;
                    *second.replay = '\0';
                    struct lab third = second;
                    const float *x = first.x[K - 1];
                    run(&second, (struct leg){at("first"), at("second"), K, STOP, ROUNDS, x});
                    compare_changed(&first, count, &second, K);
                    x = second.x[STOP - 1];
                    run(&third, (struct leg){at("second"), NULL, STOP, STOP, ROUNDS, x});
                    assert_same(&second, &third, STOP);
                }
        }
}

/* fsdp saves gradients that it has not added yet unchanged. */
static void unused(void **state)
{
    (void)state;
    enum { K = 2 };
    for (int method = SHARD_DDP; method <= SHARD_FSDP; method++) {
        struct lab first = lab_make(SHARD_ACCO, 4), second = first, third = first;
        run(&first, (struct leg){NULL, at("first"), 0, K, ROUNDS, NULL});
        second.method = method;
        run(&second, (struct leg){at("first"), at("second"), K, K, ROUNDS, first.x[K - 1]});
        run(&third, (struct leg){at("second"), NULL, K, K, ROUNDS, first.x[K - 1]});
        assert_memory_equal(first.x[K], third.x[K], (ROUNDS - K) * sizeof first.x[0]);
    }
}

/* Gradients summed in one type are used by a run that sums in the other: all of them, to the
 * rounding of bf16. */
static void another_type(void **state)
{
    (void)state;
    enum { K = 3 };
    for (int to = SHARD_DDP; to <= SHARD_ACCO; to++)
        for (int variant = 0; variant < 4; variant++) {
            struct lab first = lab_make(SHARD_ACCO, 4), same = first, other = first;
            first.precision = same.precision = other.precision = PRECISION_MIXED;
            first.grads = variant & 1 ? GRADS_FP32 : GRADS_BF16;
            same.method = other.method = to;
            same.workers = other.workers = variant & 2 ? 2 : 4;
            same.grads = first.grads;
            other.grads = variant & 1 ? GRADS_BF16 : GRADS_FP32;
            run(&first, (struct leg){NULL, at("first"), 0, K, K, NULL});
            const float *x = first.x[K - 1];
            run(&same, (struct leg){at("first"), NULL, K, K, K + 1, x});
            run(&other, (struct leg){at("first"), NULL, K, K, K + 1, x});
            for (int i = 0; i < COUNT; i++)
                if (!(fabsf(same.x[K][i] - other.x[K][i]) <=
                      0.02f * fabsf(same.x[K][i] - x[i]) + 1e-3f)) /* of terms that cancel out */
                    fail_with("method %d, variant %d: x[%d] goes from %g to %g, not to %g", to,
                              variant, i, x[i], other.x[K][i], same.x[K][i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_workers),
        cmocka_unit_test(others),
        cmocka_unit_test(unused),
        cmocka_unit_test(another_type),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, scratch_make, scratch_remove);
}
