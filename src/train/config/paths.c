#define _GNU_SOURCE /* open_memstream */
#include "train/config/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/text/source.h"

static void complete_path(char *name, size_t room, const char *folder)
{
    char path[FILE_PATH_ROOM];
    if (*name && *name != '/' && file_join(path, folder, name) == SOTTO_OK && strlen(path) < room)
        strcpy(name, path);
}

/* "a.txt, stories:weather, more/" */
static void complete_names(char *names, size_t room, const struct data_config *data,
                           const char *folder)
{
    char *copy = strdup(names), *text = NULL, *rest = NULL;
    size_t size;
    FILE *out = copy ? open_memstream(&text, &size) : NULL;
    if (out) {
        for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
            word += strspn(word, " \t");
            for (size_t n = strlen(word); n > 0 && strchr(" \t", word[n - 1]); n--)
                word[n - 1] = '\0';
            if (!*word)
                continue;
            const bool file = *word != '/' && !source_made_up(data, word);
            fprintf(out, "%s%s%s%s", ftell(out) > 0 ? "," : "", file ? folder : "", file ? "/" : "",
                    word);
        }
        if (fclose(out) == 0 && strlen(text) < room)
            strcpy(names, text);
    }
    free(copy);
    free(text);
}

void paths_complete(struct run_config *c)
{
    char folder[FILE_PATH_ROOM];
    if (!getcwd(folder, sizeof folder))
        return;
    complete_names(c->data.train, sizeof c->data.train, &c->data, folder);
    complete_names(c->data.valid, sizeof c->data.valid, &c->data, folder);
    complete_path(c->data.tokenizer, sizeof c->data.tokenizer, folder);
    complete_path(c->data.cache, sizeof c->data.cache, folder);
    complete_path(c->train.init, sizeof c->train.init, folder);
    struct option_section methods[STRATEGY_SECTIONS];
    strategy_sections(&c->strategy, methods);
    for (int s = 0; s < STRATEGY_SECTIONS; s++)
        for (int i = 0; i < methods[s].count; i++) {
            const struct option *o = &methods[s].table[i];
            if (o->file)
                complete_path((char *)methods[s].config + o->offset, o->room, folder);
        }
}
