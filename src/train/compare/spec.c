/* Reader of a comparison's file, in two passes: the first finds the runs' names and the base file,
 * so that expectations may precede the runs that they name, and [base] the key `base`. */
#include "train/compare/spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const cut_names[] = {"auto", "rounds", "samples", "time", "none", NULL};

#define S struct compare_config
static const struct option options[] = {
    OPTION_TEXT(S, title, "", "title of the table and the figures; empty: the file's name"),
    OPTION_TEXT(S, out, "", "folder of runs and results; empty: the file's name without .ini"),
    OPTION_TEXT(S, seeds, "",
                "seeds, such as 1,2,3, with each of which every run is made; empty: train.seed"),
    OPTION_TEXT(
        S, columns,
        "loss, common_loss, eval_loss, samples, seconds, time_to_loss, exposed_share, bytes, "
        "memory",
        "columns of the table: keys of the runs' report.json, common_loss and time_to_loss"),
    OPTION_TEXT(S, curves, "",
                "metrics to draw: keys of metrics.jsonl; empty: train/loss and eval/loss"),
    OPTION_REAL(S, target, "0", 0, 1e9,
                "loss for time_to_loss; 0: the lowest loss that all runs reach"),
    OPTION_ENUM(S, cut, "auto", cut_names,
                "unit in which all runs are cut at the end of the shortest run, for curves and "
                "common_loss; auto: the unit of the runs' budget"),
    OPTION_BOOL(S, plot, "true", "draw the curves with gnuplot"),
};
#undef S

struct option_section compare_section(struct compare_config *c)
{
    return (struct option_section)OPTION_SECTION("compare", "", options, c);
}

struct spec_reader {
    struct spec *spec;
    const char *path;
    int run;                 /* run of the current section; -1: another section */
    struct run_config check; /* the base with the settings of `run` so far      */
};

static enum sotto_status set_base(struct run_config *config, const char *key, const char *value)
{
    struct option_section sections[RUN_SECTIONS];
    run_sections(config, sections);
    return option_set(sections, RUN_SECTIONS, key, value);
}

static enum sotto_status set_compare(struct compare_config *config, const char *key,
                                     const char *value)
{
    const struct option_section section = compare_section(config);
    char full[OPTION_ROOM + 16];
    snprintf(full, sizeof full, "compare.%s", key);
    return option_set(&section, 1, full, value);
}

/* Returns NAME of the section "run NAME"; NULL for other sections. */
static const char *run_name(const char *section)
{
    if (strncmp(section, "run", 3) != 0 ||
        !(section[3] == ' ' || section[3] == '\t' || !section[3]))
        return NULL;
    return section + 3 + strspn(section + 3, " \t");
}

static int find_run(const struct spec *spec, const char *name)
{
    for (int i = 0; i < spec->n_runs; i++)
        if (strcmp(spec->runs[i].name, name) == 0)
            return i;
    return -1;
}

static enum sotto_status check_run_name(const char *name)
{
    if (!*name)
        return fail(SOTTO_EFORMAT, "a run needs a name: [run NAME]");
    if (strlen(name) >= sizeof((struct spec_run *)0)->name)
        return fail(SOTTO_EFORMAT, "[run %.20s...]: a name has at most %zu characters", name,
                    sizeof((struct spec_run *)0)->name - 1);
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
            return fail(SOTTO_EFORMAT,
                        "[run %s]: a name consists of letters, digits, '_' and '-', since "
                        "folders and expectations use it",
                        name);
    if (!isalpha((unsigned char)*name))
        return fail(SOTTO_EFORMAT, "[run %s]: a name begins with a letter", name);
    return SOTTO_OK;
}

static enum sotto_status add_run(struct spec *spec, const char *name)
{
    TRY(check_run_name(name));
    if (find_run(spec, name) >= 0)
        return fail(SOTTO_EINVAL, "there are two runs named '%s'", name);
    size_t n = (size_t)spec->n_runs + 1;
    struct spec_run *more = realloc(spec->runs, n * sizeof *more);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory for %zu runs", n);
    spec->runs = more;
    spec->runs[spec->n_runs] = (struct spec_run){0};
    strcpy(spec->runs[spec->n_runs++].name, name);
    return SOTTO_OK;
}

static bool known_section(const char *section)
{
    return run_name(section) || strcmp(section, "compare") == 0 || strcmp(section, "base") == 0;
}

static enum sotto_status unknown_section(const char *section)
{
    static const char *const names[] = {"compare", "base", "run NAME", NULL};
    const char *near = option_closest(section, names);
    if (near)
        return fail(SOTTO_EINVAL, "unknown section [%s]: did you mean [%s]?", section, near);
    return fail(SOTTO_EINVAL, "unknown section [%s]: want [compare], [base] or [run NAME]",
                section);
}

static enum sotto_status load_base(struct spec_reader *r, const char *name)
{
    char path[FILE_PATH_ROOM];
    const char *slash = strrchr(r->path, '/');
    struct option_section sections[RUN_SECTIONS];
    run_sections(&r->spec->base, sections);
    if (*name == '/' || !slash)
        return option_load(sections, RUN_SECTIONS, name);
    if (snprintf(path, sizeof path, "%.*s/%s", (int)(slash - r->path), r->path, name) >=
        (int)sizeof path)
        return fail(SOTTO_EINVAL, "base = %s: too long a path", name);
    return option_load(sections, RUN_SECTIONS, path);
}

/* First pass: adds the runs, without settings, and loads the file of `base`. */
static enum sotto_status first_pass(void *arg, const char *section, const char *key,
                                    const char *value)
{
    struct spec_reader *r = arg;
    if (!key && !known_section(section))
        return unknown_section(section);
    if (!key && run_name(section))
        return add_run(r->spec, run_name(section));
    if (key && strcmp(section, "compare") == 0 && strcmp(key, "base") == 0)
        return load_base(r, value);
    return SOTTO_OK;
}

static enum sotto_status add_setting(struct spec_reader *r, const char *key, const char *value)
{
    struct spec_run *run = &r->spec->runs[r->run];
    TRY(set_base(&r->check, key, value));
    size_t n = (size_t)run->n_settings + 1;
    struct spec_setting *more = realloc(run->settings, n * sizeof *more);
    if (more)
        run->settings = more;
    struct spec_setting s = {strdup(key), strdup(value)};
    if (!more || !s.key || !s.value) {
        free(s.key);
        free(s.value);
        return fail(SOTTO_ENOMEM, "no memory for the settings of run %s", run->name);
    }
    run->settings[run->n_settings++] = s;
    return SOTTO_OK;
}

static enum sotto_status add_expect(struct spec *spec, const char *text)
{
    size_t n = (size_t)spec->n_expects + 1;
    struct expect *more = realloc(spec->expects, n * sizeof *more);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory for %zu expectations", n);
    spec->expects = more;
    TRY(expect_parse(&spec->expects[spec->n_expects], text, spec->names));
    spec->n_expects++;
    return SOTTO_OK;
}

/* Second pass: [compare], [base], the runs' settings and the expectations. */
static enum sotto_status second_pass(void *arg, const char *section, const char *key,
                                     const char *value)
{
    struct spec_reader *r = arg;
    if (!key) {
        const char *name = run_name(section);
        r->run = name ? find_run(r->spec, name) : -1;
        r->check = r->spec->base;
        return SOTTO_OK;
    }
    if (!*section)
        return fail(
            SOTTO_EFORMAT,
            "'%s' precedes the first section: want [compare], [base] or [run NAME] above it", key);
    if (r->run >= 0)
        return add_setting(r, key, value);
    if (strcmp(section, "base") == 0)
        return set_base(&r->spec->base, key, value);
    if (strcmp(key, "expect") == 0)
        return add_expect(r->spec, value);
    return strcmp(key, "base") == 0 ? SOTTO_OK : set_compare(&r->spec->compare, key, value);
}

static enum sotto_status list_names(struct spec *spec)
{
    spec->names = calloc((size_t)spec->n_runs + 1, sizeof *spec->names);
    if (!spec->names)
        return fail(SOTTO_ENOMEM, "no memory for %d names", spec->n_runs);
    for (int i = 0; i < spec->n_runs; i++)
        spec->names[i] = spec->runs[i].name;
    return SOTTO_OK;
}

/* Sets title and out, if empty, from the file's name: "experiments/acco.ini" -> "acco", a folder in
 * the current one. */
static void default_names(struct compare_config *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    bool ini = length > 4 && strcmp(name + length - 4, ".ini") == 0;
    int used = (int)(ini ? length - 4 : length);
    if (!*c->title)
        snprintf(c->title, sizeof c->title, "%.*s", used, name);
    if (!*c->out) /* without .ini the name alone would be the file itself */
        snprintf(c->out, sizeof c->out, "%.*s%s", used, name, ini ? "" : ".results");
}

enum sotto_status spec_load(struct spec *spec, const char *path)
{
    *spec = (struct spec){0};
    struct option_section sections[RUN_SECTIONS];
    const struct option_section compare = compare_section(&spec->compare);
    struct spec_reader r = {.spec = spec, .path = path, .run = -1};
    char *text;
    enum sotto_status st;
    run_sections(&spec->base, sections);
    option_defaults(sections, RUN_SECTIONS);
    option_defaults(&compare, 1);
    TRY(option_file(path, &text));
    TRY_DONE(option_read_text(text, path, "expect", first_pass, &r));
    TRY_DONE(list_names(spec));
    TRY_DONE(option_read_text(text, path, "expect", second_pass, &r));
    if (spec->n_runs == 0)
        st = fail(SOTTO_EINVAL, "%s has no [run NAME] section: nothing to compare", path);
    default_names(&spec->compare, path);
done:
    free(text);
    if (st != SOTTO_OK)
        spec_free(spec);
    return st;
}

void spec_free(struct spec *spec)
{
    for (int i = 0; i < spec->n_runs; i++) {
        for (int k = 0; k < spec->runs[i].n_settings; k++) {
            free(spec->runs[i].settings[k].key);
            free(spec->runs[i].settings[k].value);
        }
        free(spec->runs[i].settings);
    }
    for (int i = 0; i < spec->n_expects; i++)
        expect_free(&spec->expects[i]);
    free(spec->runs);
    free(spec->names);
    free(spec->expects);
    *spec = (struct spec){0};
}

enum sotto_status spec_config(const struct spec *spec, int run, struct run_config *out)
{
    *out = spec->base;
    for (int i = 0; i < spec->runs[run].n_settings; i++) {
        const struct spec_setting *s = &spec->runs[run].settings[i];
        TRY(fail_in(set_base(out, s->key, s->value), "run %s: ", spec->runs[run].name));
    }
    return SOTTO_OK;
}

enum sotto_status spec_words(char *text, const char *what, char **words, int room, int *n)
{
    char *rest = NULL;
    *n = 0;
    for (char *word = strtok_r(text, ", \t", &rest); word; word = strtok_r(NULL, ", \t", &rest)) {
        if (*n == room)
            return fail(SOTTO_EINVAL, "%s: more than %d", what, room);
        words[(*n)++] = word;
    }
    return SOTTO_OK;
}
