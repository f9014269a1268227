/* Chat templates into marks. Known of Jinja are tags, strings and names. An expression is taken to
 * write the strings and names in it, except in comparisons and arguments. */
#define _GNU_SOURCE /* memmem */
#include "data/tokenizer/template.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, VARIABLES = 64 };

/* An open branch or loop. */
struct open_block {
    enum mark_kind kind;
    enum admits admits;
    bool settled; /* an earlier branch takes every message of the assistant */
    bool messages;
    struct span name; /* of a macro */
    size_t first;     /* mark inside */
};

/* The value of a variable. */
struct known_variable {
    struct span name;
    struct mark mark; /* MARK_CONTENT, MARK_TEXT or MARK_TOKEN */
};

struct template_reader {
    struct mark_list *list;
    struct open_block open[DEPTH];
    int depth;
    struct known_variable variable[VARIABLES];
    int variables;
};

static bool span_is(struct span s, const char *text)
{
    return s.size == strlen(text) && memcmp(s.at, text, s.size) == 0;
}

static bool span_has(struct span s, const char *text)
{
    return memmem(s.at, s.size, text, strlen(text)) != NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static enum sotto_status add_mark(struct template_reader *r, enum mark_kind kind, struct span span)
{
    struct mark_list *l = r->list;
    enum admits admits = ADMITS_MAYBE;
    for (int i = 0; i < r->depth; i++) {
        const enum admits a = r->open[i].admits;
        admits = admits == ADMITS_NEVER || a == ADMITS_NEVER   ? ADMITS_NEVER
                 : admits == ADMITS_CALLS || a == ADMITS_CALLS ? ADMITS_CALLS
                 : a > admits                                  ? a
                                                               : admits;
    }
    if (l->count == l->room) {
        const size_t room = 2 * l->room + 64;
        struct mark *more = realloc(l->mark, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu marks of a chat template", room);
        l->mark = more;
        l->room = room;
    }
    l->mark[l->count++] = (struct mark){.kind = kind, .span = span, .admits = admits};
    return SOTTO_OK;
}

/* Returns the next place at or after `p` with the two characters of `close` in a row outside of
 * strings, else `end`. */
static const char *find_close(const char *p, const char *end, const char *close)
{
    for (char quote = '\0'; p < end; p++) {
        if (quote && *p == '\\' && p + 1 < end)
            p++;
        else if (quote)
            quote = *p == quote ? '\0' : quote;
        else if (*p == '"' || *p == '\'')
            quote = *p;
        else if (p + 1 < end && p[0] == close[0] && p[1] == close[1])
            return p;
    }
    return end;
}

/* Conditions */

/* True if the condition has `name` as a string; `*other`: after "!=". */
static bool compares_with(struct span c, const char *name, bool *other)
{
    const size_t n = strlen(name);
    for (size_t i = 1; i + n < c.size; i++) {
        const char quote = c.at[i - 1];
        if ((quote != '\'' && quote != '"') || c.at[i + n] != quote ||
            memcmp(c.at + i, name, n) != 0)
            continue;
        size_t before = i - 1;
        while (before > 0 && is_blank(c.at[before - 1]))
            before--;
        *other = before >= 2 && memcmp(c.at + before - 2, "!=", 2) == 0;
        return true;
    }
    return false;
}

static bool has_any(struct span c, const char *const *texts)
{
    while (*texts && !span_has(c, *texts))
        texts++;
    return *texts;
}

static enum admits condition_admits(struct span c)
{
    static const char *const others[] = {"user",    "system",      "tool",     "developer",
                                         "ipython", "observation", "function", NULL};
    static const char *const none[] = {"not message", "not in",         "not (",        "not(",
                                       "is none",     "is not defined", "is undefined", NULL};
    static const char *const turned[] = {"!=", "not (", "not(", "not in", NULL};
    bool other;
    if (span_has(c, "tool_call") && !has_any(c, none))
        return ADMITS_CALLS;
    if (compares_with(c, "assistant", &other))
        return other ? ADMITS_NEVER : ADMITS_ASSISTANT;
    for (int i = 0; others[i]; i++)
        if (compares_with(c, others[i], &other) && !has_any(c, turned))
            return ADMITS_NEVER;
    return ADMITS_MAYBE;
}

/* Expressions */

static const struct mark *find_variable(const struct template_reader *r, struct span name)
{
    for (int i = r->variables - 1; i >= 0; i--)
        if (r->variable[i].name.size == name.size &&
            memcmp(r->variable[i].name.at, name.at, name.size) == 0)
            return &r->variable[i].mark;
    return NULL;
}

static void set_variable(struct template_reader *r, struct span name, struct mark mark)
{
    if (r->variables == VARIABLES) /* the latest variables are kept */
        memmove(r->variable, r->variable + 1, (size_t)--r->variables * sizeof *r->variable);
    r->variable[r->variables++] = (struct known_variable){name, mark};
}

/* An expression while it is read: the text so far determines the role of a string or a name. */
struct expression {
    const char *at, *end;
    const char *chain;   /* start of a chain of names: message.content[0] */
    char bracket[DEPTH]; /* open brackets; 'f': arguments of a function, 'g': of .get */
    int depth, calls;    /* open brackets, and those of arguments */
    bool get;            /* the last name was "get" */
    char last;           /* last character that is not blank; '"': a string, 'a': a name */
};

/* True for messages[0].content, which is no assistant's. */
static bool is_first(const struct expression *e, const char *at)
{
    static const char base[] = "messages[";
    const char *p =
        e->chain ? memmem(e->chain, (size_t)(at - e->chain), base, sizeof base - 1) : NULL;
    p = p ? p + sizeof base - 1 : at;
    return p < at && (*p == '-' || (*p >= '0' && *p <= '9'));
}

/* True if the string is part of a comparison, so that it is not written. */
static bool is_compared(const struct expression *e, const char *behind)
{
    while (behind < e->end && is_blank(*behind))
        behind++;
    const size_t left = (size_t)(e->end - behind);
    return e->last == '=' ||
           (left > 1 && (memcmp(behind, "==", 2) == 0 || memcmp(behind, "!=", 2) == 0)) ||
           (left > 2 && memcmp(behind, "in ", 3) == 0);
}

static enum sotto_status read_string(struct template_reader *r, struct expression *e)
{
    const char *from = e->at + 1, *p = from;
    while (p < e->end && *p != *e->at)
        p += *p == '\\' && p + 1 < e->end ? 2 : 1;
    const struct span s = {from, (size_t)(p - from)};
    const char top = e->depth ? e->bracket[e->depth - 1] : '(';
    const bool compared = is_compared(e, p < e->end ? p + 1 : p);
    e->at = p < e->end ? p + 1 : p;
    e->last = '"';
    if ((top == '[' || top == 'g') && span_is(s, "content"))
        return is_first(e, from) ? SOTTO_OK : add_mark(r, MARK_CONTENT, s);
    return top == '(' && !e->calls && !compared ? add_mark(r, MARK_TEXT, s) : SOTTO_OK;
}

/* True for the name of an argument: f(content=...). */
static bool names_argument(const struct expression *e)
{
    const char *p = e->at;
    while (p < e->end && is_blank(*p))
        p++;
    return p < e->end && *p == '=' && !(p + 1 < e->end && p[1] == '=');
}

static enum sotto_status read_word(struct template_reader *r, struct expression *e)
{
    static const char ending[] = "_token";
    struct span s = {e->at, 0};
    const char before = e->last;
    while (e->at < e->end && is_letter(*e->at))
        e->at++;
    s.size = (size_t)(e->at - s.at);
    e->last = 'a';
    e->get = span_is(s, "get");
    if (*s.at >= '0' && *s.at <= '9') /* a number */
        return SOTTO_OK;
    if (span_is(s, "in") || span_is(s, "if") || span_is(s, "else") || span_is(s, "and") ||
        span_is(s, "or") || span_is(s, "not") || span_is(s, "is")) {
        e->last = span_is(s, "in") ? '=' : ' ';
        return SOTTO_OK;
    }
    if (before == '|') /* a filter */
        return SOTTO_OK;
    if (before == '.')
        return span_is(s, "content") && !is_first(e, s.at) ? add_mark(r, MARK_CONTENT, s)
                                                           : SOTTO_OK;
    e->chain = s.at;
    if (e->calls && names_argument(e))
        return SOTTO_OK;
    const struct mark *known = find_variable(r, s);
    if (span_is(s, "content") || (known && known->kind == MARK_CONTENT))
        return add_mark(r, MARK_CONTENT, s);
    if (e->calls)
        return SOTTO_OK;
    if (known)
        return add_mark(r, known->kind, known->span);
    return s.size > sizeof ending - 1 &&
                   memcmp(e->at - (sizeof ending - 1), ending, sizeof ending - 1) == 0
               ? add_mark(r, MARK_TOKEN, s)
               : SOTTO_OK;
}

static void read_bracket(struct expression *e)
{
    const char c = *e->at, last = e->last;
    const bool closes = c == ')' || c == ']' || c == '}';
    if (closes && e->depth > 0) {
        e->calls -= e->bracket[e->depth - 1] == 'f' || e->bracket[e->depth - 1] == 'g';
        e->depth--;
    } else if (!closes && e->depth < DEPTH) {
        const bool call = c == '(' && (last == 'a' || last == ')' || last == ']');
        e->bracket[e->depth++] = !call ? c : last == 'a' && e->get ? 'g' : 'f';
        e->calls += call;
    }
}

static enum sotto_status read_expression(struct template_reader *r, struct span span)
{
    struct expression e = {.at = span.at, .end = span.at + span.size, .last = ' '};
    while (e.at < e.end) {
        const char c = *e.at;
        if (c == '"' || c == '\'') {
            TRY(read_string(r, &e));
        } else if (is_letter(c)) {
            TRY(read_word(r, &e));
        } else {
            if (memchr("()[]{}", c, 6))
                read_bracket(&e);
            e.last = is_blank(c) ? e.last : c;
            e.at++;
        }
    }
    return SOTTO_OK;
}

/* Statements */

static struct span next_word(struct span *s)
{
    while (s->size && is_blank(*s->at)) {
        s->at++;
        s->size--;
    }
    struct span word = {s->at, 0};
    while (word.size < s->size && (is_letter(word.at[word.size]) || word.at[word.size] == '.'))
        word.size++;
    s->at += word.size;
    s->size -= word.size;
    return word;
}

static bool has_content(const struct template_reader *r, size_t from)
{
    while (from < r->list->count && r->list->mark[from].kind != MARK_CONTENT)
        from++;
    return from < r->list->count;
}

static enum sotto_status read_set(struct template_reader *r, struct span rest)
{
    const struct span name = next_word(&rest);
    const char *equals = memchr(rest.at, '=', rest.size);
    TRY(add_mark(r, MARK_HIDE, name));
    if (!equals) /* sets the text up to {% endset %} */
        return SOTTO_OK;
    const size_t from = r->list->count;
    TRY(read_expression(r, (struct span){equals + 1, (size_t)(rest.at + rest.size - equals - 1)}));
    const bool content = has_content(r, from);
    if (content && r->list->mark[from].admits != ADMITS_NEVER)
        set_variable(r, name, (struct mark){.kind = MARK_CONTENT});
    else if (!content && r->list->count == from + 1)
        set_variable(r, name, r->list->mark[from]);
    return add_mark(r, MARK_SHOW, name);
}

/* Enters "for NAME in ...". */
static void open_for(struct template_reader *r, struct span rest, struct open_block *block)
{
    const struct span name = next_word(&rest);
    block->messages = span_has(rest, "messages");
    if (span_has(rest, "tool_calls"))
        block->admits = ADMITS_CALLS;
    else if (!block->messages && span_has(rest, "content"))
        set_variable(r, name, (struct mark){.kind = MARK_CONTENT});
}

static enum sotto_status enter_block(struct template_reader *r, enum mark_kind kind,
                                     struct span rest)
{
    struct open_block block = {.kind = kind, .admits = ADMITS_MAYBE};
    if (r->depth == DEPTH)
        return fail(SOTTO_EFORMAT, "a chat template with more than %d blocks in one another",
                    DEPTH);
    if (kind == MARK_FOR)
        open_for(r, rest, &block);
    else if (kind == MARK_HIDE)
        block.name = next_word(&rest);
    if (kind != MARK_FOR)
        block.admits = kind == MARK_IF ? condition_admits(rest) : ADMITS_NEVER;
    block.settled = kind == MARK_IF && block.admits == ADMITS_ASSISTANT && !span_has(rest, " and ");
    r->open[r->depth++] = block;
    TRY(add_mark(r, kind, rest));
    r->list->mark[r->list->count - 1].messages = block.messages;
    r->list->mark[r->list->count - 1].admits = block.admits;
    r->open[r->depth - 1].first = r->list->count;
    return SOTTO_OK;
}

static enum sotto_status next_branch(struct template_reader *r, enum mark_kind kind,
                                     struct span rest)
{
    struct open_block *b = r->depth ? &r->open[r->depth - 1] : NULL;
    if (!b || b->kind != MARK_IF) /* of a loop */
        return SOTTO_OK;
    b->admits = b->settled          ? ADMITS_NEVER
                : kind == MARK_ELIF ? condition_admits(rest)
                                    : ADMITS_MAYBE;
    b->settled |= b->admits == ADMITS_ASSISTANT && !span_has(rest, " and ");
    TRY(add_mark(r, kind, rest));
    r->list->mark[r->list->count - 1].admits = b->admits;
    return SOTTO_OK;
}

static enum sotto_status close_block(struct template_reader *r, enum mark_kind kind,
                                     enum mark_kind opened)
{
    if (!r->depth || r->open[r->depth - 1].kind != opened)
        return SOTTO_OK;
    const struct open_block *b = &r->open[--r->depth];
    if (opened == MARK_HIDE && has_content(r, b->first)) /* a call writes the content */
        set_variable(r, b->name, (struct mark){.kind = MARK_CONTENT});
    TRY(add_mark(r, kind, (struct span){"", 0}));
    r->list->mark[r->list->count - 1].messages = b->messages;
    return SOTTO_OK;
}

static enum sotto_status read_statement(struct template_reader *r, struct span s)
{
    const struct span word = next_word(&s);
    if (span_is(word, "if"))
        return enter_block(r, MARK_IF, s);
    if (span_is(word, "for"))
        return enter_block(r, MARK_FOR, s);
    if (span_is(word, "macro"))
        return enter_block(r, MARK_HIDE, s);
    if (span_is(word, "elif"))
        return next_branch(r, MARK_ELIF, s);
    if (span_is(word, "else"))
        return next_branch(r, MARK_ELSE, s);
    if (span_is(word, "endif"))
        return close_block(r, MARK_ENDIF, MARK_IF);
    if (span_is(word, "endfor"))
        return close_block(r, MARK_ENDFOR, MARK_FOR);
    if (span_is(word, "endmacro"))
        return close_block(r, MARK_SHOW, MARK_HIDE);
    if (span_is(word, "set"))
        return read_set(r, s);
    return span_is(word, "endset") ? add_mark(r, MARK_SHOW, word) : SOTTO_OK;
}

static enum sotto_status read_marks(struct template_reader *r, const char *p, const char *end)
{
    while (p < end) {
        const char *tag = p;
        while (tag < end && !(tag + 1 < end && *tag == '{' && memchr("{%#", tag[1], 3)))
            tag++;
        if (tag > p)
            TRY(add_mark(r, MARK_TEXT, (struct span){p, (size_t)(tag - p)}));
        if (tag == end)
            break;
        const char kind = tag[1];
        const char *from = tag + 2;
        const char *close = kind == '#' ? memmem(from, (size_t)(end - from), "#}", 2)
                                        : find_close(from, end, kind == '%' ? "%}" : "}}");
        if (!close)
            break;
        p = end - close > 2 ? close + 2 : end;
        from += from < close && (*from == '-' || *from == '+');
        const struct span inside = {from, (size_t)(close - from)};
        if (kind == '%')
            TRY(read_statement(r, inside));
        else if (kind == '{')
            TRY(read_expression(r, inside));
    }
    return SOTTO_OK;
}

enum sotto_status template_read(struct mark_list *list, const char *text, size_t size)
{
    *list = (struct mark_list){0};
    struct template_reader reader = {.list = list};
    enum sotto_status st = read_marks(&reader, text, text + size);
    if (st != SOTTO_OK)
        template_free(list);
    return st;
}

void template_free(struct mark_list *list)
{
    free(list->mark);
    *list = (struct mark_list){0};
}
