/* Expectations about results, checked when all runs are done:
 *
 *     acco.loss <= ddp.loss * 1.02
 *     zero1.loss == ddp.loss +- 0.001
 *
 *     expectation  sum relation sum, or sum == sum +- sum
 *     relation     <= < >= > ==                 == is exact without its tolerance
 *     sum          product {+ or - product}
 *     product      factor {* or / factor}
 *     factor       number, - factor, ( sum ), RUN.METRIC, function ( arguments )
 *
 * RUN.METRIC is a number of the run's report.json, the mean over its seeds. std(RUN.METRIC) is its
 * standard deviation over the seeds, min and max of a single RUN.METRIC its least and greatest;
 * min and max of several sums, and abs of one, are what they are elsewhere. A run's name may hold
 * '-': in `a-b.loss` the run is "a-b". */
#ifndef SOTTO_TRAIN_COMPARE_EXPECT_H
#define SOTTO_TRAIN_COMPARE_EXPECT_H

#include "train/compare/results.h"

enum expect_relation { EXPECT_LE, EXPECT_LT, EXPECT_GE, EXPECT_GT, EXPECT_EQ };

enum expect_kind {
    EXPECT_NUMBER,
    EXPECT_MEAN, /* of a metric over the seeds: these four */
    EXPECT_STD,
    EXPECT_LEAST,
    EXPECT_MOST,
    EXPECT_NEGATE, /* of a: these two */
    EXPECT_ABS,
    EXPECT_ADD, /* of a and b: these */
    EXPECT_SUBTRACT,
    EXPECT_MULTIPLY,
    EXPECT_DIVIDE,
    EXPECT_MIN,
    EXPECT_MAX,
};

struct expect_node { /* of an expression's tree */
    enum expect_kind kind;
    int a, b; /* nodes */
    double number;
    int run;
    char metric[64];
};

struct expect {
    char *text;
    struct expect_node *nodes;
    int n_nodes, room;
    enum expect_relation relation;
    int left, right, tolerance; /* nodes; tolerance -1: none */
};

/* Parses; `runs` (NULL at the end) are the names that it may use. An error says at which
 * character. */
enum sotto_status expect_parse(struct expect *e, const char *text, const char *const *runs);
void expect_free(struct expect *e);

/* Calls `each` for every RUN.METRIC in it. */
void expect_visit(const struct expect *e, void (*each)(void *arg, int run, const char *metric),
                  void *arg);

struct expect_verdict {
    bool held;
    double left, right, tolerance;
};

/* An error says which value is missing; then nothing is known. */
enum sotto_status expect_judge(const struct expect *e, const struct results *results,
                               struct expect_verdict *out);

/* "<=" and so on */
const char *expect_sign(const struct expect *e);

#endif
