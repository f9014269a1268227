/* The results of a comparison, printed and in files: table, expectations, figures. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_PAGE_H
#define SOTTO_TRAIN_COMPARE_SHOW_PAGE_H

#include "train/compare/setup.h"
#include "train/compare/show/common.h"

enum { PAGE_COLUMNS = 64 };

struct page {
    const struct jobs *jobs;
    struct results *results; /* page_write adds common_loss and time_to_loss */
    char *const *columns;
    int n_columns;
    struct common common; /* set by page_write, as are `setup` and `unmet` */
    char setup[SETUP_ROOM];
    int unmet; /* number of failed expectations */
};

/* Prints the table and the expectations to `out` and writes everything into the folder. Figures
 * that cannot be drawn are a warning. */
enum sotto_status page_write(struct page *page, FILE *out);

/* Returns the columns of the table, `n` words of `list`. Refuses unknown metrics in columns, curves
 * and expectations. */
enum sotto_status page_columns(const struct spec *spec, char list[COMPARE_LIST_ROOM],
                               char *columns[PAGE_COLUMNS], int *n);

#endif
