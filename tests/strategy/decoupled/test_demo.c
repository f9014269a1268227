/* DeMo against its formula, step by step in double precision, and against results of the published
 * optimizer; identities of the method, and the bytes that it sends. */
#include "strategy/given.h"

#include "base/rng.h"
#include "io/safetensors.h"

enum sign { AFTER, BEFORE, OFF };
static const char *const signs[] = {"after", "before", "off"};

/* Options of a case. */
struct asked {
    int chunk, top; /* top 0: rate */
    double rate, decay;
    bool tile, half, scaled;
    int joined; /* bytes of a message; 0: one for each stage */
    enum sign sign;
};

struct trial {
    struct asked is;
    struct given given;
    char option[9][48];
    double m[GIVEN_WORKERS][GIVEN_ROOM]; /* of the formula, in the table's layout */
    double x[GIVEN_ROOM];
};

/* A matrix, a prime, four dimensions, two primes, a single element, a power of two. */
static const struct given_tensor mixture[GIVEN_TENSORS] = {
    {{12, 35}, 0}, {{101}, 0}, {{6, 2, 3, 5}, 1}, {{7, 13}, 1}, {{1}, 1}, {{64}, 1},
};

static void say(struct trial *t)
{
    const struct asked *a = &t->is;
    int n = 0;
#define SAY(...)                                                                                   \
    snprintf(t->option[n], sizeof *t->option, __VA_ARGS__), t->given.options[n] = t->option[n], n++
    SAY("demo.chunk=%d", a->chunk);
    if (a->top)
        SAY("demo.top=%d", a->top);
    else
        SAY("demo.rate=%.17g", a->rate);
    SAY("demo.decay=%.17g", a->decay);
    SAY("demo.shape=%s", a->tile ? "tile" : "flat");
    SAY("demo.dtype=%s", a->half ? "bf16" : "fp32");
    SAY("demo.sign=%s", signs[a->sign]);
    SAY("demo.momentum=%s", a->scaled ? "scaled" : "plain");
    SAY("demo.message=%d", a->joined);
#undef SAY
    t->given.options[n] = NULL;
}

static struct trial *trial_make(struct asked a, const char *shard, int groups, int slices)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->is = a;
    struct given *g = &t->given;
    memcpy(g->tensor, mixture, sizeof mixture);
    *g = (struct given){.n = GIVEN_TENSORS,
                        .stages = 2,
                        .shard = shard,
                        .replicate = "demo",
                        .groups = groups,
                        .slices = slices,
                        .steps = 3,
                        .lr = {0.1, 0.05, 0.2, 0.1, 0.1}};
    memcpy(g->tensor, mixture, sizeof mixture);
    static struct given made; /* the same numbers in every trial */
    struct rng rng = rng_make(7, 1);
    if (!made.n) {
        rng_normal(&rng, made.start, GIVEN_ROOM, 0, 1);
        for (int s = 0; s < GIVEN_STEPS; s++)
            for (int r = 0; r < GIVEN_WORKERS; r++)
                rng_normal(&rng, made.grad[s][r], GIVEN_ROOM, 0, 1);
        made.n = GIVEN_TENSORS;
    }
    memcpy(g->start, made.start, sizeof made.start);
    memcpy(g->grad, made.grad, sizeof made.grad);
    say(t);
    return t;
}

/* Elements that are transformed together. */
struct piece_of {
    int h, w;
    size_t at[GIVEN_ROOM]; /* (h, w) in the table's layout */
};

enum { LONGEST_BASIS = 256 };

/* Element t of the basis vector of frequency f, of n; all of one n are computed once. */
static double basis(int f, int t, int n)
{
    static double *vectors[LONGEST_BASIS + 1];
    assert_true(n <= LONGEST_BASIS);
    if (!vectors[n]) {
        vectors[n] = malloc((size_t)n * (size_t)n * sizeof *vectors[n]);
        assert_non_null(vectors[n]);
        for (int i = 0; i < n * n; i++)
            vectors[n][i] = sqrt((i / n ? 2.0 : 1.0) / n) *
                            cos(acos(-1) * (2 * (i % n) + 1) * (i / n) / (2.0 * n));
    }
    return vectors[n][f * n + t];
}

/* (h, w), along both sides; `back`: the inverse. */
static void transform(int h, int w, const double *from, double *to, bool back)
{
    static double along[GIVEN_ROOM];
    for (int y = 0; y < h; y++)
        for (int j = 0; j < w; j++) {
            double sum = 0;
            for (int x = 0; x < w; x++)
                sum += (back ? basis(x, j, w) : basis(j, x, w)) * from[y * w + x];
            along[y * w + j] = sum;
        }
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++) {
            double sum = 0;
            for (int y = 0; y < h; y++)
                sum += (back ? basis(y, i, h) : basis(i, y, h)) * along[y * w + j];
            to[i * w + j] = sum;
        }
}

static int keep_of(const struct asked *a, int size)
{
    const int keep = a->top ? a->top : (int)floor(a->rate * size);
    return keep < 1 ? 1 : keep < size ? keep : size;
}

/* Takes q of one group, the largest coefficients, out of m. */
static void extract(struct trial *t, const struct piece_of *p, double *m, double *q, bool *is)
{
    static double in[GIVEN_ROOM], c[GIVEN_ROOM], out[GIVEN_ROOM];
    const int size = p->h * p->w;
    for (int i = 0; i < size; i++)
        in[i] = m[p->at[i]];
    transform(p->h, p->w, in, c, false);
    memset(is, 0, (size_t)size * sizeof *is);
    for (int k = 0; k < keep_of(&t->is, size); k++) {
        int best = -1;
        for (int i = 0; i < size; i++)
            if (!is[i] && (best < 0 || fabs(c[i]) > fabs(c[best])))
                best = i;
        is[best] = true;
    }
    for (int i = 0; i < size; i++) {
        q[i] = is[i] ? c[i] : 0;
        if (t->is.half)
            q[i] = bf16_widen(bf16_round((float)q[i]));
    }
    transform(p->h, p->w, q, out, true);
    for (int i = 0; i < size; i++)
        m[p->at[i]] -= out[i];
}

static double sign_of(double x)
{
    return (x > 0) - (x < 0);
}

static void step_piece(struct trial *t, const struct piece_of *p, double lr)
{
    static double q[GIVEN_ROOM], sum[GIVEN_ROOM], out[GIVEN_ROOM];
    static bool is[GIVEN_ROOM];
    static int senders[GIVEN_ROOM];
    const int size = p->h * p->w;
    memset(sum, 0, sizeof sum);
    memset(senders, 0, sizeof senders);
    for (int r = 0; r < t->given.groups; r++) {
        extract(t, p, t->m[r], q, is);
        for (int i = 0; i < size; i++) {
            sum[i] += t->is.sign == BEFORE ? sign_of(q[i]) : q[i];
            senders[i] += is[i];
        }
    }
    for (int i = 0; i < size; i++)
        sum[i] /= senders[i] ? senders[i] : 1;
    transform(p->h, p->w, sum, out, true);
    for (int i = 0; i < size; i++)
        t->x[p->at[i]] -= lr * (t->is.sign == AFTER ? sign_of(out[i]) : out[i]);
}

/* Steps chunks of worker `s`: runs of its vector that tensors cover without a gap. */
static void step_chunks(struct trial *t, const struct table *table, int s, double lr)
{
    static struct piece_of p;
    static bool own[GIVEN_ROOM];
    const int slices = strcmp(t->given.shard, "ddp") == 0 ? 1 : t->given.slices;
    const size_t count = table_count(table);
    for (size_t e = 0; e < count; e++) {
        int k = 0;
        while (e >= table->stage_start[k + 1])
            k++;
        const size_t length = table_stage_count(table, k) / (size_t)slices;
        own[e] = (e - table->stage_start[k]) / length == (size_t)s;
        bool real = false;
        for (int i = 0; i < table->n; i++)
            real |= e >= table_range(table, i).begin && e < table_range(table, i).end;
        own[e] &= real;
    }
    p.h = 1;
    p.w = 0;
    for (size_t e = 0; e <= count; e++) {
        if (p.w && (e == count || !own[e] || p.w == t->is.chunk)) {
            step_piece(t, &p, lr);
            p.w = 0;
        }
        if (e < count && own[e])
            p.at[p.w++] = e;
    }
}

static int divisor(int n, int most)
{
    int best = 1;
    for (int d = 1; d <= n && d <= most; d++)
        if (n % d == 0)
            best = d;
    return best;
}

static void step_tiles(struct trial *t, const struct table *table, double lr)
{
    static struct piece_of p;
    for (int k = 0; k < table->n; k++) {
        const struct table_entry *e = &table->entry[k];
        const int rows = e->ndim > 1 ? (int)e->shape[0] : 1, columns = (int)e->count / rows;
        p.h = divisor(rows, t->is.chunk);
        p.w = divisor(columns, t->is.chunk);
        for (int y = 0; y < rows; y += p.h)
            for (int x = 0; x < columns; x += p.w) {
                for (int i = 0; i < p.h * p.w; i++)
                    p.at[i] = table_range(table, k).begin +
                              (size_t)((y + i / p.w) * columns + x + i % p.w);
                step_piece(t, &p, lr);
            }
    }
}

static void formula_step(struct trial *t, const struct table *table, int step)
{
    static float flat[GIVEN_ROOM];
    const struct given *g = &t->given;
    const double lr = g->lr[step];
    for (int r = 0; r < g->groups; r++) {
        for (size_t e = 0; e < table_count(table); e++)
            t->m[r][e] *= t->is.decay;
        for (int s = 0; s < g->slices; s++) {
            given_scatter(g, table, g->grad[step][r * g->slices + s], flat);
            for (size_t e = 0; e < table_count(table); e++)
                t->m[r][e] += (t->is.scaled ? lr : 1) * flat[e] / g->slices;
        }
    }
    if (t->is.tile)
        step_tiles(t, table, lr);
    for (int s = 0; s < g->slices && !t->is.tile; s++)
        if (s == 0 || strcmp(g->shard, "ddp") != 0)
            step_chunks(t, table, s, lr);
}

/* Every step; a wrong coefficient or sign is off by a hundredth at least. */
static void check(struct trial *t, double tolerance)
{
    static float flat[GIVEN_ROOM], want[GIVEN_ROOM];
    struct table table;
    struct given *g = &t->given;
    given_table(g, &table);
    given_scatter(g, &table, g->start, flat);
    for (size_t e = 0; e < table_count(&table); e++)
        t->x[e] = flat[e];
    assert_ok(given_run(g));
    for (int step = 0; step < g->steps; step++) {
        formula_step(t, &table, step);
        for (size_t e = 0; e < table_count(&table); e++)
            flat[e] = (float)t->x[e];
        given_gather(g, &table, flat, want);
        for (size_t i = 0; i < table.parameters; i++)
            if (!(fabs(g->x[step][i] - want[i]) <= tolerance))
                fail_with("%s, %d groups of %d, chunk %d, top %d, rate %g, %s, sign %s, half %d, "
                          "step %d: x[%zu] = %.9g, not %.9g",
                          g->shard, g->groups, g->slices, t->is.chunk, t->is.top, t->is.rate,
                          t->is.tile ? "tile" : "flat", signs[t->is.sign], t->is.half, step, i,
                          g->x[step][i], want[i]);
    }
    table_free(&table);
}

static const struct {
    const char *shard;
    int groups, slices;
} meshes[] = {
    {"ddp", 1, 1}, {"ddp", 2, 1},   {"ddp", 3, 1},  {"ddp", 4, 1},  {"zero1", 2, 1}, {"fsdp", 3, 1},
    {"ddp", 2, 2}, {"zero1", 2, 2}, {"fsdp", 2, 2}, {"fsdp", 1, 3}, {"zero1", 1, 4},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Every worker owns whole tensors. */
static bool whole(int mesh)
{
    return meshes[mesh].slices == 1 || strcmp(meshes[mesh].shard, "ddp") == 0;
}

/* In every mesh, one option changed after the other. */
static void formula(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {.chunk = 10, .top = 3, .decay = 0.9, .sign = OFF},
        {.chunk = 16, .rate = 0.125, .decay = 0.5, .sign = AFTER},
        {.chunk = 64, .top = 5, .decay = 0.999, .sign = BEFORE},
        {.chunk = 29, .rate = 0.25, .decay = 0.9, .sign = OFF, .half = true},
        {.chunk = 7, .rate = 1, .decay = 0.9, .sign = AFTER, .scaled = true},
        {.chunk = 256, .top = 40, .decay = 0.9, .sign = OFF, .scaled = true},
        {.chunk = 24, .top = 4, .decay = 0.9, .sign = OFF, .joined = 1 << 20},
    };
    const int step = STRIDE > 11 ? 11 : STRIDE > 1 ? share_step(3) : 1;
    for (int i = 0; i < MESHES; i++)
        for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
            for (int tile = 0; tile < 2; tile++) {
                if ((tile && !whole(i)) || (i + (int)k) % step != share_first(step, step))
                    continue;
                struct asked a = asked[k];
                a.tile = tile;
                struct trial *t =
                    trial_make(a, meshes[i].shard, meshes[i].groups, meshes[i].slices);
                t->given.threads = k % 2;
                check(t, a.half ? 5e-3 : 1e-5);
                free(t);
            }
}

/* Results of the published optimizer, which sums lr times the gradient: the same here. Where a sign
 * differs, parameters differ by two steps of lr. */
static void published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t shape[3];
        int workers, top, chunk;
        double decay, lr;
        int steps;
    } cases[] = {
        {"m128x64_w4", {128, 64}, 4, 32, 64, 0.99, 0.0004, 4},
        {"v101_w2", {101}, 2, 2, 64, 0.999, 0.001, 3},
        {"m60x35_w3", {60, 35}, 3, 5, 12, 0.9, 0.01, 3},
        {"m50x7_w4", {50, 7}, 4, 4, 8, 0.5, 0.001, 5},
        {"m32x48_w2", {32, 48}, 2, 8, 16, 0.999, 0.001, 4},
        {"v64_w1", {64}, 1, 4, 64, 0.999, 0.001, 3},
        {"v96_w2", {96}, 2, 3, 32, 0.999, 0.001, 3},
    };
    struct safetensors set;
    assert_ok(safetensors_open(&set, TEST_VECTORS "/demo.safetensors"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct asked a = {
            .chunk = cases[i].chunk, .top = cases[i].top, .decay = cases[i].decay, .tile = true};
        struct trial *t = trial_make(a, "ddp", cases[i].workers, 1);
        struct given *g = &t->given;
        char name[64];
        g->n = g->stages = 1;
        g->steps = cases[i].steps;
        memset(g->tensor, 0, sizeof g->tensor);
        memcpy(g->tensor[0].shape, cases[i].shape, sizeof cases[i].shape);
        const size_t bytes = given_count(g, 0) * sizeof(float);
        snprintf(name, sizeof name, "%s.init", cases[i].name);
        assert_non_null(safetensors_find(&set, name));
        memcpy(g->start, safetensors_find(&set, name)->data, bytes);
        for (int s = 0; s < g->steps; s++) {
            g->lr[s] = cases[i].lr;
            for (int r = 0; r < cases[i].workers; r++) {
                snprintf(name, sizeof name, "%s.grad.%d.%d", cases[i].name, s, r);
                assert_non_null(safetensors_find(&set, name));
                memcpy(g->grad[s][r], safetensors_find(&set, name)->data, bytes);
            }
        }
        assert_ok(given_run(g));
        for (int s = 0; s < g->steps; s++) {
            snprintf(name, sizeof name, "%s.param.%d", cases[i].name, s);
            const struct safetensors_entry *e = safetensors_find(&set, name);
            assert_true(e && e->bytes == bytes);
            for (size_t k = 0; k < e->count; k++) {
                float want;
                memcpy(&want, e->data + k * sizeof want, sizeof want);
                if (!(fabs(g->x[s][k] - want) < 1e-3 * cases[i].lr + 1e-6 * fabs(want)))
                    fail_with("%s, step %d: x[%zu] = %.9g, not %.9g", cases[i].name, s, k,
                              g->x[s][k], want);
            }
        }
        free(t);
    }
    safetensors_close(&set);
}

static void assert_near(const struct trial *a, const struct trial *b, double tolerance)
{
    for (int s = 0; s < a->given.steps; s++)
        for (int i = 0; i < 857; i++)
            if (!(fabs(a->given.x[s][i] - b->given.x[s][i]) <= tolerance))
                fail_with("step %d: x[%d] is %.9g and %.9g", s, i, a->given.x[s][i],
                          b->given.x[s][i]);
}

/* With all coefficients, without sign and momentum it is SGD with the average gradient. */
static void is_averaged_sgd(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        struct asked a = {.chunk = 32, .rate = 1, .sign = OFF, .tile = whole(i)};
        struct trial *t = trial_make(a, meshes[i].shard, meshes[i].groups, meshes[i].slices);
        struct trial *plain = trial_make(a, meshes[i].shard, meshes[i].groups, meshes[i].slices);
        plain->given.replicate = "sync";
        plain->given.options[0] = NULL;
        assert_ok(given_run(&t->given));
        assert_ok(given_run(&plain->given));
        assert_near(t, plain, 1e-5);
        free(t);
        free(plain);
    }
}

/* Whatever the sharding of groups of one, and on threads as in virtual time: to the bit. */
static void equal_bits(void **state)
{
    (void)state;
    static const char *const shards[] = {"ddp", "zero1", "fsdp"};
    for (int tile = 0; tile < 2; tile++) {
        struct trial *first = NULL;
        for (int i = 0; i < 6; i++) {
            const struct asked a = {
                .chunk = 24, .rate = 0.2, .decay = 0.9, .sign = OFF, .tile = tile};
            struct trial *t = trial_make(a, shards[i / 2], 3, 1);
            t->given.threads = i % 2;
            assert_ok(given_run(&t->given));
            if (first)
                assert_memory_equal(t->given.x, first->given.x, sizeof t->given.x);
            if (first)
                free(t);
            else
                first = t;
        }
        free(first);
    }
}

/* 60 x 35 in 25 tiles of (12, 7), whose 84 places take 7 bits; or in chunks of 12, 87 and a half on
 * each of two workers, with places of 4 bits. Padded to whole words. */
static void bytes(void **state)
{
    (void)state;
    static const struct {
        int top;
        double rate;
        bool tile, half;
        enum sign sign;
        int64_t bytes;
    } cases[] = {
        {5, 0, true, false, OFF, 500 + 110 + 2},
        {5, 0, true, true, AFTER, 250 + 110},
        {5, 0, true, false, BEFORE, 32 + 110 + 2},
        {0, 1 / 32., true, false, OFF, 200 + 44},
        {0, 1 / 8., true, true, OFF, 500 + 219 + 1},
        {0, 1., true, false, OFF, 8400 + 1838 + 2},
        {2, 0, false, false, OFF, 4 * 176 + 87 + 1},
        {2, 0, false, true, OFF, 2 * 176 + 87 + 1},
        {2, 0, false, false, BEFORE, 44 + 87 + 1},
        {0, 1 / 4., false, false, AFTER, 4 * 262 + 131 + 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int groups = 1; groups <= (cases[i].tile ? 4 : 2); groups++) {
            const struct asked a = {.chunk = 12,
                                    .top = cases[i].top,
                                    .rate = cases[i].rate,
                                    .decay = 0.9,
                                    .tile = cases[i].tile,
                                    .half = cases[i].half,
                                    .sign = cases[i].sign};
            struct trial *t = trial_make(a, "fsdp", groups, cases[i].tile ? 1 : 2);
            t->given.n = t->given.stages = 1;
            t->given.tensor[0] = (struct given_tensor){{60, 35}, 0};
            assert_ok(given_run(&t->given));
            for (int s = 0; s < 3; s++)
                for (int r = 0; r < groups; r++) {
                    const int64_t counts = COUNTS * sizeof(double); /* sent in addition */
                    const int64_t want = (groups - 1) * (cases[i].bytes + counts);
                    if (t->given.sent[s][r] != want)
                        fail_with("case %zu, %d groups: %lld bytes, not %lld", i, groups,
                                  (long long)t->given.sent[s][r], (long long)want);
                }
            free(t);
        }
}

/* Stages share a message if theirs would be too short: two of 64 elements, half of them sent, a
 * value and 4 bits of 16 places each. */
static void messages(void **state)
{
    (void)state;
    static const struct {
        bool half;
        enum sign sign;
        int bytes; /* of a stage */
    } cases[] = {{false, OFF, 128 + 16}, {true, OFF, 64 + 16}, {false, BEFORE, 8 + 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int rate = 0; rate < 2; rate++) {
            int64_t calls[2];
            for (int more = 0; more < 2; more++) {
                const struct asked a = {.chunk = 16,
                                        .top = rate ? 0 : 8,
                                        .rate = 0.5,
                                        .decay = 0.9,
                                        .half = cases[i].half,
                                        .sign = cases[i].sign,
                                        .joined = cases[i].bytes + more};
                struct trial *t = trial_make(a, "ddp", 2, 1);
                t->given.n = t->given.stages = 2;
                for (int k = 0; k < 2; k++)
                    t->given.tensor[k] = (struct given_tensor){{64}, k};
                assert_ok(given_run(&t->given));
                calls[more] = t->given.calls[0];
                free(t);
            }
            assert_int_equal(calls[0], calls[1] + 3); /* one in each step */
        }
}

/* Steps that end during the next step's forward have the same bits as steps that are waited for,
 * also with chunks that reach from one stage into the next. */
static void nobody_looks(void **state)
{
    (void)state;
    EACH_SHARED(i, STRIDE, MESHES * 4) {
        const int mesh = i / 4, tile = i % 4 / 2;
        struct asked a = {.chunk = 24, .rate = 0.2, .decay = 0.9, .sign = OFF};
        a.tile = tile && whole(mesh);
        a.joined = i % 3 ? 0 : 1 << 20;
        struct trial *t[2];
        for (int k = 0; k < 2; k++) {
            t[k] = trial_make(a, meshes[mesh].shard, meshes[mesh].groups, meshes[mesh].slices);
            t[k]->given.threads = i % 2;
            t[k]->given.blind = k;
            assert_ok(given_run(&t[k]->given));
        }
        assert_memory_equal(t[1]->given.x[2], t[0]->given.x[2], sizeof t[0]->given.x[2]);
        free(t[0]);
        free(t[1]);
    }
}

/* Tiles if each worker owns all elements, by the sharding or alone in its group. */
static void automatic(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        struct asked a = {.chunk = 8, .top = whole(i) ? 64 : 8, .sign = OFF, .tile = whole(i)};
        a.decay = 0.9;
        for (int k = 0; k < 2; k++, a.top = 3) {
            struct trial *t = trial_make(a, meshes[i].shard, meshes[i].groups, meshes[i].slices);
            snprintf(t->option[3], sizeof t->option[3], "demo.shape=auto");
            check(t, 1e-5);
            free(t);
        }
    }
}

/* A gradient that is no number reaches the parameters of all groups: signs do not hide it. */
static void broken_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        const struct asked a = {
            .chunk = 16, .top = 2, .decay = 0.9, .tile = i / 3, .sign = (enum sign)(i % 3)};
        struct trial *t = trial_make(a, "ddp", 2, 1);
        t->given.grad[1][1][5] = NAN;
        assert_ok(given_run(&t->given));
        assert_true(isfinite(t->given.x[0][5]) && isnan(t->given.x[1][5]));
        assert_true(isfinite(t->given.x[1][500]));
        free(t);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *shard, *option[2], *says;
        int slices;
    } bad[] = {
        {"fsdp", {"demo.shape=tile"}, "with fsdp each of the 2 workers of a group has a part", 2},
        {"zero1", {"demo.shape=tile"}, "with zero1 each of the 2 workers", 2},
        {"fsdp", {"demo.top=65"}, "demo.top = 65: a chunk of demo.chunk = 64 has at most 64", 2},
        {"ddp", {"demo.top=65", "demo.shape=flat"}, "a chunk of demo.chunk = 64", 2},
        {"ddp",
         {"demo.top=101", "demo.chunk=10"},
         "demo.top = 101: a tile of demo.chunk = 10 has at most 100 coefficients",
         2},
        {"ddp", {"demo.top=3", "demo.rate=0.5"}, "demo.top = 3 and demo.rate = 0.5", 1},
        {"ddp", {"demo.sign=before", "demo.dtype=bf16"}, "dtype", 1},
        {"acco", {NULL}, "acco x demo makes no sense", 2},
        {"dpu", {NULL}, "dpu x demo makes no sense", 2},
        {"acco-wp", {NULL}, "acco-wp x demo makes no sense", 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct strategy_config config;
        struct optim_config optim;
        struct given *g = calloc(1, sizeof *g);
        assert_non_null(g);
        *g = (struct given){.shard = bad[i].shard,
                            .replicate = "demo",
                            .groups = 2,
                            .slices = bad[i].slices,
                            .options = {bad[i].option[0], bad[i].option[1]}};
        assert_fails(given_configure(g, &config, &optim), SOTTO_EINVAL, bad[i].says);
        free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula),         cmocka_unit_test(published),
        cmocka_unit_test(is_averaged_sgd), cmocka_unit_test(equal_bits),
        cmocka_unit_test(bytes),           cmocka_unit_test(messages),
        cmocka_unit_test(refused),         cmocka_unit_test(broken_gradient),
        cmocka_unit_test(automatic),       cmocka_unit_test(nobody_looks),
    };
    return run_cases(tests, 1, NULL, NULL);
}
