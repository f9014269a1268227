#include "train/compare/show/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct scale {
    double factor; /* shown value = factor * value */
    const char *unit;
    int digits; /* significant digits */
};

/* Chooses the unit of a column by its largest value, so that the rows compare at a glance. */
static struct scale choose_scale(const char *metric, double largest)
{
    switch (metric_unit(metric)) {
    case UNIT_SECONDS:
        if (largest >= 2 * 3600)
            return (struct scale){1.0 / 3600, "h", 4};
        return largest < 1 ? (struct scale){1e3, "ms", 4} : (struct scale){1, "s", 4};
    case UNIT_BYTES:
        if (largest >= 1e12)
            return (struct scale){1e-12, "TB", 4};
        if (largest >= 1e9)
            return (struct scale){1e-9, "GB", 4};
        return largest >= 1e5 ? (struct scale){1e-6, "MB", 4} : (struct scale){1e-3, "kB", 4};
    case UNIT_SHARE:
        return (struct scale){100, "%", 3};
    case UNIT_TEXT:
    case UNIT_PLAIN:
        break;
    }
    return (struct scale){1, "", strstr(metric, "loss") ? 5 : 4};
}

/* Returns the number of decimals for `digits` significant digits of x. */
static int decimals_of(double x, int digits)
{
    if (x == floor(x) && fabs(x) < 1e9) /* a count */
        return 0;
    int before = (int)floor(log10(fabs(x))) + 1; /* digits before the point, < 0 below 0.1 */
    int decimals = digits - (before == 0 ? 1 : before);
    return decimals < 0 ? 0 : decimals;
}

enum { CELL = 64 };

static void print_cell(const struct spread *s, struct scale scale, bool several, char out[CELL])
{
    if (s->n == 0) {
        strcpy(out, "-");
        return;
    }
    double mean = s->mean * scale.factor, std = s->std * scale.factor;
    if (*scale.unit == '%' && fabs(mean) < 1e-9) /* rounding of the clocks */
        mean = std = 0;
    several &= std != 0; /* equal for all seeds, such as bytes: one number */
    bool fixed = mean == 0 || (fabs(mean) >= 0.01 && fabs(mean) < 1e12);
    int decimals = fixed ? decimals_of(mean, scale.digits) : 0;
    if (several && fixed && decimals < 2 && fabs(mean) < 100)
        decimals = 2; /* a mean that happens to be whole */
    if (!fixed)
        snprintf(out, CELL, several ? "%.*g +- %.2g" : "%.*g", scale.digits, mean, std);
    else
        snprintf(out, CELL, several ? "%.*f +- %.*f" : "%.*f", decimals, mean, decimals, std);
}

static double largest_of(const struct results *r, const char *metric)
{
    double largest = 0;
    for (int run = 0; run < r->n_runs; run++) {
        struct spread s = results_spread(r, run, metric);
        if (s.n && fabs(s.mean) > largest)
            largest = fabs(s.mean);
    }
    return largest;
}

/* Fills in the heading and rows of one column. */
static void fill_column(const struct results *r, const char *metric, char (*cells)[CELL],
                        int stride)
{
    struct scale scale = choose_scale(metric, largest_of(r, metric));
    snprintf(cells[0], CELL, *scale.unit ? "%.48s (%s)" : "%.48s", metric, scale.unit);
    for (int run = 0; run < r->n_runs; run++) {
        struct spread s = results_spread(r, run, metric);
        print_cell(&s, scale, r->n_seeds > 1, cells[(run + 1) * stride]);
    }
}

static void print_grid(char (*cells)[CELL], int rows, int columns, bool markdown, FILE *out)
{
    for (int i = 0; i < rows; i++) {
        for (int k = 0; k < columns; k++) {
            int width = 0;
            for (int j = 0; j < rows; j++)
                if ((int)strlen(cells[j * columns + k]) > width)
                    width = (int)strlen(cells[j * columns + k]);
            const char *edge = markdown ? (k ? " | " : "| ") : (k ? "  " : "");
            fprintf(out, k ? "%s%*s" : "%s%-*s", edge, width, cells[i * columns + k]);
        }
        fputs(markdown ? " |\n" : "\n", out);
        for (int k = 0; markdown && i == 0 && k < columns; k++)
            fprintf(out, "%s%s", k ? "---:|" : "|---|", k == columns - 1 ? "\n" : "");
    }
}

static void print_csv(const struct results *r, char *const *columns, int n_columns, FILE *out)
{
    bool several = r->n_seeds > 1;
    fputs(several ? "run,seeds" : "run", out);
    for (int k = 0; k < n_columns; k++)
        fprintf(out, several ? ",%s,%s_std" : ",%s", columns[k], columns[k]);
    for (int run = 0; run < r->n_runs; run++) {
        int finished = 0;
        for (int seed = 0; seed < r->n_seeds; seed++)
            finished += r->reports[run * r->n_seeds + seed] != NULL;
        fprintf(out, "\n%s", r->names[run]);
        if (several)
            fprintf(out, ",%d", finished);
        for (int k = 0; k < n_columns; k++) {
            struct spread s = results_spread(r, run, columns[k]);
            if (s.n == 0)
                fputs(several ? ",," : ",", out);
            else
                fprintf(out, several ? ",%.15g,%.15g" : ",%.15g", s.mean, s.std);
        }
    }
    fputc('\n', out);
}

enum sotto_status table_print(const struct results *results, char *const *columns, int n_columns,
                              enum table_style style, FILE *out)
{
    if (style == TABLE_CSV) {
        print_csv(results, columns, n_columns, out);
        return SOTTO_OK;
    }
    int rows = results->n_runs + 1, stride = n_columns + 1;
    char(*cells)[CELL] = calloc((size_t)(rows * stride), sizeof *cells);
    if (!cells)
        return fail(SOTTO_ENOMEM, "no memory for a table of %d x %d", rows, stride);
    strcpy(cells[0], "run");
    for (int run = 0; run < results->n_runs; run++)
        snprintf(cells[(run + 1) * stride], CELL, "%s", results->names[run]);
    for (int k = 0; k < n_columns; k++)
        fill_column(results, columns[k], cells + k + 1, stride);
    print_grid(cells, rows, stride, style == TABLE_MARKDOWN, out);
    free(cells);
    return SOTTO_OK;
}

void table_summary(const struct results *results, int run, int seed, char *const *columns,
                   int n_columns, FILE *out)
{
    struct results one = {.names = &results->names[run], .n_runs = 1, .n_seeds = 1};
    one.reports = &results->reports[run * results->n_seeds + seed];
    const char *between = "";
    for (int k = 0; k < n_columns; k++) {
        struct spread s = results_spread(&one, 0, columns[k]);
        struct scale scale = choose_scale(columns[k], fabs(s.mean));
        char cell[CELL];
        if (s.n == 0)
            continue;
        print_cell(&s, scale, false, cell);
        fprintf(out, "%s%s %s%s%s", between, columns[k], cell, *scale.unit ? " " : "", scale.unit);
        between = ", ";
    }
}
