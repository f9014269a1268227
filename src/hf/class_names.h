/* The names of the classes of a model in a folder. */
#ifndef SOTTO_HF_CLASS_NAMES_H
#define SOTTO_HF_CLASS_NAMES_H

#include "base/status.h"

struct class_names {
    int n;       /* 0: classes have numbers only */
    char **name; /* (n); "": a class without a name */
};

enum sotto_status class_names_open(struct class_names *c, const char *folder, int classes);
void class_names_close(struct class_names *c);

/* Returns the class with this name, -1 if there is none. */
int class_names_find(const struct class_names *c, const char *name);

#endif
