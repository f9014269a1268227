/* Parser of expectations: recursive descent, one function per line of the grammar in expect.h. */
#define _GNU_SOURCE /* strndup */
#include "train/compare/expect.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/option/option.h"

enum { MAX_NODES = 1000, MAX_DEPTH = 50 }; /* limits of the stack for parsing and evaluation */

struct expect_reader {
    struct expect *e;
    const char *at;          /* first character not read   */
    const char *const *runs; /* names, NULL at the end     */
    int depth;               /* of brackets and signs      */
};

static enum sotto_status read_sum(struct expect_reader *r, int *out);

static void skip_blanks(struct expect_reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

static enum sotto_status fail_at(const struct expect_reader *r, const char *at, const char *what)
{
    char near[24];
    snprintf(near, sizeof near, "'%.16s'", at);
    return fail(SOTTO_EFORMAT, "expect: %s at character %d (%s)", what, (int)(at - r->e->text) + 1,
                *at ? near : "its end");
}

static enum sotto_status fail_here(const struct expect_reader *r, const char *what)
{
    return fail_at(r, r->at, what);
}

static bool take_sign(struct expect_reader *r, const char *sign)
{
    skip_blanks(r);
    size_t length = strlen(sign);
    if (strncmp(r->at, sign, length) != 0)
        return false;
    r->at += length;
    return true;
}

static enum sotto_status add_node(struct expect_reader *r, struct expect_node node, int *out)
{
    struct expect *e = r->e;
    if (e->n_nodes == MAX_NODES)
        return fail_here(r, "too long an expression");
    if (e->n_nodes == e->room) {
        int room = e->room ? 2 * e->room : 16;
        struct expect_node *more = realloc(e->nodes, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for an expectation of %d parts", room);
        e->nodes = more;
        e->room = room;
    }
    *out = e->n_nodes;
    e->nodes[e->n_nodes++] = node;
    return SOTTO_OK;
}

static enum sotto_status add_operation(struct expect_reader *r, enum expect_kind kind, int a, int b,
                                       int *out)
{
    return add_node(r, (struct expect_node){.kind = kind, .a = a, .b = b}, out);
}

static enum sotto_status unknown_run(const struct expect_reader *r, const char *name, size_t length)
{
    char text[80], what[256];
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    const char *near = option_closest(text, r->runs);
    snprintf(what, sizeof what, "there is no run '%s'%s%s%s:", text, near ? " (did you mean '" : "",
             near ? near : "", near ? "'?)" : "");
    return fail_at(r, name, what);
}

/* Reads RUN.METRIC; RUN has `length` characters. */
static enum sotto_status read_metric(struct expect_reader *r, size_t length, int *out)
{
    struct expect_node node = {.kind = EXPECT_MEAN, .run = -1};
    for (int i = 0; r->runs[i] && node.run < 0; i++)
        if (strlen(r->runs[i]) == length && strncmp(r->runs[i], r->at, length) == 0)
            node.run = i;
    if (node.run < 0)
        return unknown_run(r, r->at, length);
    r->at += length + 1;
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
        n++;
    if (n == 0)
        return fail_here(r, "want a metric, as in RUN.loss,");
    if (n >= sizeof node.metric)
        return fail_here(r, "too long a metric");
    memcpy(node.metric, r->at, n);
    r->at += n;
    return add_node(r, node, out);
}

/* Reads the arguments of function `name`, up to ')'. min and max of a single metric are taken over
 * the seeds, otherwise over the arguments. */
static enum sotto_status read_arguments(struct expect_reader *r, const char *name, int *out)
{
    static const struct {
        const char *name;
        enum expect_kind over_seeds, of_sums;
    } functions[] = {{"std", EXPECT_STD, EXPECT_STD},
                     {"abs", EXPECT_ABS, EXPECT_ABS},
                     {"min", EXPECT_LEAST, EXPECT_MIN},
                     {"max", EXPECT_MOST, EXPECT_MAX}};
    int f = 0, b;
    while (strncmp(functions[f].name, name, 3) != 0)
        f++;
    TRY(read_sum(r, out));
    if (functions[f].of_sums == EXPECT_ABS) {
        TRY(add_operation(r, EXPECT_ABS, *out, -1, out));
    } else if (!take_sign(r, ",")) {
        struct expect_node *only = &r->e->nodes[*out];
        if (only->kind != EXPECT_MEAN)
            return fail_at(r, name,
                           f == 0 ? "std wants one RUN.METRIC,"
                                  : "min and max want one RUN.METRIC or several values,");
        only->kind = functions[f].over_seeds;
    } else {
        if (functions[f].of_sums == EXPECT_STD)
            return fail_at(r, name, "std wants one RUN.METRIC,");
        do {
            TRY(read_sum(r, &b));
            TRY(add_operation(r, functions[f].of_sums, *out, b, out));
        } while (take_sign(r, ","));
    }
    return take_sign(r, ")") ? SOTTO_OK : fail_here(r, "want ')'");
}

static enum sotto_status read_name(struct expect_reader *r, int *out)
{
    size_t length = 0;
    const char *name = r->at;
    while (isalnum((unsigned char)name[length]) || name[length] == '_' || name[length] == '-')
        length++;
    if (name[length] == '.')
        return read_metric(r, length, out);
    static const char *const functions[] = {"std", "abs", "min", "max"};
    for (int f = 0; f < 4; f++) {
        if (length != 3 || strncmp(name, functions[f], 3) != 0)
            continue;
        r->at += length;
        if (!take_sign(r, "("))
            return fail_here(r, "want '('");
        return read_arguments(r, name, out);
    }
    return fail_here(r, "want RUN.METRIC, or std, min, max or abs of one,");
}

static enum sotto_status read_number(struct expect_reader *r, int *out)
{
    char *end;
    double number = strtod(r->at, &end);
    if (end == r->at || !isfinite(number))
        return fail_here(r, "want a number");
    if (isalpha((unsigned char)*end) || *end == '_')
        return fail_here(r, "a number followed by letters");
    r->at = end;
    return add_node(r, (struct expect_node){.kind = EXPECT_NUMBER, .number = number}, out);
}

static enum sotto_status read_factor(struct expect_reader *r, int *out)
{
    enum sotto_status st;
    skip_blanks(r);
    if (++r->depth > MAX_DEPTH)
        return fail_here(r, "brackets too deep");
    if (take_sign(r, "-")) {
        st = read_factor(r, out);
        if (st == SOTTO_OK)
            st = add_operation(r, EXPECT_NEGATE, *out, -1, out);
    } else if (take_sign(r, "(")) {
        st = read_sum(r, out);
        if (st == SOTTO_OK && !take_sign(r, ")"))
            st = fail_here(r, "want ')'");
    } else if (isalpha((unsigned char)*r->at)) {
        st = read_name(r, out);
    } else {
        st = isdigit((unsigned char)*r->at) || *r->at == '.' ? read_number(r, out)
                                                             : fail_here(r, "want a value");
    }
    r->depth--;
    return st;
}

static enum sotto_status read_product(struct expect_reader *r, int *out)
{
    int b;
    TRY(read_factor(r, out));
    for (;;) {
        bool times = take_sign(r, "*");
        if (!times && !take_sign(r, "/"))
            return SOTTO_OK;
        TRY(read_factor(r, &b));
        TRY(add_operation(r, times ? EXPECT_MULTIPLY : EXPECT_DIVIDE, *out, b, out));
    }
}

static enum sotto_status read_sum(struct expect_reader *r, int *out)
{
    int b;
    TRY(read_product(r, out));
    for (;;) {
        skip_blanks(r);
        bool plus = strncmp(r->at, "+-", 2) != 0 && take_sign(r, "+"); /* "+-" begins a tolerance */
        if (!plus && !take_sign(r, "-"))
            return SOTTO_OK;
        TRY(read_product(r, &b));
        TRY(add_operation(r, plus ? EXPECT_ADD : EXPECT_SUBTRACT, *out, b, out));
    }
}

static const char *const relation_signs[] = {"<=", "<", ">=", ">",
                                             "=="}; /* a prefix after the longer one */

const char *expect_sign(const struct expect *e)
{
    return relation_signs[e->relation];
}

static enum sotto_status read_expectation(struct expect_reader *r)
{
    struct expect *e = r->e;
    size_t relation = 0;
    TRY(read_sum(r, &e->left));
    while (relation < sizeof relation_signs / sizeof *relation_signs &&
           !take_sign(r, relation_signs[relation]))
        relation++;
    if (relation == sizeof relation_signs / sizeof *relation_signs)
        return fail_here(r, "want one of <= < >= > ==");
    e->relation = (enum expect_relation)relation;
    TRY(read_sum(r, &e->right));
    if (e->relation == EXPECT_EQ && take_sign(r, "+-"))
        TRY(read_sum(r, &e->tolerance));
    skip_blanks(r);
    return *r->at ? fail_here(r, "want nothing more") : SOTTO_OK;
}

enum sotto_status expect_parse(struct expect *e, const char *text, const char *const *runs)
{
    *e = (struct expect){.tolerance = -1, .text = strdup(text)};
    if (!e->text)
        return fail(SOTTO_ENOMEM, "no memory for an expectation");
    struct expect_reader r = {.e = e, .at = e->text, .runs = runs};
    enum sotto_status st = read_expectation(&r);
    if (st != SOTTO_OK)
        expect_free(e);
    return st;
}

void expect_free(struct expect *e)
{
    free(e->text);
    free(e->nodes);
    *e = (struct expect){.tolerance = -1};
}

void expect_visit(const struct expect *e, void (*each)(void *arg, int run, const char *metric),
                  void *arg)
{
    for (int i = 0; i < e->n_nodes; i++)
        if (e->nodes[i].kind >= EXPECT_MEAN && e->nodes[i].kind <= EXPECT_MOST)
            each(arg, e->nodes[i].run, e->nodes[i].metric);
}
