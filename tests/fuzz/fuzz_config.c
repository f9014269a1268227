/* libFuzzer: any text as a configuration file. What is accepted must survive a dump and a second
 * reading. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/option/option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const kinds[] = {"sgd", "adamw", NULL};

struct config {
    int steps;
    int64_t tokens;
    double lr;
    bool nesterov;
    int kind;
    char name[OPTION_ROOM];
};

static const struct option plain[] = {
    OPTION_INT(struct config, steps, "100", 1, 1e6, "rounds"),
    OPTION_TEXT(struct config, name, "run", "of the run"),
};
static const struct option optim[] = {
    OPTION_LONG(struct config, tokens, "64k", -9.3e18, 9.3e18, "a batch"),
    OPTION_REAL(struct config, lr, "1e-3", -1e300, 1e300, "learning rate"),
    OPTION_BOOL(struct config, nesterov, "no", "Nesterov's momentum"),
    OPTION_ENUM(struct config, kind, "adamw", kinds, "of optimizer"),
    OPTION_INT(struct config, steps, "5", -1e10, 1e10, "a key that the other section has too"),
};

static char *load_and_dump(const char *text, enum sotto_status *st)
{
    struct config config[2];
    memset(config, 0, sizeof config);
    const struct option_section sections[] = {
        OPTION_SECTION("", "the run", plain, &config[0]),
        OPTION_SECTION("optim", "the optimizer", optim, &config[1]),
    };
    option_defaults(sections, 2);
    *st = option_load_text(sections, 2, text, "input");
    return option_dump(sections, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    enum sotto_status st;
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    char *first = load_and_dump(text, &st);
    if (first) {
        char *second = load_and_dump(first, &st); /* also of what was set before an error */
        assert(st == SOTTO_OK);
        assert(!second || strcmp(first, second) == 0);
        free(second);
    }
    free(first);
    free(text);
    return 0;
}
