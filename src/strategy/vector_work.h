/* Work over whole vectors: steps, averages, copies. It takes time in a worker's or lane's line of
 * work: where time is modelled, the bytes that it reads and writes over the memory's bandwidth; a
 * device without data does nothing in the same time. What a method does between computing and
 * sending goes through here. */
#ifndef SOTTO_STRATEGY_VECTOR_WORK_H
#define SOTTO_STRATEGY_VECTOR_WORK_H

#include "strategy/mesh.h"
#include "tensor/device.h"

struct vector_pair;

struct work {
    struct mesh *mesh;
    struct lane *lane;  /* whose job it is; NULL: the worker's own line */
    struct device *dev; /* of that line                                 */
};

static inline struct work work_in(struct mesh *mesh, struct lane *lane)
{
    return (struct work){mesh, lane, lane ? lane->dev : mesh->dev};
}

/* `job` moves `bytes`. */
enum sotto_status work_run(const struct work *on, lane_job *job, void *arg, double bytes);

/* The device's flat ops (tensor/ops.h). */
enum sotto_status work_fill(const struct work *on, struct view y, size_t count, float value);
enum sotto_status work_copy(const struct work *on, struct view y, struct view x, size_t count);
enum sotto_status work_axpy(const struct work *on, struct view y, float a, struct view x,
                            size_t count);
enum sotto_status work_scale(const struct work *on, struct view y, float a, size_t count);
enum sotto_status work_sign(const struct work *on, struct view y, size_t count); /* in place */
/* The sum of |x|^2 over n vectors; |x - y|^2 of each of them. */
enum sotto_status work_sum_squares(const struct work *on, const struct vector_pair *p, int n,
                                   double *sum);
enum sotto_status work_distances(const struct work *on, const struct vector_pair *p, int n,
                                 double *each);

#endif
