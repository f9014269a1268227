/* The scores and the trie of a Unigram model (Kudo, "Subword regularization", 2018). */
#ifndef SOTTO_DATA_TOKENIZER_MODEL_UNIGRAM_H
#define SOTTO_DATA_TOKENIZER_MODEL_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unigram_edge; /* of the trie */

struct unigram {
    double *score;   /* (count) of each id */
    double *written; /* (count) the scores as in the file */
    uint32_t count;
    double unknown_score;      /* of a character without a piece */
    bool fallback;             /* byte_fallback */
    struct unigram_edge *edge; /* open addressing: (node, byte) -> node */
    uint32_t edge_mask, n_edge, n_node;
    uint32_t *piece; /* (n_node) id of the piece that ends at a node, BPE_NONE if none */
    uint32_t piece_room;
};

/* True if both are NULL, or have the same scores. */
bool unigram_same(const struct unigram *a, const struct unigram *b);

#endif
