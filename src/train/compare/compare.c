#include "train/compare/compare.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/compare/left.h"
#include "train/compare/missing.h"
#include "train/compare/show/page.h"
#include "train/compare/show/table.h"

/* One whole training run. Times that it measures are those of all runs like it, also when the
 * comparison is made again. */
static enum sotto_status compare_train_run(const struct jobs *jobs, const struct run_config *config,
                                           const struct run_watch *watch, struct rundir *dir)
{
    struct run run;
    struct run_watch shared = {0};
    char path[FILE_PATH_ROOM];
    if (watch)
        shared = *watch;
    TRY(file_join(path, jobs->spec->compare.out, "calibration.json"));
    shared.calibration = path;
    TRY(run_open_in(&run, config, &shared, dir));
    enum sotto_status st = run_train(&run);
    run_close(&run);
    return st;
}

static enum sotto_status read_report(const struct job *job, struct results *results)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, job->folder, "report.json"));
    return results_read(results, job->run, job->seed, path);
}

struct compare_course {
    const struct compare_how *how;
    struct compare_at run; /* at hand */
    struct time_left left;
    int failed;
    enum sotto_status code; /* of the first that failed */
};

static void begin_line(const struct compare_course *c)
{
    if (c->how->fresh_line)
        c->how->fresh_line(c->how->arg);
    fprintf(c->how->out, "[%d/%d] %s: ", c->run.at, c->run.wanted, c->run.label);
}

static void watch_round(void *arg, const struct run_step *s)
{
    struct compare_course *c = arg;
    const double now = clock_now(&clock_real);
    left_step(&c->left, s, now);
    c->run.left = left_seconds(&c->left);
    c->run.line = left_line_due(&c->left, now);
    if (c->how->step)
        c->how->step(c->how->arg, &c->run, s);
}

/* Under MPI every process comes here: rank 0 says which run is next (-1: none), and all of them run
 * it. `world` NULL: this process is alone. */
static enum sotto_status agree_next_job(struct comm *world, int *next)
{
    float said = (float)*next;
    if (world)
        TRY(comm_broadcast(world, view_of(&said, DTYPE_F32), 1, 0));
    *next = (int)said;
    return SOTTO_OK;
}

static enum sotto_status follow_rank0(const struct jobs *jobs, struct comm *world,
                                      const struct compare_how *how)
{
    const struct run_watch watch = {.stop = how->stop};
    for (;;) {
        int next = -1;
        struct run_config config;
        TRY(agree_next_job(world, &next));
        if (next < 0)
            return SOTTO_OK;
        TRY(job_config(jobs, &jobs->list[next], &config));
        (void)compare_train_run(jobs, &config, &watch, NULL); /* rank 0 tells how it went */
    }
}

/* Rank 0's job `i`. The others hear of it once its folder is ours. */
static enum sotto_status compare_run_job(const struct jobs *jobs, int i, struct comm *world,
                                         struct compare_course *c, struct results *results)
{
    const struct run_watch watch = {.step = watch_round, .arg = c, .stop = c->how->stop};
    struct run_config config;
    struct rundir dir;
    TRY(job_begin(jobs, &jobs->list[i], &config, &dir));
    enum sotto_status st = agree_next_job(world, &i);
    if (st == SOTTO_OK)
        st = compare_train_run(jobs, &config, &watch, &dir);
    rundir_close(&dir); /* nothing, where the run has taken it over */
    return st == SOTTO_OK ? read_report(&jobs->list[i], results) : st;
}

static int jobs_waiting(const struct jobs *jobs, int from)
{
    int n = 0;
    for (int i = from; i < jobs->n; i++)
        n += jobs->list[i].wanted && jobs->list[i].state != JOB_DONE;
    return n;
}

/* A job that is to be run, with a line of how it begins. */
static enum sotto_status compare_next_job(const struct jobs *jobs, int i, struct comm *world,
                                          struct compare_course *c, struct results *results)
{
    const struct job *job = &jobs->list[i];
    const bool fresh = job->state == JOB_NEW;
    char time[CLOCK_TEXT_ROOM];
    c->left.waiting = jobs_waiting(jobs, i);
    const double left = left_seconds(&c->left);
    begin_line(c);
    fprintf(c->how->out, "%s in %s", fresh ? "starts" : "goes on", job->folder);
    if (left >= 0) {
        clock_text(left, time);
        fprintf(c->how->out, ", about %s left for %d run%s", time, c->left.waiting,
                c->left.waiting == 1 ? "" : "s");
    }
    fputc('\n', c->how->out);
    fflush(c->how->out);
    left_begin(&c->left, jobs_waiting(jobs, i + 1), clock_now(&clock_real));
    enum sotto_status st = compare_run_job(jobs, i, world, c, results);
    left_end(&c->left, fresh, st == SOTTO_OK, clock_now(&clock_real));
    return st;
}

/* Runs what is to be run. Only being asked to stop ends it early. */
static enum sotto_status run_all(struct page *page, struct results *results, struct comm *world,
                                 struct compare_course *c)
{
    const struct jobs *jobs = page->jobs;
    FILE *out = c->how->out;
    for (int i = 0; i < jobs->n; i++)
        c->run.wanted += jobs->list[i].wanted;
    for (int i = 0; i < jobs->n; i++) {
        const struct job *job = &jobs->list[i];
        const bool done = job->state == JOB_DONE;
        if (!job->wanted) {
            if (done)
                TRY(read_report(job, results));
            continue;
        }
        c->run.at++;
        c->run.label = job->label;
        const enum sotto_status st =
            done ? read_report(job, results) : compare_next_job(jobs, i, world, c, results);
        begin_line(c);
        if (st == SOTTO_OK) {
            fputs(done ? "was done before: " : "", out);
            table_summary(results, job->run, job->seed, page->columns, page->n_columns, out);
        } else if (st == SOTTO_ESTOPPED) {
            fputs("stopped\n", out);
            return st;
        } else {
            fprintf(out, "FAILED: %s", sotto_error());
            c->code = c->failed++ ? c->code : st;
        }
        fputc('\n', out);
        fflush(out);
    }
    return SOTTO_OK;
}

static enum sotto_status conclude_comparison(const struct page *page,
                                             const struct compare_course *c)
{
    const int n_expects = page->jobs->spec->n_expects;
    if (c->failed && page->unmet)
        return fail(c->code, "%d of %d runs and %d of %d expectations failed", c->failed,
                    c->run.wanted, page->unmet, n_expects);
    if (c->failed)
        return fail(c->code, "%d of %d runs failed", c->failed, c->run.wanted);
    if (page->unmet)
        return fail(SOTTO_EINVAL, "%d of %d expectations failed", page->unmet, n_expects);
    return SOTTO_OK;
}

/* A run's own setting wins over the command line; that is said, lest it surprise. */
struct own_settings {
    const struct spec *spec;
    FILE *out;
};

static void report_own_setting(void *arg, const char *key, const char *old_value,
                               const char *new_value)
{
    const struct own_settings *own = arg;
    const char *dot = strrchr(key, '.'), *bare = dot ? dot + 1 : key;
    (void)old_value;
    for (int i = 0; i < own->spec->n_runs; i++) {
        const struct spec_run *run = &own->spec->runs[i];
        for (int k = 0; k < run->n_settings; k++)
            if (strcmp(run->settings[k].key, key) == 0 || strcmp(run->settings[k].key, bare) == 0)
                fprintf(own->out, "%s = %s: run %s keeps its own, %s\n", key, new_value, run->name,
                        run->settings[k].value);
    }
}

static enum sotto_status lead_comparison(struct jobs *jobs, struct comm *world,
                                         const struct compare_how *how)
{
    const struct spec *spec = jobs->spec;
    char list[COMPARE_LIST_ROOM], *columns[PAGE_COLUMNS];
    struct results results = {0};
    struct page page = {.jobs = jobs, .results = &results, .columns = columns};
    struct compare_course course = {.how = how};
    struct own_settings own = {spec, how->out};
    struct rundir dir = {.lock = -1};
    enum sotto_status st;
    TRY(page_columns(spec, list, columns, &page.n_columns));
    TRY(results_init(&results, spec->names, spec->n_runs, jobs->n_seeds ? jobs->n_seeds : 1));
    TRY_DONE(rundir_open(&dir, spec->compare.out)); /* tables and times are of one comparison */
    TRY_DONE(jobs_find_states(jobs, how->only, how->again));
    TRY_DONE(missing_refuse(jobs, how->again));
    if (how->again)
        TRY_DONE(jobs_clear(jobs));
    if (how->before)
        config_differences(how->before, &spec->base, report_own_setting, &own);
    TRY_DONE(run_all(&page, &results, world, &course));
    TRY_DONE(page_write(&page, how->out));
    st = conclude_comparison(&page, &course);
done:
    rundir_discard(&dir);
    results_free(&results);
    return st;
}

enum sotto_status compare_run(const struct spec *spec, const struct compare_how *how)
{
    struct jobs jobs;
    struct comm *world = NULL;
    struct status_note note;
    int none = -1;
    TRY(jobs_list(&jobs, spec));
    enum sotto_status st = mpi_join_world(&world);
    jobs.workers = world ? world->size : 0; /* another number of ranks makes another run */
    if (st == SOTTO_OK && world && world->rank != 0) {
        st = follow_rank0(&jobs, world, how);
    } else if (st == SOTTO_OK) {
        status_save(&note, lead_comparison(&jobs, world, how));
        if (agree_next_job(world, &none) !=
            SOTTO_OK) /* the others are gone, and the runs are done */
            log_warn("%s", sotto_error());
        if (note.code == SOTTO_ESTOPPED && how->stopped)
            how->stopped(how->arg, world);
        st = status_raise(&note);
    }
    comm_free(world);
    jobs_free(&jobs);
    return st;
}
