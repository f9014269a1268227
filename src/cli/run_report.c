/* The last lines of a run: its costs by worker, memory, and its folder. */
#include "cli/run_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "train/report/report.h"

static void print_peak_memory(const char *who, const size_t *bytes, size_t total)
{
    printf("memory of %s (peak, MB):", who);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (bytes[c])
            printf(" %s %.1f", memory_category_name((enum memory_category)c),
                   (double)bytes[c] / 1e6);
    printf("; together %.1f\n", (double)total / 1e6);
}

static void print_cost(const char *who, const struct cost *c, size_t memory)
{
    printf("%-8s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %10.2f %11.2f %10.1f\n", who, c->seconds,
           c->compute, c->update, c->wire, c->waited_others, c->waited_wire,
           (double)c->inside / 1e6, (double)c->between / 1e6, (double)memory / 1e6);
}

static void print_best(const struct run *run)
{
    const struct best *b = &run->result.best;
    char folder[FILE_PATH_ROOM];
    if (!b->step)
        return;
    printf("lowest held-out loss: %.4f at step %lld", b->loss, (long long)b->step);
    if (run->config.train.keep_best && best_folder(run_place(run), folder) == SOTTO_OK &&
        file_exists(folder))
        printf(", kept in %s", folder);
    printf("\n");
}

/* Prints a row for each worker if there are few, and always the mean and the largest memory. */
static void print_workers(const struct run *run)
{
    enum { FEW = 8 };
    const struct run_result *s = &run->result;
    const struct report r = report_of(run);
    const double rate = s->seconds > 0 ? 1 / s->seconds : 0; /* also for a step without time */
    char who[64], sentence[256];
    if (run->cluster.size > 1) {
        printf("%-8s %9s %9s %9s %9s %9s %9s %10s %11s %10s\n", "worker", "seconds", "compute",
               "update", "wire", "wait-peer", "wait-wire", "MB inside", "MB between", "memory MB");
        for (int i = 0; i < run->cluster.size && run->cluster.size <= FEW; i++) {
            const struct worker_report *w = &s->worker[i];
            snprintf(who, sizeof who, "%d", i);
            print_cost(who, &w->cost, w->memory_total);
        }
        print_cost("mean", &r.cost, r.memory_mean);
        report_sentence(&r, sentence, sizeof sentence);
        printf("%s\n", sentence);
    }
    print_peak_memory(run->cluster.size > 1 ? "the largest worker" : "the worker", r.memory,
                      r.memory_total);
    if (!run_kind(run)->sequences)
        printf("%lld images in %.2f s: %.1f images/s\n", (long long)s->samples, s->seconds,
               (double)s->samples * rate);
    else
        printf("%lld samples, %lld tokens in %.2f s: %.1f samples/s, %.0f tokens/s\n",
               (long long)s->samples, (long long)s->tokens, s->seconds, (double)s->samples * rate,
               (double)s->tokens * rate);
    print_best(run);
}

/* Reports a resumed run that has reached its length already. */
static void print_idle(const struct run *run)
{
    const struct run_result *s = &run->result;
    printf("nothing is left to do: the run in %s has %lld steps already", run->config.train.out,
           (long long)s->step);
    if (s->steps < s->step)
        printf(", and only %lld are requested", (long long)s->steps);
    printf("; a larger %s continues it (state %016" PRIx64 ")\n",
           best_over(&s->best, &run->config.train) ? "--patience" : "--steps", s->hash);
}

static void print_done(const struct run *run)
{
    const struct arch *arch = archs[run->model.config.arch];
    const bool alone = arch->alone && arch->alone(&run->model.config);
    printf("done: %s is a %s (state %016" PRIx64 ")\n", run->config.train.out,
           alone ? "model folder that sotto alone reads" : "Hugging Face model folder",
           run->result.hash);
}

void report_print(const struct run *run)
{
    if (*run->checkpoint && !run->result.rounds) {
        print_idle(run);
        return;
    }
    print_workers(run);
    if (run_keeps(run))
        print_done(run);
    else
        printf("done: the report is in %s\n", run->config.train.out);
}
