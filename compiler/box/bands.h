/* bands.h: unions of slices (MC_BANDS, see codegen/mask/code.h) in the abstract evaluator.
 *
 * Most masks ask for the bands at the positions themselves: is (q, k) in them? Such a node is a *leaf*. It has no
 * operands; f.c is the number of its bands, and f.x[0] and f.x[1] are the dimensions (BOX_Q or BOX_K) of its row and
 * its key. A leaf is answered for a whole box at once. A node with any other operands keeps them, and is evaluated
 * element by element.
 */
#ifndef FCPC_BOX_BANDS_H
#define FCPC_BOX_BANDS_H
#include "compiler/box/box.h"

/* Summaries of bands over many rows: keys that no row of them allows, keys that all of them allow. */
typedef struct bands_index bands_index;
/* Of `count` bands, borrowed. NULL: out of memory, or `stop` was set; programs do without it, only slower. */
bands_index *bands_index_new(const mc_bands *bands, uint32_t count, const volatile int *stop);
void bands_index_free(bands_index *index);
size_t bands_index_bytes(const bands_index *index);

/* Makes the program's node for node x of the mask, which reads bands. */
void box_bands_make(mc_code mask, const mc_node *x, box_node *out);
static inline bool box_bands_leaf(const box_node *x) { return x->op == MC_BANDS && x->a == MC_NONE; }
/* Is a program nothing but a leaf whose row and key are different dimensions? */
static inline bool box_bands_only(const box_program *p) {
    return p->count == 1 && box_bands_leaf(p->nodes) && p->nodes[0].f.x[0] != p->nodes[0].f.x[1];
}

/* Does a program read bands? Such are left to solve_rows.h and to the functions below. */
static inline bool box_reads_bands(const box_program *p) {
    for (uint32_t i = 0; p->bands && i < p->count; i++)
        if (p->nodes[i].op == MC_BANDS) return true;
    return false;
}

/* Evaluates a leaf on a box. If it is not decided, and a single straight edge of one band cuts the box, v becomes
 * linear: the form that is 0 or more on the allowed side of that edge. */
void box_bands_evaluate(const box_program *program, const box_node *x, const box *b, box_value *v);
/* Writes a leaf's words for box_key, at most 5; returns how many. If a single band meets the box, they are relative to
 * the corner of the box, so that other boxes may have the same words. */
size_t box_bands_key(const box_program *program, const box_node *x, const box *b, int64_t *out);
/* One row of a leaf: sets bit j if key b->lo[BOX_K] + j is allowed for query q. */
void box_bands_row(const box_program *program, const box_node *x, const box *b, int64_t q, uint64_t bits[2]);
/* How many pairs of one head a box has under a program that is box_bands_only. Its sides are at most 2^31. */
uint64_t box_bands_pairs(const box_program *program, const box *b);
#endif
