/* Evaluation of expectations. */
#include "train/compare/expect.h"

#include <assert.h>
#include <math.h>

static enum sotto_status metric_value(const struct expect_node *node, const struct results *r,
                                      double *out)
{
    struct spread s = results_spread(r, node->run, node->metric);
    const char *name = r->names[node->run];
    if (s.n == 0)
        return fail(SOTTO_EINVAL, "%s.%s is missing", name, node->metric);
    if (s.n < r->n_seeds)
        return fail(SOTTO_EINVAL, "%s.%s is missing for %d of %d seeds", name, node->metric,
                    r->n_seeds - s.n, r->n_seeds);
    if (node->kind == EXPECT_STD && s.n == 1)
        return fail(SOTTO_EINVAL, "std(%s.%s) needs two seeds or more", name, node->metric);
    *out = node->kind == EXPECT_STD     ? s.std
           : node->kind == EXPECT_LEAST ? s.min
           : node->kind == EXPECT_MOST  ? s.max
                                        : s.mean;
    return SOTTO_OK;
}

static enum sotto_status expect_value(const struct expect *e, int at, const struct results *r,
                                      double *out)
{
    const struct expect_node *node = &e->nodes[at];
    double a = 0, b = 0;
    if (node->kind == EXPECT_NUMBER) {
        *out = node->number;
        return SOTTO_OK;
    }
    if (node->kind <= EXPECT_MOST)
        return metric_value(node, r, out);
    TRY(expect_value(e, node->a, r, &a));
    if (node->kind >= EXPECT_ADD)
        TRY(expect_value(e, node->b, r, &b));
    switch (node->kind) {
    case EXPECT_NEGATE:
        return *out = -a, SOTTO_OK;
    case EXPECT_ABS:
        return *out = fabs(a), SOTTO_OK;
    case EXPECT_ADD:
        return *out = a + b, SOTTO_OK;
    case EXPECT_SUBTRACT:
        return *out = a - b, SOTTO_OK;
    case EXPECT_MULTIPLY:
        return *out = a * b, SOTTO_OK;
    case EXPECT_DIVIDE:
        if (b == 0)
            return fail(SOTTO_EINVAL, "division of %g by 0", a);
        return *out = a / b, SOTTO_OK;
    case EXPECT_MIN:
        return *out = fmin(a, b), SOTTO_OK;
    case EXPECT_MAX:
        return *out = fmax(a, b), SOTTO_OK;
    default:
        assert(0);
        return SOTTO_EINVAL;
    }
}

static bool relation_holds(const struct expect *e, const struct expect_verdict *v)
{
    switch (e->relation) {
    case EXPECT_LE:
        return v->left <= v->right;
    case EXPECT_LT:
        return v->left < v->right;
    case EXPECT_GE:
        return v->left >= v->right;
    case EXPECT_GT:
        return v->left > v->right;
    case EXPECT_EQ:
        return fabs(v->left - v->right) <= v->tolerance;
    }
    assert(0);
    return false;
}

enum sotto_status expect_judge(const struct expect *e, const struct results *results,
                               struct expect_verdict *out)
{
    *out = (struct expect_verdict){0};
    TRY(expect_value(e, e->left, results, &out->left));
    TRY(expect_value(e, e->right, results, &out->right));
    if (e->tolerance >= 0)
        TRY(expect_value(e, e->tolerance, results, &out->tolerance));
    out->held = relation_holds(e, out);
    return SOTTO_OK;
}
