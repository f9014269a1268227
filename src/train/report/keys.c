#include "train/report/keys.h"

#include <assert.h>
#include <string.h>

#define ALL "mean over the workers"
#define ASYNC "async-diloco"
#define TEXTS "runs over text"
#define IMAGES "runs over images"
#define HELD_OUT "runs with held-out data"
#define COSINE "methods with `cosine = true`"
#define COMPARED "added by `sotto compare`"

const struct result_key report_keys[] = {
    {"version", UNIT_TEXT, "version of sotto", NULL},
    {"model", UNIT_TEXT, "preset, or architecture and sizes", NULL},
    {"method", UNIT_TEXT, "the methods, such as `ddp x diloco`", NULL},
    {"state", UNIT_TEXT, "hash of parameters and state: equal bits have equal hashes",
     "runs that save"},
    {"engine", UNIT_TEXT, "`threads`, `mpi` or `virtual`", NULL},
    {"kernels", UNIT_TEXT, "instruction set of the kernels, or the GPU", NULL},
    {"cluster", UNIT_TEXT, "nodes, workers and links in words", NULL},
    {"link_intra", UNIT_TEXT, "link.intra", NULL},
    {"link_inter", UNIT_TEXT, "link.inter", NULL},
    {"options", UNIT_TEXT, "object: options that are not at their defaults, as on a command line",
     NULL},
    {"complete", UNIT_TEXT, "true if the run has spent its budget", NULL},
    {"loss", UNIT_PLAIN, "training loss in nats: mean of the reports in the run's last tenth",
     NULL},
    {"common_loss", UNIT_PLAIN, "loss at an end that all compared runs have reached", COMPARED},
    {"eval_loss", UNIT_PLAIN, "held-out loss of the last evaluation, nats", HELD_OUT},
    {"perplexity", UNIT_PLAIN, "exp of eval_loss", HELD_OUT " of text"},
    {"accuracy", UNIT_SHARE, "held-out targets that are the most likely token or class", HELD_OUT},
    {"top5", UNIT_SHARE, "held-out images with the right class among the five most likely",
     HELD_OUT " of images"},
    {"best_step", UNIT_PLAIN, "step with the lowest held-out loss",
     "train.keep_best, train.patience"},
    {"best_loss", UNIT_PLAIN, "the lowest held-out loss", "train.keep_best, train.patience"},
    {"cosine", UNIT_PLAIN, "mean cosine between outer gradients of groups", COSINE},
    {"pushes", UNIT_PLAIN, "pushes that the server applied", ASYNC},
    {"staleness", UNIT_PLAIN, "pushes of other groups between a pull and its push, mean", ASYNC},
    {"idle", UNIT_PLAIN, "share of the time that groups waited, 0 to 1", ASYNC},
    {"by_group", UNIT_TEXT, "list: steps, pushes, staleness and idle of each group", ASYNC},
    {"workers", UNIT_PLAIN, "number of workers", NULL},
    {"groups", UNIT_PLAIN, "number of groups", NULL},
    {"nodes", UNIT_PLAIN, "number of nodes", NULL},
    {"steps", UNIT_PLAIN, "rounds done", NULL},
    {"tokens", UNIT_PLAIN, "tokens trained, of all workers", TEXTS},
    {"samples", UNIT_PLAIN, "sequences or images trained, of all workers", NULL},
    {"seconds", UNIT_SECONDS, "training time of the slowest worker", NULL},
    {"time_to_loss", UNIT_SECONDS, "training time until the loss is `target`", COMPARED},
    {"samples_per_s", UNIT_PLAIN, "samples over seconds", NULL},
    {"tokens_per_s", UNIT_PLAIN, "tokens over seconds", TEXTS},
    {"compute", UNIT_SECONDS, "forward and backward passes, " ALL, NULL},
    {"update", UNIT_SECONDS, "steps, averages and copies of vectors, " ALL, NULL},
    {"wire", UNIT_SECONDS, "communication in flight, overlapped or not, " ALL, NULL},
    {"waited_others", UNIT_SECONDS, "waiting for slower workers, " ALL, NULL},
    {"waited_wire", UNIT_SECONDS, "waiting for communication in flight, " ALL, NULL},
    {"exposed", UNIT_SECONDS, "waited_others + waited_wire", NULL},
    {"exposed_share", UNIT_SHARE, "exposed over the workers' mean training time", NULL},
    {"overlap", UNIT_SHARE,
     "time on the wire for which no worker waited; null: no time on the wire", NULL},
    {"bytes", UNIT_BYTES, "sent by a worker, " ALL, NULL},
    {"bytes_inside", UNIT_BYTES, "of these, to workers of the same node", NULL},
    {"bytes_between", UNIT_BYTES, "of these, to other nodes", NULL},
    {"parameters", UNIT_PLAIN, "parameters of the model", NULL},
    {"memory", UNIT_BYTES, "peak memory of the largest worker", NULL},
    {"memory_parameters", UNIT_BYTES, "peak of the parameters, of the largest worker as below",
     NULL},
    {"memory_gradients", UNIT_BYTES, "peak of the gradients", NULL},
    {"memory_optimizer", UNIT_BYTES, "peak of the optimizer's state, with fp32 parameters", NULL},
    {"memory_communication", UNIT_BYTES, "peak of buffers for messages", NULL},
    {"memory_outer", UNIT_BYTES, "peak of the state of methods between groups", NULL},
    {"memory_activations", UNIT_BYTES, "peak of the activations, with free blocks of the pool",
     NULL},
    {"memory_activations_live", UNIT_BYTES, "peak of the activations in use", NULL},
    {"memory_scratch", UNIT_BYTES, "peak of the operations' scratch", NULL},
    {"memory_checkpoint", UNIT_BYTES, "peak of copies while a checkpoint is written", NULL},
    {0},
};

const struct result_key metric_keys[] = {
    {"step", UNIT_PLAIN, "rounds done; of async-diloco the step of the run", NULL},
    {"train/loss", UNIT_PLAIN, "training loss of the round, nats, mean over all workers", NULL},
    {"train/lr", UNIT_PLAIN, "learning rate of the round", NULL},
    {"train/grad_norm", UNIT_PLAIN, "global norm of the gradient before clipping",
     "methods that compute the norm"},
    {"train/tokens", UNIT_PLAIN, "tokens trained, of all workers", TEXTS},
    {"train/samples", UNIT_PLAIN, "sequences or images trained, of all workers", NULL},
    {"speed/tokens_per_s", UNIT_PLAIN, "tokens a second since the last line", TEXTS},
    {"speed/samples_per_s", UNIT_PLAIN, "images a second since the last line", IMAGES},
    {"speed/seconds", UNIT_SECONDS, "duration of the round, by the slowest worker", NULL},
    {"time/seconds", UNIT_SECONDS, "training time of the slowest worker", NULL},
    {"time/compute", UNIT_SECONDS, "forward and backward passes, " ALL, "all but " ASYNC},
    {"time/update", UNIT_SECONDS, "steps, averages and copies of vectors, " ALL, "all but " ASYNC},
    {"time/wire", UNIT_SECONDS, "communication in flight, overlapped or not, " ALL,
     "all but " ASYNC},
    {"time/waited_others", UNIT_SECONDS, "waiting for slower workers, " ALL, "all but " ASYNC},
    {"time/waited_wire", UNIT_SECONDS, "waiting for communication in flight, " ALL,
     "all but " ASYNC},
    {"comm/bytes", UNIT_BYTES, "sent by a worker, " ALL, "all but " ASYNC},
    {"comm/inside", UNIT_BYTES, "of these, to workers of the same node", "all but " ASYNC},
    {"comm/between", UNIT_BYTES, "of these, to other nodes", "all but " ASYNC},
    {"eval/loss", UNIT_PLAIN, "held-out loss, nats", HELD_OUT},
    {"eval/perplexity", UNIT_PLAIN, "exp of eval/loss", HELD_OUT " of text"},
    {"eval/accuracy", UNIT_SHARE, "held-out targets that are the most likely token or class",
     HELD_OUT},
    {"eval/top5", UNIT_SHARE, "held-out images with the right class among the five most likely",
     HELD_OUT " of images"},
    {"async/pushes", UNIT_PLAIN, "pushes that the server applied so far", ASYNC},
    {"async/staleness", UNIT_PLAIN,
     "pushes of other groups between a pull and its push, mean since the last line", ASYNC},
    {"async/idle", UNIT_PLAIN, "share of the time that groups waited, 0 to 1, since the last line",
     ASYNC},
    {"outer/cosine", UNIT_PLAIN,
     "mean cosine between outer gradients of groups since the last line", COSINE},
    {0},
};

const struct result_key *key_find(const struct result_key *keys, const char *name)
{
    while (keys->name && strcmp(keys->name, name) != 0)
        keys++;
    return keys->name ? keys : NULL;
}

const char *key_listed(const struct result_key *keys, const char *name)
{
    assert(key_find(keys, name));
    return name;
}
