/* The GPUs of this machine, for reports and errors. */
#ifndef SOTTO_TENSOR_CUDA_GPUS_H
#define SOTTO_TENSOR_CUDA_GPUS_H

#include <stdbool.h>
#include <stddef.h>

/* End of a message that there is no GPU. */
#define GPUS_NONE_HELP "--device=cpu needs no GPU, and continues a run that began on a GPU"

int gpus_count(void); /* 0 without a driver, too */
bool gpus_describe(int i, char *text, size_t room);
bool gpus_usable(void); /* true if a device could be opened on this process's GPU */

#endif
