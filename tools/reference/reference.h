/* The pages of docs/reference that are made from the program's tables, and the tables of options
 * in docs/methods. tools/update-reference runs the program and puts the texts into the pages. */
#ifndef SOTTO_TOOLS_REFERENCE_H
#define SOTTO_TOOLS_REFERENCE_H

#include <stdio.h>

#include "cli/command.h"

/* The sections of all commands: a table that several commands have is the first command's. */
struct owned_section {
    struct option_section section;
    const struct command *owner;
};
enum { SECTIONS_MOST = 128 };

/* Fills `out` with the sections that have options; returns their number. `config` has room for
 * CLI_CONFIG_ROOM bytes a command. */
int list_sections(void *config, struct owned_section out[SECTIONS_MOST]);

/* Writes the heading of an option in options.md: "train.steps", or "eval: batch" for an option
 * without a section. */
void put_option_name(const struct owned_section *of, const struct option *o, FILE *out);

/* The page that a text is for: `options` is the page's link to options.md; a vertical bar is
 * escaped in the cells of a table. */
struct target_page {
    const char *options;
    bool cell;
};

/* Writes text as Markdown: characters with a meaning there are escaped, names of sections in
 * brackets become links. */
void put_text(const char *text, struct target_page at, FILE *out);
/* Writes help text as a sentence: with a capital letter, if the text begins with a plain word, and
 * a full stop. */
void put_sentence(const char *help, struct target_page at, FILE *out);

/* Writes the part of a link after the '#'. */
void put_anchor(const struct owned_section *of, const struct option *o, FILE *out);

/* Writes the values that an option takes, and its default. */
void put_values(const struct option *o, FILE *out);
void put_default(const struct option *o, FILE *out);

/* Writes "Only with kind = sgd." if an option has such a rule. */
void put_only(const struct option_section *s, const struct option *o, const char *before,
              FILE *out);

/* Write a page, or a part of one. Sections are those of list_sections. */
void write_options(const struct owned_section *sections, int n, FILE *out);
void write_commands(const struct owned_section *sections, int n, FILE *out);
void write_statuses(FILE *out);
void write_report_keys(FILE *out);
void write_metric_keys(FILE *out);

/* Writes the table of options of a method or of a pair with a name of its own. */
void write_method(const struct owned_section *sections, int n, const char *name, FILE *out);

#endif
