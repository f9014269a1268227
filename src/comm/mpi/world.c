/* The world of MPI and its communicators: start, split, end. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Open MPI sends a long message over TCP as one "put", and messages in the other direction wait for
 * its end: a ring would use a slow link one way at a time. As plain sends (flags without put) both
 * directions are busy. A value that the user has set stays. */
static void tune_open_mpi(void)
{
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma", 0);
}

/* Warns before MPI starts: if srun does not speak PMIx, Open MPI (unless built for Slurm's older
 * protocols) ends the process itself, and advises to build Slurm again. */
static void warn_of_srun(void)
{
#ifdef OPEN_MPI
    const char *task = getenv("SLURM_PROCID");
    if (getenv("SLURM_STEP_NUM_TASKS") && task && strcmp(task, "0") == 0 &&
        !getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK"))
        log_warn("srun started %d tasks without PMIx: if Open MPI does not start now, use "
                 "srun --mpi=pmix",
                 mpi_launched_size());
#endif
}

/* Libraries report name and version, and after a comma or a line's end the build: "Open MPI v5.0.7,
 * package: ...", "MPICH Version: 4.3.0". */
void mpi_describe(char *out, size_t room)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    char *colon = strstr(text, " Version:");
    if (colon) {
        const char *version = colon + strlen(" Version:");
        version += strspn(version, " \t");
        memmove(colon + 1, version, strlen(version) + 1);
    }
    snprintf(out, room, "%s", text);
}

static enum sotto_status start_mpi(bool *ours)
{
    int running = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&running);
    MPI_Finalized(&ended);
    if (ended)
        return fail(SOTTO_EINVAL, "MPI has ended in this process and cannot start again");
    *ours = !running;
    if (*ours) {
        tune_open_mpi();
        warn_of_srun();
    }
    if (running)
        MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return fail(SOTTO_EPEER, "MPI does not start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level >= MPI_THREAD_MULTIPLE)
        return SOTTO_OK;
    if (*ours)
        MPI_Finalize();
    return fail(SOTTO_EINVAL, running
                                  ? "the program started MPI without MPI_THREAD_MULTIPLE, which "
                                    "overlapped communication needs"
                                  : "this MPI library offers no MPI_THREAD_MULTIPLE, which "
                                    "overlapped communication needs");
}

/* Drops one user of the shared state. The last user ends MPI, when all ranks have arrived here. */
static void leave_shared(struct mpi_shared *s)
{
    if (atomic_fetch_sub(&s->users, 1) > 1)
        return;
    struct mpi_member all = {.base.rank = s->rank, .shared = s};
    MPI_Request request;
    MPI_Op_free(&s->add_bf16);
    s->liveness.leaving = true;
    if (s->ours && MPI_Ibarrier(MPI_COMM_WORLD, &request) == MPI_SUCCESS)
        mpi_await(&all, &request, MPI_STATUS_IGNORE, "end");
    mpi_liveness_close(&s->liveness);
    if (s->ours)
        MPI_Finalize();
    nccl_close(&s->nccl);
    mpi_peers_close(&s->peers);
    free(s->host);
    free(s);
}

static void mpi_free_member(struct comm *c)
{
    struct mpi_member *m = (struct mpi_member *)c;
    mpi_post_close(m);
    if (m->comm != MPI_COMM_NULL && !m->twin)
        MPI_Comm_free(&m->comm);
    leave_shared(m->shared);
    if (!m->twin)
        free(m->node);
    free(m->offer);
    free(m->counts);
    free(m->displs);
    free(m->scratch);
    free(m);
}

/* Makes a member of a communicator. Takes over `comm`, also on failure. `node` is this rank's node.
 */
static enum sotto_status mpi_make_member(struct mpi_shared *s, MPI_Comm comm, int node,
                                         struct comm **out)
{
    struct mpi_member *m = calloc(1, sizeof *m);
    if (!m) {
        MPI_Comm_free(&comm);
        return fail(SOTTO_ENOMEM, "no memory for a communicator");
    }
    atomic_fetch_add(&s->users, 1);
    m->shared = s;
    m->comm = comm;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &m->base.rank);
    MPI_Comm_size(comm, &m->base.size);
    size_t size = (size_t)m->base.size;
    m->node = calloc(size, sizeof *m->node);
    m->offer = calloc(size, sizeof *m->offer);
    m->counts = calloc(size, sizeof *m->counts);
    m->displs = calloc(size, sizeof *m->displs);
    m->base.ops = &s->ops;
    m->base.node = m->node;
    m->base.clock = &clock_real;
    m->ring = (struct ring){&mpi_ring_transport, &m->base, s->largest};
    for (int i = 0; i < RING_SLOTS; i++)
        m->sending[i].request = m->receiving[i].request = MPI_REQUEST_NULL;

    enum sotto_status st = SOTTO_OK;
    MPI_Request request;
    if (!m->node || !m->offer || !m->counts || !m->displs)
        st = fail(SOTTO_ENOMEM, "no memory for a communicator of %zu ranks", size);
    if (st == SOTTO_OK)
        st = mpi_check(m, MPI_Iallgather(&node, 1, MPI_INT, m->node, 1, MPI_INT, comm, &request),
                       "split");
    if (st == SOTTO_OK)
        st = mpi_await(m, &request, MPI_STATUS_IGNORE, "split");
    if (st == SOTTO_OK) {
        m->base.layout = layout_of(m->node, m->base.size);
        *out = &m->base;
    } else {
        mpi_free_member(&m->base);
    }
    return st;
}

/* Sets *host to the number of this machine: MPI's own rank of the machine's first rank. */
static enum sotto_status find_host(struct mpi_member *all, int *host)
{
    MPI_Comm near;
    TRY(mpi_check(
        all, MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near),
        "start"));
    *host = all->base.rank;
    enum sotto_status st = mpi_check(all, MPI_Bcast(host, 1, MPI_INT, 0, near), "start");
    MPI_Comm_free(&near);
    return st;
}

/* Makes the world as all callers see it: ranks in the order of machines instead of the launcher's,
 * so that the ranks of a node are consecutive. Rank 0 is the same. */
static enum sotto_status order_world(struct mpi_member *all, struct mpi_shared *s)
{
    int host = 0;
    TRY(find_host(all, &host));
    TRY(mpi_check(all, MPI_Comm_split(MPI_COMM_WORLD, 0, host, &all->comm), "start"));
    MPI_Comm_rank(all->comm, &all->base.rank);
    s->rank = all->base.rank;
    s->host = calloc((size_t)all->base.size, sizeof *s->host);
    if (!s->host)
        return fail(SOTTO_ENOMEM, "no memory for a world of %d ranks", all->base.size);
    return mpi_check(all, MPI_Allgather(&host, 1, MPI_INT, s->host, 1, MPI_INT, all->comm),
                     "start");
}

/* Returns the node of this rank: its machine or, with `nodes` nodes, its part of the world. */
static int find_node(const struct mpi_shared *s, int size, int nodes)
{
    int node = s->host[s->rank];
    for (int k = 0; k < nodes; k++)
        if (comm_block((size_t)size, nodes, k).begin <= (size_t)s->rank)
            node = k;
    return node;
}

bool mpi_same_machine(const struct comm *world, int rank)
{
    const struct mpi_shared *s = ((const struct mpi_member *)world)->shared;
    return s->host[rank] == s->host[s->rank];
}

/* Fails on all ranks if the ranks have different collectives: a rank's ring among native calls
 * would wait without limit. */
static enum sotto_status agree_collectives(struct mpi_member *all, int mine)
{
    static const char *const name[] = {"native", "ring"};
    int first = mine, differs, other = -1;
    TRY(mpi_check(all, MPI_Bcast(&first, 1, MPI_INT, 0, all->comm), "start"));
    differs = mine == first ? -1 : all->base.rank;
    TRY(mpi_check(all, MPI_Allreduce(&differs, &other, 1, MPI_INT, MPI_MAX, all->comm), "start"));
    if (other < 0)
        return SOTTO_OK;
    return fail(SOTTO_EPEER, "collectives differ: rank %d has %s, rank 0 has %s", other,
                name[first == MPI_COLLECTIVES_NATIVE], name[first == MPI_COLLECTIVES_RING]);
}

/* Splits. Colors may be any number: the color given to MPI is the first rank with the same color.
 */
static enum sotto_status mpi_split(struct comm *c, int color, struct comm **out)
{
    struct mpi_member *m = (struct mpi_member *)c;
    MPI_Comm comm;
    int first = 0;
    TRY(mpi_compare(m, (struct mpi_offer){.call = COMM_CALLS, .color = color}));
    while (m->offer[first].color != color)
        first++;
    TRY(mpi_check(m, MPI_Comm_split(m->comm, first, c->rank, &comm), "split"));
    return mpi_make_member(m->shared, comm, m->node[c->rank], out);
}

static enum sotto_status mpi_twin(struct comm *c, struct comm **out)
{
    const struct mpi_member *of = (const struct mpi_member *)c;
    struct mpi_member *m = calloc(1, sizeof *m);
    if (!m)
        return fail(SOTTO_ENOMEM, "no memory for a communicator");
    *m = (struct mpi_member){.base = {.ops = c->ops,
                                      .rank = c->rank,
                                      .size = c->size,
                                      .node = c->node,
                                      .layout = c->layout,
                                      .clock = c->clock},
                             .shared = of->shared,
                             .comm = of->comm,
                             .twin = true,
                             .node = of->node};
    for (int i = 0; i < RING_SLOTS; i++)
        m->sending[i].request = m->receiving[i].request = MPI_REQUEST_NULL;
    atomic_fetch_add(&m->shared->users, 1);
    *out = &m->base;
    return SOTTO_OK;
}

static void mpi_give_up(struct comm *c, const struct status_note *note)
{
    const struct mpi_member *m = (const struct mpi_member *)c;
    if (mpi_reports_failure(c))
        log_error("%s: %s", mpi_rank_name(c, m->shared->rank), note->text);
    mpi_end_job();
}

/* Makes the shared state, with one user: the caller. NULL: no memory. */
static struct mpi_shared *make_shared(const struct mpi_config *config, bool ours)
{
    struct mpi_shared *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->users, 1);
    s->ours = ours;
    s->ops = config->collectives == MPI_COLLECTIVES_RING ? mpi_ring_calls : mpi_native_calls;
    s->ops.split = mpi_split;
    s->ops.twin = mpi_twin;
    s->ops.rank_name = mpi_member_name;
    s->ops.abort = mpi_give_up;
    s->ops.free = mpi_free_member;
    s->config = *config;
    nccl_init(&s->nccl);
    s->largest = (size_t)1 << 30;
    if (config->largest && config->largest < s->largest)
        s->largest = config->largest;
    s->liveness.comm = MPI_COMM_NULL;
    MPI_Op_create(mpi_add_bf16, 1, &s->add_bf16);
    return s;
}

/* Exchanges the first messages, if this library started MPI: ranks leave MPI's start at the same
 * time, but if the program started MPI, they may arrive here at any time. */
static enum sotto_status meet_ranks(struct mpi_member *all, bool ours, double limit)
{
    if (all->base.size == 1 && mpi_launched_size() > 1)
        return fail(
            SOTTO_EINVAL,
            "%d processes were started, but each is alone in MPI: start them with the mpirun of the "
            "MPI library that this program was built with, or under srun with "
            "--mpi=pmix for Open MPI or --mpi=pmi2 for MPICH",
            mpi_launched_size());
    return ours && limit > 0 ? mpi_meet(all, limit) : SOTTO_OK;
}

/* Orders the world and shares what ranks need to know of each other. */
static enum sotto_status join_ranks(struct mpi_member *all, struct mpi_shared *s)
{
    const double patience = s->config.patience > 0 ? s->config.patience : 60;
    TRY(order_world(all, s));
    TRY(mpi_peers_open(all));
    TRY(agree_collectives(all, (int)s->config.collectives));
    return mpi_liveness_open(&s->liveness, all->comm, patience);
}

enum sotto_status mpi_world(struct comm **out, const struct mpi_config *config)
{
    static const struct mpi_config plain = {.collectives = MPI_COLLECTIVES_RING,
                                            .meet = MPI_MEET_SECONDS};
    struct mpi_member all = {.comm = MPI_COMM_NULL}; /* the whole world, for messages */
    struct mpi_watch watch;
    bool ours = false;
    *out = NULL;
    config = config ? config : &plain;
    mpi_watch_open(&watch, "started", config->meet);
    enum sotto_status st = start_mpi(&ours);
    mpi_watch_close(&watch);
    TRY(st);
    MPI_Comm_rank(MPI_COMM_WORLD, &all.base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all.base.size);

    struct mpi_shared *s = all.shared = make_shared(config, ours);
    if (!s) {
        if (ours)
            MPI_Finalize();
        return fail(SOTTO_ENOMEM, "no memory for a world of %d ranks", all.base.size);
    }
    st = meet_ranks(&all, ours, config->meet);
    mpi_watch_open(&watch, "joined its ranks", ours ? config->meet : 3 * config->meet);
    if (st == SOTTO_OK)
        st = join_ranks(&all, s);
    if (st == SOTTO_OK)
        st = mpi_make_member(s, all.comm, find_node(s, all.base.size, config->nodes), out);
    else if (all.comm != MPI_COMM_NULL)
        MPI_Comm_free(&all.comm);
    mpi_watch_close(&watch);
    leave_shared(s);
    return st;
}

/* Writes the name of a rank that fails before MPI is started. A mistake found by rank 0 is the same
 * on all ranks, so no name is given, unless the mistake is in a file, of which each host may have
 * its own copy. */
static void name_before_start(int rank, enum sotto_status code, char out[MPI_NAME_ROOM])
{
    struct mpi_host host;
    *out = '\0';
    if (rank == 0 && code != SOTTO_EIO)
        return;
    mpi_look_at_host(&host);
    if (mpi_launched_on_several_hosts())
        snprintf(out, MPI_NAME_ROOM, "rank %d (host %s): ", rank, host.name);
    else
        snprintf(out, MPI_NAME_ROOM, "rank %d: ", rank);
}

void mpi_abort_unstarted(const struct status_note *note)
{
    int started = 0;
    bool ours;
    char who[MPI_NAME_ROOM];
    MPI_Initialized(&started);
    if (started || !mpi_detected())
        return;
    const int rank = mpi_launched_rank();
    name_before_start(rank, note->code, who);
    if (rank == 0)
        log_error("%s%s", who,
                  note->text); /* logged first: a failing start of MPI may end the process */
    if (start_mpi(&ours) != SOTTO_OK)
        return;
    if (rank > 0 && mpi_await_turn(rank))
        log_error("%s%s", who, note->text);
    mpi_end_job();
}

#endif
