#include "train/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/run/run_worker.h"

static double microbatch_seconds(const struct worker_report *w)
{
    return w->cost.microbatches > 0 ? w->cost.compute / (double)w->cost.microbatches : 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How much slower than the median worker the slowest computes; a group that never had work is
 * nobody's measure. */
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
        qsort(each, (size_t)worked, sizeof *each, by_value);
        r->slowness = each[worked - 1] / each[(worked - 1) / 2];
    }
    free(each);
}

/* Two lanes that send at once have twice the time on the wire, but hide behind nothing. */
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
    const double slow = 1.5; /* below it, workers of one kind */
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

static void put(json_t *o, const char *key, double value)
{
    json_object_set_new(o, key, isfinite(value) ? json_real(value) : json_null());
}

static void put_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

/* How many pushes, how stale they were on average, and the share of its time that it waited. */
static void put_pushes(json_t *o, const struct push_totals *p)
{
    put_int(o, "pushes", p->pushes);
    put(o, "staleness", p->pushes > 0 ? (double)p->staleness / (double)p->pushes : NAN);
    put(o, "idle", p->idle > 0 ? p->idle / (p->idle + p->seconds) : 0);
}

/* Of all groups, and of each in "by_group". */
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
            put_int(one, "steps", group[i].steps);
            put_pushes(one, &group[i]);
        }
        json_array_append_new(each, one);
    }
    put_pushes(o, &all);
    json_object_set_new(o, "by_group", each);
}

static void fill(json_t *o, const struct run *run)
{
    const struct run_result *s = &run->result;
    const struct report r = report_of(run);
    const struct sample_kind *kind = run_kind(run);
    report_about(o, run);
    json_object_set_new(o, "complete", json_boolean(s->complete));
    put(o, "loss", s->loss);
    if (s->evaluation.targets) {
        put(o, "eval_loss", s->evaluation.loss);
        put(o, kind->score, evaluation_score(&s->evaluation));
        put(o, "accuracy", (double)s->evaluation.hits / (double)s->evaluation.targets);
    }
    if (s->best.step) {
        put_int(o, "best_step", s->best.step);
        put(o, "best_loss", s->best.loss);
    }
    if (!isnan(s->cosine))
        put(o, "cosine", s->cosine);
    if (s->group)
        put_groups(o, s->group, run->config.strategy.groups);
    put_int(o, "workers", run->cluster.size);
    put_int(o, "steps", s->step);
    if (kind->sequences)
        put_int(o, "tokens", s->tokens);
    put_int(o, "samples", s->samples);
    put(o, "seconds", s->seconds);
    put(o, "samples_per_s", (double)s->samples / s->seconds);
    if (kind->sequences)
        put(o, "tokens_per_s", (double)s->tokens / s->seconds);
    put(o, "compute", r.cost.compute);
    put(o, "update", r.cost.update);
    put(o, "wire", r.cost.wire);
    put(o, "waited_others", r.cost.waited_others);
    put(o, "waited_wire", r.cost.waited_wire);
    put(o, "exposed", cost_exposed(&r.cost));
    put(o, "exposed_share", r.exposed_share);
    put(o, "overlap", r.overlap);
    put_int(o, "bytes", r.cost.inside + r.cost.between);
    put_int(o, "bytes_inside", r.cost.inside);
    put_int(o, "bytes_between", r.cost.between);
    put_int(o, "parameters", (int64_t)run->table->parameters);
    put_int(o, "memory", (int64_t)r.memory_total);
    for (int c = 0; c < MEMORY_CATEGORIES; c++) {
        char key[64];
        snprintf(key, sizeof key, "memory_%s", memory_category_name((enum memory_category)c));
        put_int(o, key, (int64_t)r.memory[c]);
    }
    put_int(o, "memory_activations_live", (int64_t)r.live);
}

enum sotto_status report_write(const struct run *run)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, run_place(run), "report.json"));
    json_t *o = json_object();
    if (o)
        fill(o, run);
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
