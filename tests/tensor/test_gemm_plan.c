/* Any cut of a product covers the product with its blocks, and packed operands and counters do not
 * overlap inside the requested room: also if a smaller product uses the room of a larger
 * product. */
#include "tensor/cpu/gemm/plan.h"

#include "tensor/on_cpu.h"

struct shape {
    int m, n, k;
};

static const int threads[] = {1, 2, 3, 5, 16, 33};
enum { TEAMS = sizeof threads / sizeof *threads };

static void assert_covers(int parts, int each, int size)
{
    assert_true(parts >= 1 && (parts - 1) * each < size && parts * each >= size);
}

static void assert_within(const struct gemm_plan *p, const float *room, size_t floats, int team,
                          int few)
{
    const struct gemm_kernels *f = p->kernels;
    const float *b_end = p->b + strip_size(f, p->columns, p->depth);
    assert_ptr_equal(p->a, room);
    assert_true(p->a + strip_size(f, p->rows, p->depth) <= p->b);
    assert_true(p->rows % f->rows == 0 && p->columns % f->columns == 0);
    if (team <= few) {
        assert_true(b_end <= room + floats);
        return;
    }
    assert_true(b_end <= p->a + p->thread_stride);
    assert_true(p->thread_stride % 16 == 0); /* threads share no line */
    assert_true((const float *)(void *)p->taken >= p->a + p->thread_stride * (size_t)team);
    const int places = p->down * p->across;
    const atomic_int *end = p->left + places * p->abreast;
    assert_true(p->added >= p->taken + p->deep * p->down && p->left >= p->added + places);
    assert_true((const float *)(const void *)end <= room + floats);
    assert_true(p->abreast >= 1 && p->abreast <= p->deep);
    if (p->abreast > 1) {
        const size_t part = (size_t)p->rows * (size_t)p->columns;
        assert_true((const float *)(const void *)end <= p->sums);
        assert_true(p->sums + (size_t)(places * p->abreast) * part <= room + floats);
    }
    for (atomic_int *c = p->taken; c < end; c++) {
        assert_int_equal(*c, 0);
        *c = -1;
    }
}

/* A room with `most` floats, filled so that no counter is 0. */
struct stage {
    struct device on;
    float *room;
    size_t most;
};

static void check(struct stage *s, struct shape asked, struct shape made, bool half, int team)
{
    const size_t floats = cpu_gemm_room(&s->on, asked.m, asked.n, asked.k, half);
    assert_true(floats <= s->most);
    const struct gemm_plan p = gemm_plan_of(&s->on, made.m, made.n, made.k, half, s->room, team);
    assert_covers(p.down, p.rows, made.m);
    assert_covers(p.across, p.columns, made.n);
    assert_covers(p.deep, p.depth, made.k);
    assert_within(&p, s->room, floats, team, few_threads(&s->on));
}

static void plans_stay_in_their_room(void **state)
{
    (void)state;
    static const int sizes[] = {1, 5, 33, 427, 769, 1537, 4609};
    static const int depths[] = {1, 33, 769, 1537, 50 * 768}; /* the last: slices are full */
    enum { N = sizeof sizes / sizeof *sizes, DEPTHS = sizeof depths / sizeof *depths };
    enum { CASES = N * N * DEPTHS };
    for (int t = 0; t < TEAMS; t++) {
        const int most = sizes[N - 1], deep = depths[DEPTHS - 1];
        struct stage s;
        assert_ok(device_open(&s.on, "cpu", &memory, threads[t]));
        s.most = cpu_gemm_room(&s.on, most, most, deep, false) +
                 cpu_gemm_room(&s.on, most, most, deep, true);
        s.room = aligned_alloc(64, round_up(s.most * sizeof(float), 64));
        assert_non_null(s.room);
        memset(s.room, 0xff, s.most * sizeof(float));
        for (int i = 0; i < 2 * CASES; i++) {
            const struct shape all = {sizes[i % N], sizes[i / N % N], depths[i / N / N % DEPTHS]};
            const struct shape less = {all.m, all.n - all.n / 3, all.k - all.k / 3};
            check(&s, all, all, i < CASES, threads[t]);
            check(&s, all, less, i < CASES, threads[t]);
            check(&s, all, all, i < CASES, 1); /* too little work for the team */
        }
        free(s.room);
        device_close(&s.on);
    }
}

/* A portion is an equal share for few threads, an eighth of a share for many threads, and at least
 * 1. */
static void portions_are_shares(void **state)
{
    (void)state;
    assert_int_equal(chunks_per_turn(0, 1), 1);
    assert_int_equal(chunks_per_turn(7, 1), 7);
    assert_int_equal(chunks_per_turn(2, 2), 1);
    assert_int_equal(chunks_per_turn(5, 2), 3);
    assert_int_equal(chunks_per_turn(16, 16), 1);
    assert_int_equal(chunks_per_turn(1280, 16), 10);
    assert_int_equal(chunks_per_turn(1281, 16), 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST_ON_CPU(plans_stay_in_their_room),
                                       TEST_ON_CPU(portions_are_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
