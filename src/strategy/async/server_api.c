/* The server, as its worker in group 0 uses it. */
#include <math.h>
#include <stdlib.h>

#include "strategy/async/server.h"

enum sotto_status server_open(struct async_server **out, struct replicate *r,
                              const struct async_setup *setup, struct comm *from_groups,
                              struct comm *to_groups, struct comm *within, struct lane *lane)
{
    struct async_server *s = calloc(1, sizeof *s);
    if (!s)
        return fail(SOTTO_ENOMEM, "no memory for a server");
    s->r = r;
    s->setup = setup;
    s->lane = lane;
    s->from_groups = from_groups;
    s->to_groups = to_groups;
    s->within = within;
    s->groups = r->is.mesh->n_r;
    s->leads = r->is.mesh->s == 0;
    s->due.evaluates_at = s->due.saves_at = INFINITY;
    s->due.eval_left = setup->eval_seconds;
    s->due.save_left = setup->save_seconds;
    s->applied.held = -1;
    pthread_mutex_init(&s->applied.lock, NULL);
    const enum sotto_status st = server_init(s);
    if (st != SOTTO_OK)
        server_free(s);
    else
        *out = s;
    return st;
}

enum sotto_status server_start(struct async_server *s)
{
    if (s->started)
        return SOTTO_OK;
    s->started = true;
    return lane_start(s->lane, server_run, s);
}

enum sotto_status server_set_x0(struct async_server *s, struct view x)
{
    outer_set_x0(&s->outer, x);
    s->last_push.square = 0;
    return device_check(s->lane->dev);
}

struct view server_x0(const struct async_server *s)
{
    return s->outer.x0.view;
}

enum sotto_status server_write_journal(const struct async_server *s, const char *path)
{
    return s->leads ? journal_write(&s->ledger.journal, path) : SOTTO_OK;
}

void server_totals(const struct async_server *s, struct push_totals *group)
{
    for (int i = 0; s->leads && i < s->groups; i++) {
        const struct async_group *g = &s->ledger.group[i];
        group[i] = (struct push_totals){g->pushes, g->steps, g->staleness, g->seconds, g->idle};
    }
}

/* After a run that was interrupted the job may still wait; after a failure no message is sent. */
enum sotto_status server_end(struct async_server *s, struct comm *to_server)
{
    struct group_msg m = {.kind = GROUP_MSG_END};
    bool done = true;
    if (s->started)
        TRY(lane_done(s->lane, &done));
    if (done || !s->leads)
        return SOTTO_OK;
    TRY(comm_send(to_server, view_of(NULL, DTYPE_F32), 0, 0));
    return comm_send_bytes(to_server, &m, sizeof m, 0);
}

void server_close(struct async_server *s)
{
    if (s->started)
        (void)lane_wait(s->lane);
    server_free(s);
}
