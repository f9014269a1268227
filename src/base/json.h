/* JSON files and their members, with jansson: documents with a size limit, and members fetched by
 * name and type. An error names the member and its type. */
#ifndef SOTTO_BASE_JSON_H
#define SOTTO_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Parses the file; `*root` is a new reference. */
enum sotto_status json_open(json_t **root, const char *path, size_t limit);

/* Parses `size` bytes of text; `name` is used in messages. */
enum sotto_status json_parse(json_t **root, const char *text, size_t size, const char *name);

/* Fetch a member of an object; SOTTO_EFORMAT if the member is missing or has another type. */
enum sotto_status json_get_int(const json_t *object, const char *key, int64_t *out);
enum sotto_status json_get_text(const json_t *object, const char *key, const char **out);
enum sotto_status json_get_array(const json_t *object, const char *key, json_t **out);
enum sotto_status json_get_object(const json_t *object, const char *key, json_t **out);
bool json_get_bool_or(const json_t *object, const char *key, bool fallback);

/* Prints a number as the shortest text, of six digits or more, that reads back to the same bits. */
enum { JSON_REAL_ROOM = 32 };
void json_print_real(char out[JSON_REAL_ROOM], double value);

/* Writes the document to `path` atomically, indented by `indent` spaces (0: one line). */
enum sotto_status json_save(const json_t *root, const char *path, int indent);

/* Returns "object", "array", "string", ... for messages. */
const char *json_kind(const json_t *value);

#endif
