#include "train/plan/traffic.h"

#include <stdlib.h>

#include "train/config/budget.h"
#include "train/plan/dry_run.h"

/* Rounds of all workers together that are tried: some seconds. */
enum { ROUNDS_TRIED = 1 << 15 };

struct sent {
    int64_t inside, between;
};

struct tally {
    const struct train_config *config;
    int64_t rounds; /* to be tried                              */
    bool ends;      /* the last of them is the last of the run  */
    int64_t plain;  /* what this round sends is sent in every one */
    bool async;     /* groups have a server, which sends in time of its own */
    float *start;   /* parameters that all have; NULL: the null oracle has none */
    struct {
        struct sent plain, all; /* in that round, in all of them */
    } * of;                     /* (workers) */
};

static struct sent sent_by(const struct mesh *mesh)
{
    const struct mesh_account own = mesh_account_own(mesh), lanes = mesh_account_lanes(mesh);
    return (struct sent){own.inside + lanes.inside, own.between + lanes.between};
}

static struct sent since(struct sent before, struct sent now)
{
    return (struct sent){now.inside - before.inside, now.between - before.between};
}

/* Nothing is under way between the groups and their server. */
static enum sotto_status all_answered(const struct trial_seat *seat, struct sent *sent)
{
    TRY(comm_barrier(seat->mesh->worker->world));
    *sent = sent_by(seat->mesh);
    return SOTTO_OK;
}

/* Rounds as a run asks for them. */
static enum sotto_status try_rounds(const struct trial_seat *seat, void *arg)
{
    struct tally *t = arg;
    const int rank = seat->mesh->worker->rank;
    const int64_t log = t->config->log_every;
    if (t->start)
        TRY(seat->s->ops->import(seat->s, t->start));
    const struct sent begin = sent_by(seat->mesh);
    struct sent before = begin;
    for (int64_t i = 0; i < t->rounds; i++) {
        struct round round;
        const bool last = t->ends && i + 1 == t->rounds;
        const struct plan plan = {.lr = 1,
                                  .next_lr = 1,
                                  .want_norm = last || (log > 0 && (i + 1) % log == 0),
                                  .step = i,
                                  .last = last};
        if (t->async && i == t->plain)
            TRY(all_answered(seat, &before));
        TRY(seat->s->ops->round(seat->s, &plan, &round));
        if (i == t->plain)
            t->of[rank].plain = since(before, sent_by(seat->mesh));
    }
    if (t->async)
        TRY(all_answered(seat, &before));
    if (seat->s->ops->settle)
        TRY(seat->s->ops->settle(seat->s));
    TRY(mesh_rest(seat->mesh));
    t->of[rank].all = since(begin, sent_by(seat->mesh));
    return SOTTO_OK;
}

/* Groups that meet more seldom than rounds can be tried meet in every second one. */
static enum sotto_status meet_sooner(struct strategy_config *c, const char *key)
{
    struct option_section sections[STRATEGY_SECTIONS];
    strategy_sections(c, sections);
    return option_set(sections, STRATEGY_SECTIONS, key, "2");
}

static double mean(int64_t sum, int workers)
{
    return (double)sum / workers;
}

static void add_up(const struct tally *t, int workers, int64_t every, struct traffic *out)
{
    struct sent all = {0}, plain = {0};
    for (int i = 0; i < workers; i++) {
        all.inside += t->of[i].all.inside;
        all.between += t->of[i].all.between;
        plain.inside += t->of[i].plain.inside;
        plain.between += t->of[i].plain.between;
    }
    const int64_t meetings = every > 1 ? t->rounds / every : 0;
    const double n = (double)t->rounds;
    out->inside = mean(all.inside, workers) / n;
    out->between = mean(all.between, workers) / n;
    if (meetings == 0)
        return;
    const double inside = mean(all.inside - t->rounds * plain.inside, workers) / (double)meetings;
    const double between =
        mean(all.between - t->rounds * plain.between, workers) / (double)meetings;
    out->meeting = inside + between;
    if (every == out->every)
        return;
    out->inside = mean(plain.inside, workers) + inside / (double)out->every;
    out->between = mean(plain.between, workers) + between / (double)out->every;
}

enum sotto_status traffic_of(const struct run *run, struct traffic *out, bool *known)
{
    const struct run_config *c = &run->config;
    const int workers = run->cluster.size;
    struct tally t = {.config = &c->train};
    struct trial trial = {.run = run,
                          .strategy = c->strategy,
                          .node = run->cluster.node,
                          .body = try_rounds,
                          .arg = &t,
                          .about = "trying what is sent: "};
    char key[OPTION_ROOM];
    bool meets;
    *out = (struct traffic){.every = strategy_every(&c->strategy, key, &meets)};
    out->about = strategy_varies(&c->strategy);
    t.async = strategy_async(&c->strategy);
    *known = t.async ? !strategy_elastic(&c->strategy)
                     : strategy_in_step(&c->strategy) || out->every > 0;
    const int64_t most = ROUNDS_TRIED / workers > 4 ? ROUNDS_TRIED / workers : 4;
    const int64_t rounds =
        budget_rounds(&c->train, &(struct budget_spent){0},
                      (int64_t)workers * c->strategy.accumulate * c->train.batch);
    int64_t every = out->every;
    t.ends = rounds <= most;
    t.rounds = t.ends ? rounds : most;
    if (t.async) { /* as the first task is followed by others; one is not longer than the run */
        out->every = rounds > 0 && rounds < every ? rounds : every;
        t.ends = false;
        t.plain = every > 1 ? 2 : 0;
        t.rounds = rounds > 0 ? 4 : 0;
    }
    if (!t.ends && every > (t.async ? 1 : most)) {
        TRY(meet_sooner(&trial.strategy, key));
        every = 2;
    }
    if (!t.ends && every > 1)
        t.rounds -= t.rounds % every;
    if (t.rounds < 1 || !*known)
        return SOTTO_OK;
    const bool model = c->train.oracle != ORACLE_NULL;
    t.of = calloc((size_t)workers, sizeof *t.of);
    t.start = model ? calloc(table_count(run->table), sizeof *t.start) : NULL;
    enum sotto_status st = SOTTO_OK;
    if (!t.of || (model && !t.start))
        st = fail(SOTTO_ENOMEM, "no memory to account for %d workers", workers);
    strategy_trial(&trial.strategy, trial.strategy.groups);
    if (st == SOTTO_OK)
        st = trial_run(&trial);
    if (st == SOTTO_OK)
        add_up(&t, workers, every, out);
    free(t.of);
    free(t.start);
    return st;
}
