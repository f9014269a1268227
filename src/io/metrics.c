#include "io/metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

#define LINE_BYTES ((size_t)1 << 11) /* about fifty numbers; a longer line grows its buffer */

static double wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* True if a line of an earlier run stays: it is a whole line of ours, of a step not after the
 * resumed step. */
static bool keeps_line(const char *line, size_t length, int64_t resume_step)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    bool keep = json_is_integer(step) && json_integer_value(step) <= resume_step;
    json_decref(object);
    return keep;
}

/* Writes the lines of `from` up to `resume_step` to `path`, which may be the same file. */
static enum sotto_status copy_lines_to(const char *from, const char *path, int64_t resume_step)
{
    struct file_map old;
    struct file_draft draft;
    if (!file_exists(from))
        return SOTTO_OK;
    TRY(file_map_open(&old, from));
    enum sotto_status st = file_draft_open(&draft, path);
    const char *p = (const char *)old.data, *end = p ? p + old.size : p;
    size_t dropped = 0;
    while (st == SOTTO_OK && p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t length = stop ? (size_t)(stop - p) + 1 : (size_t)(end - p);
        if (stop && keeps_line(p, length, resume_step))
            st = file_put(&draft, p, length);
        else
            dropped++;
        p += length;
    }
    if (st == SOTTO_OK && (dropped || strcmp(from, path) != 0))
        st = file_commit(&draft);
    else
        file_abort(&draft);
    file_map_close(&old);
    return st;
}

enum sotto_status metrics_open(struct metrics *m, const char *folder, int64_t resume_step)
{
    *m = (struct metrics){.file = -1, .events.file = -1};
    TRY(file_join(m->path, folder, "metrics.jsonl"));
    TRY(file_make_directories(folder));
    TRY(copy_lines_to(m->path, m->path, resume_step));
    TRY(file_open(&m->file, m->path, O_WRONLY | O_CREAT | O_APPEND));
    enum sotto_status st = tfevents_open(&m->events, folder, wall_time(), resume_step + 1);
    if (st != SOTTO_OK)
        metrics_close(m);
    return st;
}

enum sotto_status metrics_copy(const char *from, const char *to, int64_t step)
{
    char theirs[FILE_PATH_ROOM], ours[FILE_PATH_ROOM];
    TRY(file_join(theirs, from, "metrics.jsonl"));
    TRY(file_join(ours, to, "metrics.jsonl"));
    return file_exists(ours) ? SOTTO_OK : copy_lines_to(theirs, ours, step);
}

void metrics_close(struct metrics *m)
{
    if (m->file >= 0)
        close(m->file);
    tfevents_close(&m->events);
    free(m->line);
    *m = (struct metrics){.file = -1, .events.file = -1};
}

static char *reserve_line(struct metrics *m, size_t more)
{
    if (m->used + more > m->room) {
        size_t need = m->used + more, room = 2 * (need > LINE_BYTES ? need : LINE_BYTES);
        char *line = realloc(m->line, room);
        if (!line) {
            m->no_memory = true;
            return NULL;
        }
        m->line = line;
        m->room = room;
    }
    return m->line + m->used;
}

static void line_add_text(struct metrics *m, const char *text)
{
    size_t length = strlen(text);
    char *p = reserve_line(m, length);
    if (!p)
        return;
    memcpy(p, text, length);
    m->used += length;
}

/* Names are the program's own; what JSON would need escaped is replaced. */
static void line_add_key(struct metrics *m, const char *name)
{
    line_add_text(m, ", \"");
    size_t from = m->used;
    line_add_text(m, name);
    for (size_t i = from; i < m->used; i++)
        if ((unsigned char)m->line[i] < ' ' || m->line[i] == '"' || m->line[i] == '\\')
            m->line[i] = '_';
    line_add_text(m, "\": ");
}

void metrics_begin(struct metrics *m, int64_t step)
{
    char text[48];
    m->used = 0;
    m->no_memory = false;
    m->step = step;
    snprintf(text, sizeof text, "{\"step\": %" PRId64, step);
    line_add_text(m, text);
}

void metrics_put(struct metrics *m, const char *name, double value)
{
    char text[48] = "null";
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    line_add_key(m, name);
    line_add_text(m, text);
    tfevents_put(&m->events, name, (float)value);
}

void metrics_put_int(struct metrics *m, const char *name, int64_t value)
{
    char text[48];
    snprintf(text, sizeof text, "%" PRId64, value);
    line_add_key(m, name);
    line_add_text(m, text);
    tfevents_put(&m->events, name, (float)value);
}

static enum sotto_status write_metrics_step(struct metrics *m)
{
    enum sotto_status st = SOTTO_OK;
    line_add_text(m, "}\n");
    if (m->no_memory)
        st = fail(SOTTO_ENOMEM, "no memory for the metrics of step %" PRId64, m->step);
    else
        st = file_append(m->file, m->path, m->line, m->used);
    enum sotto_status events = tfevents_write(&m->events, wall_time(), m->step);
    return st == SOTTO_OK ? events : st;
}

enum sotto_status metrics_end(struct metrics *m)
{
    enum sotto_status st = write_metrics_step(m);
    bool reported = m->silent;
    m->silent = st != SOTTO_OK;
    return reported ? SOTTO_OK : st;
}
