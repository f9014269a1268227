/* Messages that their sender does not wait for: copies, which MPI sends while it is polled. Copies
 * are kept for later messages; their number is the most that were ever in flight at once. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum sotto_status test_posted(struct mpi_member *m, void *arg, int *done)
{
    struct mpi_posted *p = arg;
    *done = 1;
    for (int i = 0; i < p->n && *done; i++)
        TRY(mpi_check(m, MPI_Test(&p->request[i], done, MPI_STATUS_IGNORE), "post"));
    return SOTTO_OK;
}

/* Moves sent messages to the idle list. */
static enum sotto_status reap_posted(struct mpi_member *m)
{
    for (struct mpi_posted **at = &m->posted; *at;) {
        struct mpi_posted *p = *at;
        int done = 0;
        TRY(test_posted(m, p, &done));
        if (!done) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = m->idle;
        m->idle = p;
    }
    return SOTTO_OK;
}

/* Takes the smallest idle message with room for `bytes` bytes, or else the largest; NULL: none. */
static struct mpi_posted *take_idle_posted(struct mpi_member *m, size_t bytes)
{
    struct mpi_posted **best = &m->idle, *p = m->idle;
    for (struct mpi_posted **at = best; *at; at = &(*at)->next) {
        const size_t room = (*at)->room, so_far = (*best)->room;
        if (so_far < bytes ? room > so_far : room >= bytes && room < so_far)
            best = at;
    }
    if (p) {
        p = *best;
        *best = p->next;
    }
    return p;
}

static void free_posted(struct mpi_posted *p)
{
    free(p->request);
    free(p->data);
    free(p);
}

/* Makes a message with `n` requests and room for `bytes` bytes. */
static enum sotto_status make_posted(struct mpi_member *m, size_t bytes, int n,
                                     struct mpi_posted **out)
{
    struct mpi_posted *p = take_idle_posted(m, bytes);
    if (!p && !(p = calloc(1, sizeof *p)))
        return fail(SOTTO_ENOMEM, "no memory for a message");
    if (p->n < n) {
        free(p->request);
        p->request = calloc((size_t)n, sizeof(MPI_Request));
        p->n = p->request ? n : 0;
    }
    if (p->room < bytes) {
        free(p->data);
        p->data = malloc(bytes);
        p->room = p->data ? bytes : 0;
    }
    if (p->n < n || p->room < bytes) {
        free_posted(p);
        return fail(SOTTO_ENOMEM, "no memory for a message of %zu bytes", bytes);
    }
    for (int i = 0; i < p->n; i++)
        p->request[i] = MPI_REQUEST_NULL;
    *out = p;
    return SOTTO_OK;
}

/* Posts a hello and the message in pieces, as messages.c receives them. */
enum sotto_status mpi_post(struct comm *c, const void *data, size_t bytes, int to)
{
    struct mpi_member *m = (struct mpi_member *)c;
    const size_t largest = m->shared->largest;
    const int pieces = (int)(bytes / largest) + 1;
    struct mpi_posted *p = NULL;
    TRY(reap_posted(m));
    TRY(make_posted(m, bytes, pieces + 1, &p));
    p->next = m->posted;
    m->posted = p;
    if (bytes)
        memcpy(p->data, data, bytes);
    TRY(mpi_check(m, MPI_Isend(NULL, 0, MPI_BYTE, to, MPI_TAG_HELLO, m->comm, &p->request[0]),
                  "hello"));
    for (int i = 0; i < pieces; i++) {
        const size_t at = (size_t)i * largest;
        TRY(mpi_check(m,
                      MPI_Isend(bytes ? p->data + at : NULL, mpi_piece(m, bytes, at), MPI_BYTE, to,
                                MPI_TAG_SEND, m->comm, &p->request[i + 1]),
                      "post"));
    }
    return SOTTO_OK;
}

void mpi_post_close(struct mpi_member *m)
{
    struct mpi_posted *lists[] = {m->posted, m->idle};
    for (struct mpi_posted *p = m->posted; p; p = p->next)
        (void)mpi_poll(m, test_posted, p, INFINITY, false);
    for (int i = 0; i < 2; i++)
        while (lists[i]) {
            struct mpi_posted *p = lists[i];
            lists[i] = p->next;
            free_posted(p);
        }
}

#endif
