#include "train/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/report/keys.h"
#include "train/run/run_worker.h"

static double microbatch_seconds(const struct worker_report *w)
{
    return w->cost.microbatches > 0 ? w->cost.compute / (double)w->cost.microbatches : 0;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sets the slowest worker, and its time over the median's. Groups that never had work do not count.
 */
static void find_slowest(struct report *r, const struct worker_report *worker, int n)
{
    double *each = malloc((size_t)n * sizeof *each);
    int worked = 0;
    for (int i = 0; i < n && each; i++) {
        const double seconds = microbatch_seconds(&worker[i]);
        if (seconds > 0)
            each[worked++] = seconds;
        if (seconds > microbatch_seconds(&worker[r->slowest]))
            r->slowest = i;
    }
    if (worked > 1) {
        qsort(each, (size_t)worked, sizeof *each, compare_seconds);
        r->slowness = each[worked - 1] / each[(worked - 1) / 2];
    }
    free(each);
}

/* Limits the seconds on the wire to the training's: two lanes that send at once count twice. */
static double on_the_wire(const struct cost *c)
{
    return fmin(c->wire, c->seconds);
}

struct report report_of(const struct run *run)
{
    struct report r = {0};
    struct cost_joint all = {0};
    const int n = run->cluster.size;
    for (int i = 0; i < n; i++) {
        const struct worker_report *w = &run->result.worker[i];
        cost_join(&all, &w->cost);
        r.memory_mean += w->memory_total / (size_t)n;
        if (w->memory_total > r.memory_total)
            r.memory_total = w->memory_total;
        if (w->live > r.live)
            r.live = w->live;
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
            if (w->memory[c] > r.memory[c])
                r.memory[c] = w->memory[c];
    }
    r.cost = cost_mean(&all);
    if (r.cost.seconds > 0)
        r.exposed_share = fmax(0, cost_exposed(&r.cost) / r.cost.seconds);
    r.overlap = r.cost.wire > 0 ? fmax(0, 1 - r.cost.waited_wire / on_the_wire(&r.cost)) : NAN;
    r.slowness = 1;
    if (!strategy_unlike(&run->config.strategy))
        find_slowest(&r, run->result.worker, n);
    return r;
}

void report_sentence(const struct report *r, char *out, size_t room)
{
    const double slow = 1.5; /* less: workers of one kind */
    const struct cost *c = &r->cost;
    char who[160];
    if (r->slowness > slow)
        snprintf(who, sizeof who,
                 "worker %d computes %.3g times slower; workers waited %.3g s for others",
                 r->slowest, r->slowness, c->waited_others);
    else
        snprintf(who, sizeof who, "workers waited %.3g s for each other", c->waited_others);
    if (c->inside + c->between > 0)
        snprintf(out, room, "%s; the wire took %.3g s, %.3g s of it hidden (means over workers)",
                 who, c->wire, fmax(0, on_the_wire(c) - c->waited_wire));
    else
        snprintf(out, room, "%s; nothing was sent", who);
}

static void json_put(json_t *o, const char *key, double value)
{
    json_object_set_new(o, key_listed(report_keys, key),
                        isfinite(value) ? json_real(value) : json_null());
}

static void json_put_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key_listed(report_keys, key), json_integer(value));
}

/* Adds the number of pushes, their mean staleness, and the share of time that the groups waited. */
static void put_pushes(json_t *o, const struct push_totals *p)
{
    json_put_int(o, "pushes", p->pushes);
    json_put(o, "staleness", p->pushes > 0 ? (double)p->staleness / (double)p->pushes : NAN);
    json_put(o, "idle", p->idle > 0 ? p->idle / (p->idle + p->seconds) : 0);
}

/* Adds the pushes of all groups, and of each group in "by_group". */
static void put_groups(json_t *o, const struct push_totals *group, int n)
{
    struct push_totals all = {0};
    json_t *each = json_array();
    for (int i = 0; i < n; i++) {
        json_t *one = json_object();
        all.pushes += group[i].pushes;
        all.staleness += group[i].staleness;
        all.seconds += group[i].seconds;
        all.idle += group[i].idle;
        if (one) {
            json_put_int(one, "steps", group[i].steps);
            put_pushes(one, &group[i]);
        }
        json_array_append_new(each, one);
    }
    put_pushes(o, &all);
    json_object_set_new(o, key_listed(report_keys, "by_group"), each);
}

static void fill_report(json_t *o, const struct run *run)
{
    const struct run_result *s = &run->result;
    const struct report r = report_of(run);
    const struct sample_kind *kind = run_kind(run);
    report_about(o, run);
    json_object_set_new(o, key_listed(report_keys, "complete"), json_boolean(s->complete));
    json_put(o, "loss", s->loss);
    if (s->evaluation.targets) {
        json_put(o, "eval_loss", s->evaluation.loss);
        json_put(o, kind->score, evaluation_score(&s->evaluation));
        json_put(o, "accuracy", (double)s->evaluation.hits / (double)s->evaluation.targets);
    }
    if (s->best.step) {
        json_put_int(o, "best_step", s->best.step);
        json_put(o, "best_loss", s->best.loss);
    }
    if (!isnan(s->cosine))
        json_put(o, "cosine", s->cosine);
    if (s->group)
        put_groups(o, s->group, run->config.strategy.groups);
    json_put_int(o, "workers", run->cluster.size);
    json_put_int(o, "steps", s->step);
    if (kind->sequences)
        json_put_int(o, "tokens", s->tokens);
    json_put_int(o, "samples", s->samples);
    json_put(o, "seconds", s->seconds);
    json_put(o, "samples_per_s", (double)s->samples / s->seconds);
    if (kind->sequences)
        json_put(o, "tokens_per_s", (double)s->tokens / s->seconds);
    json_put(o, "compute", r.cost.compute);
    json_put(o, "update", r.cost.update);
    json_put(o, "wire", r.cost.wire);
    json_put(o, "waited_others", r.cost.waited_others);
    json_put(o, "waited_wire", r.cost.waited_wire);
    json_put(o, "exposed", cost_exposed(&r.cost));
    json_put(o, "exposed_share", r.exposed_share);
    json_put(o, "overlap", r.overlap);
    json_put_int(o, "bytes", r.cost.inside + r.cost.between);
    json_put_int(o, "bytes_inside", r.cost.inside);
    json_put_int(o, "bytes_between", r.cost.between);
    json_put_int(o, "parameters", (int64_t)run->table->parameters);
    json_put_int(o, "memory", (int64_t)r.memory_total);
    for (int c = 0; c < MEMORY_CATEGORIES; c++) {
        char key[64];
        snprintf(key, sizeof key, "memory_%s", memory_category_name((enum memory_category)c));
        json_put_int(o, key, (int64_t)r.memory[c]);
    }
    json_put_int(o, "memory_activations_live", (int64_t)r.live);
}

enum sotto_status report_write(const struct run *run)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, run_place(run), "report.json"));
    json_t *o = json_object();
    if (o)
        fill_report(o, run);
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) : NULL;
    enum sotto_status st =
        text ? file_write(path, text, strlen(text)) : fail(SOTTO_ENOMEM, "no memory for %s", path);
    free(text);
    json_decref(o);
    return st;
}

struct report_left report_left(const char *folder)
{
    char path[FILE_PATH_ROOM];
    json_t *o;
    if (file_join(path, folder, "report.json") != SOTTO_OK ||
        json_open(&o, path, 1 << 20) != SOTTO_OK)
        return (struct report_left){0};
    const struct report_left left = {
        .complete = json_is_true(json_object_get(o, "complete")),
        .trained = !json_object_get(json_object_get(o, "options"), "train.oracle"),
        .steps = json_integer_value(json_object_get(o, "steps"))};
    json_decref(o);
    return left;
}
