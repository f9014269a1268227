/* Final norm, projection to the vocabulary and cross-entropy.
 *
 * The logits of about a thousand rows at a time are made, turned into their gradient and used up,
 * so that (rows, vocab) never exists at once. */
#include "nn/layers/layers.h"
#include "nn/layers/loss.h"

/* Returns the most rows whose logits are held at once: enough that packing the weights and reading
 * and writing their gradient cost little, few enough that the logits stay below MOST elements. */
static size_t head_most_rows(const struct head_layer *l)
{
    enum { ENOUGH = 1024, ELEMENTS = 16 << 20, MOST = 52 << 20, LEAST = 16 };
    size_t most = ELEMENTS / (size_t)l->vocab, room = MOST / (size_t)l->vocab;
    if (most < ENOUGH)
        most = room < ENOUGH ? room : ENOUGH;
    return most < LEAST ? LEAST : most;
}

/* Returns the rows of a chunk. All chunks are about the same: two of 256 rows, not 333 and 179. A
 * smaller batch may have longer chunks, so memory is made for head_most_rows. */
static size_t head_chunk_rows(const struct head_layer *l, size_t rows)
{
    size_t chunks = (rows + head_most_rows(l) - 1) / head_most_rows(l);
    return (rows + chunks - 1) / chunks;
}

struct head_scratch {
    struct view stats;  /* (rows, 2) */
    struct view n, dn;  /* (rows, width) the norm's output, and the gradient of n */
    struct view logits; /* of one chunk, then the logits' gradient */
};

static struct head_scratch head_carve_scratch(const struct head_layer *l, struct extent e,
                                              bool backward, struct room *room)
{
    const size_t rows = extent_tokens(e),
                 held = rows < head_most_rows(l) ? rows : head_most_rows(l);
    struct head_scratch w = {.stats = carve_piece(room, 2 * rows, DTYPE_F32)};
    w.n = carve_piece(room, rows * (size_t)l->width, e.type);
    if (backward)
        w.dn = carve_piece(room, rows * (size_t)l->width, e.type);
    w.logits = carve_piece(room, held * (size_t)l->vocab, DTYPE_F32);
    return w;
}

static size_t head_scratch(const struct layer *layer, struct extent e, bool backward)
{
    const struct head_layer *l = (const struct head_layer *)layer;
    struct room room = {0};
    head_carve_scratch(l, e, backward, &room);
    return room.used;
}

static double head_flops(const struct layer *layer, struct extent e)
{
    const struct head_layer *l = (const struct head_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->width * l->vocab;
}

static void run_head_chunks(const struct head_layer *l, struct pass *pass, const struct view *theta,
                            const struct view *grad, struct layer_flow flow)
{
    const size_t rows = extent_tokens(pass->extent), chunk = head_chunk_rows(l, rows);
    assert(chunk <= head_most_rows(l));
    struct head_scratch t = head_carve_scratch(l, pass->extent, grad, &flow.scratch);
    norm_part_forward(&l->norm, pass, theta, l->width, t.n, flow.x, t.stats);
    struct linear p = pass_linear(pass, rows, l->width, l->vocab, LINEAR_OUT_IN);
    const bool done = loss_at_once(pass, theta, grad, &p, l->w, t.n, t.dn);
    for (size_t row = 0; row < rows && !done; row += chunk) {
        p.rows = (int)(rows - row < chunk ? rows - row : chunk);
        p.fresh = pass->fresh && row == 0; /* later chunks add to the gradient */
        loss_rows(pass, theta, grad, &p, l->w, -1, row, t.logits, t.n, t.dn);
    }
    if (grad)
        norm_part_backward(&l->norm, pass, theta, grad, l->width, flow.dx, t.dn, flow.x, t.stats,
                           view_none);
}

static void head_forward(const struct layer *layer, struct pass *pass, const struct view *theta,
                         struct layer_flow flow)
{
    if (loss_in_forward(pass))
        run_head_chunks((const struct head_layer *)layer, pass, theta, NULL, flow);
}

static void head_backward(const struct layer *layer, struct pass *pass, const struct view *theta,
                          const struct view *grad, struct layer_flow flow)
{
    run_head_chunks((const struct head_layer *)layer, pass, theta, grad, flow);
}

/* Marks the stage of the embedding, to which a tied table belongs. */
static void head_needs(const struct layer *layer, const struct table *table, bool *out)
{
    out[table->entry[((const struct head_layer *)layer)->w].stage] = true;
}

/* Marks the weight: the head writes the gradient of a tied table, and the embedding's backward adds
 * later. */
static void head_writes(const struct layer *layer, struct table *table)
{
    table_written(table, ((const struct head_layer *)layer)->w);
}

const struct layer_ops head_ops = {.name = "head",
                                   .scratch = head_scratch,
                                   .flops = head_flops,
                                   .forward = head_forward,
                                   .backward = head_backward,
                                   .needs = head_needs,
                                   .writes = head_writes};
