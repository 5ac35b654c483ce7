/* lanes.h: evaluates a program at up to 128 positions along one dimension at a time, as vector code does in its lanes;
 * and at all pairs of a cell, as rows of bits. */
#ifndef FCPC_BOX_LANES_H
#define FCPC_BOX_LANES_H
#include "compiler/box/box.h"

enum { LANES = 128 };

typedef struct lanes lanes;

lanes *lanes_new(void); /* NULL: out of memory */
void lanes_free(lanes *l);
size_t lanes_bytes(const lanes *l);

/* Prepares to evaluate node `root` of a program, which must live as long as lanes_run is called. False when out of
 * memory. */
bool lanes_plan(lanes *l, const box_program *program, uint32_t root);
/* The node's values at positions [from, from + count) of dimension d, in the total meaning (codegen/mask/code.h). The
 * other positions are those of at[]. count <= LANES. Returns NULL if the program has an operation that lanes.c does not
 * know. */
const int64_t *lanes_run(lanes *l, int d, int64_t from, uint32_t count, const int64_t at[BOX_DIMS]);

/* For callers that go from node to node themselves (tally.h): makes room for the lanes of all nodes of a program, which
 * lives as long as they are used. False when out of memory. */
bool lanes_begin(lanes *l, const box_program *program);
int64_t *lanes_of(lanes *l, uint32_t node); /* LANES values; behind them are those of the next node */
/* Computes a node's lanes from those of its operands, as lanes_run does. False: lanes.c does not know its operation. */
bool lanes_node(lanes *l, uint32_t node, int d, int64_t from, uint32_t count, const int64_t at[BOX_DIMS]);

/* Counts the allowed elements of a box of at most LANES x LANES and one head, whose program cannot fault. Every integer
 * of the program must be separable: the sum of a part that depends on q and a part that depends on k, such as doc[q] -
 * doc[k] + 3, or the absolute value of such a sum. If some integer is not, or is very large, *out_known is false and
 * nothing is counted. False when out of memory. */
bool lanes_cell(lanes *l, const box_program *program, const box *b, uint64_t *out_pairs, bool *out_known);
#endif
