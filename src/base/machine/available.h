/* How much memory and disk this process may still take. */
#ifndef SOTTO_BASE_MACHINE_AVAILABLE_H
#define SOTTO_BASE_MACHINE_AVAILABLE_H

struct available {
    double bytes;   /* infinite where nothing is known */
    const char *by; /* what sets this limit            */
};

/* The least of what the machine has free, of what the control groups of this process (version 1 or
 * 2) leave it, and of the limit on its address space. Page cache that can be dropped counts as
 * free. `root` stands in front of /proc and /sys: "" but in tests. */
struct available available_memory(const char *root);

/* What is free on the disk of a file or folder, which need not be there yet: then on the disk of
 * the folder that it would be in. Infinite where the file system does not tell. */
struct available available_disk(const char *path);

/* "4.2 GB" */
void available_text(double bytes, char out[32]);

#endif
