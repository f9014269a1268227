#include "train/compare/show/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMOOTH = 5 }; /* logged values; a single loss is noise */

/* Replaces each point by the mean of the point and up to SMOOTH - 1 points before. */
static void smooth_curve(struct curve *c)
{
    for (int i = c->n - 1; i >= 0; i--) {
        const int from = i < SMOOTH ? 0 : i - SMOOTH + 1;
        double sum = 0;
        for (int k = from; k <= i; k++)
            sum += c->points[k].mean;
        c->points[i].mean = sum / (i - from + 1);
    }
}

static enum sotto_status read_all_curves(const struct jobs *jobs, const struct results *results,
                                         const char *metric, struct curve *curves)
{
    for (int i = 0; i < jobs->n; i++) {
        curve_free(&curves[i]);
        if (results->reports[i])
            TRY(curve_read(&curves[i], &jobs->list[i].folder, 1, metric));
    }
    return SOTTO_OK;
}

/* Reads the curves of eval/loss if all finished runs have one, else those of train/loss, smoothed.
 */
static enum sotto_status read_losses(struct common *c, const struct jobs *jobs,
                                     const struct results *results, struct curve *curves)
{
    bool all = true;
    c->metric = "eval/loss";
    TRY(read_all_curves(jobs, results, c->metric, curves));
    for (int i = 0; i < jobs->n; i++)
        all &= !results->reports[i] || curves[i].n > 2;
    if (all)
        return SOTTO_OK;
    c->metric = "train/loss";
    TRY(read_all_curves(jobs, results, c->metric, curves));
    for (int i = 0; i < jobs->n; i++)
        smooth_curve(&curves[i]);
    return SOTTO_OK;
}

/* Finds the end of the shortest run. Without the option `cut` the axis is the unit of the runs'
 * budget. */
static void find_common_end(struct common *c, const struct spec *spec, const struct curve *curves,
                            int n)
{
    const struct train_config *t = &spec->base.train;
    static const enum axis axes[] = {
        [CUT_ROUNDS] = AXIS_ROUNDS, [CUT_SAMPLES] = AXIS_SAMPLES, [CUT_TIME] = AXIS_TIME};
    int cut = spec->compare.cut;
    if (cut == CUT_AUTO)
        cut = t->seconds > 0 ? CUT_TIME : t->tokens || t->samples ? CUT_SAMPLES : CUT_ROUNDS;
    c->end = 0;
    if (cut == CUT_NONE)
        return;
    c->axis = axes[cut];
    for (int i = 0; i < n; i++) {
        const double end = curve_end(&curves[i], c->axis);
        if (curves[i].n > 1 && end > 0 && (c->end == 0 || end < c->end))
            c->end = end;
    }
}

/* Finds the loss for time_to_loss: the option's, or the greatest of the runs' lowest losses, which
 * all runs reach. */
static void find_common_target(struct common *c, const struct jobs *jobs,
                               const struct curve *curves)
{
    c->worst = -1;
    c->target = jobs->spec->compare.target > 0 ? jobs->spec->compare.target : NAN;
    if (!isnan(c->target))
        return;
    for (int i = 0; i < jobs->n; i++) {
        double best = INFINITY;
        for (int k = 0; k < curves[i].n; k++)
            best = fmin(best, curves[i].points[k].mean);
        if (isfinite(best) && !(best <= c->target)) {
            c->target = best;
            c->worst = jobs->list[i].run;
        }
    }
}

static double interpolate_at(double x, double x0, double x1, double y0, double y1)
{
    return x1 != x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
}

/* Returns the seconds until the curve first reaches the target; NaN: never. */
static double time_to_target(const struct curve *c, double target)
{
    for (int i = 0; i < c->n; i++) {
        const struct curve_point *p = &c->points[i];
        if (!(p->mean <= target))
            continue;
        return i ? interpolate_at(target, p[-1].mean, p->mean, p[-1].seconds, p->seconds)
                 : p->seconds;
    }
    return NAN;
}

/* Returns the curve's value at the common end. */
static double curve_value_at(const struct curve *c, enum axis axis, double end)
{
    for (int i = 0; i < c->n; i++) {
        const struct curve_point *p = &c->points[i];
        const double x = curve_along(p, axis);
        if (x < end * (1 - 1e-9))
            continue;
        return i ? interpolate_at(end, curve_along(p - 1, axis), x, p[-1].mean, p->mean) : p->mean;
    }
    return c->n ? c->points[c->n - 1].mean : NAN;
}

static void put_metric(json_t *report, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(report, key, json_real(value));
}

enum sotto_status common_find(struct common *c, const struct jobs *jobs, struct results *results)
{
    struct curve *curves = calloc((size_t)jobs->n, sizeof *curves);
    if (!curves)
        return fail(SOTTO_ENOMEM, "no memory for %d curves", jobs->n);
    enum sotto_status st;
    *c = (struct common){.target = NAN, .worst = -1};
    TRY_DONE(read_losses(c, jobs, results, curves));
    find_common_end(c, jobs->spec, curves, jobs->n);
    find_common_target(c, jobs, curves);
    for (int i = 0; i < jobs->n; i++) {
        if (!results->reports[i])
            continue;
        put_metric(results->reports[i], "time_to_loss", time_to_target(&curves[i], c->target));
        put_metric(results->reports[i], "common_loss", curve_value_at(&curves[i], c->axis, c->end));
    }
done:
    for (int i = 0; i < jobs->n; i++)
        curve_free(&curves[i]);
    free(curves);
    return st;
}

static bool has_column(char *const *columns, int n, const char *name)
{
    for (int k = 0; k < n; k++)
        if (strcmp(columns[k], name) == 0)
            return true;
    return false;
}

void common_print(const struct common *c, const struct results *results, char *const *columns,
                  int n_columns, FILE *out)
{
    static const char *const unit[AXES] = {"rounds", "samples", "s of training", "bytes"};
    const bool loss = c->end > 0 && has_column(columns, n_columns, "common_loss");
    const bool time = !isnan(c->target) && has_column(columns, n_columns, "time_to_loss");
    if (loss || time)
        fputc('\n', out);
    if (loss)
        fprintf(out, "common_loss: %s after %.6g %s, reached by all runs\n", c->metric, c->end,
                unit[c->axis]);
    if (time)
        fprintf(out, "time_to_loss: until %s is %.4f%s%s%s\n", c->metric, c->target,
                c->worst < 0 ? "" : ", the lowest of ",
                c->worst < 0 ? "" : results->names[c->worst],
                c->worst < 0 ? "" : ", reached by all runs");
}
