/* Opening a run's data, and the tokenizer that goes with them and with the model. */
#include <string.h>

#include "base/log.h"
#include "train/loaded.h"
#include "train/run.h"

/* A tokenizer named nowhere comes with the model that training starts from. A checkpoint's is the
 * one that the run began with, whatever has become of the file that was named then. */
static enum sotto_status find_tokenizer(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    const bool comes_along = run->own_tokenizer || (*from && !*c->tokenizer && tokenizer_in(from));
    if (c->vocab && (*c->tokenizer || (comes_along && !run->own_tokenizer)))
        return fail(SOTTO_EINVAL,
                    "data.vocab = %d has no effect beside the tokenizer in %s: it is for one that "
                    "is trained on the data",
                    c->vocab, *c->tokenizer ? c->tokenizer : from);
    strcpy(run->tokenizer_from, comes_along ? from : c->tokenizer);
    return SOTTO_OK;
}

/* Where training starts from a model, a new tokenizer would give ids that mean nothing to it. */
static enum sotto_status open_tokenizer(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    if (!*run->tokenizer_from)
        return *from ? SOTTO_OK : loader_tokenizer(&run->tokenizer, c);
    TRY(tokenizer_open(&run->tokenizer, run->tokenizer_from));
    if (!*from || strcmp(run->tokenizer_from, from) == 0)
        return SOTTO_OK;
    return loaded_check_tokenizer(run->tokenizer, run->tokenizer_from, from);
}

/* Data that are tokens already do not need the tokenizer that came with the model, should it be of
 * a kind that is not known here; its files go out again all the same. */
static enum sotto_status open_train(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    struct status_note cause;
    enum sotto_status unknown = open_tokenizer(run, from);
    if (unknown != SOTTO_OK && (!*from || strcmp(run->tokenizer_from, from) != 0))
        return unknown;
    status_save(&cause, unknown);
    enum sotto_status st = loader_open(&run->train, c, DATA_TRAIN, run->tokenizer);
    if (unknown == SOTTO_OK)
        return st;
    status_raise(&cause);
    if (st != SOTTO_OK)
        return unknown;
    if (run->cluster.leads)
        log_warn("training goes without the model's tokenizer, since the data are tokens: %s",
                 sotto_error());
    return SOTTO_OK;
}

enum sotto_status run_open_data(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    TRY(find_tokenizer(run, from));
    TRY(open_train(run, from));
    if (*c->valid)
        return loader_open(&run->valid, c, DATA_VALID, run->tokenizer);
    return c->holdout > 0 ? loader_open_rest(&run->valid, run->train) : SOTTO_OK;
}
