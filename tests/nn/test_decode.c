/* Decoding with cached keys and values gives the logits of one forward over everything. The same
 * sums in another order: 1e-4 of logits of a few units is some hundred roundings of fp32. */
#include "nn/lab.h"

enum { ROWS = 2, T = 12, VOCAB = 29, ATTENTION = 8 };

static void forward_all(struct lab *l, struct tape *tape, const struct batch *batch, float *logits,
                        struct cache *cache, int start)
{
    assert_ok(tape_begin(tape, batch, TAPE_EVALUATE, 0));
    tape->pass.logits = logits;
    tape->pass.losses = view_none;
    tape->pass.cache = cache;
    tape->pass.start = start;
    for (int k = 0; k < l->model.n_stage; k++)
        assert_ok(tape_forward(tape, k, l->theta_stage));
}

static void check(const struct model_config *config, const char *device, int stages)
{
    static const int pieces[][T] = {
        {12}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 4, 2}, {1, 11}, {11, 1}, {3, 3, 3, 3},
    };
    struct lab l;
    struct batch whole, piece;
    struct tape tape;
    struct buffer k[ATTENTION], v[ATTENTION];
    static float want[ROWS * T * VOCAB], have[ROWS * T * VOCAB];
    lab_open(&l, device, 1, config, stages);
    tiny_batch(&whole, ROWS, T, VOCAB, 5, false);
    assert_ok(batch_init(&piece, ROWS, T));
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                        (struct extent){ROWS, T, DTYPE_F32, false}, false));
    forward_all(&l, &tape, &whole, want, NULL, 0);
    const int room = T + 3; /* the cache may be longer than what it holds */
    struct cache cache = {room, k, v};
    const size_t kv = (size_t)(l.model.config.kv_heads * l.model.config.head_width);
    for (int i = 0; i < l.model.n_attention; i++) {
        assert_ok(
            buffer_init(&k[i], &l.dev, DTYPE_F32, (size_t)(ROWS * room) * kv, MEMORY_ACTIVATIONS));
        assert_ok(
            buffer_init(&v[i], &l.dev, DTYPE_F32, (size_t)(ROWS * room) * kv, MEMORY_ACTIVATIONS));
    }
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        for (int i = 0; i < l.model.n_attention;
             i++) { /* nothing may be read before it is written */
            l.dev.ops->fill(&l.dev, k[i].view, k[i].count, NAN);
            l.dev.ops->fill(&l.dev, v[i].view, v[i].count, NAN);
        }
        for (int start = 0, n = 0; start < T; start += pieces[p][n++]) {
            const int t = pieces[p][n];
            piece.t = t;
            for (int b = 0; b < ROWS; b++)
                memcpy(piece.tokens + b * t, whole.tokens + b * T + start,
                       (size_t)t * sizeof *piece.tokens);
            forward_all(&l, &tape, &piece, have, &cache, start);
            for (int i = 0; i < ROWS * t * VOCAB; i++) {
                int b = i / (t * VOCAB), at = i / VOCAB % t;
                float w = want[(b * T + start + at) * VOCAB + i % VOCAB];
                if (!(fabs((double)have[i] - w) < 1e-4))
                    fail_with("arch %d, pieces %zu: position %d of row %d: logit %d is %g, want %g",
                              config->arch, p, start + at, b, i % VOCAB, have[i], w);
            }
        }
    }
    for (int i = 0; i < l.model.n_attention; i++) {
        buffer_free(&k[i]);
        buffer_free(&v[i]);
    }
    tape_free(&tape);
    batch_free(&whole);
    batch_free(&piece);
    lab_close(&l);
}

/* All architectures; the tiny ones have a window of 3 (gpt_neo) and grouped queries (llama, olmo2).
 */
static void every_architecture(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        check(&tiny_configs[which], "cpu", 1);
        check(&tiny_configs[which], "cpu", 3);
        check(&tiny_configs[which], "reference", 1);
    }
}

/* Windows from a single key to more than there are positions, and one key/value head for all. */
static void windows_and_groups(void **state)
{
    (void)state;
    static const int windows[] = {1, 2, 5, 11, 12, 40};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct model_config c = tiny_configs[1];
        c.window = windows[i];
        strcpy(c.pattern, "l");
        check(&c, "cpu", 1);
    }
    for (int kv = 1; kv <= 4; kv *= 2) {
        struct model_config c = tiny_configs[2];
        c.kv_heads = kv;
        check(&c, "cpu", 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(windows_and_groups),
    };
    return run_cases(tests, 1, NULL, NULL);
}
