/* The name and addresses of this host of an MPI job, and its network to the other hosts. An MPI
 * library may choose a network inside each host; the user then has to name the right network. */
#define _DEFAULT_SOURCE /* IFF_UP */

#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t address_of(const struct sockaddr *a)
{
    struct sockaddr_in in;
    memcpy(&in, a, sizeof in);
    return in.sin_addr.s_addr;
}

static bool is_loopback(uint32_t address)
{
    return ntohl(address) >> 24 == 127;
}

/* True for an address of this host that other hosts may reach. */
static bool reaches_out(const struct ifaddrs *a)
{
    return a->ifa_addr && a->ifa_netmask && a->ifa_addr->sa_family == AF_INET &&
           (a->ifa_flags & IFF_UP) && !is_loopback(address_of(a->ifa_addr));
}

/* True for the interfaces of bridges and tunnels to containers or virtual machines of this host, by
 * name. */
static bool stays_inside(const char *interface)
{
    static const char *const begin[] = {"docker", "br-",    "virbr",   "veth", "lxc",
                                        "lxd",    "podman", "cni",     "cali", "flannel",
                                        "vmnet",  "vnet",   "vboxnet", "tap"};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncmp(interface, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

/* Returns the port of Open MPI's mpirun for its daemons, one per host; 0: unknown. */
static unsigned launcher_port(void)
{
    const char *uri = getenv("OMPI_MCA_orte_hnp_uri"); /* "5.0;tcp://10.0.0.1,172.17.0.1:50533" */
    const char *hosts = uri ? strstr(uri, "tcp://") : NULL;
    const char *port = hosts ? strchr(hosts + strlen("tcp://"), ':') : NULL;
    return port ? (unsigned)strtoul(port + 1, NULL, 10) : 0;
}

/* Returns this host's address in the connection between mpirun and a daemon on another host: a
 * working network. 0: none found. */
static uint32_t launcher_address(void)
{
    const unsigned port = launcher_port();
    FILE *f = port ? fopen("/proc/net/tcp", "r") : NULL;
    char line[256];
    uint32_t found = 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned here, there, here_port, there_port, state;
        if (sscanf(line, "%*d: %8X:%4X %8X:%4X %2X", &here, &here_port, &there, &there_port,
                   &state) == 5 &&
            state == 1 /* established */ && (here_port == port || there_port == port) &&
            here != there && !is_loopback(here))
            found = here;
    }
    if (f)
        fclose(f);
    return found;
}

static void add_address(struct mpi_host *h, const struct ifaddrs *a)
{
    const uint32_t mask = address_of(a->ifa_netmask);
    const struct in_addr address = {address_of(a->ifa_addr)}, net = {address.s_addr & mask};
    const int bits = __builtin_popcount(mask);
    char text[INET_ADDRSTRLEN] = "";
    const size_t at = strlen(h->addresses);
    inet_ntop(AF_INET, &address, text, sizeof text);
    snprintf(h->addresses + at, sizeof h->addresses - at, "%s%s=%s/%d", at ? " " : "", a->ifa_name,
             text, bits);
    const bool taken = h->launcher ? address.s_addr == h->launcher : !stays_inside(a->ifa_name);
    if (!taken || *h->network)
        return;
    inet_ntop(AF_INET, &net, text, sizeof text);
    snprintf(h->network, sizeof h->network, "%s/%d", text, bits);
    snprintf(h->interface, sizeof h->interface, "%s", a->ifa_name);
}

int mpi_list_addresses(uint32_t *out, int most)
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *a = all; a && n < most; a = a->ifa_next)
        if (reaches_out(a))
            out[n++] = address_of(a->ifa_addr);
    freeifaddrs(all);
    return n;
}

void mpi_look_at_host(struct mpi_host *out)
{
    struct ifaddrs *all = NULL;
    *out = (struct mpi_host){.launcher = launcher_address()};
    gethostname(out->name, sizeof out->name - 1);
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        if (reaches_out(a))
            add_address(out, a);
    freeifaddrs(all);
}

/* Writes the command for starting ranks with MPI limited to one network; srun takes the network
 * from the environment. */
static void put_way(const struct mpi_host *h, char *way, size_t room)
{
    const char *launcher = mpi_launcher();
    const bool slurm = launcher && strcmp(launcher, "srun") == 0;
#ifdef OPEN_MPI
    const char *network = *h->network ? h->network : "INTERFACE";
    if (slurm)
        snprintf(way, room, "OMPI_MCA_btl_tcp_if_include=%s srun", network);
    else
        snprintf(way, room, "mpirun --mca btl_tcp_if_include %s %s %s", network,
                 OMPI_MAJOR_VERSION >= 5 ? "--prtemca prte_if_include" : "--mca oob_tcp_if_include",
                 network);
#else
    const char *interface = *h->interface ? h->interface : "INTERFACE";
    if (slurm)
        snprintf(way, room, "UCX_NET_DEVICES=%s FI_TCP_IFACE=%s srun", interface, interface);
    else
        snprintf(way, room, "mpiexec -iface %s -genv UCX_NET_DEVICES %s -genv FI_TCP_IFACE %s",
                 interface, interface, interface);
#endif
}

void mpi_advise(const struct mpi_host *h, char *out, size_t room)
{
    char way[256];
    put_way(h, way, sizeof way);
    snprintf(out, room,
             "Two hosts that share an address, such as docker0's 172.17.0.1, "
             "mislead MPI: `%s` limits MPI to one network. A firewall between hosts must pass TCP "
             "on all ports",
             way);
}

#endif
