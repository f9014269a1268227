#include "train/open/vacant.h"

#include <sys/stat.h>

#include "base/file.h"
#include "io/hf_files.h"
#include "train/report/report.h"
#include "train/run/rescue.h"

/* True if `name` is the folder, or a file in it. */
static bool is_inside(const char *folder, const char *name)
{
    struct stat there, ours;
    char above[FILE_PATH_ROOM];
    if (!*name || stat(folder, &there) != 0)
        return false;
    rescue_parent(name, above);
    const char *const at = file_is_directory(name) ? name : above;
    return stat(at, &ours) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* Refuses a folder with a model, a part of a model or a sotto.ini, which publishing would replace.
 * The tokenizer of the run may be there. */
static enum sotto_status refuse_model(const struct run_config *config)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json", "sotto.ini"};
    const char *folder = config->train.out;
    const bool own = is_inside(folder, config->data.tokenizer);
    char path[FILE_PATH_ROOM];
    for (int i = 0; i < 4 + HF_FILES; i++) {
        const char *name = i < 4 ? names[i] : hf_files[i - 4].name;
        TRY(file_join(path, folder, name));
        if (file_exists(path) && !(i >= 4 && own && hf_files[i - 4].tokenizer))
            return fail(SOTTO_EINVAL,
                        "train.out = %s holds %s that no run made there (%s), which training would "
                        "overwrite: choose another folder",
                        folder, i < 3 ? "a model" : "a file", name);
    }
    return SOTTO_OK;
}

/* Refuses a folder with the report and metrics of a finished run that saved nothing. */
static enum sotto_status refuse_results(const char *folder)
{
    const struct report_left left = report_left(folder);
    if (!left.complete || !left.trained)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%s already holds a finished run of %lld steps, which saved no checkpoint: "
                "another --out starts a new one",
                folder, (long long)left.steps);
}

enum sotto_status vacant_check(const struct run_config *config)
{
    TRY(refuse_model(config));
    return refuse_results(config->train.out);
}
