/* Describes the cluster in a line, for the header of a run, its report and comparisons. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/cluster/cluster.h"

static void describe_text(char out[CLUSTER_ROOM], const char *format, ...)
{
    const size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, CLUSTER_ROOM - used, format, args);
    va_end(args);
}

/* Finds the smallest and the largest node. */
static void find_node_sizes(const struct cluster *c, int *least, int *most)
{
    *least = c->size;
    *most = 0;
    for (int k = 0; k < c->nodes; k++) {
        *least = c->each[k] < *least ? c->each[k] : *least;
        *most = c->each[k] > *most ? c->each[k] : *most;
    }
}

/* Appends a list, which may have thousands of elements. */
static void describe_list(char out[CLUSTER_ROOM], const char *what, const char *list)
{
    enum { SHOWN = 40 };
    if (strcmp(list, "1") != 0)
        describe_text(out, "; %s %.*s%s", what, SHOWN, list, strlen(list) > SHOWN ? "..." : "");
}

static void describe_links(char out[CLUSTER_ROOM], const struct cluster *c)
{
    const struct link_config *l = &c->config->link;
    describe_text(out, "; inside %.40s", *l->intra ? l->intra : "no limit");
    if (c->nodes == 1)
        return;
    describe_text(out, "; between %.40s", *l->inter ? l->inter : "no limit");
    if (*l->inter && l->adapters)
        describe_text(out, ", %d adapter%s a node", l->adapters, l->adapters == 1 ? "" : "s");
    else if (*l->inter)
        describe_text(out, ", an adapter a worker");
    describe_list(out, "adapters' speeds", l->speed);
}

void cluster_describe(const struct cluster *c, char out[CLUSTER_ROOM])
{
    const struct run_config *config = c->config;
    const bool simulated = config->train.time == TIME_VIRTUAL;
    int least, most;
    find_node_sizes(c, &least, &most);
    snprintf(out, CLUSTER_ROOM, "%d node%s x ", c->nodes, c->nodes == 1 ? "" : "s");
    if (least == most)
        describe_text(out, "%d worker%s", most, most == 1 ? "" : "s");
    else
        describe_text(out, "%d to %d workers, %d in all", least, most, c->size);
    if (simulated || *config->link.intra || *config->link.inter)
        describe_links(out, c);
    describe_list(out, "speeds", config->worker.speed);
    if (*config->worker.memory && strcmp(config->worker.memory, "none") != 0)
        describe_text(out, "; memory %.40s", config->worker.memory);
    if (config->worker.jitter > 0)
        describe_text(out, "; jitter %g", config->worker.jitter);
}
