/* What a comparison leaves in its folder: table, expectations, figures. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_PAGE_H
#define SOTTO_TRAIN_COMPARE_SHOW_PAGE_H

#include "train/compare/setup.h"
#include "train/compare/show/common.h"

enum { PAGE_COLUMNS = 64 };

struct page {
    const struct jobs *jobs;
    struct results *results; /* page_write adds what comes of comparing them */
    char *const *columns;
    int n_columns;
    struct common common; /* by page_write, as are those below */
    char setup[SETUP_ROOM];
    int unmet; /* expectations that failed: page_write counts them */
};

/* Prints the table and the expectations to `out` and writes everything into the folder. Figures
 * that cannot be drawn are a warning. */
enum sotto_status page_write(struct page *page, FILE *out);

/* The columns that a comparison asks for, (n) words of `list`. An error where runs report no such
 * thing, or none that an expectation speaks of. */
enum sotto_status page_columns(const struct spec *spec, char list[COMPARE_LIST_ROOM],
                               char *columns[PAGE_COLUMNS], int *n);

#endif
