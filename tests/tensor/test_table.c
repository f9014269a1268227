/* The table: the layout of tensors in the flat vector, and the cut of the vector for workers. */
#include "base/scratch.h"

#include "tensor/shares.h"

enum { STAGES = 3 };

/* Two stages with tensors of odd sizes in mixed order, a vector last in stage 1, and a stage of one
 * scalar-like tensor. */
static const struct {
    const char *name;
    int64_t shape[TABLE_DIMS];
    int stage;
} tensors[] = {
    {"embed", {7, 3}, 0}, {"norm", {5}, 0}, {"up", {3, 11}, 1},        {"down", {2, 3, 2}, 1},
    {"bias", {13}, 1},    {"last", {1}, 2}, {"late.embed", {2, 2}, 0}, {"four", {1, 2, 1, 3}, 1},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static void make(struct table *table, int pad)
{
    *table = (struct table){0};
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(table_add(table, tensors[i].name, tensors[i].shape, TABLE_NORMAL, 0.5f),
                         i);
        table->entry[i].stage = tensors[i].stage;
    }
    assert_ok(table_layout(table, STAGES, pad));
}

/* Every tensor is inside its stage, tensors do not overlap, and stages are the smallest multiples
 * of `pad`. */
static void layout_is_tight(void **state)
{
    (void)state;
    static const int pads[] = {1, 2, 4, 8};
    for (int p = 0; p < 4; p++) {
        struct table table;
        make(&table, pads[p]);
        assert_int_equal(table.stage_start[0], 0);
        char *owner = calloc(table_count(&table), 1);
        size_t parameters = 0;
        for (int i = 0; i < table.n; i++) {
            const struct table_entry *e = &table.entry[i];
            assert_true(e->offset + e->count <= table_stage_count(&table, e->stage));
            for (size_t j = 0; j < e->count; j++)
                assert_int_equal(owner[table.stage_start[e->stage] + e->offset + j]++, 0);
            parameters += e->count;
        }
        assert_int_equal(table.parameters, parameters);
        for (int k = 0; k < STAGES; k++) {
            size_t used = 0, length = table_stage_count(&table, k);
            for (size_t j = 0; j < length; j++)
                used += (size_t)owner[table.stage_start[k] + j];
            assert_int_equal(length % (size_t)pads[p], 0);
            assert_true(length - used < (size_t)pads[p]);
        }
        free(owner);
        table_free(&table);
    }
}

/* Names are found, sizes and dimensions are those that were given, a missing name is -1. */
static void entries_are_as_added(void **state)
{
    (void)state;
    struct table table;
    make(&table, 1);
    for (int i = 0; i < TENSORS; i++) {
        const struct table_entry *e = &table.entry[table_find(&table, tensors[i].name)];
        size_t count = 1;
        int ndim = 0;
        for (; ndim < TABLE_DIMS && tensors[i].shape[ndim]; ndim++)
            count *= (size_t)tensors[i].shape[ndim];
        assert_int_equal(e->ndim, ndim);
        assert_int_equal(e->count, count);
        assert_memory_equal(e->shape, tensors[i].shape, sizeof e->shape);
        assert_int_equal(e->init, TABLE_NORMAL);
        assert_true(e->std == 0.5f);
    }
    assert_int_equal(table_find(&table, "embe"), -1);
    table_free(&table);
    assert_null(table.entry);
}

/* More tensors than the first allocation holds. */
static void table_grows(void **state)
{
    (void)state;
    struct table table = {0};
    const int64_t shape[TABLE_DIMS] = {3};
    for (int i = 0; i < 500; i++) {
        char name[TABLE_NAME_ROOM];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(table_add(&table, name, shape, TABLE_ZERO, 0), i);
    }
    assert_ok(table_layout(&table, 1, 8));
    assert_int_equal(table_count(&table), 1504);
    assert_int_equal(table.entry[499].offset, 499 * 3);
    table_free(&table);
}

/* A view of tensor i through the stages is at the layout's offset, for both element sizes, and
 * stages may be in different buffers. */
static void views_point_at_tensors(void **state)
{
    (void)state;
    struct table table;
    make(&table, 4);
    static char memory[STAGES + 1][4096];
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        struct view stages[STAGES];
        table_stages(&table, view_of(memory[0], (enum dtype)type), stages);
        for (int i = 0; i < table.n; i++) {
            const struct table_entry *e = &table.entry[i];
            struct view v = table_view(&table, stages, i);
            assert_int_equal(v.type, type);
            assert_ptr_equal(v.data, memory[0] + (table.stage_start[e->stage] + e->offset) *
                                                     dtype_size((enum dtype)type));
        }
        for (int k = 0; k < STAGES; k++)
            stages[k].data = memory[k + 1];
        for (int i = 0; i < table.n; i++)
            assert_ptr_equal(table_view(&table, stages, i).data,
                             memory[table.entry[i].stage + 1] +
                                 table.entry[i].offset * dtype_size((enum dtype)type));
        assert_null(table_view(&table, stages, -1).data);
    }
    struct view stages[STAGES];
    table_stages(&table, view_none, stages);
    assert_null(stages[STAGES - 1].data);
    table_free(&table);
}

/* Returns 1 if element `at` of the flat vector is decayed, else 0 (vectors and padding). */
static bool decayed(const struct table *table, size_t at, bool all)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        size_t begin = table->stage_start[e->stage] + e->offset;
        if (at >= begin && at < begin + e->count)
            return all || e->ndim >= 2;
    }
    return false;
}

/* Walks an own vector and marks in `seen` the elements of the whole vector: segments leave no gap
 * and do not overlap, pieces are where the ranges say, and each element has its tensor's decay. */
static void walk(const struct table *table, const struct owned *owned, bool all, char *seen)
{
    struct segment *segment;
    int n, s = 0;
    size_t at = 0;
    assert_ok(owned_segments(owned, table, all, &segment, &n));
    for (struct piece p = {0}; owned_next(owned, (struct range){0, table_count(table)}, &p);) {
        assert_int_equal(p.own, at);
        for (size_t j = 0; j < p.count; j++, at++) {
            while (s < n && segment[s].end == at)
                s++;
            assert_true(s < n);
            assert_true(segment[s].begin <= at && at < segment[s].end);
            assert_int_equal(segment[s].decay, decayed(table, p.whole + j, all));
            assert_int_equal(seen[p.whole + j]++, 0);
        }
    }
    assert_int_equal(n ? segment[n - 1].end : 0, at);
    assert_int_equal(at, owned_count(owned, table));
    for (int i = 0; i + 1 < n; i++) /* neighbours differ, otherwise they would be merged */
        assert_true(segment[i].decay != segment[i + 1].decay);
    free(segment);
}

/* Worker `index` has the stages index, index + of, ... */
static enum sotto_status own_stages(struct owned *out, const struct table *table, int index, int of)
{
    for (int k = index; k < table->n_stage; k += of)
        TRY(owned_add(out, table->stage_start[k], table->stage_start[k + 1]));
    return SOTTO_OK;
}

/* The shares of all workers cover the flat vector exactly once, for any way of sharing. */
static void workers_cover_once(void **state)
{
    (void)state;
    static const int pads[] = {1, 2, 4, 8, 24};
    owned_rule *const rules[] = {owned_slices, own_stages, own_runs};
    for (int p = 0; p < 5; p++) {
        struct table table;
        make(&table, pads[p]);
        for (int of = 1; of <= pads[p]; of++) {
            for (int rule = pads[p] % of ? 1 : 0; rule < 3; rule++) {
                char *seen = calloc(2, table_count(&table));
                for (int index = 0; index < of; index++) {
                    struct owned owned = {0};
                    assert_ok(rules[rule](&owned, &table, index, of));
                    for (int all = 0; all < 2; all++)
                        walk(&table, &owned, all, seen + (all ? table_count(&table) : 0));
                    owned_free(&owned);
                }
                for (size_t i = 0; i < 2 * table_count(&table); i++)
                    assert_int_equal(seen[i], 1);
                free(seen);
            }
        }
        table_free(&table);
    }
}

/* Touching ranges are merged; a range of all elements equals no list; an impossible cut is refused
 * with a message. */
static void lists(void **state)
{
    (void)state;
    struct table table;
    struct owned owned = {0};
    make(&table, 1);
    assert_ok(owned_slices(&owned, &table, 0, 1));
    assert_true(owned.n == 1 && owned.count == table_count(&table));
    char *seen = calloc(2, table_count(&table));
    walk(&table, &owned, false, seen);
    walk(&table, NULL, false, seen + table_count(&table));
    owned_free(&owned);
    free(seen);
    assert_fails(owned_slices(&owned, &table, 1, 2), SOTTO_EINVAL,
                 "stage 2 of 1 elements cannot be cut into 2 slices");
    owned_free(&owned);
    for (size_t i = 0; i < 40; i += 2) { /* more than the first allocation holds */
        assert_ok(owned_add(&owned, i, i + 1));
        assert_ok(owned_add(&owned, i + 1, i + 1));
    }
    assert_true(owned.n == 20 && owned.count == 20);
    struct piece p = {0};
    assert_true(owned_next(&owned, (struct range){3, 5}, &p));
    assert_true(p.whole == 4 && p.own == 2 && p.count == 1);
    assert_false(owned_next(&owned, (struct range){3, 5}, &p));
    p = (struct piece){0};
    assert_false(owned_next(&owned, (struct range){39, 45}, &p));
    owned_free(&owned);
    table_free(&table);
}

/* A method with chunks pads stages to whole chunks of every slice. */
static void slices_of_whole_chunks(void **state)
{
    (void)state;
    enum { CHUNK = 8 };
    for (int of = 1; of <= 3; of++) {
        struct table table;
        make(&table, of * CHUNK);
        for (int index = 0; index < of; index++) {
            struct owned owned = {0};
            assert_ok(owned_slices(&owned, &table, index, of));
            for (int i = 0; i < owned.n; i++) {
                assert_int_equal(owned.range[i].begin % CHUNK, 0);
                assert_int_equal(owned.range[i].end % CHUNK, 0);
                assert_int_equal(owned.range[i].at % CHUNK, 0);
            }
            owned_free(&owned);
        }
        table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_tight),
        cmocka_unit_test(entries_are_as_added),
        cmocka_unit_test(table_grows),
        cmocka_unit_test(views_point_at_tensors),
        cmocka_unit_test(workers_cover_once),
        cmocka_unit_test(lists),
        cmocka_unit_test(slices_of_whole_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
