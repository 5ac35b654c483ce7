/* schedule_tuning.h: the constants of this room that trade one good against another.
 *
 * None of them can make a plan wrong: each only makes plans slower or faster, or planning dearer. Changing one changes
 * the bytes of plans, and so the golden files. "Tried" says what was measured; where nothing is said, the value has not
 * been compared with others.
 */
#ifndef FCPC_SCHEDULE_TUNING_H
#define FCPC_SCHEDULE_TUNING_H

enum {
    /* --- stages --------------------------------------------------------------------------------------------------- */

    /* Where units are given stages one by one (schedule.staged), a result leaves at most this many stages after the
     * last tile that added to it. More: results come home later. Fewer: a rank computes nothing while its launch waits
     * for what it has just computed. Tried: 1, with which the forward pass takes 5 % longer; 3, with which it takes up
     * to 3 % longer. */
    RESULT_DELAY = 2,
    /* How many stages follow the last arrival, where tiles run anywhere. Results travel in them, beside computing.
     * Tried: twice `buffers`. With eight buffers (fcp, blocks of 4K) wlbllm-64 then had many small launches, and took
     * 94 ms in place of 82. */
    STAGES_AFTER_ARRIVALS = 8,
    /* Where `divisions` are stated, nothing arrives in the last of them, at most one part in TAIL_PART: results travel
     * beside them. Tried on 36 shared lists and masks with tokens in place, 4, 8 and 16 divisions: with none, the
     * forward pass takes 6, 3 and 1 % longer than with stages as above; with a third 5, 0 and -3 %; with half of them
     * 5, 1 and -3 %. */
    TAIL_PART = 3,
    /* Where units are given stages one by one, a line carries at most this part of `coalesce` units in a stage. Larger
     * stages: what is passed on waits longer. Smaller ones: more stages, and so more launches. */
    STAGE_PART = 3,
    /* The divisions that are planned for where the program does not state them (dcp). */
    DIVISIONS_USUAL = 4,
    /* The `coalesce` that is assumed while `divisions` has not decided it yet. */
    ASSUMED_COALESCE = 16,
    /* The bytes of a stage over net, in halves of the mean: a line cannot be busy in every stage. */
    STAGE_BYTES_HALVES = 3,
    /* Where keys go along trees, the busiest line over net needs at least so many stages. Fewer: a block waits longer
     * before it is passed on. More: stages become smaller than what travels in them. */
    TREE_STAGES = 16,
    /* fewer_rounds.c. A stage with more busiest lines than BUSIEST_LINES keeps its rounds, because one of these lines
     * will have no result that can move. A partial result must come before the result into which it is merged leaves.
     * If it comes up to LATER_STAGES stages too late for that, the other result is moved to a later stage first. At
     * most MOVES_IN_A_ROW results move for each other's sake. */
    BUSIEST_LINES = 32,
    LATER_STAGES = 3,
    MOVES_IN_A_ROW = 2,

    /* --- ways ----------------------------------------------------------------------------------------------------- */

    /* traffic.c. Ways with relays replace direct ones if they save enough of the estimated time: trees of keys
     * (relays.c) one part in TREES_SAVE, ways that are found for all blocks together (routes.c) one part in
     * ROUTES_SAVE. Tried for the second: of 180 plans of cad and dcp (five real lists, three masks, ports of 1 to 100
     * GB/s) 15 save between a 50th and a 20th by the estimate; by the simulator these take from 18 % less to 8 % more,
     * and 6 % less in the mean. */
    TREES_SAVE = 20,
    ROUTES_SAVE = 50,
    /* ways.c. Of a pass's two times, moving and computing, the shorter one is hidden behind the longer, except for one
     * part in NOT_HIDDEN. Each relay in a row delays the block by a stage, of which one part in LEG_NOT_HIDDEN is not
     * hidden. Tried: with these values the estimate agreed best with the simulator, over 1,000 plans with and without
     * relays. */
    NOT_HIDDEN = 4,
    LEG_NOT_HIDDEN = 3,
    /* relays.c. Trees are looked at if the busiest sender has one part in so many more to send than the busiest
     * receiver has to receive. */
    SENDER_EXCESS = 8,
    /* routes.c. A rank that is DEPTH_MARGIN hops deeper than a binary tree over the nodes sends nothing on, because
     * every hop waits for the one before it. */
    DEPTH_MARGIN = 3,
    /* routes.c. Queries, whose results come back, choose their ways before keys. Keys should still find room at every
     * rank of their home's node. So a rank leaves part of its share of what the node sends over net free for keys.
     * Example: 16 GB of keys leave a node of 8 ranks, which are 2 GB for each rank. With 2 thirds, a rank leaves 1.3 GB
     * free, and fills only the rest of its share with queries of its own. Further queries it hands to a rank of its
     * node that sends less. More: keys leave by more ranks, evenly. Less: fewer queries need that hop inside the node.
     */
    SPARED_THIRDS = 2,

    /* --- colouring ------------------------------------------------------------------------------------------------ */

    /* colour_by_size.c: quality of the division by size against its cost. Sizes are told apart in SIZE_CLASSES classes.
     * A layer is divided up to DIVISIONS_DEEP times, so there are at most 16 layers. Each division must gain one part
     * in DIVISION_GAIN. It tries at most COLOUR_NUMBERS different numbers of colours, down to less than half of the
     * best, and searches for paths in at most PATH_PHASES phases. */
    SIZE_CLASSES = 8,
    DIVISIONS_DEEP = 4,
    DIVISION_GAIN = 100,
    COLOUR_NUMBERS = 13,
    PATH_PHASES = 8,
    /* euler.c: random walks before a breadth-first search takes their place. Each walk succeeds with a probability of
     * at least 1/2, and in practice of 0.98. */
    WALKS = 2,
    /* ports.c: how often all colours are looked at; it ends earlier when nothing changes. */
    PORT_SWEEPS = 8
};

/* near.c: about how long one more launch in a stage takes, in picoseconds. Tried: 0, with which examples/lambda.fcp,
 * whose ranks compute for 3 us, takes 0.57 ms in place of 0.50. */
#define LAUNCH_PICOSECONDS UINT64_C(20000000)
#endif
