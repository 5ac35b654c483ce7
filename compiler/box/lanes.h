/* lanes.h: a program's values at many positions in a row: along one dimension, or all of a cell as bits. */
#ifndef FCPC_BOX_LANES_H
#define FCPC_BOX_LANES_H
#include "compiler/box/box.h"

enum { LANES = 128 };

typedef struct lanes lanes;

lanes *lanes_new(void); /* NULL: out of memory */
void lanes_free(lanes *l);
size_t lanes_bytes(const lanes *l);

/* Makes ready to evaluate node `root` of a program, which stays; false when out of memory. */
bool lanes_plan(lanes *l, const box_program *program, uint32_t root);
/* Its values at positions [from, from + count) of dimension d and, in the other dimensions, at at[]: wrapping, and 0
 * where something is not there. count <= LANES. NULL: it has an operation that is not known here. */
const int64_t *lanes_run(lanes *l, int d, int64_t from, uint32_t count, const int64_t at[BOX_DIMS]);

/* The number of allowed elements of a box of at most LANES x LANES and one head, whose program cannot fault. *out_known
 * is false, and nothing is counted, where the program has an integer of both q and k that is not a sum of one of each
 * (or its absolute value), or very large ones. False when out of memory. */
bool lanes_cell(lanes *l, const box_program *program, const box *b, uint64_t *out_pairs, bool *out_known);
#endif
