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
 * standard deviation over the seeds; min and max of a single RUN.METRIC are the least and greatest
 * value over the seeds. min and max of several sums are the least and greatest sum, abs is the
 * absolute value of a sum. A run's name may contain '-': in `a-b.loss` the run is "a-b". */
#ifndef SOTTO_TRAIN_COMPARE_EXPECT_H
#define SOTTO_TRAIN_COMPARE_EXPECT_H

#include "train/compare/results.h"

enum expect_relation { EXPECT_LE, EXPECT_LT, EXPECT_GE, EXPECT_GT, EXPECT_EQ };

enum expect_kind {
    EXPECT_NUMBER,
    EXPECT_MEAN, /* of a metric over the seeds, as are the next three */
    EXPECT_STD,
    EXPECT_LEAST,
    EXPECT_MOST,
    EXPECT_NEGATE, /* of a, as is EXPECT_ABS */
    EXPECT_ABS,
    EXPECT_ADD, /* of a and b, as are all below */
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

/* Parses `text`, in which `runs` (NULL at the end) are the known names of runs. An error names the
 * character at which parsing failed. */
enum sotto_status expect_parse(struct expect *e, const char *text, const char *const *runs);
void expect_free(struct expect *e);

/* Calls `each` for every RUN.METRIC of the expectation. */
void expect_visit(const struct expect *e, void (*each)(void *arg, int run, const char *metric),
                  void *arg);

struct expect_verdict {
    bool held;
    double left, right, tolerance;
};

/* Evaluates the expectation. If a value is missing, the error names the value and `out` means
 * nothing. */
enum sotto_status expect_judge(const struct expect *e, const struct results *results,
                               struct expect_verdict *out);

/* Returns the relation's sign, such as "<=". */
const char *expect_sign(const struct expect *e);

#endif
