/* What senders tell each other of a vector: the largest coefficients of each chunk or tile of it,
 * in a message for each section. One is as long for each sender:
 *
 *     values     of all coefficients: fp32, bf16, or their signs, two bits each
 *     indices    where in its tile each one is, in the fewest bits that count a tile; lists of
 *                tiles that follow one another and need as many bits share bytes
 *     zeros      to a multiple of four bytes
 *
 * The messages of all senders lie side by side, so that an all-gather is the exchange. */
#ifndef SOTTO_STRATEGY_DECOUPLED_CODEC_H
#define SOTTO_STRATEGY_DECOUPLED_CODEC_H

#include "strategy/decoupled/tiling.h"

enum codec_values { CODEC_F32, CODEC_BF16, CODEC_SIGNS };

struct codec {
    struct device *dev; /* not owned */
    struct cut cut;
    enum codec_values values;
    int senders;
    struct codec_list { /* of indices of as many bits */
        int bits;
        size_t first, count; /* among all that the section keeps */
        size_t at;           /* byte of its message            */
    } * list;
    struct codec_section {
        int first, n;        /* of the lists                                  */
        size_t bytes;        /* of a message                                  */
        size_t at;           /* byte of `message` where the first one begins  */
        size_t coefficients; /* of `index` and `value` where their first ones do */
    } * section;
    size_t bytes;          /* that a sender sends, of all sections                       */
    struct buffer basis;   /* matrices of the transform                                */
    struct buffer message; /* (sections, senders, bytes) uint8                           */
    struct buffer index;   /* (sections, senders, kept) int32                            */
    struct buffer value;   /* (sections, senders, kept) fp32, for signs; otherwise empty */
};

/* For what is owned of the table's vector, in sections (cut_make). */
enum sotto_status codec_init(struct codec *c, struct device *dev, const struct cut_rule *rule,
                             enum codec_values values, const struct table *table,
                             const struct owned *own, const int *section, int senders);
void codec_free(struct codec *c);

/* What is done to a vector before it is encoded or with what is decoded, block by block, while that
 * is in the caches: to the elements from `begin` to before `end`. Blocks leave out what is not
 * covered, and follow one another. */
typedef void codec_pass(void *arg, size_t begin, size_t end);

/* Message `sender` of section k from m (fp32), which loses what is kept: as it is sent, but where
 * only signs are sent. `before` (optional): to m. */
void codec_encode(struct codec *c, int k, int sender, struct view m, codec_pass *before, void *arg);

/* What is covered of the vector by section k from all its messages: each coefficient the mean over
 * its senders. y (fp32, codec_room elements) holds one block at a time, `take` has each of them. */
void codec_decode(struct codec *c, int k, struct view y, codec_pass *take, void *arg);
size_t codec_room(const struct codec *c); /* of the largest block */

/* All messages of a section, of c->section[k].bytes each. */
struct view codec_messages(const struct codec *c, int k);

/* Bytes of memory that they touch. */
double codec_encode_bytes(const struct codec *c, int k);
double codec_decode_bytes(const struct codec *c, int k);

#endif
