/* What the model in a folder calls its classes. */
#ifndef SOTTO_HF_CLASS_NAMES_H
#define SOTTO_HF_CLASS_NAMES_H

#include "base/status.h"

struct class_names {
    int n;       /* 0: they have numbers only */
    char **name; /* (n); "": one without      */
};

enum sotto_status class_names_open(struct class_names *c, const char *folder, int classes);
void class_names_close(struct class_names *c);

/* The class of this name, -1: none. */
int class_names_find(const struct class_names *c, const char *name);

#endif
