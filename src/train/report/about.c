/* The part of report.json with the configuration: enough to repeat a run without its folder. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/option/only.h"
#include "train/report/report.h"

/* Adds a text; names of files that are not UTF-8 become ASCII. */
static void put_text(json_t *o, const char *key, const char *text)
{
    json_t *value = json_string(text);
    char *ascii = value ? NULL : strdup(text);
    for (char *p = ascii; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json_object_set_new(o, key, ascii ? json_string(ascii) : value);
    free(ascii);
}

/* Returns the options that are not at their defaults, as on a command line. */
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
            put_text(out, key, option_print(o, sections[s].config, room));
        }
    }
    return out;
}

/* True if the model has all sizes that the preset gives; a vocabulary may be the tokenizer's. */
static bool has_sizes(const struct model_config *m, const struct model_config *preset)
{
    return m->arch == preset->arch && m->layers == preset->layers && m->width == preset->width &&
           m->heads == preset->heads && m->kv_heads == preset->kv_heads &&
           m->head_width == preset->head_width && m->mlp_width == preset->mlp_width &&
           m->positions == preset->positions && (!preset->vocab || m->vocab == preset->vocab);
}

/* "nano", "null oracle"; sizes where no preset has them, such as those of a model in a folder. */
static void name_model(const struct run *run, char out[OPTION_ROOM])
{
    const struct model_config *m = &run->config.model;
    struct model_config preset = {0};
    strcpy(preset.preset, m->preset);
    if (run->config.train.oracle == ORACLE_NULL)
        strcpy(out, "null oracle");
    else if (!run_kind(run)->sequences)
        snprintf(out, OPTION_ROOM, "%s", archs[m->arch]->name);
    else if (*m->preset && model_config_resolve(&preset) == SOTTO_OK && has_sizes(m, &preset))
        strcpy(out, m->preset);
    else
        snprintf(out, OPTION_ROOM, "%s of %d layer%s, width %d", archs[m->arch]->name, m->layers,
                 m->layers == 1 ? "" : "s", m->width);
}

void report_about(json_t *o, const struct run *run)
{
    const struct run_config *c = &run->config;
    char method[OPTION_ROOM], model[OPTION_ROOM], state[32], cluster[CLUSTER_ROOM];
    strategy_describe(&c->strategy, method);
    name_model(run, model);
    snprintf(state, sizeof state, "%016" PRIx64, run->result.hash);
    put_text(o, "version", sotto_version());
    put_text(o, "model", model);
    put_text(o, "method", method);
    if (run_keeps(run))
        put_text(o, "state", state);
    put_text(o, "engine",
             run->cluster.mpi                ? "mpi"
             : c->train.time == TIME_VIRTUAL ? "virtual"
                                             : "threads");
    put_text(o, "kernels", run->kernels);
    json_object_set_new(o, "groups", json_integer(c->strategy.groups));
    cluster_describe(&run->cluster, cluster);
    put_text(o, "cluster", cluster);
    json_object_set_new(o, "nodes", json_integer(run->cluster.nodes));
    put_text(o, "link_intra", c->link.intra);
    put_text(o, "link_inter", c->link.inter);
    json_object_set_new(o, "options", changed_options(c));
}
