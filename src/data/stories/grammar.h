/* A context-free grammar with a memory, the engine behind the synthetic corpora. In a production
 *
 *     #rule        one of the rule's productions, drawn anew
 *     [a|b|]       one of the alternatives
 *     <x=...>      expands to nothing and keeps the expansion as slot x; <x!y=...> one that differs
 * from slot y $x  $x.2     the slot, or its third field: fields are separated by '/' and $x is the
 * first
 *     @            "a " or "an ", as what follows wants
 *     ^            the next letter is a capital; the first of a sentence or line is anyway
 *
 * so that whoever was named in one sentence is who the pronouns of the next ones mean. */
#ifndef SOTTO_DATA_STORIES_GRAMMAR_H
#define SOTTO_DATA_STORIES_GRAMMAR_H

#include "base/rng.h"
#include "data/string_buffer.h"

struct grammar_rule {
    const char *name;
    const char *const *productions; /* NULL-terminated */
};

struct grammar {
    const struct grammar_rule *rules; /* looked up before those of grammar_words */
    int count;
};

#define GRAMMAR_RULE(name, ...)                                                                    \
    {                                                                                              \
        name, (const char *const[])                                                                \
        {                                                                                          \
            __VA_ARGS__, NULL                                                                      \
        }                                                                                          \
    }
#define GRAMMAR(rules)                                                                             \
    {                                                                                              \
        rules, (int)(sizeof(rules) / sizeof *(rules))                                              \
    }

extern const struct grammar grammar_words; /* what all topics share: names, colours, numbers */
extern const struct grammar grammar_tales, grammar_weather, grammar_recipes, grammar_talks,
    grammar_letters;

/* Appends an expansion of the rule "start". */
void grammar_expand(struct text *out, const struct grammar *grammar, struct rng *rng);

#endif
