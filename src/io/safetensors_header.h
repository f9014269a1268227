/* Checking a safetensors header: used by the reader only. */
#ifndef SOTTO_IO_SAFETENSORS_HEADER_H
#define SOTTO_IO_SAFETENSORS_HEADER_H

#include "io/safetensors.h"

/* Checks the file's bytes and makes an entry of each tensor; the caller frees `*entry`.
 * file->header is set, and owns the names. */
enum sotto_status safetensors_header_check(struct safetensors_file *file,
                                           struct safetensors_entry **entry, size_t *count);

#endif
