/* metrics.jsonl and event files, down to the byte. */
#include "base/json.h"
#include "base/scratch.h"
#include "io/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static void assert_file(const char *path, const char *want)
{
    char *text = slurp(path);
    assert_string_equal(text, want);
    free(text);
}

static void crc_known_answers(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c("", 0), 0);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(bytes, 32), 0x46dd794e);
    /* ((crc >> 15) | (crc << 17)) + 0xa282ead8 of the first */
    assert_int_equal(crc32c_masked("123456789", 9),
                     (0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u);
}

static void event_bytes(void **state)
{
    (void)state;
    struct tfevents t;
    assert_ok(file_make_directories(at("ev")));
    assert_ok(tfevents_open(&t, at("ev"), 1.5, 300));
    char path[FILE_PATH_ROOM];
    strcpy(path, t.path);
    assert_non_null(strstr(path, "/events.out.tfevents.0000000001."));
    tfevents_put(&t, "a/b", 1.0f);
    tfevents_put(&t, "c", -2.0f);
    assert_ok(tfevents_write(&t, 1.5, 300));
    tfevents_close(&t);

    /* length, its CRC, payload, its CRC; worked out by hand from the formats in tfevents.h */
    static const uint8_t want[] = {
        // clang-format off
        0x1a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12, 0x9b, 0xd8, 0x2d, /* 26 bytes */
        0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, /* wall_time = 1.5 */
        0x10, 0x00, /* step = 0 */
        0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, /* file_version = "brain.Event:2" */
        0xd3, 0xdc, 0x53, 0x1e,
        0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x95, 0xfb, 0xfe, 0x18, /* 16 bytes */
        0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, /* wall_time = 1.5 */
        0x10, 0xac, 0x02, /* step = 300 */
        0x3a, 0x02, 0x08, 0x01, /* session_log { status: START } */
        0x71, 0x3b, 0x78, 0x8a,
        0x24, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x42, 0x2b, 0x80, 0x4d, /* 36 bytes */
        0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, /* wall_time = 1.5 */
        0x10, 0xac, 0x02, /* step = 300 */
        0x2a, 0x16, /* summary { */
        0x0a, 0x0a, 0x0a, 0x03, 0x61, 0x2f, 0x62, 0x15, 0x00, 0x00, 0x80, 0x3f, /* value { tag: "a/b", simple_value: 1 } */
        0x0a, 0x08, 0x0a, 0x01, 0x63, 0x15, 0x00, 0x00, 0x00, 0xc0, /* value { tag: "c", simple_value: -2 } } */
        0x21, 0x1f, 0x98, 0x95,
        // clang-format on
    };
    char *text;
    size_t size;
    assert_ok(file_read(path, 4096, &text, &size));
    assert_int_equal(size, sizeof want);
    assert_memory_equal(text, want, sizeof want);
    free(text);
}

static void lines(void **state)
{
    (void)state;
    struct metrics m;
    assert_ok(metrics_open(&m, at("lines"), -1));
    metrics_begin(&m, 0);
    metrics_put(&m, "train/loss", 0.1);
    metrics_put(&m, "lr", 0.1 + 0.2);
    metrics_put_int(&m, "tokens", 9007199254740993);
    assert_ok(metrics_end(&m));
    metrics_begin(&m, 1);
    metrics_put(&m, "nan", NAN);
    metrics_put(&m, "inf", -INFINITY);
    metrics_put(&m, "tiny", 5e-324);
    metrics_put(&m, "bad\"\\\n", 1e300);
    assert_ok(metrics_end(&m));
    metrics_begin(&m, 2);
    assert_ok(metrics_end(&m));
    assert_file(
        at("lines/metrics.jsonl"),
        "{\"step\": 0, \"train/loss\": 0.1, \"lr\": 0.30000000000000004, \"tokens\": 9007199254740993}\n"
        "{\"step\": 1, \"nan\": null, \"inf\": null, \"tiny\": 4.94065645841247e-324, \"bad___\": 1e+300}\n"
        "{\"step\": 2}\n");
    metrics_close(&m);
    metrics_close(&m);
}

static void run(const char *folder, int64_t resume, int64_t until)
{
    struct metrics m;
    assert_ok(metrics_open(&m, folder, resume));
    for (int64_t step = resume + 1; step <= until; step++) {
        metrics_begin(&m, step);
        metrics_put(&m, "loss", 1.0 / (double)(step + 1));
        assert_ok(metrics_end(&m));
        if (step % 4 == 0) { /* a second line of the same step */
            metrics_begin(&m, step);
            metrics_put(&m, "eval", (double)step);
            assert_ok(metrics_end(&m));
        }
    }
    metrics_close(&m);
}

static void append_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "a");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void resumes(void **state)
{
    (void)state;
    run(at("whole"), -1, 20);
    char *want = slurp(at("whole/metrics.jsonl"));

    run(at("cut"), -1, 13);
    append_text(at("cut/metrics.jsonl"), "{\"step\": 14, \"lo"); /* the crash */
    run(at("cut"), 8, 20);
    assert_file(at("cut/metrics.jsonl"), want);
    run(at("cut"), 20, 20); /* nothing to drop */
    assert_file(at("cut/metrics.jsonl"), want);
    append_text(at("cut/metrics.jsonl"), "garbage\n{\"loss\": 1}\n[3]\n\n{\"step\": \"x\"}\n");
    run(at("cut"), 20, 20);
    assert_file(at("cut/metrics.jsonl"), want);
    append_text(at("cut/metrics.jsonl"), "{\"step\": 20, \"whole but for its newline\": 1}");
    run(at("cut"), 20, 20);
    assert_file(at("cut/metrics.jsonl"), want);
    run(at("cut"), -1, -1); /* a new run starts with an empty file */
    assert_file(at("cut/metrics.jsonl"), "");
    free(want);
}

static void no_allocation_after_the_first_step(void **state)
{
    (void)state;
    struct metrics m;
    assert_ok(metrics_open(&m, at("warm"), -1));
    const void *line = NULL, *record = NULL, *summary = NULL;
    for (int step = 0; step < 100; step++) {
        metrics_begin(&m, step);
        for (int i = 0; i < 30; i++)
            metrics_put(&m, "some/metric/with/a/name", 1.0 / (step + i + 3));
        assert_ok(metrics_end(&m));
        if (step == 0)
            line = m.line, record = m.events.record, summary = m.events.summary;
    }
    assert_ptr_equal(m.line, line);
    assert_ptr_equal(m.events.record, record);
    assert_ptr_equal(m.events.summary, summary);
    metrics_close(&m);
}

static void a_failure_is_reported_once(void **state)
{
    (void)state;
    struct metrics m;
    assert_ok(metrics_open(&m, at("once"), -1));
    int good = m.file;
    int full = open("/dev/full", O_WRONLY);
    if (full < 0) {
        metrics_close(&m);
        skip();
    }
    for (int outage = 0; outage < 2; outage++) {
        m.file = full;
        metrics_begin(&m, 1);
        assert_fails(metrics_end(&m), SOTTO_EIO, "No space left");
        metrics_begin(&m, 2);
        assert_ok(metrics_end(&m));
        m.file = good;
        metrics_begin(&m, 3);
        assert_ok(metrics_end(&m));
    }
    assert_file(at("once/metrics.jsonl"), "{\"step\": 3}\n{\"step\": 3}\n");
    metrics_close(&m);
    close(full);
}

static void folders_that_cannot_be(void **state)
{
    (void)state;
    struct metrics m;
    assert_ok(file_write(at("file"), "", 0));
    assert_fails(metrics_open(&m, at("file"), -1), SOTTO_EIO, "not a folder");
    assert_ok(file_make_directories(at("odd/metrics.jsonl")));
    assert_fails(metrics_open(&m, at("odd"), -1), SOTTO_EIO, "metrics.jsonl");
    metrics_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_known_answers),
        cmocka_unit_test(event_bytes),
        cmocka_unit_test(lines),
        cmocka_unit_test(resumes),
        cmocka_unit_test(no_allocation_after_the_first_step),
        cmocka_unit_test(a_failure_is_reported_once),
        cmocka_unit_test(folders_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
