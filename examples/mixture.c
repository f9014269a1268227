/* DiLoCo with and without common rounds, on four devices of unequal speed: a mixture of Gaussians
 * in 512 dimensions, learnt by a network of one hidden layer.
 *
 *     cc -O3 -march=native mixture.c -o mixture $(pkg-config --cflags --libs sotto) -lm
 *     ./mixture                                   all methods, 3 seeds: a table, and mixture.tsv
 *     ./mixture --steps=200 seeds=1 tsv=short.tsv  any option of sotto train, and two of its own
 *     ./mixture --strategy=async-diloco --outer=nesterov --worker.speed=1,1,1,1    one of them
 *
 * The setting is the toy of Liu et al., Asynchronous local-SGD training for language modeling
 * (2024): 32 Gaussians with centres at distance 1 and a standard deviation of 0.5 in each
 * dimension, 8 for each of 4 classes; 128 000 samples in 4 shards; AdamW inside, tasks of 20 steps
 * of 32 samples. The network is smaller, 128 hidden units instead of 65 000, and its rates are its
 * own. Time is virtual: a step takes the fastest device a second. */
#include <math.h>
#include <sotto/sotto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 512, WIDTH = 128, CLASSES = 4, CLUSTERS = 32, BATCH = 32 };
enum { SAMPLES = 128000, HELD_OUT = 2048, MOST_WORKERS = 64, MOST_POINTS = 256, MOST_SEEDS = 16 };

static const struct sotto_tensor tensors[] = {
    {"hidden.weight", {DIM, WIDTH}, 0},
    {"hidden.bias", {WIDTH}, 0},
    {"head.weight", {WIDTH, CLASSES}, 0},
    {"head.bias", {CLASSES}, 0},
};
enum { COUNT = DIM * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES };

/* Numbers that look random, as functions of (a, b, c). */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xD1B54A32D192ED03u + c * 0x8CB92BA72F3D8DD7u;
    for (int i = 0; i < 2; i++)
        x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static void normal(uint64_t a, uint64_t b, uint64_t c, double out[2]) /* two of them */
{
    const uint64_t x = mix(a, b, c);
    const double u = ((double)(x >> 32) + 0.5) / 4294967296.0,
                 v = (double)(uint32_t)x / 4294967296.0;
    const double r = sqrt(-2 * log(u));
    out[0] = r * cos(6.283185307179586 * v);
    out[1] = r * sin(6.283185307179586 * v);
}

/* What workers share, and only read. A seed changes the samples and where training begins, but not
 * the mixture and the held-out samples, which are those of seed 0. */
struct data {
    uint64_t seed;
    float centre[CLUSTERS][DIM];
    float start[COUNT];
};

static void make_data(struct data *d, uint64_t seed)
{
    d->seed = seed;
    for (uint64_t k = 0; k < CLUSTERS; k++) {
        double square = 0, two[2];
        for (uint64_t i = 0; i < DIM; i++) {
            normal(0, 2 * k, i, two);
            d->centre[k][i] = (float)two[0];
            square += two[0] * two[0];
        }
        for (int i = 0; i < DIM; i++)
            d->centre[k][i] /= (float)sqrt(square);
    }
    for (int i = 0; i < COUNT; i++) { /* uniform, as far as the root of what a unit reads */
        const double most = 1 / sqrt(i < DIM * WIDTH + WIDTH ? DIM : WIDTH);
        d->start[i] =
            (float)(most * ((double)(mix(seed, 1, (uint64_t)i) >> 11) / 4503599627370496.0 - 1));
    }
}

/* Memory of one worker, for one micro-batch. */
struct work {
    const struct data *data;
    float x[BATCH][DIM], h[BATCH][WIDTH], dh[BATCH][WIDTH], p[BATCH][CLASSES];
    int class[BATCH];
};

static enum sotto_status worker_open(void *user, int rank, int size, void **worker)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return sotto_fail(SOTTO_ENOMEM, "no memory for worker %d of %d", rank, size);
    w->data = user;
    *worker = w;
    return SOTTO_OK;
}

static void fill(struct work *w, int b, uint64_t seed, uint64_t sample)
{
    const uint64_t cluster = mix(seed, 3, sample) % CLUSTERS;
    for (int i = 0; i < DIM; i += 2) {
        double two[2];
        normal(seed, 2 * CLUSTERS + sample, (uint64_t)i, two);
        w->x[b][i] = w->data->centre[cluster][i] + 0.5f * (float)two[0];
        w->x[b][i + 1] = w->data->centre[cluster][i + 1] + 0.5f * (float)two[1];
    }
    w->class[b] = (int)(cluster % CLASSES);
}

/* The hidden layer, and the classes' probabilities; the loss, summed, and how many were right. */
static double forward(struct work *w, const float *const *theta, int *right)
{
    double loss = 0;
    for (int b = 0; b < BATCH; b++)
        memcpy(w->h[b], theta[1], sizeof w->h[b]);
    for (int i = 0; i < DIM; i++)
        for (int b = 0; b < BATCH; b++)
            for (int k = 0; k < WIDTH; k++)
                w->h[b][k] += w->x[b][i] * theta[0][i * WIDTH + k];
    for (int b = 0; b < BATCH; b++) {
        float *p = w->p[b], most = -INFINITY, sum = 0;
        memcpy(p, theta[3], sizeof w->p[b]);
        for (int k = 0; k < WIDTH; k++) {
            w->h[b][k] = fmaxf(w->h[b][k], 0);
            for (int c = 0; c < CLASSES; c++)
                p[c] += w->h[b][k] * theta[2][k * CLASSES + c];
        }
        for (int c = 0; c < CLASSES; c++)
            most = fmaxf(most, p[c]);
        *right += p[w->class[b]] == most;
        for (int c = 0; c < CLASSES; c++)
            sum += p[c] = expf(p[c] - most);
        for (int c = 0; c < CLASSES; c++)
            p[c] /= sum;
        loss -= log(fmax(p[w->class[b]], 1e-30));
    }
    return loss;
}

/* Each worker has a shard of the data. Where groups have no rounds in common, batch->rank tells
 * whose shard it is: the fast ones take over what the slow ones have not begun. */
static enum sotto_status gradient(void *worker, struct sotto_microbatch *batch,
                                  const float *const *theta, float *const *grad)
{
    struct work *w = worker;
    const int64_t shard = SAMPLES / batch->size;
    const float scale = batch->sum ? 1 : 1.0f / BATCH;
    int right = 0;
    for (int b = 0; b < BATCH; b++)
        fill(w, b, w->data->seed,
             (uint64_t)(batch->rank * shard + (batch->index * BATCH + b) % shard));
    batch->loss = forward(w, theta, &right);
    batch->targets = BATCH;
    for (int b = 0; b < BATCH; b++) {
        w->p[b][w->class[b]] -= 1; /* d loss / d logits */
        for (int c = 0; c < CLASSES; c++)
            grad[3][c] += scale * w->p[b][c];
        for (int k = 0; k < WIDTH; k++) {
            float sum = 0;
            for (int c = 0; c < CLASSES; c++) {
                sum += w->p[b][c] * theta[2][k * CLASSES + c];
                grad[2][k * CLASSES + c] += scale * w->p[b][c] * w->h[b][k];
            }
            w->dh[b][k] = w->h[b][k] > 0 ? scale * sum : 0;
            grad[1][k] += w->dh[b][k];
        }
    }
    for (int i = 0; i < DIM; i++)
        for (int b = 0; b < BATCH; b++)
            for (int k = 0; k < WIDTH; k++)
                grad[0][i * WIDTH + k] += w->x[b][i] * w->dh[b][k];
    return isfinite(batch->loss) ? SOTTO_OK : sotto_fail(SOTTO_ENUMERIC, "the parameters ran away");
}

/* The curve of a run over its updates and its time. */
struct point {
    double step, seconds, loss, accuracy;
};
struct run {
    const struct data *data;
    struct point point[MOST_WORKERS][MOST_POINTS]; /* as the workers have found them */
    int n[MOST_WORKERS];
    double seconds[MOST_WORKERS], waited[MOST_WORKERS];
    int64_t rounds[MOST_WORKERS];
    int workers;
};

/* Over samples that nobody trains on. */
static enum sotto_status evaluate(struct run *run, int rank, const float *x, double step,
                                  double seconds)
{
    const float *const theta[] = {x, x + DIM * WIDTH, x + DIM * WIDTH + WIDTH, x + COUNT - CLASSES};
    void *own = NULL;
    double loss = 0;
    int right = 0;
    enum sotto_status st = worker_open((void *)run->data, rank, run->workers, &own);
    if (st != SOTTO_OK)
        return st;
    struct work *w = own;
    for (int i = 0; i < HELD_OUT; i += BATCH) {
        for (int b = 0; b < BATCH; b++)
            fill(w, b, 0, (uint64_t)(i + b));
        loss += forward(w, theta, &right);
    }
    free(w);
    if (run->n[rank] == MOST_POINTS)
        return sotto_fail(SOTTO_EINVAL, "more than %d evaluations", MOST_POINTS);
    run->point[rank][run->n[rank]++] =
        (struct point){step, seconds, loss / HELD_OUT, (double)right / HELD_OUT};
    return SOTTO_OK;
}

/* The same loop with and without common rounds. round.evaluate tells who is to look at the
 * parameters: all workers together, of which rank 0 does it, or one group, while the others go on.
 */
static enum sotto_status rounds(struct run *run, struct sotto_trainer *trainer, int rank, float *x)
{
    struct sotto_round r = {.struct_size = sizeof r};
    enum sotto_status st = SOTTO_OK;
    while (st == SOTTO_OK && !r.over) {
        st = sotto_trainer_round(trainer, &r);
        run->rounds[rank] += !r.idle;
        if (st != SOTTO_OK || !r.evaluate)
            continue;
        st = sotto_trainer_parameters(trainer, x);
        if (st == SOTTO_OK && (rank == 0 || !r.meet))
            st = evaluate(run, rank, x, (double)r.step, r.cost.seconds);
    }
    run->seconds[rank] = r.cost.seconds;
    run->waited[rank] = r.cost.waited_others + r.cost.waited_wire;
    return st;
}

static enum sotto_status job(struct sotto_worker *worker, void *arg)
{
    struct run *run = arg;
    const int rank = sotto_worker_rank(worker);
    struct sotto_problem problem = {.struct_size = sizeof problem,
                                    .tensors = tensors,
                                    .count = 4,
                                    .gradient = gradient,
                                    .user = (void *)run->data, /* only read */
                                    .worker_open = worker_open,
                                    .worker_close = free};
    struct sotto_trainer *trainer;
    float *x = malloc(COUNT * sizeof *x);
    if (!x || sotto_worker_size(worker) > MOST_WORKERS)
        return sotto_fail(SOTTO_EINVAL, "%d workers are too many", sotto_worker_size(worker));
    run->workers = sotto_worker_size(worker);
    enum sotto_status st = sotto_trainer_create(&trainer, worker, &problem, run->data->start);
    if (st == SOTTO_OK && rank == 0)
        st = evaluate(run, 0, run->data->start, 0, 0);
    if (st == SOTTO_OK)
        st = rounds(run, trainer, rank, x);
    free(x);
    return sotto_trainer_destroy(trainer, st);
}

/* What is printed of a run, mean and standard deviation over seeds, and its curves. */
struct summary {
    struct point curve[MOST_SEEDS][MOST_POINTS];
    int n, seeds;
    double seconds, waited; /* of the last seed: times do not depend on it */
};

static int by_time(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->seconds != q->seconds ? (p->seconds > q->seconds) - (p->seconds < q->seconds)
                                    : (p->step > q->step) - (p->step < q->step);
}

static enum sotto_status add(struct summary *s, const struct run *run)
{
    struct point *curve = s->curve[s->seeds++];
    int n = 0;
    double waited = 0, seconds = 0;
    s->seconds = 0;
    for (int r = 0; r < run->workers; r++) {
        if (n + run->n[r] > MOST_POINTS)
            return sotto_fail(SOTTO_EINVAL, "more than %d evaluations", MOST_POINTS);
        memcpy(curve + n, run->point[r], (size_t)run->n[r] * sizeof *curve);
        n += run->n[r];
        waited += run->waited[r];
        seconds += run->seconds[r];
        s->seconds = fmax(s->seconds, run->seconds[r]);
    }
    s->waited = seconds > 0 ? waited / seconds : 0;
    qsort(curve, (size_t)n, sizeof *curve, by_time);
    if (s->seeds > 1 && n != s->n)
        return sotto_fail(SOTTO_EINVAL, "%d evaluations with one seed, %d with another", s->n, n);
    s->n = n;
    return SOTTO_OK;
}

/* Mean and standard deviation, of the loss or the accuracy, where column x of the curve is `at`. */
static void at(const struct summary *s, int column, double x, int y, double out[2])
{
    double sum = 0, squares = 0;
    for (int k = 0; k < s->seeds; k++) {
        int i = 1;
        while (i < s->n - 1 && (&s->curve[k][i].step)[column] < x)
            i++;
        const double *p = &s->curve[k][i - 1].step, *q = &s->curve[k][i].step;
        const double share = q[column] > p[column] ? (x - p[column]) / (q[column] - p[column]) : 1;
        const double value = p[y] + fmin(share, 1) * (q[y] - p[y]);
        sum += value;
        squares += value * value;
    }
    out[0] = sum / s->seeds;
    out[1] = s->seeds > 1 ? sqrt(fmax(0, squares - sum * out[0]) / (s->seeds - 1)) : 0;
}
enum { STEP, SECONDS, LOSS, ACCURACY };

static const struct method {
    const char *name, *strategy, *outer, *outer_lr, *dylu;
} methods[] = {
    {"sync-sgd", "diloco", "sgd", "1", NULL},
    {"sync-nesterov", "diloco", "nesterov", "0.3", NULL},
    {"async-sgd", "async-diloco", "sgd", "1", NULL},
    {"async-nesterov", "async-diloco", "nesterov", "0.3", NULL},
    {"async-delayed", "async-diloco", "delayed-nesterov", "0.3", NULL},
    {"async-delayed-dylu", "async-diloco", "delayed-nesterov", "0.3", "true"},
};
enum { METHODS = sizeof methods / sizeof *methods };

/* The program's settings, the method's, and then the user's. */
static enum sotto_status set_up(struct sotto_options *o, const struct method *m, int argc,
                                char **argv)
{
    const char *const set[][2] = {
        {"time", "virtual"},
        {"worker.step", "1s"},
        {"workers", "4"},
        {"worker.speed", "1,0.5,0.25,0.125"},
        {"steps", "1000"},
        {"eval_every", "40"},
        {"kind", "adamw"},
        {"lr", "1e-3"},
        {"beta2", "0.999"},
        {"weight_decay", "1e-3"},
        {"final", "0"},
        {"strategy", m ? m->strategy : NULL},
        {"H", m ? "20" : NULL},
        {"outer", m ? m->outer : NULL},
        {"outer_lr", m ? m->outer_lr : NULL},
        {"dylu", m ? m->dylu : NULL},
    };
    char **words = malloc(((size_t)argc + 1) * sizeof *words);
    enum sotto_status st = words ? SOTTO_OK : sotto_fail(SOTTO_ENOMEM, "no memory for options");
    for (size_t i = 0; i < sizeof set / sizeof *set && st == SOTTO_OK; i++)
        if (set[i][1])
            st = sotto_options_set(o, set[i][0], set[i][1]);
    if (st == SOTTO_OK) {
        memcpy(words, argv, (size_t)argc * sizeof *words);
        st = sotto_options_parse(o, &argc, words);
    }
    free(words);
    return st;
}

static enum sotto_status train(const struct method *m, int seeds, int argc, char **argv,
                               struct summary *out)
{
    struct data *data = malloc(sizeof *data);
    struct run *run = malloc(sizeof *run);
    enum sotto_status st = data && run ? SOTTO_OK : sotto_fail(SOTTO_ENOMEM, "no memory for data");
    for (int seed = 1; seed <= seeds && st == SOTTO_OK; seed++) {
        struct sotto_options *options = NULL;
        st = sotto_options_create(&options);
        if (st == SOTTO_OK)
            st = set_up(options, m, argc, argv);
        make_data(data, (uint64_t)seed);
        memset(run, 0, sizeof *run);
        run->data = data;
        if (st == SOTTO_OK)
            st = sotto_run(options, job, run);
        if (st == SOTTO_OK)
            st = add(out, run);
        sotto_options_destroy(options);
    }
    free(data);
    free(run);
    return st;
}

/* One block a run, two empty lines between, which gnuplot calls an index. */
static void write_curve(FILE *f, const char *name, const struct summary *s)
{
    for (int i = 0; i < s->n; i++) {
        double sum[2] = {0}, least = INFINITY, most = -INFINITY;
        for (int k = 0; k < s->seeds; k++) {
            const struct point *p = &s->curve[k][i];
            sum[0] += p->loss / s->seeds;
            sum[1] += p->accuracy / s->seeds;
            least = fmin(least, p->loss);
            most = fmax(most, p->loss);
        }
        fprintf(f, "%s\t%g\t%g\t%.6f\t%.6f\t%.6f\t%.6f\n", name, s->curve[0][i].step,
                s->curve[0][i].seconds, sum[0], least, most, sum[1]);
    }
    fputs("\n\n", f);
}

static void print_row(const char *name, const struct summary *s, double time)
{
    double quarter[2], half[2], end[2], right[2], then[2];
    const double steps = s->curve[0][s->n - 1].step;
    at(s, STEP, steps / 4, LOSS, quarter);
    at(s, STEP, steps / 2, LOSS, half);
    at(s, STEP, steps, LOSS, end);
    at(s, STEP, steps, ACCURACY, right);
    at(s, SECONDS, time, LOSS, then);
    printf(
        "%-18s %.4f +- %.4f  %.4f +- %.4f  %.4f +- %.4f  %5.1f %%  %6.0f s  %4.1f %%  %.4f +- %.4f\n",
        name, quarter[0], quarter[1], half[0], half[1], end[0], end[1], 100 * right[0], s->seconds,
        100 * s->waited, then[0], then[1]);
}

static enum sotto_status run_all(int argc, char **argv)
{
    char name[64] = "", path[256] = "mixture.tsv";
    int seeds = 3;
    double time = INFINITY;
    enum sotto_status st = SOTTO_OK;
    for (int i = 1; i < argc && st == SOTTO_OK; i++)
        if (sscanf(argv[i], "--strategy=%63s", name) != 1 && strncmp(argv[i], "--", 2) != 0 &&
            sscanf(argv[i], "seeds=%d", &seeds) != 1 && sscanf(argv[i], "tsv=%255s", path) != 1)
            st = sotto_fail(SOTTO_EINVAL, "'%s': want seeds=N, tsv=FILE or --key=value", argv[i]);
    if (st == SOTTO_OK && (seeds < 1 || seeds > MOST_SEEDS))
        st = sotto_fail(SOTTO_EINVAL, "seeds=%d: want 1 to %d", seeds, MOST_SEEDS);
    const int n = *name ? 1 : METHODS;
    struct summary *all = calloc((size_t)n, sizeof *all);
    if (st == SOTTO_OK && !all)
        st = sotto_fail(SOTTO_ENOMEM, "no memory for %d runs", n);
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        st = train(*name ? NULL : &methods[i], seeds, argc, argv, &all[i]);
        time = fmin(time, all[i].seconds);
    }
    FILE *f = st == SOTTO_OK ? fopen(path, "w") : NULL;
    if (st == SOTTO_OK && !f)
        st = sotto_fail(SOTTO_EIO, "cannot write %s", path);
    if (st == SOTTO_OK) {
        printf(
            "loss on held-out data     of 1/4 updates     of 1/2 updates        all updates  correct  "
            "takes     waits  after %.0f s\n",
            time);
        fprintf(f, "# run\tstep\tseconds\tloss\tleast\tmost\taccuracy\n");
        for (int i = 0; i < n; i++) {
            print_row(*name ? name : methods[i].name, &all[i], time);
            write_curve(f, *name ? name : methods[i].name, &all[i]);
        }
        if (fclose(f) != 0)
            st = sotto_fail(SOTTO_EIO, "cannot write %s", path);
    }
    free(all);
    return st;
}

int main(int argc, char **argv)
{
    const enum sotto_status st = run_all(argc, argv);
    if (st != SOTTO_OK)
        fprintf(stderr, "mixture: %s\n", sotto_error());
    return st != SOTTO_OK;
}
