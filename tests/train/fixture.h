/* What tests of whole runs begin with: tokens to train on, and a configuration. */
#ifndef SOTTO_TESTS_TRAIN_FIXTURE_H
#define SOTTO_TESTS_TRAIN_FIXTURE_H

#include "nn/tiny.h"

#include "data/text/token_files.h"
#include "train/config/config.h"

/* A pattern with some noise in it, so that there is something to learn. */
static inline void write_tokens(const char *path, int count, int vocab)
{
    struct rng rng = rng_make(9, 9);
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < count; i++)
        ids[i] = rng_uniform(&rng) < 0.2 ? (int32_t)rng_below(&rng, (uint64_t)vocab)
                                         : (i * 3 + i / 7) % vocab;
    assert_ok(tokens_save(path, ids, count, vocab));
    free(ids);
}

/* A set-up of cmocka's: scratch/data.tok, the data of configure_run. */
static inline int make_data(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    write_tokens(at("data.tok"), 4000, 29);
    return 0;
}

/* "section.key=value" */
static inline void set(struct run_config *c, const char *assignment)
{
    struct option_section sections[RUN_SECTIONS];
    char key[OPTION_ROOM];
    const char *value = strchr(assignment, '=');
    assert_non_null(value);
    snprintf(key, sizeof key, "%.*s", (int)(value - assignment), assignment);
    run_sections(c, sections);
    assert_ok(option_set(sections, RUN_SECTIONS, key, value + 1));
}

/* Up to a NULL, or `most` of them. */
static inline void set_all(struct run_config *c, const char *const *options, size_t most)
{
    for (size_t i = 0; options && i < most && options[i]; i++)
        set(c, options[i]);
}

/* The defaults, with the run in scratch/`out` and the data of make_data. */
static inline struct run_config configure_run(const char *out)
{
    struct run_config c;
    struct option_section sections[RUN_SECTIONS];
    memset(&c, 0, sizeof c);
    run_sections(&c, sections);
    option_defaults(sections, RUN_SECTIONS);
    strcpy(c.train.out, at(out));
    strcpy(c.data.train, at("data.tok"));
    strcpy(c.train.device, test_device());
    return c;
}

#endif
