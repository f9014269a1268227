/* The parts of opening a run, which open_run.c calls in their order: open_model.c (the model's
 * configuration, stages and parameters), open_data.c, open_head.c (the classifier of a model over
 * images), check.c (refusals). `from` is the folder of the model that training starts from: the
 * checkpoint, or train.init; "": none. */
#ifndef SOTTO_TRAIN_OPEN_OPEN_H
#define SOTTO_TRAIN_OPEN_OPEN_H

#include "train/run/run.h"

/* Sets the model's configuration, before the data are open: the model says which data suit. */
enum sotto_status open_model_config(struct run *run, const char *from, bool resumed);

/* Opens the tokenizer, the data to train on, and the data that are held out. */
enum sotto_status run_open_data(struct run *run, const char *from);

/* Opens the model in its stages, once the data are open. */
enum sotto_status open_run_model(struct run *run);

/* Opens a run of train.oracle = null: sizes and times, without data and parameters. */
enum sotto_status open_null_run(struct run *run);

/* Makes or reads the parameters that all workers begin with, and on rank 0 opens run->folder. */
enum sotto_status open_run_start(struct run *run, const char *from);

/* The classifier, in the order of the calls. Takes the number of classes that the user asked for
 * out of `asked`, since the model may have another number; says how the data number their classes
 * if the model has `names`; sets the number of classes, once the data are open; and says whether
 * the classifier is made from the seed, once the model is. */
void run_ask_classes(struct run *run, struct model_config *asked);
enum images_naming run_naming(const struct run *run, const struct class_names *names);
enum sotto_status run_fit_classes(struct run *run, const struct class_names *names);
enum sotto_status run_choose_head(struct run *run, const char *from);

/* Write into run->folder how images are made, unless `from` says the same, and what the classes are
 * called. */
enum sotto_status run_describe_images(struct run *run, const char *from);
enum sotto_status run_describe_classes(struct run *run);

/* Fails if sizes that the user has set differ from those of the model in `from`, ... */
enum sotto_status check_model_sizes(struct model_config *asked, const struct model_config *loaded,
                                    const char *from);
/* ... or if those of the preset that the user has set do. */
enum sotto_status check_model_preset(struct model_config asked, const struct model_config *loaded,
                                     const char *from);

/* Fails for train.device = null, which computes nothing, with an oracle that computes. */
enum sotto_status check_computes(const struct train_config *t);

/* Fails for a length that the model's samples do not have, or that exceeds its positions. */
enum sotto_status check_length(const struct train_config *t, const struct model_config *m);

/* Sets the model's vocabulary if it is open, and fails if the data have larger tokens. */
enum sotto_status check_vocab(struct run *run);

/* Fails if the folder of a new run holds a run already. */
enum sotto_status check_new_folder(const struct train_config *t);

#endif
