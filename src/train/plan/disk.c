#include "train/plan/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/config/budget.h"
#include "train/plan/estimate.h"

/* Returns the bytes of the weights in their saved types, and of their exact fp32 values if a saved
 * type has fewer bits. */
static double weights_bytes(const struct run *run)
{
    const struct table *table = run->table;
    double bytes = 0;
    for (int i = 0; i < table->n; i++)
        bytes += (double)table->entry[i].count *
                 (double)safetensors_type_size(run->folder.types ? run->folder.types[i]
                                                                 : SAFETENSORS_F32);
    if (!hf_folder_exact(&run->folder, &run->model))
        bytes += 4.0 * (double)table->parameters;
    if (run->model.state.n)
        bytes += 4.0 * (double)table_count(&run->model.state);
    return bytes;
}

/* Returns the bytes of the headers of two files of tensors, the configuration, and the tokenizer:
 * the size of its file, or a line for each token. */
static double other_bytes(const struct run *run)
{
    double bytes = 32e3 + 500.0 * run->table->n;
    double came = 0;
    for (int i = 0; i < HF_FILES; i++)
        came += (double)run->folder.file[i].size;
    return bytes + (came > 0 || !run->tokenizer ? came : 50.0 * run->model.config.vocab);
}

static int64_t rounds_done_already(const struct run *run)
{
    const char *step = strrchr(run->checkpoint, '-');
    return step ? strtoll(step + 1, NULL, 10) : 0;
}

static int64_t smaller_count(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the number of checkpoints that may exist at once if `keep` are kept: at most the rounds
 * left, since save_minutes may save after any round. */
static int64_t most_at_once(const struct run *run, int64_t keep)
{
    const struct train_config *t = &run->config.train;
    const int64_t samples = (int64_t)run->cluster.size * run->config.strategy.accumulate * t->batch;
    const int64_t rounds = budget_rounds(t, &(struct budget_spent){0}, samples);
    const int64_t left = rounds > rounds_done_already(run) ? rounds - rounds_done_already(run) : 0;
    const int64_t every = t->save_every;
    const int64_t by_rounds = smaller_count(left, every > 0 ? (left + every - 1) / every : 1);
    const int64_t saves = t->save_minutes > 0 && keep > 0 ? left : by_rounds;
    const int64_t best =
        t->keep_best && saves > 0; /* a hard link to a checkpoint that is deleted */
    return keep > 0 ? smaller_count(saves, keep + 1) + best : saves;
}

static double more_bytes(const struct disk_needs *n, int64_t most)
{
    const int64_t more = most - n->present;
    return most == 0 ? 0 : (double)(more > 1 ? more : 1) * n->checkpoint;
}

enum sotto_status disk_needs(const struct run *run, struct disk_needs *out)
{
    struct estimate e;
    int present;
    TRY(estimate_run(run, &e));
    TRY(checkpoint_count(run->config.train.out, &present));
    *out = (struct disk_needs){.checkpoint = weights_bytes(run) + e.state + other_bytes(run),
                               .most = most_at_once(run, run->config.train.keep),
                               .present = present};
    out->more = more_bytes(out, out->most);
    return SOTTO_OK;
}

enum sotto_status disk_check(const struct run *run, const struct disk_needs *n)
{
    const struct train_config *t = &run->config.train;
    const struct available a = available_disk(t->out);
    char one[32], needs[32], left[32], missing[32], fewer[96] = "";
    if (n->more <= a.bytes)
        return SOTTO_OK;
    available_text(n->checkpoint, one);
    available_text(n->more, needs);
    available_text(a.bytes, left);
    available_text(n->more - a.bytes, missing);
    const double with_one = more_bytes(n, most_at_once(run, 1));
    if (t->keep != 1 && with_one < n->more) {
        char least[32];
        available_text(with_one, least);
        snprintf(fewer, sizeof fewer, ", or --keep=1, which needs %s", least);
    }
    return fail(SOTTO_EIO,
                "the checkpoints of this run need about %s of disk (%lld at once, including the "
                "one being written, of %s each), and the disk of %s has %s left: free %s, choose "
                "another --out%s; --check_disk=false starts the run all the same",
                needs, (long long)(n->most > n->present ? n->most - n->present : 1), one, t->out,
                left, missing, fewer);
}
