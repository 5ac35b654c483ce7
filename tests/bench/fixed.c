/* fixed.c: predicts how long a batch takes with each of 24 settings, such as a user would try: each strategy, a few
 * tolerances, three sizes of blocks.
 *
 * The compiler's passes plan each setting, and the verifier is left out. The time is predicted by the simulator, as for
 * auto's candidates. A setting is not planned if the bounds of its routes already show that it cannot be the best.
 */
#include "tests/bench/fixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/passes/pass_list.h"
#include "compiler/problem/problem.h"
#include "compiler/schedule/reshuffle.h"
#include "compiler/simulate/simulate.h"
#include "runtime/base/both.h"

const fixed_setting fixed_settings[FIXED] = {
    {"fcp", 1024},
    {"fcp", 2048},
    {"fcp", 4096},
    {"fcp(split = off)", 2048},
    {"dcp(epsilon_compute = 0.01)", 1024},
    {"dcp(epsilon_compute = 0.01)", 2048},
    {"dcp(epsilon_compute = 0.02)", 1024},
    {"dcp(epsilon_compute = 0.02)", 2048},
    {"dcp(epsilon_compute = 0.02)", 4096},
    {"dcp(epsilon_compute = 0.05)", 1024},
    {"dcp(epsilon_compute = 0.05)", 2048},
    {"dcp(epsilon_compute = 0.1)", 1024},
    {"dcp(epsilon_compute = 0.1)", 2048},
    {"cad(tolerance = 0.02)", 1024},
    {"cad(tolerance = 0.02)", 2048},
    {"cad(tolerance = 0.02)", 4096},
    {"cad(tolerance = 0.02, coalesce = 32)", 1024},
    {"cad(tolerance = 0.02, coalesce = 32)", 2048},
    {"cad(tolerance = 0.1)", 1024},
    {"cad(tolerance = 0.1)", 2048},
    {"cad(tolerance = 0.1, coalesce = 32)", 1024},
    {"cad(tolerance = 0.1, coalesce = 32)", 2048},
    {"ulysses", 0},
    {"zigzag", 0},
};

enum { LONG_RANKS = 64 }; /* to cut every sequence over more ranks takes minutes */

/* Up to the bounds of its routes and, if they are below `limit`, up to its time. */
static fcp_code predict(planning *x, const sim_profile *profile, uint64_t limit, fixed_end *end, uint64_t *out_time) {
    sim_counts counts = {.of = NULL};
    const sim_options options = {.brief = true, .counts = &counts};
    sim_result result;
    auto_bounds bound;
    arena memory = {0};
    fcp_error err = {0};
    uint64_t least;
    uint32_t rank, margin;
    const sim_margins stated = {1, {x->program->margin}};
    const sim_margins *margins = x->program->margins ? x->program->margins : &stated;
    fcp_code code = passes_run(x, NULL, reshuffle_build);
    if (!code) code = auto_bound_routes(x, profile, &counts, &bound, &least, &rank);
    if (!code && bound.all >= limit) {
        *end = FIXED_BOUND;
    } else if (!code) {
        code = passes_run(x, reshuffle_build, planning_own);
        if (!code) code = sim_choose_margin(x->plan, margins, profile, &options, &memory, &result, &margin, &err);
        if (!code) *out_time = auto_time(x->program, &result);
    }
    arena_free(&memory);
    arena_free(&counts.memory);
    return code;
}

static bool of_setting(fcp_code code) {
    return code == FCP_E_MEMORY_CAP || code == FCP_E_PLAN_SIZE || code == FCP_E_VALUE || code == FCP_E_HEADS;
}

/* *out_program: the caller frees it once nobody reads what the mask answered. */
static fcp_code try_one(const char *head, const fixed_setting *of, const fcpc_batch *batch, problem_kept *kept,
                        uint64_t limit, fixed_end *end, uint64_t *out_time, fcpc_diagnostics *d,
                        fcpc_program **out_program) {
    char source[1024], block[32] = "";
    sim_profile profile;
    fcp_error err;
    planning x;
    *end = FIXED_PREDICTED;
    if (of->block) snprintf(block, sizeof block, "; block = %u", of->block);
    snprintf(source, sizeof source, "%s; strategy = %s%s }\n", head, of->strategy, block);
    fcp_code code = fcpc_parse_text("fixed.fcp", source, strlen(source), NULL, d, out_program);
    const fcpc_program *program = *out_program;
    if (!code) {
        if ((uint64_t)program->nodes * program->gpus > LONG_RANKS && !strcmp(of->strategy, "zigzag")) *end = FIXED_LONG;
        code = sim_profile_of(&program->cluster, &profile, &err);
    }
    if (!code && *end != FIXED_LONG) {
        planning_begin(&x, program, batch, NULL, d);
        x.kept = kept;
        code = predict(&x, &profile, limit, end, out_time);
        fcp_plan_free(x.plan);
        passes_end(&x);
    }
    if (of_setting(code)) {
        *end = FIXED_REFUSED;
        code = FCP_OK;
    }
    return code;
}

bool fixed_try(const char *head, const uint64_t *lengths, size_t count, fixed_result *out) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    fcpc_program *programs[FIXED] = {NULL};
    problem_kept kept = {0};
    fcp_code code = FCP_OK;
    *out = (fixed_result){.best = UINT64_MAX};
    fcp_both_begin();
    for (uint32_t i = 0; i < FIXED && !code; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        code = d ? try_one(head, &fixed_settings[i], &batch, &kept, out->best, &out->end[i], &out->time[i], d,
                           &programs[i])
                 : FCP_E_NO_MEMORY;
        if (code) {
            char *said = d ? fcpc_diagnostics_render(d, false) : NULL;
            fprintf(stderr, "%s: %s", fixed_settings[i].strategy, said ? said : "no memory\n");
            free(said);
        }
        fcpc_diagnostics_free(d);
        if (!code && out->time[i] && out->time[i] < out->best) out->best = out->time[i], out->which = i;
    }
    fcp_both_end();
    problem_kept_free(&kept);
    for (uint32_t i = 0; i < FIXED; i++) fcpc_program_free(programs[i]);
    return !code;
}
