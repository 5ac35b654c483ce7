/* partials.c: see partials.h.
 *
 * Requires: a verified plan, whose instructions are given in the order of the rank's queues. Cost: linear in an
 * instruction's tiles or transfers.
 */
#include "runtime/exec/partials.h"

#include <stdlib.h>
#include <string.h>

fcp_code fcp_partials_make(fcp_partials *p, uint32_t homes, uint32_t slots) {
    fcp_partials_free(p);
    *p = (fcp_partials){.homes = homes, .slots = slots, .held = calloc((size_t)slots + 1, 1)};
    return p->held ? FCP_OK : FCP_E_NO_MEMORY;
}

void fcp_partials_free(fcp_partials *p) {
    free(p->held);
    *p = (fcp_partials){0};
}

void fcp_partials_clear(fcp_partials *p) { memset(p->held, 0, p->slots); }

static bool is_empty(const fcp_partials *p, uint32_t slot) { return slot >= p->homes && !p->held[slot - p->homes]; }
static void set_held(fcp_partials *p, uint32_t slot, bool held) {
    if (slot >= p->homes) p->held[slot - p->homes] = held;
}

bool fcp_partials_next(fcp_partials *p, const fcp_plan *plan, const fcp_instr *attend, fcp_partials_walk *walk,
                       uint32_t *out_slot, uint32_t *out_tokens) {
    for (; walk->visit < attend->b; walk->visit++, walk->tile = 0) {
        const fcp_visit *v = &plan->visits[attend->a + walk->visit];
        while (walk->tile < v->tiles) {
            const fcp_tile *t = &plan->tiles[v->first_tile + walk->tile++];
            if (!is_empty(p, t->dkv_slot)) continue;
            set_held(p, t->dkv_slot, true);
            *out_slot = t->dkv_slot;
            *out_tokens = plan->blocks[t->k_block].tokens;
            return true;
        }
    }
    return false;
}

bool fcp_partials_reduce(fcp_partials *p, const fcp_instr *reduce) {
    bool first = is_empty(p, reduce->c);
    set_held(p, reduce->c, true);
    set_held(p, reduce->b, false);
    return first;
}

void fcp_partials_launched(fcp_partials *p, const fcp_plan *plan, const fcp_instr *launch) {
    for (uint32_t i = launch->a; i < launch->a + launch->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->cls != FCP_DKV) continue;
        if (t->dir == FCP_RECV) set_held(p, t->slot, true);
        else if (t->first + t->tokens == plan->blocks[t->block].tokens) set_held(p, t->slot, false);
    }
}
