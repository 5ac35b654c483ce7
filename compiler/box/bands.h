/* bands.h: unions of slices (MC_BANDS) in the abstract evaluator: on boxes, along rows, in closed form.
 *
 * A bands node of a program whose operands are positions is a leaf: no operands, f.c the number of the bands, f.x[0]
 * and f.x[1] the dimensions (BOX_Q, BOX_K) that are row and key. Any other keeps its operands and is tried element by
 * element.
 */
#ifndef FCPC_BOX_BANDS_H
#define FCPC_BOX_BANDS_H
#include "compiler/box/box.h"

/* Summaries of bands over many rows: which keys some row of them allows, which all do. */
typedef struct bands_index bands_index;
/* Of `count` bands, borrowed. NULL: out of memory, or `stop` was set; programs do without it, only slower. */
bands_index *bands_index_new(const mc_bands *bands, uint32_t count, const volatile int *stop);
void bands_index_free(bands_index *index);
size_t bands_index_bytes(const bands_index *index);

/* The program's node for mask node x. */
void box_bands_make(mc_code mask, const mc_node *x, box_node *out);
static inline bool box_bands_leaf(const box_node *x) { return x->op == MC_BANDS && x->a == MC_NONE; }
/* Is a program nothing but a leaf whose row and key are different dimensions? */
static inline bool box_bands_only(const box_program *p) {
    return p->count == 1 && box_bands_leaf(p->nodes) && p->nodes[0].f.x[0] != p->nodes[0].f.x[1];
}

/* Has a program a leaf? Such are left to rows and to the functions below. */
static inline bool box_reads_bands(const box_program *p) {
    for (uint32_t i = 0; p->bands && i < p->count; i++)
        if (p->nodes[i].op == MC_BANDS) return true;
    return false;
}

/* Evaluates a leaf on a box: decides v, or finds the one line that cuts the box and makes v linear. */
void box_bands_evaluate(const box_program *program, const box_node *x, const box *b, box_value *v);
/* A leaf's words in a key, at most 5; returns how many. Relative to the box's corner where one band is left of it. */
size_t box_bands_key(const box_program *program, const box_node *x, const box *b, int64_t *out);
/* A leaf for one q over keys b->lo[BOX_K] ...: sets the bits of those that are allowed. */
void box_bands_row(const box_program *program, const box_node *x, const box *b, int64_t q, uint64_t bits[2]);
/* The allowed elements of a box (of at most 2^31 a side) of one head, under a program that is box_bands_only. */
uint64_t box_bands_pairs(const box_program *program, const box *b);
#endif
