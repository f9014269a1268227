/* Matrix products of many threads. */
#ifndef SOTTO_TENSOR_CPU_GEMM_MANY_H
#define SOTTO_TENSOR_CPU_GEMM_MANY_H

#include "tensor/cpu/gemm_part.h"

/* Runs on every thread of a large team. */
void gemm_work(const struct gemm_plan *plan);

#endif
