/* The control groups of this process (version 1 or 2), and what their files say. */
#ifndef SOTTO_BASE_MACHINE_CONTROL_GROUP_H
#define SOTTO_BASE_MACHINE_CONTROL_GROUP_H

/* `folder` has the group's files; `version` 1 or 2. */
typedef void control_group_visitor(void *arg, const char *folder, int version);

/* Visits the groups that limit `controller` ("memory", "cpu") for this process, and those that
 * they are in, from the inside out: each has a limit of its own. `root` stands in front of /proc
 * and /sys: "" but in tests. */
void control_group_each(const char *root, const char *controller, control_group_visitor *visit,
                        void *arg);

/* How many numbers, of at most `n`, stand behind `key` in a file of "key number ..." lines; key ""
 * is the file's first line. 0: there are none, or "max" stands there. */
int control_file_numbers(const char *path, const char *key, int n, double *out);

/* The same of a group's file. */
int control_group_numbers(const char *folder, const char *file, const char *key, int n,
                          double *out);

#endif
