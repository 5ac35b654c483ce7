/* instructions.h: what each rank executes, and in which order: the records of rounds, streams, instructions and
 * transfers.
 */
#ifndef FCP_PLAN_INSTRUCTIONS_H
#define FCP_PLAN_INSTRUCTIONS_H
#include "runtime/plan/extract.h"

/* A round of a pass: transfers that are launched together. Every rank launches its share of the rounds in the order of
 * their numbers. `kind` says what a round moves:
 *   IN            inputs, in stage 0
 *   INDEPENDENT   KV and Q that leave home slots
 *   DEPENDENT     what the sender must first receive or compute; also KV and Q that leave home later (FORMAT.md). In a
 *                 stage these rounds come before the INDEPENDENT ones
 *   OUT           outputs. If all blocks of a unit are finished before the last stage, the unit moves during that stage
 *                 and has its number. Otherwise it has the number after the last stage */
typedef struct fcp_round {
    uint16_t kind, flags;
    uint32_t stage;
} fcp_round;
enum { FCP_ROUND_SECOND = 1 }; /* see HALVES */

typedef struct fcp_instr {
    uint32_t op : 8, stage : 24;
    uint32_t a, b, c;
} fcp_instr;

typedef struct fcp_stream {
    uint32_t first, count; /* instructions */
} fcp_stream;

/* One end of a transfer, as one rank sees it: the rank whose stream names it. `peer` is the other rank, and `dir` says
 * whether this rank sends.
 *
 * Of most classes a transfer moves one unit of a block: tokens [first, first + tokens).
 *   - `first` is a multiple of fcp_unit_tokens of the class and fabric. The transfer has that many tokens, or ends the
 *     block. The units of a block arrive in a slot in order.
 *   - `slot` is of the transfer's class. A receive of O or DQW names the home slot at the block's home, and a transient
 *     slot at a rank that only passes the result on.
 *
 * IN and OUT move one unit of a bundle: tokens [first, first + tokens) of the bundle.
 *   - `block` is FCP_NONE. `side` says which of the two bundles of a split plan it is; in other plans it is 0.
 *   - The caller's end (fcp_at_caller) of an IN sends, and that of an OUT receives. For a COPY the table has only the
 *     caller's end. */
typedef struct fcp_transfer {
    uint32_t peer : 24, cls : 4, fabric : 2, dir : 2;
    uint32_t block, first, tokens;
    union {
        uint32_t slot;
        uint32_t side; /* an fcp_side */
    };
} fcp_transfer;
/* Class, fabric and direction of a transfer in one number, cls | fabric << 4 | dir << 6, which is below FCP_WAYS if
 * the transfer is sound. It is one byte of the record (file.h: little-endian), so a loop over all transfers can look
 * up in one table what depends on the three. */
enum { FCP_WAYS = 96 };
static inline uint32_t fcp_way_of(const fcp_transfer *t) { return ((const uint8_t *)t)[3]; }
static inline bool fcp_at_caller(const fcp_transfer *t) {
    return t->cls == FCP_IN ? t->dir == FCP_SEND : t->cls == FCP_OUT && t->dir == FCP_RECV;
}

/* In an extract the streams of other ranks are empty. */
static inline const fcp_stream *fcp_stream_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue) {
    static const fcp_stream nothing;
    if (!p->extract) return &p->streams[((uint64_t)pass * p->problem->ranks + rank) * FCP_QUEUES + queue];
    return rank == p->extract->about->rank ? &p->streams[pass * FCP_QUEUES + queue] : &nothing;
}

/* The place of an instruction, for fcp_fail_at: `index` counts from 0 in that queue, which has that instruction. */
static inline fcp_where fcp_where_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue, uint32_t index) {
    const fcp_instr *x = &p->instrs[fcp_stream_of(p, pass, rank, queue)->first + index];
    return (fcp_where){.rank = rank, .pass = pass, .stage = x->stage, .queue = queue, .instruction = index};
}

/* How many instructions of the other queue a WAIT of `queue` asks for, of what these move over a fabric. */
static inline uint32_t fcp_waits_over(const fcp_instr *x, fcp_queue queue, fcp_fabric fabric) {
    return queue == FCP_COMPUTE && fabric == FCP_LOCAL ? x->b : x->a;
}
/* How many whole instructions a WAIT asks for: the larger of its two numbers. */
static inline uint32_t fcp_waits_whole(const fcp_instr *x) { return x->a > x->b ? x->a : x->b; }

/* Where work moves in two halves: the stage with which the second begins, which is the same in both passes. Else 0. */
static inline uint32_t fcp_second_stage(const fcp_plan *p) {
    for (uint64_t i = 0; i < p->rounds_count; i++)
        if (p->rounds[i].flags & FCP_ROUND_SECOND) return p->rounds[i].stage;
    return 0;
}
/* The O slot of a FINISH at a rank. */
static inline uint32_t fcp_finish_slot(const fcp_plan *p, uint32_t rank, const fcp_instr *x) {
    return p->blocks[x->a].home == rank ? p->blocks[x->a].home_slot : x->c;
}
/* Returns whether a transfer rounds what it moves, so that other bytes travel than lie in its slot (see WIRE). */
static inline bool fcp_is_rounded(const fcp_plan *p, const fcp_transfer *t) {
    return p->problem->wire == FCP_BF16 && fcp_is_partial((fcp_class)t->cls);
}
#endif
