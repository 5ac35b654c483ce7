/* recurrent_walk.c: the time of halos and scans, step by step.
 *
 * As for attention (round_walk.c) no event queue is needed: ranks do their rounds in order, so the times of a round
 * follow from those of the rounds before it. A message begins when both ranks have come to its round, and takes the
 * fabric's latency and its bytes at the rate of its wire. A combination, a copy, and packing or unpacking rows of a
 * halo take a small launch and their bytes over the memory's bandwidth.
 *
 * Requires: a verified plan.
 * Assumed:  all ranks begin at once. Messages between nodes do not share an uplink, and leave no rail.
 * Cost:     linear in steps and ranks.
 */
#include "compiler/simulate/recurrent_walk.h"

#include "runtime/base/saturate.h"

void sim_recurrent_model(const fcp_plan *plan, const sim_profile *profile, fcp_pass pass, sim_model *out) {
    sim_model_device(plan->problem, plan->cluster, pass, profile, out);
    out->plan = plan;
}

uint64_t sim_recurrent_message(const sim_model *m, fcp_fabric fabric, uint64_t bytes) {
    return fcp_plus(m->latency[fabric], sim_model_time(bytes, m->rate[fabric]));
}
uint64_t sim_recurrent_step(const sim_model *m, uint64_t bytes) {
    return fcp_plus(m->small, sim_model_time(bytes, m->hbm));
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes of a message, of its rows or of its part of the heads. */
static uint64_t bytes_of(const sim_model *m, const fcp_recurrent *layer, const fcp_step *x) {
    if (layer->kind == FCP_SCAN) return fcp_step_bytes(layer, x);
    return fcp_times(fcp_step_rows(m->plan, x),
                     layer->channels * (uint64_t)fcp_dtype_size((fcp_dtype)m->plan->problem->dtype));
}

/* A step that sends nothing: it reads what it combines and writes the result. */
static uint64_t own_step(const sim_model *m, const fcp_recurrent *layer, const fcp_step *x) {
    uint64_t bytes = 0;
    if (layer->kind == FCP_SCAN) {
        const fcp_step whole = {.whole = 1};
        bytes = 2 * fcp_step_bytes(layer, x) + (x->op == FCP_STEP_COMBINE ? fcp_step_bytes(layer, &whole) : 0);
    } else {
        const fcp_step rows = {.a = x->a, .b = 1};
        bytes = 2 * bytes_of(m, layer, &rows);
    }
    return sim_recurrent_step(m, bytes);
}

typedef struct cursor {
    uint32_t next; /* step */
    uint64_t time; /* when the rank comes to it */
    uint64_t end;  /* of the round under way */
} cursor;
typedef struct sending {
    uint32_t rank, step;
} sending;

/* Takes a rank's own steps up to its next message. */
static void go_on(const sim_model *m, const fcp_recurrent *layer, const fcp_step_stream *s, cursor *c) {
    for (; c->next < s->count; c->next++) {
        const fcp_step *x = &m->plan->steps[s->first + c->next];
        if (x->op == FCP_STEP_SEND || x->op == FCP_STEP_RECV) break;
        c->time = fcp_plus(c->time, own_step(m, layer, x));
    }
    c->end = c->time;
}
/* The rank's messages of a round are over. */
static void end_round(const sim_model *m, const fcp_step_stream *s, uint32_t round, cursor *c) {
    while (c->next < s->count && m->plan->steps[s->first + c->next].op <= FCP_STEP_RECV &&
           m->plan->steps[s->first + c->next].round == round)
        c->next++;
    c->time = c->end;
}
_Static_assert((int)FCP_STEP_SEND < (int)FCP_STEP_RECV && (int)FCP_STEP_RECV < (int)FCP_STEP_COMBINE,
               "messages are first");

/* The sends of each round, as a counting sort: those of round r are the result's [start[r]] to [start[r + 1] - 1]. */
static sending *list_sends(const sim_model *m, uint32_t number, fcp_pass pass, arena *scratch, uint32_t **out_start) {
    const fcp_plan *plan = m->plan;
    const uint32_t rounds = plan->recurrent[number].rounds[pass];
    uint32_t *start = ARENA_ZNEW(scratch, uint32_t, rounds + (size_t)2), sends = 0;
    sending *all = NULL;
    for (int fill = 0; fill < 2 && start; fill++) {
        for (uint32_t r = 0; r < plan->problem->ranks; r++) {
            const fcp_step_stream *s = fcp_steps_of(plan, number, pass, r);
            for (uint32_t i = 0; i < s->count; i++) {
                const fcp_step *x = &plan->steps[s->first + i];
                if (x->op != FCP_STEP_SEND) continue;
                if (fill) all[start[x->round + 1]++] = (sending){r, i};
                else start[x->round + 1]++, sends++;
            }
        }
        if (fill) break;
        uint32_t sum = 0; /* start[r + 1] becomes where round r begins, and moves on as the round is filled */
        for (uint32_t r = 0; r < rounds + 1; r++) {
            const uint32_t count = start[r + 1];
            start[r + 1] = sum;
            sum += count;
        }
        all = arena_zalloc(scratch, (size_t)sends + 1, sizeof *all, _Alignof(sending));
        if (!all) return NULL;
    }
    *out_start = start;
    return all;
}

fcp_code sim_recurrent_walk(const fcp_plan *plan, uint32_t number, const sim_model *m, arena *scratch,
                            sim_recurrent *out) {
    const fcp_recurrent *layer = &plan->recurrent[number];
    const fcp_pass pass = layer->kind == FCP_SCAN ? m->pass : FCP_FORWARD;
    const uint32_t ranks = plan->problem->ranks;
    const bool packs = layer->kind == FCP_HALO;
    uint32_t *start;
    cursor *at = arena_zalloc(scratch, ranks, sizeof *at, _Alignof(cursor));
    const sending *sends = at ? list_sends(m, number, pass, scratch, &start) : NULL;
    *out = (sim_recurrent){0};
    if (!sends) return FCP_E_NO_MEMORY;
    for (uint32_t round = 0; round < layer->rounds[pass]; round++) {
        const sending *first = sends + start[round], *end = sends + start[round + 1];
        for (const sending *x = first; x < end; x++) {
            const uint32_t peer = plan->steps[fcp_steps_of(plan, number, pass, x->rank)->first + x->step].peer;
            go_on(m, layer, fcp_steps_of(plan, number, pass, x->rank), &at[x->rank]);
            go_on(m, layer, fcp_steps_of(plan, number, pass, peer), &at[peer]);
        }
        for (const sending *x = first; x < end; x++) {
            const fcp_step *step = &plan->steps[fcp_steps_of(plan, number, pass, x->rank)->first + x->step];
            cursor *from = &at[x->rank], *to = &at[step->peer];
            const uint64_t bytes = bytes_of(m, layer, step);
            uint64_t takes = sim_recurrent_message(m, (fcp_fabric)step->fabric, bytes);
            if (packs) takes = fcp_plus(takes, fcp_times(2, sim_recurrent_step(m, fcp_times(2, bytes))));
            const uint64_t over = fcp_plus(later(from->time, to->time), takes);
            from->end = later(from->end, over);
            to->end = later(to->end, over);
            out->bytes[step->fabric] = fcp_plus(out->bytes[step->fabric], bytes);
            out->messages++;
        }
        for (const sending *x = first; x < end; x++) {
            const uint32_t peer = plan->steps[fcp_steps_of(plan, number, pass, x->rank)->first + x->step].peer;
            end_round(m, fcp_steps_of(plan, number, pass, x->rank), round, &at[x->rank]);
            end_round(m, fcp_steps_of(plan, number, pass, peer), round, &at[peer]);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        go_on(m, layer, fcp_steps_of(plan, number, pass, r), &at[r]);
        out->makespan = later(out->makespan, at[r].time);
    }
    return out->makespan >> 62 ? FCP_E_PROFILE : FCP_OK;
}
