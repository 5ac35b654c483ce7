/* other_masks.c: two passes and a step of placement that serve all masks of `layers`, and not only the one that is
 * being planned.
 *
 * Requires: x->others, and blocks that have been divided for the mask that is being planned.
 * Gives: blocks that are divided for the other masks as well; x->other_work, the work of each block under each mask;
 *     and homes that are balanced under all masks.
 * Cost: finding the tiles of each other mask twice.
 *
 * Only fcp and dcp need this (strategy_facts.serves_all_masks). With other strategies the homes are the caller's or do
 * not depend on the mask, or work moves away from home in any case.
 */
#include "compiler/passes/other_masks.h"

#include <string.h>

#include "compiler/passes/pass_list.h"
#include "compiler/passes/strategy_table.h"

enum { SPREAD = 100000 }; /* millionths: so much more than the tolerance ranks may be over a mask's mean */

const fcpc_program *masks_program(const fcpc_program *program, uint32_t i) {
    return i ? program->layers[i].program : program;
}

struct fcpc_program masks_with_settings(const fcpc_program *program, const struct fcpc_program *chosen) {
    struct fcpc_program p = *program;
    p.strategy = chosen->strategy;
    p.block = chosen->block;
    p.block_found = chosen->block_found;
    p.strategy_found = chosen->strategy_found;
    p.coalesce = chosen->coalesce;
    p.between = chosen->between;
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(p.strategy, i) || strategy_takes(program_divides_by(&p), i))
            *strategy_param_of(&p, i) = *strategy_param_of((struct fcpc_program *)(uintptr_t)chosen, i);
    p.together = chosen->together; /* worked out by sema/sharing.c or by auto, also where it is no parameter */
    return p;
}

/* A planning of x's blocks under another mask, as far as tiles. */
typedef struct under {
    struct fcpc_program settings;
    given by;
    planning planning;
} under;

static fcp_code open_under(planning *x, uint32_t mask, under *out) {
    static pass_function *const steps[] = {bind_lengths, problem_check_slices, bind_batch,   problem_check_time,
                                           problem_open, strategy_cut,         problem_tiles};
    *out = (under){.settings = masks_with_settings(masks_program(x->others->program, mask), x->program),
                   .by = given_blocks(strategy_of(x), x->problem)};
    out->settings.block = x->block;
    planning_begin(&out->planning, &out->settings, x->batch, x->stop, x->d);
    out->planning.strategy = &out->by.strategy;
    fcp_code code = FCP_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !code; i++) {
        code = planning_stopped(x) ? FCP_E_INTERRUPTED : steps[i](&out->planning);
        arena_reset(&out->planning.scratch);
    }
    return code;
}

fcp_code masks_divide(planning *x) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; x->others && i < x->others->program->layer_count && !code; i++) {
        under y;
        problem_stretch *list;
        size_t count = 0;
        if (i == x->others->planned) continue;
        code = open_under(x, i, &y);
        if (!code) code = problem_few_rows(&y.planning, !strategy_of(x)->exec, &list, &count);
        if (!code && count) code = strategy_cut_again(x, list, count);
        passes_end(&y.planning);
    }
    return code;
}

/* Which mask place i of x->other_work is about. Place 0 is about the mask that x plans; the others follow in their
 * order. Example: x plans mask 2 of 4; the places are about masks 2, 0, 1, 3. */
static uint32_t mask_at(const planning *x, uint32_t i) {
    const uint32_t own = x->others->planned;
    return !i ? own : i <= own ? i - 1 : i;
}

static uint32_t layers_with(const planning *x, uint32_t i) { return x->others->program->layers[mask_at(x, i)].times; }

fcp_code masks_find_work(planning *x) {
    const problem *p = x->problem;
    /* A strategy that moves work does not balance homes; and in a split plan each side has homes of its own. */
    if (!x->others || strategy_of(x)->exec || p->split) return FCP_OK;
    const uint32_t masks = x->others->program->layer_count;
    uint64_t *room = ARENA_NEW(&x->work, uint64_t, masks * (size_t)p->block_count + 1);
    const uint64_t **of = ARENA_NEW(&x->work, const uint64_t *, masks);
    fcp_code code = room && of ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint32_t i = 1; i < masks && !code; i++) {
        under y;
        uint64_t *work = room + i * (size_t)p->block_count;
        code = open_under(x, mask_at(x, i), &y);
        if (!code) memcpy(work, y.planning.problem->work, p->block_count * sizeof *work);
        if (!code) of[i] = work;
        passes_end(&y.planning);
    }
    if (code) return code;
    of[0] = p->work;
    x->other_work = of;
    return FCP_OK;
}

/* The work that a rank may have under a mask: the mean, plus so many millionths of it. */
static uint64_t cap_of(const problem *p, const uint64_t *work, uint64_t millionths) {
    unsigned __int128 sum = 0;
    for (uint32_t b = 0; b < p->block_count; b++) sum += work[b];
    return (uint64_t)(sum * (1000000 + millionths) / 1000000 / p->ranks);
}

/* The work of the busiest rank under a mask. */
static uint64_t most_of(const problem *p, const uint64_t *work, const uint32_t *home, uint64_t *load) {
    uint64_t most = 0;
    memset(load, 0, p->ranks * sizeof *load);
    for (uint32_t b = 0; b < p->block_count; b++)
        if ((load[home[b]] += work[b]) > most) most = load[home[b]];
    return most;
}

/* Tries four times to balance the homes under all masks. Keeps the result with the smallest sum over layers of the
 * busiest rank's work. The tries differ in the cap on work under the main mask, for which the strategy chose the homes.
 * In the first try the cap is the tolerance, or what the strategy reached. It grows with each try; in the last it is as
 * large as that of the other masks. */
fcp_code masks_balance(planning *x, const place_input *in, uint32_t *home) {
    static const uint32_t percent[] = {0, 20, 50, 100}; /* of SPREAD, for the first mask */
    const problem *p = x->problem;
    const uint32_t masks = x->others->program->layer_count;
    const uint64_t *const *work = x->other_work;
    const uint64_t tolerance = x->program->tolerance;
    uint64_t *cap = ARENA_NEW(&x->scratch, uint64_t, masks), *load = ARENA_NEW(&x->scratch, uint64_t, p->ranks);
    uint32_t *other = ARENA_NEW(&x->scratch, uint32_t, p->block_count);
    unsigned __int128 least = 0;
    if (!cap || !load || !other) return FCP_E_NO_MEMORY;
    memcpy(other, home, p->block_count * sizeof *home);
    const uint64_t most = most_of(p, work[0], home, load);
    for (uint32_t i = 0; i < masks; i++)
        least += (unsigned __int128)layers_with(x, i) * most_of(p, work[i], home, load);
    for (size_t k = 0; k < sizeof percent / sizeof *percent; k++) {
        unsigned __int128 sum = 0;
        for (uint32_t i = 0; i < masks; i++)
            cap[i] = cap_of(p, work[i], tolerance + (i ? SPREAD : SPREAD / 100 * percent[k]));
        if (cap[0] < most) cap[0] = most;
        fcp_code code = place_for_masks(in, &(place_masks){masks, work, cap}, &x->scratch, other);
        if (code) return code;
        for (uint32_t i = 0; i < masks; i++)
            sum += (unsigned __int128)layers_with(x, i) * most_of(p, work[i], other, load);
        if (sum >= least) continue;
        least = sum;
        memcpy(home, other, p->block_count * sizeof *home);
    }
    return FCP_OK;
}
