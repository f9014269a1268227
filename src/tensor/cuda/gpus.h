/* The GPUs of this machine, for people. */
#ifndef SOTTO_TENSOR_CUDA_GPUS_H
#define SOTTO_TENSOR_CUDA_GPUS_H

#include <stdbool.h>
#include <stddef.h>

/* Behind a message that there is none. */
#define GPUS_NONE_HELP "--device=cpu does without a GPU, also for a run that was begun on one"

int gpus_count(void); /* 0 also without a driver */
bool gpus_describe(int i, char *text, size_t room);
bool gpus_usable(void); /* the one that a device would be opened on */

#endif
