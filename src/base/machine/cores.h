/* The number of cores that this process may use. */
#ifndef SOTTO_BASE_MACHINE_CORES_H
#define SOTTO_BASE_MACHINE_CORES_H

#include "base/status.h"

/* Returns the cores that the calling thread may run on (taskset, cpusets, a launcher that
 * binds). */
int cores_bound(void);

/* Returns the cores' worth of time that control groups (version 1 or 2) allow to this process and
 * the other processes in the groups, rounded up; 0: no limit. `root` is put before /proc and /sys:
 * "", except in tests. */
int cores_quota(const char *root);

/* Returns the smaller of both, at least 1. */
int cores_allowed(const char *root);

/* Checks that `n` more threads can start at the same time. A limit on processes or memory may
 * forbid them, and OpenMP would then end the program without a usable message. */
enum sotto_status cores_try_threads(int n);

#endif
