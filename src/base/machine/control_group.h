/* The control groups of this process (version 1 or 2), and the numbers in their files. */
#ifndef SOTTO_BASE_MACHINE_CONTROL_GROUP_H
#define SOTTO_BASE_MACHINE_CONTROL_GROUP_H

/* `folder`: the group's folder; `version`: 1 or 2. */
typedef void control_group_visitor(void *arg, const char *folder, int version);

/* Visits the groups that limit `controller` ("memory", "cpu") for this process, from the innermost
 * group outwards; each has a limit of its own. `root` is put before /proc and /sys: "", except in
 * tests. */
void control_group_each(const char *root, const char *controller, control_group_visitor *visit,
                        void *arg);

/* Reads at most `n` numbers that follow `key` in a file of "key number ..." lines; key "" reads the
 * file's first line. Returns their count: 0 if the file or key is missing, or the value is
 * "max". */
int control_file_numbers(const char *path, const char *key, int n, double *out);

/* Reads numbers of the file `file` in a group's folder, as control_file_numbers does. */
int control_group_numbers(const char *folder, const char *file, const char *key, int n,
                          double *out);

#endif
