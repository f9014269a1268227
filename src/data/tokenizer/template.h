/* A chat template as a list of marks: written texts and tokens, contents of messages, branches and
 * loops. */
#ifndef SOTTO_DATA_TOKENIZER_TEMPLATE_H
#define SOTTO_DATA_TOKENIZER_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct span {
    const char *at; /* in the template's text */
    size_t size;
};

enum mark_kind {
    MARK_TEXT,    /* written unchanged */
    MARK_TOKEN,   /* written: the token of a member of tokenizer_config.json, as eos_token */
    MARK_CONTENT, /* the content of a message is written */
    MARK_IF,
    MARK_ELIF,
    MARK_ELSE,
    MARK_ENDIF,
    MARK_FOR,
    MARK_ENDFOR,
    MARK_HIDE, /* until MARK_SHOW nothing is written: the value of a variable, a macro */
    MARK_SHOW
};

/* Can a place be reached for a message of the assistant, by the conditions around it? */
enum admits { ADMITS_NEVER, ADMITS_CALLS /* of tools */, ADMITS_MAYBE, ADMITS_ASSISTANT };

struct mark {
    enum mark_kind kind;
    struct span span;   /* the text, the member, or the condition */
    enum admits admits; /* MARK_CONTENT: of the place; else of the branch */
    bool messages;      /* MARK_FOR, MARK_ENDFOR: over the messages */
};

struct mark_list {
    struct mark *mark; /* owned */
    size_t count, room;
};

/* Reads a template. `text` must outlive the list. Text that is no template gives the marks that can
 * be found. */
enum sotto_status template_read(struct mark_list *list, const char *text, size_t size);
void template_free(struct mark_list *list);

#endif
