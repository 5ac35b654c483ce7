/* memory_hints.c: if a plan does not fit cluster.memory, finds settings with which it would.
 *
 * Requires: slots of a plan that needs too much (passes/capacity.c has reported it).
 * Gives: hints of that error.
 * Cost: for each setting that is tried, a whole planning, or only the passes that follow the placement.
 */
#include <stdio.h>

#include "compiler/advice/advise.h"
#include "compiler/lower/lower.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"

fcp_code advise_plan_again(planning *x, planning *other, pass_function *after, pass_function *last) {
    other->memory = other->work = (arena){.pool = x->work.pool};
    if (after == problem_check_time) other->cells = NULL;
    return passes_run(other, after, last);
}

void advise_end_again(planning *x, planning *other) {
    if (other->cells != x->cells) problem_close_mask(other, &other->cells);
    arena_free(&other->memory);
    arena_free(&other->work);
    x->scratch = other->scratch;
    arena_reset(&x->scratch);
}

/* The bytes of the fullest rank. */
static uint64_t peak_of(planning *x) {
    fcp_problem facts;
    memory_peak most;
    problem_facts(x, &facts);
    return lower_memory_need(x, &facts, &most) ? UINT64_MAX : most.bytes;
}

/* Runs the passes that follow `after` again on `other`, a copy of x with another setting. *out_bytes becomes the memory
 * that the fullest rank then needs, or UINT64_MAX if there is no plan with this setting. Another tolerance changes the
 * blocks, so all passes run again. `relay` and `coalesce` change the traffic: whether a block is passed on by others
 * depends on how long stages are. */
static fcp_code peak_with(planning *x, planning *other, pass_function *after, uint64_t *out_bytes) {
    fcpc_diagnostics *unheard = fcpc_diagnostics_new();
    if (!unheard) return FCP_E_NO_MEMORY;
    other->d = unheard;
    fcp_code code = advise_plan_again(x, other, after, slots_build);
    *out_bytes = code ? UINT64_MAX : peak_of(other);
    advise_end_again(x, other);
    fcpc_diagnostics_free(unheard);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED ? code : FCP_OK;
}

static fcp_code peak_with_coalesce(planning *x, uint32_t coalesce, uint64_t *out_bytes) {
    planning other = *x;
    other.coalesce = coalesce;
    return peak_with(x, &other, strategy_place, out_bytes);
}

/* The strategy that divides the batch, as a program writes it: fcp, or ulysses + fcp. */
static const char *strategy_text(const struct fcpc_program *g, char out[64]) {
    const bool groups = program_has_groups(g);
    snprintf(out, 64, "%s%s%s", groups ? fcp_strategy_names[g->strategy] : "", groups ? " + " : "",
             fcp_strategy_names[program_divides_by(g)]);
    return out;
}

/* Looks for a smaller number of rounds to a stage with which the plan fits, and hints at it. *hints counts the hints.
 * Longer stages need more memory, because everything that arrives is held for longer. So one round is tried first. If
 * even that does not fit, no number will. Otherwise half as many rounds are tried, then a quarter, and so on. */
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
    diag_hint(x->d, "strategy %s(coalesce = %u) would need %llu bytes", strategy_text(x->program, by), coalesce,
              (unsigned long long)bytes);
    ++*hints;
    return FCP_OK;
}

/* Plans with relays off if they are on, and with relays if they are off. Adds a hint, and counts it, if that fits. */
static fcp_code try_relay(planning *x, uint32_t *hints) {
    planning other = *x;
    placement changed = *x->placement;
    uint64_t bytes;
    changed.relay = !changed.relay;
    other.placement = &changed;
    fcp_code code = peak_with(x, &other, strategy_place, &bytes);
    if (code || bytes > x->program->memory_cap) return code;
    diag_hint(x->d, "relay = %s would need %llu bytes", changed.relay ? "auto" : "off", (unsigned long long)bytes);
    ++*hints;
    return FCP_OK;
}

/* Tries larger tolerances, with which less work moves to other ranks. Hints at the first with which the plan fits. */
static fcp_code try_tolerance(planning *x, uint32_t *hints) {
    static const uint32_t percent[] = {5, 10, 20};
    for (size_t i = 0; i < sizeof percent / sizeof *percent; i++) {
        struct fcpc_program settings = *x->program;
        planning other = *x;
        uint64_t bytes;
        if (settings.tolerance >= percent[i] * 10000) continue;
        settings.tolerance = percent[i] * 10000;
        other.program = &settings;
        fcp_code code = peak_with(x, &other, problem_check_time, &bytes);
        if (code) return code;
        if (bytes > x->program->memory_cap) continue;
        char by[64];
        diag_hint(x->d, "strategy %s(tolerance = 0.%02u) would need %llu bytes", strategy_text(&settings, by),
                  percent[i], (unsigned long long)bytes);
        ++*hints;
        return FCP_OK;
    }
    return FCP_OK;
}

/* Tries to compute fewer heads at a time, in phases that use the same memory. Hints at the first number that fits. */
static fcp_code try_phases(planning *x, uint32_t *hints) {
    const struct fcpc_program *g = x->program;
    for (uint32_t heads = g->together; heads >= 2 * g->inside;) {
        struct fcpc_program settings = *g;
        planning other = *x;
        uint64_t bytes;
        do heads -= g->inside;
        while (g->heads % heads);
        settings.strategy = STRATEGY_IN_PHASES;
        settings.together = heads;
        settings.buffers = 1;
        other.program = &settings;
        fcp_code code = peak_with(x, &other, problem_check_time, &bytes);
        if (code) return code;
        if (bytes > g->memory_cap) continue;
        diag_hint(x->d, "strategy %s(heads = %u)%s%s would need %llu bytes", fcp_strategy_names[STRATEGY_IN_PHASES],
                  heads, g->between ? " + " : "", g->between ? fcp_strategy_names[g->between - 1] : "",
                  (unsigned long long)bytes);
        ++*hints;
        return FCP_OK;
    }
    return FCP_OK;
}

fcp_code advise_memory(planning *x) {
    uint32_t hints = 0;
    fcp_code code = x->sharing ? try_phases(x, &hints) : FCP_OK;
    if (!code && (!x->sharing || program_has_groups(x->program)) && !x->placement->phase)
        code = try_coalesce(x, &hints);
    if (!code && ((x->placement->exec && x->division && !x->sharing) || x->traffic->trees)) code = try_relay(x, &hints);
    if (!code && x->placement->exec && x->division) code = try_tolerance(x, &hints);
    if (!code && !hints)
        diag_hint(x->d, "cluster.memory = %llu MB would do, or more ranks",
                  (unsigned long long)((peak_of(x) + 999999) / 1000000));
    return code;
}
