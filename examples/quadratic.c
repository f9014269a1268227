/* A function of our own, minimized by every method of the library.
 *
 *     cc quadratic.c -o quadratic $(pkg-config --cflags --libs sotto)
 *     ./quadratic                                            every method, threads and virtual time
 *     ./quadratic --strategy=zero1 --workers=8 --steps=1000  one of them, any option of sotto train
 *     ./quadratic --strategy=zero1 state.safetensors         saves there, and goes on from there
 *     mpirun -n 4 ./quadratic                                the same over processes
 *
 * The function is f(x) = 1/2 sum_j a_j (x_j - c_j)^2. A micro-batch sees c through noise of its
 * own, as a model sees its data, so workers must agree to come close to c. */
#include <math.h>
#include <sotto/sotto.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 40, COLUMNS = 25, COUNT = ROWS * COLUMNS + COLUMNS };

static const struct sotto_tensor tensors[] = {
    {"weight", {ROWS, COLUMNS}, 0},
    {"bias", {COLUMNS}, 0},
};

/* A number in [-1, 1) that depends on (a, b) and looks random. */
static double scatter(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xD1B54A32D192ED03u;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

static double curvature(int j)
{
    return 0.2 + 0.8 * j / COUNT;
}

static double centre(int64_t seed, int j)
{
    return scatter((uint64_t)seed, (uint64_t)j);
}

/* The callback: adds the gradient of one micro-batch to grad, and tells its loss. It is a function
 * of what it is given, so any number of workers may call it at once. */
static enum sotto_status gradient(void *worker, struct sotto_microbatch *batch,
                                  const float *const *theta, float *const *grad)
{
    (void)worker;
    uint64_t sample = (uint64_t)(batch->index * batch->size + batch->rank);
    for (int j = 0; j < COUNT; j++) { /* without stages the tensors lie side by side */
        double noise = 0.3 * scatter(sample + 1, (uint64_t)(COUNT + j));
        double distance = theta[0][j] - centre(batch->seed, j) - noise;
        batch->loss += 0.5 * curvature(j) * distance * distance;
        grad[0][j] += (float)(curvature(j) * distance);
    }
    return isfinite(batch->loss) ? SOTTO_OK : sotto_fail(SOTTO_ENUMERIC, "the parameters ran away");
}

struct watch {
    int64_t first_step;
    double first, last; /* losses */
};

static int observe(void *observer, const struct sotto_round *round)
{
    struct watch *w = observer;
    if (!w->first_step) {
        w->first_step = round->step;
        w->first = round->loss;
    }
    w->last = round->loss;
    return 0; /* go on */
}

/* Trains once as `options` say and prints a line; its last column tells runs apart by their bits.
 */
static enum sotto_status train(const struct sotto_options *options, const char *checkpoint)
{
    struct sotto_problem problem = {
        .struct_size = sizeof problem, .tensors = tensors, .count = 2, .gradient = gradient};
    struct watch watch = {0};
    float x[COUNT] = {0}; /* where training begins; then where it came to */
    struct sotto_training training = {.struct_size = sizeof training,
                                      .problem = &problem,
                                      .options = options,
                                      .parameters = x,
                                      .observe = observe,
                                      .observer = &watch,
                                      .checkpoint = checkpoint};
    struct sotto_result result = {.struct_size = sizeof result};
    char name[64], time[64], seed[64];
    long long seed_number = 0;
    enum sotto_status st = sotto_train(&training, &result);
    if (st != SOTTO_OK || result.rank != 0)
        return st;
    if (sotto_options_get(options, "strategy", name, sizeof name) != SOTTO_OK ||
        sotto_options_get(options, "time", time, sizeof time) != SOTTO_OK ||
        sotto_options_get(options, "seed", seed, sizeof seed) != SOTTO_OK)
        return SOTTO_EINVAL;
    sscanf(seed, "%lld", &seed_number);
    double squares = 0, sum = 0;
    for (int j = 0; j < COUNT; j++) {
        double distance = x[j] - centre(seed_number, j);
        squares += distance * distance;
        sum += (j % 7 + 1) * (double)x[j];
    }
    printf("%-14s %-8s %7d %6lld %9.4f %9.4f %10.2e %10.4f %8.1f%% %10.3f  %a\n", name, time,
           result.workers, (long long)result.step, watch.first, watch.last, squares / COUNT,
           result.cost.seconds,
           result.cost.seconds > 0
               ? 100 * (result.cost.waited_others + result.cost.waited_wire) / result.cost.seconds
               : 0,
           (double)(result.cost.inside + result.cost.between) / 1e6, sum);
    if (watch.first_step == 1 && result.step > 50 && !(watch.last < watch.first / 2))
        return sotto_fail(SOTTO_ENUMERIC, "%s does not learn: its loss went from %g to %g", name,
                          watch.first, watch.last);
    return SOTTO_OK;
}

static enum sotto_status set_all(struct sotto_options *options, int n,
                                 const char *const settings[][2])
{
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < n && st == SOTTO_OK; i++)
        st = sotto_options_set(options, settings[i][0], settings[i][1]);
    return st;
}

/* One method; `simulated`: on a cluster of one worker a node, 20 ms a micro-batch, slow links
 * between them (of which one node alone has none). */
static enum sotto_status train_method(const struct sotto_options *common, const char *name,
                                      int simulated)
{
    static const char *const cluster[][2] = {
        {"time", "virtual"}, {"worker.step", "20ms"}, {"link.inter", "10Mbit/s,2ms"}};
    struct sotto_options *options;
    char workers[64];
    enum sotto_status st = sotto_options_copy(&options, common);
    if (st != SOTTO_OK)
        return st;
    st = sotto_options_set(options, "strategy", name);
    if (st == SOTTO_OK)
        st = sotto_options_get(options, "workers", workers, sizeof workers);
    if (st == SOTTO_OK && (strcmp(name, "random") == 0 || strcmp(name, "striding") == 0))
        st = sotto_options_set(options, "rate",
                               "0.25"); /* of the elements in each step; else 1/32 */
    if (st == SOTTO_OK && simulated)
        st = set_all(options, strcmp(workers, "1") == 0 ? 2 : 3, cluster);
    if (st == SOTTO_OK && simulated)
        st = sotto_options_set(options, "nodes", workers);
    if (st == SOTTO_OK)
        st = train(options, NULL);
    sotto_options_destroy(options);
    return st;
}

static enum sotto_status run(struct sotto_options *options, int processes, int argc, char **argv)
{
    static const char *const begin[][2] = {{"steps", "300"},      {"kind", "sgd"},
                                           {"lr", "0.1"},         {"threads", "1"},
                                           {"weight_decay", "0"}, {"workers", "4"}};
    char name[64];
    enum sotto_status st = set_all(options, processes == 1 ? 6 : 5, begin);
    if (st == SOTTO_OK)
        st = sotto_options_parse(options, &argc, argv);
    if (st == SOTTO_OK)
        st = sotto_options_get(options, "strategy", name, sizeof name);
    if (st == SOTTO_OK && *name)
        return train(options, argc > 1 ? argv[1] : NULL);
    for (int i = 0; sotto_strategy_name(i) && st == SOTTO_OK; i++) {
        if (strcmp(sotto_strategy_name(i), "cdp") == 0)
            continue; /* wants a problem of as many stages as workers */
        st = train_method(options, sotto_strategy_name(i), 0);
        if (st == SOTTO_OK && processes == 1)
            st = train_method(options, sotto_strategy_name(i), 1);
    }
    return st;
}

static void log_line(const char *line, void *arg)
{
    (void)arg;
    fprintf(stderr, "quadratic: %s\n", line);
}

int main(int argc, char **argv)
{
    struct sotto_options *options = NULL;
    struct sotto_mpi *mpi;
    sotto_log(log_line, NULL);
    enum sotto_status st = sotto_mpi_open(&mpi); /* several trainings in one process */
    if (st == SOTTO_OK)
        st = sotto_options_create(&options);
    if (st == SOTTO_OK) {
        if (sotto_mpi_rank(mpi) == 0)
            printf("%-14s %-8s %7s %6s %9s %9s %10s %10s %9s %10s  %s\n", "method", "time",
                   "workers", "steps", "loss from", "to", "distance^2", "seconds", "exposed",
                   "MB sent", "checksum");
        st = run(options, sotto_mpi_size(mpi), argc, argv);
    }
    if (st != SOTTO_OK)
        fprintf(stderr, "quadratic: %s\n", sotto_error());
    sotto_options_destroy(options);
    sotto_mpi_close(mpi);
    return st != SOTTO_OK;
}
