/* The sum of vectors of which each group sends only the largest values: in every tensor row the
 * (1-p) largest in magnitude. A block on the wire is one bit an element and the values that are not
 * 0, or all values if that is shorter. Every rank receives the messages for its own block, adds
 * them up, and sends the sum, with all values that any rank kept, to all other ranks. Two ranks
 * exchange whole vectors: a sum of two has the same bits on both.
 *
 * Values may be sent as bf16: kept values of a group are rounded once, sums are made in fp32, and a
 * sum is rounded again before it is sent, so that all ranks have the same bits. */
#ifndef SOTTO_STRATEGY_REPLICATE_SPARSE_H
#define SOTTO_STRATEGY_REPLICATE_SPARSE_H

#include "strategy/vector_work.h"
#include "tensor/owned.h"

struct sparse {
    const struct table *table;
    const struct owned *own; /* the vector's part of the table */
    double prune;            /* share of the values that is not sent */
    enum dtype type;         /* of values on the wire     */
    size_t count;            /* of the own vector         */
    float *value;            /* (count) host              */
    float *row;              /* (longest row)             */
    void *out, *in;          /* messages: elements of `type`, the bits first */
    struct memory *memory;
    size_t bytes;   /* bytes of all buffers */
    struct work on; /* the line of work for packing and adding */
    struct {        /* arguments of the job in progress */
        struct comm_block block;
        size_t words; /* elements of `type` */
        bool dense;
    } now;
};

/* Initializes for vectors of on->dev and the groups of its mesh. A device without data has no
 * buffers, and kept values are only counted. */
enum sotto_status sparse_init(struct sparse *s, const struct work *on, const struct table *table,
                              const struct owned *own, double prune, enum dtype type);
/* For messages of a whole vector between two ranks. */
enum sotto_status sparse_init_message(struct sparse *s, const struct work *on,
                                      const struct table *table, const struct owned *own,
                                      double prune, enum dtype type);
void sparse_free(struct sparse *s);

/* Sets small entries of `value` to 0 and rounds the others: the values that this group sends. */
enum sotto_status sparse_prune(struct sparse *s);

/* sparse_pack writes `value` to s->out, a message of `words` elements. sparse_unpack reads rank
 * `from`'s message of `words` elements in s->in into `value`. */
enum sotto_status sparse_pack(struct sparse *s, size_t *words);
enum sotto_status sparse_unpack(struct sparse *s, size_t words, int from);

/* value <- the sum over the ranks of c of their pruned values. */
enum sotto_status sparse_sum(struct sparse *s, struct comm *c);

#endif
