#include "data/stories/grammar.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

enum { SLOTS = 32, SLOT_NAME = 12, SLOT_ROOM = 160 };

struct story_slot {
    char name[SLOT_NAME];
    char value[SLOT_ROOM];
};

struct story_expansion {
    const struct grammar *grammar;
    struct rng *rng;
    struct story_slot slots[SLOTS];
    int count;
};

/* Destination of letters: the document, which begins sentences with capitals, or a slot, which does
 * not. */
struct letter_sink {
    struct text *text;
    size_t begin; /* of the document */
    bool inner, article, capital;
};

static bool begins_sentence(const struct letter_sink *sink)
{
    const char *p = sink->text->data;
    size_t n = sink->text->size;
    if (sink->inner)
        return false;
    if (n == sink->begin || p[n - 1] == '\n')
        return true;
    if (n - sink->begin < 3 || p[n - 1] != ' ')
        return false;
    return strchr(".!?", p[n - 2]) || (p[n - 2] == '"' && p[n - 3] == '.');
}

static void emit_letter(struct letter_sink *sink, char c)
{
    if (sink->article) {
        sink->article = false;
        bool vowel = strchr("aeiouAEIOU", c) != NULL;
        emit_letter(sink, 'a');
        if (vowel)
            emit_letter(sink, 'n');
        emit_letter(sink, ' ');
    }
    if (sink->capital || begins_sentence(sink))
        c = (char)toupper((unsigned char)c);
    sink->capital = false;
    text_char(sink->text, c);
}

static size_t name_length(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (islower((unsigned char)p[n]) || isdigit((unsigned char)p[n])))
        n++;
    return n;
}

static struct story_slot *find_slot(struct story_expansion *e, const char *name, size_t length)
{
    for (int i = 0; i < e->count; i++)
        if (strncmp(e->slots[i].name, name, length) == 0 && e->slots[i].name[length] == '\0')
            return &e->slots[i];
    return NULL;
}

static const char *const *find_rule(const struct grammar *grammar, const char *name, size_t length)
{
    for (int i = 0; i < grammar->count; i++) {
        const char *have = grammar->rules[i].name;
        if (have[0] == name[0] && strncmp(have, name, length) == 0 && have[length] == '\0')
            return grammar->rules[i].productions;
    }
    return NULL;
}

/* Returns the bracket that closes the bracket before `p`. */
static const char *find_closing(const char *p, const char *end, char open, char close)
{
    int depth = 1;
    for (; p < end; p++) {
        depth += (*p == open) - (*p == close);
        if (depth == 0)
            return p;
    }
    assert(0 && "a bracket of a production is not closed");
    return end;
}

static void expand_production(struct story_expansion *e, const char *p, const char *end,
                              struct letter_sink *sink);

static void expand_rule(struct story_expansion *e, const char *name, size_t length,
                        struct letter_sink *sink)
{
    const char *const *productions = find_rule(e->grammar, name, length);
    if (!productions)
        productions = find_rule(&grammar_words, name, length);
    assert(productions && "a production names a rule that is not there");
    uint64_t n = 0;
    while (productions[n])
        n++;
    const char *chosen = productions[rng_below(e->rng, n)];
    expand_production(e, chosen, chosen + strlen(chosen), sink);
}

static void expand_choice(struct story_expansion *e, const char *p, const char *end,
                          struct letter_sink *sink)
{
    uint64_t n = 1, chosen;
    int depth = 0;
    for (const char *q = p; q < end; q++) {
        depth += (*q == '[') - (*q == ']');
        n += depth == 0 && *q == '|';
    }
    chosen = rng_below(e->rng, n);
    for (;; p++) { /* to the chosen alternative, then to its end */
        const char *q = p;
        for (depth = 0; q < end && (depth > 0 || *q != '|'); q++)
            depth += (*q == '[') - (*q == ']');
        if (chosen-- == 0) {
            expand_production(e, p, q, sink);
            return;
        }
        p = q;
    }
}

static bool same_first_field(const char *a, const char *b)
{
    size_t n = strcspn(a, "/");
    return n == strcspn(b, "/") && strncmp(a, b, n) == 0;
}

/* Executes "x!y!z=body" between angle brackets. */
static void assign_slot(struct story_expansion *e, const char *p, const char *end)
{
    const struct story_slot *others[4];
    int n_others = 0;
    size_t length = name_length(p, end);
    struct story_slot *slot = find_slot(e, p, length);
    if (!slot) {
        assert(e->count < SLOTS && length > 0 && length < SLOT_NAME);
        slot = &e->slots[e->count++];
        memcpy(slot->name, p, length);
    }
    for (p += length; *p == '!'; p += length) {
        length = name_length(++p, end);
        assert(n_others < 4);
        others[n_others++] = find_slot(e, p, length);
        assert(others[n_others - 1]);
    }
    assert(*p == '=');
    struct text text = {0};
    bool clash = true;
    for (int attempt = 0; clash && attempt < 64; attempt++) {
        text_clear(&text);
        struct letter_sink sink = {.text = &text, .inner = true};
        expand_production(e, p + 1, end, &sink);
        clash = false;
        for (int i = 0; i < n_others; i++)
            clash |= text.data && same_first_field(text.data, others[i]->value);
    }
    assert(text.size < SLOT_ROOM);
    if (text.data)
        memcpy(slot->value, text.data, text.size + 1);
    text_free(&text);
}

/* Emits the slot (or a field of it) named at `p`; returns the following position. */
static const char *recall_slot(struct story_expansion *e, const char *p, const char *end,
                               struct letter_sink *sink)
{
    size_t length = name_length(p, end);
    const struct story_slot *slot = find_slot(e, p, length);
    assert(slot && "a production recalls a slot that nothing was kept in");
    const char *value = slot->value;
    p += length;
    if (end - p >= 2 && p[0] == '.' && isdigit((unsigned char)p[1])) {
        for (int field = p[1] - '0'; field > 0; field--) {
            value += strcspn(value, "/");
            assert(*value && "a slot has fewer fields than a production wants");
            value += *value == '/';
        }
        p += 2;
    }
    for (size_t n = strcspn(value, "/"); n > 0; n--)
        emit_letter(sink, *value++);
    return p;
}

static void expand_production(struct story_expansion *e, const char *p, const char *end,
                              struct letter_sink *sink)
{
    while (p < end) {
        const char c = *p++, *close;
        size_t length;
        switch (c) {
        case '#':
            length = name_length(p, end);
            expand_rule(e, p, length, sink);
            p += length;
            break;
        case '$':
            p = recall_slot(e, p, end, sink);
            break;
        case '[':
            close = find_closing(p, end, '[', ']');
            expand_choice(e, p, close, sink);
            p = close + 1;
            break;
        case '<':
            close = find_closing(p, end, '<', '>');
            assign_slot(e, p, close);
            p = close + 1;
            break;
        case '@':
            sink->article = true;
            break;
        case '^':
            sink->capital = true;
            break;
        default:
            emit_letter(sink, c);
        }
    }
}

void grammar_expand(struct text *out, const struct grammar *grammar, struct rng *rng)
{
    static const char start[] = "#start";
    struct story_expansion e = {.grammar = grammar, .rng = rng};
    struct letter_sink sink = {.text = out, .begin = out->size};
    expand_production(&e, start, start + strlen(start), &sink);
}
