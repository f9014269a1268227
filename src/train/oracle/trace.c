#include "train/oracle/trace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"

enum sotto_status trace_open(struct trace *t, const char *folder, int worker, double now)
{
    char name[48];
    int fd;
    *t = (struct trace){.worker = worker, .began = now};
    snprintf(name, sizeof name, "trace-%d.tsv", worker);
    TRY(file_join(t->path, folder, name));
    TRY(file_make_directories(folder));
    TRY(file_open(&fd, t->path, O_WRONLY | O_CREAT | O_TRUNC));
    if (!(t->stream = fdopen(fd, "w"))) {
        close(fd);
        return fail_errno(SOTTO_EIO, "cannot write %s", t->path);
    }
    fprintf(t->stream, "worker\tseconds\tbatch\tstage\tpass\tlive\tpeak\n");
    return SOTTO_OK;
}

void trace_put(struct trace *t, const struct trace_row *r)
{
    fprintf(t->stream, "%d\t%.6f\t%" PRId64 "\t%d\t%s\t%zu\t%zu\n", t->worker,
            r->seconds - t->began, r->batch, r->stage + 1, r->backward ? "backward" : "forward",
            r->live, r->peak);
}

void trace_close(struct trace *t)
{
    if (!t->stream)
        return;
    const bool failed = ferror(t->stream);
    if (fclose(t->stream) != 0 || failed)
        log_warn("%s is not whole: the disk is full or cannot be written", t->path);
    t->stream = NULL;
}
