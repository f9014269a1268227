/* A null device that counts: an op takes the scratch that the same op of another table takes, and
 * does nothing else. Sizes of runs are planned with such a device. */
#ifndef SOTTO_TENSOR_NULL_COUNTING_H
#define SOTTO_TENSOR_NULL_COUNTING_H

#include "tensor/ops.h"

struct counting {
    struct ops table;   /* of the counting device: null ops, and the optional ops of `like` */
    struct device like; /* the device whose ops are counted, open; its account is `unused` */
    struct device
        counter;          /* the device that its ops are called with: no memory, caller's account */
    struct memory unused; /* account of `like` */
};

/* Makes `dev` a counting device: no data, `place` as the place of its views, scratch paid for by
 * `memory`. The caller has opened c->like. device_close(dev) closes it and frees `c`. */
void counting_open(struct device *dev, struct counting *c, struct memory *memory, int threads,
                   enum place place);

#endif
