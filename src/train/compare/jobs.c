#include "train/compare/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/report/report.h"

enum sotto_status job_config(const struct jobs *jobs, const struct job *job, struct run_config *out)
{
    const struct spec *spec = jobs->spec;
    const struct train_config *base = &spec->base.train;
    TRY(spec_config(spec, job->run, out));
    struct train_config *t = &out->train;
    if (strcmp(t->out, base->out) != 0 || t->resume != base->resume)
        return fail(SOTTO_EINVAL, "run %s sets train.%s, which compare sets for every run",
                    spec->names[job->run], t->resume != base->resume ? "resume" : "out");
    if (jobs->n_seeds && t->seed != base->seed)
        return fail(
            SOTTO_EINVAL,
            "run %s sets train.seed, and seeds = %s sets it for every run: remove one of them",
            spec->names[job->run], spec->compare.seeds);
    if (strlen(job->folder) >= sizeof t->out)
        return fail(SOTTO_EINVAL, "%s is too long a path", job->folder);
    strcpy(t->out, job->folder);
    t->resume = true;
    if (!t->workers)
        t->workers = jobs->workers;
    if (jobs->n_seeds)
        t->seed = jobs->seeds[job->seed];
    TRY(strategy_optim(&out->strategy, &out->optim, &spec->base.optim));
    optim_set_aside(&out->optim, &spec->base.optim);
    strategy_set_aside(&out->strategy, &spec->base.strategy);
    config_set_aside_nodes(out, &spec->base);
    return SOTTO_OK;
}

/* Returns the configuration without settings that make no other run: the folder and the switches
 * of a single start. */
static struct run_config without_place(const struct run_config *config)
{
    struct run_config c = *config;
    c.train.out[0] = '\0';
    c.train.resume = false;
    c.train.check_memory = c.train.check_disk = true;
    return c;
}

struct job_difference {
    char text[STATUS_ROOM];
    int n;
};

static void keep_first(void *arg, const char *key, const char *old_value, const char *new_value)
{
    struct job_difference *d = arg;
    if (d->n++ == 0)
        snprintf(d->text, sizeof d->text, "%s was '%.100s', is now '%.100s'", key, old_value,
                 new_value);
}

/* Returns in `d` how the configuration in compare.ini at `path` differs from `config`. An
 * unreadable compare.ini counts as a difference, with the error as its text. */
static void find_stored_difference(const char *path, const struct run_config *config,
                                   struct job_difference *d)
{
    struct run_config kept;
    *d = (struct job_difference){0};
    if (config_load_kept(&kept, path) != SOTTO_OK) {
        snprintf(d->text, sizeof d->text, "%s", sotto_error());
        d->n = 1;
        return;
    }
    struct run_config before = without_place(&kept), after = without_place(config);
    config_differences(&before, &after, keep_first, d);
}

static enum sotto_status clear_job(const struct job *job)
{
    struct rundir dir;
    char kept[FILE_PATH_ROOM];
    TRY(file_join(kept, job->folder, "compare.ini"));
    if (!file_exists(kept)) /* not a run of compare: must not be removed */
        return SOTTO_OK;
    TRY(rundir_open(&dir, job->folder)); /* fails if another process holds the folder */
    enum sotto_status st = rundir_clear(&dir);
    rundir_close(&dir);
    return st;
}

/* Sets the job's state by its folder. `again`: a run of another configuration is no error, since
 * the run is removed afterwards. */
static enum sotto_status find_job_state(const struct jobs *jobs, struct job *job, bool again)
{
    char report[FILE_PATH_ROOM], kept[FILE_PATH_ROOM], checkpoint[FILE_PATH_ROOM];
    struct run_config config;
    struct job_difference d;
    int64_t step;
    TRY(job_config(jobs, job, &config));
    TRY(file_join(report, job->folder, "report.json"));
    TRY(file_join(kept, job->folder, "compare.ini"));
    TRY(checkpoint_latest(job->folder, &step, checkpoint));
    job->state = JOB_NEW;
    if (step < 0 && !file_exists(report))
        return SOTTO_OK;
    if (!file_exists(kept)) {
        if (!job->wanted)
            return SOTTO_OK;
        return fail(SOTTO_EINVAL,
                    "%s holds a run that compare did not start: choose another --out or remove it",
                    job->folder);
    }
    find_stored_difference(kept, &config, &d);
    if (d.n == 0)
        job->state = report_left(job->folder).complete ? JOB_DONE : JOB_PART;
    else if (job->wanted && !again)
        return fail(SOTTO_EINVAL,
                    "%s holds a run of another configuration (%s): --again removes it and starts "
                    "again, another --out keeps it",
                    job->folder, d.text);
    return SOTTO_OK;
}

static enum sotto_status read_seeds(struct jobs *jobs)
{
    char list[COMPARE_LIST_ROOM], *words[RESULTS_SEEDS];
    strcpy(list, jobs->spec->compare.seeds);
    TRY(spec_words(list, "seeds", words, RESULTS_SEEDS, &jobs->n_seeds));
    for (int i = 0; i < jobs->n_seeds; i++) {
        char *end;
        errno = 0;
        jobs->seeds[i] = strtoll(words[i], &end, 10);
        if (*end || errno || jobs->seeds[i] < 0 || jobs->seeds[i] > (int64_t)1e15)
            return fail(SOTTO_EINVAL, "seeds: '%s' is not a whole number from 0 to 1e15", words[i]);
        for (int k = 0; k < i; k++)
            if (jobs->seeds[k] == jobs->seeds[i])
                return fail(SOTTO_EINVAL, "seeds: %s is listed twice", words[i]);
    }
    return SOTTO_OK;
}

static enum sotto_status fill_list(struct jobs *jobs)
{
    const struct spec *spec = jobs->spec;
    const int times = jobs->n_seeds ? jobs->n_seeds : 1;
    jobs->list = calloc((size_t)(spec->n_runs * times), sizeof *jobs->list);
    if (!jobs->list)
        return fail(SOTTO_ENOMEM, "no memory for %d runs", spec->n_runs * times);
    for (int i = 0; i < spec->n_runs * times; i++) {
        struct job *job = &jobs->list[jobs->n++];
        char name[96];
        *job = (struct job){.run = i / times, .seed = i % times, .wanted = true};
        long long seed = (long long)jobs->seeds[job->seed];
        const char *run = spec->names[job->run];
        if (jobs->n_seeds) {
            snprintf(name, sizeof name, "%s-%lld", run, seed);
            snprintf(job->label, sizeof job->label, "%s seed %lld", run, seed);
        } else {
            snprintf(name, sizeof name, "%s", run);
            snprintf(job->label, sizeof job->label, "%s", run);
        }
        TRY(file_join(job->folder, spec->compare.out, name));
    }
    return SOTTO_OK;
}

static enum sotto_status choose_jobs(struct jobs *jobs, const char *only)
{
    char list[COMPARE_LIST_ROOM], *words[RESULTS_SEEDS];
    int n;
    snprintf(list, sizeof list, "%s", only);
    TRY(spec_words(list, "--only", words, RESULTS_SEEDS, &n));
    for (int k = 0; n && k < jobs->n; k++)
        jobs->list[k].wanted = false;
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int k = 0; k < jobs->n; k++) {
            if (strcmp(jobs->spec->names[jobs->list[k].run], words[i]) == 0)
                found = jobs->list[k].wanted = true;
        }
        if (found)
            continue;
        const char *near = option_closest(words[i], jobs->spec->names);
        return fail(SOTTO_EINVAL, "--only: there is no run '%s'%s%s%s", words[i],
                    near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return SOTTO_OK;
}

enum sotto_status jobs_list(struct jobs *jobs, const struct spec *spec)
{
    *jobs = (struct jobs){.spec = spec};
    enum sotto_status st = read_seeds(jobs);
    if (st == SOTTO_OK)
        st = fill_list(jobs);
    if (st != SOTTO_OK)
        jobs_free(jobs);
    return st;
}

enum sotto_status jobs_find_states(struct jobs *jobs, const char *only, bool again)
{
    TRY(choose_jobs(jobs, only));
    for (int i = 0; i < jobs->n; i++)
        TRY(find_job_state(jobs, &jobs->list[i], again));
    return SOTTO_OK;
}

enum sotto_status jobs_clear(struct jobs *jobs)
{
    for (int i = 0; i < jobs->n; i++) {
        struct job *job = &jobs->list[i];
        if (!job->wanted)
            continue;
        TRY(clear_job(job));
        job->state = JOB_NEW;
    }
    return SOTTO_OK;
}

void jobs_free(struct jobs *jobs)
{
    free(jobs->list);
    *jobs = (struct jobs){0};
}

static enum sotto_status write_job_config(const struct job *job, const struct run_config *config)
{
    char path[FILE_PATH_ROOM];
    struct run_config kept = without_place(config);
    struct option_section sections[RUN_SECTIONS];
    TRY(file_join(path, job->folder, "compare.ini"));
    run_sections(&kept, sections);
    char *text = option_dump(sections, RUN_SECTIONS);
    if (!text)
        return fail(SOTTO_ENOMEM, "no memory for %s", path);
    enum sotto_status st = file_write(path, text, strlen(text));
    free(text);
    return st;
}

enum sotto_status job_begin(const struct jobs *jobs, struct job *job, struct run_config *config,
                            struct rundir *dir)
{
    TRY(job_config(jobs, job, config));
    TRY(rundir_open(dir, job->folder));
    enum sotto_status st = find_job_state(jobs, job, false);
    if (st == SOTTO_OK)
        st = write_job_config(job, config);
    if (st != SOTTO_OK)
        rundir_close(dir);
    return st;
}
