/* A full disk and a read-only one: clear errors, and what was there stays whole. The disk is a
 * small tmpfs in a mount namespace of this process; where that is not permitted the tests are
 * skipped. */
#define _GNU_SOURCE /* unshare */
#include "base/scratch.h"
#include "io/metrics.h"
#include "io/rundir.h"
#include "io/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

static char disk[FILE_PATH_ROOM];
static char why_not[256];

static void put_line(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0)
        snprintf(why_not, sizeof why_not, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static int make_disk(void **state)
{
    if (scratch_make(state) != 0 || file_join(disk, scratch, "disk") != SOTTO_OK ||
        file_make_directories(disk) != SOTTO_OK)
        return -1;
    char map[64];
    unsigned user = getuid(), group = getgid();
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        snprintf(why_not, sizeof why_not, "no mount namespace: %s", strerror(errno));
        return 0;
    }
    if (user != 0) {
        put_line("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", user);
        put_line("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", group);
        put_line("/proc/self/gid_map", map);
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("sotto-test", disk, "tmpfs", 0, "size=256k") != 0)
        snprintf(why_not, sizeof why_not, "cannot mount a tmpfs: %s", strerror(errno));
    return 0;
}

static int drop_disk(void **state)
{
    if (!*why_not)
        umount(disk);
    return scratch_remove(state);
}

static void need_disk(void)
{
    if (*why_not) {
        print_message("skipped: %s\n", why_not);
        skip();
    }
}

static const char *on_disk(const char *name)
{
    static char path[4][FILE_PATH_ROOM];
    static int turn;
    char *out = path[turn++ % 4];
    assert_ok(file_join(out, disk, name));
    return out;
}

/* Takes all that is left. */
static void fill(void)
{
    char page[4096] = {0};
    int fd = open(on_disk("filler"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    while (write(fd, page, sizeof page) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void empty(void)
{
    unlink(on_disk("filler"));
}

static char block[200000]; /* most of the disk */

static enum sotto_status save_block(const char *path)
{
    struct state_visitor v;
    TRY(state_saver_init(&v));
    enum sotto_status st = state_bytes(&v, "block", block, sizeof block);
    if (st == SOTTO_OK)
        st = state_saver_write(&v, path);
    state_free(&v);
    return st;
}

static void a_file_that_does_not_fit(void **state)
{
    (void)state;
    need_disk();
    struct safetensors set;
    assert_ok(save_block(on_disk("a.safetensors")));
    assert_fails(save_block(on_disk("a.safetensors")), SOTTO_EIO, "No space left on device");
    assert_non_null(strstr(sotto_error(), "a.safetensors"));
    assert_ok(safetensors_open(&set, on_disk("a.safetensors"))); /* the old one, whole */
    assert_int_equal(set.entry[0].bytes, sizeof block);
    safetensors_close(&set);
    assert_int_equal(unlink(on_disk("a.safetensors")), 0);
    assert_ok(save_block(on_disk("b.safetensors"))); /* nothing half-written takes the room */
    assert_int_equal(unlink(on_disk("b.safetensors")), 0);
}

static void a_checkpoint_that_does_not_fit(void **state)
{
    (void)state;
    need_disk();
    struct rundir run;
    struct checkpoint c;
    char path[FILE_PATH_ROOM], folder[FILE_PATH_ROOM];
    int64_t step;
    assert_ok(rundir_open(&run, on_disk("run")));
    for (int attempt = 0; attempt < 3; attempt++) {
        assert_ok(checkpoint_begin(&c, &run, attempt + 1));
        assert_ok(file_join(path, c.folder, "state.safetensors"));
        if (attempt == 0) {
            assert_ok(save_block(path));
            assert_ok(checkpoint_commit(&c, 1));
        } else {
            assert_fails(save_block(path), SOTTO_EIO, "No space left on device");
            checkpoint_abort(&c);
            assert_non_null(
                strstr(sotto_error(), "No space left")); /* the cause is still the message */
            assert_false(file_exists(c.folder));
        }
        struct safetensors set;
        assert_ok(checkpoint_latest(run.path, &step, folder));
        assert_int_equal(step, 1);
        assert_ok(file_join(path, folder, "state.safetensors"));
        assert_ok(safetensors_open(&set, path));
        safetensors_close(&set);
    }
    rundir_close(&run);
    assert_ok(file_remove_tree(on_disk("run")));
}

static void metrics_that_do_not_fit(void **state)
{
    (void)state;
    need_disk();
    struct metrics m;
    assert_ok(metrics_open(&m, on_disk("log"), -1));
    metrics_begin(&m, 0); /* the files have a page each */
    assert_ok(metrics_end(&m));
    fill();
    int failures = 0, step = 1, failed_at = 0;
    for (; step < 2000; step++) {
        metrics_begin(&m, step);
        metrics_put(&m, "train/loss", 1.0 / (step + 3));
        if (metrics_end(&m) != SOTTO_OK) {
            assert_non_null(strstr(sotto_error(), "No space left on device"));
            failed_at = step;
            failures++;
        }
    }
    assert_int_equal(failures, 1); /* once, however long it lasts */
    assert_true(failed_at > 1 && failed_at < 1000);
    empty();
    metrics_begin(&m, step);
    assert_ok(metrics_end(&m));
    metrics_close(&m);

    char *text = slurp(on_disk("log/metrics.jsonl"));
    int lines = 0;
    for (char *p = text, *end; *p; p = end + 1, lines++) { /* whole lines only */
        end = strchr(p, '\n');
        assert_non_null(end);
        assert_int_equal(strncmp(p, "{\"step\": ", 9), 0);
        assert_int_equal(end[-1], '}');
        assert_null(memchr(p + 1, '{', (size_t)(end - p - 1))); /* no half line in front */
    }
    assert_true(lines >= failed_at);
    assert_non_null(strstr(text, "{\"step\": 2000}\n"));
    free(text);
    assert_ok(file_remove_tree(on_disk("log")));
}

static void a_full_disk_from_the_start(void **state)
{
    (void)state;
    need_disk();
    struct metrics m;
    assert_ok(file_make_directories(on_disk("full")));
    fill();
    assert_fails(metrics_open(&m, on_disk("full"), -1), SOTTO_EIO, "No space left on device");
    metrics_close(&m);
    empty();
    assert_ok(file_remove_tree(on_disk("full")));
}

static void a_read_only_disk(void **state)
{
    (void)state;
    need_disk();
    struct rundir run;
    struct metrics m;
    struct checkpoint c;
    assert_ok(rundir_open(&run, on_disk("ro")));
    if (mount("sotto-test", disk, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) != 0) { /* .lock is open */
        rundir_close(&run);
        assert_int_equal(mount("sotto-test", disk, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    }
    assert_fails(checkpoint_begin(&c, &run, 1), SOTTO_EIO, "Read-only file system");
    rundir_close(&run);
    assert_fails(rundir_open(&run, on_disk("ro")), SOTTO_EIO, "ro/.lock: Read-only file system");
    assert_fails(metrics_open(&m, on_disk("ro"), -1), SOTTO_EIO, "Read-only file system");
    assert_fails(save_block(on_disk("x")), SOTTO_EIO, "Read-only file system");
    assert_int_equal(mount("sotto-test", disk, "tmpfs", MS_REMOUNT, "size=256k"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_does_not_fit),
        cmocka_unit_test(a_checkpoint_that_does_not_fit),
        cmocka_unit_test(metrics_that_do_not_fit),
        cmocka_unit_test(a_full_disk_from_the_start),
        cmocka_unit_test(a_read_only_disk),
    };
    return cmocka_run_group_tests(tests, make_disk, drop_disk);
}
