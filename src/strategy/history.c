#define _GNU_SOURCE /* open_memstream */
#include "strategy/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { ROOM = 1024 }; /* numbers at first; doubled when full */

enum sotto_status history_reserve(struct history *h, int64_t room)
{
    if (room > h->room) {
        int32_t *more = realloc(h->count, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %lld counts", (long long)room);
        h->count = more;
        h->room = room;
    }
    if (h->n < h->room)
        memset(h->count + h->n, 0, (size_t)(h->room - h->n) * sizeof *h->count);
    return SOTTO_OK;
}

enum sotto_status history_add(struct history *h, int32_t count)
{
    if (h->n == h->room)
        TRY(history_reserve(h, h->room ? 2 * h->room : ROOM));
    h->count[h->n++] = count;
    return SOTTO_OK;
}

static enum sotto_status read_counts(struct history *h, char *line, int rank, int size, bool uneven)
{
    char *end = line;
    for (int r = 0; r < size; r++) {
        char *from = end;
        const long value = strtol(from, &end, 10);
        if (end == from || value < !uneven || value > INT32_MAX)
            return fail(SOTTO_EFORMAT, "want %d counts of 1 or more%s, got '%.80s'", size,
                        uneven ? ", or 0 where a worker has no more" : "", line);
        if (r == rank)
            TRY(history_add(h, (int32_t)value));
    }
    end += strspn(end, " \t\r");
    return *end ? fail(SOTTO_EFORMAT, "more than %d counts: '%.80s'", size, line) : SOTTO_OK;
}

/* Drops the zeros at the end. */
static enum sotto_status trim_zeros(struct history *h)
{
    while (h->n > 0 && h->count[h->n - 1] == 0)
        h->n--;
    for (int64_t i = 0; i < h->n; i++)
        if (h->count[i] == 0)
            return fail(SOTTO_EFORMAT, "count %lld of a worker is 0, and others follow",
                        (long long)i + 1);
    return SOTTO_OK;
}

enum sotto_status history_read(struct history *h, const char *path, int rank, int size, bool uneven)
{
    char *text;
    *h = (struct history){0};
    TRY(file_read_text(path, (size_t)1 << 30, &text));
    enum sotto_status st = SOTTO_OK;
    int number = 1;
    for (char *line = text, *next; *line && st == SOTTO_OK; line = next, number++) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end)
            *end = '\0';
        if (*line && *line != '#')
            st = fail_in(read_counts(h, line, rank, size, uneven), "%s:%d: ", path, number);
    }
    free(text);
    if (st == SOTTO_OK)
        st = fail_in(trim_zeros(h), "%s: ", path);
    if (st != SOTTO_OK)
        history_free(h);
    return st;
}

enum sotto_status history_write(const char *path, const int32_t *all, int64_t n, int size)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        fprintf(out, "# micro-batches of each worker, a line each time they computed; 0: it has "
                     "done\n");
        for (int64_t i = 0; i < n; i++)
            for (int r = 0; r < size; r++)
                fprintf(out, "%d%c", all[r * n + i], r == size - 1 ? '\n' : '\t');
    }
    bool whole = out && !ferror(out);
    if (out && fclose(out) != 0)
        whole = false;
    enum sotto_status st =
        whole ? file_write(path, text, bytes) : fail(SOTTO_ENOMEM, "no memory for %s", path);
    free(text);
    return st;
}

void history_free(struct history *h)
{
    free(h->count);
    *h = (struct history){0};
}
