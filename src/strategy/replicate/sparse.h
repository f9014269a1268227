/* The average of vectors of which each group sends only the largest values: per tensor row the
 * (1-p) largest in magnitude. On the wire a block is a bit an element and the values that are not
 * 0, or all of them where that is less. Blocks go to the rank they belong to, which adds them up
 * and sends the sum to all others; in it are the values that any of them kept. Two ranks just send
 * each other what they have: a sum of two has the same bits on both.
 *
 * Values may travel as bf16: what is kept of a group's is rounded once, sums are made in fp32, and
 * a sum that is sent on is rounded, too, so that all have the same bits. */
#ifndef SOTTO_STRATEGY_REPLICATE_SPARSE_H
#define SOTTO_STRATEGY_REPLICATE_SPARSE_H

#include "strategy/vector_work.h"
#include "tensor/owned.h"

struct sparse {
    const struct table *table;
    const struct owned *own; /* what the vector is of it  */
    double prune;            /* share that is not sent    */
    enum dtype type;         /* of values on the wire     */
    size_t count;            /* of the own vector         */
    float *value;            /* (count) host              */
    float *row;              /* (longest row)             */
    void *out, *in;          /* messages: elements of `type`, the bits first */
    struct memory *memory;
    size_t bytes;   /* of all of them            */
    struct work on; /* the line that it is done in */
    struct {        /* what is packed or added     */
        struct comm_block block;
        size_t words; /* elements of `type` */
        bool dense;
    } now;
};

/* For vectors of on->dev and the groups of its mesh. On a device without data it has none either:
 * what is kept is counted, not chosen. */
enum sotto_status sparse_init(struct sparse *s, const struct work *on, const struct table *table,
                              const struct owned *own, double prune, enum dtype type);
/* For messages of the whole vector from one rank to another. */
enum sotto_status sparse_init_message(struct sparse *s, const struct work *on,
                                      const struct table *table, const struct owned *own,
                                      double prune, enum dtype type);
void sparse_free(struct sparse *s);

/* value <- value without its small entries, as it is rounded: what this group sends. */
enum sotto_status sparse_prune(struct sparse *s);

/* What `value` has as a message of `words` elements in s->out; and `value` as rank `from` has sent
 * it in a message of `words` elements, which is in s->in. */
enum sotto_status sparse_pack(struct sparse *s, size_t *words);
enum sotto_status sparse_unpack(struct sparse *s, size_t words, int from);

/* value <- the sum over the ranks of c of their pruned values. */
enum sotto_status sparse_sum(struct sparse *s, struct comm *c);

#endif
