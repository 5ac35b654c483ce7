/* recurrent_steps.c: walks over a rank's steps in a network, and says where registers lie (recurrent_steps.h).
 *
 * Requires: a verified plan, so operands are in range.
 * Cost:     linear in the steps.
 */
#include "runtime/exec/recurrent_steps.h"

#include <stdio.h>

#include "runtime/base/saturate.h"
#include "runtime/plan/enum_names.h"

fcp_step_walk fcp_step_walk_begin(const fcp_plan *plan, uint32_t layer, fcp_pass pass, uint32_t rank) {
    const fcp_recurrent *x = &plan->recurrent[layer];
    const bool back = x->kind == FCP_HALO && pass == FCP_BACKWARD;
    const fcp_step_stream *stream = fcp_steps_of(plan, layer, back ? FCP_FORWARD : pass, rank);
    return (fcp_step_walk){.plan = plan,
                           .layer = x,
                           .steps = stream->count ? plan->steps + stream->first : NULL,
                           .count = stream->count,
                           .temporaries = stream->temporaries,
                           .back = back};
}

static bool moves(const fcp_step *step) { return step->op == FCP_STEP_SEND || step->op == FCP_STEP_RECV; }

bool fcp_step_walk_next(fcp_step_walk *w, fcp_act *out) {
    uint32_t count = 1;
    if (w->at >= w->count) return false;
    const fcp_step *edge = &w->steps[w->back ? w->count - 1 - w->at : w->at]; /* the act's first in the walk's order */
    while (moves(edge) && w->at + count < w->count) {
        const fcp_step *next = w->back ? edge - count : edge + count;
        if (!moves(next) || next->round != edge->round) break;
        count++;
    }
    w->at += count;
    *out = (fcp_act){w->back ? edge - (count - 1) : edge, count, moves(edge), w->back};
    return true;
}

const char *fcp_round_text(uint32_t round, char out[FCP_ROUND_TEXT]) {
    if (fcp_round_recurs(round))
        snprintf(out, FCP_ROUND_TEXT, "round %u of call %u about layers that recur", round & 0xfffff,
                 round >> 20 & 0x7ff);
    else snprintf(out, FCP_ROUND_TEXT, "round %u", round);
    return out;
}

int fcp_act_text(const fcp_step_walk *w, uint32_t rank, fcp_pass pass, const fcp_act *act, char *out, size_t size) {
    const bool halo = w->layer->kind == FCP_HALO;
    char round[32] = "";
    if (act && act->moves) snprintf(round, sizeof round, ", round %u", act->first->round);
    return snprintf(out, size, "rank %u, layer %u (%s), %s pass%s", rank, (uint32_t)(w->layer - w->plan->recurrent),
                    halo ? "halo" : "scan", fcp_pass_names[pass], round);
}

uint64_t fcp_halo_bytes(const fcp_recurrent *x, uint64_t tokens, uint32_t stretches, uint64_t numbers, size_t size) {
    const uint64_t halo = fcp_times(stretches, (uint64_t)x->before + x->after);
    return fcp_times(fcp_plus(tokens, halo), fcp_times(numbers, size));
}

uint64_t fcp_step_walk_most_rows(fcp_step_walk w) {
    uint64_t most = 0;
    for (fcp_act act; fcp_step_walk_next(&w, &act);) {
        uint64_t rows = 0;
        for (uint32_t i = 0; i < act.count && act.moves; i++)
            rows = fcp_plus(rows, fcp_step_rows(w.plan, &act.first[i]));
        if (rows > most) most = rows;
    }
    return most;
}

fcp_register fcp_register_of(const fcp_recurrent *x, uint32_t stretches, const fcp_scan_rank *t, float *temporaries,
                             uint32_t number, uint32_t part) {
    const uint64_t decays = fcp_part_decay(x), states = fcp_part_state(x);
    if (number < stretches) {
        const uint64_t place = (uint64_t)number * x->parts + part;
        return (fcp_register){(float *)t->decay + place * decays, (float *)t->state + place * states};
    }
    number -= stretches;
    if (number < stretches) return (fcp_register){NULL, t->entering + ((uint64_t)number * x->parts + part) * states};
    float *temporary = temporaries + (number - stretches) * (decays + states);
    return (fcp_register){temporary, temporary + decays};
}

uint32_t fcp_scan_segments(const fcp_recurrent *x, const fcp_step *step, const fcp_register *r,
                           fcp_segment out[FCP_SEGMENTS]) {
    const size_t decays = fcp_part_decay(x) * sizeof(float), states = fcp_part_state(x) * sizeof(float);
    if (!step->whole) {
        out[0] = (fcp_segment){r->state, states};
        return 1;
    }
    out[0] = (fcp_segment){r->decay, decays};
    out[1] = (fcp_segment){r->state, states};
    return 2;
}
