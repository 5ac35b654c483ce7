/* simulate.h: predicts how long a plan takes on its cluster, from the plan's tables.
 *
 * A plan already says what every rank does, and in which order. So there is nothing to search for: the time of each
 * instruction follows from the times of the instructions that it waits for. `simulate` walks over each pass of the plan
 * once, and computes maxima and sums.
 *
 * Example: rank 1 attends to a block that rank 0 sends. The send starts when both ranks have reached its round. It ends
 * after one latency plus the time of the block's bytes. Then rank 1's ATTEND may start.
 *
 * Units: times are whole picoseconds, sizes are bytes, rates are bytes per second. All arithmetic is on integers, so
 *        that every machine predicts the same.
 */
#ifndef FCPC_SIMULATE_SIMULATE_H
#define FCPC_SIMULATE_SIMULATE_H
#include "compiler/base/arena.h"
#include "compiler/simulate/margin.h"
#include "compiler/simulate/profile.h"

struct json;
#define SIM_SECOND UINT64_C(1000000000000) /* picoseconds */

/* Why a rank does not compute: it waits for keys and values, for queries, for results and gradients that return to
 * their home, or for the change between the caller's layout and the plan's. */
typedef enum sim_reason { SIM_KV, SIM_Q, SIM_RETURN, SIM_RESHUFFLE, SIM_REASONS } sim_reason;
extern const char *const sim_reason_names[SIM_REASONS]; /* "kv", "q", "return", "reshuffle" */

/* Lower bounds on the makespan: with these links and kernels, and with the tables of this plan, no plan is faster than
 * any of them. Some bounds follow from rounds, which only the networks ROUNDS and SHARED have. With other networks the
 * bounds of ports count bytes without latencies, and `path` is 0. */
typedef enum sim_bound {
    SIM_BOUND_MEAN,    /* all compute, spread evenly over the ranks */
    SIM_BOUND_COMPUTE, /* the compute of the busiest rank */
    SIM_BOUND_NET,     /* the busiest network port, in one direction */
    SIM_BOUND_LOCAL,   /* the busiest port inside a node, in one direction */
    SIM_BOUND_UPLINK,  /* the busiest node's share of an oversubscribed network */
    SIM_BOUND_PATH,    /* the critical path: the longest chain of waits, if every port were always free */
    SIM_BOUNDS
} sim_bound;
extern const char *const sim_bound_names[SIM_BOUNDS]; /* "mean", "compute", "net", "local", "uplink", "path" */

/* The timeline lists what each rank does when, as intervals. A rank has three lanes. The intervals of a lane do not
 * overlap, but for one exception: a rank may send and receive on a fabric at the same time.
 *
 * Example: rank 1's compute lane is {WAIT 0..140 us, cause: its LAUNCH of round 0, reason kv}, {WORK 140..900 us:
 * ATTEND}. Its net lane is {RECV 20..140 us, ready 3 us, peer 0}: it had reached the round at 3 us, and waited for rank
 * 0 until 20 us.
 */
typedef enum sim_lane { SIM_LANE_COMPUTE, SIM_LANE_NET, SIM_LANE_LOCAL, SIM_LANES } sim_lane;
extern const char *const sim_lane_names[SIM_LANES]; /* "compute", "net", "local" */
typedef enum sim_doing { SIM_WORK, SIM_WAIT, SIM_SEND, SIM_RECV } sim_doing;

typedef struct sim_interval {
    uint64_t start, end;      /* picoseconds from the pass's beginning; start < end */
    uint64_t ready;           /* SEND, RECV: when this rank reached its launch; from then to `start` it waited for its
                               * peer or a port. Else: start */
    uint64_t bytes;           /* SEND, RECV: on the wire. COPY: what is copied. Else 0 */
    uint32_t rank, pass;      /* pass: an fcp_pass */
    sim_lane lane;
    sim_doing doing;
    sim_reason reason;        /* WAIT: the reason. SEND, RECV: the reason of a compute queue that waits for it */
    uint32_t instr;           /* of plan->instrs: the COPY, DELTA, ATTEND, ..., the WAIT, or the LAUNCH on this rank */
    uint32_t cause;           /* WAIT: of the launches that it is for, the one that ended last. Else FCP_NONE */
    uint32_t transfer;        /* SEND, RECV: of plan->transfers, the sender's record at both ends. Else FCP_NONE */
    uint32_t peer;            /* SEND, RECV: the other rank. Else FCP_NONE */
    uint32_t stage;           /* of the instruction */
    uint32_t round;           /* SEND, RECV: counted from 0 in the pass. Else FCP_NONE */
    /* SEND, RECV, REDUCE, MERGE, ...: the block. ATTEND of one visit: its Q block. Else FCP_NONE */
    uint32_t block;
} sim_interval;

/* Is called with each interval. Those of one rank and lane come in the order in which they begin. There are no
 * intervals for the waits of a communication queue; `ready` shows these. */
typedef void sim_watch(void *context, const sim_interval *x);

typedef struct sim_rank {
    uint64_t compute;              /* time its compute queue works */
    uint64_t wait[SIM_REASONS];    /* its compute queue waits, or has ended before the last transfer. So
                                    * compute and all of wait add up to end */
    uint64_t end;                  /* when its last instruction ends */
    uint64_t busy[FCP_FABRICS][2]; /* time its ports are busy: [fabric][FCP_SEND or FCP_RECV] */
} sim_rank;

typedef struct sim_pass {
    uint64_t makespan;            /* when the last rank ends */
    uint64_t bound[SIM_BOUNDS];
    uint64_t compute;             /* of all ranks together */
    uint64_t exposed[SIM_REASONS];/* the last rank's waiting times: with its computing they add up to the makespan */
    uint64_t bytes[FCP_FABRICS];  /* sent, the reshuffle included */
    double flops;                 /* of the allowed pairs */
    /* The next two are 0, unless the options say what linear layers take. */
    uint64_t linear; /* the linear layers of the rank with most tokens */
    uint64_t layer;  /* one more layer, its linear layers and its attention, in a model of many (layer.c) */
    /* Of all layers that recur together, as often as the plan says; 0: it has none, or is not moved in rounds. They are in
     * no other figure. */
    uint64_t recurrent, recurrent_bytes[FCP_FABRICS];
    sim_rank *ranks;              /* one a rank; in the arena of the call */
} sim_pass;

/* How transfers share the network. ROUNDS is what a plan does; the others show what its rounds are worth. */
typedef enum sim_network {
    SIM_NETWORK_ROUNDS, /* as planned: one send and one receive in each round and fabric. Behind an oversubscribed
                         * uplink the transfers of a round share it evenly, and rounds are served in order */
    SIM_NETWORK_SHARED, /* as planned, but all transfers share ports and uplinks max-min fairly */
    SIM_NETWORK_FLUID,  /* as SHARED, but a rank begins all rounds of a stage at once */
    SIM_NETWORK_PULLS,  /* no rounds: a rank asks for one block after the other, in an order drawn from `seed`. The
                         * senders serve these requests one at a time, in the order of asking */
    SIM_NETWORKS
} sim_network;
extern const char *const sim_network_names[SIM_NETWORKS]; /* "rounds", "shared", "fluid", "pulls" */

/* Parts of a plan's order that can be left out, to see what they are worth. */
enum {
    SIM_WITHOUT_OVERLAP = 1, /* first all blocks move, then all is computed, then gradients return. What changes the
                              * caller's layout into the plan's comes before, and what changes it back comes after */
    SIM_WITHOUT_HIDING = 2,  /* the layout changes before everything else, and back after it */
    SIM_WITHOUT_FUSION = 4,  /* each tile is a launch of its own */
    SIM_WITHOUT_COUNT = 3
};
extern const char *const sim_without_names[SIM_WITHOUT_COUNT]; /* "overlap", "hiding", "fusion" */

/* Memory that calls reuse. It begins as zeros. */
typedef struct sim_room {
    arena scratch, walks;
} sim_room;
void sim_room_free(sim_room *room);

/* How many FULL and PARTIAL cells each shape has. Plans of one problem have the same shapes, so they can share the
 * counts. */
typedef struct sim_cells {
    uint64_t full, partial;
} sim_cells;
typedef struct sim_counts {
    sim_cells *of; /* NULL: not counted yet */
    arena memory;
} sim_counts;
/* Counts them, unless that has been done; false: no memory. */
bool sim_count_shapes(sim_counts *c, const fcp_shape_rec *shapes, uint64_t count, const fcp_run *runs);

typedef struct sim_options {
    uint32_t noise;       /* per mille: each kernel and transfer takes longer by a random amount up to this; 0: none */
    uint64_t seed;        /* of noise and of the order of pulls */
    sim_network network;
    /* FLUID, PULLS: a port at which n transfers meet loses incast * (n - 1) / n percent of its rate; below 100. Then who
     * is asked in PULLS serves all requests at once. 0: ports lose nothing, and in PULLS serve one request at a time */
    uint32_t incast;
    uint32_t without;     /* bits SIM_WITHOUT_*; without OVERLAP or HIDING, ROUNDS is SHARED */
    sim_watch *watch;     /* gets the timeline of both passes; NULL: none is made */
    void *context;        /* for watch */
    uint64_t linear[FCP_PASSES]; /* what a token takes in the linear layers between two attentions; 0: they are left
                                  * out. They are counted on the network ROUNDS, if nothing is left out */
    bool recurrent;       /* sim_choose_margin: layers that recur are predicted, too, as `simulate` always does */
    bool brief;           /* only the makespan is needed: `path`, and the bounds of ports and uplinks, are 0 */
    sim_room *room;       /* reusable memory, for one thread; NULL: nothing is kept */
    sim_counts *counts;   /* of the plan's shapes; NULL: they are counted for this call */
    const volatile int *stop; /* is looked at every few rounds (runtime/base/stop.h); NULL: nobody stops it */
} sim_options;

typedef struct sim_result {
    sim_pass pass[FCP_PASSES]; /* zeros for a pass that the plan does not have */
} sim_result;

/* Predicts both passes of a verified plan. The profile gives the constants of kernels, and the plan's CLUSTER record
 * the speed of links. What *out points to is in `memory`. Errors: FCP_E_NO_MEMORY; FCP_E_INTERNAL for a plan that
 * deadlocks, which no verified plan does; FCP_E_INTERRUPTED. Cost: linear in instructions, transfers, tiles and parts.
 */
fcp_code simulate(const fcp_plan *plan, const sim_profile *profile, const sim_options *options, arena *memory,
                  sim_result *out, fcp_error *err);

/* Finds the margin (the SMs that attention leaves to communication) with which the plan is fastest, both passes
 * together; the smallest of several that are equal. *out is the prediction with that margin. The margin that the plan
 * states is ignored. The options may not change the network nor leave anything out. Errors: as simulate. Cost: a
 * walk over the passes (simulate.c) for each margin that is tried: two or three on wlbllm-64 and prolong-256. */
fcp_code sim_choose_margin(const fcp_plan *plan, const sim_margins *margins, const sim_profile *profile,
                           const sim_options *options, arena *memory, sim_result *out, uint32_t *out_margin,
                           fcp_error *err);

/* The reason why a compute queue waits, if it waits for this launch, an index of plan->instrs. */
sim_reason sim_reason_of(const fcp_plan *plan, uint32_t launch);
/* The last launch among the first `count` instructions of the communication queue that begins at `first`, an index of
 * plan->instrs; `first` if there is none. */
uint32_t sim_last_launch(const fcp_plan *plan, uint32_t first, uint32_t count);
/* The block of an instruction, as sim_interval has it; of a LAUNCH FCP_NONE. */
uint32_t sim_block_of(const fcp_plan *plan, uint32_t instr);
/* These add members to an open JSON object (sim_json.c).
 *   sim_pass_json   makespan, bounds, waiting and bytes of a pass; x->ranks is not read. `largest` is the largest
 *                   bound, or the sum of those of several passes
 *   sim_ranks_json  the member `per_rank`, with what each rank does */
void sim_pass_json(struct json *j, const sim_pass *x, uint64_t largest, double mfu);
void sim_ranks_json(struct json *j, const sim_pass *x, uint32_t ranks);

/* The largest of a pass's bounds. */
uint64_t sim_largest_bound(const sim_pass *pass);
/* Model FLOPs per second over the ranks' peak. */
double sim_mfu(const fcp_plan *plan, const sim_pass *pass);
#endif
