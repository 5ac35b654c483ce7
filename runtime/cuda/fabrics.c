/* fabrics.c: transfers over net beside those over local.
 *
 * A rank does its rounds in order. If they were in one stream, a round over the slow net would keep the local rounds
 * behind it waiting, and those the next over net. So each fabric has a stream:
 *
 *   plan     round 0: net, local   round 1: local   round 2: net, local
 *   net      [0                 ][2                 ]
 *   local    [0 ][1 ]  [2 ]
 *
 * Within a fabric the order stays that of the plan. Between fabrics only that order matters in which both touch one
 * slot: what came over net is passed on over local, or a slot that was sent over one is received into over the other.
 * There a stream waits for an event of the other. A WAIT of the queue holds both streams back, and who waits for an
 * instruction of the queue waits for both. So every wait is one that a single stream would have had, too, and a plan
 * that cannot deadlock with one cannot with two.
 *
 * Requires: a verified plan; arenas that are laid out.
 * Gives:    fabrics.h.
 * Cost:     linear in a rank's transfers and slots.
 */
#include "runtime/cuda/fabrics.h"

#include <stdlib.h>

#include "runtime/cuda/rounds.h"

/* For each fabric: the last instruction, counted from 1, that received into a slot over it, and that sent from it. */
typedef struct touched {
    uint32_t received[FCP_FABRICS], sent[FCP_FABRICS];
} touched;

bool fcp_cuda_two_fabrics(const fcp_plan *plan) {
    return plan->problem->gpus > 1 && plan->problem->ranks > plan->problem->gpus;
}

cu_stream fcp_cuda_fabric_stream(const cuda_rank *r, unsigned fabric) {
    return fabric == FCP_NET && r->streams[CUDA_NET] ? r->streams[CUDA_NET] : r->streams[FCP_COMM];
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

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

uint32_t *fcp_cuda_across(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_arena *arena) {
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    touched *slots[FCP_CLASSES];
    size_t at[FCP_CLASSES], count = 0;
    for (int c = 0; c < FCP_CLASSES; c++) {
        at[c] = count;
        count += arena->homes + arena->slots.count[c];
    }
    touched *all = calloc(count + 1, sizeof *all);
    uint32_t *out = calloc((size_t)stream->count * FCP_FABRICS + 1, sizeof *out), known[FCP_FABRICS] = {0};
    for (int c = 0; all && c < FCP_CLASSES; c++) slots[c] = all + at[c];
    for (uint32_t i = 0; all && out && i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        uint32_t *waits = out + (size_t)i * FCP_FABRICS;
        if (x->op != FCP_OP_LAUNCH || fcp_cuda_moved_by(plan, pass, x) != FCP_CLASSES) continue;
        look_at(plan, x, i + 1, slots, waits);
        for (int f = 0; f < FCP_FABRICS; f++) {
            if (waits[f] <= known[f]) waits[f] = 0;
            known[f] = larger(known[f], waits[f]);
        }
    }
    if (!all) {
        free(out);
        out = NULL;
    }
    free(all);
    return out;
}
