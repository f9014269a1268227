/* JSON values one after another: the elements of an array, or the lines of a JSONL file (an object
 * may also span lines). Values are parsed one by one, so a file may be larger than memory, and
 * errors begin with "file:line: ". */
#ifndef SOTTO_DATA_TEXT_RECORDS_H
#define SOTTO_DATA_TEXT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

struct records {
    const char *name; /* for messages */
    const char *at, *end;
    int64_t line;   /* of `at` */
    int64_t begins; /* line of the last value's beginning */
    bool array, first;
};

void records_begin(struct records *records, const char *text, size_t size, const char *name);

/* Returns the next value, a new reference; NULL with SOTTO_OK after the last. */
enum sotto_status records_next(struct records *records, json_t **out);

#endif
