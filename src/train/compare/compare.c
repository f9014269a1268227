#include "train/compare/compare.h"

#include <string.h>

#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/compare/page.h"
#include "train/compare/table.h"

/* One whole training run. Times that it measures are those of all runs like it, also when the
 * comparison is made again. */
static enum sotto_status train(const struct jobs *jobs, const struct run_config *config,
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

struct count {
    int wanted, failed;
    enum sotto_status code; /* of the first that failed */
};

static void say(const struct compare_how *how, int at, const struct count *count,
                const struct job *job)
{
    if (how->fresh_line)
        how->fresh_line(how->arg);
    fprintf(how->out, "[%d/%d] %s: ", at, count->wanted, job->label);
}

/* Under MPI every process comes here: rank 0 says which run is next (-1: none), and all of them run
 * it. `world` NULL: this process is alone. */
static enum sotto_status agree(struct comm *world, int *next)
{
    float said = (float)*next;
    if (world)
        TRY(comm_broadcast(world, view_of(&said, DTYPE_F32), 1, 0));
    *next = (int)said;
    return SOTTO_OK;
}

static enum sotto_status follow(const struct jobs *jobs, struct comm *world,
                                const struct compare_how *how)
{
    const struct run_watch watch = {.stop = how->watch ? how->watch->stop : NULL};
    for (;;) {
        int next = -1;
        struct run_config config;
        TRY(agree(world, &next));
        if (next < 0)
            return SOTTO_OK;
        TRY(job_config(jobs, &jobs->list[next], &config));
        (void)train(jobs, &config, &watch, NULL); /* rank 0 tells how it went */
    }
}

/* Rank 0's job `i`. The others hear of it once its folder is ours. */
static enum sotto_status run_job(const struct jobs *jobs, int i, struct comm *world,
                                 const struct run_watch *watch, struct results *results)
{
    struct run_config config;
    struct rundir dir;
    TRY(job_begin(jobs, &jobs->list[i], &config, &dir));
    enum sotto_status st = agree(world, &i);
    if (st == SOTTO_OK)
        st = train(jobs, &config, watch, &dir);
    rundir_close(&dir); /* nothing, where the run has taken it over */
    return st == SOTTO_OK ? read_report(&jobs->list[i], results) : st;
}

/* Runs what is to be run. Only being asked to stop ends it early. */
static enum sotto_status run_all(struct page *page, struct results *results, struct comm *world,
                                 const struct compare_how *how, struct count *count)
{
    const struct jobs *jobs = page->jobs;
    int at = 0;
    for (int i = 0; i < jobs->n; i++)
        count->wanted += jobs->list[i].wanted;
    for (int i = 0; i < jobs->n; i++) {
        const struct job *job = &jobs->list[i];
        enum sotto_status st;
        if (!job->wanted) {
            if (job->state == JOB_DONE)
                TRY(read_report(job, results));
            continue;
        }
        at++;
        if (job->state == JOB_DONE) {
            st = read_report(job, results);
        } else {
            say(how, at, count, job);
            fprintf(how->out, "%s in %s\n", job->state == JOB_PART ? "goes on" : "starts",
                    job->folder);
            fflush(how->out);
            st = run_job(jobs, i, world, how->watch, results);
        }
        say(how, at, count, job);
        if (st == SOTTO_OK) {
            fputs(job->state == JOB_DONE ? "was done before: " : "", how->out);
            table_summary(results, job->run, job->seed, page->columns, page->n_columns, how->out);
        } else if (st == SOTTO_ESTOPPED) {
            fputs("stopped\n", how->out);
            return st;
        } else {
            fprintf(how->out, "FAILED: %s", sotto_error());
            count->code = count->failed++ ? count->code : st;
        }
        fputc('\n', how->out);
        fflush(how->out);
    }
    return SOTTO_OK;
}

static enum sotto_status conclude(const struct page *page, const struct count *count)
{
    const int n_expects = page->jobs->spec->n_expects;
    if (count->failed && page->unmet)
        return fail(count->code, "%d of %d runs and %d of %d expectations failed", count->failed,
                    count->wanted, page->unmet, n_expects);
    if (count->failed)
        return fail(count->code, "%d of %d runs failed", count->failed, count->wanted);
    if (page->unmet)
        return fail(SOTTO_EINVAL, "%d of %d expectations failed", page->unmet, n_expects);
    return SOTTO_OK;
}

/* A run's own setting wins over the command line; that is said, lest it surprise. */
struct kept {
    const struct spec *spec;
    FILE *out;
};

static void tell_kept(void *arg, const char *key, const char *old_value, const char *new_value)
{
    const struct kept *kept = arg;
    const char *dot = strrchr(key, '.'), *bare = dot ? dot + 1 : key;
    (void)old_value;
    for (int i = 0; i < kept->spec->n_runs; i++) {
        const struct spec_run *run = &kept->spec->runs[i];
        for (int k = 0; k < run->n_settings; k++)
            if (strcmp(run->settings[k].key, key) == 0 || strcmp(run->settings[k].key, bare) == 0)
                fprintf(kept->out, "%s = %s: run %s keeps its own, %s\n", key, new_value, run->name,
                        run->settings[k].value);
    }
}

static enum sotto_status lead(struct jobs *jobs, struct comm *world, const struct compare_how *how)
{
    const struct spec *spec = jobs->spec;
    char list[COMPARE_LIST_ROOM], *columns[PAGE_COLUMNS];
    struct results results = {0};
    struct page page = {.jobs = jobs, .results = &results, .columns = columns};
    struct count count = {0};
    struct kept kept = {spec, how->out};
    struct rundir dir = {.lock = -1};
    enum sotto_status st;
    TRY(page_columns(spec, list, columns, &page.n_columns));
    TRY(results_init(&results, spec->names, spec->n_runs, jobs->n_seeds ? jobs->n_seeds : 1));
    TRY_DONE(rundir_open(&dir, spec->compare.out)); /* tables and times are of one comparison */
    TRY_DONE(jobs_look(jobs, how->only, how->again));
    if (how->before)
        config_differences(how->before, &spec->base, tell_kept, &kept);
    TRY_DONE(run_all(&page, &results, world, how, &count));
    TRY_DONE(page_write(&page, how->out));
    st = conclude(&page, &count);
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
    enum sotto_status st = mpi_join(&world);
    jobs.workers = world ? world->size : 0; /* another number of ranks makes another run */
    if (st == SOTTO_OK && world && world->rank != 0) {
        st = follow(&jobs, world, how);
    } else if (st == SOTTO_OK) {
        status_save(&note, lead(&jobs, world, how));
        if (agree(world, &none) != SOTTO_OK) /* the others are gone, and the runs are done */
            log_warn("%s", sotto_error());
        if (note.code == SOTTO_ESTOPPED && how->stopped)
            how->stopped(how->arg, world);
        st = status_raise(&note);
    }
    comm_free(world);
    jobs_free(&jobs);
    return st;
}
