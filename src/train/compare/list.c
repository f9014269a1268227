/* The list of a comparison's runs, for --list. */
#include <string.h>

#include "comm/mpi/mpi.h"
#include "train/compare/compare.h"
#include "train/compare/show/page.h"

struct listing {
    FILE *out;
    const char *between;
};

static void print_setting(void *arg, const char *key, const char *old_value, const char *new_value)
{
    struct listing *l = arg;
    (void)old_value;
    fprintf(l->out, "%s%s = %s", l->between, key, new_value);
    l->between = ", ";
}

/* Returns the error of the first run that training would refuse. */
static enum sotto_status check_runs(const struct spec *spec, struct comm *world)
{
    struct jobs jobs;
    enum sotto_status st = SOTTO_OK;
    TRY(jobs_list(&jobs, spec));
    jobs.workers = world ? world->size : 0;
    for (int i = 0; i < jobs.n && st == SOTTO_OK; i++) {
        struct run_config config;
        if (jobs.list[i].seed > 0) /* checked with the first seed */
            continue;
        st = job_config(&jobs, &jobs.list[i], &config);
        if (st == SOTTO_OK)
            st = fail_in(run_check(&config), "run %s: ", spec->names[jobs.list[i].run]);
    }
    jobs_free(&jobs);
    return st;
}

static enum sotto_status print_list(const struct spec *spec, FILE *out)
{
    int width = 0;
    for (int i = 0; i < spec->n_runs; i++)
        if ((int)strlen(spec->names[i]) > width)
            width = (int)strlen(spec->names[i]);
    fprintf(out, "%s, in %s%s%s\n", spec->compare.title, spec->compare.out,
            *spec->compare.seeds ? ", each with seeds " : "", spec->compare.seeds);
    for (int i = 0; i < spec->n_runs; i++) {
        struct run_config config;
        struct listing l = {out, ""};
        TRY(spec_config(spec, i, &config));
        fprintf(out, "  %-*s  ", width, spec->names[i]);
        config_differences(&spec->base, &config, print_setting, &l);
        fputs(*l.between ? "\n" : "(as the base)\n", out);
    }
    for (int i = 0; i < spec->n_expects; i++)
        fprintf(out, "  expect  %s\n", spec->expects[i].text);
    return SOTTO_OK;
}

/* MPI starts once in a process and ends with the last communicator: `world` keeps MPI alive while
 * the runs are checked. */
enum sotto_status compare_list(const struct spec *spec, FILE *out)
{
    char list[COMPARE_LIST_ROOM], *columns[PAGE_COLUMNS];
    struct comm *world;
    int n;
    TRY(page_columns(spec, list, columns, &n));
    TRY(mpi_join_world(&world));
    enum sotto_status st = check_runs(spec, world);
    if (st == SOTTO_OK && (!world || world->rank == 0))
        st = print_list(spec, out);
    comm_free(world);
    return st;
}
