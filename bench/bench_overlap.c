/* The cost of communication that should be hidden: tokens a second of methods on links whose
 * messages take a share of the computing time, compared with the same run without links. In real
 * time, with a real model, workers as threads. On a GPU ops are asynchronous, so this bench shows
 * whether lanes overlap computation.
 *
 *     bench_overlap [turns] [method...] [--section.option=value ...]
 *
 * Options as for sotto train, e.g. 3 --train.device=cuda.
 *
 * Prints a line for each method and share: tokens a second without links and with links, and the
 * loss of speed in percent, turn by turn (median, lowest, highest). Share 0 is without links
 * again. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/option/option.h"
#include "base/rng.h"
#include "data/text/token_files.h"
#include "train/run/run.h"

enum { TURNS = 9, WARM = 13 }; /* most turns; rounds of warm-up */

static const char *methods[] = {"ddp", "acco", "co2"}; /* or those of the command line */
static const double shares[] = {0.9, 0.5, 0.25, 0};
enum { METHODS = 3, SHARES = 4 };

/* Measurements of a run, without its first rounds. */
struct watched {
    double begin, end;   /* seconds of the slowest worker */
    int64_t first, last; /* tokens                        */
};

static void watch_step(void *arg, const struct run_step *s)
{
    struct watched *w = arg;
    if (s->step == WARM) {
        w->begin = s->slowest;
        w->first = s->tokens;
    }
    w->end = s->slowest;
    w->last = s->tokens;
}

struct speed {
    double tokens; /* a second                           */
    double bytes;  /* bytes a second that a worker sends */
};

static enum sotto_status set(struct run_config *c, const char *key, const char *value)
{
    struct option_section sections[RUN_SECTIONS];
    run_sections(c, sections);
    return option_set(sections, RUN_SECTIONS, key, value);
}

/* Measures a run; `wire`: bytes a second of a node's adapter; 0: no links. */
static enum sotto_status measure(const struct run_config *common, const char *method, double wire,
                                 struct speed *out)
{
    struct run_config c = *common;
    struct run run;
    struct watched w = {0};
    char link[64];
    TRY(file_remove_tree(c.train.out));
    TRY(set(&c, "strategy.preset", method));
    snprintf(link, sizeof link, "%.0fB/s,0s", wire);
    if (wire > 0)
        TRY(set(&c, "link.inter", link));
    TRY(run_open(&run, &c, &(struct run_watch){.step = watch_step, .arg = &w}));
    const enum sotto_status st = run_train(&run);
    if (st == SOTTO_OK) {
        const struct cost *cost = &run.result.worker[0].cost;
        out->tokens = (double)(w.last - w.first) / (w.end - w.begin);
        out->bytes = (double)(cost->between + cost->inside) / (double)w.last * out->tokens;
        fprintf(stderr, "%s, %.3g MB/s: %.0f tokens/s\n", method, wire / 1e6, out->tokens);
    }
    run_close(&run);
    return st;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Speeds of a method by share and turn; the first share of a turn is without links. */
struct found {
    double alone[TURNS], linked[SHARES][TURNS];
};

static enum sotto_status take_turn(const struct run_config *c, const char *method, int turn,
                                   struct found *f)
{
    struct speed alone, linked;
    TRY(measure(c, method, 0, &alone));
    f->alone[turn] = alone.tokens;
    for (int s = 0; s < SHARES; s++) {
        TRY(measure(c, method, shares[s] > 0 ? alone.bytes / shares[s] : 0, &linked));
        f->linked[s][turn] = linked.tokens;
    }
    return SOTTO_OK;
}

static void print(const char *method, const struct found *f, int turns)
{
    const size_t n = (size_t)turns;
    for (int s = 0; s < SHARES; s++) {
        double lost[TURNS], alone[TURNS], linked[TURNS];
        memcpy(alone, f->alone, sizeof alone);
        memcpy(linked, f->linked[s], sizeof linked);
        for (int i = 0; i < turns; i++)
            lost[i] = 100 * (1 - linked[i] / alone[i]);
        qsort(lost, n, sizeof *lost, by_size);
        qsort(alone, n, sizeof *alone, by_size);
        qsort(linked, n, sizeof *linked, by_size);
        printf("%-6s %6.2f %12.0f %12.0f %8.2f (%.2f .. %.2f)\n", method, shares[s], alone[n / 2],
               linked[n / 2], lost[n / 2], lost[0], lost[n - 1]);
    }
}

static enum sotto_status write_tokens(const char *path, int vocab)
{
    enum { COUNT = 1 << 20 };
    struct rng rng = rng_make(9, 9);
    int32_t *ids = malloc(COUNT * sizeof *ids);
    if (!ids)
        return fail(SOTTO_ENOMEM, "no memory for %d tokens", COUNT);
    for (int i = 0; i < COUNT; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    const enum sotto_status st = tokens_save(path, ids, COUNT, vocab);
    free(ids);
    return st;
}

static enum sotto_status run_all(int argc, const char *const *argv, const char *folder)
{
    /* Rounds of co2 are 12, and the last message of a round is sent in the first step of the next
     * round: 49 steps have the messages of 48. */
    static const char *const begin[][2] = {
        {"train.workers", "2"},  {"train.nodes", "2"},   {"train.steps", "49"},
        {"train.save", "false"}, {"train.threads", "2"}, {"model.layers", "8"},
        {"model.width", "512"},  {"model.heads", "8"},   {"model.positions", "512"}};
    static struct found found[METHODS];
    struct run_config c;
    struct option_section sections[RUN_SECTIONS];
    const char **rest = calloc((size_t)argc + 1, sizeof *rest);
    int n_rest;
    run_sections(&c, sections);
    option_defaults(sections, RUN_SECTIONS);
    snprintf(c.train.out, sizeof c.train.out, "%s/run", folder);
    snprintf(c.data.train, sizeof c.data.train, "%s/data.tok", folder);
    TRY(write_tokens(c.data.train, 4096));
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        TRY(set(&c, begin[i][0], begin[i][1]));
    const enum sotto_status st =
        option_parse(sections, RUN_SECTIONS, argc - 1, argv + 1, rest, &n_rest);
    const int asked = st == SOTTO_OK && n_rest > 0 ? atoi(rest[0]) : 3;
    const int turns = asked < 1 ? 1 : asked > TURNS ? TURNS : asked;
    int n = st == SOTTO_OK && n_rest > 1 ? n_rest - 1 : METHODS;
    n = n > METHODS ? METHODS : n;
    for (int m = 0; m < n && n_rest > 1; m++)
        methods[m] = rest[1 + m];
    free(rest);
    TRY(st);
    for (int turn = 0; turn < turns; turn++)
        for (int m = 0; m < n; m++)
            TRY(take_turn(&c, methods[m], turn, &found[m]));
    printf("%-6s %6s %12s %12s %8s\n", "method", "share", "tokens/s", "with links", "lost %");
    for (int m = 0; m < n; m++)
        print(methods[m], &found[m], turns);
    return SOTTO_OK;
}

int main(int argc, char **argv)
{
    char folder[256];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/bench_overlap.XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return fprintf(stderr, "bench_overlap: cannot make %s\n", folder), 1;
    const enum sotto_status st = run_all(argc, (const char *const *)argv, folder);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_overlap: %s\n", sotto_error());
    (void)file_remove_tree(folder);
    return st != SOTTO_OK;
}
