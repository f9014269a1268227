/* {"KEY": {"step": SECONDS, "memory": BYTES A SECOND}, ...} */
#include <math.h>

#include "base/json.h"
#include "train/plan/calibrate.h"

static enum sotto_status open_calibration_file(const char *path, json_t **all)
{
    *all = NULL;
    if (!file_exists(path)) {
        *all = json_object();
        return *all ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %s", path);
    }
    TRY(json_open(all, path, 1 << 20));
    if (json_is_object(*all))
        return SOTTO_OK;
    json_decref(*all);
    return fail(SOTTO_EFORMAT, "%s: not a JSON object; delete the file to measure again", path);
}

enum sotto_status calibration_read(const char *path, const char *key, struct calibration *c,
                                   bool *found)
{
    json_t *all;
    *found = false;
    TRY(open_calibration_file(path, &all));
    const json_t *entry = json_object_get(all, key);
    const json_t *step = json_object_get(entry, "step"), *memory = json_object_get(entry, "memory");
    enum sotto_status st = SOTTO_OK;
    *found = entry != NULL;
    if (*found) {
        *c = (struct calibration){json_number_value(step), json_number_value(memory)};
        if (!json_is_number(step) || !json_is_number(memory) ||
            !(c->step > 0 && c->step <= CONFIG_SECONDS) || !(c->memory > 0 && c->memory <= 1e15))
            st = fail(SOTTO_EFORMAT,
                      "%s: want step and memory above 0 for '%.80s'; delete the file to measure "
                      "again",
                      path, key);
    }
    json_decref(all);
    return st;
}

enum sotto_status calibration_write(const char *path, const char *key, const struct calibration *c)
{
    json_t *all, *entry = json_object();
    enum sotto_status st = open_calibration_file(path, &all);
    if (st == SOTTO_OK && (json_object_set_new(entry, "step", json_real(c->step)) != 0 ||
                           json_object_set_new(entry, "memory", json_real(c->memory)) != 0 ||
                           json_object_set(all, key, entry) != 0))
        st = fail(SOTTO_ENOMEM, "no memory for %s", path);
    if (st == SOTTO_OK)
        st = json_save(all, path, 1);
    json_decref(entry);
    json_decref(all);
    return st;
}
