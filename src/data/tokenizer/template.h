/* A chat template as a list of marks: what it writes, where contents of messages go, and its
 * branches and loops. */
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
    MARK_TEXT,    /* is written as it stands          */
    MARK_TOKEN,   /* is written: the token of a member of tokenizer_config.json, as eos_token */
    MARK_CONTENT, /* the content of a message is written */
    MARK_IF,
    MARK_ELIF,
    MARK_ELSE,
    MARK_ENDIF,
    MARK_FOR,
    MARK_ENDFOR,
    MARK_HIDE, /* up to MARK_SHOW nothing is written: the value of a variable, a macro */
    MARK_SHOW
};

/* Whether a place is reached for a message of the assistant, as far as the conditions around it
 * show. */
enum admits { ADMITS_NEVER, ADMITS_CALLS /* of tools */, ADMITS_MAYBE, ADMITS_ASSISTANT };

struct mark {
    enum mark_kind kind;
    struct span span;   /* the text, the member, or the condition        */
    enum admits admits; /* MARK_CONTENT: of its place; else of its branch */
    bool messages;      /* MARK_FOR, MARK_ENDFOR: over the messages      */
};

struct mark_list {
    struct mark *mark; /* owned */
    size_t count, room;
};

/* `text` must outlive the list. A template that is none gives what can be made of it. */
enum sotto_status template_read(struct mark_list *list, const char *text, size_t size);
void template_free(struct mark_list *list);

#endif
