/* Files: whole or not at all. */
#include "base/file.h"
#include "base/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int entries(const char *folder)
{
    char command[FILE_PATH_ROOM + 32];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *in = popen(command, "r");
    int n = -1;
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%d", &n), 1);
    pclose(in);
    return n;
}

static void put_text(const char *path, const char *text)
{
    assert_ok(file_write(path, text, strlen(text)));
}

static void assert_text(const char *path, const char *want)
{
    char *text = slurp(path);
    assert_string_equal(text, want);
    free(text);
}

static void write_and_read(void **state)
{
    (void)state;
    put_text(at("a"), "old");
    assert_text(at("a"), "old");
    put_text(at("a"), "new and longer");
    assert_text(at("a"), "new and longer");
    put_text(at("empty"), "");
    assert_text(at("empty"), "");

    char *text;
    size_t size;
    assert_ok(file_read(at("a"), 14, &text, &size));
    assert_int_equal(size, 14);
    free(text);
    assert_fails(file_read(at("a"), 13, &text, &size), SOTTO_EFORMAT, "larger than the 13 bytes");
    assert_null(text);
    assert_fails(file_read(scratch, 13, &text, &size), SOTTO_EIO,
                 "is a directory, want a regular file");
    assert_fails(file_read(at("none"), 13, &text, &size), SOTTO_EIO, "No such file");
}

static void large_files_come_back_whole(void **state)
{
    (void)state;
    size_t bytes = 300001, size;
    char *data = malloc(bytes), *back;
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i * 31 >> 3);
    assert_ok(file_write(at("large"), data, bytes));
    assert_ok(file_read(at("large"), bytes, &back, &size));
    assert_int_equal(size, bytes);
    assert_memory_equal(back, data, bytes);
    struct file_map map;
    assert_ok(file_map_open(&map, at("large")));
    assert_int_equal(map.size, bytes);
    assert_memory_equal(map.data, data, bytes);
    file_map_close(&map);
    free(data);
    free(back);
}

static void abort_leaves_the_old_one(void **state)
{
    (void)state;
    assert_ok(file_make_directories(at("drafts")));
    put_text(at("drafts/a"), "old");
    struct file_draft draft;
    assert_ok(file_draft_open(&draft, at("drafts/a")));
    assert_ok(file_put(&draft, "half of", 7));
    assert_text(at("drafts/a"), "old"); /* a draft is not visible */
    file_abort(&draft);
    assert_text(at("drafts/a"), "old");
    assert_int_equal(entries(at("drafts")), 1);
    file_abort(&draft); /* twice is fine */

    assert_ok(file_draft_open(&draft, at("drafts/a")));
    fputs("by stdio", draft.stream);
    assert_ok(file_commit(&draft));
    file_abort(&draft); /* and after a commit */
    assert_text(at("drafts/a"), "by stdio");
    assert_int_equal(entries(at("drafts")), 1);

    assert_int_equal(symlink("a", at("drafts/link")), 0); /* the link remains a link */
    assert_ok(file_write(at("drafts/link"), "through", 7));
    assert_text(at("drafts/a"), "through");
    struct stat about;
    assert_int_equal(lstat(at("drafts/link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));

    char text[8] = ""; /* a pipe is written directly, not replaced */
    assert_int_equal(mkfifo(at("drafts/pipe"), 0600), 0);
    const int reader = open(at("drafts/pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(file_write(at("drafts/pipe"), "flows", 5));
    assert_int_equal(read(reader, text, sizeof text), 5);
    assert_string_equal(text, "flows");
    close(reader);
    assert_int_equal(lstat(at("drafts/pipe"), &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    assert_int_equal(entries(at("drafts")), 3);
}

static void commit_finds_an_unseen_failure(void **state)
{
    (void)state;
    struct file_draft draft;
    put_text(at("unseen"), "old");
    assert_ok(file_draft_open(&draft, at("unseen")));
    FILE *wanted = draft.stream;
    FILE *full = fopen("/dev/full", "wb");
    if (!full) {
        file_abort(&draft);
        skip();
    }
    draft.stream = full; /* every write fails with ENOSPC */
    assert_fails(file_put(&draft, scratch, sizeof scratch) == SOTTO_OK && fflush(full) == 0
                     ? SOTTO_OK
                     : file_commit(&draft),
                 SOTTO_EIO, "unseen");
    fclose(wanted);
    assert_text(at("unseen"), "old");

    /* A write fails, and the writes before and after succeed: only the stream records the
     * failure. */
    struct rlimit limit, small;
    static char page[8192];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = sizeof page / 2;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(file_draft_open(&draft, at("unseen")));
    setvbuf(draft.stream, NULL, _IONBF, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    size_t wrote = fwrite(page, 1, sizeof page, draft.stream);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(wrote < sizeof page);
    assert_fails(file_commit(&draft), SOTTO_EIO, "an earlier write failed");
    assert_text(at("unseen"), "old");
}

static void drafts_that_cannot_be(void **state)
{
    (void)state;
    struct file_draft draft;
    assert_fails(file_draft_open(&draft, at("no/such/folder/a")), SOTTO_EIO, "cannot create");
    assert_ok(file_make_directories(at("taken/inside")));
    assert_fails(file_write(at("taken"), "x", 1), SOTTO_EIO, "taken");
    assert_true(file_is_directory(at("taken/inside")));
    char longest[2 * FILE_PATH_ROOM];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_fails(file_draft_open(&draft, longest), SOTTO_EINVAL, "too long");
    assert_fails(file_make_directories(longest), SOTTO_EINVAL, "too long");
    assert_fails(file_link(at("a"), longest), SOTTO_EINVAL, "too long");
}

static void texts_have_no_zeros(void **state)
{
    (void)state;
    char *text;
    assert_ok(file_write(at("text"), "one\ntwo", 7));
    assert_ok(file_read_text(at("text"), 7, &text));
    assert_string_equal(text, "one\ntwo");
    free(text);
    assert_ok(file_write(at("text"), "one\n\0two", 8));
    assert_fails(file_read_text(at("text"), 8, &text), SOTTO_EFORMAT,
                 "text is not a text file: it contains a zero byte, at 4");
    assert_null(text);
    assert_ok(file_write(at("text"), "", 0));
    assert_ok(file_read_text(at("text"), 8, &text));
    assert_string_equal(text, "");
    free(text);
}

static void maps(void **state)
{
    (void)state;
    struct file_map map;
    put_text(at("nothing"), "");
    assert_ok(file_map_open(&map, at("nothing")));
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    file_map_close(&map);
    assert_fails(file_map_open(&map, at("none")), SOTTO_EIO, "cannot open");
    assert_fails(file_map_open(&map, scratch), SOTTO_EIO, "is a directory, want a regular file");
    file_map_close(&map); /* after a failure */
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_fails(file_map_open(&map, at("pipe")), SOTTO_EIO, "pipe is a pipe, want a regular file");
    char *text;
    size_t size;
    int fd;
    assert_fails(file_read(at("pipe"), 9, &text, &size), SOTTO_EIO, "pipe is a pipe");
    assert_fails(file_read("/dev/zero", 9, &text, &size), SOTTO_EIO, "/dev/zero is a device");
    assert_fails(file_open(&fd, at("pipe"), O_RDWR | O_CREAT), SOTTO_EIO, "pipe is a pipe");
    assert_fails(file_open(&fd, at("pipe"), O_WRONLY | O_APPEND), SOTTO_EIO, "cannot open");
    assert_int_equal(fd, -1);
}

static void joins(void **state)
{
    (void)state;
    char out[FILE_PATH_ROOM];
    assert_ok(file_join(out, "a/b", "c"));
    assert_string_equal(out, "a/b/c");
    assert_ok(file_join(out, "a/", "c"));
    assert_string_equal(out, "a/c");
    assert_ok(file_join(out, "/", "c"));
    assert_string_equal(out, "/c");
    char name[FILE_PATH_ROOM];
    memset(name, 'n', sizeof name);
    name[FILE_PATH_ROOM - 3] = '\0';
    assert_ok(file_join(out, "a", name)); /* 1 + 1 + 1021 characters and the terminator */
    assert_int_equal(strlen(out), FILE_PATH_ROOM - 1);
    name[FILE_PATH_ROOM - 3] = 'n';
    name[FILE_PATH_ROOM - 2] = '\0';
    assert_fails(file_join(out, "a", name), SOTTO_EINVAL, "too long");
}

static void links(void **state)
{
    (void)state;
    struct stat from, to;
    assert_ok(file_make_directories(at("links")));
    put_text(at("links/from"), "one");
    put_text(at("links/to"), "two");
    assert_ok(file_link(at("links/from"), at("links/to"))); /* replaces the old file */
    assert_text(at("links/to"), "one");
    assert_int_equal(stat(at("links/from"), &from), 0);
    assert_int_equal(stat(at("links/to"), &to), 0);
    assert_true(from.st_ino == to.st_ino);
    assert_ok(file_link(at("links/from"), at("links/to"))); /* the same file already */
    assert_ok(file_link(at("links/from"), at("links/from")));
    assert_text(at("links/from"), "one");
    assert_int_equal(entries(at("links")), 2); /* no temporary file is left */
    put_text(at("links/from"), "three");       /* a new file has the name: the link has the old
                                                  contents */
    assert_text(at("links/to"), "one");
    assert_fails(file_link(at("links/none"), at("links/to")), SOTTO_EIO, "none");
    assert_fails(file_link(at("links/from"), at("links")), SOTTO_EIO, "cannot replace");
}

static void folders(void **state)
{
    (void)state;
    assert_ok(file_make_directories(at("x/y/z")));
    assert_ok(file_make_directories(at("x/y/z/")));
    assert_ok(file_make_directories(at("x//w")));
    assert_ok(file_make_directories("/"));
    assert_true(file_is_directory(at("x/y/z")));
    assert_true(file_is_directory(at("x/w")));
    assert_fails(file_make_directories(""), SOTTO_EINVAL, "empty");
    put_text(at("x/file"), "");
    assert_fails(file_make_directories(at("x/file")), SOTTO_EIO, "is not a folder");
    assert_fails(file_make_directories(at("x/file/more")), SOTTO_EIO, "cannot make folder");
    assert_ok(file_sync_directory(at("x")));
    assert_fails(file_sync_directory(at("none")), SOTTO_EIO, "none");

    assert_int_equal(symlink("/", at("x/y/out")), 0); /* removed, not followed */
    assert_ok(file_remove_tree(at("x")));
    assert_false(file_exists(at("x")));
    assert_ok(file_remove_tree(at("x")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_and_read),
        cmocka_unit_test(large_files_come_back_whole),
        cmocka_unit_test(abort_leaves_the_old_one),
        cmocka_unit_test(commit_finds_an_unseen_failure),
        cmocka_unit_test(drafts_that_cannot_be),
        cmocka_unit_test(texts_have_no_zeros),
        cmocka_unit_test(maps),
        cmocka_unit_test(joins),
        cmocka_unit_test(links),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
