/* Tiles of vectors, and messages of their coefficients. */
#include "base/scratch.h"

#include <math.h>

#include "base/rng.h"
#include "strategy/decoupled/codec.h"

static struct memory memory;

static const int section[] = {0, 1, 2, 3, 4, 5, 6, 7}; /* each stage is one */

/* A matrix, a prime vector, a tensor of four dimensions, a matrix of primes, a scalar's vector, in
 * two stages that are padded. */
static void make_table(struct table *t, int pad)
{
    static const struct {
        const char *name;
        int64_t shape[5];
        int stage;
    } tensors[] = {
        {"w", {12, 35}, 0}, {"k", {6, 2, 3, 5}, 1}, {"b", {101}, 0},
        {"p", {7, 13}, 1},  {"one", {1}, 1},        {"u", {64}, 1},
    };
    *t = (struct table){0};
    for (int i = 0; i < 6; i++) {
        const int k = table_add(t, tensors[i].name, tensors[i].shape, TABLE_NORMAL, 1);
        assert_int_equal(k, i);
        t->entry[k].stage = tensors[i].stage;
    }
    assert_ok(table_layout(t, 2, pad));
}

/* How many tiles each element is in. */
static void count_tiles(const struct tiling_plan *plan, int *in)
{
    for (int k = 0; k < plan->n; k++) {
        const struct tiles *t = &plan->list[k];
        for (int i = 0; i < t->ny * t->h; i++)
            for (int j = 0; j < t->nx * t->w; j++)
                in[t->at + (t->h > 1 || t->ny > 1 ? (size_t)i * t->stride : 0) + (size_t)j]++;
    }
}

/* Each worker's chunks cover its own part of the tensors once, and no padding. */
static void chunks_cover_tensors(void **state)
{
    (void)state;
    for (int of = 1; of <= 4; of++)
        for (int index = 0; index < of; index++)
            for (int chunk = 1; chunk <= 64; chunk += 7) {
                const struct tiling_rule rule = {.chunk = chunk, .top = 3};
                struct table table;
                struct owned own = {0};
                struct tiling_plan plan;
                int in[1024] = {0}, want[1024] = {0};
                size_t kept = 0, elements = 0, ends[2];
                make_table(&table, 12 * of);
                assert_ok(owned_slices(&own, &table, index, of));
                assert_ok(tiling_make(&plan, &rule, &table, &own, section));
                for (int i = 0; i < table.n; i++)
                    for (struct piece p = {0}; owned_next(&own, table_range(&table, i), &p);)
                        for (size_t e = 0; e < p.count; e++, elements++)
                            want[p.own + e] = 1;
                count_tiles(&plan, in);
                assert_memory_equal(in, want, sizeof in);
                owned_stages(&own, &table, ends);
                for (int k = 0, i = 0; k < 2; k++) {
                    size_t of_stage = 0;
                    assert_int_equal(plan.section[k].first, i);
                    assert_int_equal(plan.section[k].end, ends[k]); /* after padding */
                    for (; i < plan.section[k].first + plan.section[k].n; i++) {
                        const struct tiles *t = &plan.list[i];
                        assert_true(t->at < ends[k] && (k == 0 || t->at >= ends[0]));
                        assert_true(t->h == 1 && t->w <= chunk && (t->w == chunk || t->nx == 1));
                        assert_int_equal(t->keep, t->w < 3 ? t->w : 3);
                        assert_int_equal(t->kept, of_stage);
                        of_stage += (size_t)(t->nx * t->keep);
                    }
                    assert_int_equal(plan.section[k].kept, of_stage);
                    kept += of_stage;
                }
                assert_int_equal(plan.section[0].n + plan.section[1].n, plan.n);
                assert_int_equal(plan.kept, kept);
                assert_int_equal(plan.elements, elements);
                tiling_free(&plan);
                owned_free(&own);
                table_free(&table);
            }
}

/* Without padding chunks continue over stages, even over stages shorter than a chunk: a chunk
 * belongs to the stage of its first element, and a stage is complete once the messages of all
 * stages up to it are decoded. */
static void chunks_reach_over(void **state)
{
    (void)state;
    static const int64_t shape[] = {5, 0};
    static const size_t end[] = {16, 16, 16, 32, 32, 32, 40, 40}, of[] = {16, 0, 0, 16, 0, 0, 8, 0};
    const struct tiling_rule rule = {.chunk = 16, .top = 2};
    struct table table = {0};
    struct tiling_plan plan;
    for (int k = 0; k < 8; k++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", k);
        assert_int_equal(table_add(&table, name, shape, TABLE_ZERO, 0), k);
        table.entry[k].stage = k;
    }
    assert_ok(table_layout(&table, 8, 1));
    assert_ok(tiling_make(&plan, &rule, &table, NULL, section));
    for (int k = 0; k < 8; k++) {
        assert_int_equal(plan.section[k].elements, of[k]);
        assert_int_equal(plan.section[k].kept, of[k] ? 2 : 0);
        assert_int_equal(plan.section[k].end, end[k]);
    }
    tiling_free(&plan);
    static const int joined[] = {0, 0, 0, 0, 1, 1, 2, 2};
    static const size_t of_joined[] = {32, 0, 8}, end_joined[] = {32, 32, 40};
    assert_ok(tiling_make(&plan, &rule, &table, NULL, joined));
    assert_int_equal(plan.n_section, 3);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(plan.section[k].elements, of_joined[k]);
        assert_int_equal(plan.section[k].end, end_joined[k]);
    }
    tiling_free(&plan);
    table_free(&table);
}

static void tiles_of_tensors(void **state)
{
    (void)state;
    static const struct {
        int ny, nx, h, w, top, rate;
    } want[] = {
        {2, 5, 6, 7, 5, 5},  {1, 3, 6, 10, 5, 7}, {1, 101, 1, 1, 1, 1},
        {1, 13, 7, 1, 5, 1}, {1, 1, 1, 1, 1, 1},  {1, 8, 1, 8, 5, 1},
    };
    static const int order[] = {0, 2, 1, 3, 4, 5}; /* by stages */
    for (int k = 0; k < 2; k++) {
        const struct tiling_rule rule = {
            .chunk = 10, .top = 5, .rate = k ? 0.125 : 0, .tiles = true};
        struct table table;
        struct tiling_plan plan;
        int in[1024] = {0};
        make_table(&table, 12);
        assert_ok(tiling_make(&plan, &rule, &table, NULL, section));
        assert_int_equal(plan.n, 6);
        assert_int_equal(plan.section[1].first, 2);
        for (int place = 0; place < 6; place++) {
            const int i = order[place];
            const struct tiles *t = &plan.list[place];
            const int ny = want[i].ny, keep = k ? want[i].rate : want[i].top;
            if (t->h != want[i].h || t->w != want[i].w || t->nx != want[i].nx || t->ny != ny ||
                t->keep != keep)
                fail_with("%s has %d x %d tiles of (%d, %d), %d kept", table.entry[i].name, t->ny,
                          t->nx, t->h, t->w, t->keep);
        }
        count_tiles(&plan, in);
        for (size_t e = 0; e < table_count(&table); e++) {
            int covered = 0;
            for (int i = 0; i < table.n; i++)
                covered += e >= table_range(&table, i).begin && e < table_range(&table, i).end;
            assert_int_equal(in[e], covered);
        }
        tiling_free(&plan);
        table_free(&table);
    }
}

/* A share k/n of n elements is k of them, also where the product of the two is a little less. */
static void shares_that_are_whole(void **state)
{
    (void)state;
    for (int n = 1; n <= 100; n++)
        for (int k = 1; k <= n; k++) {
            const struct tiling_rule rule = {.chunk = n, .rate = (double)k / n};
            struct table table = {0};
            struct tiling_plan plan;
            assert_int_equal(table_add(&table, "x", (int64_t[]){n, 0}, TABLE_ZERO, 0), 0);
            assert_ok(table_layout(&table, 1, 1));
            assert_ok(tiling_make(&plan, &rule, &table, NULL, NULL));
            assert_int_equal(plan.list[0].keep, k);
            tiling_free(&plan);
            table_free(&table);
        }
}

/* More tiles than an int can count, along either side: their lists follow each other without a gap,
 * and the message has the length of all lists together. No memory is allocated. */
static void very_many(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[3];
        bool tiles;
        size_t n, lists, bytes; /* two values a tile, and two places of 6 or 12 bits */
    } big[] = {
        {{400000000000}, false, 6250000000, 6, 59375000000},
        {{400000000000}, true, 6250000000, 6, 59375000000},
        {{64, 1l << 40}, true, 1l << 34, 16, 188978561024},
        {{1l << 40, 64}, true, 1l << 34, 16, 188978561024},
        {{1l << 22, 3l << 21}, true, 3l << 31, 7, 70866960384},
    };
    struct device dev;
    assert_ok(device_open(&dev, "null", &memory, 1));
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        const struct tiling_rule rule = {.chunk = 64, .top = 2, .tiles = big[i].tiles};
        struct table table = {0};
        struct codec c;
        size_t n = 0, elements = 0;
        assert_int_equal(table_add(&table, "w", big[i].shape, TABLE_ZERO, 1), 0);
        assert_ok(table_layout(&table, 1, 1));
        assert_ok(codec_init(&c, &dev, &rule, CODEC_F32, &table, NULL, NULL, 2));
        for (int k = 0; k < c.tiling.n; k++) {
            const struct tiles *t = &c.tiling.list[k];
            assert_int_equal(t->kept, 2 * n);
            assert_true(t->ny > 0 && t->nx > 0 && (int64_t)t->ny * t->nx <= 1 << 30);
            assert_int_equal(t->at, t->ny == 1 ? n * (size_t)t->w : elements);
            n += (size_t)t->ny * (size_t)t->nx;
            elements += (size_t)t->ny * (size_t)t->nx * (size_t)(t->h * t->w);
        }
        if (n != big[i].n || elements != table.parameters || c.tiling.elements != elements ||
            c.tiling.kept != 2 * n || c.bytes != big[i].bytes || (size_t)c.tiling.n != big[i].lists)
            fail_with("case %zu: %zu tiles of %zu elements, %zu kept in %d lists, %zu bytes", i, n,
                      elements, c.tiling.kept, c.tiling.n, c.bytes);
        codec_free(&c);
        table_free(&table);
    }
    device_close(&dev);
}

/* Tiles of w have 6 bits, b has none; of the second stage those of k have 6, those of p and u 3,
 * and do not follow one another. Of chunks two runs have a shorter last one. Larger tiles of k and
 * p have 7 bits, and share a byte. To whole words, in each stage. */
static void length_of_messages(void **state)
{
    (void)state;
    static const struct {
        struct tiling_rule rule;
        size_t kept[2], indices[2];
        int lists[2];
    } shape[] = {
        {{.chunk = 10, .top = 5, .tiles = true},
         {50 + 101, 15 + 65 + 1 + 40},
         {38, 12 + 25 + 15},
         {1, 3}},
        {{.chunk = 64, .rate = 1 / 16.}, {8 * 4 + 1, 5 * 4 + 1}, {24 + 1, 15 + 1}, {2, 2}},
        {{.chunk = 16, .top = 3, .tiles = true}, {15 + 101, 6 + 3 + 1 + 12}, {14, 8 + 6}, {1, 2}},
    };
    struct device dev;
    struct table table;
    make_table(&table, 12);
    assert_ok(device_open(&dev, test_device(), &memory, 1));
    for (int i = 0; i < 9; i++) {
        struct codec c;
        size_t all = 0, bytes = 0;
        assert_ok(codec_init(&c, &dev, &shape[i / 3].rule, i % 3, &table, NULL, section, 3));
        for (int k = 0; k < 2; k++) {
            const size_t n = shape[i / 3].kept[k];
            const size_t values[] = {
                [CODEC_F32] = 4 * n, [CODEC_BF16] = 2 * n, [CODEC_SIGNS] = (n + 3) / 4};
            const size_t want = (values[i % 3] + shape[i / 3].indices[k] + 3) / 4 * 4;
            assert_int_equal(c.tiling.section[k].kept, n);
            assert_int_equal(c.section[k].bytes, want);
            assert_int_equal(c.section[k].n, shape[i / 3].lists[k]);
            assert_int_equal(c.section[k].at, 3 * bytes);
            all += n;
            bytes += want;
        }
        assert_int_equal(c.bytes, bytes);
        assert_int_equal(memory.now[MEMORY_COMMUNICATION],
                         3 * (bytes + 4 * all + (i % 3 == CODEC_SIGNS ? 4 * all : 0)));
        codec_free(&c);
        assert_int_equal(memory.now[MEMORY_COMMUNICATION], 0);
    }
    device_close(&dev);
    assert_int_equal(memory.total, 0); /* what the device holds for itself included */
    table_free(&table);
}

/* Ends of blocks, and the elements in them: in y, or in `room` for a single block. */
struct seen {
    const float *y, *room;
    float *all;
    size_t end, most; /* where the last one ended, how long the longest was */
    int n;
};

static void look(void *arg, size_t begin, size_t end)
{
    struct seen *s = arg;
    assert_true(begin == s->end && end > begin);
    memcpy(s->all + begin, s->room ? s->room : s->y + begin, (end - begin) * sizeof *s->all);
    s->most = end - begin > s->most ? end - begin : s->most;
    s->end = end;
    s->n++;
}

/* Vectors of several blocks: each block is complete when `take` is called, up to the end, and
 * blocks of another size give the same bits. */
static void blocks(void **state)
{
    (void)state;
    enum { ROWS = 1024, COLUMNS = 384, COUNT = ROWS * COLUMNS + 70 };
    static float m[COUNT], left[2][COUNT], y[2][COUNT], before[COUNT], room[COUNT];
    struct table table = {0};
    struct rng rng = rng_make(7, 8);
    assert_int_equal(table_add(&table, "w", (int64_t[]){ROWS, COLUMNS, 0}, TABLE_ZERO, 1), 0);
    assert_int_equal(table_add(&table, "b", (int64_t[]){70, 0}, TABLE_ZERO, 1), 1);
    assert_ok(table_layout(&table, 1, 1));
    rng_normal(&rng, m, COUNT, 0, 1);
    for (int tiles = 0; tiles < 2; tiles++)
        for (int i = 0; i < 2; i++) {
            const struct tiling_rule rule = {.chunk = 64, .rate = 1 / 32., .tiles = tiles};
            struct device dev;
            struct codec c;
            struct seen seen[2] = {{.y = left[i], .all = before}, {.room = room, .all = y[i]}};
            assert_ok(device_open(&dev, "cpu", &memory, 1 + 7 * i));
            assert_ok(codec_init(&c, &dev, &rule, CODEC_F32, &table, NULL, NULL, 1));
            memcpy(left[i], m, sizeof m);
            codec_encode(&c, 0, 0, view_of(left[i], DTYPE_F32), look, &seen[0]);
            codec_decode(&c, 0, view_of(room, DTYPE_F32), look, &seen[1]);
            assert_ok(device_check(&dev));
            for (int k = 0; k < 2; k++) {
                assert_true(i ? seen[k].n == 2 : seen[k].n > 3);
                assert_int_equal(seen[k].end, COUNT);
            }
            assert_memory_equal(before, m, sizeof m); /* as blocks were before they were encoded */
            assert_int_equal(codec_room(&c), seen[1].most);
            for (size_t e = 0; e < COUNT; e++) /* decoding gives the parts that were taken out */
                assert_float_equal(left[i][e] + y[i][e], m[e], 1e-5);
            codec_free(&c);
            device_close(&dev);
            if (i) {
                assert_memory_equal(left[0], left[1], sizeof m);
                assert_memory_equal(y[0], y[1], sizeof m);
            }
        }
    table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_tensors),
        cmocka_unit_test(chunks_reach_over),
        cmocka_unit_test(tiles_of_tensors),
        cmocka_unit_test(shares_that_are_whole),
        cmocka_unit_test(length_of_messages),
        cmocka_unit_test(very_many),
        cmocka_unit_test(blocks),
    };
    return run_cases(tests, 1, NULL, NULL);
}
