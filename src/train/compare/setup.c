#include "train/compare/setup.h"

#include <stdarg.h>
#include <string.h>

struct setup_line {
    char *text;
    const char *between;
};

static void append_part(struct setup_line *s, const char *format, ...)
{
    const size_t used = strlen(s->text);
    va_list args;
    va_start(args, format);
    int n = snprintf(s->text + used, SETUP_ROOM - used, "%s", s->between);
    if (n >= 0 && used + (size_t)n < SETUP_ROOM)
        vsnprintf(s->text + used + n, SETUP_ROOM - used - (size_t)n, format, args);
    va_end(args);
    s->between = "; ";
}

/* Keys that describe the setup: worker.step, then those of the cluster. */
enum { STEP, CLUSTER, KEYS = CLUSTER + 9 };
static const char *const keys[KEYS] = {
    "worker.step",   "train.workers", "train.nodes",  "link.intra",    "link.inter",
    "link.adapters", "link.speed",    "worker.speed", "worker.jitter", "worker.memory"};

static void note_key(void *arg, const char *key, const char *old_value, const char *new_value)
{
    bool *own = arg;
    (void)old_value;
    (void)new_value;
    for (int k = 0; k < KEYS; k++)
        own[k] |= strcmp(key, keys[k]) == 0;
}

static enum sotto_status find_own(const struct jobs *jobs, const struct run_config *first,
                                  bool own[KEYS])
{
    for (int i = 1; i < jobs->spec->n_runs; i++) {
        struct run_config other;
        TRY(spec_config(jobs->spec, i, &other));
        config_differences(first, &other, note_key, own);
    }
    return SOTTO_OK;
}

/* Returns the text of `key` if all reports with the key agree, else NULL. */
static const char *shared_text(const struct results *results, const char *key)
{
    const char *shared = NULL;
    for (int i = 0; i < results->n_runs * results->n_seeds; i++) {
        const char *text = json_string_value(json_object_get(results->reports[i], key));
        if (text && shared && strcmp(text, shared) != 0)
            return NULL;
        shared = text ? text : shared;
    }
    return shared;
}

static void append_model(struct setup_line *s, const struct results *results)
{
    const char *name = shared_text(results, "model");
    struct spread p = results_spread(results, 0, "parameters");
    for (int run = 1; run < results->n_runs; run++) {
        struct spread other = results_spread(results, run, "parameters");
        if (p.n == 0)
            p = other;
        if (other.n && other.mean != p.mean)
            p.mean = 0; /* models differ */
    }
    if (p.n == 0 || p.mean == 0)
        return;
    const bool billions = p.mean >= 999.5e6; /* three digits */
    append_part(s, "%s%s%.3g %s parameters", name ? name : "", name ? ", " : "",
                p.mean / (billions ? 1e9 : 1e6), billions ? "billion" : "million");
}

/* Appends the cluster of the runs' reports, or the keys in which the clusters differ. */
static void append_cluster(struct setup_line *s, const struct results *results, bool simulated,
                           const bool own[KEYS])
{
    const char *cluster = NULL;
    char differ[256] = "";
    for (int k = CLUSTER; k < KEYS; k++) {
        const size_t used = strlen(differ);
        if (own[k])
            snprintf(differ + used, sizeof differ - used, "%s%s", used ? ", " : "", keys[k]);
    }
    for (int i = 0; i < results->n_runs * results->n_seeds && !cluster; i++)
        cluster = json_string_value(json_object_get(results->reports[i], "cluster"));
    if (*differ)
        append_part(s, "clusters differ in %s", differ);
    else if (cluster)
        append_part(s, "%scluster: %s", simulated ? "simulated " : "", cluster);
}

enum sotto_status setup_describe(const struct jobs *jobs, const struct results *results,
                                 char out[SETUP_ROOM])
{
    struct setup_line s = {out, ""};
    struct run_config c;
    bool own[KEYS] = {false};
    *out = '\0';
    TRY(spec_config(jobs->spec, 0, &c));
    TRY(find_own(jobs, &c, own));
    append_model(&s, results);
    append_cluster(&s, results, c.train.time == TIME_VIRTUAL, own);
    if (!own[STEP] && *c.worker.step)
        append_part(&s, "%s a micro-batch", c.worker.step);
    return SOTTO_OK;
}
