/* One table of op x shape for four uses: fast against reference, reference against finite
 * differences, equal bits on any number of threads, and speed. An op is a list of operands and a
 * function that runs one of its passes on a device. */
#ifndef SOTTO_TESTS_TENSOR_OP_CASES_H
#define SOTTO_TESTS_TENSOR_OP_CASES_H

#include "tensor/ops.h"

enum role {
    ROLE_IN,    /* an argument of the forward pass                                */
    ROLE_OUT,   /* the result y; gradients are those of the functional sum(c * y) */
    ROLE_SAVED, /* saved for the backward passes                                  */
    ROLE_DY,    /* c                                                              */
    ROLE_GRAD   /* gradient of the argument `of`                                  */
};

enum kind {
    KIND_ACTIVATION = 1,
    KIND_WEIGHT = 2,
    KIND_GRADIENT = 4,
    KIND_F32 = 0
}; /* kinds of operands, for mixes of types */

struct operand {
    const char *name;
    enum role role;
    enum kind kind;
    size_t count;
    int of;             /* ROLE_GRAD: index of its argument; -1: not a derivative   */
    bool adds;          /* ROLE_GRAD: the op adds to what is there                  */
    float mean, spread; /* of the random start                                      */
    float gap;          /* no value is nearer to 0                                  */
    float level;        /* not 0: multiples of `level`, each once, in a mixed order */
};

enum { OPERANDS = 16, PASSES = 3 };

enum case_flag {
    CASE_BIAS = 1,
    CASE_RESIDUAL = 2, /* norms: with CASE_ADD, not in dx */
    CASE_ADD = 4,      /* dx +=                           */
    CASE_ALIAS = 8,    /* the residual is y; dx is dy     */
    CASE_IN_OUT = 16,  /* weight layout                   */
    CASE_EXACT = 32,   /* gelu kind                       */
    CASE_FUSED = 64,   /* q, k, v in one row              */
    CASE_PEEK = 128,
    CASE_NESTEROV = 256,
    CASE_FIRST = 512,
    CASE_THETA = 1024,
    CASE_IGNORE = 2048,   /* some targets are ignored                     */
    CASE_SPARE = 4096,    /* no dgain, dbias, momentum, positions         */
    CASE_IN_PLACE = 8192, /* benches: do not restore overwritten operands */
    CASE_RELU = 16384,
    CASE_WHOLE = 1 << 20, /* attention without a causal mask      */
    CASE_HALF = 1 << 21,  /* attention that may round to bf16     */
    CASE_FRESH = 1 << 22, /* dw = , not +=                        */
    CASE_BOTH = 1 << 23   /* dx and dw at once, where a table can */
};

struct op_case {
    const char *op;
    int d[8]; /* the shape, defined by the op's family */
    unsigned flags;
};

struct family {
    const char *op;
    const char *shape; /* names of d                                        */
    int passes;        /* 1: forward alone                                  */
    int (*operands)(const struct op_case *c, struct operand *out); /* returns their number */
    void (*run)(struct device *dev, const struct op_case *c, struct view *v, int pass);
    double tolerance; /* of fp32, relative to an element or 1, or, */
    bool sums;        /* if `sums`, to the largest of an operand */
};

extern const struct op_case op_cases[];
extern const size_t op_cases_count;

const struct family *family_of(const struct op_case *c);
/* Returns the count of elements of all operands. */
size_t op_case_elements(const struct op_case *c);

/* The operands of a case: buffers on a device, and the same values on the host as fp32. */
struct op_room {
    struct device *dev;
    const struct op_case *c;
    int n;
    struct operand operand[OPERANDS];
    struct buffer buffer[OPERANDS];
    struct view view[OPERANDS];
};

/* Makes the operands; `half`: the kinds that are bf16. Values depend on (case, operand) alone. */
enum sotto_status op_room_init(struct op_room *room, struct device *dev, const struct op_case *c,
                               unsigned half);
/* Makes the operands without values, for tests that need no values. */
enum sotto_status op_room_make(struct op_room *room, struct device *dev, const struct op_case *c,
                               unsigned half);
/* Makes the operands with the values of `from`, both in host memory: making values takes longer
 * than most ops. */
enum sotto_status op_room_copy(struct op_room *room, struct device *dev, const struct op_room *from,
                               unsigned half);
void op_room_free(struct op_room *room);
void op_room_run(struct op_room *room, int pass);

#endif
