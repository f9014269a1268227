/* Curves as figures: data (TSV), gnuplot scripts, and gnuplot's PNG and SVG, all in one folder, so
 * that a figure can be restyled by hand. */
#ifndef SOTTO_TRAIN_COMPARE_SHOW_PLOT_H
#define SOTTO_TRAIN_COMPARE_SHOW_PLOT_H

#include "train/compare/show/curve.h"

struct plot {
    const char *folder, *title;
    const char *subtitle;       /* "": none */
    const char *metric;         /* as in metrics.jsonl */
    const char *const *names;   /* (n) */
    const struct curve *curves; /* (n) */
    int n;
    bool draw; /* false: data and scripts only */
};

/* Draws the metric over each logged axis (rounds, samples, time, bytes sent) and adds links to the
 * figures to the Markdown page. SOTTO_EIO with `draw`: gnuplot is not installed or failed, after
 * data and scripts were written. */
enum sotto_status plot_metric(const struct plot *p, FILE *page);

#endif
