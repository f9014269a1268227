/* Comparisons: what a file may say, what is expected of results, how they are shown, and whole
 * comparisons of tiny runs. */
#include "train/fixture.h"

#include <glob.h>

#include "train/compare/compare.h"
#include "train/compare/left.h"
#include "train/compare/setup.h"
#include "train/compare/show/common.h"
#include "train/compare/show/plot.h"
#include "train/compare/show/table.h"
#include "train/config/budget.h"
#include "train/plan/calibrate.h"

static const char *const names[] = {"ddp", "acco-wp", "none", NULL};

static void put(struct results *r, int run, int seed, const char *text)
{
    assert_ok(file_write(at("report.json"), text, strlen(text)));
    assert_ok(results_read(r, run, seed, at("report.json")));
}

/* Two runs of two seeds, and one that did not finish. */
static void fill_results(struct results *r)
{
    assert_ok(results_init(r, names, 3, 2));
    put(r, 0, 0, "{\"loss\": 3, \"bytes\": 2500000, \"seconds\": 10, \"exposed_share\": 0.5}");
    put(r, 0, 1, "{\"loss\": 5, \"bytes\": 2500000, \"seconds\": 12.5, \"exposed_share\": null}");
    put(r, 1, 0, "{\"loss\": 2.5, \"bytes\": 1000, \"seconds\": 8, \"overlap\": 1e-17}");
    put(r, 1, 1, "{\"loss\": 2.5, \"bytes\": 3000, \"seconds\": 8, \"odd\": \"text\"}");
}

static void expectations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double left, right;
        bool held;
    } table[] = {
        {"1 + 2 * 3 == 7", 7, 7, true},
        {"(1 + 2) * 3 == 7", 9, 7, false},
        {"8 - 3 - 2 == 3", 3, 3, true},
        {"16 / 4 / 2 == 2", 2, 2, true},
        {"2 - -3*-2 == -4", -4, -4, true},
        {"2 * (3 + 4) - 1 > 12.9", 13, 12.9, true},
        {"-(1 + 2) < 0", -3, 0, true},
        {"1e-3 <= .001", 1e-3, 1e-3, true},
        {"2 < 2", 2, 2, false},
        {"2 <= 2", 2, 2, true},
        {"2 > 2", 2, 2, false},
        {"2 >= 2", 2, 2, true},
        {"1 == 1.5 +- 0.5", 1, 1.5, true},
        {"1 == 1.5 +- 0.49", 1, 1.5, false},
        {"1 == 1.5 +- 2*0.3 - 0.1", 1, 1.5, true},
        {"min(3, 1 + 1, 4) == 2", 2, 2, true},
        {"max(3, 1 + 1, 4) * 2 == 8", 8, 8, true},
        {"abs(2 - 5) == abs(3)", 3, 3, true},
        {"ddp.loss == 4", 4, 4, true}, /* the mean over seeds */
        {"ddp.loss-1 == 3", 3, 3, true},
        {"ddp.loss-acco-wp.loss == 1.5", 1.5, 1.5, true},
        {"acco-wp.loss <= ddp.loss*1.02", 2.5, 4.08, true},
        {"ddp.loss<acco-wp.loss", 4, 2.5, false},
        {"min(ddp.loss) == 3", 3, 3, true},
        {"max(ddp.loss) == 5", 5, 5, true},
        {"max(ddp.loss, acco-wp.loss) == 4", 4, 4, true},
        {"std(acco-wp.loss) == 0", 0, 0, true},
        {"std(ddp.loss)*std(ddp.loss) == 2 +- 1e-12", 2, 2, true},
    };
    struct results r;
    fill_results(&r);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct expect e;
        struct expect_verdict v;
        assert_ok(expect_parse(&e, table[i].text, names));
        assert_ok(expect_judge(&e, &r, &v));
        if (fabs(v.left - table[i].left) > 1e-12 || fabs(v.right - table[i].right) > 1e-12 ||
            v.held != table[i].held)
            fail_with("%s: got %g and %g: %s", table[i].text, v.left, v.right,
                      v.held ? "held" : "failed");
        expect_free(&e);
    }
    results_free(&r);
}

static void unreadable_expectations(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } table[] = {
        {"", "want a value at character 1 (its end)"},
        {"ddp.loss", "want one of <= < >= > == at character 9 (its end)"},
        {"ddp.loss <", "want a value at character 11 (its end)"},
        {"ddp.loss = 3", "want one of <= < >= > == at character 10 ('= 3')"},
        {"ddp.loss < 3 < 4", "want nothing more at character 14 ('< 4')"},
        {"ddp.loss < 3 +- 1", "want nothing more at character 14 ('+- 1')"},
        {"ddp.loss < 3 4", "want nothing more at character 14 ('4')"},
        {"dpd.loss < 3", "there is no run 'dpd' (did you mean 'ddp'?): at character 1"},
        {"3 > elsewhere.loss", "there is no run 'elsewhere': at character 5"},
        {"ddp. < 3", "want a metric, as in RUN.loss, at character 5"},
        {"ddp < 3", "want RUN.METRIC, or std, min, max or abs of one, at character 1"},
        {"(1 + 2 < 3", "want ')' at character 8"},
        {"sqrt(4) == 2", "want RUN.METRIC, or std"},
        {"std(3) < 1", "std wants one RUN.METRIC, at character 1"},
        {"1 > std(ddp.loss, 2)", "std wants one RUN.METRIC, at character 5"},
        {"min(1 + 2) < 1", "min and max want one RUN.METRIC or several values"},
        {"abs 3 < 1", "want '(' at character 5"},
        {"abs(1, 2) < 1", "want ')' at character 6"},
        {"3x < 4", "a number followed by letters at character 1"},
        {"1e999 < 4", "want a number at character 1"},
        {"1 $ 2", "want one of <= < >= > == at character 3"},
    };
    struct expect e;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_fails(expect_parse(&e, table[i].text, names), SOTTO_EFORMAT, table[i].message);
    char deep[4000];
    memset(deep, '(', 500);
    strcpy(deep + 500, "1 < 2");
    assert_fails(expect_parse(&e, deep, names), SOTTO_EFORMAT, "brackets too deep");
    for (int i = 0; i < 1500; i++)
        memcpy(deep + 2 * i, "1+", 2);
    strcpy(deep + 3000, "1 < 2");
    assert_fails(expect_parse(&e, deep, names), SOTTO_EFORMAT, "too long an expression");
}

static void unanswerable_expectations(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } table[] = {
        {"ddp.los < 3", "ddp.los is missing"},
        {"none.loss < 3", "none.loss is missing"},
        {"3 > none.loss", "none.loss is missing"},
        {"ddp.loss == 4 +- none.loss", "none.loss is missing"},
        {"ddp.exposed_share < 3", "ddp.exposed_share is missing for 1 of 2 seeds"},
        {"acco-wp.odd < 3", "acco-wp.odd is missing"},
        {"ddp.loss / (acco-wp.loss - 2.5) > 1", "division of 4 by 0"},
    };
    struct results r;
    struct expect_verdict v;
    fill_results(&r);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct expect e;
        assert_ok(expect_parse(&e, table[i].text, names));
        assert_fails(expect_judge(&e, &r, &v), SOTTO_EINVAL, table[i].message);
        assert_false(v.held);
        expect_free(&e);
    }
    results_free(&r);
    struct expect e;
    assert_ok(results_init(&r, names, 3, 1));
    put(&r, 0, 0, "{\"loss\": 3}");
    assert_ok(expect_parse(&e, "std(ddp.loss) < 1", names));
    assert_fails(expect_judge(&e, &r, &v), SOTTO_EINVAL, "std(ddp.loss) needs two seeds or more");
    expect_free(&e);
    results_free(&r);
    assert_ok(file_write(at("list.json"), "[1]", 3));
    assert_ok(results_init(&r, names, 3, 1));
    assert_fails(results_read(&r, 0, 0, at("list.json")), SOTTO_EFORMAT, "list.json");
    results_free(&r);
}

/* The table as text. */
static char *print_table(const struct results *r, char *const *columns, int n,
                         enum table_style style)
{
    FILE *out = fopen(at("table"), "w");
    assert_non_null(out);
    assert_ok(table_print(r, columns, n, style, out));
    fclose(out);
    return slurp(at("table"));
}

static void assert_table(const struct results *r, char *const *columns, int n,
                         enum table_style style, const char *want)
{
    char *text = print_table(r, columns, n, style);
    assert_string_equal(text, want);
    free(text);
}

static void tables(void **state)
{
    (void)state;
    char *columns[] = {"loss", "seconds", "exposed_share", "bytes", "los"};
    struct results r;
    fill_results(&r);
    assert_table(&r, columns, 5, TABLE_PLAIN,
                 "run              loss    seconds (s)  exposed_share (%)       bytes (MB)  los\n"
                 "ddp      4.00 +- 1.41  11.25 +- 1.77                 50            2.500    -\n"
                 "acco-wp        2.5000              8                  -  0.002 +- 0.0014    -\n"
                 "none                -              -                  -                -    -\n");
    assert_table(&r, (char *[]){"overlap"}, 1, TABLE_PLAIN, /* clocks that were rounded */
                 "run      overlap (%)\n"
                 "ddp                -\n"
                 "acco-wp            0\n"
                 "none               -\n");
    assert_table(&r, columns, 2, TABLE_MARKDOWN,
                 "| run     |         loss |   seconds (s) |\n"
                 "|---|---:|---:|\n"
                 "| ddp     | 4.00 +- 1.41 | 11.25 +- 1.77 |\n"
                 "| acco-wp |       2.5000 |             8 |\n"
                 "| none    |            - |             - |\n");
    assert_table(&r, columns + 2, 2, TABLE_CSV,
                 "run,seeds,exposed_share,exposed_share_std,bytes,bytes_std\n"
                 "ddp,2,0.5,0,2500000,0\n"
                 "acco-wp,2,,,2000,1414.2135623731\n"
                 "none,0,,,,\n");
    FILE *out = fopen(at("summary"), "w");
    assert_non_null(out);
    table_summary(&r, 0, 1, columns, 5, out);
    fclose(out);
    char *text = slurp(at("summary"));
    assert_string_equal(text, "loss 5, seconds 12.50 s, bytes 2.500 MB");
    free(text);
    results_free(&r);

    assert_ok(results_init(&r, names, 3, 1));
    put(&r, 0, 0,
        "{\"loss\": 3.14159265, \"seconds\": 0.0123, \"bytes\": 5e9, \"steps\": 3000000}");
    put(&r, 1, 0, "{\"loss\": 0.00001, \"seconds\": 0.5, \"bytes\": 0, \"steps\": 12}");
    char *more[] = {"loss", "seconds", "bytes", "steps"};
    assert_table(&r, more, 4, TABLE_PLAIN,
                 "run        loss  seconds (ms)  bytes (GB)    steps\n"
                 "ddp      3.1416         12.30           5  3000000\n"
                 "acco-wp   1e-05           500           0       12\n"
                 "none          -             -           -        -\n");
    assert_table(&r, more, 1, TABLE_CSV, "run,loss\nddp,3.14159265\nacco-wp,1e-05\nnone,\n");
    results_free(&r);

    assert_ok(results_init(&r, names, 1, 3)); /* a number whose sum over 3 is not itself again */
    for (int seed = 0; seed < 3; seed++)
        put(&r, 0, seed, "{\"seconds\": 3.025157952}");
    assert_table(&r, more + 1, 1, TABLE_PLAIN, "run  seconds (s)\nddp        3.025\n");
    results_free(&r);
}

static void write_text(const char *name, const char *text)
{
    assert_ok(file_write(at(name), text, strlen(text)));
}

static void specs(void **state)
{
    (void)state;
    struct spec spec;
    write_text("small.ini", "[train]\nsteps = 7\nbatch = 3\n[optim]\nlr = 0.5\n");
    write_text("full.ini", "[base]             ; before what it overrides\n"
                           "train.steps = 9\n"
                           "[compare]\n"
                           "expect = b-2.loss <= a.loss*1.02 ; and before the runs\n"
                           "expect = a.loss > 0\n"
                           "base = small.ini   ; relative to this file\n"
                           "title = A # B\n"
                           "seeds = 1, 2\n"
                           "[run a]\n"
                           "[run b-2]\n"
                           "lr = 0.25\n"
                           "train.batch = 5\n");
    assert_ok(spec_load(&spec, at("full.ini")));
    assert_int_equal(spec.n_runs, 2);
    assert_string_equal(spec.names[1], "b-2");
    assert_null(spec.names[2]);
    assert_int_equal(spec.n_expects, 2);
    assert_string_equal(spec.expects[0].text, "b-2.loss <= a.loss*1.02");
    assert_string_equal(spec.compare.title, "A");
    assert_string_equal(spec.compare.out, "full");
    assert_string_equal(spec.compare.seeds, "1, 2");
    struct run_config a, b;
    assert_ok(spec_config(&spec, 0, &a));
    assert_ok(spec_config(&spec, 1, &b));
    assert_true(a.train.steps == 9 && a.train.batch == 3 && a.optim.lr == 0.5);
    assert_true(b.train.steps == 9 && b.train.batch == 5 && b.optim.lr == 0.25);
    spec.base.train.steps = 4; /* as the command line would */
    assert_ok(spec_config(&spec, 1, &b));
    assert_true(b.train.steps == 4 && b.train.batch == 5);
    spec_free(&spec);
    write_text("plain", "[run a]\n[compare]\ntitle=\"It's\"\n");
    assert_ok(spec_load(&spec, at("plain")));
    assert_string_equal(spec.compare.out, "plain.results");
    assert_string_equal(spec.compare.title, "It's");
    spec_free(&spec);
}

/* What is said of nodes is for the runs that have several. */
static void runs_on_one_node(void **state)
{
    (void)state;
    struct spec spec;
    static struct run_config c;
    write_text("nodes.ini", "[base]\nworkers = 4\nnodes = 4\nlink.inter = 1Gbit/s\n"
                            "link.adapters = 0\nlink.speed = 1,0.5\n"
                            "[run four]\n[run alone]\nworkers = 1\n[run one]\nnodes = 1\n"
                            "[run wrong]\nworkers = 1\nlink.inter = 2Gbit/s\n");
    assert_ok(spec_load(&spec, at("nodes.ini")));
    const struct jobs jobs = {.spec = &spec};
    struct cluster cluster;
    for (int i = 0; i < 3; i++) {
        assert_ok(job_config(&jobs, &(struct job){.run = i}, &c));
        assert_ok(cluster_open(&cluster, &c));
        assert_int_equal(cluster.nodes, i ? 1 : 4);
        cluster_close(&cluster);
    }
    assert_ok(job_config(&jobs, &(struct job){.run = 3}, &c));
    assert_fails(cluster_open(&cluster, &c), SOTTO_EINVAL, "there is one node");
    cluster_close(&cluster);
    spec_free(&spec);
}

static void unreadable_specs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        enum sotto_status code;
    } table[] = {
        {"[compare]\n", "bad.ini has no [run NAME] section", SOTTO_EINVAL},
        {"[run a]\n\n[run b]\n[run a]\n", "bad.ini:4: there are two runs named 'a'", SOTTO_EINVAL},
        {"[run a b]\n", "bad.ini:1: [run a b]: a name consists of letters", SOTTO_EFORMAT},
        {"[run ../a]\n", "bad.ini:1: [run ../a]: a name consists of letters", SOTTO_EFORMAT},
        {"[run 2a]\n", "bad.ini:1: [run 2a]: a name begins with a letter", SOTTO_EFORMAT},
        {"[run]\n", "bad.ini:1: a run needs a name", SOTTO_EFORMAT},
        {"\n[comparre]\n", "bad.ini:2: unknown section [comparre]: did you mean [compare]?",
         SOTTO_EINVAL},
        {"[optimizer]\n", "bad.ini:1: unknown section [optimizer]: want [compare], [base] or [run",
         SOTTO_EINVAL},
        {"steps = 3\n[run a]\n", "bad.ini:1: 'steps' precedes the first section", SOTTO_EFORMAT},
        {"[compare]\ntitel = x\n[run a]\n",
         "bad.ini:2: unknown key 'compare.titel': did you mean 'compare.title'?", SOTTO_EINVAL},
        {"[base]\nstpes = 3\n[run a]\n", "bad.ini:2: unknown key 'stpes': did you mean",
         SOTTO_EINVAL},
        {"[run a]\n\noptim.lr = fast\n", "bad.ini:3: optim.lr = fast: want a number", SOTTO_EINVAL},
        {"[compare]\n\nexpect = a.loss < c.loss\n[run a]\n",
         "bad.ini:3: expect: there is no run 'c'", SOTTO_EFORMAT},
        {"[run b]\ntrain.steps = 4\n[run a]\ntrain.steps = 4\ntrain.seq = 2\ntrain.steps = 5\n",
         "bad.ini:6: 'train.steps' is set a second time, after line 4", SOTTO_EINVAL},
        {"[run a]\n[compare]\nexpect = a.loss ! 3\n",
         "bad.ini:3: expect: want one of <= < >= > == at character 8", SOTTO_EFORMAT},
        {"[compare]\nbase = nowhere.ini\n[run a]\n", "nowhere.ini", SOTTO_EIO},
        {"[compare]\nbase = wrong.ini\n[run a]\n", "bad.ini:2: ", SOTTO_EINVAL},
        {"[compare]\nbase = wrong.ini\n[run a]\n", "wrong.ini:2: train.steps = -2 is out of range",
         SOTTO_EINVAL},
        {"[run a]\nsteps\n", "bad.ini:2: want 'key = value' in a file of options, got 'steps'",
         SOTTO_EFORMAT},
    };
    struct spec spec;
    write_text("wrong.ini", "[train]\nsteps = -2\n");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_text("bad.ini", table[i].text);
        assert_fails(spec_load(&spec, at("bad.ini")), table[i].code, table[i].message);
    }
    char longest[200];
    snprintf(longest, sizeof longest, "[run %0100d]\n", 0);
    write_text("bad.ini", longest);
    assert_fails(spec_load(&spec, at("bad.ini")), SOTTO_EFORMAT, "at most 63 characters");
    assert_fails(spec_load(&spec, at("missing.ini")), SOTTO_EIO, "missing.ini");
}

/* Evaluations lie between the lines that tell the time; seeds are merged by their steps. */
static void curves(void **state)
{
    (void)state;
    char folders[2][FILE_PATH_ROOM];
    struct curve c;
    strcpy(folders[0], at("s1"));
    strcpy(folders[1], at("s2"));
    assert_ok(file_make_directories(folders[0]));
    assert_ok(file_make_directories(folders[1]));
    write_text(
        "s1/metrics.jsonl",
        "{\"step\": 1, \"eval/loss\": 9}\n"
        "{\"step\": 2, \"train/loss\": 5, \"time/seconds\": 4, \"comm/bytes\": 100, \"train/samples\": 16}\n"
        "{\"step\": 3, \"eval/loss\": 7}\n"
        "{\"step\": 4, \"train/loss\": 3, \"time/seconds\": 6, \"comm/bytes\": 300, \"train/samples\": 32}\n"
        "{\"step\": 4, \"eval/loss\": 5}\n"
        "{\"step\": 5, \"eval/loss\": null}\n");
    write_text(
        "s2/metrics.jsonl",
        "{\"step\": 2, \"train/loss\": 6, \"time/seconds\": 8, \"comm/bytes\": 100, \"train/samples\": 16}\n"
        "{\"step\": 3, \"eval/loss\": 8}\n"
        "{\"step\": 4, \"train/loss\": 4, \"time/seconds\": 12, \"comm/bytes\": 300, \"train/samples\": 32}\n"
        "{\"step\": 4, \"eval/loss\": 6}\n"
        "{\"step\": 6, \"eval/loss\": 1}\n");
    assert_ok(curve_read(&c, folders, 2, "eval/loss"));
    static const struct curve_point want[] = {{1, 2, 50, 8, 9, 9, 9},
                                              {3, 7.5, 200, 24, 7.5, 7, 8},
                                              {4, 9, 300, 32, 5.5, 5, 6},
                                              {6, 12, 300, 32, 1, 1, 1}};
    assert_int_equal(c.n, 4);
    for (int i = 0; i < 4; i++) {
        const double *x = &c.points[i].step, *y = &want[i].step;
        for (int k = 0; k < 7; k++)
            if (fabs(x[k] - y[k]) > 1e-12)
                fail_with("point %d, number %d: %g, want %g", i, k, x[k], y[k]);
    }
    struct plot plot = {.folder = scratch,
                        .title = "It's",
                        .metric = "eval/loss",
                        .names = names,
                        .curves = &c,
                        .n = 1};
    FILE *page = fopen(at("page"), "w");
    assert_ok(plot_metric(&plot, page));
    fclose(page);
    char *text = slurp(at("eval-loss.tsv"));
    assert_non_null(strstr(text, "ddp\t3\t7.5\t200\t24\t7.5\t7\t8\n"));
    free(text);
    text = slurp(at("eval-loss-time.gnuplot"));
    assert_non_null(strstr(text, "set title 'It''s'\n"));
    assert_non_null(strstr(text, "training time in seconds"));
    assert_non_null(strstr(text, "with filledcurves"));
    free(text);
    curve_free(&c);
    assert_ok(curve_read(&c, folders, 2, "eval/accuracy"));
    assert_int_equal(c.n, 0);
    curve_free(&c);
    write_text("s2/metrics.jsonl", "{\"step\": 2,\n");
    assert_fails(curve_read(&c, folders, 2, "eval/loss"), SOTTO_EFORMAT, "line 1: ");
    curve_free(&c);
}

/* Three runs whose losses fall at different speeds, to different ends: one with a line a round. */
static void write_run(const char *name, int rounds, double seconds, double samples, double from,
                      double step)
{
    char path[64], line[256], text[8192] = "";
    assert_ok(file_make_directories(at(name)));
    for (int i = 1; i <= rounds; i++) {
        snprintf(line, sizeof line,
                 "{\"step\": %d, \"train/loss\": %g, \"time/seconds\": %g, \"train/samples\": %g, "
                 "\"comm/bytes\": %d}\n",
                 i, from - step * i, seconds * i, samples * i, 10 * i);
        strcat(text, line);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    write_text(path, text);
}

static double reported(const struct results *r, int run, const char *key)
{
    struct spread s = results_spread(r, run, key);
    return s.n ? s.mean : NAN;
}

static void common_ends(void **state)
{
    (void)state;
    struct spec spec;
    struct jobs jobs;
    struct results r;
    struct common c;
    char *text;
    size_t size;
    write_text("ends.ini", "[base]\nworkers = 4\ntokens = 100\nnodes = 4\nlink.inter = 1Gbit/s\n"
                           "worker.speed = 1,0.5\n[run a]\n[run b]\nstrategy = zero1\n"
                           "[run c]\n");
    assert_ok(spec_load(&spec, at("ends.ini")));
    strcpy(spec.compare.out, scratch);
    assert_ok(jobs_list(&jobs, &spec));
    assert_ok(results_init(&r, spec.names, 3, 1));
    put(&r, 0, 0,
        "{\"model\": \"nano\", \"parameters\": 2500000, "
        "\"cluster\": \"4 nodes x 1 worker; speeds 1,0.5\"}");
    put(&r, 1, 0, "{\"model\": \"nano\", \"parameters\": 2500000}");
    write_run("a", 10, 2, 8, 6, 0.5);      /* to 1 in 20 s and 80 samples */
    write_run("b", 8, 1, 20, 6, 0.25);     /* to 4 in 8 s and 160         */
    assert_ok(common_find(&c, &jobs, &r)); /* c did not finish */
    assert_true(c.axis == AXIS_SAMPLES && c.end == 80 && c.worst == 1);
    assert_true(fabs(c.target - 4.5) < 1e-12); /* the mean of rounds 4 to 8 of b */
    assert_true(fabs(reported(&r, 1, "time_to_loss") - 8) < 1e-12);
    assert_true(fabs(reported(&r, 0, "time_to_loss") - 10) < 1e-12); /* round 5: mean of 1 to 5 */
    assert_true(fabs(reported(&r, 0, "common_loss") - 2) < 1e-12);
    assert_true(fabs(reported(&r, 1, "common_loss") - 5.375) < 1e-12); /* round 4 */
    spec.compare.target = 5.2; /* a: rounds 2 and 3 have 5.25 and 5 */
    assert_ok(common_find(&c, &jobs, &r));
    assert_true(fabs(reported(&r, 0, "time_to_loss") - 4.4) < 1e-12 && c.worst == -1);
    spec.base.train.seconds = 5; /* cut where the budget is */
    assert_ok(common_find(&c, &jobs, &r));
    assert_true(c.axis == AXIS_TIME && c.end == 8);
    spec.compare.cut = CUT_ROUNDS;
    assert_ok(common_find(&c, &jobs, &r));
    assert_true(c.axis == AXIS_ROUNDS && c.end == 8);

    char setup[SETUP_ROOM];
    assert_ok(setup_describe(&jobs, &r, setup));
    assert_string_equal(setup, "nano, 2.5 million parameters; cluster: 4 nodes x 1 worker; speeds "
                               "1,0.5");
    FILE *said = open_memstream(&text, &size);
    char *columns[] = {"loss", "common_loss", "time_to_loss"};
    common_print(&c, &r, columns, 3, said);
    common_print(&c, &r, columns, 1, said); /* nothing about what is not shown */
    fclose(said);
    assert_string_equal(text, "\ncommon_loss: train/loss after 8 rounds, reached by all runs\n"
                              "time_to_loss: until train/loss is 5.2000\n");
    free(text);
    results_free(&r);
    jobs_free(&jobs);
    spec_free(&spec);
}

/* Axes fit the data: from 0 to the last point, or logarithmic from the first to the last where runs
 * end far apart, with labels between powers of ten. */
static void axes(void **state)
{
    (void)state;
    struct curve_point fast[] = {{1, 0.5, 0, 8, 3, 3, 3}, {2, 1, 0, 16, 2, 2, 2}},
                       slow[] = {{1, 15, 0, 8, 3, 3, 3}, {2, 30, 0, 16, 0.1, 0.1, 0.1}};
    struct curve curves[] = {{fast, 2}, {slow, 2}};
    struct plot plot = {.folder = scratch,
                        .title = "Two",
                        .subtitle = "4 workers",
                        .metric = "train/loss",
                        .names = names,
                        .curves = curves,
                        .n = 2};
    FILE *page = fopen(at("page"), "w");
    assert_ok(plot_metric(&plot, page));
    fclose(page);
    char *text = slurp(at("loss-time.gnuplot"));
    assert_non_null(strstr(text, "set title 'Two' . \"\\n\" . '4 workers'\n"));
    assert_non_null(strstr(text, "set logscale x\nset xrange [0.5:30]\n"
                                 "set xtics ('0.5' 0.5, '1' 1, '2' 2, '5' 5, '10' 10, '20' 20)\n"));
    assert_non_null(strstr(text, "set logscale y\n"));
    free(text);
    text = slurp(at("loss-samples.gnuplot"));
    assert_non_null(strstr(text, "set xrange [0:16]\n"));
    assert_non_null(strstr(text, "using 5:6 with"));
    free(text);
    assert_false(file_exists(at("loss-bytes.gnuplot"))); /* nothing was sent */
    curve_cut(&curves[1], AXIS_TIME, 40);                /* the curve ends before */
    curve_cut(&curves[1], AXIS_TIME, 16); /* the round that runs at 16 s ends at 30 s */
    assert_int_equal(curves[1].n, 2);
    curve_cut(&curves[1], AXIS_TIME, 15);
    assert_int_equal(curves[1].n, 1);
}

/* Of the script's title, each a text in quotes of at most 88 letters. */
static int lines_of_title(const char *path)
{
    int lines = 0;
    size_t length = 0, size;
    char *script;
    assert_ok(file_read(path, 1 << 20, &script, &size));
    bool inside = false;
    for (const char *p = strstr(script, "set title "); *p != '\n'; p++) {
        if (*p == '\'') {
            lines += inside;
            inside = !inside;
            length = 0;
        } else if (++length > 88) {
            fail_with("a line of %zu letters: %.100s", length, p - 88);
        }
    }
    free(script);
    return lines;
}

/* Titles fit the figure, whatever the set-up; and a run of one report among long ones is a point
 * with a name in the key. */
static void fits(void **state)
{
    (void)state;
    struct curve_point many[40], one[] = {{4, 15, 0, 8, 3, 3, 3}};
    struct curve curves[] = {{many, 40}, {one, 1}};
    static const char *const runs[] = {"many", "one"};
    for (int i = 0; i < 40; i++)
        many[i] = (struct curve_point){i + 1, i + 1, 0, 8, 3, 3, 3};
    char speeds[256] = "speeds 1";
    for (int i = 0; i < 120; i++)
        strcat(speeds, ",1");
    struct plot plot = {.folder = scratch,
                        .title = "What one long link does to four workers; and to a fifth",
                        .subtitle = "nano, 0.197 million parameters; 4 simulated workers; speeds "
                                    "1,1,1,0.25; links unlimited inside a node, 1Gbit/s,50us "
                                    "between nodes; 100ms a micro-batch",
                        .metric = "train/loss",
                        .names = runs,
                        .curves = curves,
                        .n = 2};
    FILE *page = fopen(at("page"), "w");
    assert_ok(plot_metric(&plot, page));
    char *text = slurp(at("loss-time.gnuplot"));
    assert_non_null(strstr(text, "set title 'What one long link does to four workers; and to a "
                                 "fifth' . \"\\n\" . 'nano, 0.197 million parameters; 4 simulated "
                                 "workers; speeds 1,1,1,0.25;' . \"\\n\" . 'links unlimited inside "
                                 "a node, 1Gbit/s,50us between nodes; 100ms a micro-batch'\n"));
    assert_non_null(strstr(text, "index 0 using 3:6 with lines "));
    assert_non_null(strstr(text, "index 1 using 3:6 with linespoints "));
    assert_non_null(strstr(text, "title 'one'"));
    free(text);
    plot.subtitle = speeds; /* no place but commas to part it */
    assert_ok(plot_metric(&plot, page));
    fclose(page);
    assert_int_equal(lines_of_title(at("loss-time.gnuplot")), 4);
}

/* Counts the rounds that were trained, and may ask to stop. */
struct watcher {
    int rounds, stop_at;
    atomic_int stop;
};

static void on_step(void *arg, const struct compare_at *run, const struct run_step *s)
{
    struct watcher *w = arg;
    assert_true(run->at >= 1 && run->at <= run->wanted && *run->label);
    (void)s;
    if (++w->rounds == w->stop_at)
        w->stop = 1;
}

/* Loads scratch/`name`, whose results go to scratch/`out`; what is printed is in scratch/said. */
static enum sotto_status compare(const char *name, const char *out, const char *only, bool again,
                                 int stop_at, int *rounds)
{
    struct watcher w = {.stop_at = stop_at};
    struct spec spec;
    assert_ok(spec_load(&spec, at(name)));
    strcpy(spec.compare.out, at(out));
    strcpy(spec.base.data.train, at("data.tok"));
    spec.compare.plot = false;
    FILE *said = fopen(at("said"), "w");
    struct compare_how how = {
        .only = only, .again = again, .out = said, .stop = &w.stop, .step = on_step, .arg = &w};
    enum sotto_status st = compare_run(&spec, &how);
    fclose(said);
    spec_free(&spec);
    *rounds = w.rounds;
    return st;
}

static void assert_said(const char *part)
{
    char *text = slurp(at("said"));
    if (!strstr(text, part))
        fail_with("no '%s' in what was said:\n%s", part, text);
    free(text);
}

/* Three runs of 10 rounds: opening takes 5 s, a round 2 s; the second goes on after 4 rounds. */
static void time_left(void **state)
{
    (void)state;
    struct time_left l = {.waiting = 3};
    double now = 1000;
    assert_true(left_seconds(&l) < 0);
    for (int run = 0; run < 3; run++) {
        const int before = run == 1 ? 4 : 0;
        left_begin(&l, 2 - run, now);
        assert_true(left_seconds(&l) < 0);
        now += 3;
        for (int64_t step = before + 1; step <= 10; step++) {
            now += 2;
            left_step(&l, &(struct run_step){.step = step, .steps = 10, .eta = 2. * (10 - step)},
                      now);
            if (step == before + 1)
                assert_true(left_seconds(&l) < 0);
            else /* a whole run is expected to take 25 s; the first took 23 s in the end */
                assert_true(left_seconds(&l) == 2. * (10 - step) + (run == 0   ? 2 * 25
                                                                    : run == 1 ? 24
                                                                               : 0));
        }
        left_end(&l, run != 1, run != 2, now);
    }
    assert_int_equal(l.ended, 2); /* the last failed */
    assert_true(l.sum == 23 + 25);
    l.waiting = 0;
    assert_true(left_seconds(&l) == 0);
    left_begin(&l, 1, now); /* a run of unknown length */
    left_step(&l, &(struct run_step){.step = 1, .steps = BUDGET_UNKNOWN}, now += 2);
    left_step(&l, &(struct run_step){.step = 2, .steps = BUDGET_UNKNOWN}, now += 2);
    assert_true(left_seconds(&l) < 0);
}

/* A day of runs of half a minute, with ten rounds a second. */
static void lines_are_bounded(void **state)
{
    (void)state;
    struct time_left l = {0};
    int lines = 0, early = 0;
    for (int tenth = 0; tenth < 10 * 86400; tenth++) {
        const double now = 1000 + tenth / 10.;
        if (tenth % 300 == 0)
            left_begin(&l, 0, now);
        lines += left_line_due(&l, now);
        early += tenth == 10 * 500 ? lines : 0;
    }
    assert_in_range(early, 48, 50);
    assert_in_range(lines, 250, 320);
}

#define BASE                                                                                       \
    "[base]\nmodel.layers = 1\nmodel.width = 16\nmodel.heads = 2\nmodel.positions = 16\n"          \
    "train.batch = 2\ntrain.log_every = 1\ntrain.threads = 1\ndata.holdout = 0.1\n"                \
    "train.eval_batches = 2\ntrain.eval_every = 2\noptim.warmup = 0\n"

static double number_in(const char *path, const char *key)
{
    json_t *report;
    assert_ok(json_open(&report, at(path), 1 << 20));
    const double value = json_number_value(json_object_get(report, key));
    json_decref(report);
    return value;
}

/* Times are measured once for runs that are alike, in their precision, and kept: equal runs have
 * equal times, also when they are made again. */
static void one_calibration(void **state)
{
    (void)state;
    static const char text[] =
        BASE "time = virtual\nworkers = 2\nsteps = 4\n[run one]\n[run two]\n[run mixed]\n"
             "strategy.precision = mixed\n[run given]\nworker.step = 1s\n";
    static const char *const runs[] = {"one", "two", "mixed", "given"};
    double first[4];
    int rounds;
    json_t *kept;
    assert_ok(file_write(at("times.ini"), text, strlen(text)));
    for (int again = 0; again < 2; again++) {
        assert_ok(compare("times.ini", "times", "", again, 0, &rounds));
        for (int i = 0; i < 4; i++) {
            char path[64];
            snprintf(path, sizeof path, "times/%s/report.json", runs[i]);
            const double seconds = number_in(path, "seconds");
            const double update = number_in(path, "update");
            assert_true(i == 3 ? update == 0 : update > 0);
            if (again)
                assert_true(seconds == first[i]);
            first[i] = seconds;
        }
        assert_true(first[0] == first[1]);
        assert_true(first[3] == 4);
        assert_ok(json_open(&kept, at("times/calibration.json"), 1 << 20));
        assert_int_equal(json_object_size(kept), 2); /* fp32 and mixed */
        json_decref(kept);
    }
    static const char bad[] = "{\"a\": 1}", key[] = "a";
    struct calibration c;
    bool found;
    assert_ok(file_write(at("bad.json"), bad, strlen(bad)));
    assert_fails(calibration_read(at("bad.json"), key, &c, &found), SOTTO_EFORMAT,
                 "want step and memory above 0");
    assert_fails(calibration_read(at("times.ini"), key, &c, &found), SOTTO_EFORMAT, "times.ini");
}

static void whole_comparison(void **state)
{
    (void)state;
    int rounds;
    write_text("two.ini", "[compare]\nseeds = 1,2\n"
                          "expect = fast.loss < slow.loss\n"
                          "expect = fast.loss > slow.loss\n"
                          "expect = fast.steps == 6\n" BASE "train.steps = 6\n"
                          "[run slow]\noptim.lr = 1e-6\n[run fast]\noptim.lr = 0.01\n");
    assert_fails(compare("two.ini", "two", "", false, 0, &rounds), SOTTO_EINVAL,
                 "1 of 3 expectations failed");
    assert_int_equal(rounds, 24);
    assert_said("[3/4] fast seed 1: starts in ");
    assert_said("\nok      fast.loss < slow.loss  (");
    assert_said("\nFAILED  fast.loss > slow.loss  (");
    assert_said("\nok      fast.steps == 6        (6 == 6)");
    static const char *const files[] = {"two/table.md",           "two/table.csv",
                                        "two/loss.tsv",           "two/loss-rounds.gnuplot",
                                        "two/eval-loss.tsv",      "two/fast-2/report.json",
                                        "two/slow-1/compare.ini", "two/slow-1/metrics.jsonl"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!file_exists(at(files[i])))
            fail_with("%s is missing", files[i]);
    char *first = slurp(at("two/table.csv"));
    assert_non_null(strstr(first, "run,seeds,loss,loss_std,"));
    assert_non_null(strstr(first, "\nfast,2,"));

    /* What is done is not done again, and gives the same table. */
    assert_fails(compare("two.ini", "two", "", false, 0, &rounds), SOTTO_EINVAL,
                 "1 of 3 expectations failed");
    assert_int_equal(rounds, 0);
    assert_said("[4/4] fast seed 2: was done before: loss ");
    char *second = slurp(at("two/table.csv"));
    assert_string_equal(first, second);
    free(first);
    free(second);
    assert_fails(compare("two.ini", "two", "fast", true, 0, &rounds), SOTTO_EINVAL,
                 "1 of 3 expectations failed");
    assert_int_equal(rounds, 12);
    assert_fails(compare("two.ini", "two", "quick", false, 0, &rounds), SOTTO_EINVAL,
                 "--only: there is no run 'quick'");
    assert_int_equal(rename(at("two"), at("moved")), 0); /* results may be moved */
    assert_fails(compare("two.ini", "moved", "", false, 0, &rounds), SOTTO_EINVAL,
                 "1 of 3 expectations failed");
    assert_int_equal(rounds, 0);
}

/* Another configuration in the same folder is refused before anything is run. */
static void changed_comparison(void **state)
{
    (void)state;
    int rounds;
    write_text("one.ini", BASE "train.steps = 3\n[run a]\n[run b]\nlr = 0.01\n");
    assert_ok(compare("one.ini", "one", "a", false, 0, &rounds));
    assert_int_equal(rounds, 3);
    write_text("one.ini", BASE "train.steps = 4\n[run b]\n[run a]\n");
    assert_fails(compare("one.ini", "one", "", false, 0, &rounds), SOTTO_EINVAL,
                 "another configuration (train.steps was '3', is now '4'): --again");
    assert_int_equal(rounds, 0);
    assert_true(file_exists(at("one/a/report.json")) && !file_exists(at("one/b")));
    assert_ok(compare("one.ini", "one", "b", false, 0, &rounds)); /* a is left as it is */
    assert_int_equal(rounds, 4);
    assert_ok(compare("one.ini", "one", "", true, 0, &rounds));
    assert_int_equal(rounds, 8);

    /* What compare did not write is not its to remove. */
    assert_ok(file_make_directories(at("one/c")));
    write_text("one/c/notes", "mine");
    write_text("more.ini", BASE "train.steps = 4\n[run c]\n");
    assert_ok(compare("more.ini", "one", "", true, 0, &rounds));
    assert_true(file_exists(at("one/c/notes")) && file_exists(at("one/c/report.json")));
    assert_ok(file_remove_tree(at("one/a/compare.ini")));
    assert_fails(compare("one.ini", "one", "", true, 0, &rounds), SOTTO_EINVAL,
                 "holds a run that compare did not start");
    assert_true(file_exists(at("one/a/report.json")) && file_exists(at("one/b/report.json")));
}

static void stopped_comparison(void **state)
{
    (void)state;
    int rounds, before;
    write_text("stop.ini", "[compare]\ncolumns = loss, steps, workers\n" BASE
                           "train.steps = 5\n[run a]\n[run b]\n");
    assert_fails(compare("stop.ini", "stop", "", false, 7, &before), SOTTO_ESTOPPED,
                 "stopped at step");
    assert_true(before >= 7 && before < 10);
    assert_said("[2/2] b: stopped");
    assert_ok(compare("stop.ini", "stop", "", false, 0, &rounds));
    assert_int_equal(rounds, 10 - before);
    assert_said("[1/2] a: was done before");
    assert_said("[2/2] b: continues in ");
    char *csv = slurp(at("stop/table.csv"));
    double a, b; /* the same run, stopped or not */
    assert_int_equal(sscanf(csv, "run,loss,steps,workers a,%lf,5,1 b,%lf,5,1", &a, &b), 2);
    assert_true(a == b);
    free(csv);
}

/* Another comparison into the folder would change its tables, remove its runs with --again, or find
 * them half done. */
static void a_comparison_in_use(void **state)
{
    (void)state;
    int rounds;
    struct rundir other;
    write_text("twice.ini", "[compare]\n" BASE "train.steps = 2\n[run a]\n");
    assert_ok(compare("twice.ini", "twice", "", false, 0, &rounds));
    assert_ok(rundir_open(&other, at("twice")));
    for (int again = 0; again < 2; again++) {
        assert_fails(compare("twice.ini", "twice", "", again, 0, &rounds), SOTTO_EINVAL,
                     "twice is being written by process");
        assert_int_equal(rounds, 0);
    }
    assert_true(file_exists(at("twice/a/report.json")));
    rundir_close(&other);
    assert_ok(compare("twice.ini", "twice", "", true, 0, &rounds));
    assert_int_equal(rounds, 2);
}

/* A job whose folder another process has: it fails and the others are run, and what is known of the
 * other's run stays as it was. */
static void a_job_in_use(void **state)
{
    (void)state;
    int rounds;
    struct rundir other;
    write_text("busy.ini",
               "[compare]\n" BASE "train.steps = 2\n[run a]\n[run b]\noptim.lr = 0.1\n");
    assert_ok(rundir_open(&other, at("busy/a")));
    assert_ok(file_write(at("busy/a/compare.ini"), "theirs", 6));
    assert_fails(compare("busy.ini", "busy", "", false, 0, &rounds), SOTTO_EINVAL,
                 "1 of 2 runs failed");
    assert_int_equal(rounds, 2);
    assert_said("a: FAILED: run folder ");
    char *text = slurp(at("busy/a/compare.ini"));
    assert_string_equal(text, "theirs");
    free(text);
    assert_fails(compare("busy.ini", "busy", "", true, 0, &rounds), SOTTO_EINVAL,
                 "is being written by process");
    rundir_close(&other);
    assert_ok(compare("busy.ini", "busy", "", true, 0, &rounds));
    assert_int_equal(rounds, 4);
}

/* A run that cannot be is reported, the others go on, and what is expected of it has failed. */
static void failing_runs(void **state)
{
    (void)state;
    int rounds;
    write_text("fails.ini", "[compare]\nexpect = bad.loss < 9\nexpect = good.loss < 9\n" BASE
                            "train.steps = 3\n[run bad]\nmodel.heads = 3\n[run good]\n");
    assert_fails(compare("fails.ini", "fails", "", false, 0, &rounds), SOTTO_EINVAL,
                 "1 of 2 runs and 1 of 2 expectations failed");
    assert_int_equal(rounds, 3);
    assert_said("[1/2] bad: FAILED: ");
    assert_said("FAILED  bad.loss < 9   (bad.loss is missing)");
    assert_said("ok      good.loss < 9  (");
    write_text("fails.ini", "[compare]\nexpect = bad.loss < 9\n" BASE
                            "train.steps = 3\n[run bad]\nmodel.heads = 4\n[run good]\n");
    assert_ok(compare("fails.ini", "fails", "good", false, 0, &rounds));
    assert_int_equal(rounds, 0);
    assert_said("-       bad.loss < 9  (bad has not been run)");
    assert_ok(compare("fails.ini", "fails", "", false, 0, &rounds)); /* put right: no --again */
    assert_int_equal(rounds, 3);

    write_text("fails.ini", BASE "[run a]\nout = elsewhere\n");
    assert_fails(compare("fails.ini", "out", "", false, 0, &rounds), SOTTO_EINVAL,
                 "run a sets train.out");
    write_text("fails.ini", "[compare]\nseeds = 1\n" BASE "[run a]\nseed = 3\n");
    assert_fails(compare("fails.ini", "out", "", false, 0, &rounds), SOTTO_EINVAL,
                 "run a sets train.seed");
    static const char *const seeds[] = {"1,x", "-1", "1, 1", "1.5"};
    for (int i = 0; i < 4; i++) {
        char text[1000];
        snprintf(text, sizeof text, "[compare]\nseeds = %s\n" BASE "[run a]\n", seeds[i]);
        write_text("fails.ini", text);
        assert_fails(compare("fails.ini", "out", "", false, 0, &rounds), SOTTO_EINVAL, "seeds: ");
    }
    assert_false(file_exists(at("out")));
}

/* Runs on different clusters: the line says in what they differ. */
static void clusters_differ(void **state)
{
    (void)state;
    struct spec spec;
    struct jobs jobs;
    struct results r;
    char setup[SETUP_ROOM];
    write_text("differ.ini", "[base]\nworkers = 4\ntime = virtual\nworker.step = 1ms\n[run a]\n"
                             "[run b]\nnodes = 2\nlink.inter = 1Gbit/s\n");
    assert_ok(spec_load(&spec, at("differ.ini")));
    assert_ok(jobs_list(&jobs, &spec));
    assert_ok(results_init(&r, spec.names, 2, 1));
    put(&r, 0, 0, "{\"cluster\": \"1 node x 4 workers\"}");
    put(&r, 1, 0, "{\"cluster\": \"2 nodes x 2 workers; between 1Gbit/s\"}");
    assert_ok(setup_describe(&jobs, &r, setup));
    assert_string_equal(setup, "clusters differ in train.nodes, link.inter; 1ms a micro-batch");
    /* The model is what the runs' reports call it, where they agree. */
    static const char *const models[][3] = {
        {"\"model\": \"null oracle\", ", "6700000000", "null oracle, 6.7 billion parameters; "},
        {"\"model\": \"nano\", ", "999600000", "nano, 1 billion parameters; "},
        {"", "2500000", "2.5 million parameters; "}};
    strcpy(spec.base.train.init, "some/where");
    for (int i = 0; i < 3; i++) {
        for (int run = 0; run < 2; run++) {
            char report[128];
            snprintf(report, sizeof report, "{%s\"parameters\": %s}", models[i][0], models[i][1]);
            put(&r, run, 0, report);
        }
        assert_ok(setup_describe(&jobs, &r, setup));
        assert_memory_equal(setup, models[i][2], strlen(models[i][2]));
    }
    put(&r, 0, 0, "{\"model\": \"nano\", \"parameters\": 2500000}");
    put(&r, 1, 0, "{\"model\": \"gpt2 of 2 layers, width 32\", \"parameters\": 2500000}");
    assert_ok(setup_describe(&jobs, &r, setup));
    assert_memory_equal(setup, "2.5 million parameters; ", 24);
    results_free(&r);
    jobs_free(&jobs);
    spec_free(&spec);
}

/* Every experiment describes a cluster that can be, for each of its runs. */
static void experiments_have_clusters(void **state)
{
    (void)state;
    glob_t files;
    int runs = 0;
    assert_int_equal(glob(TEST_VECTORS "/../../experiments/*.ini", 0, NULL, &files), 0);
    assert_int_equal(glob(TEST_VECTORS "/../../experiments/*/*.ini", GLOB_APPEND, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct spec spec;
        struct jobs jobs;
        char *text;
        assert_ok(option_file(files.gl_pathv[i], &text));
        const bool compares = strstr(text, "[run ") != NULL;
        free(text);
        if (!compares)
            continue;
        assert_ok(spec_load(&spec, files.gl_pathv[i]));
        assert_ok(jobs_list(&jobs, &spec));
        for (int k = 0; k < jobs.n; k++, runs++) {
            struct cluster cluster;
            struct run_config config;
            assert_ok(job_config(&jobs, &jobs.list[k], &config));
            if (cluster_open(&cluster, &config) != SOTTO_OK)
                fail_with("%s, run %s: %s", files.gl_pathv[i], jobs.list[k].label, sotto_error());
            cluster_close(&cluster);
        }
        jobs_free(&jobs);
        spec_free(&spec);
    }
    globfree(&files);
    assert_true(runs > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expectations),
        cmocka_unit_test(unreadable_expectations),
        cmocka_unit_test(unanswerable_expectations),
        cmocka_unit_test(tables),
        cmocka_unit_test(specs),
        cmocka_unit_test(runs_on_one_node),
        cmocka_unit_test(unreadable_specs),
        cmocka_unit_test(curves),
        cmocka_unit_test(common_ends),
        cmocka_unit_test(clusters_differ),
        cmocka_unit_test(experiments_have_clusters),
        cmocka_unit_test(axes),
        cmocka_unit_test(fits),
        cmocka_unit_test(time_left),
        cmocka_unit_test(lines_are_bounded),
        cmocka_unit_test(one_calibration),
        cmocka_unit_test(whole_comparison),
        cmocka_unit_test(changed_comparison),
        cmocka_unit_test(stopped_comparison),
        cmocka_unit_test(a_comparison_in_use),
        cmocka_unit_test(a_job_in_use),
        cmocka_unit_test(failing_runs),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}
