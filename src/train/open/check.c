/* Refusals of a run's configuration: what differs from the model that training starts from, what
 * has no effect, and what does not fit the data or the folder. */
#include <string.h>

#include "base/option/only.h"
#include "nn/arch/image.h"
#include "train/open/open.h"

/* Fails if an option of `asked` that is not at its default differs from the loaded one. */
static enum sotto_status check_section(const struct option_section *asked, const void *loaded,
                                       const char *from)
{
    for (int i = 0; i < asked->count; i++) {
        const struct option *o = &asked->table[i];
        char room[2][OPTION_ROOM];
        const char *want = option_print(o, asked->config, room[0]);
        const char *have = option_print(o, loaded, room[1]);
        if (strcmp(o->key, "preset") == 0 || strcmp(want, o->preset) == 0 ||
            strcmp(want, have) == 0)
            continue;
        return fail(SOTTO_EINVAL, "%s.%s = %s, but the model in %s has %s", asked->name, o->key,
                    want, from, have);
    }
    return SOTTO_OK;
}

enum sotto_status check_model_sizes(struct model_config *asked, const struct model_config *loaded,
                                    const char *from)
{
    struct option_section sections[MODEL_SECTIONS];
    model_sections(asked, sections);
    TRY(check_section(&sections[0], loaded, from));
    const struct arch *arch = archs[loaded->arch];
    if (!arch->n_options)
        return SOTTO_OK;
    const struct option_section own = arch_section(asked, arch);
    return check_section(&own, arch_own(loaded, arch), from);
}

/* True if the user has set model.preset. */
static bool sets_preset(const struct model_config *m)
{
    for (int i = 0; i < model_options_count; i++)
        if (strcmp(model_options[i].key, "preset") == 0)
            return *m->preset && !option_is_default(&model_options[i], m);
    return false;
}

enum sotto_status check_model_preset(struct model_config asked, const struct model_config *loaded,
                                     const char *from)
{
    if (!sets_preset(&asked))
        return SOTTO_OK;
    TRY(model_config_resolve(&asked));
    asked.init_std = 0; /* training begins with loaded weights, and the data have classes */
    if (model_config_image(&asked))
        model_config_image(&asked)->classes = 0;
    return fail_in(check_model_sizes(&asked, loaded, from), "model.preset = %s, which has ",
                   asked.preset);
}

enum sotto_status check_computes(const struct train_config *t)
{
    if (strcmp(t->device, "null") == 0)
        return fail(SOTTO_EINVAL, "train.device = null computes nothing: it comes with "
                                  "train.oracle = null, which needs no data");
    return SOTTO_OK;
}

enum sotto_status check_length(const struct train_config *t, const struct model_config *m)
{
    const struct sample_kind *kind = model_config_kind(m);
    if (!kind->sequences && t->seq > 1)
        return fail(SOTTO_EINVAL, "train.seq = %d has no effect: the model reads %s", t->seq,
                    kind->noun);
    if (!kind->sequences && t->tokens)
        return fail(SOTTO_EINVAL,
                    "train.tokens = %lld: the model reads %s, which train.samples counts",
                    (long long)t->tokens, kind->noun);
    if (kind->sequences && t->seq > m->positions)
        return fail(SOTTO_EINVAL, "train.seq = %d is longer than the model's %d positions", t->seq,
                    m->positions);
    return SOTTO_OK;
}

enum sotto_status check_vocab(struct run *run)
{
    struct run_config *c = &run->config;
    int64_t vocab = run->tokenizer ? tokenizer_vocab_size(run->tokenizer) : 0;
    if (run->train->vocab > vocab)
        vocab = run->train->vocab;
    if (run->valid && run->valid->vocab > vocab)
        vocab = run->valid->vocab;
    if (!c->model.vocab)
        c->model.vocab = (int)vocab;
    if (vocab > c->model.vocab)
        return fail(
            SOTTO_EINVAL,
            "the data use a vocabulary of %lld tokens, the model has %d: raise model.vocab or "
            "choose another data.tokenizer",
            (long long)vocab, c->model.vocab);
    return SOTTO_OK;
}

enum sotto_status check_new_folder(const struct train_config *t)
{
    char checkpoint[FILE_PATH_ROOM];
    int64_t step;
    TRY(checkpoint_latest(t->out, &step, checkpoint));
    if (step < 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%s already holds a run of %lld steps: --resume continues it, another --out "
                "starts a new one",
                t->out, (long long)step);
}
