#include "train/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/trainer.h"

struct report report_of(const struct run *run)
{
    struct report r = {0};
    const int n = run->cluster.size;
    for (int i = 0; i < n; i++) {
        const struct worker_report *w = &run->result.worker[i];
        cost_add(&r.cost, &w->cost, 1);
        if (w->memory_total > r.memory_total)
            r.memory_total = w->memory_total;
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
            if (w->memory[c] > r.memory[c])
                r.memory[c] = w->memory[c];
    }
    r.cost.seconds = run->result.seconds;
    r.cost.compute /= n;
    r.cost.communication /= n;
    r.cost.exposed /= n;
    r.cost.inside /= n;
    r.cost.between /= n;
    r.exposed_share = r.cost.seconds > 0 ? r.cost.exposed / r.cost.seconds : 0;
    r.overlap = r.cost.communication > 0 ? fmax(0, 1 - r.cost.exposed / r.cost.communication) : NAN;
    return r;
}

static void put(json_t *o, const char *key, double value)
{
    json_object_set_new(o, key, isfinite(value) ? json_real(value) : json_null());
}

static void put_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

static void fill(json_t *o, const struct run *run)
{
    const struct run_result *s = &run->result;
    const struct report r = report_of(run);
    report_about(o, run);
    json_object_set_new(o, "complete", json_boolean(s->complete));
    put(o, "loss", s->loss);
    if (s->evaluation.targets) {
        put(o, "eval_loss", s->evaluation.loss);
        put(o, "perplexity", exp(s->evaluation.loss));
    }
    put_int(o, "workers", run->cluster.size);
    put_int(o, "steps", s->step);
    put_int(o, "tokens", s->tokens);
    put_int(o, "samples", s->samples);
    put(o, "seconds", s->seconds);
    put(o, "samples_per_s", (double)s->samples / s->seconds);
    put(o, "tokens_per_s", (double)s->tokens / s->seconds);
    put(o, "compute", r.cost.compute);
    put(o, "communication", r.cost.communication);
    put(o, "exposed", r.cost.exposed);
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
}

enum sotto_status report_write(const struct run *run)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, run->config.train.out, "report.json"));
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
