/* The keys of report.json and metrics.jsonl with unit and meaning. The writers accept no other key;
 * `sotto compare` knows metrics and curves, and docs/reference/files.md is made, from these tables.
 */
#ifndef SOTTO_TRAIN_REPORT_KEYS_H
#define SOTTO_TRAIN_REPORT_KEYS_H

#include <stddef.h>

enum key_unit {
    UNIT_TEXT,    /* text, a truth value, a list or an object */
    UNIT_PLAIN,   /* a number without a unit                  */
    UNIT_SECONDS, /* of training, by the workers' clocks      */
    UNIT_BYTES,
    UNIT_SHARE, /* 0 to 1; tables show per cent */
};

struct result_key {
    const char *name;
    enum key_unit unit;
    const char *about;
    const char *only; /* (optional) runs with this key; NULL: all runs */
};

/* Tables that end with a NULL name. A comparison adds `common_loss` and `time_to_loss` to reports.
 */
extern const struct result_key report_keys[], metric_keys[];

/* Finds a key; NULL: the table does not have the key. */
const struct result_key *key_find(const struct result_key *keys, const char *name);

/* Returns `name`, which the table must have. */
const char *key_listed(const struct result_key *keys, const char *name);

#endif
