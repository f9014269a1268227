#include "train/compare/compare.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/compare/left.h"
#include "train/compare/missing.h"
#include "train/compare/show/page.h"
#include "train/compare/show/table.h"

/* Makes one training run from start to end. The times that the run measures are kept in
 * calibration.json, for runs of the same work and for later starts of the comparison. */
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
    struct compare_at run; /* the current run */
    struct time_left left;
    int failed;
    enum sotto_status code; /* of the first failed run */
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

/* Broadcasts the index of the next job from rank 0 to all MPI ranks, which make the run together;
 * -1: no further job. `world` NULL: a single process. */
static enum sotto_status agree_next_job(struct comm *world, int *next)
{
    float index = (float)*next;
    if (world)
        TRY(comm_broadcast(world, view_of(&index, DTYPE_F32), 1, 0));
    *next = (int)index;
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
        (void)compare_train_run(jobs, &config, &watch, NULL); /* rank 0 reports the outcome */
    }
}

/* Makes job `i` on rank 0. The other ranks get the job's index after the folder is locked. */
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
    rundir_close(&dir); /* does nothing if the run took over the folder */
    return st == SOTTO_OK ? read_report(&jobs->list[i], results) : st;
}

static int jobs_waiting(const struct jobs *jobs, int from)
{
    int n = 0;
    for (int i = from; i < jobs->n; i++)
        n += jobs->list[i].wanted && jobs->list[i].state != JOB_DONE;
    return n;
}

/* Prints a line that job `i` starts or continues, makes the run and updates the time left. */
static enum sotto_status compare_next_job(const struct jobs *jobs, int i, struct comm *world,
                                          struct compare_course *c, struct results *results)
{
    const struct job *job = &jobs->list[i];
    const bool fresh = job->state == JOB_NEW;
    char time[CLOCK_TEXT_ROOM];
    c->left.waiting = jobs_waiting(jobs, i);
    const double left = left_seconds(&c->left);
    begin_line(c);
    fprintf(c->how->out, "%s in %s", fresh ? "starts" : "continues", job->folder);
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

/* Makes the wanted runs that are not done and reads all reports. A failed run is counted and the
 * next run starts; returns SOTTO_ESTOPPED if the watcher stopped a run. */
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

/* A run's own setting overrides the command line; a line reports every such setting. */
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
                fprintf(own->out, "%s = %s: run %s keeps its own value, %s\n", key, new_value,
                        run->name, run->settings[k].value);
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
    TRY_DONE(rundir_open(&dir, spec->compare.out)); /* two comparisons may not share a folder */
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
    jobs.workers = world ? world->size : 0; /* another number of ranks is another configuration */
    if (st == SOTTO_OK && world && world->rank != 0) {
        st = follow_rank0(&jobs, world, how);
    } else if (st == SOTTO_OK) {
        status_save(&note, lead_comparison(&jobs, world, how));
        if (agree_next_job(world, &none) != SOTTO_OK) /* other ranks ended; the runs are done */
            log_warn("%s", sotto_error());
        if (note.code == SOTTO_ESTOPPED && how->stopped)
            how->stopped(how->arg, world);
        st = status_raise(&note);
    }
    comm_free(world);
    jobs_free(&jobs);
    return st;
}
