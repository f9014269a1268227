#include "train/compare/results.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/option/option.h"

enum sotto_status results_init(struct results *r, const char *const *report_names, int n_runs,
                               int n_seeds)
{
    assert(n_seeds <= RESULTS_SEEDS);
    *r = (struct results){.names = report_names, .n_runs = n_runs, .n_seeds = n_seeds};
    r->reports = calloc((size_t)(n_runs * n_seeds) + 1, sizeof *r->reports);
    return r->reports ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %d reports", n_runs * n_seeds);
}

void results_free(struct results *r)
{
    for (int i = 0; r->reports && i < r->n_runs * r->n_seeds; i++)
        json_decref(r->reports[i]);
    free(r->reports);
    *r = (struct results){0};
}

void results_drop(struct results *r, int run, int seed)
{
    json_t **place = &r->reports[run * r->n_seeds + seed];
    json_decref(*place);
    *place = NULL;
}

enum sotto_status results_read(struct results *r, int run, int seed, const char *path)
{
    json_t *report;
    TRY(json_open(&report, path, 1 << 20));
    if (!json_is_object(report)) {
        json_decref(report);
        return fail(SOTTO_EFORMAT, "%s: want an object of numbers", path);
    }
    results_drop(r, run, seed);
    r->reports[run * r->n_seeds + seed] = report;
    return SOTTO_OK;
}

struct spread results_spread(const struct results *r, int run, const char *metric)
{
    double values[RESULTS_SEEDS], sum = 0, squares = 0;
    struct spread s = {0, 0, 0, INFINITY, -INFINITY};
    for (int seed = 0; seed < r->n_seeds; seed++) {
        const json_t *value = json_object_get(r->reports[run * r->n_seeds + seed], metric);
        if (!json_is_number(value)) /* null: the run has no value */
            continue;
        double x = json_number_value(value);
        values[s.n++] = x;
        sum += x;
        s.min = fmin(s.min, x);
        s.max = fmax(s.max, x);
    }
    if (s.n == 0)
        return s;
    s.mean = s.min == s.max ? s.min : sum / s.n; /* (x + x + x) / 3 may differ from x */
    for (int i = 0; i < s.n; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.std = s.n > 1 ? sqrt(squares / (s.n - 1)) : 0;
    return s;
}

/* Lists the numbers of a table, without `except`, in `out`, which ends with NULL. */
enum { NAMES_MOST = 64 };
static void list_numbers(const struct result_key *keys, const char *except,
                         const char *out[NAMES_MOST + 1])
{
    int n = 0;
    for (; keys->name; keys++)
        if (keys->unit != UNIT_TEXT && strcmp(keys->name, except) != 0 && n < NAMES_MOST)
            out[n++] = keys->name;
    out[n] = NULL;
}

static enum sotto_status check_known(const struct result_key *keys, const char *except,
                                     const char *name, const char *where, const char *runs_do)
{
    char all[STATUS_ROOM];
    const char *known[NAMES_MOST + 1];
    size_t used = 0;
    list_numbers(keys, except, known);
    const char *near = option_closest(name, known);
    if (near && strcmp(near, name) == 0)
        return SOTTO_OK;
    if (near)
        return fail(SOTTO_EINVAL, "%s: runs %s no '%s': did you mean '%s'?", where, runs_do, name,
                    near);
    for (int i = 0; known[i] && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", known[i]);
    return fail(SOTTO_EINVAL, "%s: runs %s no '%s', but %s", where, runs_do, name, all);
}

enum sotto_status metric_check(const char *metric, const char *where)
{
    return check_known(report_keys, "", metric, where, "report");
}

enum sotto_status curve_check(const char *curve, const char *where)
{
    return check_known(metric_keys, "step", curve, where, "log"); /* the step is an axis */
}

enum key_unit metric_unit(const char *metric)
{
    const struct result_key *key = key_find(report_keys, metric);
    return key ? key->unit : UNIT_PLAIN;
}
