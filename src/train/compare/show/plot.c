#include "train/compare/show/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* "train/loss" -> "loss", "eval/loss" -> "eval-loss" */
static void file_name(const char *metric, char out[64])
{
    if (strncmp(metric, "train/", 6) == 0)
        metric += 6;
    snprintf(out, 64, "%.63s", metric);
    for (char *p = out; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *p))
            *p = '-';
}

/* Writes one block of lines per run, with two empty lines between blocks, for gnuplot's `index`. */
static enum sotto_status write_data(const struct plot *p, const char *name)
{
    char path[FILE_PATH_ROOM], file[80];
    struct file_draft draft;
    snprintf(file, sizeof file, "%s.tsv", name);
    TRY(file_join(path, p->folder, file));
    TRY(file_draft_open(&draft, path));
    fprintf(draft.stream, "# run\tstep\tseconds\tbytes\tsamples\tmean\tmin\tmax\n");
    for (int i = 0; i < p->n; i++) {
        if (i)
            fputs("\n\n", draft.stream);
        for (int k = 0; k < p->curves[i].n; k++) {
            const struct curve_point *x = &p->curves[i].points[k];
            fprintf(draft.stream, "%s\t%.15g\t%.9g\t%.15g\t%.15g\t%.9g\t%.9g\t%.9g\n", p->names[i],
                    x->step, x->seconds, x->bytes, x->samples, x->mean, x->min, x->max);
        }
        if (p->curves[i].n == 0) /* an empty block would shift the next indices */
            fprintf(draft.stream, "%s\tNaN\tNaN\tNaN\tNaN\tNaN\tNaN\tNaN\n", p->names[i]);
    }
    return file_commit(&draft);
}

static const char *const axis_names[AXES] = {"rounds", "samples", "time", "bytes"};
static const int axis_columns[AXES] = {2, 5, 3, 4}; /* of the data file */

/* The range of the curves on an axis, and of their values. */
struct plot_range {
    double begin, end;      /* least position above 0, and greatest; end 0: no curve on the axis */
    double shortest;        /* end of the shortest curve                                      */
    double lowest, highest; /* of the metric                                                  */
    int points;             /* of the longest curve                                              */
    bool band;              /* seeds differ somewhere                                         */
};

static void include_point(struct plot_range *r, const struct curve_point *p, double x)
{
    if (x > 0)
        r->begin = fmin(r->begin, x);
    r->lowest = fmin(r->lowest, p->min);
    r->highest = fmax(r->highest, p->max);
    r->band |= p->min < p->max;
}

static struct plot_range measure_range(const struct plot *p, enum axis axis)
{
    struct plot_range r = {
        .begin = INFINITY, .shortest = INFINITY, .lowest = INFINITY, .highest = -INFINITY};
    for (int i = 0; i < p->n; i++) {
        const struct curve *c = &p->curves[i];
        double end = curve_end(c, axis);
        if (end == 0)
            continue;
        r.end = fmax(r.end, end);
        r.shortest = fmin(r.shortest, end);
        r.points = c->n > r.points ? c->n : r.points;
        for (int k = 0; k < c->n; k++)
            include_point(&r, &c->points[k], curve_along(&c->points[k], axis));
    }
    return r;
}

static double axis_unit(enum axis axis, double end, const char **label)
{
    static const struct {
        enum axis axis;
        double at_least, unit;
        const char *label;
    } units[] = {
        {AXIS_ROUNDS, 0, 1, "rounds"},
        {AXIS_SAMPLES, 0, 1, "samples"},
        {AXIS_TIME, 3 * 3600, 3600, "training time in hours"},
        {AXIS_TIME, 600, 60, "training time in minutes"},
        {AXIS_TIME, 1, 1, "training time in seconds"},
        {AXIS_TIME, 0, 1e-3, "training time in milliseconds"},
        {AXIS_BYTES, 1e12, 1e12, "sent by a worker in TB"},
        {AXIS_BYTES, 1e9, 1e9, "sent by a worker in GB"},
        {AXIS_BYTES, 1e6, 1e6, "sent by a worker in MB"},
        {AXIS_BYTES, 0, 1e3, "sent by a worker in kB"},
    };
    int i = 0;
    while (units[i].axis != axis || end < units[i].at_least)
        i++;
    *label = units[i].label;
    return units[i].unit;
}

static void put_part(const char *text, size_t n, FILE *out)
{
    fputc('\'', out);
    for (; n > 0; text++, n--)
        fputs(*text == '\'' ? "''" : (char[]){*text, '\0'}, out);
    fputc('\'', out);
}

static void put_quoted(const char *text, FILE *out)
{
    put_part(text, strlen(text), out);
}

/* Characters of a title's line. gnuplot centres the title over the axes and cuts text beyond the
 * figure; 88 characters fit next to a key of long names. */
enum { TITLE_WIDTH = 88 };

/* Returns the bytes of the text's first line: up to the last semicolon, else space, else comma in
 * the line's last three quarters. */
static size_t line_length(const char *text)
{
    static const char ends[] = "; ,";
    size_t n = strlen(text);
    if (n <= TITLE_WIDTH)
        return n;
    for (const char *end = ends; *end; end++)
        for (n = TITLE_WIDTH; n > TITLE_WIDTH / 4; n--)
            if (text[n - 1] == *end)
                return n;
    for (n = TITLE_WIDTH; n > 1 && ((unsigned char)text[n] & 0xC0) == 0x80;)
        n--; /* not inside a UTF-8 character */
    return n;
}

static void put_lines(const char *text, FILE *out)
{
    for (const char *between = ""; *text; between = " . \"\\n\" . ") {
        size_t n = line_length(text);
        fputs(between, out);
        put_part(text, n > 1 && text[n - 1] == ' ' ? n - 1 : n, out);
        text += n;
        text += strspn(text, " ");
    }
}

/* Colours that colour-blind readers distinguish (Okabe and Ito), and dashes for prints in grey. */
static const char *const colors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                     "#000000", "#E69F00", "#56B4E9", "#7F7F7F"};
static const char *const dashes[] = {"1", "(16,4)", "(4,3)", "(16,4,4,4)", "(8,3,2,3,2,3)"};
enum { COLORS = 8, DASHES = 5 };

static void put_curves(const struct plot *p, const char *data, enum axis axis, double unit,
                       const struct plot_range *r, FILE *out)
{
    const char *with = r->points <= 30 ? "linespoints" : "lines", *comma = "plot ";
    char x[64];
    snprintf(x, sizeof x, unit == 1 ? "%d" : "($%d/%g)", axis_columns[axis], unit);
    for (int band = r->band; band >= 0; band--) { /* bands beneath the lines */
        for (int i = 0; i < p->n; i++) {
            if (curve_end(&p->curves[i], axis) == 0)
                continue;
            const char *color = colors[i % COLORS];
            fprintf(out, "%s'%s.tsv' index %d using ", comma, data, i);
            if (band)
                fprintf(out,
                        "%s:7:8 with filledcurves fillcolor rgb '%s' fillstyle transparent solid "
                        "0.15 noborder notitle",
                        x, color);
            else
                fprintf(out,
                        "%s:6 with %s linecolor rgb '%s' linewidth 2 dashtype %s pointtype %d "
                        "pointsize 0.9 title '%s'",
                        x, p->curves[i].n == 1 ? "linespoints" : with, color, dashes[i % DASHES],
                        i % 7 + 4, p->names[i]);
            comma = ", \\\n     ";
        }
    }
    fputc('\n', out);
}

/* Writes a logarithmic axis with the data's range, with labels at 1, 2 and 5 times powers of ten if
 * the range has few powers. */
static void put_logarithmic(char axis, double begin, double end, FILE *out)
{
    static const int steps[] = {1, 2, 5};
    const double power = pow(10, floor(log10(begin)));
    const char *comma = "";
    fprintf(out, "set logscale %c\nset %crange [%.6g:%.6g]\n", axis, axis, begin, end);
    if (end / begin > 1000)
        return;
    fprintf(out, "set %ctics (", axis);
    for (double at = power; at <= end; at *= 10)
        for (int i = 0; i < 3; i++)
            if (steps[i] * at >= begin && steps[i] * at <= end) {
                fprintf(out, "%s'%g' %g", comma, steps[i] * at, steps[i] * at);
                comma = ", ";
            }
    fputs(")\n", out);
}

/* Writes the axes' scales: logarithmic if the runs' ends, or the values, differ by more than FAR
 * times, where some curves would be a stroke at the edge. */
static void put_scales(enum axis axis, double unit, const struct plot_range *r, FILE *out)
{
    enum { FAR = 20 };
    if (axis != AXIS_ROUNDS && r->end > FAR * r->shortest)
        put_logarithmic('x', r->begin / unit, r->end / unit, out);
    else
        fprintf(out, "set xrange [0:%.6g]\n", r->end / unit);
    if (r->lowest > 0 && r->highest > FAR * r->lowest)
        put_logarithmic('y', r->lowest / 1.05, r->highest * 1.05, out);
}

static void put_title(const struct plot *p, FILE *out)
{
    fputs("set title ", out);
    put_lines(*p->title ? p->title : p->metric, out);
    if (p->subtitle && *p->subtitle) {
        fputs(" . \"\\n\" . ", out);
        put_lines(p->subtitle, out);
    }
}

static void put_script(const struct plot *p, const char *data, enum axis axis,
                       const struct plot_range *r, FILE *out)
{
    const char *label, *name = axis_names[axis];
    const double unit = axis_unit(axis, r->end, &label);
    fprintf(out, "# gnuplot %s-%s.gnuplot, in this folder, draws the figure again\n", data, name);
    fprintf(out, "set encoding utf8\nset datafile separator \"\\t\"\n");
    put_title(p, out);
    fprintf(out, "\nset xlabel '%s'\nset ylabel ", label);
    put_quoted(p->metric, out);
    fprintf(out, "\nset grid linetype 1 linecolor rgb '#E0E0E0' linewidth 1\n"
                 "set border linecolor rgb '#444444'\nset tics nomirror\n"
                 "set key outside right top Left reverse spacing 1.3 samplen 5\n"
                 "set offsets graph 0, graph 0, graph 0.03, graph 0.03\n");
    put_scales(axis, unit, r, out);
    fprintf(out,
            "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) set terminal pngcairo noenhanced size "
            "1100,620 font 'sans,12'; else set terminal png noenhanced size 1100,620\n");
    fprintf(out, "set output '%s-%s.png'\n", data, name);
    put_curves(p, data, axis, unit, r, out);
    fprintf(out,
            "set terminal svg noenhanced size 1100,620 font 'sans,14' background 'white'\n"
            "set output '%s-%s.svg'\nreplot\n",
            data, name);
}

/* Runs gnuplot in the folder. After a failure gnuplot.log has the output. */
static enum sotto_status run_gnuplot(const char *folder, const char *script)
{
    int code;
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, folder, "gnuplot.log"));
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno(SOTTO_EIO, "cannot start gnuplot");
    if (pid == 0) {
        int log = -1;
        if (chdir(folder) == 0)
            log = open("gnuplot.log", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
            _exit(126);
        execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &code, 0) != pid)
        if (errno != EINTR)
            return fail_errno(SOTTO_EIO, "cannot wait for gnuplot");
    if (WIFEXITED(code) && WEXITSTATUS(code) != 0 && WEXITSTATUS(code) != 127)
        return fail(SOTTO_EIO, "gnuplot failed: see %s", path);
    TRY(file_remove_tree(path));
    if (!WIFEXITED(code))
        return fail(SOTTO_EIO, "gnuplot was killed");
    return WEXITSTATUS(code) == 0 ? SOTTO_OK : fail(SOTTO_EIO, "gnuplot is not installed");
}

static enum sotto_status draw_axis(const struct plot *p, const char *data, enum axis axis,
                                   const struct plot_range *r, FILE *page)
{
    char path[FILE_PATH_ROOM], script[96];
    struct file_draft draft;
    snprintf(script, sizeof script, "%s-%s.gnuplot", data, axis_names[axis]);
    TRY(file_join(path, p->folder, script));
    TRY(file_draft_open(&draft, path));
    put_script(p, data, axis, r, draft.stream);
    TRY(file_commit(&draft));
    if (!p->draw)
        return SOTTO_OK;
    TRY(run_gnuplot(p->folder, script));
    fprintf(page, "\n![%s over %s](%s-%s.png)\n", p->metric, axis_names[axis], data,
            axis_names[axis]);
    return SOTTO_OK;
}

enum sotto_status plot_metric(const struct plot *p, FILE *page)
{
    struct status_note first = {.code = SOTTO_OK};
    char data[64];
    file_name(p->metric, data);
    TRY(write_data(p, data));
    for (enum axis axis = 0; axis < AXES; axis++) {
        struct plot_range r = measure_range(p, axis);
        if (r.end == 0)
            continue;
        enum sotto_status st = draw_axis(p, data, axis, &r, page);
        if (st != SOTTO_OK && first.code == SOTTO_OK)
            status_save(&first, st);
    }
    return status_raise(&first);
}
