/* The classifier of a model over images that training starts from: kept if the model and the data
 * have the same number of classes, else made from the seed, as transformers does with
 * ignore_mismatched_sizes. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/image/images.h"
#include "hf/weights.h"
#include "nn/arch/image.h"
#include "train/open/open.h"

void run_ask_classes(struct run *run, struct model_config *asked)
{
    const struct image_sizes *loaded = model_config_image(&run->config.model);
    if (!loaded)
        return;
    struct image_sizes *said = archs[run->config.model.arch]->image(asked);
    run->head.loaded = loaded->classes;
    run->head.wanted = said->classes;
    said->classes = 0;
}

/* Returns how the data number their classes. A resumed run keeps its names; a classifier that is
 * kept may have names for all of the data's classes. */
enum images_naming run_naming(const struct run *run, const struct class_names *names)
{
    const int head = run->config.train.head;
    if (names->n == 0 || (!*run->checkpoint && head == HEAD_NEW))
        return NAMING_OWN;
    if (head == HEAD_KEEP)
        return NAMING_KNOWN;
    return *run->checkpoint ? NAMING_ONLY : NAMING_SAME;
}

/* Fails if the model has names for some of the data's classes only: classes could be numbered
 * neither by the model's names nor by the data's. */
static enum sotto_status check_kept_head(const struct image_set *set,
                                         const struct class_names *names)
{
    int known = -1, other = -1;
    if (!set->names || !names->n)
        return SOTTO_OK;
    for (int i = 0; i < set->classes; i++)
        *(class_names_find(names, set->names[i]) < 0 ? &other : &known) = i;
    if (known < 0 || other < 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "train.head = keep: the model has the data's class '%.80s' and has no '%.80s', so "
                "that they would be numbered neither by its names nor by their own",
                set->names[known], set->names[other]);
}

static void warn_of_fewer(const struct run *run, const struct image_set *set)
{
    struct model_config config = run->config.model;
    const int classes = model_config_image(&config)->classes;
    const bool others = run->before && strcmp(run->before->data.train, run->config.data.train) != 0;
    if (run->cluster.leads && others && set->classes < classes)
        log_warn("the data have %d classes, the model has %d: the data's classes are the first of "
                 "the model",
                 set->classes, classes);
}

enum sotto_status run_fit_classes(struct run *run, const struct class_names *names)
{
    struct image_sizes *s = model_config_image(&run->config.model);
    const int head = run->config.train.head, loaded = run->head.loaded, wanted = run->head.wanted;
    if (head == HEAD_KEEP)
        TRY(check_kept_head(images_set(run->train), names));
    else if (*run->checkpoint)
        warn_of_fewer(run, images_set(run->train));
    if (!loaded)
        return SOTTO_OK;
    if (head == HEAD_KEEP && wanted && wanted != loaded)
        return fail(SOTTO_EINVAL,
                    "train.head = keep, but %d classes are set and the model in %s has %d", wanted,
                    run->config.train.init, loaded);
    if (head != HEAD_KEEP)
        s->classes = wanted ? wanted : images_set(run->train)->classes;
    run->head.fresh = head == HEAD_NEW || s->classes != loaded;
    return SOTTO_OK;
}

enum sotto_status run_choose_head(struct run *run, const char *from)
{
    const int head = run->config.train.head, loaded = run->head.loaded;
    bool have = true;
    if (!loaded)
        return SOTTO_OK;
    if (head != HEAD_KEEP && run->cluster.leads)
        TRY(weights_have_classifier(&run->model, from, &have));
    if (head != HEAD_KEEP && run->cluster.mpi)
        TRY(comm_broadcast(run->cluster.mpi, view_of(&have, DTYPE_U8), sizeof have, 0));
    run->head.fresh |= !have;
    if (!run->head.fresh || !run->cluster.leads)
        return SOTTO_OK;
    const int now = model_config_image(&run->config.model)->classes;
    if (!have)
        log_info("a classifier of %d classes is made: the model in %s has none", now, from);
    else if (now != loaded)
        log_info("the classifier is new, of %d classes: the model in %s has %d", now, from, loaded);
    else
        log_info("the classifier is new, of %d classes, since train.head = new", now);
    return SOTTO_OK;
}

/* Returns the first class with another name in config.json, or -1. */
static int find_renamed(const json_t *config, const struct image_set *set)
{
    for (int i = 0; i < set->classes; i++) {
        const char *name = image_class_name(config, i);
        if (!name || strcmp(name, set->names[i]) != 0)
            return i;
    }
    return -1;
}

/* Names the first classes as the data do; the other classes keep their names. */
static enum sotto_status name_first(struct run *run, const struct image_set *set, int classes)
{
    char **names = calloc((size_t)classes, sizeof *names);
    if (!names)
        return fail(SOTTO_ENOMEM, "no memory for %d names", classes);
    for (int i = 0; i < classes; i++) {
        const char *theirs = image_class_name(run->folder.config, i);
        names[i] = i < set->classes ? set->names[i] : (char *)theirs; /* only read */
    }
    const enum sotto_status st = hf_folder_set_classes(&run->folder, &run->model, names, classes);
    free(names);
    return st;
}

static bool has_class_names(const json_t *config, int classes)
{
    for (int i = 0; i < classes; i++)
        if (image_class_name(config, i))
            return true;
    return false;
}

enum sotto_status run_describe_classes(struct run *run)
{
    const struct image_set *set = images_set(run->train);
    const json_t *config = run->folder.config;
    const int classes = model_config_image(&run->config.model)->classes;
    const bool named = set->names && set->classes == classes;
    const int other = named ? find_renamed(config, set) : -1;
    const char *theirs = other >= 0 ? image_class_name(config, other) : NULL;
    if (!run->head.fresh && set->names && !named && has_class_names(config, classes))
        return name_first(run, set, classes);
    if (!run->head.fresh && other < 0)
        return SOTTO_OK; /* config.json has the names, or there are none */
    if (!run->head.fresh && theirs)
        log_warn(
            "class %d is '%.80s' to the model and '%.80s' in the data: the classifier is kept, "
            "since both have %d; train.head = new makes another",
            other, theirs, set->names[other], classes);
    return hf_folder_set_classes(&run->folder, &run->model, named ? set->names : NULL, classes);
}
