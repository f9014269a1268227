/* The parameters of an op (op_list.h) as C. */
#ifndef SOTTO_TENSOR_OP_PARAMETERS_H
#define SOTTO_TENSOR_OP_PARAMETERS_H

/* OP_PARAMETERS(VIEW(y), VALUE(float, a)) is: struct device *dev , struct view y , float a */
#define OP_PARAMETERS(...) struct device *dev OP_EACH(OP_PARAMETER_, __VA_ARGS__)
#define OP_PARAMETER_VIEW(name) , struct view name
#define OP_PARAMETER_OPTIONAL(name) , struct view name
#define OP_PARAMETER_VALUE(type, name) , type name
#define OP_PARAMETER_STRUCT(tag, name) , const struct tag *name
#define OP_PARAMETER_ARRAY(tag, name, n) , const struct tag *name, int n

/* OP_EACH(DO_, VIEW(y), VALUE(float, a)) is: DO_VIEW(y) DO_VALUE(float, a) */
#define OP_EACH(prefix, ...)                                                                       \
    OP_EACH_OF(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)(prefix, __VA_ARGS__)
#define OP_EACH_OF(a, b, c, d, e, f, g, h, i, j, k, l, count, ...) OP_EACH_##count
#define OP_EACH_1(prefix, x) prefix##x
#define OP_EACH_2(prefix, x, ...) prefix##x OP_EACH_1(prefix, __VA_ARGS__)
#define OP_EACH_3(prefix, x, ...) prefix##x OP_EACH_2(prefix, __VA_ARGS__)
#define OP_EACH_4(prefix, x, ...) prefix##x OP_EACH_3(prefix, __VA_ARGS__)
#define OP_EACH_5(prefix, x, ...) prefix##x OP_EACH_4(prefix, __VA_ARGS__)
#define OP_EACH_6(prefix, x, ...) prefix##x OP_EACH_5(prefix, __VA_ARGS__)
#define OP_EACH_7(prefix, x, ...) prefix##x OP_EACH_6(prefix, __VA_ARGS__)
#define OP_EACH_8(prefix, x, ...) prefix##x OP_EACH_7(prefix, __VA_ARGS__)
#define OP_EACH_9(prefix, x, ...) prefix##x OP_EACH_8(prefix, __VA_ARGS__)
#define OP_EACH_10(prefix, x, ...) prefix##x OP_EACH_9(prefix, __VA_ARGS__)
#define OP_EACH_11(prefix, x, ...) prefix##x OP_EACH_10(prefix, __VA_ARGS__)
#define OP_EACH_12(prefix, x, ...) prefix##x OP_EACH_11(prefix, __VA_ARGS__)

#endif
