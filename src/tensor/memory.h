/* Exact account of a worker's memory, by category. A worker's lanes share its account. */
#ifndef SOTTO_TENSOR_MEMORY_H
#define SOTTO_TENSOR_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

enum memory_category {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_COMMUNICATION,
    MEMORY_OUTER,
    MEMORY_ACTIVATIONS,
    MEMORY_SCRATCH,
    MEMORY_CHECKPOINT, /* while a checkpoint is written */
    MEMORY_CATEGORIES
};

struct memory {
    atomic_size_t now[MEMORY_CATEGORIES];  /* bytes */
    atomic_size_t peak[MEMORY_CATEGORIES]; /* highest value of each category */
    atomic_size_t total, total_peak;
};

const char *memory_category_name(enum memory_category category);
void memory_add(struct memory *memory, enum memory_category category, size_t bytes);
void memory_remove(struct memory *memory, enum memory_category category, size_t bytes);

/* Accounted host memory. memory_resize reallocates `data` (NULL: allocates) from `before` to
 * `after` bytes; NULL if there is too little memory, and `data` stays as it is. memory_give
 * frees. */
void *memory_resize(struct memory *memory, enum memory_category category, void *data, size_t before,
                    size_t after);
void memory_give(struct memory *memory, enum memory_category category, void *data, size_t bytes);

#endif
