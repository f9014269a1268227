/* The safetensors reader against hostile files, and the writer against the reader. */
#include "base/scratch.h"
#include "io/half.h"
#include "io/safetensors.h"

#include <math.h>

/* A file in memory: the header as given, then `bytes` of data counting 0, 1, 2, ... */
static uint8_t *make(const char *header, size_t bytes, size_t *size)
{
    size_t length = strlen(header);
    *size = 8 + length + bytes;
    uint8_t *file = malloc(*size); /* exactly, so that a sanitizer sees a read beyond */
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < bytes; i++)
        file[8 + length + i] = (uint8_t)i;
    return file;
}

#define T(name, type, shape, range)                                                                \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" range "}"

static void hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *message; /* NULL: a good file */
    } table[] = {
        {"{}", 0, NULL},
        {"{}   ", 0, NULL},
        {"{\"__metadata__\":{}}", 0, NULL},
        {"{" T("x", "F32", "[2,3]", "[0,24]") "}", 24, NULL},
        {"{" T("x", "F32", "[]", "[0,4]") "}", 4, NULL},
        {"{" T("b", "U8", "[4]", "[4,8]") "," T("a", "U8", "[4]", "[0,4]") "}", 8, NULL},
        {"{" T("x", "U8", "[0]", "[0,0]") "," T("y", "U8", "[2,0]", "[0,0]") "}", 0, NULL},
        {"{" T("x", "F8_E4M3", "[3]", "[0,3]") "}", 3, NULL},
        {"{" T("x", "U8", "[1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, NULL},

        {"", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object"},
        {" {}", 0, "not a JSON object"},
        {"{", 0, "not valid JSON"},
        {"{} x", 0, "not valid JSON"},
        {"{\"x\":1}", 0, "tensor 'x': want an object"},
        {"{\"x\":{}}", 0, "tensor 'x': \"dtype\" must be a string, got nothing"},
        {"{\"x\":{\"dtype\":\"F32\"}}", 0, "\"shape\" must be an array"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "\"data_offsets\" must be an array"},
        {"{" T("x", "F32", "[2,3]", "[0,16]") "}", 16,
         "tensor 'x': offsets 0..16 but shape [2,3] of F32 needs 24 bytes"},
        {"{" T("x", "F32", "[2]", "[0,12]") "}", 12, "needs 8 bytes"},
        {"{" T("x", "F32", "[2]", "[0,8]") "}", 4, "offsets 0..8 but the file has 4 bytes of data"},
        {"{" T("x", "F32", "[2]", "[0,8]") "}", 9,
         "the last 1 of 9 bytes of data belong to no tensor"},
        {"{}", 5, "the last 5 of 5 bytes"},
        {"{" T("x", "U8", "[2]", "[2,0]") "}", 2, "offsets 2..0 are not a range"},
        {"{" T("x", "U8", "[2]", "[-2,0]") "}", 2, "are not a range"},
        {"{" T("x", "U8", "[2]", "[0,9223372036854775807]") "}", 2, "but the file has 2 bytes"},
        {"{" T("x", "U8", "[2]", "[0,9223372036854775808]") "}", 2, "not valid JSON"},
        {"{" T("x", "U8", "[2]", "[0]") "}", 2, "must be two integers"},
        {"{" T("x", "U8", "[2]", "[0,1,2]") "}", 2, "must be two integers"},
        {"{" T("x", "U8", "[2]", "[0,2.0]") "}", 2, "must be two integers"},
        {"{" T("x", "U8", "[-2]", "[0,2]") "}", 2, "dimension 0 is -2"},
        {"{" T("x", "U8", "[1,\"2\"]", "[0,2]") "}", 2, "dimension 1 is of kind string"},
        {"{" T("x", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0,
         "more elements than can be counted"},
        {"{" T("x", "U8", "[9223372036854775807,4,0]", "[0,0]") "}", 0, "more elements"},
        {"{" T("x", "F64", "[2305843009213693952]", "[0,0]") "}", 0, "more elements"},
        {"{" T("x", "F64", "[2305843009213693951]", "[0,0]") "}", 0,
         "needs 18446744073709551608 bytes"},
        {"{" T("x", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "9 dimensions, at most 8"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[4]", "[3,7]") "}", 7,
         "tensors 'x' and 'y' overlap at byte 3"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[4]", "[0,4]") "}", 4, "overlap"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[0]", "[2,2]") "}", 4, "overlap"},
        {"{" T("x", "U8", "[2]", "[0,2]") "," T("y", "U8", "[2]", "[3,5]") "}", 5,
         "bytes 2..3 before tensor 'y' belong to no tensor"},
        {"{" T("x", "U8", "[2]", "[1,3]") "}", 3, "bytes 0..1 before tensor 'x'"},
        {"{" T("x", "U8", "[1]", "[0,1]") "," T("x", "U8", "[1]", "[1,2]") "}", 2, "duplicate"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ must be an object, got array"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\" must be a string, got integer"},
        {"{\"x\\u0000y\":{}}", 0, "not valid JSON"},
        {"{\"\xff\":{}}", 0, "not valid JSON"},
        {"{" T("x", "U8", "[2]", "{}") "}", 2, "\"data_offsets\" must be an array, got object"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct safetensors set;
        size_t size;
        uint8_t *file = make(table[i].header, table[i].bytes, &size);
        enum sotto_status st = safetensors_open_memory(&set, file, size, "hostile");
        if (!table[i].message)
            assert_ok(st);
        else
            assert_fails(st, SOTTO_EFORMAT, table[i].message);
        safetensors_close(&set); /* harmless after a failure */
        free(file);
    }
}

static void hostile_lengths(void **state)
{
    (void)state;
    struct safetensors set;
    size_t size;
    uint8_t *file = make("{" T("x", "U8", "[4]", "[0,4]") "}", 4, &size);
    for (size_t cut = 0; cut < size; cut++) { /* truncated anywhere */
        uint8_t *part = malloc(cut ? cut : 1);
        assert_non_null(part);
        memcpy(part, file, cut);
        assert_fails(safetensors_open_memory(&set, part, cut, "cut"), SOTTO_EFORMAT,
                     cut < 8          ? "cut: not a safetensors file"
                     : cut < size - 4 ? "cut: truncated"
                                      : "cut: tensor 'x': offsets 0..4 but the file has");
        free(part);
    }
    memset(file, 0xff, 8);
    assert_fails(safetensors_open_memory(&set, file, size, "x"), SOTTO_EFORMAT,
                 "header of 18446744073709551615 bytes, at most 104857600 are allowed");
    memset(file, 0, 8);
    file[3] = 1; /* 16 MiB */
    assert_fails(safetensors_open_memory(&set, file, size, "x"), SOTTO_EFORMAT,
                 "truncated: header of 16777216 bytes in a file of");
    free(file);
    assert_fails(safetensors_open(&set, at("none")), SOTTO_EIO, "none");
    assert_ok(file_write(at("empty"), "", 0));
    assert_fails(safetensors_open(&set, at("empty")), SOTTO_EFORMAT,
                 "empty: not a safetensors file: 0 bytes");
}

static void other_types_are_listed(void **state)
{
    (void)state;
    struct safetensors set;
    size_t size;
    float out[3];
    int64_t ints[3];
    uint8_t *file = make("{" T("x", "F8_E4M3", "[3]", "[0,3]") "}", 3, &size);
    assert_ok(safetensors_open_memory(&set, file, size, "f8"));
    const struct safetensors_entry *e = safetensors_find(&set, "x");
    assert_non_null(e);
    assert_int_equal(e->type, SAFETENSORS_OTHER);
    assert_string_equal(e->type_name, "F8_E4M3");
    assert_int_equal(e->bytes, 3);
    assert_fails(safetensors_read_f32(e, out), SOTTO_EFORMAT,
                 "tensor 'x' is of type F8_E4M3, want F32");
    assert_fails(safetensors_read_i64(e, ints), SOTTO_EFORMAT, "want integers");
    safetensors_close(&set);
    free(file);
}

static void write_one(const char *path, const char *name, enum safetensors_type type, int ndim,
                      const int64_t *shape, const void *data, size_t bytes)
{
    struct safetensors_writer w;
    assert_ok(safetensors_writer_init(&w));
    assert_ok(safetensors_writer_declare(&w, name, type, ndim, shape));
    assert_ok(safetensors_writer_start(&w, path));
    assert_ok(safetensors_writer_put(&w, data, bytes));
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);
}

static void round_trip(void **state)
{
    (void)state;
    static const int64_t two_by_three[] = {2, 3}, four[] = {4}, none[] = {0};
    float f[6] = {1, -2.5f, 3e38f, 1e-45f, -0.0f, 0.1f}, back[6];
    int64_t i64[4] = {INT64_MIN, -1, 0, INT64_MAX}, ints[4];
    int32_t i32[4] = {INT32_MIN, -1, 7, INT32_MAX};
    uint16_t bf[4] = {0x3f80, 0xc000, 0x7f80, 1};
    uint8_t u8[4] = {0, 1, 128, 255};
    struct safetensors_writer w;
    assert_ok(safetensors_writer_init(&w));
    assert_ok(safetensors_writer_note(&w, "step", "12 \"quoted\" \xc3\xa9\n"));
    assert_ok(safetensors_writer_declare(&w, "big", SAFETENSORS_I64, 1, four));
    assert_ok(safetensors_writer_declare(&w, "h.0.w", SAFETENSORS_F32, 2, two_by_three));
    assert_ok(safetensors_writer_declare(&w, "ids", SAFETENSORS_I32, 1, four));
    assert_ok(safetensors_writer_declare(&w, "half", SAFETENSORS_BF16, 1, four));
    assert_ok(safetensors_writer_declare(&w, "bytes", SAFETENSORS_U8, 1, four));
    assert_ok(safetensors_writer_declare(&w, "none", SAFETENSORS_U8, 1, none));
    assert_ok(safetensors_writer_start(&w, at("all.safetensors")));
    assert_ok(safetensors_writer_put(&w, i64, sizeof i64));
    assert_ok(safetensors_writer_put(&w, f, 7)); /* in pieces of any size */
    assert_ok(safetensors_writer_put(&w, (char *)f + 7, sizeof f - 7));
    assert_ok(safetensors_writer_put(&w, NULL, 0));
    assert_ok(safetensors_writer_put(&w, i32, sizeof i32));
    assert_ok(safetensors_writer_put(&w, bf, sizeof bf));
    assert_ok(safetensors_writer_put(&w, u8, sizeof u8));
    assert_false(file_exists(at("all.safetensors")));
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);

    struct safetensors set;
    assert_ok(safetensors_open(&set, at("all.safetensors")));
    assert_int_equal(set.count, 6);
    for (size_t i = 1; i < set.count; i++)
        assert_true(strcmp(set.entry[i - 1].name, set.entry[i].name) < 0);
    assert_string_equal(safetensors_metadata(&set, "format"), "pt");
    assert_string_equal(safetensors_metadata(&set, "step"), "12 \"quoted\" \xc3\xa9\n");
    assert_null(safetensors_metadata(&set, "none"));
    assert_null(safetensors_find(&set, "absent"));
    assert_null(safetensors_find(&set, "__metadata__"));

    const struct safetensors_entry *e;
    assert_ok(safetensors_get(&set, "h.0.w", 2, two_by_three, &e));
    assert_int_equal((uintptr_t)e->data % 8, 0); /* the header is padded */
    assert_ok(safetensors_read_f32(e, back));
    assert_memory_equal(back, f, sizeof f);
    assert_ok(safetensors_read_f32_range(e, 4, 2, back));
    assert_memory_equal(back, f + 4, 8);
    assert_ok(safetensors_read_f32_range(e, 6, 0, back));
    assert_fails(safetensors_read_f32_range(e, 5, 2, back), SOTTO_EINVAL,
                 "has 6 elements, not 2 from 5 on");
    assert_fails(safetensors_read_f32_range(e, SIZE_MAX, 2, back), SOTTO_EINVAL, "has 6 elements");
    assert_fails(safetensors_get(&set, "h.0.w", 1, four, &e), SOTTO_EFORMAT,
                 "tensor 'h.0.w' is [2,3], want [4]");
    assert_fails(safetensors_get(&set, "h.1.w", 1, four, &e), SOTTO_EFORMAT,
                 "has no tensor 'h.1.w'");

    assert_ok(safetensors_read_i64(safetensors_find(&set, "big"), ints));
    assert_memory_equal(ints, i64, sizeof i64);
    assert_ok(safetensors_read_i64(safetensors_find(&set, "ids"), ints));
    for (int i = 0; i < 4; i++)
        assert_true(ints[i] == i32[i]);
    assert_ok(safetensors_read_i64(safetensors_find(&set, "bytes"), ints));
    for (int i = 0; i < 4; i++)
        assert_true(ints[i] == u8[i]);
    assert_fails(safetensors_read_f32(safetensors_find(&set, "ids"), back), SOTTO_EFORMAT,
                 "of type I32");
    assert_fails(safetensors_read_i64(safetensors_find(&set, "half"), ints), SOTTO_EFORMAT,
                 "of type BF16");
    assert_ok(safetensors_read_f32(safetensors_find(&set, "half"), back));
    assert_true(back[0] == 1 && back[1] == -2 && isinf(back[2]) && back[3] == 0x1p-133f);
    safetensors_close(&set);
}

static void data_is_aligned(void **state)
{
    (void)state;
    static const int64_t one = 1;
    for (int length = 0; length < 9; length++) { /* whatever the length of the header */
        struct safetensors set;
        char name[] = "nnnnnnnnn";
        name[length] = '\0';
        write_one(at("aligned"), name, SAFETENSORS_F64, 1, &one, "12345678", 8);
        assert_ok(safetensors_open(&set, at("aligned")));
        assert_int_equal((uintptr_t)set.entry[0].data % 8, 0);
        assert_memory_equal(set.entry[0].data, "12345678", 8);
        safetensors_close(&set);
    }
}

static void conversions(void **state)
{
    (void)state;
    static const int64_t n = 10, three = 3;
    /* IEEE half: 1, -2, largest, smallest normal, smallest and largest subnormal, +-0, infinity,
     * NaN */
    static const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001,
                                    0x03ff, 0,      0x8000, 0xfc00, 0x7e00};
    static const float want[] = {1, -2,    65504,    0x1p-14f, 0x1p-24f, 0x1.ff8p-15f,
                                 0, -0.0f, -INFINITY};
    static const double wide[] = {0.1, -1e300, 0x1.0000010000001p0};
    float out[10];
    struct safetensors set;
    write_one(at("half.safetensors"), "x", SAFETENSORS_F16, 1, &n, half, sizeof half);
    assert_ok(safetensors_open(&set, at("half.safetensors")));
    assert_ok(safetensors_read_f32(&set.entry[0], out));
    assert_memory_equal(out, want, sizeof want);
    assert_true(isnan(out[9]));
    safetensors_close(&set);

    write_one(at("wide.safetensors"), "x", SAFETENSORS_F64, 1, &three, wide, sizeof wide);
    assert_ok(safetensors_open(&set, at("wide.safetensors")));
    assert_ok(safetensors_read_f32(&set.entry[0], out));
    assert_true(out[0] == 0.1f && out[1] == -INFINITY && out[2] == 0x1.000002p0f);
    safetensors_close(&set);

    /* An odd header puts the data at an odd address. */
    size_t size;
    uint8_t *file = make("{" T("x", "F32", "[1]", "[0,4]") " }", 4, &size);
    float bits;
    memcpy(&bits, file + size - 4, 4);
    assert_ok(safetensors_open_memory(&set, file, size, "odd"));
    assert_int_not_equal((uintptr_t)set.entry[0].data % 4, 0);
    assert_ok(safetensors_read_f32(&set.entry[0], out));
    assert_memory_equal(out, &bits, 4);
    safetensors_close(&set);
    free(file);
}

/* Every number of fp16 comes back; what lies between two of them goes to the nearest, from the
 * middle to the even one. */
static void half_is_rounded(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++)
        if ((h & 0x7fff) <= 0x7c00)
            assert_int_equal(f16_round(f16_widen((uint16_t)h)), h);
        else
            assert_true(isnan(f16_widen(f16_round(f16_widen((uint16_t)h)))));
    for (uint32_t h = 0; h < 0x7bff; h++) {
        const float low = f16_widen((uint16_t)h), high = f16_widen((uint16_t)(h + 1));
        const float middle = low + (high - low) / 2;
        assert_int_equal(f16_round(middle), h & 1 ? h + 1 : h);
        assert_int_equal(f16_round(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f16_round(nextafterf(middle, 0)), h);
        assert_int_equal(f16_round(-middle), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(f16_round(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(f16_round(65520), 0x7c00);
    assert_int_equal(f16_round(-3e38f), 0xfc00);
    assert_int_equal(f16_round(1e-42f), 0);
}

/* fp32 goes out in three types, in pieces however many there are. */
static void rounded_while_writing(void **state)
{
    (void)state;
    enum { N = 10001 };
    static const enum safetensors_type types[] = {SAFETENSORS_F32, SAFETENSORS_BF16,
                                                  SAFETENSORS_F16};
    static const int64_t n = N;
    float *x = malloc(N * sizeof *x), *back = malloc(N * sizeof *back);
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)i) * 10;
    for (int k = 0; k < 3; k++) {
        struct safetensors_writer w;
        struct safetensors set;
        assert_ok(safetensors_writer_init(&w));
        assert_ok(safetensors_writer_declare(&w, "x", types[k], 1, &n));
        assert_ok(safetensors_writer_start(&w, at("rounded")));
        assert_ok(safetensors_writer_put_f32(&w, types[k], x, N));
        assert_ok(safetensors_writer_finish(&w));
        safetensors_writer_free(&w);
        assert_ok(safetensors_open(&set, at("rounded")));
        assert_ok(safetensors_read_f32(&set.entry[0], back));
        for (int i = 0; i < N; i++)
            assert_true(back[i] == (k == 0   ? x[i]
                                    : k == 1 ? bf16_widen(bf16_round(x[i]))
                                             : f16_widen(f16_round(x[i]))));
        safetensors_close(&set);
    }
    free(x);
    free(back);
}

/* What no reader would take is not written: names of a megabyte each. */
static void headers_have_a_limit(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    struct safetensors_writer w;
    const int64_t shape = 0;
    char *name = malloc(MIB);
    assert_non_null(name);
    memset(name, 'n', MIB - 1);
    name[MIB - 1] = '\0';
    assert_ok(safetensors_writer_init(&w));
    for (int i = 0; i < 101; i++) {
        name[0] = (char)('a' + i / 10);
        name[1] = (char)('a' + i % 10);
        assert_ok(safetensors_writer_declare(&w, name, SAFETENSORS_F32, 1, &shape));
    }
    assert_fails(safetensors_writer_start(&w, at("long.safetensors")), SOTTO_EINVAL,
                 "the header of 101 tensors takes 105");
    assert_false(file_exists(at("long.safetensors")));
    safetensors_writer_free(&w);
    free(name);
}

static void writer_refuses(void **state)
{
    (void)state;
    static const int64_t three = 3, huge[] = {INT64_MAX, INT64_MAX}, minus = -1;
    struct safetensors_writer w;
    assert_ok(file_write(at("kept"), "old", 3));
    assert_ok(safetensors_writer_init(&w));
    assert_ok(safetensors_writer_declare(&w, "x", SAFETENSORS_U8, 1, &three));
    assert_fails(safetensors_writer_declare(&w, "x", SAFETENSORS_U8, 1, &three), SOTTO_EINVAL,
                 "tensor 'x': declared twice");
    assert_fails(safetensors_writer_declare(&w, "__metadata__", SAFETENSORS_U8, 1, &three),
                 SOTTO_EINVAL, "declared twice");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_F32, 1, &three), SOTTO_EINVAL,
                 "at byte 3, not at a multiple of its 4-byte elements");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_U8, 2, huge), SOTTO_EINVAL,
                 "too large");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_U8, 1, huge), SOTTO_EINVAL,
                 "too large");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_U8, 1, &minus), SOTTO_EINVAL,
                 "negative");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_U8, 9, huge), SOTTO_EINVAL,
                 "9 dimensions");
    assert_fails(safetensors_writer_declare(&w, "y", SAFETENSORS_OTHER, 1, &three), SOTTO_EINVAL,
                 "type");
    assert_fails(safetensors_writer_declare(&w, "\xff", SAFETENSORS_U8, 1, &three), SOTTO_EINVAL,
                 "UTF-8");
    assert_fails(safetensors_writer_note(&w, "k", "\xff"), SOTTO_EINVAL, "UTF-8");
    assert_fails(safetensors_writer_start(&w, at("no/folder")), SOTTO_EIO, "no/folder");
    assert_ok(safetensors_writer_start(&w, at("kept")));
    assert_ok(safetensors_writer_put(&w, "ab", 2));
    assert_fails(safetensors_writer_finish(&w), SOTTO_EINVAL, "2 bytes written, 3 declared");
    safetensors_writer_free(&w);

    assert_ok(safetensors_writer_init(&w));
    assert_ok(safetensors_writer_declare(&w, "x", SAFETENSORS_U8, 1, &three));
    assert_ok(safetensors_writer_start(&w, at("kept")));
    assert_fails(safetensors_writer_put(&w, "abcd", 4), SOTTO_EINVAL,
                 "4 bytes after 0 of the 3 declared");
    assert_fails(safetensors_writer_finish(&w), SOTTO_EIO, "an earlier write failed");
    safetensors_writer_free(&w);

    assert_ok(safetensors_writer_init(&w)); /* dropped halfway */
    assert_ok(safetensors_writer_declare(&w, "x", SAFETENSORS_U8, 1, &three));
    assert_ok(safetensors_writer_start(&w, at("kept")));
    safetensors_writer_free(&w);
    char *text = slurp(at("kept"));
    assert_string_equal(text, "old");
    free(text);
}

static void put_text(const char *path, const char *text)
{
    assert_ok(file_write(path, text, strlen(text)));
}

static void folders(void **state)
{
    (void)state;
    static const int64_t two = 2;
    struct safetensors set;
    const char *index = "model/model.safetensors.index.json";
    assert_ok(file_make_directories(at("model")));
    assert_fails(safetensors_open(&set, at("model")), SOTTO_EIO,
                 "has neither model.safetensors nor");
    write_one(at("model/a-1.safetensors"), "x", SAFETENSORS_U8, 1, &two, "ab", 2);
    write_one(at("model/a-2.safetensors"), "y", SAFETENSORS_U8, 1, &two, "cd", 2);
    put_text(
        at(index),
        "{\"metadata\":{}, \"weight_map\":{\"y\":\"a-2.safetensors\",\"x\":\"a-1.safetensors\"}}");
    assert_ok(safetensors_open(&set, at("model")));
    assert_int_equal(set.count, 2);
    assert_int_equal(set.n_file, 2);
    assert_memory_equal(safetensors_find(&set, "x")->data, "ab", 2);
    assert_memory_equal(safetensors_find(&set, "y")->data, "cd", 2);
    assert_string_equal(safetensors_metadata(&set, "format"), "pt");
    safetensors_close(&set);

    static const struct {
        const char *index, *message;
        enum sotto_status code;
    } table[] = {
        {"{\"weight_map\":{\"x\":\"../a-1.safetensors\"}}",
         "'../a-1.safetensors' is not the name of a file", SOTTO_EFORMAT},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", "is not the name of a file", SOTTO_EFORMAT},
        {"{\"weight_map\":{\"x\":\"..\"}}", "is not the name of a file", SOTTO_EFORMAT},
        {"{\"weight_map\":{\"x\":\"\"}}", "is not the name of a file", SOTTO_EFORMAT},
        {"{\"weight_map\":{\"x\":3}}", "weight_map 'x' must be a string, got integer",
         SOTTO_EFORMAT},
        {"{\"weight_map\":{\"z\":\"a-1.safetensors\"}}", "tensor 'z' is not in its file a-1",
         SOTTO_EFORMAT},
        {"{\"weight_map\":{\"x\":\"a-3.safetensors\"}}", "a-3.safetensors", SOTTO_EIO},
        {"{\"weight_map\":[]}", "\"weight_map\" must be an object", SOTTO_EFORMAT},
        {"{", "not valid JSON", SOTTO_EFORMAT},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        put_text(at(index), table[i].index);
        assert_fails(safetensors_open(&set, at("model")), table[i].code, table[i].message);
    }
    write_one(at("model/a-3.safetensors"), "x", SAFETENSORS_U8, 1, &two, "ef", 2);
    put_text(at(index), "{\"weight_map\":{\"x\":\"a-1.safetensors\",\"q\":\"a-3.safetensors\"}}");
    assert_fails(safetensors_open(&set, at("model")), SOTTO_EFORMAT,
                 "tensor 'x' is in two of the files");

    write_one(at("model/model.safetensors"), "w", SAFETENSORS_U8, 1, &two, "gh",
              2); /* comes first */
    assert_ok(safetensors_open(&set, at("model")));
    assert_non_null(safetensors_find(&set, "w"));
    safetensors_close(&set);
}

static void a_file_of_the_reference_implementation(void **state)
{
    (void)state;
    struct safetensors set;
    assert_ok(safetensors_open(&set, TEST_VECTORS "/gpt2.safetensors"));
    assert_true(set.count > 10);
    assert_non_null(safetensors_metadata(&set, "config"));
    for (size_t i = 0; i < set.count; i++) {
        const struct safetensors_entry *e = &set.entry[i];
        assert_ptr_equal(safetensors_find(&set, e->name), e);
        assert_true(e->type != SAFETENSORS_OTHER);
    }
    safetensors_close(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(hostile_lengths),
        cmocka_unit_test(other_types_are_listed),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(conversions),
        cmocka_unit_test(data_is_aligned),
        cmocka_unit_test(half_is_rounded),
        cmocka_unit_test(rounded_while_writing),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(headers_have_a_limit),
        cmocka_unit_test(folders),
        cmocka_unit_test(a_file_of_the_reference_implementation),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
