/* sotto train */
#include "cli/command.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"

/* Set by Ctrl-C; a signal handler has nowhere else to write. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    if (interrupted)
        _exit(130); /* a second one means it */
    interrupted = 1;
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    interrupted = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int sections(void *config, struct option_section *out)
{
    _Static_assert(sizeof(struct run_config) <= CLI_CONFIG_ROOM, "raise CLI_CONFIG_ROOM");
    run_sections(config, out);
    return RUN_SECTIONS;
}

static void print_header(const struct run *run)
{
    const struct model_config *m = &run->model.config;
    const struct train_config *t = &run->config.train;
    printf("model: %d layers, width %d, %d heads, vocabulary %d: %.2f million parameters\n",
           m->layers, m->width, m->heads, m->vocab, (double)run->model.table.parameters / 1e6);
    printf(
        "data: %lld tokens in %d source%s; %d x %d tokens a micro-batch, %d a step; %d thread%s\n",
        (long long)loader_tokens(run->train), loader_sources(run->train),
        loader_sources(run->train) == 1 ? "" : "s", t->batch, t->seq,
        run->config.strategy.accumulate, run->dev.threads, run->dev.threads == 1 ? "" : "s");
    if (run->step)
        printf("resuming after step %lld\n", (long long)run->step);
    fflush(stdout);
}

static void print_memory(const struct run *run)
{
    printf("memory (peak, MB):");
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (run->memory.peak[c])
            printf(" %s %.1f", memory_category_name(c), (double)run->memory.peak[c] / 1e6);
    printf("; together %.1f\n", (double)run->memory.total_peak / 1e6);
}

static enum sotto_status run_it(void *config, const char *const *words, int n_words)
{
    if (n_words > 1)
        return fail(SOTTO_EINVAL, "one configuration file at most, got '%s' and '%s'", words[0],
                    words[1]);
    struct progress progress;
    progress_init(&progress, stdout);
    struct run_watch watch = progress_watch(&progress);
    watch.stop = &interrupted;
    watch_signals();
    struct run run;
    TRY(run_open(&run, config, &watch));
    print_header(&run);
    enum sotto_status st = run_train(&run);
    progress_end(&progress);
    uint64_t hash;
    if (st == SOTTO_OK && (st = run_hash(&run, &hash)) == SOTTO_OK) {
        print_memory(&run);
        printf("done: %s is a Hugging Face model folder (state %016" PRIx64 ")\n",
               run.config.train.out, hash);
    } else if (st == SOTTO_ESTOPPED) {
        printf("to go on: sotto train %s%s--out=%s --resume\n", n_words ? words[0] : "... ",
               n_words ? " " : "", run.config.train.out);
    } else if (st != SOTTO_OK) {
        char folder[FILE_PATH_ROOM];
        int64_t step;
        struct status_note cause;
        status_save(&cause, st);
        if (checkpoint_latest(run.config.train.out, &step, folder) == SOTTO_OK && step >= 0)
            printf("the last good checkpoint is %s\n", folder);
        status_raise(&cause);
    }
    run_close(&run);
    return st;
}

const struct command command_train = {
    .name = "train",
    .summary = "train a model, or go on training one",
    .usage = "[CONFIG.ini] [--key=value ...]",
    .example = "  sotto train --out=my-run --data.train=book.txt --steps=500\n"
               "  sotto train my.ini --optim.lr=3e-4 --resume",
    .sections = sections,
    .run = run_it,
    .reads_config = true,
};
