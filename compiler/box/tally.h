/* tally.h: counts the cells of a rectangle by classes of positions, for masks of data that has few values.
 *
 * An example is `r[q] == r[k]`, where r is 0 or 1 at random. No box of it is NONE or FULL, but all queries with r[q] ==
 * 0 see the same keys. They are a *class*. So the mask is evaluated once for each pair of classes, here four times. A
 * cell with 70 queries and 60 keys of class 0, and 58 and 68 of class 1, has 70 * 60 + 58 * 68 pairs. In `keep[q / 128,
 * k / 128]` all positions of a block are a class.
 */
#ifndef FCPC_BOX_TALLY_H
#define FCPC_BOX_TALLY_H
#include "compiler/box/box.h"

enum {
    TALLY_SIDE = 64,
    TALLY_CELL = 128
}; /* most cells on a side of a rectangle; most positions on a side of a cell */

typedef struct tally tally;

tally *tally_new(void); /* NULL: out of memory */
void tally_free(tally *t);
size_t tally_bytes(const tally *t); /* of NULL: 0 */

/* Is it worth trying, for a program specialised to box b? It is not if the arrays that the program reads have long runs
 * (array.h) there; the box is then better split where these begin. */
bool tally_fits(const box_program *program, const box *b);

/* The cells of one side of a rectangle: cell i has positions [at[i], at[i + 1]). */
typedef struct tally_cuts {
    int64_t at[TALLY_SIDE + 1];
    uint32_t count;
} tally_cuts;

/* Counts the allowed elements of each cell of box b, over the heads of the box, for a program that fits. q and k cut
 * its sides into cells. (*out_pairs)[i * k->count + j] is for row i of cells and column j, and is valid until the next
 * call. *out_pairs is NULL if there are too many classes. *out_work: about how many nanoseconds it took, computed and
 * not measured. `stop` is polled. Errors: FCP_E_NO_MEMORY, FCP_E_INTERRUPTED. */
fcp_code tally_cells(tally *t, const box_program *program, const box *b, const tally_cuts *q, const tally_cuts *k,
                     const volatile int *stop, const uint32_t **out_pairs, uint64_t *out_work);
#endif
