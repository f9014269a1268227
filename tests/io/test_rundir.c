/* Checkpoints: complete or absent, and one writer at a time. */
#include "base/scratch.h"
#include "io/rundir.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put_text(const char *folder, const char *name, const char *text)
{
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, folder, name));
    assert_ok(file_write(path, text, strlen(text)));
}

static void assert_text(const char *path, const char *want)
{
    char *text = slurp(path);
    assert_string_equal(text, want);
    free(text);
}

static void commit(struct rundir *run, int64_t step, int keep, const char *text)
{
    struct checkpoint c;
    assert_ok(checkpoint_begin(&c, run, step));
    put_text(c.folder, "model.safetensors", text);
    put_text(c.folder, "config.json", "{}");
    assert_ok(checkpoint_commit(&c, keep));
}

static void assert_latest(const char *path, int64_t want)
{
    int64_t step;
    char folder[FILE_PATH_ROOM];
    assert_ok(checkpoint_latest(path, &step, folder));
    assert_int_equal(step, want);
    if (want >= 0)
        assert_true(file_is_directory(folder));
}

static void commits_and_prunes(void **state)
{
    (void)state;
    struct rundir run;
    assert_latest(at("deep/run"), -1); /* not even there */
    assert_ok(rundir_open(&run, at("deep/run")));
    assert_latest(run.path, -1);
    commit(&run, 0, 2, "zero");
    commit(&run, 100, 2, "one");
    assert_latest(run.path, 100);
    commit(&run, 20000, 2, "two");
    assert_latest(run.path, 20000);
    assert_false(file_exists(at("deep/run/checkpoints/step-00000000")));
    assert_true(file_exists(at("deep/run/checkpoints/step-00000100")));
    assert_text(at("deep/run/checkpoints/step-00020000/model.safetensors"), "two");

    commit(&run, 50, 1, "back"); /* older than the others, but the newest is never removed */
    assert_true(file_exists(at("deep/run/checkpoints/step-00000050")));
    assert_false(file_exists(at("deep/run/checkpoints/step-00020000")));
    assert_latest(run.path, 50);
    commit(&run, 1234567890123, 0, "far"); /* 0 keeps all */
    assert_latest(run.path, 1234567890123);
    assert_true(file_exists(at("deep/run/checkpoints/step-00000050")));
    rundir_close(&run);
}

static void what_is_partial_does_not_count(void **state)
{
    (void)state;
    struct rundir run;
    struct checkpoint c;
    assert_ok(rundir_open(&run, at("partial")));
    commit(&run, 1, 0, "one");
    assert_ok(checkpoint_begin(&c, &run, 2));
    put_text(c.folder, "model.safetensors", "half");
    assert_latest(run.path, 1);
    checkpoint_abort(&c);
    checkpoint_abort(&c);
    assert_false(file_exists(at("partial/checkpoints/.partial-2")));

    /* Left by a crash: begun again from nothing, and cleared away by the next commit. */
    assert_ok(file_make_directories(at("partial/checkpoints/.partial-2")));
    assert_ok(file_make_directories(at("partial/checkpoints/.partial-77/inside")));
    put_text(at("partial/checkpoints/.partial-2"), "stale", "x");
    commit(&run, 2, 0, "two");
    assert_false(file_exists(at("partial/checkpoints/step-00000002/stale")));
    assert_false(file_exists(at("partial/checkpoints/.partial-77")));
    assert_latest(run.path, 2);

    /* Names that are not ours. */
    put_text(at("partial/checkpoints"), "step-00000009", "a file");
    assert_ok(file_make_directories(at("partial/checkpoints/step-9")));
    assert_ok(file_make_directories(at("partial/checkpoints/step-0000001x")));
    assert_ok(file_make_directories(at("partial/checkpoints/step-99999999999999999999")));
    assert_latest(run.path, 2);
    commit(&run, 3, 1, "three"); /* and pruning leaves them alone */
    assert_true(file_exists(at("partial/checkpoints/step-0000001x")));
    assert_false(file_exists(at("partial/checkpoints/step-00000002")));
    rundir_close(&run);
}

static void the_same_step_again(void **state)
{
    (void)state;
    struct rundir run;
    assert_ok(rundir_open(&run, at("again")));
    commit(&run, 5, 1, "first");
    commit(&run, 5, 1, "second");
    assert_text(at("again/checkpoints/step-00000005/model.safetensors"), "second");
    assert_false(file_exists(at("again/checkpoints/.partial-5")));
    assert_latest(run.path, 5);
    rundir_close(&run);
}

static void names_that_are_taken(void **state)
{
    (void)state;
    struct rundir run;
    struct checkpoint c;
    put_text(scratch, "file", "x");
    assert_fails(rundir_open(&run, at("file")), SOTTO_EIO, "file is not a folder");
    assert_fails(rundir_open(&run, at("file/run")), SOTTO_EIO, "cannot make folder");
    assert_fails(rundir_open(&run, ""), SOTTO_EINVAL, "empty");

    assert_ok(rundir_open(&run, at("taken")));
    put_text(at("taken"), "checkpoints", "x");
    assert_fails(checkpoint_begin(&c, &run, 1), SOTTO_EIO, "checkpoints is not a folder");
    checkpoint_abort(&c); /* harmless after a failed begin */
    assert_fails(checkpoint_latest(run.path, &(int64_t){0}, c.folder), SOTTO_EIO, "checkpoints");
    assert_int_equal(unlink(at("taken/checkpoints")), 0);
    commit(&run, 1, 0, "one");
    put_text(at("taken/checkpoints"), "step-00000002", "x");
    assert_ok(checkpoint_begin(&c, &run, 2));
    assert_fails(checkpoint_commit(&c, 1), SOTTO_EIO, "cannot rename");
    assert_latest(run.path, 1); /* the previous one stays whole */
    assert_text(at("taken/checkpoints/step-00000001/model.safetensors"), "one");
    assert_false(file_exists(at("taken/checkpoints/.partial-2")));
    rundir_close(&run);
}

static void publishes_links(void **state)
{
    (void)state;
    struct rundir run;
    struct checkpoint c;
    struct stat a, b;
    assert_ok(rundir_open(&run, at("published")));
    for (int step = 1; step <= 2; step++) {
        assert_ok(checkpoint_begin(&c, &run, step));
        put_text(c.folder, "model.safetensors", step == 1 ? "one" : "two");
        put_text(c.folder, "config.json", "{}");
        put_text(c.folder, "tokenizer.json", "{}");
        put_text(c.folder, "state.safetensors", "ours");
        assert_ok(checkpoint_commit(&c, 1));
        assert_ok(rundir_publish(&run, c.folder));
    }
    assert_text(at("published/model.safetensors"), "two");
    assert_true(file_exists(at("published/config.json")));
    assert_true(file_exists(at("published/tokenizer.json")));
    assert_false(file_exists(at("published/state.safetensors")));
    assert_int_equal(stat(at("published/model.safetensors"), &a), 0);
    assert_int_equal(stat(at("published/checkpoints/step-00000002/model.safetensors"), &b), 0);
    assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    assert_ok(rundir_publish(&run, c.folder)); /* again is fine */

    assert_ok(checkpoint_begin(&c, &run, 3)); /* published files outlive their checkpoint */
    put_text(c.folder, "config.json", "{}");
    assert_ok(checkpoint_commit(&c, 1));
    assert_fails(rundir_publish(&run, c.folder), SOTTO_EIO, "it has no model.safetensors");
    assert_text(at("published/model.safetensors"), "two");
    rundir_close(&run);
}

/* A checkpoint without tensors that can be read. */
static void commit_whole(struct rundir *run, int64_t step, int keep)
{
    static const char tensors[] = "\2\0\0\0\0\0\0\0{}";
    struct checkpoint c;
    char path[FILE_PATH_ROOM];
    assert_ok(checkpoint_begin(&c, run, step));
    put_text(c.folder, "config.json", "{}");
    put_text(c.folder, "sotto.ini", "[train]\n");
    for (int i = 0; i < 2; i++) {
        assert_ok(file_join(path, c.folder, i ? "state.safetensors" : "model.safetensors"));
        assert_ok(file_write(path, tensors, sizeof tensors - 1));
    }
    assert_ok(checkpoint_list(c.folder));
    assert_ok(checkpoint_commit(&c, keep));
}

static void held_while_read(void **state)
{
    (void)state;
    struct rundir run;
    struct checkpoint_hold hold, other;
    char folder[FILE_PATH_ROOM];
    int64_t step;
    assert_ok(rundir_open(&run, at("held")));
    assert_ok(checkpoint_hold_newest(&hold, run.path, true, &step, folder));
    assert_true(step == -1 && hold.file == -1); /* there is none */
    commit_whole(&run, 1, 1);
    assert_ok(checkpoint_hold_newest(&hold, run.path, true, &step, folder));
    assert_int_equal(step, 1);
    assert_ok(checkpoint_hold_one(&other, folder));
    for (step = 2; step <= 4; step++)
        commit_whole(&run, step, 1);
    assert_false(file_exists(at("held/checkpoints/step-00000003")));
    checkpoint_release(&other);
    commit_whole(&run, 5, 1);
    assert_ok(checkpoint_check(folder));
    checkpoint_release(&hold);
    checkpoint_release(&hold);
    commit_whole(&run, 6, 1);
    assert_false(file_exists(folder));
    assert_fails(checkpoint_hold_one(&hold, folder), SOTTO_EIO, "is not there any more");
    assert_latest(run.path, 6);
    rundir_close(&run);
}

/* Another process saves all the time, and removes what a reader may be about to read. */
static void held_beside_a_writer(void **state)
{
    (void)state;
    struct rundir run;
    int64_t step, before = 0;
    assert_ok(rundir_open(&run, at("beside")));
    commit_whole(&run, 1, 1);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(300);
        for (int64_t i = 2;; i++)
            commit_whole(&run, i, 1);
    }
    while (before < 200 && waitpid(child, NULL, WNOHANG) == 0) {
        struct checkpoint_hold hold;
        char folder[FILE_PATH_ROOM];
        assert_ok(checkpoint_hold_newest(&hold, run.path, true, &step, folder));
        assert_true(step >= before && hold.file >= 0);
        assert_ok(checkpoint_check(folder));
        checkpoint_release(&hold);
        before = step;
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(before >= 200);
    rundir_close(&run);
}

static void names_of_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *path, *run;
        int64_t step;
    } cases[] = {
        {"runs/a/checkpoints/step-00000012", "runs/a", 12},
        {"/a//checkpoints//step-1234567890//", "/a", 1234567890},
        {"checkpoints/step-00000000", ".", 0},
        {"/checkpoints/step-00000001/", "/", 1},
        {"../checkpoints/step-00000001", "..", 1},
        {"/step-00000003", "", 3},
        {"step-00000003", "", 3},
        {"kept/step-00000003", "", 3},
        {"mycheckpoints/step-00000003", "", 3},
        {"a/checkpoints", "", -1},
        {"a/checkpoints/step-3", "", -1},
        {"a/checkpoints/step-00000003/best", "", -1},
        {"/", "", -1},
        {"", "", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char run[FILE_PATH_ROOM];
        int64_t step;
        assert_true(steps_named(cases[i].path, &step, run) == (cases[i].step >= 0));
        assert_int_equal(step, cases[i].step);
        assert_string_equal(run, cases[i].run);
    }
}

static void one_writer_at_a_time(void **state)
{
    (void)state;
    struct rundir run, other;
    char mine[64];
    assert_ok(rundir_open(&run, at("locked")));
    snprintf(mine, sizeof mine, "is being written by process %ld on ", (long)getpid());
    assert_fails(rundir_open(&other, at("locked")), SOTTO_EINVAL, mine);
    rundir_close(&other); /* harmless after a failure, and takes nothing away */
    assert_fails(rundir_open(&other, at("locked")), SOTTO_EINVAL, mine);
    rundir_close(&run);
    assert_ok(rundir_open(&other, at("locked")));
    rundir_close(&other);
    rundir_close(&other);
}

/* What came to nothing leaves nothing, but never takes away what others have put there. */
static void discarded(void **state)
{
    (void)state;
    struct rundir run;
    assert_ok(rundir_open(&run, at("discarded")));
    rundir_discard(&run);
    assert_int_equal(run.lock, -1);
    assert_false(file_exists(at("discarded")));
    assert_ok(rundir_open(&run, at("discarded")));
    put_text(run.path, "report.json", "{}");
    rundir_discard(&run);
    assert_true(file_exists(at("discarded/report.json")));
    assert_ok(file_make_directories(at("empty")));
    assert_ok(rundir_open(&run, at("empty")));
    rundir_discard(&run);
    assert_true(file_exists(at("empty")));
    assert_false(file_exists(at("empty/.lock")));
    assert_ok(rundir_open(&run, at("empty/a//b/")));
    rundir_discard(&run);
    assert_true(file_exists(at("empty")));
    assert_false(file_exists(at("empty/a")));
    const struct checkpoint none = {.step = 3, .folder = "nowhere"};
    assert_ok(rundir_open(&run, at("empty/a")));
    assert_int_equal(checkpoint_copy(&none, &run, 1), SOTTO_EIO);
    rundir_discard(&run);
    assert_false(file_exists(at("empty/a")));
    put_text(at("empty"), ".lock", "process 1 on another host\n"); /* what has a lock was a run */
    assert_ok(rundir_open(&run, at("empty")));
    rundir_discard(&run);
    assert_true(file_exists(at("empty/.lock")));
}

/* Another process removes what was made, unless it is somebody else's by now. */
static void discarded_by_another(void **state)
{
    (void)state;
    struct rundir run, other;
    assert_ok(rundir_open(&run, at("lead/run")));
    rundir_follow(&other, at("lead/run"), &run.made);
    put_text(run.path, ".lock", "process 1 on another host\n");
    rundir_discard(&other);
    assert_true(file_exists(at("lead/run/.lock")));
    put_text(run.path, ".lock", run.made.owner);
    rundir_discard(&other);
    assert_false(file_exists(at("lead")));
    rundir_discard(&run);
}

static void cleared_and_still_locked(void **state)
{
    (void)state;
    struct rundir run, other;
    assert_ok(rundir_open(&run, at("cleared")));
    commit(&run, 3, 0, "three");
    put_text(run.path, "report.json", "{}");
    assert_ok(rundir_clear(&run));
    assert_latest(run.path, -1);
    assert_false(file_exists(at("cleared/report.json")));
    assert_fails(rundir_open(&other, at("cleared")), SOTTO_EINVAL, "is being written by");
    rundir_close(&run);
}

static void a_killed_process_leaves_no_lock(void **state)
{
    (void)state;
    struct rundir run;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(300); /* should a failed assertion leave it behind */
        char ok = rundir_open(&run, at("killed")) == SOTTO_OK;
        if (write(ready[1], &ok, 1) == 1)
            pause();
        _exit(1);
    }
    char ok = 0, text[64];
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_true(ok);
    snprintf(text, sizeof text, "process %ld", (long)child);
    assert_fails(rundir_open(&run, at("killed")), SOTTO_EINVAL, text);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_ok(rundir_open(&run, at("killed")));
    rundir_close(&run);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commits_and_prunes),
        cmocka_unit_test(what_is_partial_does_not_count),
        cmocka_unit_test(the_same_step_again),
        cmocka_unit_test(names_that_are_taken),
        cmocka_unit_test(publishes_links),
        cmocka_unit_test(held_while_read),
        cmocka_unit_test(held_beside_a_writer),
        cmocka_unit_test(names_of_checkpoints),
        cmocka_unit_test(one_writer_at_a_time),
        cmocka_unit_test(discarded),
        cmocka_unit_test(discarded_by_another),
        cmocka_unit_test(cleared_and_still_locked),
        cmocka_unit_test(a_killed_process_leaves_no_lock),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
