/* Synthetic corpora: simple English of several clearly different kinds, made by a grammar from a
 * seed. Document `index` is a pure function of (topic, seed, index). */
#ifndef SOTTO_DATA_STORIES_STORIES_H
#define SOTTO_DATA_STORIES_STORIES_H

#include <stdint.h>
#include <stdio.h>

#include "data/string_buffer.h"

enum stories_topic {
    STORIES_MIXED, /* all other topics, half of them tales */
    STORIES_TALES, /* children's stories with a plot, dialogue and a moral */
    STORIES_WEATHER,
    STORIES_RECIPES,
    STORIES_TALKS,   /* two people, line by line */
    STORIES_LETTERS, /* news between two children */
    STORIES_TOPICS,
};

/* NULL-terminated: "mixed", "tales", ...; the index is the topic. */
extern const char *const stories_names[STORIES_TOPICS + 1];

/* Appends one document, without a newline at the end. */
void stories_make(struct text *out, enum stories_topic topic, uint64_t seed, int64_t index);

/* Writes documents 0 .. count-1, a line <|endoftext|> between two, atomically. */
enum sotto_status stories_write(const char *path, enum stories_topic topic, uint64_t seed,
                                int64_t count);

#endif
