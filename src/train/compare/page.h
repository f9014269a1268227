/* What a comparison leaves in its folder: table, expectations, figures. */
#ifndef SOTTO_TRAIN_COMPARE_PAGE_H
#define SOTTO_TRAIN_COMPARE_PAGE_H

#include "train/compare/jobs.h"
#include "train/compare/results.h"

enum { PAGE_COLUMNS = 64 };

struct page {
    const struct jobs *jobs;
    const struct results *results;
    char *const *columns;
    int n_columns;
    int unmet; /* expectations that failed: page_write counts them */
};

/* Prints the table and the expectations to `out` and writes everything into the folder. Figures
 * that cannot be drawn are a warning. */
enum sotto_status page_write(struct page *page, FILE *out);

#endif
