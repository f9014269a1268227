/* Where the ranks run: their names in messages, and which rank has died.
 *
 * When a rank dies, the launcher sends the other ranks the same signal as a user who ends the job.
 * By then the kernel has closed all files of the dead rank: its process does not exist any more,
 * and the connections to it, which MPI keeps open while ranks live, have ended. A look at each
 * takes a system call and no lock, so a signal handler may look. */
#define _GNU_SOURCE /* gethostname, struct tcp_info */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 4096 }; /* file descriptors searched for connections */

static struct mpi_peer describe_self(void)
{
    struct mpi_peer p = {.process = (int32_t)getpid()};
    struct stat space;
    gethostname(p.host, sizeof p.host - 1);
    if (stat("/proc/self/ns/pid", &space) == 0)
        p.space = space.st_ino;
    mpi_list_addresses(p.address, MPI_PEER_ADDRESSES);
    return p;
}

static bool on_one_machine(const struct mpi_shared *s, int size)
{
    int r = 0;
    while (r < size && s->host[r] == s->host[0])
        r++;
    return r == size;
}

/* Gives all ranks the launcher's command: only ranks on the launcher's machine, which need not be
 * rank 0's, can read it. */
static enum sotto_status share_launch_command(struct mpi_member *all)
{
    struct mpi_peers *p = &all->shared->peers;
    p->launch_command = calloc(MPI_LAUNCH_COMMAND_ROOM, 1);
    if (!p->launch_command)
        return fail(SOTTO_ENOMEM, "no memory for the launcher's command");
    mpi_read_launch_command(p->launch_command, MPI_LAUNCH_COMMAND_ROOM);
    int mine = *p->launch_command ? all->base.rank : p->size, first = p->size;
    TRY(mpi_check(all, MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, all->comm), "start"));
    if (first == p->size)
        return SOTTO_OK;
    return mpi_check(
        all, MPI_Bcast(p->launch_command, MPI_LAUNCH_COMMAND_ROOM, MPI_BYTE, first, all->comm),
        "start");
}

const char *mpi_launch_command(const struct comm *world)
{
    return ((const struct mpi_member *)world)->shared->peers.launch_command;
}

enum sotto_status mpi_peers_open(struct mpi_member *all)
{
    struct mpi_shared *s = all->shared;
    const size_t size = (size_t)all->base.size;
    const struct mpi_peer mine = describe_self();
    s->peers.size = all->base.size;
    s->peers.each = calloc(size, sizeof *s->peers.each);
    s->peers.rank = calloc(size, sizeof *s->peers.rank);
    s->peers.machine = calloc(size, sizeof *s->peers.machine);
    s->peers.connection = calloc(MOST_FILES, sizeof *s->peers.connection);
    if (!s->peers.each || !s->peers.rank || !s->peers.machine || !s->peers.connection)
        return fail(SOTTO_ENOMEM, "no memory for a world of %zu ranks", size);
    TRY(mpi_check(all,
                  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, s->peers.each, sizeof mine, MPI_BYTE,
                                all->comm),
                  "start"));
    s->peers.several_machines = !on_one_machine(s, all->base.size);
    for (int r = 0; r < all->base.size; r++) {
        const char *host = s->peers.each[r].host;
        snprintf(s->peers.rank[r], sizeof *s->peers.rank,
                 s->peers.several_machines ? "rank %d (host %s)" : "rank %d", r, host);
        snprintf(s->peers.machine[r], sizeof *s->peers.machine, "a rank on host %s", host);
    }
    return share_launch_command(all);
}

void mpi_peers_close(struct mpi_peers *p)
{
    free(p->launch_command);
    free(p->each);
    free(p->rank);
    free(p->machine);
    free(p->connection);
    *p = (struct mpi_peers){0};
}

/* Returns the name of the only rank of a machine, or of a machine with several ranks. */
static const char *name_machine(const struct mpi_shared *s, int rank)
{
    int ranks = 0;
    for (int r = 0; r < s->peers.size; r++)
        ranks += s->host[r] == s->host[rank];
    return ranks == 1 ? s->peers.rank[rank] : s->peers.machine[rank];
}

/* Returns a rank of the other machine that has this address; -1: none, or several machines have the
 * address. */
static int rank_with_address(const struct mpi_shared *s, uint32_t address)
{
    int found = -1;
    for (int r = 0; r < s->peers.size; r++)
        for (int i = 0; i < MPI_PEER_ADDRESSES; i++) {
            if (s->peers.each[r].address[i] != address)
                continue;
            if (s->host[r] == s->host[s->rank] || (found >= 0 && s->host[found] != s->host[r]))
                return -1;
            found = r;
            break;
        }
    return found;
}

/* Returns the inode of a socket; 0: not a socket. */
static ino_t socket_number(int file)
{
    struct stat info;
    return fstat(file, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

static bool is_connected(int file)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    return getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_state == TCP_ESTABLISHED;
}

void mpi_record_connections(const struct comm *world)
{
    const struct mpi_shared *s = ((const struct mpi_member *)world)->shared;
    struct mpi_peers *p = (struct mpi_peers *)&s->peers;
    int n = 0;
    for (int file = 0; file < MOST_FILES && p->several_machines; file++) {
        struct sockaddr_in to;
        socklen_t size = sizeof to;
        const ino_t number = socket_number(file);
        if (!number || getpeername(file, (struct sockaddr *)&to, &size) != 0 || size != sizeof to ||
            to.sin_family != AF_INET || !is_connected(file))
            continue;
        const int rank = rank_with_address(s, to.sin_addr.s_addr);
        if (rank >= 0)
            p->connection[n++] = (struct mpi_connection){file, number, name_machine(s, rank)};
    }
    p->connections = n;
}

const char *mpi_lost_rank(const struct comm *world)
{
    const struct mpi_shared *s = ((const struct mpi_member *)world)->shared;
    const struct mpi_peers *p = &s->peers;
    const struct mpi_peer *mine = &p->each[s->rank];
    for (int r = 0; r < p->size; r++)
        if (s->host[r] == s->host[s->rank] && mine->space && p->each[r].space == mine->space &&
            kill((pid_t)p->each[r].process, 0) != 0 && errno == ESRCH)
            return p->rank[r];
    for (int i = 0; i < p->connections; i++)
        if (socket_number(p->connection[i].file) != p->connection[i].number ||
            !is_connected(p->connection[i].file))
            return p->connection[i].to;
    return NULL;
}

const char *mpi_rank_name(const struct comm *world, int rank)
{
    return ((const struct mpi_member *)world)->shared->peers.rank[rank];
}

const char *mpi_member_name(const struct comm *c, int rank)
{
    const struct mpi_member *m = (const struct mpi_member *)c;
    MPI_Group mine, all;
    int there = 0;
    MPI_Comm_group(m->comm, &mine);
    MPI_Comm_group(m->shared->liveness.comm, &all);
    MPI_Group_translate_ranks(mine, 1, &rank, all, &there);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
    return m->shared->peers.rank[there];
}

#endif
