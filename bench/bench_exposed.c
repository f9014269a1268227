/* Measures the communication that is exposed in real time, on throttled links, next to the
 * prediction of virtual time. A micro-batch sleeps instead of computing: workers are as even as the
 * clock, so the method and the link are measured, not the wait for cores.
 *
 * A tau of 1000 never averages.
 *
 *     bench_exposed [--option=value ...]     as for sotto train, e.g. --workers=2 */
#include <sotto/sotto.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COUNT = 250000, STEP_MS = 10 };

static const struct sotto_tensor tensors[] = {{"x", {COUNT}, 0}};

static enum sotto_status gradient(void *real, struct sotto_microbatch *batch,
                                  const float *const *theta, float *const *grad)
{
    struct timespec t = {0, STEP_MS * 1000000};
    if (real)
        nanosleep(&t, NULL);
    for (int i = 0; i < COUNT; i += 100)
        grad[0][i] += theta[0][i];
    batch->loss = theta[0][0];
    return SOTTO_OK;
}

static enum sotto_status measure(const struct sotto_options *common, const char *method,
                                 const char *tau, int real, struct sotto_cost *cost)
{
    static float x[COUNT];
    struct sotto_problem problem = {.struct_size = sizeof problem,
                                    .tensors = tensors,
                                    .count = 1,
                                    .gradient = gradient,
                                    .user = real ? &problem : NULL};
    struct sotto_training training = {
        .struct_size = sizeof training, .problem = &problem, .parameters = x};
    struct sotto_options *options;
    struct sotto_result result = {.struct_size = sizeof result};
    char step[16];
    snprintf(step, sizeof step, "%dms", STEP_MS);
    enum sotto_status st = sotto_options_copy(&options, common);
    if (st != SOTTO_OK)
        return st;
    st = sotto_options_set(options, "strategy", method);
    if (st == SOTTO_OK && *tau)
        st = sotto_options_set(options, "tau", tau);
    if (st == SOTTO_OK && strcmp(method, "co2") == 0) /* a vector to average, as elsewhere */
        st = sotto_options_set(options, "penalty", "norm");
    if (st == SOTTO_OK && !real)
        st = sotto_options_set(options, "time", "virtual");
    if (st == SOTTO_OK && !real)
        st = sotto_options_set(options, "worker.step", step);
    training.options = options;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    if (st == SOTTO_OK)
        st = sotto_train(&training, &result);
    *cost = result.cost;
    sotto_options_destroy(options);
    return st;
}

/* Returns the share of the time that workers waited. */
static double exposed(const struct sotto_cost *c)
{
    return (c->waited_others + c->waited_wire) / c->seconds;
}

static enum sotto_status row(const struct sotto_options *options, const char *method,
                             const char *tau)
{
    struct sotto_cost real, simulated;
    enum sotto_status st = measure(options, method, tau, 1, &real);
    if (st == SOTTO_OK)
        st = measure(options, method, tau, 0, &simulated);
    if (st == SOTTO_OK)
        printf("%-18s %5s %12.3f %9.2f%% %12.3f %9.2f%%\n", method, tau, real.seconds,
               100 * exposed(&real), simulated.seconds, 100 * exposed(&simulated));
    return st;
}

int main(int argc, char **argv)
{
    static const char *const begin[][2] = {
        {"workers", "4"}, {"steps", "120"}, {"kind", "sgd"},
        {"threads", "1"}, {"nodes", "4"},   {"link.inter", "15MB/s,1ms"}}; /* 106 ms an average */
    static const char *const taus[] = {"3", "6", "9", "11", "12", "24", "1000", "auto"};
    struct sotto_options *options = NULL;
    enum sotto_status st = sotto_options_create(&options);
    for (int i = 0; i < 6 && st == SOTTO_OK; i++)
        st = sotto_options_set(options, begin[i][0], begin[i][1]);
    if (st == SOTTO_OK)
        st = sotto_options_parse(options, &argc, argv);
    if (st == SOTTO_OK)
        printf("%-18s %5s %12s %10s %12s %10s\n", "method", "tau", "real (s)", "exposed",
               "virtual (s)", "exposed");
    static const char *const waiting[][2] = {{"ddp", ""}, {"local-sgd", "12"}, {"slowmo", "12"}};
    for (int i = 0; i < 3 && st == SOTTO_OK; i++)
        st = row(options, waiting[i][0], waiting[i][1]);
    for (int i = 0; i < 7 && st == SOTTO_OK; i++)
        st = row(options, "overlap-local-sgd", taus[i]);
    for (int i = 0; i < 8 && st == SOTTO_OK; i++)
        st = row(options, "co2", taus[i]);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_exposed: %s\n", sotto_error());
    sotto_options_destroy(options);
    return st != SOTTO_OK;
}
