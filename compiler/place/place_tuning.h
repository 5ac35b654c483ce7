/* place_tuning.h: the numbers by which placement trades the quality of plans for planning time, or one cost for
 * another.
 *
 * No plan is wrong with other numbers. Those that bound a search make plans better and planning slower when they are
 * larger. Where other values were tried, the comment says what came of it.
 */
#ifndef FCPC_PLACE_TUNING_H
#define FCPC_PLACE_TUNING_H

/* --- all strategies ----------------------------------------------------------------------------------------------- */

enum {
    /* Rounds to a stage of ring and zigzag where the program states none and keys do not go round a ring. */
    USUAL_COALESCE = 16,
    /* Kernels run at 4/7 of the cluster's FLOPs, which is about what profiles say of causal batches. */
    PLACE_FLOPS_PART = 4,
    PLACE_FLOPS_OF = 7,
    /* The largest weight of a token in a split plan: larger ones are more exact, but sums must stay below 2^40. */
    PLACE_WEIGHT_MOST = 64,
    /* Sweeps over all nodes of the search for ranks on rails, which mostly ends by itself after a few. */
    RAIL_SWEEPS = 16,
    /* Ranks with which a rank may exchange blocks to balance several masks. */
    MASKS_PARTNERS = 16,
};

/* --- fcp ---------------------------------------------------------------------------------------------------------- */

enum {
    /* fcp.c. A cluster of blocks is packed whole up to such a part of a rank's work and of its tokens: larger ones are
     * cut less often, but then do not fit. */
    PACK_WHOLE_WORK = 4, PACK_WHOLE_TOKENS = 2,
    /* Ranks that may take an item and are compared. */
    PACK_TRIES = 24,
    /* A block with less than such a part of a rank's work goes to the rank that sends least, and must leave it room. */
    PACK_LIGHT = 32,
    /* The room that a rank must keep free is the mean room left over a block, divided by this. */
    PACK_KEEP = 10,
    /* A repaired LPT is taken instead if its busiest rank has less by more than such a part of the limit. */
    PACK_LPT_GAIN = 1000,

    /* feasibility.c. Ranks looked at within a kind; kinds looked at on either side of the best one. */
    NEED_LOOKS = 4, NEED_NEAR = 2,
    /* Ranks over the limit that are compared where none has room for an item. */
    NEED_ANY_TRIES = 256,
    /* The parts of the spare room that light blocks are kept for: of all ranks together, and of each one besides. With
     * all of the spare room light blocks are kept for ranks that then leave their room empty. */
    NEED_SLACK = 2, NEED_SLACK_EACH = 8,

    /* repair.c. Partners in the first round, which double from round to round; rounds; exchanges of a rank in a
     * round. */
    REPAIR_PARTNERS = 8, REPAIR_ROUNDS = 9, REPAIR_STEPS = 8,
    /* The first round in which a partner may get over the limit, and the first in which two blocks change places with
     * two; partners for those. */
    REPAIR_LOOSE_ROUND = 3, REPAIR_PAIR_ROUND = 5, REPAIR_PAIR_PARTNERS = 16,
    /* Partners looked at in all: so many, and so many more for each rank. */
    REPAIR_LOOKS = 65536, REPAIR_LOOKS_EACH = 256,

    /* spread_senders.c. It stops where the busiest sender sends no more than the busiest receiver receives. To go on
     * was tried in four ways (exchanges inside nodes, a hundred times as many exchanges, exchanges that add transfers,
     * receivers that know of blocks with one reader): makespans were from 0.5 % shorter to 3.6 % longer. */
    SPREAD_ROUNDS = 4,
    SPREAD_BLOCKS = 8,    /* blocks of a busy sender that are tried */
    SPREAD_PARTNERS = 12, /* ranks that each is offered to */
    SPREAD_MEMBERS = 256, /* blocks of its cluster among whose ranks those are found */
    SPREAD_LOOKS = 4096, SPREAD_LOOKS_EACH = 64, /* partners looked at in all, as in repair.c */

    /* split_blocks.c. Blocks for each rank: with fewer there is nothing to top parts up with. */
    SPLIT_LEAST_BLOCKS = 4,
    /* Blocks stay whole if their parts would take longer by more than such a part of the time. Weighing is unfair to
     * parts (weigh_placement.c), so with a smaller margin blocks stay whole that should not. */
    SPLIT_MARGIN = 5,
};

/* --- cad ---------------------------------------------------------------------------------------------------------- */

enum {
    /* cad.c, in millionths. What small rooms that are left empty may add up to, of the slack of all ranks. */
    CAD_SKIP = 400000,
    /* What a node keeps back of its ranks' tolerance, so that they can leave their smallest rooms empty. */
    CAD_RESERVE = 250000,
    /* The most that a node should send, in millionths of what its wires carry while its ranks compute. Nodes with less
     * than twice their share of the work are left alone. Without this exception wikipedia-64 under `lambda` takes 17 %
     * longer: under a sparse mask all computing is short, so all wires look slow. */
    CAD_SENT = 550000,
    /* Rooms below such a part of a rank's tolerance are left empty. */
    CAD_CRUMB = 4,
    /* Nodes from which on a second thread is worth waking. */
    CAD_NODES = 8,

    /* random_restarts.c. Tries that may fail in a row: those of all nodes together, but so many in each. All tries
     * together save 2 % of all bytes on the shared lists; 3,000 in each node would save 3 %. */
    CAD_TRIES = 1024,
    CAD_PATIENCE_LEAST = 8,
    CAD_PATIENCE_MOST = 48,
    /* Tries of a node, as long as few enough of them fail. */
    CAD_TRIES_LEAST = 96,
    CAD_TRIES_MOST = 144,
    CAD_CHANGES = 24,    /* decisions that a try draws anew, at most */
    CAD_LOOKS = 1 << 15, /* shares and keys that are looked at for the prices of a node's tries */

    /* sweep.c. Parts of a strip, and attempts to cut it exactly before it shrinks by an eighth at a time. */
    CAD_PARTS = 64,
    CAD_EXACT_STEPS = 16,

    /* cad_cut.c. Sums in the tables of pairs, and for each rank where that is more: with fewer, runs are cut at coarser
     * steps, with which ranks cannot be filled to the tolerance: in test_cad.c, many_ranks_keep_the_tolerance, one
     * would have 1.72 times the mean's work. Keys are cut at steps so many times as large as rows. */
    CAD_TABLE_SUMS = 1 << 19,
    CAD_TABLE_SUMS_EACH = 1024,
    CAD_KEYS_TO_ROWS = 4,
};

/* --- dcp ---------------------------------------------------------------------------------------------------------- */

enum {
    /* dcp.c. The levels of coarsening; a level that contracts less than such a part of the vertices is left out. */
    DCP_LEVELS = 6,
    DCP_CONTRACTS = 5,

    /* initial_partition.c. Ranks that may get a strip together. */
    DCP_TOGETHER = 16,
    /* initial_given_homes.c. Rows that ranks of other nodes may take at a time. */
    DCP_GIVEN = 512,
    /* initial_by_nodes.c. What nodes use of the caps beyond the mean, in percent: with more, a node's part often does
     * not fit on its ranks. */
    DCP_NODE_SLACK = 60,

    /* coarsen_batch.c. The least number of tiles, such as 8 x 8, that each rank of a sequence has after blocks are
     * contracted. Finer tiles take four times as long, and what they could save is at the edge of a rank's patch. With
     * 64, causal prolong-64 is placed in 6.4 ms instead of 15.6, and 41.9 GB move instead of 47.8. */
    DCP_PATCH = 64,
    DCP_CONTRACT = 4, /* blocks that become one, at most */
    DCP_READERS = 4,  /* blocks are not contracted if one has more than so many times the readers of the other */

    /* refine.c. Passes over a hypergraph. If one saves less than such a part of the cost, no other follows. */
    DCP_PASSES = 6,
    DCP_ENOUGH = 64,
    DCP_PATIENCE = 10,  /* vertices that are looked at without a new best before an FM pass ends */
    DCP_WIDE = 48,      /* the pins of a larger net are not looked at again when one of them moves */
    DCP_EVICTIONS = 8,  /* vertices that leave a rank to make room for one */
    DCP_CANDIDATES = 4, /* vertices that are looked at before one of them leaves */
    DCP_ROOMY = 64,     /* ranks to which vertices may go that share nothing with them */
    DCP_LOOKS = 24,     /* ranks of nets that are looked at, for each vertex and pin */
    DCP_QUEUED = 8,     /* queue entries for each vertex: it enters anew each time that its gain changes */
};
#endif
