/* How many cores this process may use. */
#ifndef SOTTO_BASE_MACHINE_CORES_H
#define SOTTO_BASE_MACHINE_CORES_H

#include "base/status.h"

/* Cores that the calling thread may run on (taskset, cpusets, a launcher that binds). */
int cores_bound(void);

/* Cores' worth of time that control groups (version 1 or 2) leave this process and all else that is
 * in them, rounded up; 0: as much as there is. `root` stands in front of /proc and /sys: "" but in
 * tests. */
int cores_quota(const char *root);

/* The lesser of both, >= 1. */
int cores_allowed(const char *root);

/* Whether so many threads can be started at once, for people who limit processes or memory: OpenMP
 * ends the program where they cannot. */
enum sotto_status cores_try_threads(int n);

#endif
