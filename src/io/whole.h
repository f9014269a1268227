/* Whether a checkpoint can be read. */
#ifndef SOTTO_IO_WHOLE_H
#define SOTTO_IO_WHOLE_H

#include "base/status.h"

/* The fp32 parameters of a checkpoint whose model.safetensors has them in fewer bits. */
#define CHECKPOINT_PARAMETERS "parameters.safetensors"

/* The names and sizes of a checkpoint's files. */
#define CHECKPOINT_LIST "files.txt"

/* Whether the checkpoint's files are there, no shorter than they were written, and of the form that
 * they should have, with tensors of numbers. One without a list of its files, from before there
 * were any, is checked as far as that goes. */
enum sotto_status checkpoint_check(const char *folder);

/* Writes the list of the files that are in the folder. */
enum sotto_status checkpoint_list(const char *folder);

#endif
