/* How much memory this process may still take. */
#ifndef SOTTO_BASE_AVAILABLE_H
#define SOTTO_BASE_AVAILABLE_H

struct available {
    double bytes;   /* infinite where nothing is known */
    const char *by; /* what sets this limit            */
};

/* The least of what the machine has free, of what the control groups of this process (version 1 or
 * 2) leave it, and of the limit on its address space. Page cache that can be dropped counts as
 * free. `root` stands in front of /proc and /sys: "" but in tests. */
struct available available_memory(const char *root);

#endif
