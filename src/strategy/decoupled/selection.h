/* Decoupled methods that exchange selected elements of the momentum: random and striding. All
 * groups select the same elements without a message. */
#ifndef SOTTO_STRATEGY_DECOUPLED_SELECTION_H
#define SOTTO_STRATEGY_DECOUPLED_SELECTION_H

#include "strategy/decoupled/decoupled.h"
#include "strategy/decoupled/value_exchange.h"
#include "tensor/ops.h"

struct selection {
    struct decoupled decoupled;
    struct value_exchange exchange; /* of the selected elements */
    struct picks all;               /* elements of the step */
    struct view index; /* list of the elements, or view_none for a regular stride; a list implies a
                          single section */
    struct picks now;  /* elements of the section in work */
    struct value_range range; /* values of the same */
    float mean;               /* factor that makes the values an average */
};

/* At most `most` elements a step; `each` as in decoupled_init. */
enum sotto_status selection_init(struct replicate *r, double each, size_t most);
void selection_free(struct replicate *r);

/* Makes a step that exchanges these elements: evenly spaced from picks.first on or, with stride 0,
 * the elements in the list `index`. */
enum sotto_status selection_step(struct selection *p, const struct plan *plan, double scale,
                                 struct picks picks, struct view index);

#endif
