/* The launcher's command up to the program, read from the launcher if it is a process above this
 * one. Ranks cannot learn options such as -H in another way. */
#define _GNU_SOURCE /* fmemopen */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/option/option.h"
#include "comm/mpi/mpi_impl.h"

enum { ABOVE = 6, WORDS_ROOM = 1 << 16, MOST_WORDS = 4096 };

struct command_words {
    char text[WORDS_ROOM];
    const char *word[MOST_WORDS];
    int n;
};

/* Reads the words of a process's command; none if they cannot be read or do not fit. */
static void read_words(struct command_words *w, const char *process)
{
    char path[64];
    w->n = 0;
    snprintf(path, sizeof path, "/proc/%s/cmdline", process);
    FILE *in = fopen(path, "r");
    const size_t size = in ? fread(w->text, 1, sizeof w->text, in) : 0;
    if (in)
        fclose(in);
    if (size == sizeof w->text || (size && w->text[size - 1]))
        return;
    for (size_t at = 0; at < size && w->n < MOST_WORDS; at += strlen(w->text + at) + 1)
        w->word[w->n++] = w->text + at;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the parent of a process; 0: unknown. */
static long process_above(long process)
{
    char path[64], line[1024], *end;
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *in = fopen(path, "r");
    if (!in)
        return 0;
    if (fgets(line, sizeof line, in) && (end = strrchr(line, ')')) &&
        sscanf(end + 1, " %*c %ld", &parent) != 1)
        parent = 0;
    fclose(in);
    return parent;
}

static bool is_launcher(const char *program)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(last_part(program), names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Returns at which of the launcher's words the program begins: at this process's own words if they
 * end the command, else at the program that Open MPI was given, perhaps a script. 0: not found, or
 * several programs. */
static int find_own_words(const struct command_words *launcher, const struct command_words *own)
{
    const char *given = getenv("OMPI_COMMAND");
    const int at = launcher->n - own->n;
    bool same =
        at > 0 && own->n > 0 && strcmp(last_part(launcher->word[at]), last_part(own->word[0])) == 0;
    for (int i = 1; i < own->n && same; i++)
        same = strcmp(launcher->word[at + i], own->word[i]) == 0;
    for (int i = 1; i < launcher->n; i++)
        if (strcmp(launcher->word[i], ":") == 0)
            return 0;
    for (int i = 1; i < launcher->n && !same && given; i++)
        if (strcmp(launcher->word[i], given) == 0)
            return i;
    return same ? at : 0;
}

void mpi_read_launch_command(char *out, size_t room)
{
    struct command_words *launcher = malloc(sizeof *launcher), *own = malloc(sizeof *own);
    int program = 0;
    long process = getpid();
    for (int i = 0; i < ABOVE && launcher && own && !program; i++) {
        char name[32];
        if ((process = process_above(process)) <= 1)
            break;
        snprintf(name, sizeof name, "%ld", process);
        read_words(launcher, name);
        if (launcher->n == 0 || !is_launcher(launcher->word[0]))
            continue;
        read_words(own, "self");
        program = find_own_words(launcher, own);
        break;
    }
    memset(out, 0, room);
    FILE *to = program ? fmemopen(out, room - 1, "w") : NULL;
    for (int i = 0; to && i < program; i++) {
        option_put_word(launcher->word[i], to);
        fputc(i == 0 ? '\n' : ' ', to);
    }
    if (to && fclose(to) != 0)
        *out = '\0';
    if (out[room - 2]) /* may be cut: not used */
        *out = '\0';
    free(launcher);
    free(own);
}
