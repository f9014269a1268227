/* The mailbox: records of each worker arrive on rank 0 in their order, from a given worker or from
 * any, without a worker that waits for another. */
#include "base/scratch.h"

#include "train/report/mailbox.h"

enum { WORKERS = 4, RECORDS = 6 };

struct letter {
    int64_t rank, number;
    char text[11]; /* so that a record is no whole number of words */
};

static struct letter letter_of(int rank, int number)
{
    struct letter l = {.rank = rank, .number = number};
    snprintf(l.text, sizeof l.text, "%d of %d", number, rank);
    return l;
}

static void check_letter(const struct letter *have, int rank, int number)
{
    const struct letter want = letter_of(rank, number);
    assert_int_equal(have->rank, want.rank);
    assert_int_equal(have->number, want.number);
    assert_string_equal(have->text, want.text);
}

/* All from the last rank first; then those of the others, in any order of ranks. */
static enum sotto_status take_all(struct mailbox *m, int size)
{
    struct letter l;
    bool found;
    int next[WORKERS] = {0};
    for (int n = 0; n < RECORDS; n++) {
        TRY(mailbox_take(m, size - 1, true, &l, &found));
        assert_true(found);
        check_letter(&l, size - 1, n);
    }
    for (int left = (size - 1) * RECORDS; left > 0; left--) {
        TRY(mailbox_take(m, MAILBOX_ANY, true, &l, &found));
        assert_true(found && l.rank >= 0 && l.rank < size);
        check_letter(&l, (int)l.rank, next[l.rank]++);
    }
    for (int from = MAILBOX_ANY; from < size; from++) {
        TRY(mailbox_take(m, from, false, &l, &found));
        assert_false(found);
    }
    return SOTTO_OK;
}

/* `arg`: true if the clock must not move. */
static enum sotto_status work(struct worker *w, void *arg)
{
    struct mailbox *m;
    const bool *still = arg;
    const double begin = clock_now(w->clock);
    enum sotto_status st = mailbox_open(&m, w, sizeof(struct letter));
    for (int n = 0; n < RECORDS && st == SOTTO_OK; n++) {
        const struct letter l = letter_of(w->rank, n);
        st = mailbox_send(m, &l);
    }
    if (st == SOTTO_OK && w->rank == 0)
        st = take_all(m, w->size);
    if (st == SOTTO_OK)
        st = mailbox_flush(m);
    if (*still)
        assert_true(clock_now(w->clock) == begin);
    if (st == SOTTO_OK)
        st = comm_barrier(w->world);
    mailbox_close(m);
    return st;
}

static void between_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= WORKERS; n++)
        assert_ok(engine_threads(&(struct engine_config){.workers = n}, work, &(bool){false}));
}

/* Over links that take seconds: the clock stands still. */
static void in_virtual_time(void **state)
{
    const struct link_model links = {.intra = {.bandwidth = 1e3, .latency = 1}};
    const int node[WORKERS] = {0};
    (void)state;
    for (int n = 1; n <= WORKERS; n++)
        assert_ok(
            engine_virtual(&(struct engine_config){.workers = n, .node = node, .links = &links},
                           work, &(bool){true}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_threads),
        cmocka_unit_test(in_virtual_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
