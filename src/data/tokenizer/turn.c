/* The token that ends a turn: the token that the chat template of a folder puts after the text of
 * an assistant.
 *
 * A template is a program in Jinja, which does not run here. The walk goes over the marks from each
 * place with the content of an assistant's message: into branches that may be taken, past branches
 * of other roles, of tools and of the prompt for an answer, up to the end of the loop over the
 * messages. The first special token that is written on the way ends the turn. */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/template.h"
#include "data/tokenizer/tokenizer_impl.h"

static const size_t template_limit = (size_t)1 << 24;

/* Returns the first token in a text that is written, the longest of several at a place; -1: none.
 */
static int find_written(const struct tokenizer *t, struct span text, bool special)
{
    const struct bpe_added_list *added = &t->added;
    const char *first = NULL;
    size_t size = 0;
    int id = -1;
    for (uint32_t i = 0; i < added->count; i++) {
        const struct bpe_added *a = &added->item[i];
        const char *at =
            a->special || !special
                ? memmem(text.at, text.size, added->pool.data + a->content, a->content_size)
                : NULL;
        if (!at || (first && (at > first || (at == first && a->content_size <= size))))
            continue;
        first = at;
        size = a->content_size;
        id = (int)a->id;
    }
    return id;
}

/* Returns the token that a member of tokenizer_config.json names: a text, or an object with a
 * content. */
static int member_token(const struct tokenizer *t, const json_t *config, struct span member)
{
    char key[64];
    if (member.size >= sizeof key)
        return -1;
    memcpy(key, member.at, member.size);
    key[member.size] = '\0';
    const json_t *name = json_object_get(config, key);
    if (json_is_object(name))
        name = json_object_get(name, "content");
    return json_is_string(name)
               ? tokenizer_find(t, json_string_value(name), json_string_length(name))
               : -1;
}

static const struct span eos_member = {"eos_token", 9};

static int config_end(const struct tokenizer *t, const json_t *config)
{
    const int id = member_token(t, config, eos_member);
    return id < 0 ? tokenizer_end(t) : id;
}

/* Returns the mark that closes the block opened at `i`, or the block's next branch; the end of the
 * list if there is none. */
static size_t skip_marks(const struct mark_list *l, size_t i, bool branches)
{
    for (int depth = 0; ++i < l->count;) {
        const enum mark_kind k = l->mark[i].kind;
        if (depth == 0 && branches && (k == MARK_ELIF || k == MARK_ELSE))
            return i;
        if (depth == 0 && (k == MARK_ENDIF || k == MARK_ENDFOR || k == MARK_SHOW))
            return i;
        depth += k == MARK_IF || k == MARK_FOR || k == MARK_HIDE;
        depth -= k == MARK_ENDIF || k == MARK_ENDFOR || k == MARK_SHOW;
    }
    return l->count;
}

/* True for a branch that is not on the way to an answer, under any further condition. */
static bool leads_away(const struct mark *m)
{
    static const char *const asides[] = {"add_generation_prompt", "image", "video", "audio", NULL};
    for (int i = 0; asides[i]; i++)
        if (m->kind != MARK_ELSE && memmem(m->span.at, m->span.size, asides[i], strlen(asides[i])))
            return true;
    return m->admits == ADMITS_NEVER || m->admits == ADMITS_CALLS;
}

/* Returns the first branch on the way. */
static size_t enter_branch(const struct mark_list *l, size_t i)
{
    while (i < l->count && l->mark[i].kind != MARK_ENDIF && leads_away(&l->mark[i]))
        i = skip_marks(l, i, true);
    return i;
}

/* State that walks share. */
struct turn_search {
    const struct tokenizer *tokenizer;
    const json_t *config;
    const struct mark_list *list;
    bool special; /* only special tokens count */
    size_t left;  /* marks and bytes that may still be visited: bounds the time */
};

static bool pay_walk(struct turn_search *s, size_t cost)
{
    s->left = s->left > cost ? s->left - cost : 0;
    return s->left > 0;
}

/* Returns the first token written after mark `i`, -1 if the message ends first. */
static int walk_on(struct turn_search *s, size_t i)
{
    const struct tokenizer *t = s->tokenizer;
    const json_t *config = s->config;
    const struct mark_list *l = s->list;
    while (++i < l->count) {
        const struct mark *m = &l->mark[i];
        const size_t from = i;
        int id = -1;
        if (!pay_walk(s, m->kind == MARK_TEXT ? m->span.size + 1 : 1))
            return -1;
        switch (m->kind) {
        case MARK_TEXT:
            id = find_written(t, m->span, s->special);
            break;
        case MARK_TOKEN:
            id = m->span.size == eos_member.size &&
                         memcmp(m->span.at, eos_member.at, eos_member.size) == 0
                     ? config_end(t, config)
                     : member_token(t, config, m->span);
            break;
        case MARK_IF:
            i = enter_branch(l, i);
            break;
        case MARK_ELIF:
        case MARK_ELSE: /* of an ended branch */
            i = skip_marks(l, i, false);
            break;
        case MARK_FOR:
        case MARK_HIDE:
            i = skip_marks(l, i, false);
            break;
        case MARK_ENDFOR:
            if (m->messages)
                return -1;
            break;
        case MARK_SHOW:
            return -1;
        case MARK_CONTENT:
        case MARK_ENDIF:
            break;
        }
        if (id >= 0)
            return id;
        if (!pay_walk(s, i - from))
            return -1;
    }
    return -1;
}

/* Starts walks at places of an assistant first, then at unclear places, last at calls of tools. */
static int find_turn_end(const struct tokenizer *t, const json_t *config, const struct mark_list *l)
{
    static const enum admits order[] = {ADMITS_ASSISTANT, ADMITS_MAYBE, ADMITS_CALLS};
    struct turn_search s = {t, config, l, true, (size_t)1 << 24};
    for (int turn = 0; turn < 2; turn++, s.special = false)
        for (size_t k = 0; k < sizeof order / sizeof *order; k++)
            for (size_t i = 0; i < l->count; i++) {
                const struct mark *m = &l->mark[i];
                const int id =
                    m->kind == MARK_CONTENT && m->admits == order[k] ? walk_on(&s, i) : -1;
                if (id >= 0)
                    return id;
            }
    return -1;
}

static enum sotto_status take_template(struct tokenizer *t, const json_t *config, const char *text,
                                       size_t size)
{
    struct mark_list list;
    const enum sotto_status st = template_read(&list, text, size);
    if (st == SOTTO_ENOMEM)
        return st;
    int id = -1;
    if (st == SOTTO_OK) {
        id = find_turn_end(t, config, &list);
        template_free(&list);
    }
    t->turn_guessed = id < 0;
    id = id < 0 ? config_end(t, config) : id;
    t->turn_end = id < 0 ? BPE_NONE : (uint32_t)id;
    return SOTTO_OK;
}

/* Returns the template: a text, or one of a list of templates with names. */
static const json_t *choose_template(const json_t *value)
{
    const json_t *chosen = NULL, *each;
    size_t i;
    if (!json_is_array(value))
        return value;
    json_array_foreach(value, i, each)
    {
        const char *name = json_string_value(json_object_get(each, "name"));
        if (!chosen || (name && strcmp(name, "default") == 0))
            chosen = json_object_get(each, "template");
    }
    return chosen;
}

static enum sotto_status read_member(struct tokenizer *t, const json_t *config, const json_t *from,
                                     bool *found)
{
    const json_t *text = choose_template(json_object_get(from, "chat_template"));
    *found = json_is_string(text);
    return *found ? take_template(t, config, json_string_value(text), json_string_length(text))
                  : SOTTO_OK;
}

/* Reads the files in transformers' order. */
enum sotto_status tokenizer_read_turn(struct tokenizer *t, const char *folder, const json_t *config)
{
    char path[FILE_PATH_ROOM], *text;
    size_t size;
    bool found;
    TRY(file_join(path, folder, "chat_template.jinja"));
    if (file_exists(path)) {
        TRY(file_read(path, template_limit, &text, &size));
        const enum sotto_status st = take_template(t, config, text, size);
        free(text);
        return st;
    }
    TRY(read_member(t, config, config, &found));
    TRY(file_join(path, folder, "chat_template.json"));
    if (found || !file_exists(path))
        return SOTTO_OK;
    TRY(file_read(path, template_limit, &text, &size));
    json_t *json = json_loadb(text, size, 0, NULL); /* a file that is not JSON has no template */
    free(text);
    const enum sotto_status st = read_member(t, config, json, &found);
    json_decref(json);
    return st;
}

int tokenizer_turn_end(const struct tokenizer *t)
{
    return t->turn_end == BPE_NONE ? tokenizer_end(t) : (int)t->turn_end;
}

bool tokenizer_turn_guessed(const struct tokenizer *t)
{
    return t->turn_guessed;
}
