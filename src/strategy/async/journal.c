#define _GNU_SOURCE /* open_memstream */
#include "strategy/async/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { ROOM = 1024 }; /* entries at first, then doubled */

static enum sotto_status grow_journal(struct async_journal *j, int64_t room)
{
    struct async_entry *more = realloc(j->entry, (size_t)room * sizeof *more);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory for %lld pushes", (long long)room);
    j->entry = more;
    j->room = room;
    return SOTTO_OK;
}

enum sotto_status journal_add(struct async_journal *j, struct async_entry entry)
{
    if (j->n == j->room)
        TRY(grow_journal(j, j->room ? 2 * j->room : ROOM));
    j->entry[j->n++] = entry;
    return SOTTO_OK;
}

const struct async_entry *journal_next(const struct async_journal *j, int64_t from, int64_t group)
{
    for (int64_t i = from; i < j->n; i++)
        if (j->entry[i].group == group)
            return &j->entry[i];
    return NULL;
}

/* Refuses an impossible entry. Data shards check the data when it is given out. */
static enum sotto_status check_entry(const struct async_entry *e, int64_t number, int groups)
{
    const struct async_span *s = &e->span;
    if (e->group < 0 || e->group >= groups || s->shard < 0 || s->shard >= groups || s->first < 0 ||
        s->first > STATE_STEPS || s->steps < 1 || s->steps > STATE_STEPS || e->version < 0 ||
        e->version > number)
        return fail(SOTTO_EFORMAT,
                    "push %lld of a run with %d groups cannot be %lld steps of group %lld from "
                    "step %lld of data shard %lld on, pulled at %lld pushes",
                    (long long)number, groups, (long long)s->steps, (long long)e->group,
                    (long long)s->first, (long long)s->shard, (long long)e->version);
    return SOTTO_OK;
}

static enum sotto_status read_journal_entry(struct async_journal *j, const char *line, int groups)
{
    int64_t value[ASYNC_ENTRY];
    const char *at = line;
    for (int i = 0; i < ASYNC_ENTRY; i++) {
        char *end;
        errno = 0;
        value[i] = strtoll(at, &end, 10);
        if (end == at || errno)
            return fail(SOTTO_EFORMAT, "want %d numbers, got '%.80s'", ASYNC_ENTRY, line);
        at = end;
    }
    at += strspn(at, " \t\r");
    if (*at)
        return fail(SOTTO_EFORMAT, "more than %d numbers: '%.80s'", ASYNC_ENTRY, line);
    const struct async_entry e = {value[0], {value[2], value[3], value[1]}, value[4]};
    TRY(check_entry(&e, j->n, groups));
    return journal_add(j, e);
}

enum sotto_status journal_read(struct async_journal *j, const char *path, int groups)
{
    char *text;
    *j = (struct async_journal){0};
    TRY(file_read_text(path, (size_t)1 << 30, &text));
    enum sotto_status st = SOTTO_OK;
    int number = 1;
    for (char *line = text, *next; *line && st == SOTTO_OK; line = next, number++) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end)
            *end = '\0';
        if (*line && *line != '#')
            st = fail_in(read_journal_entry(j, line, groups), "%s:%d: ", path, number);
    }
    free(text);
    if (st != SOTTO_OK)
        journal_free(j);
    return st;
}

enum sotto_status journal_write(const struct async_journal *j, const char *path)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        fprintf(out, "# group\tsteps\tdata shard\tits first step\tversion pulled\n");
        for (int64_t i = 0; i < j->n; i++) {
            const struct async_entry *e = &j->entry[i];
            fprintf(out, "%lld\t%lld\t%lld\t%lld\t%lld\n", (long long)e->group,
                    (long long)e->span.steps, (long long)e->span.shard, (long long)e->span.first,
                    (long long)e->version);
        }
    }
    bool whole = out && !ferror(out);
    if (out && fclose(out) != 0)
        whole = false;
    enum sotto_status st =
        whole ? file_write(path, text, bytes) : fail(SOTTO_ENOMEM, "no memory for %s", path);
    free(text);
    return st;
}

enum sotto_status journal_visit(struct async_journal *j, struct state_visitor *v, int groups)
{
    int64_t n = j->n;
    TRY(state_count(v, "pushes", &n, STATE_STEPS));
    if (state_loading(v)) {
        const size_t stored = n > 0 ? state_stored(v, "journal") : 0;
        if (stored != (size_t)n * ASYNC_ENTRY)
            return fail(SOTTO_EFORMAT, "the journal has %zu numbers of %lld pushes, not %d each",
                        stored, (long long)n, ASYNC_ENTRY);
        if (n > j->room)
            TRY(grow_journal(j, n));
        j->n = n;
    }
    if (n == 0)
        return SOTTO_OK;
    TRY(state_ints(v, "journal", (int64_t *)j->entry, (size_t)n * ASYNC_ENTRY));
    for (int64_t i = 0; i < n && state_loading(v); i++)
        TRY(check_entry(&j->entry[i], i, groups));
    return SOTTO_OK;
}

void journal_free(struct async_journal *j)
{
    free(j->entry);
    *j = (struct async_journal){0};
}
