/* The kernels of a run's ranks. Every rank updates its own copy of the parameters, and copies
 * updated by different kernels would diverge, so machines of several kinds use the best kernels
 * that all machines support. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/cluster/cluster.h"

static bool has_word(const char *words, const char *word, size_t length)
{
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

enum sotto_status cluster_common_kernels(const struct cluster_kernels *all, int n,
                                         char best[DEVICE_KERNELS_ROOM])
{
    *best = '\0';
    for (int r = 1; r < n; r++)
        if (strcmp(all[r].device, all[0].device) != 0)
            return fail(SOTTO_EINVAL,
                        "train.device: rank 0 computes on '%s' and rank %d on '%s', and their "
                        "copies of parameters would diverge: name a device that all ranks have",
                        all[0].device, r, all[r].device);
    for (const char *word = all[0].has; *word;) {
        const size_t length = strcspn(word, " ");
        int r = 1;
        while (r < n && has_word(all[r].has, word, length))
            r++;
        if (r == n) {
            snprintf(best, DEVICE_KERNELS_ROOM, "%.*s", (int)length, word);
            return SOTTO_OK;
        }
        word += length + (word[length] == ' ');
    }
    return SOTTO_OK;
}

/* Returns a rank that supports better kernels; -1: none. */
static int rank_with_better(const struct cluster_kernels *all, int n, const char *best)
{
    for (int r = 0; r < n; r++)
        if (strncmp(all[r].has, best, strlen(best)) != 0)
            return r;
    return -1;
}

static enum sotto_status settle_kernels(struct cluster *c, const struct cluster_kernels *all)
{
    char best[DEVICE_KERNELS_ROOM];
    TRY(cluster_common_kernels(all, c->mpi->size, best));
    const int better = rank_with_better(all, c->mpi->size, best);
    if (!*best || better < 0)
        return SOTTO_OK;
    snprintf(c->config->train.device, sizeof c->config->train.device, "%s:%s", all[0].device, best);
    if (c->leads)
        log_warn("rank %d supports '%.*s', but other ranks no better kernels than '%s', and copies "
                 "of parameters have to stay equal: train.device = %s",
                 better, (int)strcspn(all[better].has, " "), all[better].has, best,
                 c->config->train.device);
    return SOTTO_OK;
}

enum sotto_status cluster_settle_device(struct cluster *c)
{
    struct train_config *t = &c->config->train;
    struct cluster_kernels mine = {0};
    const char *device = device_named(t->device);
    if (!c->mpi || t->oracle == ORACLE_NULL)
        return SOTTO_OK;
    struct cluster_kernels *all = calloc((size_t)c->mpi->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", c->mpi->size);
    snprintf(mine.device, sizeof mine.device, "%s", device ? device : "none");
    device_kernels(t->device, mine.has);
    enum sotto_status st = comm_gather_bytes(c->mpi, all, &mine, sizeof mine);
    if (st == SOTTO_OK)
        st = settle_kernels(c, all);
    free(all);
    return st;
}
