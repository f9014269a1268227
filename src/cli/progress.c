#include "cli/progress.h"

#include <math.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/run/run_worker.h"
#include "train/config/budget.h"

void progress_init(struct progress *p, FILE *out)
{
    /* mpirun gives its ranks a terminal and mixes their output */
    *p = (struct progress){.out = out, .terminal = isatty(fileno(out)) && !mpi_detected()};
}

void progress_end(struct progress *p)
{
    if (p->pending)
        fputc('\n', p->out);
    p->pending = false;
    fflush(p->out);
}

void progress_line(struct progress *p, double left, const char *format, ...)
{
    char time[CLOCK_TEXT_ROOM];
    va_list args;
    clock_text(left, time);
    fputs(p->terminal ? "\r\033[K" : "", p->out);
    va_start(args, format);
    vfprintf(p->out, format, args);
    va_end(args);
    fprintf(p->out, "  %s left%s", time, p->terminal ? "" : "\n");
    p->pending = p->terminal;
    fflush(p->out);
}

enum { MEASURES = 2 };

void stop_time_start(struct stop_time *t, double rounds, int64_t step, double now)
{
    t->rounds = rounds;
    pace_start(&t->round, step, now, 1);
    pace_start(&t->stretch, step, now, (int64_t)fmin(rounds, 1e15));
}

double stop_time_expect(struct stop_time *t, int64_t step, double now, double left)
{
    const double round = pace_seconds(&t->round, step, now);
    const double stretch = pace_seconds(&t->stretch, step, now); /* including an exchange */
    const double each = t->stretch.blocks >= MEASURES ? stretch
                        : t->round.blocks >= MEASURES ? round
                                                      : 0;
    return each * fmin(t->rounds, left);
}

/* Warns if the launcher's grace period is shorter than the time to stop: rounds until all workers
 * can stop, at the latest the end of the run, and a checkpoint of 12 bytes a parameter to a disk of
 * 300 MB/s. */
static void warn_of_grace(struct progress *p, const struct run_step *s)
{
    const struct run *run = s->worker->run;
    const char *option;
    const double grace = mpi_grace(&option);
    if (p->warned || grace < 0 || !run->config.train.save)
        return;
    if (p->step == 0 || s->step <= p->step) /* the first round of a run */
        stop_time_start(&p->stop_time, strategy_rounds_to_stop(&run->config.strategy), s->step - 1,
                        s->slowest - s->seconds);
    p->step = s->step;
    const double left = (double)(s->steps - s->step);
    const double needs = stop_time_expect(&p->stop_time, s->step, s->slowest, left) +
                         12 * (double)run->table->parameters / 300e6;
    if (needs < grace)
        return;
    /* Open MPI waits for this time before SIGTERM and again before SIGKILL, on a host after the
     * other. */
    const double more = ceil(needs) + 1;
    p->warned = true;
    progress_end(p);
    log_warn(
        "to stop and be saved, this run may take %.2g s, but mpirun kills its ranks %g s after "
        "Ctrl-C: mpirun %s %.0f leaves them the time; every end by a signal or an error then takes "
        "%.0f to %.0f s",
        needs, grace, option, more, 2 * more, 4 * more);
}

static void print_round(void *arg, const struct run_step *s)
{
    struct progress *p = arg;
    warn_of_grace(p, s);
    if (s->report || p->terminal)
        progress_step(p, s, "", -1);
}

void progress_step(struct progress *p, const struct run_step *s, const char *before, double all)
{
    char left[CLOCK_TEXT_ROOM], exposed[48] = "";
    if (s->cost.wire > 0 && s->cost.seconds > 0)
        snprintf(exposed, sizeof exposed, "  waiting %.1f%%",
                 100 * cost_exposed(&s->cost) / s->cost.seconds);
    fprintf(p->out, "%s%sstep %lld", p->terminal ? "\r\033[K" : "", before, (long long)s->step);
    if (s->steps < BUDGET_UNKNOWN)
        fprintf(p->out, "/%lld (%.0f%%)", (long long)s->steps,
                100.0 * (double)s->step / (double)s->steps);
    fprintf(p->out, "  loss %.4f  lr %.3g  %.0f %s/s%s", s->round.loss, s->lr, s->tokens_per_s,
            run_kind(s->worker->run)->unit, exposed);
    if (s->steps < BUDGET_UNKNOWN) {
        clock_text(s->eta, left);
        fprintf(p->out, "  %s left", left);
    }
    if (all >= 0) {
        clock_text(all, left);
        fprintf(p->out, "  %s for all runs", left);
    }
    fputs(p->terminal ? "" : "\n", p->out);
    p->pending = p->terminal;
    fflush(p->out);
}

static void print_evaluated(void *arg, int64_t at, const struct evaluation *e)
{
    struct progress *p = arg;
    const double share = 100.0 / (double)e->targets;
    progress_end(p);
    fprintf(p->out, "step %lld: held-out loss %.4f, ", (long long)at, e->loss);
    if (sample_kinds[e->content].sequences)
        fprintf(p->out, "perplexity %.2f, accuracy %.1f%% over %lld tokens\n", exp(e->loss),
                share * (double)e->hits, (long long)e->targets);
    else
        fprintf(p->out, "top-1 %.2f%%, top-5 %.2f%% of %lld images\n", share * (double)e->hits,
                share * (double)e->near, (long long)e->targets);
    fflush(p->out);
}

static void print_saved(void *arg, int64_t at, const char *folder)
{
    struct progress *p = arg;
    progress_end(p);
    fprintf(p->out, "step %lld: saved %s\n", (long long)at, folder);
    fflush(p->out);
}

struct run_watch progress_watch(struct progress *p)
{
    return (struct run_watch){
        .step = print_round, .evaluated = print_evaluated, .saved = print_saved, .arg = p};
}
