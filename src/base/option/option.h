/* Option tables: one table a module says key, type, default, range and help of each field of its
 * configuration struct, and parsing, --help, the run header and checkpoint metadata come out of it.
 *
 *     static const struct option table[] = {
 *         OPTION_INT(struct optim_config, warmup, "0", 0, 1e9, "rounds of linear warm-up"),
 *
 * A program collects tables into sections; `--optim.warmup=10` on the command line equals
 * `warmup = 10` under `[optim]` in a file. A bare `--warmup=10` works where only one section in use
 * has it, and `--model=nano` is `--model.preset=nano`. */
#ifndef SOTTO_BASE_OPTION_OPTION_H
#define SOTTO_BASE_OPTION_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Sizes of text fields, terminator included: a path or a word, and what may be long (lists of files
 * or of workers, prompts). The latter is as much as Linux passes in one argument, so whatever
 * arrives on the command line fits. Configurations are copied by value; those with long fields
 * belong on the heap where the stack is a worker's. */
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

struct option {
    const char *key;
    enum option_type type;
    size_t offset;
    const char *preset;       /* default, as it would be typed */
    double min, max;          /* numbers: allowed range, both ends included */
    const char *const *names; /* enum: NULL-terminated */
    const char *help;
    size_t room;     /* text: size of the field */
    const char *was; /* "worker.per_node=0": a key whose place this one took, with its default,
                        which old files hold and which is no error; NULL: none */
    bool file;       /* text: the name of a file */
    size_t set_flag; /* offset of a bool in the struct: true if the option was set, to any value;
                        0: none */
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

/* An integer that took the place of another key. */
#define OPTION_INT_WAS(S, field, initial, least, most, about, former)                              \
    {                                                                                              \
        OPTION_OF(S, field, OPTION_TYPE_INT, initial, about), .min = least, .max = most,           \
                                                              .was = former                        \
    }

struct option_section {
    const char *name; /* "" : its keys have no prefix */
    const char *about;
    const struct option *table;
    int count;
    void *config; /* the struct that the table describes */
    /* (optional) Whether its keys have a use just now: only then they may go without the section's
     * name, and only then they are dumped. Default: always. */
    bool (*used)(const void *of, const char *name);
    const void *of;
};

/* One that is always in use; OPTION_SECTION_OF: of a table that another file has. */
#define OPTION_SECTION_OF(title, text, options, n, fields)                                         \
    {                                                                                              \
        .name = title, .about = text, .table = options, .count = n, .config = fields               \
    }
#define OPTION_SECTION(title, text, options, fields)                                               \
    OPTION_SECTION_OF(title, text, options, (int)(sizeof(options) / sizeof *(options)), fields)

/* Sets every field to its default. */
void option_defaults(const struct option_section *sections, int n);

/* Sets one key ("section.key", or "key" where it is unambiguous: of two sections, one that is
 * always in use goes before one that is chosen). */
enum sotto_status option_set(const struct option_section *sections, int n, const char *key,
                             const char *value);

/* Reads an INI file. Errors carry "path:line: ". A value may be in double quotes, which keep '#',
 * ';' and blanks at its ends. */
enum sotto_status option_load(const struct option_section *sections, int n, const char *path);
enum sotto_status option_load_text(const struct option_section *sections, int n, const char *text,
                                   const char *name);

/* The reader beneath, for files of another form: `each` is told of every heading (key and value
 * NULL) and of every key with the section that it stands in ("": none yet). A key that a section
 * has twice is refused in the end, unless it is `repeats` (NULL: none). */
typedef enum sotto_status option_each(void *arg, const char *section, const char *key,
                                      const char *value);
enum sotto_status option_read_text(const char *text, const char *name, const char *repeats,
                                   option_each *each, void *arg);

/* The text of a configuration file, which the caller frees; one with a zero byte is refused. */
enum sotto_status option_file(const char *path, char **text);

/* Takes "--key=value", "--key value" and "--flag" (a bool); other words, and all behind a "--", go
 * to `rest` (room for argc pointers), whose number is `*n_rest`. */
enum sotto_status option_parse(const struct option_section *sections, int n, int argc,
                               const char *const *argv, const char **rest, int *n_rest);

/* The same but for keys without a section's name of which no section in use has any: they are left
 * out, and `*left` says so. A configuration beneath may choose. */
enum sotto_status option_parse_known(const struct option_section *sections, int n, int argc,
                                     const char *const *argv, const char **rest, int *n_rest,
                                     bool *left);

bool option_in_use(const struct option_section *section);

/* Whether the key has no section's name and what it means depends on which sections are in use. Of
 * several options these are to be set last. */
bool option_depends(const struct option_section *sections, int n, const char *key);
/* ... and whether one in use has it. */
bool option_is_used(const struct option_section *sections, int n, const char *key);

/* Whether the text is a truth value, and which. */
bool option_bool(const char *text, bool *out);

/* A word of a command line as a shell takes it. */
void option_put_word(const char *word, FILE *out);

/* The same in memory, for messages; it is cut short where there is no room. Returns `out`. */
const char *option_word(const char *word, char *out, size_t room);

/* The value of an option as it would be typed: the field itself where it is text, else printed into
 * `room`. */
const char *option_print(const struct option *option, const void *config, char room[OPTION_ROOM]);

/* The whole configuration as INI text that option_load_text takes back. The caller frees it; NULL
 * without memory. */
char *option_dump(const struct option_section *sections, int n);

/* What an option takes: "integer 0..10; default 3". */
void option_describe(const struct option *option, char *out, size_t room);

/* The help text, in 80 columns: each option with its help, range and default. */
void option_help(const struct option_section *sections, int n, FILE *out);
void option_help_one(const struct option_section *section, const struct option *option, FILE *out);

/* Words of `text` from column `at` on, in lines that end before column 80 and begin at `indent`. */
void option_wrap(const char *text, int at, int indent, FILE *out);

/* How many slips of the fingers lie between a word and a name: at most a third of the word is near,
 * or that the name begins with it; OPTION_FAR if it is not near. */
enum { OPTION_FAR = 1000 };
int option_distance(const char *word, const char *name);

/* The name in `names` (NULL-terminated) nearest to `word`, or NULL if none is near. */
const char *option_closest(const char *word, const char *const *names);

#endif
