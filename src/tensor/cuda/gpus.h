/* The GPUs of this machine, for reports and errors. */
#ifndef SOTTO_TENSOR_CUDA_GPUS_H
#define SOTTO_TENSOR_CUDA_GPUS_H

#include <stdbool.h>
#include <stddef.h>

/* End of a message that there is no GPU. */
#define GPUS_NONE_HELP "--device=cpu does without a GPU, also for a run that was begun on one"

int gpus_count(void); /* 0 without a driver, too */
bool gpus_describe(int i, char *text, size_t room);
bool gpus_usable(void); /* true if a device could be opened on this process's GPU */

#endif
