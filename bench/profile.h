/* Time by op: a copy of a device's op table in which every entry is timed. For benches; one device
 * in a process. */
#ifndef SOTTO_BENCH_PROFILE_H
#define SOTTO_BENCH_PROFILE_H

#include <stdio.h>

#include "tensor/device.h"

void profile_start(struct device *dev);
void profile_reset(struct device *dev);
void profile_print(struct device *dev, int steps, FILE *out);

#endif
