/* problem_tuning.h: the constants of this room that trade one good against another.
 *
 * None of them can make a plan wrong. The first two groups change which plans are made, and so the golden files; the
 * last one only the time that planning takes. Where nothing is said of other values, none have been compared.
 */
#ifndef FCPC_PROBLEM_TUNING_H
#define FCPC_PROBLEM_TUNING_H

enum {
    /* --- blocks --------------------------------------------------------------------------------------------------- */

    /* cut_split.c: how many bins are open at a time. More: fuller bins, and more time to find the best. */
    OPEN_BINS = 64,
    /* cut_split.c: a bin takes at most one part in so many of a rank's mean work. More parts: ranks can be balanced
     * better, with more blocks. */
    BIN_WORK_PART = 8,
    /* first_holders.c: a sequence stays in zigzag if each of its ranks has at least so many tokens of it. Fewer: it
     * would be cut into crumbs. */
    ZIGZAG_LEAST = 256,

    /* --- division of blocks of which many ranks read a few rows (few_rows.c) -------------------------------------- */

    DIVISION_READERS = 4, /* a block with fewer readers is not divided */
    /* A division costs a block and a transfer in a round of its own. So it must save at least one part in
     * DIVISION_SAVES of the block's transfers, and at least DIVISION_LEAST tokens over all ranks. */
    DIVISION_SAVES = 3,
    DIVISION_LEAST = 1024,
    /* If more than one block in DIVIDED_PART would be divided, none is, unless the divisions save so much that at most
     * one part in TRAVEL_LEFT of all transfers remains. Tried without this limit: `sta2d` of examples/masks moves a
     * third more bytes, in 43 rounds in place of 24. */
    DIVIDED_PART = 4,
    TRAVEL_LEFT = 3,
    /* A block is divided into at most so many pieces; into fewer if there were more than MORE_PARTS times as many parts
     * as now. Up to FEW_PARTS parts do not matter. */
    DIVISION_PIECES = 8,
    MORE_PARTS = 4,
    FEW_PARTS = 1 << 16,

    /* --- planning time -------------------------------------------------------------------------------------------- */

    /* mask_time.c: the time of a mask that names heads is estimated by so many of its classes of heads. */
    CLASSES_ASKED = 8,
    /* tiles.c: two threads ask about a mask if there are at least PIECES_FOR_TWO pieces. They do not if memory for
     * PARTS_FOR_ONE parts or more has been taken, because for a while the parts that the second thread finds are kept
     * twice. How long asking takes is estimated by one sequence in SAMPLED_PART. */
    PIECES_FOR_TWO = 1 << 11,
    PARTS_FOR_ONE = 1 << 24,
    SAMPLED_PART = 16,
    /* tiles.c. If what the mask answered is kept for later plannings, a second thread is used from KEYS_FOR_TWO keys
     * on; with fewer, starting it takes as long as its work. To give each thread half, the cost of a sequence is
     * estimated: it is cut into n pieces of PIECE_KEYS keys, and costs n (n + ROW_COST). */
    KEYS_FOR_TWO = 1 << 18,
    PIECE_KEYS = 1 << 11,
    ROW_COST = 4,
    /* warn.c: pairs that are compared with their mirror image before the whole mask is; and different lengths up to
     * which it is. */
    SYMMETRY_SAMPLES = 64,
    SYMMETRY_LENGTHS = 64
};
#endif
