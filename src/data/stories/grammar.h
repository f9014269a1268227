/* A context-free grammar with a memory, the engine of the synthetic corpora. In a production
 *
 *     #rule        one of the rule's productions, drawn each time
 *     [a|b|]       one of the alternatives
 *     <x=...>      expands to nothing and stores the expansion as slot x
 *     <x!y=...>    the same, but never the value of slot y
 *     $x  $x.2     the slot, or its third field: fields are separated by '/', $x is the first
 *     @            "a " or "an ", by the following letter
 *     ^            the next letter is a capital; the first of a sentence or line always is
 *
 * Slots let the pronouns of a sentence mean the person named in an earlier sentence. */
#ifndef SOTTO_DATA_STORIES_GRAMMAR_H
#define SOTTO_DATA_STORIES_GRAMMAR_H

#include "base/rng.h"
#include "data/string_buffer.h"

struct grammar_rule {
    const char *name;
    const char *const *productions; /* NULL-terminated */
};

struct grammar {
    const struct grammar_rule *rules; /* before the rules of grammar_words */
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

extern const struct grammar grammar_words; /* rules of all topics: names, colours, numbers */
extern const struct grammar grammar_tales, grammar_weather, grammar_recipes, grammar_talks,
    grammar_letters;

/* Appends an expansion of the rule "start". */
void grammar_expand(struct text *out, const struct grammar *grammar, struct rng *rng);

#endif
