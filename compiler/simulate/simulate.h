/* simulate.h: how long a plan would take on its cluster, predicted from the plan's tables.
 *
 * A plan already says what every rank does and in which order. So nothing has to be searched: the time of each
 * instruction follows from the times of the instructions it waits for. simulate walks the plan once per pass and takes
 * maxima and sums.
 *
 * Example: rank 1 attends to a block that rank 0 sends. The send starts when both ranks have reached the round, ends
 * one latency and one block later, and then rank 1's ATTEND may start.
 *
 * Units: times are whole picoseconds, sizes bytes, rates bytes per second. Everything is integer arithmetic, so every
 * machine predicts the same.
 */
#ifndef FCPC_SIMULATE_SIMULATE_H
#define FCPC_SIMULATE_SIMULATE_H
#include "compiler/base/arena.h"
#include "compiler/simulate/margin.h"
#include "compiler/simulate/profile.h"

#define SIM_SECOND UINT64_C(1000000000000) /* picoseconds */

/* Why a rank does not compute: it waits for keys and values, for queries, for results and gradients on their way home,
 * or for the caller's layout. */
typedef enum sim_reason { SIM_KV, SIM_Q, SIM_RETURN, SIM_RESHUFFLE, SIM_REASONS } sim_reason;
extern const char *const sim_reason_names[SIM_REASONS]; /* "kv", "q", "return", "reshuffle" */

/* No plan with these tables can be faster on these wires and kernels than any of the bounds. With a network other than
 * ROUNDS and SHARED, ports are bounded by their bytes alone, and the chain of waits is not known: `path` is 0. */
typedef enum sim_bound {
    SIM_BOUND_MEAN,    /* all compute, spread evenly over the ranks */
    SIM_BOUND_COMPUTE, /* the compute of the busiest rank */
    SIM_BOUND_NET,     /* the busiest network port, in one direction */
    SIM_BOUND_LOCAL,   /* the busiest port inside a node, in one direction */
    SIM_BOUND_UPLINK,  /* the busiest node's share of an oversubscribed network */
    SIM_BOUND_PATH,    /* the longest chain of waits, if every port were always free */
    SIM_BOUNDS
} sim_bound;
extern const char *const sim_bound_names[SIM_BOUNDS]; /* "mean", "compute", "net", "local", "uplink", "path" */

/* The timeline: what each rank does when, as a list of intervals. A rank has three lanes. In one lane intervals follow
 * each other, but a rank sends and receives on a fabric at the same time.
 *
 * Example: rank 1's compute lane is {WAIT 0..140 us, cause: its LAUNCH of round 0, reason kv}, {WORK 140..900 us:
 * ATTEND}. Its net lane is {RECV 20..140 us, ready 3 us, peer 0}: it had come to the round at 3 us, and waited for rank
 * 0 until 20 us. */
typedef enum sim_lane { SIM_LANE_COMPUTE, SIM_LANE_NET, SIM_LANE_LOCAL, SIM_LANES } sim_lane;
extern const char *const sim_lane_names[SIM_LANES]; /* "compute", "net", "local" */
typedef enum sim_doing { SIM_WORK, SIM_WAIT, SIM_SEND, SIM_RECV } sim_doing;

typedef struct sim_interval {
    uint64_t start, end;      /* picoseconds from the pass's beginning; start < end */
    uint64_t ready; /* SEND, RECV: when this rank had come to its launch; until `start` it waited for its peer or a
                               * port. Else: start */
    uint64_t bytes;           /* SEND, RECV: on the wire. COPY: what is copied. Else 0 */
    uint32_t rank, pass;      /* pass: an fcp_pass */
    sim_lane lane;
    sim_doing doing;
    sim_reason reason;        /* WAIT: what for. SEND, RECV: what a compute queue that waits for it would wait for */
    uint32_t instr;           /* of plan->instrs: the COPY, DELTA, ATTEND, ..., the WAIT, or the LAUNCH on this rank */
    uint32_t cause;           /* WAIT: of the launches that it is for, the one that ended last. Else FCP_NONE */
    uint32_t transfer;        /* SEND, RECV: of plan->transfers, the sender's record at both ends. Else FCP_NONE */
    uint32_t peer;            /* SEND, RECV: the other rank. Else FCP_NONE */
    uint32_t stage;           /* of the instruction */
    uint32_t round;           /* SEND, RECV: counted from 0 in the pass. Else FCP_NONE */
    /* SEND, RECV, REDUCE, MERGE, ...: the block. ATTEND of one visit: its Q block. Else FCP_NONE */
    uint32_t block;
} sim_interval;

/* Is called with one interval after the other. Those of one rank and lane come in the order in which they begin. Waits
 * of the communication queue are not among them: `ready` shows them. */
typedef void sim_watch(void *context, const sim_interval *x);

typedef struct sim_rank {
    uint64_t compute;              /* time its compute queue works */
    uint64_t wait[SIM_REASONS];    /* the rest of the time until it ends: its compute queue waits, or has ended before
                                    * the last transfer. compute and all of wait add up to end */
    uint64_t end;                  /* when its last instruction ends */
    uint64_t busy[FCP_FABRICS][2]; /* time its ports are busy: [fabric][FCP_SEND or FCP_RECV] */
} sim_rank;

typedef struct sim_pass {
    uint64_t makespan;            /* when the last rank ends */
    uint64_t bound[SIM_BOUNDS];
    uint64_t compute;             /* of all ranks together */
    uint64_t exposed[SIM_REASONS];/* wait of the rank that ends last; its computing and these are the makespan */
    uint64_t bytes[FCP_FABRICS];  /* sent, the reshuffle included */
    double flops;                 /* of the allowed pairs */
    sim_rank *ranks;              /* one a rank; in the arena of the call */
} sim_pass;

/* How transfers meet. What a plan does is ROUNDS; the others say what its rounds are worth. */
typedef enum sim_network {
    SIM_NETWORK_ROUNDS, /* as planned: one send and one receive a round and fabric. Behind an oversubscribed uplink the
                         * transfers of a round share it evenly, and rounds are served in order */
    SIM_NETWORK_SHARED, /* the same, but what is in flight shares ports and uplinks max-min fairly */
    SIM_NETWORK_FLUID,  /* the same, and a rank begins all rounds of a stage at once */
    SIM_NETWORK_PULLS,  /* no rounds: a rank asks for one block after the other, in an order drawn from `seed`; who is
                         * asked serves one after the other, in the order of asking */
    SIM_NETWORKS
} sim_network;
extern const char *const sim_network_names[SIM_NETWORKS]; /* "rounds", "shared", "fluid", "pulls" */

/* What can be left out, to see what it is worth. */
enum {
    SIM_WITHOUT_OVERLAP =
        1, /* blocks come first, then all is computed, then gradients return; between layouts that come
                              * before everything else and go after it */
    SIM_WITHOUT_HIDING = 2, /* the caller's layout comes in before everything else and goes out after it */
    SIM_WITHOUT_FUSION = 4, /* each tile is a launch of its own */
    SIM_WITHOUT_COUNT = 3
};
extern const char *const sim_without_names[SIM_WITHOUT_COUNT]; /* "overlap", "hiding", "fusion" */

/* Memory that one call leaves to the next; zeros at first. */
typedef struct sim_room {
    arena scratch, walks;
} sim_room;
void sim_room_free(sim_room *room);

/* The cells of each shape, FULL and PARTIAL. Plans of one problem have the same shapes, and share them. */
typedef struct sim_cells {
    uint64_t full, partial;
} sim_cells;
typedef struct sim_counts {
    sim_cells *of; /* NULL: not counted yet */
    arena memory;
} sim_counts;
/* Counts, unless that has been done; false: no memory. */
bool sim_count_shapes(sim_counts *c, const fcp_shape_rec *shapes, uint64_t count, const fcp_run *runs);

typedef struct sim_options {
    uint32_t noise;       /* per mille: each kernel and transfer takes up to this much longer; 0: none */
    uint64_t seed;        /* of noise and of the order of pulls; the same seed draws the same */
    sim_network network;
    uint32_t without;     /* bits SIM_WITHOUT_*; without OVERLAP or HIDING, ROUNDS is SHARED */
    sim_watch *watch;     /* gets the timeline of both passes; NULL: none is made */
    void *context;        /* for watch */
    bool brief;           /* the makespan is enough: `path` is 0, and what wires are bounded by */
    sim_room *room;       /* of one thread; NULL: nothing is kept */
    sim_counts *counts;   /* of the plan's shapes; NULL: they are counted for this call */
    const volatile int *stop; /* asked once in some rounds (runtime/base/stop.h); NULL: nobody stops it */
} sim_options;

typedef struct sim_result {
    sim_pass pass[FCP_PASSES]; /* zeros for a pass that the plan does not have */
} sim_result;

/* Predicts both passes of a plan that has been verified. `profile` gives the kernels' constants, the plan's own CLUSTER
 * record the wires. What *out points to is in `memory`. Errors: FCP_E_NO_MEMORY, FCP_E_INTERNAL for a plan that cannot
 * proceed (none that was verified), FCP_E_INTERRUPTED.
 * Cost: linear in instructions, transfers, tiles and parts. */
fcp_code simulate(const fcp_plan *plan, const sim_profile *profile, const sim_options *options, arena *memory,
                  sim_result *out, fcp_error *err);

/* With which of the margins the plan is fastest: the least of those, by both passes together, as planned (no network
 * but ROUNDS, and nothing left out). *out: the prediction with it. What the plan itself states does not count.
 * Errors as simulate. Cost: two or three walks more than simulate in brief; counted on wlbllm-64 and prolong-256. */
fcp_code sim_choose_margin(const fcp_plan *plan, const sim_margins *margins, const sim_profile *profile,
                           const sim_options *options, arena *memory, sim_result *out, uint32_t *out_margin,
                           fcp_error *err);

/* What a compute queue waits for that waits for this launch, an index of plan->instrs. */
sim_reason sim_reason_of(const fcp_plan *plan, uint32_t launch);
/* Of the first `count` instructions of the communication queue that begins at `first`, an index of plan->instrs, the
 * last launch; `first` if there is none. */
uint32_t sim_last_launch(const fcp_plan *plan, uint32_t first, uint32_t count);
/* The block of an instruction, as sim_interval has it; of a LAUNCH FCP_NONE. */
uint32_t sim_block_of(const fcp_plan *plan, uint32_t instr);
/* The largest of a pass's bounds. */
uint64_t sim_largest_bound(const sim_pass *pass);
/* Model FLOPs per second over the ranks' peak. */
double sim_mfu(const fcp_plan *plan, const sim_pass *pass);
#endif
