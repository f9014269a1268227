/* Token files: what is saved comes back, llm.c's and raw files are read, and no header is believed.
 */
#include "data/fixture.h"

static void put32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static void round_trip(int64_t vocab, int width)
{
    enum { N = 10007 };
    static int32_t ids[N], back[N];
    char path[FILE_PATH_ROOM];
    struct tokens tokens;
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)((i * 7919LL) % vocab);
    ids[N - 1] = (int32_t)(vocab - 1);
    assert_int_equal(file_join(path, scratch, "own.bin"), SOTTO_OK);
    assert_int_equal(tokens_save(path, ids, N, vocab), SOTTO_OK);
    assert_int_equal(tokens_open(&tokens, path, false), SOTTO_OK);
    assert_int_equal(tokens.count, N);
    assert_int_equal(tokens.vocab, vocab);
    assert_int_equal(tokens.width, width);
    assert_int_equal(tokens.map.size, 32 + N * width);
    assert_int_equal(tokens_copy(&tokens, 0, N, back), SOTTO_OK);
    assert_memory_equal(ids, back, sizeof ids);
    assert_int_equal(tokens_copy(&tokens, 5, 3, back), SOTTO_OK);
    assert_memory_equal(ids + 5, back, 3 * sizeof *ids);
    tokens_close(&tokens);
}

static void own_files_round_trip(void **state)
{
    (void)state;
    round_trip(1, 2);
    round_trip(257, 2);
    round_trip(65536, 2);
    round_trip(65537, 4);
    round_trip(INT32_MAX, 4);
}

static void saving_checks_ids(void **state)
{
    (void)state;
    char path[FILE_PATH_ROOM];
    const int32_t ids[] = {1, 2, 300};
    file_join(path, scratch, "bad.bin");
    assert_error(tokens_save(path, ids, 3, 300), SOTTO_EINVAL,
                 "token 2 has id 300, the vocabulary is 300");
    assert_false(file_exists(path));
    assert_error(tokens_save(path, ids, 3, 0), SOTTO_EINVAL, "vocabulary of 0");
}

static void llmc_files(void **state)
{
    (void)state;
    uint8_t bytes[1024 + 5 * 4] = {0};
    const int32_t want[5] = {50256, 1, 2, 3, 700};
    int32_t ids[5];
    struct tokens tokens;
    put32(bytes, 20240520);
    put32(bytes + 4, 1);
    put32(bytes + 8, 5);
    for (int i = 0; i < 5; i++) {
        bytes[1024 + 2 * i] = (uint8_t)want[i];
        bytes[1025 + 2 * i] = (uint8_t)(want[i] >> 8);
    }
    assert_int_equal(tokens_open(&tokens, make_file("gpt2.bin", bytes, 1024 + 10), false),
                     SOTTO_OK);
    assert_int_equal(tokens.vocab, 50257);
    assert_int_equal(tokens_copy(&tokens, 0, 5, ids), SOTTO_OK);
    assert_memory_equal(ids, want, sizeof want);
    tokens_close(&tokens);

    put32(bytes, 20240801);
    put32(bytes + 4, 7);
    for (int i = 0; i < 5; i++)
        put32(bytes + 1024 + 4 * i, (uint32_t)want[i] + 70000);
    assert_int_equal(tokens_open(&tokens, make_file("llama.bin", bytes, sizeof bytes), false),
                     SOTTO_OK);
    assert_int_equal(tokens.vocab, 120257);
    assert_int_equal(tokens_copy(&tokens, 4, 1, ids), SOTTO_OK);
    assert_int_equal(ids[0], 70700);
    tokens_close(&tokens);

    put32(bytes + 4, 1);
    assert_error(tokens_open(&tokens, make_file("old.bin", bytes, sizeof bytes), false),
                 SOTTO_EFORMAT, "llm.c token file of version 1, want 7");
    put32(bytes + 4, 7);
    put32(bytes + 8, 6);
    assert_error(tokens_open(&tokens, make_file("count.bin", bytes, sizeof bytes), false),
                 SOTTO_EFORMAT, "header has 6 tokens of 4 bytes, file has 20 bytes");
    assert_error(tokens_open(&tokens, make_file("cut.bin", bytes, 900), false), SOTTO_EFORMAT,
                 "header is cut off after 900 bytes");
    put32(bytes + 8, 5);
    put32(bytes + 1024, 0xfffffff0);
    assert_error(tokens_open(&tokens, make_file("huge.bin", bytes, sizeof bytes), false),
                 SOTTO_EFORMAT, "id 4294967280 is out of range");
}

static void raw_files(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint8_t bytes[2 * N];
    int32_t ids[N];
    struct tokens tokens;
    for (int i = 0; i < N; i++) {
        bytes[2 * i] = (uint8_t)i;
        bytes[2 * i + 1] = (uint8_t)(i >> 8);
    }
    bytes[2 * 130] = bytes[2 * 130 + 1] = 0xff;
    assert_int_equal(tokens_open(&tokens, make_file("raw.bin", bytes, sizeof bytes), true),
                     SOTTO_OK);
    assert_int_equal(tokens.count, N);
    assert_int_equal(tokens.vocab, 65536);
    assert_int_equal(tokens_copy(&tokens, 0, N, ids), SOTTO_OK);
    assert_int_equal(ids[130], 65535);
    assert_int_equal(ids[999], 999);
    tokens_close(&tokens);
    assert_error(tokens_open(&tokens, make_file("raw.bin", bytes, sizeof bytes), false),
                 SOTTO_EFORMAT, "no header");
    assert_error(tokens_open(&tokens, make_file("odd.bin", bytes, 7), true), SOTTO_EFORMAT,
                 "7 bytes are not a whole number of uint16");
    assert_error(tokens_open(&tokens, make_counting("own.bin", 0, 5, 9), true), SOTTO_EFORMAT,
                 "has a header");
    assert_error(tokens_open(&tokens, make_file("empty.bin", "", 0), true), SOTTO_EFORMAT,
                 "is empty");
}

static void hostile_headers(void **state)
{
    (void)state;
    const struct {
        int offset;
        uint32_t value;
        const char *message;
    } cases[] = {
        {8, 2, "version 2"},
        {12, 3, "3 bytes an id"},
        {12, 0, "0 bytes an id"},
        {12, 4, "header has 5 tokens of 4 bytes"},
        {16, 0, "a vocabulary of 0"},
        {16, 0x80000000, "a vocabulary of 2147483648"},
        {20, 1, "a vocabulary of 4294967305"},
        {24, 6, "header has 6 tokens"},
        {24, 4, "header has 4 tokens"},
        {28, 0x80000000, "file has 10 bytes"},
        {28, 0x40000000, "file has 10 bytes"},
    };
    char *good;
    size_t size;
    struct tokens tokens;
    assert_int_equal(file_read(make_counting("good.bin", 0, 5, 9), 1000, &good, &size), SOTTO_OK);
    assert_int_equal(size, 42);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[42];
        memcpy(bytes, good, size);
        put32(bytes + cases[i].offset, cases[i].value);
        assert_error(tokens_open(&tokens, make_file("bad.bin", bytes, size), false), SOTTO_EFORMAT,
                     cases[i].message);
        assert_null(tokens.map.data);
    }
    for (size_t n = 0; n < size; n++)
        assert_int_equal(tokens_open(&tokens, make_file("cut.bin", good, n), false), SOTTO_EFORMAT);
    free(good);
}

static void ids_are_checked_when_read(void **state)
{
    (void)state;
    char *bytes;
    size_t size;
    struct tokens tokens;
    int32_t ids[5];
    assert_int_equal(file_read(make_counting("good.bin", 0, 5, 9), 1000, &bytes, &size), SOTTO_OK);
    bytes[32 + 2 * 3] = 9;
    assert_int_equal(tokens_open(&tokens, make_file("high.bin", bytes, size), false), SOTTO_OK);
    assert_int_equal(tokens_copy(&tokens, 0, 3, ids), SOTTO_OK);
    assert_error(tokens_copy(&tokens, 0, 5, ids), SOTTO_EFORMAT,
                 "token 3 has id 9, the header has a vocabulary of 9");
    tokens_close(&tokens);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_files_round_trip), cmocka_unit_test(saving_checks_ids),
        cmocka_unit_test(llmc_files),           cmocka_unit_test(raw_files),
        cmocka_unit_test(hostile_headers),      cmocka_unit_test(ids_are_checked_when_read),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
