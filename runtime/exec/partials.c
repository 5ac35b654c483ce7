/* partials.c: keeps track of which transient slots hold a partial result (partials.h).
 *
 * Requires: a verified plan, whose instructions are given in the order of the rank's queues.
 * Cost:     linear in an instruction's tiles or transfers.
 */
#include "runtime/exec/partials.h"

#include <stdlib.h>
#include <string.h>

static const fcp_class partial_classes[] = {FCP_STATE, FCP_DKV, FCP_DQ};
enum { PARTIAL_CLASSES = sizeof partial_classes / sizeof *partial_classes };

static size_t all_slots(const fcp_partials *p) {
    size_t count = 0;
    for (int i = 0; i < PARTIAL_CLASSES; i++) count += p->slots.count[partial_classes[i]];
    return count;
}

fcp_code fcp_partials_make(fcp_partials *p, uint32_t homes, const fcp_slots slots[FCP_PASSES]) {
    fcp_partials_free(p);
    p->homes = homes;
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (slots[pass].count[cls] > p->slots.count[cls]) p->slots.count[cls] = slots[pass].count[cls];
    uint8_t *at = calloc(all_slots(p) + 1, 1);
    for (int i = 0; at && i < PARTIAL_CLASSES; i++) {
        p->held[partial_classes[i]] = at;
        at += p->slots.count[partial_classes[i]];
    }
    return p->held[FCP_STATE] ? FCP_OK : FCP_E_NO_MEMORY;
}

void fcp_partials_free(fcp_partials *p) {
    free(p->held[FCP_STATE]);
    *p = (fcp_partials){0};
}

void fcp_partials_clear(fcp_partials *p) { memset(p->held[FCP_STATE], 0, all_slots(p)); }

/* Where it says whether a slot holds a sum. NULL: it is a home slot, which always does. */
static uint8_t *held(const fcp_partials *p, fcp_class cls, uint32_t slot) {
    uint32_t homes = cls == FCP_STATE ? 0 : p->homes;
    return slot >= homes ? &p->held[cls][slot - homes] : NULL;
}
/* Begins a sum in a slot, or goes on with it. True: the slot was empty. */
static bool begin(fcp_partials *p, fcp_class cls, uint32_t slot) {
    uint8_t *x = held(p, cls, slot);
    bool first = x && !*x;
    if (x) *x = 1;
    return first;
}
static void empty(fcp_partials *p, fcp_class cls, uint32_t slot) {
    uint8_t *x = held(p, cls, slot);
    if (x) *x = 0;
}

bool fcp_partials_next(fcp_partials *p, const fcp_plan *plan, const fcp_instr *attend, fcp_partials_walk *walk,
                       fcp_partial *out) {
    for (; walk->visit < attend->b; walk->visit++, walk->tile = 0) {
        const fcp_visit *v = &plan->visits[attend->a + walk->visit];
        while (walk->tile <= v->tiles) {
            uint32_t at = walk->tile++;
            const fcp_tile *t = at ? &plan->tiles[v->first_tile + at - 1] : NULL;
            *out = t ? (fcp_partial){FCP_DKV, t->dkv_slot, plan->blocks[t->k_block].tokens}
                     : (fcp_partial){FCP_DQ, v->dq_slot, plan->blocks[v->q_block].tokens};
            if (begin(p, out->cls, out->slot)) return true;
        }
    }
    return false;
}

void fcp_partials_attended(fcp_partials *p, const fcp_plan *plan, const fcp_instr *attend) {
    for (uint32_t i = attend->a; i < attend->a + attend->b; i++) {
        const fcp_visit *v = &plan->visits[i];
        if (v->state_slot == FCP_NONE) continue;
        if (v->flags & FCP_VISIT_LAST) empty(p, FCP_STATE, v->state_slot);
        else begin(p, FCP_STATE, v->state_slot);
    }
}

bool fcp_partials_reduce(fcp_partials *p, const fcp_instr *x) {
    bool first = begin(p, fcp_partial_class(x), x->c);
    empty(p, fcp_partial_class(x), x->b);
    return first;
}

void fcp_partials_finished(fcp_partials *p, const fcp_instr *x) {
    empty(p, x->op == FCP_OP_FINISH ? FCP_STATE : FCP_DQ, x->b);
}

void fcp_partials_launched(fcp_partials *p, const fcp_plan *plan, const fcp_instr *launch) {
    for (uint32_t i = launch->a; i < launch->a + launch->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->cls != FCP_STATE && t->cls != FCP_DKV && t->cls != FCP_DQ) continue;
        if (t->dir == FCP_RECV) begin(p, (fcp_class)t->cls, t->slot);
        else if (t->first + t->tokens == plan->blocks[t->block].tokens) empty(p, (fcp_class)t->cls, t->slot);
    }
}
