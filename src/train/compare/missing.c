#include "train/compare/missing.h"

#include <stdlib.h>
#include <string.h>

#include "data/text/source.h"

enum { MISSING_TEXT = 640, MISSING_COMMAND = 256 };

struct missing {
    char files[MISSING_TEXT];      /* "a.txt, b.txt"                                         */
    int n;                         /* files                                                  */
    bool cut;                      /* further files did not fit into `files`                */
    char command[MISSING_COMMAND]; /* "experiments/prepare kjv vim"; "": no file is made    */
    int made;                      /* files that the command makes                           */
};

/* True if `list`, split at the characters of `between`, contains `word`. */
static bool list_has(const char *list, const char *word, const char *between)
{
    const size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at += n)
        if ((at == list || strchr(between, at[-1])) && (!at[n] || strchr(between, at[n])))
            return true;
    return false;
}

/* Searches the script `prepare` for a word "NAME:FILE" with FILE equal to `file`, and copies NAME,
 * the argument that makes the file, to `name`. False if there is no such word. */
static bool find_prepare_target(const char *prepare, const char *file, char *name, size_t room)
{
    char *text, *rest = NULL;
    bool found = false;
    if (!file_exists(prepare) || file_read_text(prepare, 1 << 20, &text) != SOTTO_OK)
        return false;
    for (char *word = strtok_r(text, " \t\n\"", &rest); word && !found;
         word = strtok_r(NULL, " \t\n\"", &rest)) {
        char *colon = strchr(word, ':');
        found =
            colon && colon > word && strcmp(colon + 1, file) == 0 && (size_t)(colon - word) < room;
        if (found) {
            memcpy(name, word, (size_t)(colon - word));
            name[colon - word] = '\0';
        }
    }
    free(text);
    return found;
}

/* Adds the argument that makes `path`, such as experiments/data/kjv.txt, to the command. */
static void add_command(struct missing *m, const char *path)
{
    static const char folder[] = "experiments/data/";
    char prepare[FILE_PATH_ROOM], name[64];
    const char *at = strstr(path, folder), *file = at ? at + strlen(folder) : "";
    if (!at || (at != path && at[-1] != '/') || !*file || strchr(file, '/'))
        return;
    const int lead = (int)(at - path) + (int)strlen("experiments/");
    const int length = snprintf(prepare, sizeof prepare, "%.*sprepare", lead, path);
    if (!find_prepare_target(prepare, file, name, sizeof name))
        return;
    const size_t used = strlen(m->command);
    if (used && (strncmp(m->command, prepare, (size_t)length) != 0 || m->command[length] != ' '))
        return; /* the command calls another experiments/prepare */
    if (list_has(m->command, name, " ") ||
        used + (used ? 0 : (size_t)length) + strlen(name) + 2 > sizeof m->command)
        return;
    snprintf(m->command + used, sizeof m->command - used, "%s %s", used ? "" : prepare, name);
    m->made++;
}

static void add_file_missing(struct missing *m, const char *path)
{
    const size_t used = strlen(m->files);
    if (list_has(m->files, path, ", "))
        return;
    m->n++;
    add_command(m, path);
    if (used + strlen(path) + 3 > sizeof m->files)
        m->cut = true;
    else
        snprintf(m->files + used, sizeof m->files - used, "%s%s", used ? ", " : "", path);
}

static enum sotto_status add_missing_list(struct missing *m, const struct data_config *data,
                                          const char *list)
{
    for (;;) {
        char word[FILE_PATH_ROOM];
        TRY(data_word(&list, word));
        if (!*word)
            return SOTTO_OK;
        if (!source_made_up(data, word) && !file_exists(word))
            add_file_missing(m, word);
    }
}

static const char *skip_here(const char *path)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return path;
}

/* True if `path` is in the folder of a wanted run, which makes the file. */
static bool run_makes(const struct jobs *jobs, const char *path)
{
    path = skip_here(path);
    for (int i = 0; i < jobs->n; i++) {
        const char *folder = skip_here(jobs->list[i].folder);
        const size_t n = strlen(folder);
        if (jobs->list[i].wanted && strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/'))
            return true;
    }
    return false;
}

/* Adds `path`, a tokenizer or the model to start from, if the file does not exist. "": not set. */
static void add_missing_part(struct missing *m, const struct jobs *jobs, const char *path)
{
    if (*path && !file_exists(path) && !run_makes(jobs, path))
        add_file_missing(m, path);
}

static enum sotto_status raise_missing(const struct missing *m)
{
    char makes[MISSING_COMMAND + 64] = "";
    if (m->n == 0)
        return SOTTO_OK;
    if (m->made == m->n)
        snprintf(makes, sizeof makes, "; %s makes %s", m->command, m->n == 1 ? "it" : "them");
    else if (m->made)
        snprintf(makes, sizeof makes, "; %s makes %d of them", m->command, m->made);
    return fail(SOTTO_EIO, "no run is started, since data are missing: %s%s%s", m->files,
                m->cut ? " and others" : "", makes);
}

enum sotto_status missing_refuse(const struct jobs *jobs, bool again)
{
    struct missing m = {0};
    for (int i = 0; i < jobs->n; i++) {
        const struct job *job = &jobs->list[i];
        struct run_config config;
        if (!job->wanted || (job->state == JOB_DONE && !again))
            continue;
        TRY(job_config(jobs, job, &config));
        if (config.train.oracle == ORACLE_NULL) /* reads no data */
            continue;
        TRY(add_missing_list(&m, &config.data, config.data.train));
        TRY(add_missing_list(&m, &config.data, config.data.valid));
        add_missing_part(&m, jobs, config.data.tokenizer);
        add_missing_part(&m, jobs, config.train.init);
    }
    return raise_missing(&m);
}
