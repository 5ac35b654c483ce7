/* fabrics.c: works out what transfers over one fabric must wait for in the other, if each fabric has a queue of its
 * own.
 *
 * A rank executes its rounds in order. In a single queue, a round over the slow net would delay the local rounds behind
 * it, and these would delay the next round over net. So on GPUs each fabric has a stream:
 *
 *   plan     round 0: net, local   round 1: local   round 2: net, local
 *   net      [0                 ][2                 ]
 *   local    [0 ][1 ]  [2 ]
 *
 * Within a fabric the order stays that of the plan. Between the fabrics order matters only where both touch one slot.
 * There one stream waits for an event of the other, in two cases:
 *   - a block that came over one fabric is sent on over the other;
 *   - a slot that was sent over one fabric is received into over the other.
 *
 * Waits between the queues:
 *   - A WAIT of the communication queue holds both streams back.
 *   - The compute queue waits for each of the two streams, as far as its WAIT says for that fabric.
 *
 * There is no new deadlock. In a single queue every transfer waits for all earlier ones, so it waits for all that the
 * streams wait for, and more. A plan that cannot deadlock with one stream therefore cannot with two.
 *
 * Requires: a verified plan.
 * Gives:    fabrics.h, to the runtime and to the simulator.
 * Cost:     linear in a rank's transfers and slots.
 */
#include "runtime/plan/fabrics.h"
#include "runtime/plan/instructions.h"

#include <stdlib.h>

/* For each fabric: the last instruction, counted from 1, that received into a slot over it, and that sent from it. */
typedef struct touched {
    uint32_t received[FCP_FABRICS], sent[FCP_FABRICS];
} touched;

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Returns whether the instruction moves blocks. IN and OUT move none: their tokens are in no slots. */
static bool moves_blocks(const fcp_plan *plan, fcp_pass pass, const fcp_instr *x) {
    if (x->op != FCP_OP_LAUNCH) return false;
    const uint32_t kind = plan->rounds[plan->round_starts[pass] + x->c].kind;
    return kind != FCP_ROUND_IN && kind != FCP_ROUND_OUT;
}

/* One launch: first what its transfers wait for, then what later ones must know of them. */
static void look_at(const fcp_plan *plan, const fcp_instr *x, uint32_t number, touched *const slots[FCP_CLASSES],
                    uint32_t *waits) {
    for (uint32_t i = x->a; i < x->a + x->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        const touched *s = &slots[t->cls][t->slot];
        const int other = t->fabric == FCP_NET ? FCP_LOCAL : FCP_NET;
        waits[t->fabric] = larger(waits[t->fabric], s->received[other]);
        if (t->dir == FCP_RECV) waits[t->fabric] = larger(waits[t->fabric], s->sent[other]);
    }
    for (uint32_t i = x->a; i < x->a + x->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        touched *s = &slots[t->cls][t->slot];
        *(t->dir == FCP_RECV ? &s->received[t->fabric] : &s->sent[t->fabric]) = number;
    }
}

/* Allocates the records of the slots that the queue touches, class by class. The caller frees what it returns; NULL:
 * out of memory. */
static touched *open_slots(const fcp_plan *plan, fcp_pass pass, const fcp_stream *stream,
                           touched *slots[FCP_CLASSES]) {
    size_t counts[FCP_CLASSES] = {0}, all = 0;
    for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        if (!moves_blocks(plan, pass, x)) continue;
        for (uint32_t n = x->a; n < x->a + x->b; n++) {
            const fcp_transfer *t = &plan->transfers[n];
            if (t->slot >= counts[t->cls]) counts[t->cls] = (size_t)t->slot + 1;
        }
    }
    for (int c = 0; c < FCP_CLASSES; c++) all += counts[c];
    touched *out = calloc(all + 1, sizeof *out);
    for (size_t c = 0, at = 0; out && c < FCP_CLASSES; at += counts[c++]) slots[c] = out + at;
    return out;
}

bool fcp_fabric_waits(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t (*out)[FCP_FABRICS]) {
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    touched *slots[FCP_CLASSES], *all = open_slots(plan, pass, stream, slots);
    uint32_t known[FCP_FABRICS] = {0};
    for (uint32_t i = 0; all && i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        for (int f = 0; f < FCP_FABRICS; f++) out[i][f] = 0;
        if (!moves_blocks(plan, pass, x)) continue;
        look_at(plan, x, i + 1, slots, out[i]);
        for (int f = 0; f < FCP_FABRICS; f++) {
            if (out[i][f] <= known[f]) out[i][f] = 0;
            known[f] = larger(known[f], out[i][f]);
        }
    }
    free(all);
    return all != NULL;
}
