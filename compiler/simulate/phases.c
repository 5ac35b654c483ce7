/* phases.c: counts the slots that each phase of a plan uses.
 *
 * Requires: a checked plan.
 * Gives:    phases.h.
 * Source:   the phases are those of UPipe ("Untied Ulysses").
 */
#include "compiler/simulate/phases.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/instructions.h"

#include <string.h>

typedef struct counter {
    const fcp_plan *plan;
    fcp_pass pass;
    uint32_t rank, homes; /* homes: how many blocks are at home on the rank; their slots are the first ones */
    bool *seen[FCP_CLASSES];       /* [slot * (phases + 1) + phase]; the last column is for any phase */
    uint32_t *phase_of;            /* per range of heads: its phase on the rank; FCP_NONE: not yet */
    uint32_t slots, phases;        /* the most of a class; the most of a rank */
    uint64_t bytes[FCP_CLASSES];   /* of a slot */
    uint64_t (*held)[FCP_CLASSES]; /* bytes that the rank holds, per phase */
    uint64_t all;                  /* bytes that the rank holds in any phase */
    uint64_t named;                /* how often a slot was named */
} counter;

/* Counts a slot that is used in a phase, unless it is that of a block at home. */
static void count_slot(counter *c, fcp_class cls, uint32_t slot, uint32_t phase) {
    if (slot == FCP_NONE || slot >= c->slots || (cls != FCP_STATE && slot < c->homes)) return;
    c->named++;
    bool *seen = c->seen[cls] + (size_t)slot * (c->phases + 1);
    if (!seen[c->phases]) c->all += c->bytes[cls];
    if (!seen[phase]) c->held[phase][cls] += c->bytes[cls];
    seen[phase] = seen[c->phases] = true;
}

/* Counts the slot of a block's result. A rank that only merges what others have computed of a range of heads has no
 * phase for that range. */
static void count_result(counter *c, fcp_class cls, uint32_t slot, uint32_t block) {
    const uint32_t phase = c->phase_of[c->plan->blocks[block].heads];
    if (phase != FCP_NONE) count_slot(c, cls, slot, phase);
}

static void count_visit(counter *c, const fcp_visit *v, uint32_t phase) {
    const bool back = c->pass == FCP_BACKWARD;
    count_slot(c, FCP_Q, v->q_slot, phase);
    if (!back) count_slot(c, FCP_STATE, v->state_slot, phase);
    if (!back) count_slot(c, FCP_O, v->o_slot, phase);
    if (back) count_slot(c, FCP_DQ, v->dq_slot, phase);
    for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) {
        count_slot(c, FCP_KV, c->plan->tiles[t].kv_slot, phase);
        if (back) count_slot(c, FCP_DKV, c->plan->tiles[t].dkv_slot, phase);
    }
}

/* Counts all slots of the rank; returns how many phases it has. */
static uint32_t walk_rank(counter *c, sim_phases *out) {
    const fcp_plan *plan = c->plan;
    const fcp_stream *s = fcp_stream_of(plan, c->pass, c->rank, FCP_COMPUTE);
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &plan->instrs[s->first + i];
        if (x->op == FCP_OP_ROUND) count_result(c, FCP_DQW, x->c, x->a);
        if (x->op == FCP_OP_FINISH) count_result(c, FCP_O, fcp_finish_slot(plan, c->rank, x), x->a);
        for (uint32_t v = x->a; x->op == FCP_OP_ATTEND && v < x->a + x->b; v++) {
            uint32_t *phase = &c->phase_of[plan->blocks[plan->visits[v].q_block].heads];
            if (*phase == FCP_NONE) *phase = count++;
            sim_phase *p = &out->phase[*phase];
            const uint64_t named = c->named;
            count_visit(c, &plan->visits[v], *phase);
            if (c->named == named) continue;
            if (x->stage < p->first_stage) p->first_stage = x->stage;
            if (x->stage > p->last_stage) p->last_stage = x->stage;
        }
    }
    return count;
}

static void count_rank(counter *c, sim_phases *out) {
    memset(c->phase_of, 0xff, c->plan->heads_count * sizeof *c->phase_of);
    memset(c->held, 0, c->phases * sizeof *c->held);
    for (int cls = 0; cls < FCP_CLASSES; cls++) memset(c->seen[cls], 0, (size_t)c->slots * (c->phases + 1));
    c->all = 0;
    const uint32_t count = walk_rank(c, out);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int cls = 0; cls < FCP_CLASSES; cls++) sum += c->held[i][cls];
        if (sum <= out->phase[i].bytes) continue;
        out->phase[i].bytes = sum;
        memcpy(out->phase[i].of_class, c->held[i], sizeof c->held[i]);
    }
    if (count > out->count) out->count = count;
    if (c->all > out->peak) out->peak = c->all;
}

/* How many slots the class with the most slots has. */
static uint32_t most_slots(const fcp_plan *plan) {
    uint32_t most = 0;
    for (uint64_t i = 0; i < plan->transfers_count; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->cls != FCP_IN && t->cls != FCP_OUT && t->slot >= most) most = t->slot + 1;
    }
    for (const fcp_visit *v = plan->visits; v < plan->visits + plan->visits_count; v++) {
        if (v->state_slot != FCP_NONE && v->state_slot >= most) most = v->state_slot + 1;
        if (v->dq_slot != FCP_NONE && v->dq_slot >= most) most = v->dq_slot + 1;
    }
    return most;
}

fcp_code sim_phases_of(const fcp_plan *plan, fcp_pass pass, arena *memory, sim_phases *out) {
    const fcp_problem *p = plan->problem;
    counter c = {.plan = plan, .pass = pass, .slots = most_slots(plan), .phases = fcp_plan_ranges(plan)};
    *out = (sim_phases){.phase = ARENA_ZNEW(memory, sim_phase, c.phases)};
    c.phase_of = ARENA_NEW(memory, uint32_t, plan->heads_count);
    uint32_t *homes = ARENA_ZNEW(memory, uint32_t, p->ranks);
    c.held = arena_alloc(memory, c.phases, sizeof *c.held, _Alignof(uint64_t));
    if (!out->phase || !c.phase_of || !homes || !c.held) return FCP_E_NO_MEMORY;
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        const uint64_t tokens = cls == FCP_KV || cls == FCP_DKV ? p->max_block : p->max_q_block;
        c.bytes[cls] = tokens * fcp_slot_bytes(p, (fcp_class)cls, pass);
        if (!(c.seen[cls] = ARENA_NEW(memory, bool, (c.slots + (size_t)1) * (c.phases + (size_t)1))))
            return FCP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < c.phases; i++) out->phase[i].first_stage = FCP_NONE;
    for (uint64_t b = 0; b < plan->blocks_count; b++) homes[plan->blocks[b].home]++;
    for (uint32_t r = 0; r < p->ranks; r++) {
        c.rank = r;
        c.homes = homes[r];
        count_rank(&c, out);
    }
    return FCP_OK;
}

double sim_phase_part(uint32_t group, uint32_t phases, uint32_t group_of_all, double key) {
    return (1 + key / group) / phases / (1 + key / group_of_all);
}
