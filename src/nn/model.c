#include "nn/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "nn/arch/arch.h"
#include "nn/layers/conv.h"
#include "tensor/ops.h"

/* Cuts the chain so that the heaviest stage is as light as possible: best[k][i] is the weight of
 * the heaviest of k stages that cover the first i layers. */
static enum sotto_status cut_stages(struct model *m)
{
    const int n = m->n_layer, stages = m->n_stage;
    const struct extent nominal =
        model_extent(m, 1, m->config.positions < 512 ? m->config.positions : 512, DTYPE_F32);
    size_t cells = (size_t)(stages + 1) * (size_t)(n + 1);
    double *sum = calloc((size_t)n + 1, sizeof *sum), *best = calloc(cells, sizeof *best);
    int *from = calloc(cells, sizeof *from);
    m->first = calloc((size_t)stages + 1, sizeof *m->first);
    if (!sum || !best || !from || !m->first) {
        free(sum), free(best), free(from);
        return fail(SOTTO_ENOMEM, "no memory to cut %d layers into %d stages", n, stages);
    }
    for (int i = 0; i < n; i++)
        sum[i + 1] = sum[i] + m->layer[i]->ops->flops(m->layer[i], nominal);
#define CELL(k, i) ((size_t)(k) * (size_t)(n + 1) + (size_t)(i))
    for (int i = 1; i <= n; i++)
        best[CELL(0, i)] = INFINITY;
    for (int k = 1; k <= stages; k++) {
        for (int i = 0; i <= n; i++) {
            best[CELL(k, i)] = INFINITY;
            for (int j = k - 1; j < i; j++) {
                double last = sum[i] - sum[j], rest = best[CELL(k - 1, j)];
                double heaviest = last > rest ? last : rest;
                if (heaviest < best[CELL(k, i)]) {
                    best[CELL(k, i)] = heaviest;
                    from[CELL(k, i)] = j;
                }
            }
        }
    }
    for (int k = stages, i = n; k > 0; k--) {
        m->first[k] = i;
        i = from[CELL(k, i)];
    }
#undef CELL
    free(sum), free(best), free(from);
    return SOTTO_OK;
}

/* Sets the stages of tensors, which are numbers of layers while building. */
static void assign_stages(struct model *m)
{
    for (int k = 0; k < m->n_stage; k++)
        for (int i = m->first[k]; i < m->first[k + 1]; i++)
            m->layer[i]->stage = k;
    for (int i = 0; i < m->table.n; i++)
        m->table.entry[i].stage = m->layer[m->table.entry[i].stage]->stage;
}

/* Joins the pieces of a sublayer in one stage into one layer, as without a cut. */
static void join_pieces(struct model *m)
{
    int n = 0;
    for (int k = 0, i = 0; k < m->n_stage; k++) {
        const int first = n;
        for (; i < m->first[k + 1]; i++) {
            struct layer *before = n > first ? m->layer[n - 1] : NULL;
            if (before && before->ops->join && before->ops->join(before, m->layer[i]))
                free(m->layer[i]);
            else
                m->layer[n++] = m->layer[i];
        }
        m->first[k] = first;
    }
    m->first[m->n_stage] = m->n_layer = n;
}

static void mark_written(struct model *m)
{
    for (int i = 0; i < m->n_layer; i++)
        if (m->layer[i]->ops->writes)
            m->layer[i]->ops->writes(m->layer[i], &m->table);
}

enum sotto_status model_init(struct model *m, const struct model_config *config, int n_stage,
                             int pad)
{
    *m = (struct model){0};
    TRY(model_config_check(config));
    return model_init_as(m, archs[config->arch], config, n_stage, pad);
}

enum sotto_status model_init_as(struct model *m, const struct arch *arch,
                                const struct model_config *config, int n_stage, int pad)
{
    *m = (struct model){.config = *config, .n_stage = n_stage};
    enum sotto_status st;
    TRY_DONE(arch->build(m));
    if (m->no_memory) {
        st = fail(SOTTO_ENOMEM, "no memory for the table of tensors");
        goto done;
    }
    if (n_stage < 1 || n_stage > m->n_layer) {
        st = fail(SOTTO_EINVAL, "%d stages: a model of %d sublayers can be cut into 1 to %d",
                  n_stage, m->n_layer, m->n_layer);
        goto done;
    }
    TRY_DONE(cut_stages(m));
    assign_stages(m);
    join_pieces(m);
    mark_written(m);
    TRY_DONE(table_layout(&m->table, n_stage, pad));
    if (m->state.n)
        TRY_DONE(table_layout(&m->state, 1, 1));
done:
    if (st != SOTTO_OK)
        model_free(m);
    return st;
}

void model_free(struct model *m)
{
    for (int i = 0; i < m->n_layer; i++) {
        if (m->layer[i]->ops->free)
            m->layer[i]->ops->free(m->layer[i]);
        free(m->layer[i]);
    }
    free(m->layer);
    free(m->first);
    table_free(&m->table);
    table_free(&m->state);
    *m = (struct model){0};
}

void model_stage_needs(const struct model *m, int k, bool *needs)
{
    for (int j = 0; j < m->n_stage; j++)
        needs[j] = j == k;
    for (int i = m->first[k]; i < m->first[k + 1]; i++)
        if (m->layer[i]->ops->needs)
            m->layer[i]->ops->needs(m->layer[i], &m->table, needs);
}

struct extent model_extent(const struct model *m, int rows, int t, enum dtype type)
{
    const bool tokens = m->sample.content == SAMPLE_TOKENS;
    return (struct extent){rows, tokens ? t : m->sample.positions, type, false};
}

double model_stage_flops(const struct model *m, int k, struct extent e)
{
    double sum = 0;
    for (int i = m->first[k]; i < m->first[k + 1]; i++)
        sum += m->layer[i]->ops->flops(m->layer[i], e);
    return sum;
}

double model_flops(const struct model *m, struct extent e)
{
    double sum = 0;
    for (int k = 0; k < m->n_stage; k++)
        sum += 3 * model_stage_flops(m, k, e); /* backward does each product twice */
    return sum;
}

void model_state_start(const struct model *m, float *flat)
{
    for (int i = 0; i < m->state.n; i++) {
        const struct table_entry *e = &m->state.entry[i];
        for (size_t j = 0; j < e->count; j++)
            flat[e->offset + j] = e->init == TABLE_ONE;
    }
}

void model_state_fade(const struct model *m, struct device *dev, struct view state)
{
    for (int i = 0; i < m->state.n; i++) {
        const struct table_entry *e = &m->state.entry[i];
        if (e->form != FORM_COUNTER)
            dev->ops->scale(dev, view_at(state, e->offset), 1 - CONV_MOMENTUM_PERCENT / 100.0f,
                            e->count);
    }
}

void model_randomize(const struct model *m, uint64_t seed, float *flat)
{
    memset(flat, 0, table_count(&m->table) * sizeof *flat);
    for (int i = 0; i < m->table.n; i++) {
        const struct table_entry *e = &m->table.entry[i];
        float *x = flat + m->table.stage_start[e->stage] + e->offset;
        if (e->init == TABLE_NORMAL) {
            struct rng rng = rng_make(seed, hash_text(e->name)); /* independent of the stage cut */
            rng_normal(&rng, x, e->count, 0, e->std);
        } else {
            for (size_t j = 0; j < e->count; j++)
                x[j] = e->init == TABLE_ONE;
        }
    }
}
