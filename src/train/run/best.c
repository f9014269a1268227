#include "train/run/best.h"

#include <float.h>
#include <math.h>

enum sotto_status best_check(const struct run_config *config, bool evaluates)
{
    const struct train_config *c = &config->train;
    char key[48], method[OPTION_ROOM];
    if (!best_wanted(c))
        return SOTTO_OK;
    snprintf(key, sizeof key, "train.keep_best = true");
    if (c->patience > 0)
        snprintf(key, sizeof key, "train.patience = %lld", (long long)c->patience);
    strategy_describe(&config->strategy, method);
    if (strategy_async(&config->strategy))
        return fail(SOTTO_EINVAL,
                    "%s: each group of %s evaluates what it has just pulled, when others have "
                    "already gone on, so there is no step of all workers to keep or to end with",
                    key, method);
    if (!evaluates)
        return fail(SOTTO_EINVAL,
                    "%s goes by the held-out loss, and there are no held-out data: "
                    "data.valid names some, data.holdout takes a share",
                    key);
    if (c->eval_every == 0 && !(c->eval_seconds > 0))
        return fail(SOTTO_EINVAL,
                    "%s compares evaluations, and there is one, at the end: "
                    "train.eval_every = N makes one each N rounds",
                    key);
    if (c->keep_best && !c->save)
        return fail(SOTTO_EINVAL, "train.keep_best = true, but train.save = false keeps nothing");
    return SOTTO_OK;
}

enum sotto_status best_judge(struct best *b, struct comm *world, int64_t step, double loss)
{
    double judged = world->rank == 0 ? loss : 0;
    TRY(comm_sum(world, &judged, 1));
    if (isfinite(judged) && (b->step == 0 || judged < b->loss))
        *b = (struct best){judged, step, b->ends ? b->since : 0, b->ends};
    else if (b->step < step && !b->ends) /* a resumed run evaluates its first step again */
        b->since++;
    return SOTTO_OK;
}

enum sotto_status best_visit(struct best *b, struct state_visitor *v, bool wanted)
{
    if (state_loading(v) ? !state_has(v, "best.step") : !wanted)
        return SOTTO_OK;
    TRY(state_enter(v, "best"));
    TRY(state_count(v, "step", &b->step, STATE_STEPS));
    TRY(state_count(v, "since", &b->since, STATE_STEPS));
    TRY(state_count(v, "ends", &b->ends, STATE_STEPS));
    TRY(state_within(v, "loss", &b->loss, -DBL_MAX, DBL_MAX));
    state_leave(v);
    return SOTTO_OK;
}

enum sotto_status best_folder(const char *run, char out[FILE_PATH_ROOM])
{
    return file_join(out, run, "best");
}

/* Fails if a run was resumed in the folder of the best checkpoint: its work must not be lost. */
static enum sotto_status check_unused(const char *folder, int64_t step)
{
    char newest[FILE_PATH_ROOM];
    int64_t there;
    TRY(checkpoint_latest(folder, &there, newest));
    return there <= step
               ? SOTTO_OK
               : fail(SOTTO_EINVAL, "%s has %s of a run that was resumed there", folder, newest);
}

enum sotto_status best_keep(const struct checkpoint *c)
{
    char folder[FILE_PATH_ROOM];
    struct rundir dir;
    TRY(best_folder(c->run->path, folder));
    TRY(rundir_open(&dir, folder));
    enum sotto_status st = check_unused(folder, c->step);
    if (st == SOTTO_OK)
        st = checkpoint_copy(c, &dir, 1);
    rundir_close(&dir);
    return st;
}
