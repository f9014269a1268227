/* The loader as a function of its place: purity, coverage, splits, sharding. Token files that count
 * upwards make every token say where it came from. */
#include <pthread.h>

#include "data/fixture.h"

enum { COUNT = 1003, T = 10 };

static struct loader *open_counting(int count)
{
    struct data_config config = config_for(make_counting("count.bin", 0, count, count));
    config.holdout = 0;
    return open_loader(&config, DATA_TRAIN, NULL);
}

static void targets_are_tokens_shifted(void **state)
{
    (void)state;
    struct loader *loader = open_counting(COUNT);
    struct batch batch;
    assert_int_equal(batch_init(&batch, 4, T), SOTTO_OK);
    for (int t = 1; t <= T; t++) {
        assert_int_equal(loader_fill(loader, (struct loader_place){1, 5, 0, 1}, 4, t, &batch),
                         SOTTO_OK);
        assert_int_equal(batch.rows, 4);
        assert_int_equal(batch.t, t);
        assert_int_equal(batch.n_targets, 4 * t);
        for (int i = 0; i < 4 * t; i++) {
            assert_int_equal(batch.targets[i], batch.tokens[i] + 1);
            if (i % t)
                assert_int_equal(batch.tokens[i], batch.tokens[i - 1] + 1);
        }
    }
    batch_free(&batch);
    loader_close(loader);
}

/* The starts of an epoch, in whatever order they came, are t apart without a gap or a repetition.
 */
static int check_starts(const char *seen, int count, int windows)
{
    int first = 0;
    while (!seen[first])
        first++;
    for (int i = 0; i < count; i++)
        assert_int_equal(seen[i], i >= first && (i - first) % T == 0 && (i - first) / T < windows);
    return first;
}

static void check_epochs(const struct loader *loader, int count, int size, int rows)
{
    enum { EPOCHS = 4 };
    const int windows = count / T - 1;
    char *seen = calloc((size_t)count, 1);
    int offset[EPOCHS], epoch = 0, in_epoch = 0;
    struct batch batch;
    assert_non_null(seen);
    assert_int_equal(batch_init(&batch, rows, T), SOTTO_OK);
    for (int64_t index = 0; epoch < EPOCHS; index++) {
        for (int rank = 0; rank < size; rank++) {
            struct loader_place place = {42, index, rank, size};
            assert_int_equal(loader_fill(loader, place, rows, T, &batch), SOTTO_OK);
            for (int row = 0; row < rows && epoch < EPOCHS; row++) {
                seen[batch.tokens[row * T]]++;
                if (++in_epoch < windows)
                    continue;
                offset[epoch++] = check_starts(seen, count, windows);
                memset(seen, 0, (size_t)count);
                in_epoch = 0;
            }
        }
    }
    assert_true(offset[0] != offset[1] || offset[1] != offset[2] || offset[2] != offset[3]);
    batch_free(&batch);
    free(seen);
}

static void each_window_once_an_epoch(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 8}, counts[] = {COUNT, 1000, 1009, 57};
    for (int c = 0; c < 4; c++) {
        struct loader *loader = open_counting(counts[c]);
        for (int s = 0; s < 4; s++) {
            check_epochs(loader, counts[c], sizes[s], 1);
            check_epochs(loader, counts[c], sizes[s], 3);
        }
        loader_close(loader);
    }
}

static void both_ends_are_reached(void **state)
{
    (void)state;
    struct batch batch;
    assert_int_equal(batch_init(&batch, 1, T), SOTTO_OK);
    for (int count = T + 1; count <= 3 * T; count++) { /* one window, or two, wherever it is put */
        struct loader *loader = open_counting(count);
        int first = count, last = 0;
        for (int64_t i = 0; i < 400; i++) {
            assert_int_equal(loader_fill(loader, (struct loader_place){3, i, 0, 1}, 1, T, &batch),
                             SOTTO_OK);
            first = batch.tokens[0] < first ? batch.tokens[0] : first;
            last = batch.targets[T - 1] > last ? batch.targets[T - 1] : last;
        }
        assert_int_equal(first, 0);
        assert_int_equal(last, count - 1);
        loader_close(loader);
    }
    batch_free(&batch);
}

static void order_depends_on_seed_and_epoch(void **state)
{
    (void)state;
    struct loader *loader = open_counting(COUNT);
    struct batch a, b;
    assert_int_equal(batch_init(&a, 8, T), SOTTO_OK);
    assert_int_equal(batch_init(&b, 8, T), SOTTO_OK);
    assert_int_equal(loader_fill(loader, (struct loader_place){1, 0, 0, 1}, 8, T, &a), SOTTO_OK);
    assert_int_equal(loader_fill(loader, (struct loader_place){2, 0, 0, 1}, 8, T, &b), SOTTO_OK);
    assert_memory_not_equal(a.tokens, b.tokens, 8 * T * sizeof *a.tokens);
    int same = 0; /* the next epoch's order is another one: distances between windows, whatever the
                     offset */
    const int windows = COUNT / T - 1;
    for (int i = 0; i + 1 < windows; i++) {
        int start[4];
        for (int k = 0; k < 4; k++) {
            struct loader_place place = {1, i + k % 2 + k / 2 * windows, 0, 1};
            assert_int_equal(loader_fill(loader, place, 1, T, &a), SOTTO_OK);
            start[k] = a.tokens[0];
        }
        same += start[1] - start[0] == start[3] - start[2];
    }
    assert_true(same < windows / 4);
    batch_free(&a);
    batch_free(&b);
    loader_close(loader);
}

enum { BATCHES = 64, ROWS = 3, THREADS = 4 };

struct job {
    const struct loader *loader;
    const int32_t *want; /* (BATCHES, ROWS, T) */
    int step, wrong;
};

static void *ask_again(void *arg)
{
    struct job *job = arg;
    struct batch batch;
    if (batch_init(&batch, ROWS, T) != SOTTO_OK) {
        job->wrong = 1;
        return NULL;
    }
    for (int i = 0; i < 4 * BATCHES; i++) { /* in a scrambled order, each four times */
        int k = (i * job->step + 7) % BATCHES;
        struct loader_place place = {9, k / 2, k % 2, 2};
        job->wrong |= loader_fill(job->loader, place, ROWS, T, &batch) != SOTTO_OK;
        job->wrong |=
            memcmp(batch.tokens, job->want + k * ROWS * T, ROWS * T * sizeof *batch.tokens) != 0;
    }
    batch_free(&batch);
    return NULL;
}

static void same_place_same_batch(void **state)
{
    (void)state;
    struct loader *loader = open_counting(COUNT);
    static int32_t want[BATCHES * ROWS * T];
    struct batch batch;
    assert_int_equal(batch_init(&batch, ROWS, T), SOTTO_OK);
    for (int k = 0; k < BATCHES; k++) {
        struct loader_place place = {9, k / 2, k % 2, 2};
        assert_int_equal(loader_fill(loader, place, ROWS, T, &batch), SOTTO_OK);
        memcpy(want + k * ROWS * T, batch.tokens, ROWS * T * sizeof *want);
    }
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){loader, want, 2 * i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_again, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].wrong, 0);
    }
    batch_free(&batch);
    loader_close(loader);
}

static void in_order_covers_all(void **state)
{
    (void)state;
    const int counts[] = {11, 20, 21, 101, 111, 140}, all_rows[] = {1, 3, 4};
    for (int c = 0; c < 6; c++) {
        struct loader *loader = open_counting(counts[c]);
        for (int r = 0; r < 3; r++) {
            int rows = all_rows[r], next = 0;
            struct batch batch;
            assert_int_equal(batch_init(&batch, rows, T), SOTTO_OK);
            int64_t n = loader_batches(loader, rows, T);
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(loader_fill_in_order(loader, i, rows, T, &batch), SOTTO_OK);
                assert_true(batch.rows == rows ||
                            (i == n - 1 && batch.rows > 0 && batch.rows < rows));
                assert_int_equal(batch.n_targets, batch.rows * T);
                for (int k = 0; k < batch.rows * T; k++) {
                    assert_int_equal(batch.tokens[k], next++);
                    assert_int_equal(batch.targets[k], next);
                }
            }
            assert_int_equal(next, (counts[c] - 1) / T * T);
            batch_free(&batch);
        }
        loader_close(loader);
    }
}

/* Marks every token that the loader hands out over some epochs. */
static void mark(const struct loader *loader, int t, char *seen)
{
    struct batch batch;
    assert_int_equal(batch_init(&batch, 1, t), SOTTO_OK);
    for (int64_t i = 0; i < 2000; i++) {
        assert_int_equal(loader_fill(loader, (struct loader_place){5, i, 0, 1}, 1, t, &batch),
                         SOTTO_OK);
        for (int k = 0; k < t; k++)
            seen[batch.tokens[k]] = seen[batch.targets[k]] = 1;
    }
    batch_free(&batch);
}

static void train_and_valid_do_not_overlap(void **state)
{
    (void)state;
    char two[OPTION_ROOM];
    snprintf(two, sizeof two, "%s, %s", make_counting("a.bin", 0, 600, 1000),
             make_counting("b.bin", 600, 400, 1000));
    struct data_config config = config_for(two);
    config.holdout = 0.1;
    struct loader *train = open_loader(&config, DATA_TRAIN, NULL);
    struct loader *valid = open_loader(&config, DATA_VALID, NULL);
    char in_train[1000] = {0}, in_valid[1000] = {0};
    mark(train, 7, in_train);
    mark(valid, 7, in_valid);
    for (int i = 0; i < 1000; i++) {
        int held = (i >= 540 && i < 600) || i >= 960;
        assert_true(!in_train[i] || !held);
        assert_true(!in_valid[i] || held);
    }
    assert_int_equal(loader_tokens(train), 900);
    assert_int_equal(loader_tokens(valid), 100);
    assert_int_equal(train->vocab, 1000);
    assert_int_equal(train->sources, 2);
    assert_true(in_train[20] && in_train[539] && in_train[600] && in_valid[540 + 7] &&
                in_valid[990]);
    loader_close(train);
    loader_close(valid);
}

/* Which of `sources` files of 100 tokens each worker reads; bit s for source s. */
static void check_sharding(int sources, int size)
{
    char all[OPTION_ROOM] = "";
    for (int s = 0; s < sources; s++) {
        char name[16];
        snprintf(name, sizeof name, "s%d.bin", s);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s,",
                 make_counting(name, 100 * s, 100, 1000));
    }
    struct data_config config = config_for(all);
    config.holdout = 0;
    config.sharding = DATA_BY_SOURCE;
    struct loader *loader = open_loader(&config, DATA_TRAIN, NULL);
    struct batch batch;
    assert_int_equal(batch_init(&batch, 1, 9), SOTTO_OK);
    unsigned together = 0;
    static int seen[16][1000]; /* (source, start): times in the first epoch */
    memset(seen, 0, sizeof seen);
    for (int rank = 0; rank < size; rank++) {
        unsigned mine = 0;
        int shared = sources < size ? (size - 1 - rank % sources) / sources + 1 : 1;
        for (int64_t i = 0; i < 200; i++) {
            assert_int_equal(
                loader_fill(loader, (struct loader_place){1, i, rank, size}, 1, 9, &batch),
                SOTTO_OK);
            mine |= 1u << batch.tokens[0] / 100;
            if (i < 10 / shared) /* 100 / 9 - 1 = 10 windows an epoch */
                seen[batch.tokens[0] / 100][batch.tokens[0]]++;
        }
        if (sources < size) {
            assert_int_equal(mine, 1u << rank % sources);
        } else {
            unsigned want = 0;
            for (int s = rank * sources / size; s < (rank + 1) * sources / size; s++)
                want |= 1u << s;
            assert_int_equal(mine, want);
            assert_int_equal(together & mine, 0);
        }
        together |= mine;
    }
    assert_int_equal(together, (1u << sources) - 1);
    if (sources <= size)
        for (int s = 0; s < sources; s++)
            for (int i = 0; i < 1000; i++)
                assert_true(seen[s][i] <= 1); /* ranks that share a source read different windows */
    batch_free(&batch);
    loader_close(loader);
}

static void workers_read_their_own_sources(void **state)
{
    (void)state;
    check_sharding(4, 4);
    check_sharding(5, 2);
    check_sharding(8, 3);
    check_sharding(2, 5);
    check_sharding(3, 8);
    check_sharding(1, 3);
}

static void lengths_are_checked(void **state)
{
    (void)state;
    struct batch batch;
    assert_int_equal(batch_init(&batch, 1, 300), SOTTO_OK);
    char two[OPTION_ROOM];
    snprintf(two, sizeof two, "%s,%s", make_counting("a.bin", 0, 100, 200),
             make_counting("b.bin", 0, 20, 200));
    struct data_config config = config_for(two);
    config.holdout = 0;
    struct loader *loader = open_loader(&config, DATA_TRAIN, NULL);
    const char *message = "data has 120 tokens, one sequence needs 257";
    struct loader_place place = {0, 0, 0, 1};
    assert_error(loader_fill(loader, place, 1, 256, &batch), SOTTO_EINVAL, message);
    assert_error(loader_fill_in_order(loader, 0, 1, 256, &batch), SOTTO_EINVAL, message);
    assert_error(loader_check(loader, 1, 256), SOTTO_EINVAL, message);
    assert_int_equal(loader_batches(loader, 1, 256), 0);
    assert_error(loader_check(loader, 8, 120), SOTTO_EINVAL, "needs 121");
    assert_int_equal(loader_check(loader, 8, 119), SOTTO_OK);
    assert_int_equal(loader_fill(loader, place, 1, 119, &batch), SOTTO_OK);
    loader_close(loader);

    config.sharding = DATA_BY_SOURCE;
    loader = open_loader(&config, DATA_TRAIN, NULL);
    assert_int_equal(loader_check(loader, 1, 64), SOTTO_OK);
    assert_error(loader_check(loader, 2, 64), SOTTO_EINVAL,
                 "b.bin has 20 tokens, one sequence needs 65");
    loader_close(loader);
    batch_free(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_tokens_shifted),
        cmocka_unit_test(each_window_once_an_epoch),
        cmocka_unit_test(both_ends_are_reached),
        cmocka_unit_test(order_depends_on_seed_and_epoch),
        cmocka_unit_test(same_place_same_batch),
        cmocka_unit_test(in_order_covers_all),
        cmocka_unit_test(train_and_valid_do_not_overlap),
        cmocka_unit_test(workers_read_their_own_sources),
        cmocka_unit_test(lengths_are_checked),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
