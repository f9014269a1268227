/* Results as a table: one row per run, one column per metric; with several seeds mean +- standard
 * deviation. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_TABLE_H
#define SOTTO_TRAIN_COMPARE_SHOW_TABLE_H

#include <stdio.h>

#include "train/compare/results.h"

enum table_style { TABLE_PLAIN, TABLE_MARKDOWN, TABLE_CSV }; /* CSV: raw numbers, no units */

enum sotto_status table_print(const struct results *results, char *const *columns, int n_columns,
                              enum table_style style, FILE *out);

/* Prints one run and seed as "loss 3.4121, seconds 12.30 s", without the end of the line. */
void table_summary(const struct results *results, int run, int seed, char *const *columns,
                   int n_columns, FILE *out);

#endif
