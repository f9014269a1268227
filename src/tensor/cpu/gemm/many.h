/* Matrix products of many threads. */
#ifndef SOTTO_TENSOR_CPU_GEMM_MANY_H
#define SOTTO_TENSOR_CPU_GEMM_MANY_H

#include "tensor/cpu/gemm/part.h"

/* Runs on every thread of a large team. */
void gemm_work(const struct gemm_plan *plan);
/* Runs on every thread of a large team and computes two products at once, each cut for a share of
 * the team. Less is packed than if all threads worked on the first product and then on the second,
 * and no thread waits between them. */
void gemm_work_both(const struct gemm_plan *one, const struct gemm_plan *other);

#endif
