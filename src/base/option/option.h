/* Option tables: each module has one table with key, type, default, range and help of each field of
 * its configuration struct. Parsing, --help, the run header and checkpoint metadata are derived
 * from the tables.
 *
 *     static const struct option table[] = {
 *         OPTION_INT(struct optim_config, warmup, "0", 0, 1e9, "rounds of linear warm-up"),
 *
 * A program collects tables into sections; `--optim.warmup=10` on the command line equals `warmup =
 * 10` under `[optim]` in a file. A bare `--warmup=10` works if only one section in use has the key,
 * and `--model=nano` is `--model.preset=nano`. */
#ifndef SOTTO_BASE_OPTION_OPTION_H
#define SOTTO_BASE_OPTION_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Sizes of text fields, terminator included: OPTION_ROOM for a path or a word, OPTION_LONG_ROOM for
 * long texts (lists of files or of workers, prompts). The long size is the longest argument that
 * Linux passes, so any value from the command line fits. Configurations are copied by value; a
 * configuration with long fields belongs on the heap in threads with a small stack. */
#define OPTION_ROOM 1024
#define OPTION_LONG_ROOM (128 * 1024)

enum option_type {
    OPTION_TYPE_INT,  /* int                       */
    OPTION_TYPE_LONG, /* int64_t, suffixes k M G   */
    OPTION_TYPE_REAL, /* double                    */
    OPTION_TYPE_BOOL, /* bool: true/false/yes/no/on/off/1/0 */
    OPTION_TYPE_TEXT, /* char[], of any size       */
    OPTION_TYPE_ENUM, /* int, index into `names`   */
};

struct option_only; /* only.h */

struct option {
    const char *key;
    enum option_type type;
    size_t offset;
    const char *preset;       /* default, as typed on the command line */
    double min, max;          /* numbers: allowed range, both ends included */
    const char *const *names; /* enum: NULL-terminated */
    const char *help;
    size_t room;      /* text: size of the field */
    const char *also; /* (optional) unknown keys for which errors suggest this option: words with
                         underscores, and blanks between them */
    bool file;        /* text: the name of a file */
    size_t set_flag;  /* offset of a bool in the struct, which is true if the option was set, to any
                         value; 0: none */
};

#define OPTION_OF(S, field, kind, initial, about)                                                  \
    .key = #field, .type = kind, .offset = offsetof(S, field), .preset = initial, .help = about
#define OPTION_INT(S, field, initial, least, most, about)                                          \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_INT, initial, about), .min = least, .max = most            \
    }
#define OPTION_LONG(S, field, initial, least, most, about)                                         \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_LONG, initial, about), .min = least, .max = most           \
    }
#define OPTION_REAL(S, field, initial, least, most, about)                                         \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_REAL, initial, about), .min = least, .max = most           \
    }
#define OPTION_BOOL(S, field, initial, about)                                                      \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_BOOL, initial, about)                                      \
    }
#define OPTION_TEXT(S, field, initial, about)                                                      \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_TEXT, initial, about), .room = sizeof(((S *)0)->field)     \
    }
#define OPTION_FILE(S, field, initial, about)                                                      \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_TEXT, initial, about), .file = true,                       \
                                                               .room = sizeof(((S *)0)->field)     \
    }
#define OPTION_ENUM(S, field, initial, values, about)                                              \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_ENUM, initial, about), .names = values                     \
    }

struct option_section {
    const char *name; /* "": keys without a prefix */
    const char *about;
    const struct option *table;
    int count;
    void *config; /* the struct that the table describes */
    /* (optional) True if the section's keys have an effect in this configuration. Only then the
     * keys work without the section's name and are dumped. NULL: always true. */
    bool (*used)(const void *of, const char *name);
    const void *of;
    const struct option_only *only; /* (optional) keys that need a value of another key */
    int n_only;
};

/* A section that is always in use; OPTION_SECTION_OF takes a table from another file. */
#define OPTION_SECTION_OF(title, text, options, n, fields)                                         \
    {                                                                                              \
        .name = title, .about = text, .table = options, .count = n, .config = fields               \
    }
#define OPTION_SECTION(title, text, options, fields)                                               \
    OPTION_SECTION_OF(title, text, options, (int)(sizeof(options) / sizeof *(options)), fields)

/* Sets every field to its default. */
void option_defaults(const struct option_section *sections, int n);

/* Sets one key: "section.key", or "key" if the key is unambiguous. Of two sections with the key, a
 * section that is always in use takes precedence over a chosen section. */
enum sotto_status option_set(const struct option_section *sections, int n, const char *key,
                             const char *value);

/* Reads an INI file. Error messages begin with "path:line: ". A value may be in double quotes,
 * which preserve '#', ';' and blanks at both ends. */
enum sotto_status option_load(const struct option_section *sections, int n, const char *path);
enum sotto_status option_load_text(const struct option_section *sections, int n, const char *text,
                                   const char *name);

/* Reads INI text of any form: calls `each` for every heading (key and value NULL) and for every key
 * with its section ("" before the first heading). A key that a section sets twice is refused after
 * the last line, unless the key is `repeats` (NULL: none). */
typedef enum sotto_status option_each(void *arg, const char *section, const char *key,
                                      const char *value);
enum sotto_status option_read_text(const char *text, const char *name, const char *repeats,
                                   option_each *each, void *arg);

/* Reads the text of a configuration file, which the caller frees; a zero byte is an error. */
enum sotto_status option_file(const char *path, char **text);

/* Parses "--key=value", "--key value" and "--flag" (a bool). Other words, and all words after a
 * "--", are stored in `rest` (room for argc pointers), their number in `*n_rest`. */
enum sotto_status option_parse(const struct option_section *sections, int n, int argc,
                               const char *const *argv, const char **rest, int *n_rest);

/* Parses as option_parse does, but skips a key without a section's name that no section in use has,
 * and sets `*left`. A configuration with lower precedence may choose such a section. */
enum sotto_status option_parse_known(const struct option_section *sections, int n, int argc,
                                     const char *const *argv, const char **rest, int *n_rest,
                                     bool *left);

bool option_in_use(const struct option_section *section);

/* True if the key has no section's name and its meaning depends on the sections in use. Such
 * options must be set last. */
bool option_depends(const struct option_section *sections, int n, const char *key);
/* True if a section in use has the key. */
bool option_is_used(const struct option_section *sections, int n, const char *key);

/* True if the text is a truth value, which is stored in `*out`. */
bool option_bool(const char *text, bool *out);

/* Writes a word quoted for a shell. */
void option_put_word(const char *word, FILE *out);

/* Writes a word quoted for a shell to `out`, cut to `room` bytes, for messages. Returns `out`. */
const char *option_word(const char *word, char *out, size_t room);

/* Returns the value of an option as typed: the field itself if it is text, else text in `room`. */
const char *option_print(const struct option *option, const void *config, char room[OPTION_ROOM]);

/* Returns the whole configuration as INI text for option_load_text. The caller frees the text; NULL
 * if memory is exhausted. */
char *option_dump(const struct option_section *sections, int n);

/* Describes the values of an option: "integer 0..10; default 3". */
void option_describe(const struct option *option, char *out, size_t room);

/* Print the help in 80 columns: each option with its text, range and default. */
void option_help(const struct option_section *sections, int n, FILE *out);
void option_help_one(const struct option_section *section, const struct option *option, FILE *out);

/* Writes the words of `text` from column `at` on, in lines that end before column 80 and are
 * indented by `indent`. */
void option_wrap(const char *text, int at, int indent, FILE *out);

/* Returns the number of typing errors between a word and a name. A name is near if the errors are
 * at most a third of the word's letters, or if the name begins with the word; OPTION_FAR: not
 * near. */
enum { OPTION_FAR = 1000 };
int option_distance(const char *word, const char *name);

/* Returns the name in `names` (NULL-terminated) nearest to `word`, or NULL if none is near. */
const char *option_closest(const char *word, const char *const *names);

#endif
