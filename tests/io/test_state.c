/* The state visitor: what is saved comes back bit for bit, whole or in slices. */
#include "base/scratch.h"
#include "io/state.h"
#include "tensor/shares.h"
#include "tensor/ops.h"

#include <math.h>

enum { N = 10 };

struct owner {
    float m[N];
    uint16_t half[N];
    int64_t counts[3];
    uint8_t flags[5];
    int64_t step;
    double lr;
    char method[32];
};

static struct owner sample(void)
{
    struct owner o = {.counts = {INT64_MIN, 0, INT64_MAX}, .flags = "abcd", .step = -7, .lr = 0.1};
    for (int i = 0; i < N; i++) {
        o.m[i] = (float)i / 3;
        o.half[i] = (uint16_t)(0x3f80 + i);
    }
    strcpy(o.method, "acco \"x\"");
    return o;
}

static enum sotto_status owner_visit(struct owner *o, struct state_visitor *v)
{
    TRY(state_bytes(v, "flags", o->flags, sizeof o->flags)); /* narrow before wide, on purpose */
    TRY(state_int(v, "step", &o->step));
    TRY(state_enter(v, "optim"));
    TRY(state_real(v, "lr", &o->lr));
    TRY(state_enter(v, "adamw"));
    TRY(state_tensor(v, "m", MEMORY_OPTIMIZER, NULL, view_of(o->m, DTYPE_F32), N));
    state_leave(v);
    TRY(state_tensor(v, "half", MEMORY_PARAMETERS, NULL, view_of(o->half, DTYPE_BF16), N));
    state_leave(v);
    TRY(state_ints(v, "counts", o->counts, 3));
    return state_text(v, "method", o->method, sizeof o->method);
}

static void save(struct owner *o, const char *path)
{
    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    assert_ok(owner_visit(o, &v));
    assert_ok(state_saver_write(&v, path));
    state_free(&v);
}

static uint64_t hash(struct owner *o)
{
    struct state_visitor v;
    state_hasher_init(&v);
    assert_ok(owner_visit(o, &v));
    uint64_t h = v.hash;
    state_free(&v);
    return h;
}

static void save_and_load(void **state)
{
    (void)state;
    struct owner a = sample(), b = {0};
    save(&a, at("state.safetensors"));
    struct state_visitor v;
    assert_ok(state_loader_open(&v, at("state.safetensors")));
    assert_ok(owner_visit(&b, &v));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
    assert_true(hash(&a) == hash(&b));
    assert_memory_equal(a.m, b.m, sizeof a.m);
    assert_memory_equal(a.half, b.half, sizeof a.half);
    assert_memory_equal(a.counts, b.counts, sizeof a.counts);
    assert_memory_equal(a.flags, b.flags, sizeof a.flags);
    assert_true(a.step == b.step && a.lr == b.lr);
    assert_string_equal(a.method, b.method);

    struct safetensors set; /* the names that others will look for */
    assert_ok(safetensors_open(&set, at("state.safetensors")));
    assert_non_null(safetensors_find(&set, "optim.adamw.m"));
    assert_non_null(safetensors_find(&set, "optim.half"));
    assert_string_equal(safetensors_metadata(&set, "step"), "-7");
    assert_string_equal(safetensors_metadata(&set, "optim.lr"), "0x1.999999999999ap-4");
    safetensors_close(&set);
}

/* A file that is elsewhere, of which a reader has the header. */
struct elsewhere {
    const char *bytes;
    size_t size, read;
};

static enum sotto_status read_elsewhere(void *arg, size_t at, void *to, size_t bytes)
{
    struct elsewhere *e = arg;
    if (at > e->size || bytes > e->size - at)
        return fail(SOTTO_EPEER, "%zu bytes at %zu of %zu", bytes, at, e->size);
    memcpy(to, e->bytes + at, bytes);
    e->read += bytes;
    return SOTTO_OK;
}

static void load_from_elsewhere(void **state)
{
    (void)state;
    struct owner a = sample(), b = {0};
    struct state_file here, there;
    struct state_visitor v;
    size_t bytes, size;
    save(&a, at("elsewhere.safetensors"));
    assert_ok(state_file_open(&here, at("elsewhere.safetensors")));
    const void *head = state_file_head(&here, &bytes, &size);
    assert_true(bytes < size && size < 4096); /* the header's page has room for more */
    struct elsewhere e = {head, size, 0};
    assert_ok(state_file_open_head(&there, head, bytes, size, "away",
                                   (struct state_source){read_elsewhere, &e}));
    state_loader_init(&v, &there);
    assert_ok(owner_visit(&b, &v));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
    state_file_close(&there);
    assert_true(hash(&a) == hash(&b) && e.read == size - bytes);
    assert_fails(state_file_open_head(&there, head, size + 1, size, "away",
                                      (struct state_source){read_elsewhere, &e}),
                 SOTTO_EFORMAT, "away: ");

    const uint64_t print = state_file_fingerprint(&here); /* of a tensor, not of the header */
    a.m[3] += 1;
    save(&a, at("other.safetensors"));
    assert_ok(state_file_open(&there, at("other.safetensors")));
    assert_memory_equal(head, state_file_head(&there, &bytes, &size), bytes);
    assert_true(print != state_file_fingerprint(&there));
    state_file_close(&there);
    state_file_close(&here);
}

static void odd_reals_come_back(void **state)
{
    (void)state;
    static const double reals[] = {0,        -0.0,      5e-324, 1.7976931348623157e308,
                                   INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        struct owner a = sample(), b = {0};
        struct state_visitor v;
        a.lr = reals[i];
        save(&a, at("odd.safetensors"));
        assert_ok(state_loader_open(&v, at("odd.safetensors")));
        assert_ok(owner_visit(&b, &v));
        state_free(&v);
        if (isnan(a.lr))
            assert_true(isnan(b.lr));
        else
            assert_memory_equal(&a.lr, &b.lr, 8);
    }
}

static void hash_sees_every_bit(void **state)
{
    (void)state;
    struct owner a = sample(), b = a;
    uint64_t h = hash(&a);
    assert_true(hash(&b) == h);
    b.m[9] = nextafterf(b.m[9], 9);
    assert_true(hash(&b) != h);
    b = a, b.m[0] = a.m[1], b.m[1] = a.m[0]; /* a sum alone would not see an exchange */
    assert_true(hash(&b) != h);
    b = a, b.half[3] ^= 1;
    assert_true(hash(&b) != h);
    b = a, b.counts[1]++;
    assert_true(hash(&b) != h);
    b = a, b.step++;
    assert_true(hash(&b) != h);
    b = a, b.lr = -b.lr;
    assert_true(hash(&b) != h);
    b = a, b.method[0] = 'A';
    assert_true(hash(&b) != h);
    b = a, b.flags[0] ^= 128;
    assert_true(hash(&b) != h);
    b = a, b.method[20] = 'x'; /* behind the terminator: not state */
    assert_true(hash(&b) == h);
}

static void counts_by_category(void **state)
{
    (void)state;
    struct owner a = sample();
    struct state_visitor v;
    state_counter_init(&v);
    assert_ok(owner_visit(&a, &v));
    assert_int_equal(v.bytes[MEMORY_OPTIMIZER], 4 * N);
    assert_int_equal(v.bytes[MEMORY_PARAMETERS], 2 * N);
    assert_int_equal(v.bytes[MEMORY_OUTER], 24 + 5);
    assert_int_equal(v.bytes[MEMORY_GRADIENTS], 0);
    state_free(&v);
}

static enum sotto_status slice(struct state_visitor *v, float *x, size_t offset, size_t count)
{
    return state_slice(v, "x", MEMORY_OPTIMIZER, NULL, view_of(x + offset, DTYPE_F32), N, offset,
                       count);
}

static void slices(void **state)
{
    (void)state;
    struct owner a = sample();
    struct state_visitor v, w;
    float back[N] = {0};
    assert_ok(state_saver_init(&v));
    assert_ok(slice(&v, a.m, 7, 3)); /* in any order */
    assert_ok(slice(&v, a.m, 0, 0));
    assert_ok(slice(&v, a.m, 0, 4));
    assert_ok(slice(&v, a.m, 4, 3));
    assert_ok(state_saver_write(&v, at("slices.safetensors")));
    state_free(&v);

    assert_ok(state_loader_open(&v, at("slices.safetensors")));
    assert_ok(slice(&v, back, 2, 5));
    assert_ok(slice(&v, back, 7, 3));
    assert_ok(state_loader_finish(&v));
    state_free(&v);
    assert_memory_equal(back + 2, a.m + 2, 8 * sizeof *back);
    assert_true(back[0] == 0 && back[1] == 0);

    /* The hashes of disjoint slices add up to the hash of the whole. */
    state_hasher_init(&v);
    assert_ok(slice(&v, a.m, 0, 3));
    state_hasher_init(&w);
    assert_ok(slice(&w, a.m, 3, 7));
    uint64_t sum = v.hash + w.hash;
    state_hasher_init(&v);
    assert_ok(slice(&v, a.m, 0, N));
    assert_true(sum == v.hash);
}

static void slices_must_tile(void **state)
{
    (void)state;
    static const struct {
        size_t slice[2][2];
        const char *message;
    } table[] = {
        {{{0, 4}, {5, 5}}, "state 'x': a slice begins at 5, the one before ends at 4"},
        {{{0, 4}, {3, 7}}, "state 'x': a slice begins at 3, the one before ends at 4"},
        {{{0, 4}, {4, 5}}, "state 'x': slices cover 9 of 10 elements"},
        {{{0, 10}, {0, 10}}, "state 'x': a slice begins at 0, the one before ends at 10"},
        {{{1, 9}, {10, 0}}, "state 'x': a slice begins at 1, the one before ends at 0"},
    };
    struct owner a = sample();
    struct state_visitor v;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_ok(state_saver_init(&v));
        for (int k = 0; k < 2; k++)
            assert_ok(slice(&v, a.m, table[i].slice[k][0], table[i].slice[k][1]));
        assert_fails(state_saver_write(&v, at("bad.safetensors")), SOTTO_EINVAL, table[i].message);
        state_free(&v);
        assert_false(file_exists(at("bad.safetensors")));
    }
    assert_ok(state_saver_init(&v));
    assert_ok(slice(&v, a.m, 0, 5));
    assert_ok(state_slice(&v, "x", MEMORY_OPTIMIZER, NULL, view_of(a.half, DTYPE_BF16), N, 5, 5));
    assert_fails(state_saver_write(&v, at("bad.safetensors")), SOTTO_EINVAL,
                 "slices of state 'x' disagree: F32 [10] and BF16 [10]");
    state_free(&v);
    assert_ok(state_saver_init(&v));
    assert_ok(state_int(&v, "n", &a.step));
    assert_fails(state_int(&v, "n", &a.step), SOTTO_EINVAL, "state 'n' is visited twice");
    assert_fails(state_int(&v, "format", &a.step), SOTTO_EINVAL, "its name is taken");
    state_free(&v);
}

/* Opens the sample's file, has `visit` fail, and closes it. */
static void refuses(enum sotto_status (*visit)(struct state_visitor *v), const char *message)
{
    struct state_visitor v;
    assert_ok(state_loader_open(&v, at("state.safetensors")));
    assert_fails(visit(&v), SOTTO_EFORMAT, message);
    state_free(&v);
}

static float one[1];
static enum sotto_status absent(struct state_visitor *v)
{
    return state_tensor(v, "optim.v", MEMORY_OPTIMIZER, NULL, view_of(one, DTYPE_F32), 1);
}
static enum sotto_status other_count(struct state_visitor *v)
{
    return state_tensor(v, "optim.adamw.m", MEMORY_OPTIMIZER, NULL, view_of(one, DTYPE_F32), 1);
}
static enum sotto_status other_type(struct state_visitor *v)
{
    return state_tensor(v, "optim.half", MEMORY_OPTIMIZER, NULL, view_of(one, DTYPE_F32), N);
}
static enum sotto_status no_scalar(struct state_visitor *v)
{
    int64_t n;
    return state_int(v, "epoch", &n);
}
static enum sotto_status no_integer(struct state_visitor *v)
{
    int64_t n;
    return state_int(v, "method", &n);
}
static enum sotto_status no_real(struct state_visitor *v)
{
    double x;
    return state_real(v, "method", &x);
}
static enum sotto_status no_room(struct state_visitor *v)
{
    char text[4];
    return state_text(v, "method", text, sizeof text);
}
static enum sotto_status finish_early(struct state_visitor *v)
{
    return state_loader_finish(v);
}
static enum sotto_status finish_without_scalars(struct state_visitor *v)
{
    TRY(state_ignore(v, "optim.adamw."));
    TRY(state_ignore(v, "optim.half"));
    TRY(state_ignore(v, "counts"));
    TRY(state_ignore(v, "flags"));
    return state_loader_finish(v);
}

static void load_says_what_differs(void **state)
{
    (void)state;
    struct owner a = sample();
    save(&a, at("state.safetensors"));
    refuses(absent, "the file has no state 'optim.v'");
    refuses(other_count, "state 'optim.adamw.m' is F32 [10] in the file, this run has F32 [1]");
    refuses(other_type, "state 'optim.half' is BF16 [10] in the file, this run has F32 [10]");
    refuses(no_scalar, "the file has no state 'epoch'");
    refuses(no_integer, "state 'method' is \"acco \"x\"\", want an integer");
    refuses(no_real, "want a number");
    refuses(no_room, "state 'method' has 8 characters, at most 3 fit");
    refuses(finish_early, "this run has no state 'counts'");
    refuses(finish_without_scalars, "this run has no state 'method'");
    struct state_visitor v;
    const char *first;
    assert_ok(state_loader_open(&v, at("state.safetensors")));
    const size_t all = state_loader_left(&v, &first);
    assert_ok(state_ignore(&v, "optim.half")); /* one in the middle, one, and the first */
    assert_int_equal(state_loader_left(&v, &first), all - 1);
    assert_string_equal(first, "counts");
    assert_ok(state_ignore(&v, "method"));
    assert_ok(state_ignore(&v, "optim.half"));
    assert_ok(state_ignore(&v, "counts"));
    assert_int_equal(state_loader_left(&v, &first), all - 3);
    assert_ok(state_ignore(&v, ""));
    assert_int_equal(state_loader_left(&v, &first), 0);
    state_free(&v);
    assert_fails(state_loader_open(&v, at("none")), SOTTO_EIO, "none");
}

/* A device whose memory is not the host's: every byte is stored inverted. */
static void write_inverted(struct device *dev, struct view to, const void *host, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count * dtype_size(to.type); i++)
        ((uint8_t *)to.data)[i] = (uint8_t) ~((const uint8_t *)host)[i];
}

static void read_inverted(struct device *dev, void *host, struct view from, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count * dtype_size(from.type); i++)
        ((uint8_t *)host)[i] = (uint8_t) ~((const uint8_t *)from.data)[i];
}

static void devices(void **state)
{
    (void)state;
    static const struct ops ops = {
        .name = "inverted", .write = write_inverted, .read = read_inverted};
    struct device dev = {.ops = &ops};
    size_t count = 600001; /* more than one piece of staging */
    uint16_t *host = malloc(2 * count), *far = malloc(2 * count), *back = malloc(2 * count);
    assert_true(host && far && back);
    for (size_t i = 0; i < count; i++)
        host[i] = (uint16_t)(i * 40503) & 0xbfff; /* any number, and none that is no number */
    dev.ops->write(&dev, view_of(far, DTYPE_BF16), host, count);

    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    assert_ok(state_tensor(&v, "x", MEMORY_OUTER, &dev, view_of(far, DTYPE_BF16), count));
    assert_ok(state_saver_write(&v, at("far.safetensors")));
    state_free(&v);
    assert_ok(state_loader_open(&v, at("far.safetensors"))); /* far -> file -> host */
    assert_ok(state_tensor(&v, "x", MEMORY_OUTER, NULL, view_of(back, DTYPE_BF16), count));
    state_free(&v);
    assert_memory_equal(back, host, 2 * count);
    memset(far, 0, 2 * count);
    assert_ok(state_loader_open(&v, at("far.safetensors"))); /* file -> far */
    assert_ok(state_tensor(&v, "x", MEMORY_OUTER, &dev, view_of(far, DTYPE_BF16), count));
    state_free(&v);
    state_hasher_init(&v);
    assert_ok(state_tensor(&v, "x", MEMORY_OUTER, &dev, view_of(far, DTYPE_BF16), count));
    uint64_t h = v.hash;
    state_free(&v);
    state_hasher_init(&v);
    assert_ok(state_tensor(&v, "x", MEMORY_OUTER, NULL, view_of(host, DTYPE_BF16), count));
    assert_true(h == v.hash);
    state_free(&v);
    free(host);
    free(far);
    free(back);
}

enum { WORKERS = 6, LENGTH = 64 };

/* What each of `of` workers owns. */
struct group {
    const struct table *table;
    int of;
    struct owned owned[WORKERS];
    float x[WORKERS][LENGTH];
};

static void group_make(struct group *g, const struct table *table, owned_rule *rule, int of)
{
    *g = (struct group){.table = table, .of = of};
    for (int i = 0; i < of; i++)
        assert_ok(rule(&g->owned[i], table, i, of));
}

static void group_free(struct group *g)
{
    for (int i = 0; i < g->of; i++)
        owned_free(&g->owned[i]);
}

static void group_visit(struct group *g, int i, struct state_visitor *v)
{
    assert_ok(state_table(v, g->table, &g->owned[i], MEMORY_PARAMETERS, NULL,
                          view_of(g->x[i], DTYPE_F32)));
}

static void group_load(struct group *g, const char *path)
{
    struct state_visitor v;
    for (int i = 0; i < g->of; i++) {
        assert_ok(state_loader_open(&v, path));
        group_visit(g, i, &v);
        assert_ok(state_loader_finish(&v)); /* also who owns nothing of a tensor knows of it */
        state_free(&v);
    }
}

static void group_save(struct group *g, const char *path)
{
    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    for (int i = 0; i < g->of; i++)
        group_visit(g, i, &v);
    assert_ok(state_saver_write(&v, path));
    state_free(&v);
}

static uint64_t group_hash(struct group *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->of; i++) {
        struct state_visitor v;
        state_hasher_init(&v);
        group_visit(g, i, &v);
        sum += v.hash;
    }
    return sum;
}

static void assert_files_equal(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    assert_ok(file_read(a, 1 << 20, &x, &n));
    assert_ok(file_read(b, 1 << 20, &y, &m));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void group_check(const struct group *g, const float *whole)
{
    for (int i = 0; i < g->of; i++)
        for (struct piece p = {0};
             owned_next(&g->owned[i], (struct range){0, table_count(g->table)}, &p);)
            assert_memory_equal(g->x[i] + p.own, whole + p.whole, p.count * sizeof *whole);
}

/* Two stages, padded to a multiple of 6, shared by slices, by stages and by odd ranges: what one
 * kind of owners saves any other loads, to the bit, with the same names and the same hash. */
static void tables(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 5}, {4}, {2, 2}, {7}};
    static const char *const names[] = {"a.w", "a.b", "b.w", "b.b"};
    static const struct {
        owned_rule *rule;
        int of;
    } kinds[] = {{owned_slices, 1}, {owned_slices, 2}, {owned_slices, 3}, {owned_slices, 6},
                 {own_stage, 2},    {own_stage, 3},    {own_runs, 2},     {own_runs, 5}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct table table = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(table_add(&table, names[i], shapes[i], TABLE_ZERO, 0), i);
        table.entry[i].stage = i / 2;
    }
    assert_ok(table_layout(&table, 2, 6));
    float whole[LENGTH] = {0};
    const struct view all = view_of(whole, DTYPE_F32);
    assert_true(table_count(&table) <= LENGTH);
    for (int i = 0; i < 4; i++)
        for (size_t j = 0; j < table.entry[i].count; j++)
            whole[table_range(&table, i).begin + j] = (float)(100 * i + (int)j + 1);

    struct state_visitor v;
    assert_ok(state_saver_init(&v));
    assert_ok(state_table(&v, &table, NULL, MEMORY_PARAMETERS, NULL, all));
    assert_ok(state_saver_write(&v, at("table.safetensors")));
    state_free(&v);
    state_hasher_init(&v);
    assert_ok(state_table(&v, &table, NULL, MEMORY_PARAMETERS, NULL, all));
    const uint64_t want = v.hash;

    for (int from = 0; from < KINDS; from++) {
        struct group a, b;
        group_make(&a, &table, kinds[from].rule, kinds[from].of);
        group_load(&a, at("table.safetensors"));
        group_check(&a, whole);
        assert_true(group_hash(&a) == want);
        group_save(&a, at("again.safetensors"));
        assert_files_equal(at("table.safetensors"), at("again.safetensors"));
        for (int to = 0; to < KINDS; to++) {
            group_make(&b, &table, kinds[to].rule, kinds[to].of);
            group_load(&b, at("again.safetensors"));
            group_check(&b, whole);
            group_free(&b);
        }
        group_free(&a);
    }
    table_free(&table);
}

static void long_names(void **state)
{
    (void)state;
    char name[STATE_NAME_ROOM + 1];
    memset(name, 'n', sizeof name);
    name[STATE_NAME_ROOM] = '\0';
    int64_t n = 0;
    struct state_visitor v;
    state_hasher_init(&v);
    assert_fails(state_int(&v, name, &n), SOTTO_EINVAL, "too long");
    assert_fails(state_enter(&v, name), SOTTO_EINVAL, "too long");
    name[STATE_NAME_ROOM - 1] = '\0';
    assert_ok(state_int(&v, name, &n));
}

/* What is worker `i`'s own of `of`; `back` is what was loaded. */
struct own {
    float m[3];
    int64_t next;
    double loss;
    uint8_t flags[2];
};

static struct own own_of(int i)
{
    const float f = (float)i;
    return (struct own){{f, f + 0.5f, -f}, 7 * i, 0.25 * i, {(uint8_t)i, (uint8_t)(i + 1)}};
}

static enum sotto_status own_visit(struct own *o, struct state_visitor *v, int i, int of)
{
    int64_t next = o->next; /* a scalar need not outlive the visit */
    TRY(state_enter_own(v, "worker", i, of));
    TRY(state_count(v, "next", &next, 1000));
    TRY(state_within(v, "loss", &o->loss, -1, 100));
    TRY(state_slice(v, "m", MEMORY_OUTER, NULL, view_of(o->m, DTYPE_F32), 3, 0, 3));
    TRY(state_bytes(v, "flags", o->flags, 2));
    state_leave(v);
    o->next = next;
    return SOTTO_OK;
}

static size_t save_own(int of, const char *path)
{
    struct state_visitor v;
    struct own all[64];
    assert_ok(state_saver_init(&v));
    for (int i = of - 1; i >= 0; i--) {
        all[i] = own_of(i);
        assert_ok(own_visit(&all[i], &v, i, of));
    }
    assert_ok(state_saver_write(&v, path));
    state_free(&v);
    struct state_file file;
    assert_ok(state_file_open(&file, path));
    size_t entries = file.set.count + file.notes;
    state_file_close(&file);
    return entries;
}

/* A file has as many entries with 64 workers as with one, and all of them read it at once. */
static void own_groups_lie_together(void **state)
{
    (void)state;
    assert_int_equal(save_own(1, at("own.1")), 4);
    assert_int_equal(save_own(64, at("own.64")), 4);
    struct state_file file;
    struct state_visitor v[64];
    assert_ok(state_file_open(&file, at("own.64")));
    for (int i = 0; i < 64; i++) {
        struct own want = own_of(i), back = {0};
        state_loader_init(&v[i], &file);
        assert_int_equal(state_owners(&v[i], "worker", "next"), 64);
        assert_int_equal(state_owners(&v[i], "group", "next"), 0);
        assert_ok(own_visit(&back, &v[i], i, 64));
        assert_memory_equal(want.m, back.m, sizeof want.m);
        assert_memory_equal(want.flags, back.flags, sizeof want.flags);
        assert_true(want.next == back.next && want.loss == back.loss);
        assert_int_equal(v[i].load.count, 4); /* what it keeps of the file */
        assert_ok(state_loader_finish(&v[i]));
    }
    struct own back;
    assert_fails(own_visit(&back, &v[0], 0, 63), SOTTO_EFORMAT,
                 "state 'worker.next' is I64 [64] in the file, this run has I64 [63]");
    for (int i = 0; i < 64; i++)
        state_free(&v[i]);
    state_file_close(&file);
}

static enum sotto_status many(struct state_visitor *v)
{
    int64_t n;
    return state_count(v, "step", &n, 1 << 20);
}
static enum sotto_status far(struct state_visitor *v)
{
    double x;
    return state_within(v, "optim.lr", &x, 0, 2);
}

static void bounds(void **state)
{
    (void)state;
    static const int64_t counts[] = {-7, INT64_MIN, INT64_MAX, (1 << 20) + 1};
    static const double reals[] = {NAN, INFINITY, -INFINITY, -1e-300, 2.5};
    struct owner a = sample();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char message[80];
        a.step = counts[i];
        save(&a, at("state.safetensors"));
        snprintf(message, sizeof message, "state 'step' is %lld, want 0 to 1048576",
                 (long long)counts[i]);
        refuses(many, message);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        a.lr = reals[i];
        save(&a, at("state.safetensors"));
        refuses(far, "want 0 to 2");
    }
    struct state_visitor v;
    a.step = 1 << 20;
    a.lr = 2;
    save(&a, at("state.safetensors"));
    assert_ok(state_loader_open(&v, at("state.safetensors")));
    assert_ok(many(&v));
    assert_ok(far(&v));
    state_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save_and_load),
        cmocka_unit_test(load_from_elsewhere),
        cmocka_unit_test(odd_reals_come_back),
        cmocka_unit_test(hash_sees_every_bit),
        cmocka_unit_test(counts_by_category),
        cmocka_unit_test(slices),
        cmocka_unit_test(slices_must_tile),
        cmocka_unit_test(load_says_what_differs),
        cmocka_unit_test(devices),
        cmocka_unit_test(tables),
        cmocka_unit_test(long_names),
        cmocka_unit_test(own_groups_lie_together),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
