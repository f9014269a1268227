/* Messages of groups about a vector: the largest coefficients of every chunk or tile, one message
 * for each section. All senders' messages have the same length:
 *
 *     values     of all coefficients: fp32, bf16, or their signs, two bits each
 *     indices    place of each coefficient in its tile, in the fewest bits that count a tile;
 *                consecutive lists of tiles with indices of the same bits share bytes
 *     zeros      to a multiple of four bytes
 *
 * The messages of all senders are contiguous, so that an all-gather is the exchange. */
#ifndef SOTTO_STRATEGY_DECOUPLED_CODEC_H
#define SOTTO_STRATEGY_DECOUPLED_CODEC_H

#include "strategy/decoupled/tiling.h"

enum codec_values { CODEC_F32, CODEC_BF16, CODEC_SIGNS };

struct codec {
    struct device *dev; /* not owned */
    struct tiling_plan tiling;
    enum codec_values values;
    int senders;
    struct codec_list { /* consecutive indices of the same bits */
        int bits;
        size_t first, count; /* among all coefficients of the section */
        size_t at;           /* byte of the message */
    } * list;
    struct codec_section {
        int first, n;        /* of the lists */
        size_t bytes;        /* of a message */
        size_t at;           /* byte of `message` where the section's first message begins */
        size_t coefficients; /* element of `index` and `value` where the section begins */
    } * section;
    size_t bytes;          /* bytes of a sender's messages, of all sections */
    struct buffer basis;   /* matrices of the transform                                */
    struct buffer message; /* (sections, senders, bytes) uint8                           */
    struct buffer index;   /* (sections, senders, kept) int32                            */
    struct buffer value;   /* (sections, senders, kept) fp32, for signs; otherwise empty */
};

/* Prepares messages of the own part of the table's vector, in sections (tiling_make). `senders`:
 * number of groups. */
enum sotto_status codec_init(struct codec *c, struct device *dev, const struct tiling_rule *rule,
                             enum codec_values values, const struct table *table,
                             const struct owned *own, const int *section, int senders);
void codec_free(struct codec *c);

/* Work on elements [begin, end) of a vector, before they are encoded or after they are decoded,
 * block by block, while the block is in the caches. Blocks are in order and leave out elements that
 * no tile covers. */
typedef void codec_pass(void *arg, size_t begin, size_t end);

/* Encodes message `sender` of section k from m (fp32). Subtracts the kept coefficients from m, as
 * rounded in the message, but not rounded to signs. `before` (optional): work on m. */
void codec_encode(struct codec *c, int k, int sender, struct view m, codec_pass *before, void *arg);

/* Decodes section k: every coefficient is the mean of all senders' messages. y (fp32, codec_room
 * elements) has one block at a time, and `take` is called with each. */
void codec_decode(struct codec *c, int k, struct view y, codec_pass *take, void *arg);
size_t codec_room(const struct codec *c); /* elements of the largest block */

/* Returns all messages of a section, c->section[k].bytes each. */
struct view codec_messages(const struct codec *c, int k);

/* Return the bytes of memory that encoding and decoding move. */
double codec_encode_bytes(const struct codec *c, int k);
double codec_decode_bytes(const struct codec *c, int k);

#endif
