#include "data/stories/stories.h"

#include <assert.h>

#include "base/file.h"
#include "data/stories/grammar.h"

const char *const stories_names[STORIES_TOPICS + 1] = {
    [STORIES_MIXED] = "mixed",     [STORIES_TALES] = "tales", [STORIES_WEATHER] = "weather",
    [STORIES_RECIPES] = "recipes", [STORIES_TALKS] = "talks", [STORIES_LETTERS] = "letters",
};

static const struct grammar *const grammars[STORIES_TOPICS] = {
    [STORIES_TALES] = &grammar_tales,     [STORIES_WEATHER] = &grammar_weather,
    [STORIES_RECIPES] = &grammar_recipes, [STORIES_TALKS] = &grammar_talks,
    [STORIES_LETTERS] = &grammar_letters,
};

void stories_make(struct text *out, enum stories_topic topic, uint64_t seed, int64_t index)
{
    assert(topic < STORIES_TOPICS && index >= 0);
    struct rng rng = rng_make(seed, (uint64_t)(0x5704 + topic) << 40 ^ (uint64_t)index);
    if (topic == STORIES_MIXED) {
        const int others = STORIES_TOPICS - STORIES_TALES - 1;
        int k = (int)rng_below(&rng, 2 * (uint64_t)others);
        topic = k < others ? STORIES_TALES : (enum stories_topic)(STORIES_TALES + 1 + k - others);
    }
    grammar_expand(out, grammars[topic], &rng);
}

enum sotto_status stories_write(const char *path, enum stories_topic topic, uint64_t seed,
                                int64_t count)
{
    struct file_draft draft;
    struct text text = {0};
    enum sotto_status st = SOTTO_OK;
    TRY(file_draft_open(&draft, path));
    for (int64_t i = 0; i < count && st == SOTTO_OK; i++) {
        text_clear(&text);
        stories_make(&text, topic, seed, i);
        text_add(&text, i + 1 < count ? "\n<|endoftext|>\n" : "\n");
        st = text_status(&text);
        if (st == SOTTO_OK)
            st = file_put(&draft, text.data, text.size);
    }
    text_free(&text);
    if (st == SOTTO_OK)
        return file_commit(&draft);
    file_abort(&draft);
    return st;
}
