/* Loss over held-out data. */
#ifndef SOTTO_HF_EVALUATE_H
#define SOTTO_HF_EVALUATE_H

#include "data/loader.h"
#include "nn/tape.h"

struct evaluation {
    double loss; /* mean over targets; perplexity = exp(loss) */
    int64_t targets;
    int64_t hits; /* targets that were the most likely token or class */
    int64_t near; /* targets that were among the five most likely */
    enum sample_content content;
};

/* Returns the figure with the key `score` of struct sample_kind: perplexity, or the share of
 * `near`. */
double evaluation_score(const struct evaluation *e);

/* The micro-batches of `rows` x `t` to evaluate, in order: up to `batches` (0: all), spread evenly
 * over the data. Of these every `parts`-th from `part` on, so that several workers share the work.
 */
struct evaluation_range {
    int rows, t;
    enum dtype activations;
    struct view state; /* untrained state of the model */
    int64_t batches;
    int part, parts;
    const struct evaluation_watch *watch; /* (optional) */
};

/* Progress reports: after each micro-batch of this part, or after each text (in bytes of the file).
 */
struct evaluation_watch {
    void (*tell)(void *arg, int64_t done, int64_t of, double loss); /* `loss`: mean so far */
    void *arg;
};

enum sotto_status evaluate(const struct model *model, struct device *dev, struct pool *pool,
                           const struct view *theta, const struct loader *loader,
                           struct evaluation_range range, struct evaluation *out);

enum sotto_status evaluation_check(const struct evaluation *e); /* fails without targets */

struct last_word {
    double loss;          /* mean negative log-probability of the last words */
    int64_t words, right; /* right: every token of the word was the most likely */
};

/* A model, and the texts to predict the last words of: lines of JSON with the text as member `key`.
 */
struct last_word_setup {
    const struct model *model;
    struct device *dev;
    struct pool *pool;
    const struct view *theta; /* (n_stage) */
    const struct tokenizer *tokenizer;
    enum dtype activations;
    const char *path, *key;
    const struct evaluation_watch *watch; /* (optional) */
};

/* Evaluates LAMBADA's task: predicting the last word of each text. */
enum sotto_status evaluate_last_words(const struct last_word_setup *setup, struct last_word *out);

#endif
