/* The state of the server: what is due, the pushes applied so far, and the state in a checkpoint.
 */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "strategy/async/server.h"

enum { PUSHES_ROOM = 256 }; /* entries at first */

struct async_rules async_rules_of(const struct async_config *c, int groups)
{
    return (struct async_rules){.outer = c->outer,
                                .outer_lr = c->outer_lr,
                                .outer_momentum = c->outer_momentum,
                                .N = c->N,
                                .c = c->c,
                                .weight = c->weight,
                                .staleness = c->staleness,
                                .dylu = c->dylu,
                                .grace = c->grace,
                                .H = c->H,
                                .groups = groups,
                                .steps = STATE_STEPS};
}

enum sotto_status server_report_push(struct async_server *s, const struct async_push *p)
{
    const struct async_entry *e = &s->ledger.journal.entry[s->ledger.version - 1];
    const struct applied_push push = {.number = s->ledger.version - 1,
                                      .group = p->group,
                                      .steps = e->span.steps,
                                      .staleness = s->ledger.version - 1 - e->version,
                                      .step = server_step(s),
                                      .tokens = p->tokens,
                                      .microbatches = p->microbatches,
                                      .loss = p->targets > 0 ? p->loss / (double)p->targets : 0,
                                      .seconds = p->seconds,
                                      .idle = p->idle,
                                      .cosine = s->cosine,
                                      .time = server_now(s)};
    enum sotto_status st = SOTTO_OK;
    pthread_mutex_lock(&s->applied.lock);
    if (s->applied.n == s->applied.room) {
        const int64_t room = s->applied.room ? 2 * s->applied.room : PUSHES_ROOM;
        struct applied_push *more = realloc(s->applied.push, (size_t)room * sizeof *more);
        if (more) {
            s->applied.push = more;
            s->applied.room = room;
        } else {
            st = fail(SOTTO_ENOMEM, "no memory to report %lld pushes", (long long)room);
        }
    }
    if (st == SOTTO_OK)
        s->applied.push[s->applied.n++] = push;
    pthread_mutex_unlock(&s->applied.lock);
    return st;
}

bool server_take_push(struct async_server *s, struct applied_push *out)
{
    pthread_mutex_lock(&s->applied.lock);
    const bool found = s->applied.first < (s->applied.held < 0 ? s->applied.n : s->applied.held);
    if (found)
        *out = s->applied.push[s->applied.first++];
    if (s->applied.first == s->applied.n && s->applied.held < 0)
        s->applied.first = s->applied.n = 0;
    pthread_mutex_unlock(&s->applied.lock);
    return found;
}

void server_hold_pushes(struct async_server *s, bool hold)
{
    pthread_mutex_lock(&s->applied.lock);
    s->applied.held = hold ? s->applied.n : -1;
    pthread_mutex_unlock(&s->applied.lock);
}

void server_skip_due(struct async_server *s)
{
    if (s->setup->eval_every > 0)
        s->due.evaluated = server_step(s) / s->setup->eval_every;
    if (s->setup->save_every > 0)
        s->due.saved = server_step(s) / s->setup->save_every;
}

void server_pause(struct async_server *s)
{
    const double now = server_now(s);
    ledger_pause(&s->ledger, now);
    s->due.eval_left = fmax(s->due.evaluates_at - now, 0);
    s->due.save_left = fmax(s->due.saves_at - now, 0);
}

void server_continue(struct async_server *s)
{
    const double now = server_now(s);
    ledger_continue(&s->ledger, now);
    s->due.evaluates_at = s->setup->eval_seconds > 0 ? now + s->due.eval_left : INFINITY;
    s->due.saves_at = s->setup->save_seconds > 0 ? now + s->due.save_left : INFINITY;
}

static enum sotto_status visit_time_left(struct state_visitor *v, const char *name, double *left,
                                         double at)
{
    double saved = *left;
    if (state_loading(v) ? !state_has(v, name) : at == INFINITY || state_hashing(v))
        return SOTTO_OK;
    TRY(state_within(v, name, &saved, 0, 1e15));
    if (state_loading(v))
        *left = fmin(saved, *left);
    return SOTTO_OK;
}

/* Visits due evaluations. An evaluation that may be in progress is due again in the resumed run. */
static enum sotto_status visit_evaluates(struct async_server *s, struct state_visitor *v)
{
    const bool loads = state_loading(v);
    int64_t any = 0;
    for (int i = 0; i < s->groups; i++)
        any |= s->due.evaluates[i];
    if (state_hashing(v) || (loads ? !state_has(v, "evaluates") : !any))
        return SOTTO_OK;
    TRY(state_ints(v, "evaluates", s->due.evaluates, (size_t)s->groups));
    for (int i = 0; loads && i < s->groups; i++)
        s->due.evaluates[i] = s->due.evaluates[i] ? EVALUATES_NEXT : EVALUATES_NOT;
    return SOTTO_OK;
}

enum sotto_status server_visit(struct async_server *s, struct state_visitor *v)
{
    TRY(outer_visit(&s->outer, v));
    if (s->outer.reset && s->leads && state_loading(v))
        log_info("the run continues with %s: the checkpoint has another async-diloco.outer, or N",
                 s->outer.reset);
    TRY(cosine_visit(&s->last_push, v, s->r->is.table, s->r->is.own));
    if (!s->leads)
        return SOTTO_OK;
    if (state_loading(v) ? !state_has(v, "server.") : !s->begun)
        return SOTTO_OK; /* no task was given out yet */
    TRY(state_enter(v, "server"));
    TRY(ledger_visit(&s->ledger, v));
    TRY(visit_evaluates(s, v));
    TRY(visit_time_left(v, "eval_left", &s->due.eval_left, s->due.evaluates_at));
    TRY(visit_time_left(v, "save_left", &s->due.save_left, s->due.saves_at));
    state_leave(v);
    if (!state_loading(v))
        return SOTTO_OK;
    s->begun = s->loaded = true;
    server_skip_due(s);
    return SOTTO_OK;
}

enum sotto_status server_init(struct async_server *s)
{
    const struct replicate *r = s->r;
    const struct async_config *config = server_options(s);
    const struct async_rules rules = async_rules_of(config, s->groups);
    const size_t K = (size_t)s->groups;
    const struct work on = work_in(r->is.mesh, s->lane);
    s->meeting.deferred = calloc(K, sizeof *s->meeting.deferred);
    s->meeting.postponed = calloc(K, sizeof *s->meeting.postponed);
    s->due.evaluates = calloc(K, sizeof *s->due.evaluates);
    s->accepts = calloc(K, sizeof *s->accepts);
    if (!s->meeting.deferred || !s->meeting.postponed || !s->due.evaluates || !s->accepts)
        return fail(SOTTO_ENOMEM, "no memory for %zu groups", K);
    TRY(outer_init(&s->outer, &rules, &on, r->is.table, r->is.own));
    const bool prunes = config->prune > 0;
    const enum dtype type = (enum dtype)config->dtype;
    TRY(buffer_init(&s->g, s->lane->dev, prunes ? DTYPE_F32 : type, r->count,
                    MEMORY_COMMUNICATION));
    if (config->cosine)
        TRY(buffer_init(&s->last_push.last, s->lane->dev, DTYPE_F32, r->count, MEMORY_OUTER));
    s->cosine = NAN;
    if (prunes)
        TRY(sparse_init_message(&s->sparse, &on, r->is.table, r->is.own, config->prune, type));
    return s->leads ? ledger_init(&s->ledger, &rules, config->replay) : SOTTO_OK;
}

void server_free(struct async_server *s)
{
    ledger_free(&s->ledger);
    outer_free(&s->outer);
    buffer_free(&s->g);
    buffer_free(&s->last_push.last);
    sparse_free(&s->sparse);
    free(s->meeting.deferred);
    free(s->meeting.postponed);
    free(s->due.evaluates);
    free(s->accepts);
    free(s->applied.push);
    pthread_mutex_destroy(&s->applied.lock);
    free(s);
}
