#include "train/compare/show/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/compare/show/plot.h"
#include "train/compare/show/table.h"

struct left_out_search {
    const struct jobs *jobs;
    const struct results *results;
    const char *left_out; /* a run without report since --only leaves it out; NULL: none */
};

static void find_left_out(void *arg, int run, const char *metric)
{
    struct left_out_search *search = arg;
    (void)metric;
    for (int i = 0; i < search->jobs->n; i++) {
        const struct job *job = &search->jobs->list[i];
        if (job->run == run && !job->wanted &&
            !search->results->reports[run * search->results->n_seeds + job->seed])
            search->left_out = search->results->names[run];
    }
}

/* Prints "ok      acco.loss <= ddp.loss  (3.41 <= 3.48)". False if the expectation failed. */
static bool print_expect(const struct page *page, const struct expect *e, int width, FILE *out)
{
    struct left_out_search search = {page->jobs, page->results, NULL};
    struct expect_verdict v;
    expect_visit(e, find_left_out, &search);
    if (search.left_out) {
        fprintf(out, "%-7s %-*s  (%s has not been run)\n", "-", width, e->text, search.left_out);
        return true;
    }
    if (expect_judge(e, page->results, &v) != SOTTO_OK) {
        fprintf(out, "%-7s %-*s  (%s)\n", "FAILED", width, e->text, sotto_error());
        return false;
    }
    fprintf(out, "%-7s %-*s  (%.6g %s %.6g", v.held ? "ok" : "FAILED", width, e->text, v.left,
            expect_sign(e), v.right);
    if (e->tolerance >= 0)
        fprintf(out, " +- %.6g", v.tolerance);
    fputs(")\n", out);
    return v.held;
}

static int print_expects(const struct page *page, FILE *out)
{
    const struct spec *spec = page->jobs->spec;
    int width = 0, failed = 0;
    for (int i = 0; i < spec->n_expects; i++)
        if ((int)strlen(spec->expects[i].text) > width)
            width = (int)strlen(spec->expects[i].text);
    for (int i = 0; i < spec->n_expects; i++)
        failed += !print_expect(page, &spec->expects[i], width, out);
    return failed;
}

static enum sotto_status read_curves(const struct page *page, const char *metric,
                                     struct curve *curves)
{
    const struct jobs *jobs = page->jobs;
    for (int run = 0; run < jobs->spec->n_runs; run++) {
        char folders[RESULTS_SEEDS][FILE_PATH_ROOM];
        int n = 0;
        for (int i = 0; i < jobs->n; i++) {
            const struct job *job = &jobs->list[i];
            if (job->run == run && page->results->reports[i])
                strcpy(folders[n++], job->folder);
        }
        TRY(curve_read(&curves[run], folders, n, metric));
    }
    return SOTTO_OK;
}

/* Draws one metric; `*drawn` is true if a run has a curve of the metric. */
static enum sotto_status draw_metric(const struct page *page, const char *metric, bool *drawn,
                                     FILE *md)
{
    const struct spec *spec = page->jobs->spec;
    struct curve *curves = calloc((size_t)spec->n_runs, sizeof *curves);
    if (!curves)
        return fail(SOTTO_ENOMEM, "no memory for %d curves", spec->n_runs);
    enum sotto_status st = read_curves(page, metric, curves);
    for (int i = 0; page->common.end > 0 && i < spec->n_runs; i++)
        curve_cut(&curves[i], page->common.axis, page->common.end);
    *drawn = false;
    for (int i = 0; i < spec->n_runs; i++)
        *drawn |= curves[i].n > 1; /* a single value at the end is in the table */
    struct plot plot = {.folder = spec->compare.out,
                        .title = spec->compare.title,
                        .subtitle = page->setup,
                        .metric = metric,
                        .names = spec->names,
                        .curves = curves,
                        .n = spec->n_runs,
                        .draw = spec->compare.plot};
    if (st == SOTTO_OK && *drawn)
        st = plot_metric(&plot, md);
    for (int i = 0; i < spec->n_runs; i++)
        curve_free(&curves[i]);
    free(curves);
    return st;
}

/* Draws all curves. A failed figure is a warning, so that the table is kept. */
static void draw_all(const struct page *page, FILE *md)
{
    const char *asked = page->jobs->spec->compare.curves;
    char list[COMPARE_LIST_ROOM], *words[PAGE_COLUMNS];
    struct status_note first = {.code = SOTTO_OK};
    int n;
    strcpy(list, *asked ? asked : "train/loss, eval/loss");
    enum sotto_status st = spec_words(list, "curves", words, PAGE_COLUMNS, &n);
    for (int i = 0; st == SOTTO_OK && i < n; i++) {
        bool drawn = false;
        enum sotto_status one = draw_metric(page, words[i], &drawn, md);
        if (one != SOTTO_OK && first.code == SOTTO_OK)
            status_save(&first, one); /* most have the same cause: one warning */
        if (one == SOTTO_OK && !drawn && *asked)
            log_warn("no curve of %s: no run has logged it more than once", words[i]);
    }
    if (st != SOTTO_OK || status_raise(&first) != SOTTO_OK)
        log_warn("figures are missing: %s", sotto_error());
}

static enum sotto_status write_csv(const struct page *page)
{
    char path[FILE_PATH_ROOM];
    struct file_draft draft;
    TRY(file_join(path, page->jobs->spec->compare.out, "table.csv"));
    TRY(file_draft_open(&draft, path));
    table_print(page->results, page->columns, page->n_columns, TABLE_CSV, draft.stream);
    return file_commit(&draft);
}

static enum sotto_status write_markdown(const struct page *page)
{
    const struct spec *spec = page->jobs->spec;
    char path[FILE_PATH_ROOM];
    struct file_draft draft;
    TRY(file_join(path, spec->compare.out, "table.md"));
    TRY(file_draft_open(&draft, path));
    FILE *md = draft.stream;
    fprintf(md, "# %s\n\n", spec->compare.title);
    if (*page->setup)
        fprintf(md, "%s\n\n", page->setup);
    enum sotto_status st =
        table_print(page->results, page->columns, page->n_columns, TABLE_MARKDOWN, md);
    common_print(&page->common, page->results, page->columns, page->n_columns, md);
    if (spec->n_expects) {
        fputs("\n```\n", md);
        print_expects(page, md);
        fputs("```\n", md);
    }
    if (st != SOTTO_OK) {
        file_abort(&draft);
        return st;
    }
    draw_all(page, md);
    return file_commit(&draft);
}

struct unknown_metric {
    const char *where;
    struct status_note note; /* of the first unknown metric */
};

static void find_unknown(void *arg, int run, const char *metric)
{
    struct unknown_metric *u = arg;
    (void)run;
    if (u->note.code == SOTTO_OK)
        status_save(&u->note, metric_check(metric, u->where));
}

static enum sotto_status check_curves(const struct spec *spec)
{
    char list[COMPARE_LIST_ROOM], *words[PAGE_COLUMNS];
    int n = 0;
    strcpy(list, spec->compare.curves);
    if (*list)
        TRY(spec_words(list, "curves", words, PAGE_COLUMNS, &n));
    for (int i = 0; i < n; i++)
        TRY(curve_check(words[i], "curves"));
    return SOTTO_OK;
}

/* Called before the first run: a misspelled metric is reported before hours of training. */
enum sotto_status page_columns(const struct spec *spec, char list[COMPARE_LIST_ROOM],
                               char *columns[PAGE_COLUMNS], int *n)
{
    strcpy(list, spec->compare.columns);
    TRY(spec_words(list, "columns", columns, PAGE_COLUMNS, n));
    for (int k = 0; k < *n; k++)
        TRY(metric_check(columns[k], "columns"));
    TRY(check_curves(spec));
    for (int i = 0; i < spec->n_expects; i++) {
        struct unknown_metric u = {.where = spec->expects[i].text};
        expect_visit(&spec->expects[i], find_unknown, &u);
        TRY(status_raise(&u.note));
    }
    return SOTTO_OK;
}

enum sotto_status page_write(struct page *page, FILE *out)
{
    TRY(common_find(&page->common, page->jobs, page->results));
    TRY(setup_describe(page->jobs, page->results, page->setup));
    fprintf(out, "\n%s\n%s%s\n", page->jobs->spec->compare.title, page->setup,
            *page->setup ? "\n" : "");
    TRY(table_print(page->results, page->columns, page->n_columns, TABLE_PLAIN, out));
    common_print(&page->common, page->results, page->columns, page->n_columns, out);
    if (page->jobs->spec->n_expects)
        fputc('\n', out);
    page->unmet = print_expects(page, out);
    TRY(write_csv(page));
    TRY(write_markdown(page));
    fprintf(out, "\nwritten to %s: table.md, table.csv and the curves\n",
            page->jobs->spec->compare.out);
    return SOTTO_OK;
}
