/* JSON values one after another: the elements of an array, or the lines of a JSONL file (an object
 * may also span lines). Values are parsed singly, so a file larger than memory allows as one
 * document is fine, and errors carry "file:line: ". */
#ifndef SOTTO_DATA_TEXT_RECORDS_H
#define SOTTO_DATA_TEXT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

struct records {
    const char *name; /* for messages */
    const char *at, *end;
    int64_t line;   /* of `at`                                   */
    int64_t begins; /* line on which the last value began        */
    bool array, first;
};

void records_begin(struct records *records, const char *text, size_t size, const char *name);

/* The next value, a new reference; NULL with SOTTO_OK behind the last. */
enum sotto_status records_next(struct records *records, json_t **out);

#endif
