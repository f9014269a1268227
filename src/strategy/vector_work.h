/* Work over whole vectors: steps, averages, copies. It takes time in the line of work of a worker
 * or lane: in modelled time, the bytes read and written over the memory's bandwidth; a device
 * without data does nothing in the same time. All work of a method between computing and sending
 * uses these functions. */
#ifndef SOTTO_STRATEGY_VECTOR_WORK_H
#define SOTTO_STRATEGY_VECTOR_WORK_H

#include "strategy/mesh.h"
#include "tensor/device.h"

struct vector_pair;

struct work {
    struct mesh *mesh;
    struct lane *lane;  /* the job's lane; NULL: the worker's own line */
    struct device *dev; /* of the same line */
};

static inline struct work work_in(struct mesh *mesh, struct lane *lane)
{
    return (struct work){mesh, lane, lane ? lane->dev : mesh->dev};
}

/* Runs `job`, which reads and writes `bytes`. */
enum sotto_status work_run(const struct work *on, lane_job *job, void *arg, double bytes);

/* Ops of the device (tensor/ops.h). */
enum sotto_status work_fill(const struct work *on, struct view y, size_t count, float value);
enum sotto_status work_copy(const struct work *on, struct view y, struct view x, size_t count);
enum sotto_status work_axpy(const struct work *on, struct view y, float a, struct view x,
                            size_t count);
enum sotto_status work_scale(const struct work *on, struct view y, float a, size_t count);
enum sotto_status work_sign(const struct work *on, struct view y, size_t count); /* in place */
/* The sum of |x|^2 over n vectors; |x - y|^2 of each pair. */
enum sotto_status work_sum_squares(const struct work *on, const struct vector_pair *p, int n,
                                   double *sum);
enum sotto_status work_distances(const struct work *on, const struct vector_pair *p, int n,
                                 double *each);

#endif
