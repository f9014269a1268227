/* The part of report.json that tells what was run: enough to know a run again without its folder.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/option_only.h"
#include "train/report.h"

/* Names of files may be in any encoding, JSON is in UTF-8. */
static void put(json_t *o, const char *key, const char *text)
{
    json_t *value = json_string(text);
    char *ascii = value ? NULL : strdup(text);
    for (char *p = ascii; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json_object_set_new(o, key, ascii ? json_string(ascii) : value);
    free(ascii);
}

/* Every option that is not at its default, as it would be typed. */
static json_t *changed_options(const struct run_config *config)
{
    struct option_section sections[RUN_SECTIONS];
    json_t *out = json_object();
    run_sections((struct run_config *)config, sections); /* they are only read */
    for (int s = 0; out && s < RUN_SECTIONS; s++) {
        for (int i = 0; i < sections[s].count; i++) {
            char key[128], room[OPTION_ROOM];
            const struct option *o = &sections[s].table[i];
            if (option_is_default(o, sections[s].config))
                continue;
            snprintf(key, sizeof key, "%s.%s", sections[s].name, o->key);
            put(out, key, option_print(o, sections[s].config, room));
        }
    }
    return out;
}

void report_about(json_t *o, const struct run *run)
{
    const struct run_config *c = &run->config;
    char method[OPTION_ROOM], state[32], cluster[CLUSTER_ROOM];
    strategy_describe(&c->strategy, method);
    snprintf(state, sizeof state, "%016" PRIx64, run->result.hash);
    put(o, "version", sotto_version());
    put(o, "method", method);
    if (run_keeps(run))
        put(o, "state", state);
    put(o, "engine",
        run->cluster.mpi                ? "mpi"
        : c->train.time == TIME_VIRTUAL ? "virtual"
                                        : "threads");
    put(o, "kernels", run->kernels);
    json_object_set_new(o, "groups", json_integer(c->strategy.groups));
    cluster_describe(&run->cluster, cluster);
    put(o, "cluster", cluster);
    json_object_set_new(o, "nodes", json_integer(run->cluster.nodes));
    put(o, "link_intra", c->link.intra);
    put(o, "link_inter", c->link.inter);
    json_object_set_new(o, "options", changed_options(c));
}
