/* The kernels of the matrix unit, with its instructions in plain C. */
#define __AMX_BF16__ 1
#define __AMX_TILE__ 1
#define gemm_amx plain_amx
#define gemm_amx_half plain_amx_half

#include "tensor/cpu/gemm/amx.c"
