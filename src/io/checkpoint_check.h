/* Checking that a checkpoint can be read. */
#ifndef SOTTO_IO_CHECKPOINT_CHECK_H
#define SOTTO_IO_CHECKPOINT_CHECK_H

#include "base/status.h"

/* fp32 parameters of a checkpoint with fewer bits in model.safetensors. */
#define CHECKPOINT_PARAMETERS "parameters.safetensors"

/* The names and sizes of a checkpoint's files. */
#define CHECKPOINT_LIST "files.txt"

/* Checks that the files of a checkpoint are there, no shorter than written, and of the right form,
 * with tensors of finite numbers. A checkpoint of an early version without a list of files is
 * checked without it. */
enum sotto_status checkpoint_check(const char *folder);

/* Writes the list of the files that are in the folder. */
enum sotto_status checkpoint_list(const char *folder);

#endif
