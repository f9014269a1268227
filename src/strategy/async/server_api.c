/* What a worker of group 0 does with its server. */
#include "strategy/async/server_api.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"

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

static double now(const struct async_service *v)
{
    return clock_now(v->lane->clock);
}

enum sotto_status service_report(struct async_service *v, const struct async_push *p)
{
    const struct async_entry *e = &v->server.journal.entry[v->server.version - 1];
    const struct applied_push one = {.number = v->server.version - 1,
                                     .group = p->group,
                                     .steps = e->span.steps,
                                     .staleness = v->server.version - 1 - e->version,
                                     .step = service_step(v),
                                     .tokens = p->tokens,
                                     .microbatches = p->microbatches,
                                     .loss = p->targets > 0 ? p->loss / (double)p->targets : 0,
                                     .seconds = p->seconds,
                                     .idle = p->idle,
                                     .cosine = v->cosine,
                                     .time = now(v)};
    enum sotto_status st = SOTTO_OK;
    pthread_mutex_lock(&v->lock);
    if (v->n == v->room) {
        const int64_t room = v->room ? 2 * v->room : 256;
        struct applied_push *more = realloc(v->pushed, (size_t)room * sizeof *more);
        if (more) {
            v->pushed = more;
            v->room = room;
        } else {
            st = fail(SOTTO_ENOMEM, "no memory to tell of %lld pushes", (long long)room);
        }
    }
    if (st == SOTTO_OK)
        v->pushed[v->n++] = one;
    pthread_mutex_unlock(&v->lock);
    return st;
}

bool service_pushed(struct async_service *v, struct applied_push *out)
{
    pthread_mutex_lock(&v->lock);
    const bool found = v->first < (v->held < 0 ? v->n : v->held);
    if (found)
        *out = v->pushed[v->first++];
    if (v->first == v->n && v->held < 0)
        v->first = v->n = 0;
    pthread_mutex_unlock(&v->lock);
    return found;
}

void service_hold(struct async_service *v, bool hold)
{
    pthread_mutex_lock(&v->lock);
    v->held = hold ? v->n : -1;
    pthread_mutex_unlock(&v->lock);
}

enum sotto_status service_start(struct async_service *v)
{
    if (v->started)
        return SOTTO_OK;
    v->started = true;
    return lane_start(v->lane, service_serve, v);
}

enum sotto_status service_begin(struct async_service *v, struct view x)
{
    outer_begin(&v->outer, x);
    v->alike.square = 0;
    return device_check(v->lane->dev);
}

struct view service_x0(const struct async_service *v)
{
    return v->outer.x0.view;
}

enum sotto_status service_write(const struct async_service *v, const char *path)
{
    return v->leads ? journal_write(&v->server.journal, path) : SOTTO_OK;
}

void service_pushed_by(const struct async_service *v, struct push_totals *group)
{
    for (int i = 0; v->leads && i < v->groups; i++) {
        const struct async_group *g = &v->server.group[i];
        group[i] = (struct push_totals){g->pushes, g->steps, g->staleness, g->seconds, g->idle};
    }
}

void service_count_due(struct async_service *v)
{
    if (v->setup->eval_every > 0)
        v->evaluated = service_step(v) / v->setup->eval_every;
    if (v->setup->save_every > 0)
        v->saved = service_step(v) / v->setup->save_every;
}

static const struct async_config *options(const struct async_service *v)
{
    return replicate_options(v->r);
}

double service_save_seconds(const struct async_service *v)
{
    const double own = options(v)->save_seconds, all = v->setup->save_seconds;
    return own > 0 && all > 0 ? fmin(own, all) : own + all;
}

void service_rest(struct async_service *v)
{
    server_rest(&v->server, now(v));
    v->eval_left = fmax(v->evaluates_at - now(v), 0);
    v->save_left = fmax(v->saves_at - now(v), 0);
}

void service_go_on(struct async_service *v)
{
    server_go_on(&v->server, now(v));
    v->evaluates_at = options(v)->eval_seconds > 0 ? now(v) + v->eval_left : INFINITY;
    v->saves_at = service_save_seconds(v) > 0 ? now(v) + v->save_left : INFINITY;
}

static enum sotto_status visit_left(struct state_visitor *visitor, const char *name, double *left,
                                    double at)
{
    double is = *left;
    if (state_loading(visitor) ? !state_has(visitor, name)
                               : at == INFINITY || state_hashing(visitor))
        return SOTTO_OK;
    TRY(state_within(visitor, name, &is, 0, 1e15));
    if (state_loading(visitor))
        *left = fmin(is, *left);
    return SOTTO_OK;
}

/* What may be lost with what is under way is made by the run that goes on. */
static enum sotto_status visit_evaluates(struct async_service *v, struct state_visitor *visitor)
{
    const bool loads = state_loading(visitor);
    int64_t any = 0;
    for (int i = 0; i < v->groups; i++)
        any |= v->evaluates[i];
    if (state_hashing(visitor) || (loads ? !state_has(visitor, "evaluates") : !any))
        return SOTTO_OK;
    TRY(state_ints(visitor, "evaluates", v->evaluates, (size_t)v->groups));
    for (int i = 0; loads && i < v->groups; i++)
        v->evaluates[i] = v->evaluates[i] ? EVALUATES_NEXT : EVALUATES_NOT;
    return SOTTO_OK;
}

enum sotto_status service_visit(struct async_service *v, struct state_visitor *visitor)
{
    TRY(outer_visit(&v->outer, visitor));
    if (v->outer.anew && v->leads && state_loading(visitor))
        log_info("going on with %s: the checkpoint's is of another async-diloco.outer, or N",
                 v->outer.anew);
    TRY(cosine_visit(&v->alike, visitor, v->r->is.table, v->r->is.own));
    if (!v->leads)
        return SOTTO_OK;
    if (state_loading(visitor) ? !state_has(visitor, "server.") : !v->begun)
        return SOTTO_OK; /* nothing was given out yet */
    TRY(state_enter(visitor, "server"));
    TRY(server_visit(&v->server, visitor));
    TRY(visit_evaluates(v, visitor));
    TRY(visit_left(visitor, "eval_left", &v->eval_left, v->evaluates_at));
    TRY(visit_left(visitor, "save_left", &v->save_left, v->saves_at));
    state_leave(visitor);
    if (!state_loading(visitor))
        return SOTTO_OK;
    v->begun = v->loaded = true;
    service_count_due(v);
    return SOTTO_OK;
}

static enum sotto_status init(struct async_service *v, const struct async_config *config)
{
    const struct replicate *r = v->r;
    const struct async_rules rules = async_rules_of(config, v->groups);
    const size_t K = (size_t)v->groups;
    const struct work on = work_in(r->is.mesh, v->lane);
    v->told = calloc(K, sizeof *v->told);
    v->put_off = calloc(K, sizeof *v->put_off);
    v->evaluates = calloc(K, sizeof *v->evaluates);
    v->among = calloc(K, sizeof *v->among);
    if (!v->told || !v->put_off || !v->evaluates || !v->among)
        return fail(SOTTO_ENOMEM, "no memory for %zu groups", K);
    TRY(outer_init(&v->outer, &rules, &on, r->is.table, r->is.own));
    const bool prunes = config->prune > 0;
    const enum dtype type = (enum dtype)config->dtype;
    TRY(buffer_init(&v->g, v->lane->dev, prunes ? DTYPE_F32 : type, r->count,
                    MEMORY_COMMUNICATION));
    if (config->cosine)
        TRY(buffer_init(&v->alike.last, v->lane->dev, DTYPE_F32, r->count, MEMORY_OUTER));
    v->cosine = NAN;
    if (prunes)
        TRY(sparse_init_message(&v->sparse, &on, r->is.table, r->is.own, config->prune, type));
    return v->leads ? server_init(&v->server, &rules, config->replay) : SOTTO_OK;
}

static void free_service(struct async_service *v)
{
    server_free(&v->server);
    outer_free(&v->outer);
    buffer_free(&v->g);
    buffer_free(&v->alike.last);
    sparse_free(&v->sparse);
    free(v->told);
    free(v->put_off);
    free(v->evaluates);
    free(v->among);
    free(v->pushed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

enum sotto_status service_open(struct async_service **out, struct replicate *r,
                               const struct async_setup *setup, struct comm *up, struct comm *down,
                               struct comm *within, struct lane *lane)
{
    struct async_service *v = calloc(1, sizeof *v);
    if (!v)
        return fail(SOTTO_ENOMEM, "no memory for a server");
    v->r = r;
    v->setup = setup;
    v->held = -1;
    v->evaluates_at = v->saves_at = INFINITY;
    v->eval_left = options(v)->eval_seconds;
    v->save_left = service_save_seconds(v);
    v->lane = lane;
    v->up = up;
    v->down = down;
    v->within = within;
    v->groups = r->is.mesh->n_r;
    v->leads = r->is.mesh->s == 0;
    pthread_mutex_init(&v->lock, NULL);
    const enum sotto_status st = init(v, options(v));
    if (st != SOTTO_OK)
        free_service(v);
    else
        *out = v;
    return st;
}

/* A run that was cut short may leave it waiting; where it has failed nothing is sent any more. */
enum sotto_status service_end(struct async_service *v, struct comm *up)
{
    struct up_word w = {.kind = UP_END};
    bool done = true;
    if (v->started)
        TRY(lane_done(v->lane, &done));
    if (done || !v->leads)
        return SOTTO_OK;
    TRY(comm_send(up, view_of(NULL, DTYPE_F32), 0, 0));
    return comm_send_bytes(up, &w, sizeof w, 0);
}

void service_close(struct async_service *v)
{
    if (v->started)
        (void)lane_wait(v->lane);
    free_service(v);
}
