#include "train/plan/traffic.h"

#include <stdlib.h>

#include "train/config/budget.h"
#include "train/plan/dry_run.h"

/* Most rounds of a dry run, summed over the workers: some seconds. */
enum { ROUNDS_TRIED = 1 << 15 };

struct sent_bytes {
    int64_t inside, between;
};

/* A dry run, and the bytes that its workers send. */
struct sent_totals {
    const struct run *run;
    int workers;
    int64_t rounds; /* of the dry run                                          */
    int64_t every;  /* rounds between two meetings in the dry run              */
    bool ends;      /* the last round of the dry run is the last of the run    */
    int64_t plain;  /* a round without a meeting                               */
    bool async;     /* groups have a server, which sends at times of its own   */
    float *start;   /* parameters of all workers; NULL: the null oracle's      */
    struct {
        struct sent_bytes plain, all; /* in the plain round, in all rounds */
    } * of;                           /* (workers) */
};

static struct sent_bytes sent_so_far(const struct mesh *mesh)
{
    const struct mesh_account own = mesh_account_own(mesh), lanes = mesh_account_lanes(mesh);
    return (struct sent_bytes){own.inside + lanes.inside, own.between + lanes.between};
}

static struct sent_bytes sent_since(struct sent_bytes before, struct sent_bytes now)
{
    return (struct sent_bytes){now.inside - before.inside, now.between - before.between};
}

/* Waits until no message between groups and their server is in flight. */
static enum sotto_status wait_all_answered(const struct dry_worker *w, struct sent_bytes *sent)
{
    TRY(comm_barrier(w->mesh->worker->world));
    *sent = sent_so_far(w->mesh);
    return SOTTO_OK;
}

/* Makes the rounds of a worker with the plans of a run, and counts. */
static enum sotto_status count_rounds_sent(const struct dry_worker *w, void *arg)
{
    struct sent_totals *t = arg;
    const int rank = w->mesh->worker->rank;
    const int64_t log = t->run->config.train.log_every;
    if (t->start)
        TRY(w->s->ops->import(w->s, t->start));
    const struct sent_bytes begin = sent_so_far(w->mesh);
    struct sent_bytes before = begin;
    for (int64_t i = 0; i < t->rounds; i++) {
        struct round round;
        const bool last = t->ends && i + 1 == t->rounds;
        const struct plan plan = {.lr = 1,
                                  .next_lr = 1,
                                  .want_norm = last || (log > 0 && (i + 1) % log == 0),
                                  .step = i,
                                  .last = last};
        if (t->async && i == t->plain)
            TRY(wait_all_answered(w, &before));
        TRY(w->s->ops->round(w->s, &plan, &round));
        if (i == t->plain)
            t->of[rank].plain = sent_since(before, sent_so_far(w->mesh));
    }
    if (t->async)
        TRY(wait_all_answered(w, &before));
    if (w->s->ops->settle)
        TRY(w->s->ops->settle(w->s));
    TRY(mesh_rest(w->mesh));
    t->of[rank].all = sent_since(begin, sent_so_far(w->mesh));
    return SOTTO_OK;
}

/* Chooses the rounds of the dry run: those of the run, up to ROUNDS_TRIED. True if groups would
 * meet too seldom, and meet in every second round instead. */
static bool choose_rounds(struct sent_totals *t, struct traffic *out)
{
    const struct run_config *c = &t->run->config;
    const int64_t most = ROUNDS_TRIED / t->workers > 4 ? ROUNDS_TRIED / t->workers : 4;
    const int64_t rounds =
        budget_rounds(&c->train, &(struct budget_spent){0},
                      (int64_t)t->workers * c->strategy.accumulate * c->train.batch);
    t->every = out->every;
    t->ends = rounds <= most;
    t->rounds = t->ends ? rounds : most;
    if (t->async) { /* a group's first task, which others follow; at most as long as the run */
        out->every = rounds > 0 && rounds < t->every ? rounds : t->every;
        t->ends = false;
        t->plain = t->every > 1 ? 2 : 0;
        t->rounds = rounds > 0 ? 4 : 0;
    }
    const bool sooner = !t->ends && t->every > (t->async ? 1 : most);
    if (sooner)
        t->every = 2;
    if (!t->ends && t->every > 1)
        t->rounds -= t->rounds % t->every;
    return sooner;
}

/* Sets the option `key` so that groups meet in every second round. */
static enum sotto_status meet_sooner(struct strategy_config *c, const char *key)
{
    struct option_section sections[STRATEGY_SECTIONS];
    strategy_sections(c, sections);
    return option_set(sections, STRATEGY_SECTIONS, key, "2");
}

/* Makes the dry run. `sooner`: NULL, or the option for meet_sooner. */
static enum sotto_status dry_run_rounds(struct sent_totals *t, const char *sooner)
{
    const struct run *run = t->run;
    const bool model = run->config.train.oracle != ORACLE_NULL;
    struct dry_run dry = {.run = run,
                          .strategy = run->config.strategy,
                          .node = run->cluster.node,
                          .body = count_rounds_sent,
                          .arg = t,
                          .about = "trying what is sent: "};
    if (sooner)
        TRY(meet_sooner(&dry.strategy, sooner));
    t->of = calloc((size_t)t->workers, sizeof *t->of);
    t->start = model ? calloc(table_count(run->table), sizeof *t->start) : NULL;
    if (!t->of || (model && !t->start))
        return fail(SOTTO_ENOMEM, "no memory to account for %d workers", t->workers);
    strategy_dry_run(&dry.strategy, dry.strategy.groups);
    return dry_run_workers(&dry);
}

static double worker_mean(int64_t sum, int workers)
{
    return (double)sum / workers;
}

/* Sums the dry run. If groups met sooner there than in the run, the bytes of a meeting are spread
 * over the run's interval. */
static void sum_traffic(const struct sent_totals *t, struct traffic *out)
{
    struct sent_bytes all = {0}, plain = {0};
    for (int i = 0; i < t->workers; i++) {
        all.inside += t->of[i].all.inside;
        all.between += t->of[i].all.between;
        plain.inside += t->of[i].plain.inside;
        plain.between += t->of[i].plain.between;
    }
    const int workers = t->workers;
    const int64_t meetings = t->every > 1 ? t->rounds / t->every : 0;
    const double n = (double)t->rounds;
    out->inside = worker_mean(all.inside, workers) / n;
    out->between = worker_mean(all.between, workers) / n;
    if (meetings == 0)
        return;
    const double inside =
        worker_mean(all.inside - t->rounds * plain.inside, workers) / (double)meetings;
    const double between =
        worker_mean(all.between - t->rounds * plain.between, workers) / (double)meetings;
    out->meeting = inside + between;
    if (t->every == out->every)
        return;
    out->inside = worker_mean(plain.inside, workers) + inside / (double)out->every;
    out->between = worker_mean(plain.between, workers) + between / (double)out->every;
}

enum sotto_status traffic_of(const struct run *run, struct traffic *out, bool *known)
{
    const struct strategy_config *c = &run->config.strategy;
    struct sent_totals t = {.run = run, .workers = run->cluster.size, .async = strategy_async(c)};
    char key[OPTION_ROOM];
    bool meets;
    *out = (struct traffic){.every = strategy_every(c, key, &meets), .about = strategy_varies(c)};
    *known = t.async ? !strategy_elastic(c) : strategy_in_step(c) || out->every > 0;
    const bool sooner = choose_rounds(&t, out);
    if (t.rounds < 1 || !*known)
        return SOTTO_OK;
    const enum sotto_status st = dry_run_rounds(&t, sooner ? key : NULL);
    if (st == SOTTO_OK)
        sum_traffic(&t, out);
    free(t.of);
    free(t.start);
    return st;
}
