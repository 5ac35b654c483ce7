/* shared_homes.c: plans a program of several masks (layers = [...]) so that each token has the same home under all.
 *
 * Requires: a program with several masks, and a batch.
 * Gives: a plan for each mask. In all of them every token is at the same rank, and callers hold tokens in the same
 *     order. So one layer follows another, and nothing is moved in between. At the end the digests of the homes are
 *     compared.
 * Cost: the pairs of each mask are counted, and then each mask is planned. With fcp and dcp each mask is evaluated once
 *     more.
 *
 * Some homes do not depend on the mask: the caller's, as with cad, and those that follow from lengths, as with ring.
 * Then each mask is planned by itself. All other homes are made by these steps:
 * 1. The mask with most work is planned first, because its layers take longest. It decides the blocks and homes, and
 *    what strategy = auto chooses.
 * 2. If the strategy is fcp or dcp, the blocks of this plan are also divided for the other masks, and fcp's homes are
 *    balanced under all (passes/other_masks.c).
 * 3. The other masks get these blocks and homes, and some of their work moves to other ranks (place/shift_work.c).
 */
#include "compiler/compile.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/passes/other_masks.h"
#include "compiler/passes/strategy_table.h"
#include "runtime/base/clock.h"

/* What the plans of the other masks get from that of the mask with most work. */
typedef struct taking {
    arena memory;
    struct fcpc_program settings;
    strategy by;
    problem cut;
    uint32_t *home;
    bool failed;
    const compile_watch *watch;
} taking;

static void note_plan(void *context, const planning *x) {
    taking *t = context;
    if (t->watch && t->watch->see) t->watch->see(t->watch->context, x);
    if (!x->plan) return;
    t->settings = *x->program;
    t->settings.block = x->block;
    t->by = *strategy_of(x);
    t->cut = (problem){.sequences = x->problem->sequences};
    t->home = ARENA_NEW(&t->memory, uint32_t, x->problem->block_count + (size_t)1);
    t->failed = !t->home || !given_copy_cut(x->problem, &t->memory, &t->cut);
    if (t->home) memcpy(t->home, x->placement->home, x->problem->block_count * sizeof *t->home);
    t->cut.split = x->problem->split;
}

/* The pairs that a mask allows in the batch. What is wrong with the batch is reported when it is planned. */
static fcp_code count_pairs(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                            uint64_t *out) {
    struct fcpc_program settings = *program;
    settings.strategy = STRATEGY_USUAL; /* any would do that cuts the batch without a look at the mask */
    fcpc_diagnostics *unheard = fcpc_diagnostics_new();
    if (!unheard) return FCP_E_NO_MEMORY;
    fcp_code code = compile_first(&settings, batch, stop, unheard, NULL, NULL, problem_tiles, out);
    fcpc_diagnostics_free(unheard);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED ? code : FCP_OK;
}

/* --- one mask after the other ------------------------------------------------------------------------------------- */

/* Returns whether every mask would get the same homes if it were planned by itself. They do if homes are the caller's
 * or follow from the lengths. They do not if homes depend on the mask (tokens = equal, base = fcp), or on the size of
 * blocks, which may differ between masks (groups of ranks that share heads). */
static bool same_under_any_mask(const strategy *by, const struct fcpc_program *g) {
    const bool of_mask = g->equal || g->base == CAD_BASE_FCP || program_has_groups(g);
    if (by->by_block && !(by->in_place && g->layout != FCP_LAYOUT_PLANNED)) return false;
    return strategy_keeps_homes(g) || !of_mask;
}

static fcp_code plan_other(const taking *t, const fcpc_program *program, const fcpc_batch *batch,
                           const volatile int *stop, diags *d, fcpc_times *times, fcp_plan **out) {
    const struct fcpc_program settings = masks_with_settings(program, &t->settings);
    const given g = given_homes(&t->by, &t->cut, t->home);
    const bool alone = same_under_any_mask(&t->by, &settings);
    const compile_watch watch = {.strategy = alone ? NULL : &g.strategy};
    return compile_batch(&settings, batch, stop, d, &watch, times, out);
}

/* Are tokens at the same ranks in all of them? If not, that is a mistake of ours. */
static fcp_code compare_homes(fcp_plan **plans, uint32_t count, diags *d) {
    uint8_t first[FCP_DIGEST_BYTES], other[FCP_DIGEST_BYTES];
    fcp_error err = {0};
    fcp_code code = fcp_plan_homes(plans[0], first, &err);
    for (uint32_t i = 1; i < count && !code; i++) {
        code = fcp_plan_homes(plans[i], other, &err);
        if (!code && memcmp(first, other, sizeof first))
            code = fcp_fail(&err, FCP_E_INTERNAL, "the plans of layers 1 and %u have tokens at other ranks", i + 1);
    }
    if (code) diag_error(d, code, SPAN_NONE, "%s", err.message);
    return code;
}

static void add_times(fcpc_times *all, const fcpc_times *one) {
    all->classify += one->classify, all->place += one->place, all->colour += one->colour;
    all->schedule += one->schedule, all->verify += one->verify, all->choose += one->choose;
}

/* Returns the time that parsing mask i took. The program's own time covers all masks, so that of mask 0 is this time
 * less that of all the others. */
static double parse_seconds(const fcpc_program *program, uint32_t i) {
    double seconds = masks_program(program, i)->parse_seconds;
    for (uint32_t k = 1; !i && k < program->layer_count; k++) seconds -= program->layers[k].program->parse_seconds;
    return seconds;
}

/* The mask with most work, whose layers take longest. */
static fcp_code find_heaviest(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                              uint32_t *out) {
    uint64_t most = 0;
    fcp_code code = FCP_OK;
    *out = 0;
    for (uint32_t i = 0; i < program->layer_count && !code; i++) {
        uint64_t pairs = 0;
        code = count_pairs(masks_program(program, i), batch, stop, &pairs);
        if (pairs > most) most = pairs, *out = i;
    }
    return code;
}

/* Plans all masks, the heaviest first. each: what they took. */
static fcp_code plan_all(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                         const compile_watch *watch, uint32_t heavy, fcpc_times *each, fcp_plan **out_plans) {
    taking t = {.watch = watch};
    const other_masks all = {program, heavy};
    const bool serves = strategy_facts_of[program->strategy].serves_all_masks &&
                        !same_under_any_mask(strategy_named(program->strategy), program);
    const compile_watch first = {.see = note_plan, .context = &t, .tried = watch ? watch->tried : NULL,
                                 .others = serves ? &all : NULL};
    fcp_code code =
        compile_batch(masks_program(program, heavy), batch, stop, d, &first, &each[heavy], &out_plans[heavy]);
    if (!code && t.failed) code = FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < program->layer_count && !code; i++)
        if (i != heavy) code = plan_other(&t, masks_program(program, i), batch, stop, d, &each[i], &out_plans[i]);
    arena_free(&t.memory);
    return code;
}

/* Refuses masks that take too long, before the first is asked. */
static fcp_code look_ahead(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                           const compile_watch *watch) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < program->layer_count && !code; i++)
        code = compile_first(masks_program(program, i), batch, stop, d, watch, NULL, problem_check_time, NULL);
    return code;
}

fcp_code compile_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                        const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plans) {
    const uint32_t count = program->layer_count;
    if (!count) return compile_batch(program, batch, stop, d, watch, out_times, out_plans);
    const double start = fcp_clock();
    uint32_t heavy = 0;
    fcpc_times *each = calloc(count, sizeof *each);
    for (uint32_t i = 0; i < count; i++) out_plans[i] = NULL;
    fcp_code code = each ? look_ahead(program, batch, stop, d, watch) : FCP_E_NO_MEMORY;
    if (!code) code = find_heaviest(program, batch, stop, &heavy);
    fcpc_times all = {.parse = program->parse_seconds, .classify = fcp_clock() - start};
    if (!code) code = plan_all(program, batch, stop, d, watch, heavy, each, out_plans);
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    if (!code) code = compare_homes(out_plans, count, d);
    for (uint32_t i = 0; i < count && !code; i++) {
        add_times(&all, &each[i]);
        each[i].total += parse_seconds(program, i) - each[i].parse;
        each[i].parse = parse_seconds(program, i);
    }
    for (uint32_t i = 0; i < count && code; i++) {
        fcp_plan_free(out_plans[i]);
        out_plans[i] = NULL;
    }
    all.total = all.parse + fcp_clock() - start;
    if (!code) all.bytes_lower_bound = each[0].bytes_lower_bound; /* of the plan that stands for all: the first */
    if (!code && out_times) *out_times = all;
    if (!code && watch && watch->each) memcpy(watch->each, each, count * sizeof *each);
    free(each);
    return code;
}
