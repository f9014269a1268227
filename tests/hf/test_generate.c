/* Sampling: greedy, cut off and by chance; long texts; bad input. */
#include "nn/lab.h"

#include "hf/generate.h"

static const struct generate_config greedy = {0, 0, 1, 1, DTYPE_F32};

/* The logits of the last token of `tokens`, computed afresh. */
static void logits_after(struct lab *l, const int32_t *tokens, int count, enum dtype type,
                         float *out)
{
    struct batch batch;
    struct tape tape;
    const int vocab = l->model.config.vocab;
    float *all = malloc((size_t)(count * vocab) * sizeof *all);
    assert_ok(batch_init(&batch, 1, count));
    memcpy(batch.tokens, tokens, (size_t)count * sizeof *tokens);
    assert_ok(tape_init(&tape, &l->model, &l->dev, &l->pool, (struct extent){1, count, type, false},
                        false));
    assert_ok(tape_begin(&tape, &batch, TAPE_EVALUATE, 0));
    tape.pass.logits = all;
    for (int k = 0; k < l->model.n_stage; k++)
        assert_ok(tape_forward(&tape, k, l->theta_stage));
    memcpy(out, all + (count - 1) * vocab, (size_t)vocab * sizeof *out);
    tape_free(&tape);
    batch_free(&batch);
    free(all);
}

static int argmax(const float *x, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Reads `prompt`, then goes on by its own tokens; text gets prompt and `more` tokens. */
static void generate(struct lab *l, const struct generate_config *how, const int32_t *prompt,
                     int count, int more, int32_t *text)
{
    struct generator g;
    assert_ok(generator_init(&g, &l->model, &l->dev, l->theta_stage, how));
    memcpy(text, prompt, (size_t)count * sizeof *text);
    for (int i = 0; i < more; i++) {
        if (i == 0)
            assert_ok(generator_next(&g, text, (size_t)count, &text[count]));
        else
            assert_ok(generator_next(&g, &text[count + i - 1], 1, &text[count + i]));
    }
    generator_free(&g);
}

/* Temperature 0 and top_k = 1 both take the largest logit of a full forward, token after token. */
static void greedy_is_argmax(void **state)
{
    (void)state;
    static const struct generate_config how[] = {
        {0, 0, 1, 1, DTYPE_F32},     {0, 5, 0.5, 2, DTYPE_F32},  {1, 1, 1, 3, DTYPE_F32},
        {7.5, 1, 0.3, 4, DTYPE_F32}, {1, 0, 1e-9, 5, DTYPE_F32}, {1, 0, 0, 6, DTYPE_F32},
        {0, 0, 1, 1, DTYPE_BF16},
    };
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        int32_t text[12], prompt[] = {3, 1, 4, 1, 5};
        float logits[29];
        lab_open(&l, "cpu", 1, &tiny_configs[which], 2);
        for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
            generate(&l, &how[i], prompt, 5, 7, text);
            for (int n = 5; n < 12; n++) {
                logits_after(&l, text, n, how[i].activations, logits);
                assert_int_equal(text[n], argmax(logits, 29));
            }
        }
        lab_close(&l);
    }
}

/* The same seed gives the same text; another one another text. A prompt in one piece or token by
 * token makes no difference to a greedy continuation. */
static void seeds_and_pieces(void **state)
{
    (void)state;
    struct lab l;
    lab_open(&l, "cpu", 1, &tiny_configs[2], 1);
    const struct generate_config one = {1, 0, 1, 1, DTYPE_F32}, two = {1, 0, 1, 2, DTYPE_F32};
    const int32_t prompt[] = {7, 8, 9, 10};
    int32_t a[44], b[44], c[44], next = -1;
    generate(&l, &one, prompt, 4, 40, a);
    generate(&l, &one, prompt, 4, 40, b);
    generate(&l, &two, prompt, 4, 40, c);
    assert_memory_equal(a, b, sizeof a);
    assert_true(memcmp(a, c, sizeof a) != 0);
    for (int i = 0; i < 44; i++)
        assert_true(a[i] >= 0 && a[i] < 29);
    generate(&l, &greedy, prompt, 4, 1, a);
    struct generator g;
    assert_ok(generator_init(&g, &l.model, &l.dev, l.theta_stage, &greedy));
    for (int i = 0; i < 4; i++)
        assert_ok(generator_next(&g, &prompt[i], 1, &next));
    assert_int_equal(next, a[4]);
    generator_free(&g);
    lab_close(&l);
}

/* The probabilities that draws should have: softmax at the temperature, cut to the k most likely
 * and then to the smallest set that holds p of what is left. */
static void expected(const float *logits, const struct generate_config *how, double *out)
{
    int order[29];
    double weight[29], total = 0, held = 0;
    for (int i = 0; i < 29; i++) {
        order[i] = i;
        out[i] = 0;
        weight[i] = exp(logits[i] / how->temperature);
    }
    for (int i = 0; i < 29; i++) /* selection sort, most likely first */
        for (int j = i + 1; j < 29; j++)
            if (weight[order[j]] > weight[order[i]]) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
    int n = how->top_k && how->top_k < 29 ? how->top_k : 29;
    for (int i = 0; i < n; i++)
        total += weight[order[i]];
    int kept = 0;
    while (kept < n && held < how->top_p * total)
        held += weight[order[kept++]];
    for (int i = 0; i < kept; i++)
        out[order[i]] = weight[order[i]] / held;
}

/* Frequencies of many draws: each token's count is within 5 standard deviations of its expectation,
 * which a correct sampler misses once in two million counts; what is cut off never comes. */
static void frequencies(void **state)
{
    (void)state;
    enum { DRAWS = 4000 };
    static const struct generate_config how[] = {
        {1, 0, 1, 11, DTYPE_F32},       {2, 0, 1, 12, DTYPE_F32},   {0.5, 0, 1, 13, DTYPE_F32},
        {1, 5, 1, 14, DTYPE_F32},       {1, 0, 0.6, 15, DTYPE_F32}, {1, 8, 0.7, 16, DTYPE_F32},
        {1.5, 100, 0.9, 17, DTYPE_F32},
    };
    struct lab l;
    lab_open(&l, "cpu", 1, &tiny_configs[0], 1);
    const int32_t prompt = 3;
    float logits[29];
    double p[29];
    logits_after(&l, &prompt, 1, DTYPE_F32, logits);
    for (size_t h = 0; h < sizeof how / sizeof *how; h++) {
        int count[29] = {0}, support = 0;
        struct generator g;
        expected(logits, &how[h], p);
        assert_ok(generator_init(&g, &l.model, &l.dev, l.theta_stage, &how[h]));
        for (int i = 0; i < DRAWS; i++) {
            int32_t next;
            g.seen = 0; /* the same place again, with the generator's next random number */
            assert_ok(generator_next(&g, &prompt, 1, &next));
            count[next]++;
        }
        generator_free(&g);
        for (int i = 0; i < 29; i++) {
            support += p[i] > 0;
            double room = 5 * sqrt(DRAWS * p[i] * (1 - p[i]));
            if (!(fabs(count[i] - DRAWS * p[i]) <= room + (p[i] > 0)))
                fail_with("case %zu: token %d came %d times, want %.1f +- %.1f", h, i, count[i],
                          DRAWS * p[i], room);
        }
        if (how[h].top_k && how[h].top_p == 1)
            assert_int_equal(support, how[h].top_k);
    }
    lab_close(&l);
}

/* Past the last position the older half is forgotten: what follows is what a generator gives that
 * was started on the half that is left. A prompt longer than the positions loses its beginning. */
static void longer_than_the_model(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct lab l;
        int32_t text[60], prompt[40];
        float logits[29];
        lab_open(&l, "cpu", 1, &tiny_configs[which], 1);
        for (int i = 0; i < 40; i++)
            prompt[i] = (7 * i + i * i) % 29;
        generate(&l, &greedy, prompt, 3, 57, text);
        /* 12 positions: 3 + 9 tokens are read in full; reading the 13th leaves 6 and itself */
        int held = 3;
        for (int n = 3; n < 60; n++) {
            logits_after(&l, text + n - held, held, DTYPE_F32, logits);
            if (text[n] != argmax(logits, 29))
                fail_with("model %d: token %d is %d, want %d after %d tokens", which, n, text[n],
                          argmax(logits, 29), held);
            held = held == 12 ? 7 : held + 1;
        }
        generate(&l, &greedy, prompt, 40, 1, text);
        logits_after(&l, prompt + 28, 12, DTYPE_F32, logits);
        assert_int_equal(text[40], argmax(logits, 29));
        lab_close(&l);
    }
}

/* More positions than are read at once: a long prompt goes in pieces. */
static void long_prompt(void **state)
{
    (void)state;
    struct model_config c = tiny_configs[1]; /* with windows */
    c.positions = 700;
    struct lab l;
    int32_t prompt[300], next;
    float logits[29];
    lab_open(&l, "cpu", 2, &c, 2);
    for (int i = 0; i < 300; i++)
        prompt[i] = (11 * i + i * i) % 29;
    struct generator g;
    assert_ok(generator_init(&g, &l.model, &l.dev, l.theta_stage, &greedy));
    assert_ok(generator_next(&g, prompt, 300, &next));
    logits_after(&l, prompt, 300, DTYPE_F32, logits);
    assert_int_equal(next, argmax(logits, 29));
    generator_free(&g);
    lab_close(&l);
}

/* A model that claims millions of positions costs what the text takes. */
static void room_follows_the_text(void **state)
{
    (void)state;
    struct model_config c = tiny_configs[2]; /* rotary: no table of positions */
    c.positions = 1 << 22;
    struct lab l;
    int32_t text[40], prompt[] = {5, 6, 7};
    float logits[29];
    lab_open(&l, "cpu", 1, &c, 1);
    generate(&l, &greedy, prompt, 3, 37, text);
    assert_true(l.memory.total_peak < 1 << 20);
    for (int n = 3; n < 40; n++) {
        logits_after(&l, text, n, DTYPE_F32, logits);
        assert_int_equal(text[n], argmax(logits, 29));
    }
    lab_close(&l);
}

/* A model of one position can still be asked. */
static void smallest_model(void **state)
{
    (void)state;
    struct model_config c = tiny_configs[0];
    c.positions = 1;
    struct lab l;
    int32_t text[6], prompt = 5;
    float logits[29];
    lab_open(&l, "cpu", 1, &c, 1);
    generate(&l, &greedy, &prompt, 1, 5, text);
    for (int n = 1; n < 6; n++) {
        logits_after(&l, &text[n - 1], 1, DTYPE_F32, logits);
        assert_int_equal(text[n], argmax(logits, 29));
    }
    lab_close(&l);
}

static void bad_input(void **state)
{
    (void)state;
    struct lab l;
    struct generator g;
    int32_t next = 0, bad[] = {1, 29}, negative = -1, fine[] = {1, 2};
    lab_open(&l, "cpu", 1, &tiny_configs[3], 1);
    assert_ok(generator_init(&g, &l.model, &l.dev, l.theta_stage, &greedy));
    assert_fails(generator_next(&g, bad, 2, &next), SOTTO_EINVAL,
                 "token 29 is not in the model's vocabulary of 29");
    assert_fails(generator_next(&g, &negative, 1, &next), SOTTO_EINVAL, "token -1");
    assert_fails(generator_next(&g, fine, 0, &next), SOTTO_EINVAL, "at least one token");
    assert_int_equal(g.seen, 0);
    assert_ok(generator_next(&g, fine, 2, &next));
    generator_free(&g);
    ((float *)l.theta.view.data)[0] = NAN; /* of the token table: row 0 */
    int32_t zero = 0;
    assert_ok(generator_init(&g, &l.model, &l.dev, l.theta_stage, &greedy));
    assert_fails(generator_next(&g, &zero, 1, &next), SOTTO_ENUMERIC, "nan");
    generator_free(&g);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_argmax), cmocka_unit_test(seeds_and_pieces),
        cmocka_unit_test(frequencies),      cmocka_unit_test(longer_than_the_model),
        cmocka_unit_test(long_prompt),      cmocka_unit_test(room_follows_the_text),
        cmocka_unit_test(smallest_model),   cmocka_unit_test(bad_input),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, NULL, NULL);
}
