/* capacity.c: compares the fullest rank with cluster.memory.
 *
 * Requires: slots. Gives: an error, with what would help, where the plan does not fit.
 */
#include "compiler/capacity.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>

#include "compiler/lower/lower.h"
#include "compiler/place/strategy_table.h"
#include "compiler/problem/problem.h"

/* *out_partial, unless NULL: the part that partial results take on the fullest rank. */
static memory_peak peak_of(const planning *x, uint64_t *out_partial) {
    fcp_problem facts;
    problem_facts(x, &facts);
    const memory_peak most = lower_memory_peak(x, &facts);
    const fcp_class cls = most.pass == FCP_FORWARD ? FCP_STATE : FCP_DQ;
    if (out_partial)
        *out_partial = x->slots->count[cls][most.rank] * facts.max_q_block * fcp_slot_bytes(&facts, cls, most.pass);
    return most;
}

/* The passes that run again: all if the tolerance has changed, from the traffic on if `relay` or `coalesce` has, for
 * relays are judged by the length of stages. */
static fcp_code (*const steps[])(planning *x) = {problem_open,   strategy_cut,  problem_tiles,   strategy_divide,
                                                 strategy_place, traffic_build, reshuffle_build, schedule_build,
                                                 slots_build};
enum { STEPS = sizeof steps / sizeof *steps, FROM_CUT = 0, FROM_TRAFFIC = 5 };

/* The bytes of the fullest rank if the passes run again on `other`, a copy of x with another setting; UINT64_MAX where
 * there is no such plan. Leaves x as it is. */
static fcp_code peak_with(planning *x, planning *other, int from, uint64_t *out_bytes) {
    fcpc_diagnostics *unheard = fcpc_diagnostics_new();
    if (!unheard) return FCP_E_NO_MEMORY;
    other->d = unheard;
    other->memory = other->work = (arena){.pool = x->work.pool};
    if (from == FROM_CUT) other->cells = NULL;
    fcp_code code = FCP_OK;
    for (int i = from; i < STEPS && !code; i++) {
        code = planning_stopped(x) ? FCP_E_INTERRUPTED : steps[i](other);
        arena_reset(&other->scratch);
    }
    *out_bytes = code ? UINT64_MAX : peak_of(other, NULL).bytes;
    if (from == FROM_CUT) problem_close_mask(other, &other->cells);
    arena_free(&other->memory);
    arena_free(&other->work);
    x->scratch = other->scratch;
    fcpc_diagnostics_free(unheard);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED ? code : FCP_OK;
}

static fcp_code peak_with_coalesce(planning *x, uint32_t coalesce, uint64_t *out_bytes) {
    planning other = *x;
    other.coalesce = coalesce;
    return peak_with(x, &other, FROM_TRAFFIC, out_bytes);
}

/* The strategy that divides the batch, as a program writes it: fcp, or ulysses + fcp. */
static const char *name_of(const struct fcpc_program *g, char out[64]) {
    const bool groups = program_has_groups(g);
    snprintf(out, 64, "%s%s%s", groups ? fcp_strategy_names[g->strategy] : "", groups ? " + " : "",
             fcp_strategy_names[program_divides_by(g)]);
    return out;
}

/* Fewer rounds to a stage. Adds a hint, and counts it, where that would do. With more rounds to a stage everything is
 * held for longer: so one round is tried first, and if that is too much, nothing between is tried. */
static fcp_code try_coalesce(planning *x, uint32_t *hints) {
    uint64_t least, bytes;
    if (x->coalesce < 2) return FCP_OK;
    fcp_code code = peak_with_coalesce(x, 1, &least);
    if (code || least > x->program->memory_cap) return code;
    uint32_t coalesce = x->coalesce;
    do {
        coalesce /= 2;
        bytes = least;
        if (coalesce > 1) code = peak_with_coalesce(x, coalesce, &bytes);
        if (code) return code;
    } while (bytes > x->program->memory_cap);
    char by[64];
    diag_hint(x->d, "strategy %s(coalesce = %u) would need %llu bytes", name_of(x->program, by), coalesce,
              (unsigned long long)bytes);
    ++*hints;
    return FCP_OK;
}

/* The other way of passing blocks on, or none. */
static fcp_code try_relay(planning *x, uint32_t *hints) {
    planning other = *x;
    placement changed = *x->placement;
    uint64_t bytes;
    changed.relay = !changed.relay;
    other.placement = &changed;
    fcp_code code = peak_with(x, &other, FROM_TRAFFIC, &bytes);
    if (code || bytes > x->program->memory_cap) return code;
    diag_hint(x->d, "relay = %s would need %llu bytes", changed.relay ? "auto" : "off", (unsigned long long)bytes);
    ++*hints;
    return FCP_OK;
}

/* Less work that moves. */
static fcp_code try_tolerance(planning *x, uint32_t *hints) {
    static const uint32_t percent[] = {5, 10, 20};
    for (size_t i = 0; i < sizeof percent / sizeof *percent; i++) {
        struct fcpc_program settings = *x->program;
        planning other = *x;
        uint64_t bytes;
        if (settings.tolerance >= percent[i] * 10000) continue;
        settings.tolerance = percent[i] * 10000;
        other.program = &settings;
        fcp_code code = peak_with(x, &other, FROM_CUT, &bytes);
        if (code) return code;
        if (bytes > x->program->memory_cap) continue;
        char by[64];
        diag_hint(x->d, "strategy %s(tolerance = 0.%02u) would need %llu bytes", name_of(&settings, by), percent[i],
                  (unsigned long long)bytes);
        ++*hints;
        return FCP_OK;
    }
    return FCP_OK;
}

/* Fewer heads at a time, in phases that share their memory. */
static fcp_code try_phases(planning *x, uint32_t *hints) {
    const struct fcpc_program *g = x->program;
    for (uint32_t heads = g->together; heads >= 2 * g->inside;) {
        struct fcpc_program settings = *g;
        planning other = *x;
        uint64_t bytes;
        do heads -= g->inside;
        while (g->heads % heads);
        settings.strategy = FCP_STRATEGY_UPIPE;
        settings.together = heads;
        settings.buffers = 1;
        other.program = &settings;
        fcp_code code = peak_with(x, &other, FROM_CUT, &bytes);
        if (code) return code;
        if (bytes > g->memory_cap) continue;
        diag_hint(x->d, "strategy %s(heads = %u)%s%s would need %llu bytes", fcp_strategy_names[FCP_STRATEGY_UPIPE],
                  heads, g->between ? " + " : "", g->between ? fcp_strategy_names[g->between - 1] : "",
                  (unsigned long long)bytes);
        ++*hints;
        return FCP_OK;
    }
    return FCP_OK;
}

fcp_code capacity_check(planning *x) {
    uint64_t partial;
    const memory_peak most = peak_of(x, &partial);
    const uint64_t cap = x->program->memory_cap;
    if (most.bytes <= cap) return FCP_OK;
    char state[80] = "";
    if (x->placement->exec && partial)
        snprintf(state, sizeof state, " (%llu of them for %s)", (unsigned long long)partial,
                 most.pass == FCP_FORWARD ? "running states" : "partial gradients of queries");
    diag_error(x->d, FCP_E_MEMORY_CAP, planning_span(x, x->program->memory_span),
               "rank %u needs %llu bytes%s, cluster.memory allows %llu", most.rank, (unsigned long long)most.bytes,
               state, (unsigned long long)cap);
    if (x->trial) return FCP_E_MEMORY_CAP;
    uint32_t hints = 0;
    fcp_code code = x->sharing ? try_phases(x, &hints) : FCP_OK;
    if (!code && (!x->sharing || program_has_groups(x->program)) && !x->placement->phase) code = try_coalesce(x, &hints);
    if (!code && ((x->placement->exec && x->division && !x->sharing) || x->traffic->trees)) code = try_relay(x, &hints);
    if (!code && x->placement->exec && x->division) code = try_tolerance(x, &hints);
    if (code) return code;
    if (!hints)
        diag_hint(x->d, "cluster.memory = %llu MB would do, or more ranks",
                  (unsigned long long)((most.bytes + 999999) / 1000000));
    return FCP_E_MEMORY_CAP;
}
