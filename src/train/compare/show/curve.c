#include "train/compare/show/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

struct curve_sample { /* a line of metrics.jsonl; NaN: not on the line */
    double step, value, seconds, bytes, samples;
};

struct curve_samples {
    struct curve_sample *data;
    size_t n, room;
};

static enum sotto_status append_sample(struct curve_samples *s, struct curve_sample sample)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        struct curve_sample *more = realloc(s->data, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu samples of a curve", room);
        s->data = more;
        s->room = room;
    }
    s->data[s->n++] = sample;
    return SOTTO_OK;
}

static double number_or_nan(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static enum sotto_status read_lines(struct curve_samples *s, const char *text, const char *path,
                                    const char *metric)
{
    for (int line = 1; *text; line++) {
        size_t length = strcspn(text, "\n");
        json_t *object;
        TRY(fail_in(json_parse(&object, text, length, path), "line %d: ", line));
        struct curve_sample sample = {number_or_nan(object, "step"), number_or_nan(object, metric),
                                      number_or_nan(object, "time/seconds"),
                                      number_or_nan(object, "comm/bytes"),
                                      number_or_nan(object, "train/samples")};
        json_decref(object);
        if (!isnan(sample.step))
            TRY(append_sample(s, sample));
        text += length + (text[length] == '\n');
    }
    return SOTTO_OK;
}

/* Fills in the values of the double at offset `field` that are missing on lines from `begin`, such
 * as the time on lines of evaluations: interpolates by the step between the lines around, from 0 at
 * step 0. */
static void fill_gaps(struct curve_samples *s, size_t begin, size_t field)
{
    double last_step = 0, last = NAN;
    size_t gap = begin;
    for (size_t i = begin; i < s->n; i++) {
        double x = *(double *)((char *)&s->data[i] + field), step = s->data[i].step;
        if (isnan(x))
            continue;
        if (isnan(last))
            last = 0; /* first line with a value */
        for (; gap < i; gap++) {
            double share =
                step > last_step ? (s->data[gap].step - last_step) / (step - last_step) : 1;
            *(double *)((char *)&s->data[gap] + field) = last + share * (x - last);
        }
        gap = i + 1;
        last = x;
        last_step = step;
    }
    for (; gap < s->n; gap++)
        *(double *)((char *)&s->data[gap] + field) = last;
}

static int compare_by_step(const void *a, const void *b)
{
    double x = ((const struct curve_sample *)a)->step, y = ((const struct curve_sample *)b)->step;
    return (x > y) - (x < y);
}

/* Merges samples sorted by step into points, one per step that has the metric. */
static enum sotto_status merge_samples(struct curve *c, const struct curve_samples *s)
{
    c->points = malloc((s->n + 1) * sizeof *c->points);
    if (!c->points)
        return fail(SOTTO_ENOMEM, "no memory for a curve of %zu points", s->n);
    for (size_t i = 0, end; i < s->n; i = end) {
        struct curve_point p = {s->data[i].step, 0, 0, 0, 0, INFINITY, -INFINITY};
        int n = 0;
        for (end = i; end < s->n && s->data[end].step == s->data[i].step; end++) {
            const struct curve_sample *x = &s->data[end];
            if (isnan(x->value))
                continue;
            n++;
            p.seconds += x->seconds;
            p.bytes += x->bytes;
            p.samples += x->samples;
            p.mean += x->value;
            p.min = fmin(p.min, x->value);
            p.max = fmax(p.max, x->value);
        }
        if (n == 0)
            continue;
        p.seconds /= n;
        p.bytes /= n;
        p.samples /= n;
        p.mean /= n;
        c->points[c->n++] = p;
    }
    return SOTTO_OK;
}

enum sotto_status curve_read(struct curve *c, char (*folders)[FILE_PATH_ROOM], int n_folders,
                             const char *metric)
{
    struct curve_samples s = {0};
    enum sotto_status st = SOTTO_OK;
    *c = (struct curve){0};
    for (int i = 0; i < n_folders && st == SOTTO_OK; i++) {
        char path[FILE_PATH_ROOM], *text;
        size_t begin = s.n;
        TRY_DONE(file_join(path, folders[i], "metrics.jsonl"));
        TRY_DONE(file_read_text(path, (size_t)1 << 32, &text));
        st = read_lines(&s, text, path, metric);
        free(text);
        fill_gaps(&s, begin, offsetof(struct curve_sample, seconds));
        fill_gaps(&s, begin, offsetof(struct curve_sample, bytes));
        fill_gaps(&s, begin, offsetof(struct curve_sample, samples));
    }
    if (st == SOTTO_OK && s.n)
        qsort(s.data, s.n, sizeof *s.data, compare_by_step);
    if (st == SOTTO_OK)
        st = merge_samples(c, &s);
done:
    free(s.data);
    return st;
}

void curve_free(struct curve *c)
{
    free(c->points);
    *c = (struct curve){0};
}

double curve_along(const struct curve_point *p, enum axis axis)
{
    switch (axis) {
    case AXIS_SAMPLES:
        return p->samples;
    case AXIS_TIME:
        return p->seconds;
    case AXIS_BYTES:
        return p->bytes;
    default:
        return p->step;
    }
}

double curve_end(const struct curve *c, enum axis axis)
{
    double end = c->n > 0 ? curve_along(&c->points[c->n - 1], axis) : 0;
    return end > 0 ? end : 0;
}

void curve_cut(struct curve *c, enum axis axis, double end)
{
    int n = 0;
    while (n < c->n && !(curve_along(&c->points[n], axis) >= end * (1 - 1e-9)))
        n++;
    c->n = n < c->n ? n + 1 : n;
}
