/* Memory and disk that this process may still take. */
#ifndef SOTTO_BASE_MACHINE_AVAILABLE_H
#define SOTTO_BASE_MACHINE_AVAILABLE_H

struct available {
    double bytes;   /* INFINITY: no limit is known       */
    const char *by; /* source of the limit, for messages */
};

/* Returns the smallest of three limits: the machine's free memory (page cache that can be dropped
 * counts as free), the memory left by the process's control groups (version 1 or 2), and the
 * address space left by its resource limit. `root` is put before /proc and /sys: "", except in
 * tests. */
struct available available_memory(const char *root);

/* Returns the free bytes of the disk that holds `path`, or would hold it if the file does not exist
 * yet. INFINITY if the file system does not report a size. */
struct available available_disk(const char *path);

/* Writes a size as text: "4.2 GB". */
void available_text(double bytes, char out[32]);

#endif
