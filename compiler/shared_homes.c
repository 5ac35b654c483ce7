/* shared_homes.c: plans every mask of `layers` on one set of homes.
 *
 * Requires: a program with several masks, and a batch.
 * Gives: a plan for each mask. All of them have each token at the same rank, and their callers hold tokens in the same
 *     order: so layers follow each other, and nothing is moved between them. The digests of the homes are compared.
 * Cost: the pairs of each mask are counted, and then each is planned. By fcp and dcp, all are asked once more.
 *
 * Where a strategy leaves homes to a caller with a layout, or to the lengths alone, as cad and ring do, each mask is
 * planned by itself. Else, and where tokens = equal moves homes by the work, the mask with most work decides the blocks
 * and their homes, and what auto chooses as well: its layers take longest. With fcp and dcp its blocks are divided for
 * the other masks, too (problem/few_rows.c). These have the same blocks at the same ranks, and place/shift_work.c says
 * what is computed where. Homes that fcp has chosen are then changed (place/balance_masks.c) so that no rank has more
 * than a tenth over the tolerance of any mask's work, as far as that can be: so there is little left to shift.
 */
#include "compiler/shared_homes.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/place/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/planning/workspace.h"
#include "runtime/base/clock.h"

/* A strategy that has its homes from another plan. */
typedef struct given {
    strategy strategy; /* first: planning.strategy points to it */
    const problem *cut;
    const uint32_t *home;
} given;

/* A copy of `bytes` at `from`. */
static void *copy(arena *a, const void *from, size_t bytes) {
    void *made = arena_alloc(a, bytes + 1, 1, _Alignof(uint64_t));
    if (made && bytes) memcpy(made, from, bytes);
    return made;
}

/* Copies what cutting made of a problem. */
static bool copy_cut(const problem *from, arena *a, problem *to) {
    to->max_block[0] = from->max_block[0];
    to->max_block[1] = from->max_block[1];
    to->block_count = to->range_blocks = from->range_blocks; /* those of other heads are made anew */
    to->piece_count = 0;
    for (uint32_t b = 0; b < to->block_count; b++) to->piece_count += from->blocks[b].pieces;
    to->pieces = copy(a, from->pieces, to->piece_count * sizeof *from->pieces);
    to->blocks = copy(a, from->blocks, to->block_count * sizeof *from->blocks);
    for (int side = 0; side < FCP_SIDES; side++) {
        const uint32_t count = from->piece_start[side][from->sequences];
        if (side && !from->split) {
            to->sequence_piece[1] = to->sequence_piece[0];
            to->piece_start[1] = to->piece_start[0];
            break;
        }
        to->sequence_piece[side] = copy(a, from->sequence_piece[side], count * sizeof(uint32_t));
        to->piece_start[side] = copy(a, from->piece_start[side], (from->sequences + (size_t)1) * sizeof(uint32_t));
        if (!to->sequence_piece[side] || !to->piece_start[side]) return false;
    }
    for (uint32_t b = 0; to->blocks && b < to->block_count; b++) /* what later passes found is of the other mask */
        to->blocks[b].home = to->blocks[b].home_slot = to->blocks[b].flags = to->blocks[b].heads = 0;
    return to->pieces && to->blocks;
}

static fcp_code cut_given(planning *x) {
    const given *g = (const given *)x->strategy;
    problem whole = *x->problem; /* pieces and blocks go into the plan */
    if (!copy_cut(g->cut, &x->memory, &whole)) return FCP_E_NO_MEMORY;
    *x->problem = whole;
    return FCP_OK;
}

static fcp_code place_given(planning *x, const place_input *in, uint32_t *home) {
    const given *g = (const given *)x->strategy;
    (void)in;
    memcpy(home, g->home, g->cut->block_count * sizeof *home);
    return FCP_OK;
}

/* Moves work from ranks that have too much under this mask, if that pays. */
static fcp_code exec_given(planning *x, const uint32_t *home, uint32_t *exec) {
    uint64_t still, moved;
    fcp_code code = place_shift(x, home, exec);
    if (!code) code = place_weigh(x, home, NULL, &still);
    if (!code) code = place_weigh(x, home, exec, &moved);
    for (uint32_t t = 0; t < x->problem->tile_count && !code && moved >= still; t++)
        exec[t] = home[x->problem->tile_q[t]];
    return code;
}

/* What the others take from the plan of the mask with most work. */
typedef struct taking {
    arena memory;
    struct fcpc_program settings;
    strategy by;
    problem cut;
    uint32_t *home;
    bool failed;
    const compile_watch *watch;
} taking;

static void take(void *context, const planning *x) {
    taking *t = context;
    if (t->watch && t->watch->see) t->watch->see(t->watch->context, x);
    if (!x->plan) return;
    t->settings = *x->program;
    t->settings.block = x->block;
    t->by = *strategy_of(x);
    t->cut = (problem){.sequences = x->problem->sequences};
    t->home = copy(&t->memory, x->placement->home, x->problem->block_count * sizeof *t->home);
    t->failed = !t->home || !copy_cut(x->problem, &t->memory, &t->cut);
    t->cut.split = x->problem->split;
}

static const fcpc_program *layer_of(const fcpc_program *program, uint32_t i) {
    return i ? program->layers[i].program : program;
}

/* The pairs that a mask allows in the batch. What is wrong with the batch is reported when it is planned. */
static fcp_code count_pairs(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                            uint64_t *out) {
    struct fcpc_program settings = *program;
    settings.strategy = FCP_STRATEGY_FCP;
    fcpc_diagnostics *unheard = fcpc_diagnostics_new();
    if (!unheard) return FCP_E_NO_MEMORY;
    fcp_code code = compile_count(&settings, batch, stop, unheard, out);
    fcpc_diagnostics_free(unheard);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED ? code : FCP_OK;
}

/* A program of another mask with the settings that were chosen. */
static struct fcpc_program with_settings(const fcpc_program *program, const struct fcpc_program *of) {
    struct fcpc_program p = *program;
    p.strategy = of->strategy;
    p.block = of->block;
    p.block_found = of->block_found;
    p.coalesce = of->coalesce;
    p.between = of->between;
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(p.strategy, i) || strategy_takes(program_divides_by(&p), i))
            *strategy_param_of(&p, i) = *strategy_param_of((struct fcpc_program *)(uintptr_t)of, i);
    p.together = of->together; /* worked out by sema/sharing.c or by auto, also where it is no parameter */
    return p;
}

/* --- homes that are balanced under all masks ---------------------------------------------------------------------- */

/* The program's strategy, with blocks for all masks; and fcp with homes for all of them. */
typedef struct shared {
    strategy strategy; /* first: planning.strategy points to it */
    const strategy *fcp;
    const fcpc_program *program;
    uint32_t heavy; /* the mask that x plans */
} shared;

enum { SPREAD = 100000 }; /* millionths: so much more than the tolerance ranks may be over a mask's mean */

/* A planning of another mask with x's blocks, up to its tiles; planning_end(&out->planning). */
typedef struct under {
    struct fcpc_program settings;
    given by;
    planning planning;
} under;

static fcp_code open_under(planning *x, const fcpc_program *mask, under *out) {
    *out = (under){.settings = with_settings(mask, x->program), .by = {.strategy = *strategy_of(x), .cut = x->problem}};
    out->settings.block = x->block;
    out->by.strategy.cut = cut_given;
    out->by.strategy.cut_given = true;
    planning_begin(&out->planning, &out->settings, x->batch, x->stop, x->d);
    out->planning.strategy = &out->by.strategy;
    return compile_stretch(&out->planning, NULL, problem_tiles, false);
}

/* The pairs of each of x's blocks under another mask. */
static fcp_code work_under(planning *x, const fcpc_program *mask, uint64_t *out) {
    under y;
    fcp_code code = open_under(x, mask, &y);
    if (!code) memcpy(out, y.planning.problem->work, x->problem->block_count * sizeof *out);
    planning_end(&y.planning);
    return code;
}

/* Divides x's blocks for the other masks, too: if a block is better divided for one of them, all have it so. */
static fcp_code divide_for_others(planning *x) {
    const shared *s = (const shared *)x->strategy;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < s->program->layer_count && !code; i++) {
        under y;
        problem_stretch *list;
        size_t count = 0;
        if (i == s->heavy) continue;
        code = open_under(x, layer_of(s->program, i), &y);
        if (!code) code = problem_few_rows(&y.planning, !x->strategy->exec, &list, &count);
        if (!code && count) code = strategy_cut_again(x, list, count);
        planning_end(&y.planning);
    }
    return code;
}

/* What a rank may have of a mask's work: so many millionths over the mean. */
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

/* The work of every block under each mask, that of x first. times: how many layers each has. */
static fcp_code work_of_all(planning *x, const shared *s, uint64_t *room, const uint64_t **of, uint64_t *times) {
    const uint32_t masks = s->program->layer_count;
    fcp_code code = FCP_OK;
    of[0] = x->problem->work;
    times[0] = s->program->layers[s->heavy].times;
    for (uint32_t i = 0, at = 1; i < masks && !code; i++) {
        if (i == s->heavy) continue;
        uint64_t *work = room + at * (size_t)x->problem->block_count;
        times[at] = s->program->layers[i].times;
        of[at++] = work;
        code = work_under(x, layer_of(s->program, i), work);
    }
    return code;
}

/* Homes for all masks, from those of fcp for the first: with more and more room under that one. Of these, those by
 * which all layers together compute least, each for as long as its busiest rank. */
static fcp_code balance(planning *x, const place_input *in, const uint64_t *const *work, const uint64_t *times,
                        uint32_t masks, uint32_t *home) {
    static const uint32_t percent[] = {0, 20, 50, 100}; /* of SPREAD, for the first mask */
    const problem *p = x->problem;
    const uint64_t tolerance = x->program->tolerance;
    uint64_t *cap = ARENA_NEW(&x->scratch, uint64_t, masks), *load = ARENA_NEW(&x->scratch, uint64_t, p->ranks);
    uint32_t *other = copy(&x->scratch, home, p->block_count * sizeof *home);
    unsigned __int128 least = 0;
    if (!cap || !load || !other) return FCP_E_NO_MEMORY;
    const uint64_t most = most_of(p, work[0], home, load);
    for (uint32_t i = 0; i < masks; i++) least += (unsigned __int128)times[i] * most_of(p, work[i], home, load);
    for (size_t k = 0; k < sizeof percent / sizeof *percent; k++) {
        unsigned __int128 sum = 0;
        for (uint32_t i = 0; i < masks; i++)
            cap[i] = cap_of(p, work[i], tolerance + (i ? SPREAD : SPREAD / 100 * percent[k]));
        if (cap[0] < most) cap[0] = most;
        fcp_code code = place_for_masks(in, &(place_masks){masks, work, cap}, &x->scratch, other);
        if (code) return code;
        for (uint32_t i = 0; i < masks; i++) sum += (unsigned __int128)times[i] * most_of(p, work[i], other, load);
        if (sum >= least) continue;
        least = sum;
        memcpy(home, other, p->block_count * sizeof *home);
    }
    return FCP_OK;
}

static fcp_code place_shared(planning *x, const place_input *in, uint32_t *home) {
    const shared *s = (const shared *)x->strategy;
    const uint32_t masks = s->program->layer_count;
    uint64_t *room = ARENA_NEW(&x->scratch, uint64_t, masks * (size_t)x->problem->block_count + 1);
    const uint64_t **of = ARENA_NEW(&x->scratch, const uint64_t *, masks);
    uint64_t *times = ARENA_NEW(&x->scratch, uint64_t, masks);
    fcp_code code = room && of && times ? s->fcp->place(x, in, home) : FCP_E_NO_MEMORY;
    if (code || x->tile_rank || x->problem->split) return code; /* fcp has divided blocks, or each side by itself */
    code = work_of_all(x, s, room, of, times);
    return code ? code : balance(x, in, of, times, masks, home);
}

/* --- one mask after the other ------------------------------------------------------------------------------------- */

/* Has every mask these homes, planned by itself? They are then the caller's, or follow from lengths alone. Equal tokens
 * and the homes of cad's base fcp follow from a mask. So do those of ranks inside groups, if they are not the caller's:
 * they follow from the sizes of blocks. */
static bool same_under_any_mask(const strategy *by, const struct fcpc_program *g) {
    const bool of_mask = g->equal || (g->strategy == FCP_STRATEGY_CAD && g->base == CAD_BASE_FCP) ||
                         program_has_groups(g);
    if (by->by_block && !(by->in_place && g->layout != FCP_LAYOUT_PLANNED)) return false;
    return strategy_keeps_homes(g) || !of_mask;
}

static fcp_code plan_other(const taking *t, const fcpc_program *program, const fcpc_batch *batch,
                           const volatile int *stop, diags *d, fcpc_times *times, fcp_plan **out) {
    const struct fcpc_program settings = with_settings(program, &t->settings);
    given g = {.strategy = t->by, .cut = &t->cut, .home = t->home};
    const bool alone = same_under_any_mask(&t->by, &settings);
    g.strategy.cut = cut_given;
    g.strategy.cut_given = true;
    g.strategy.place = place_given;
    g.strategy.exec = exec_given;
    g.strategy.in_place = false;
    g.strategy.given = true;
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

/* The time that parsing one of the masks took. That of the first is said to be that of all. */
static double parse_seconds(const fcpc_program *program, uint32_t i) {
    double seconds = layer_of(program, i)->parse_seconds;
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
        code = count_pairs(layer_of(program, i), batch, stop, &pairs);
        if (pairs > most) most = pairs, *out = i;
    }
    return code;
}

/* Plans all masks, the heaviest first. each: what they took. */
static fcp_code plan_all(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                         const compile_watch *watch, uint32_t heavy, fcpc_times *each, fcp_plan **out_plans) {
    const bool by_fcp = program->strategy == FCP_STRATEGY_FCP, by_dcp = program->strategy == FCP_STRATEGY_DCP;
    taking t = {.watch = watch};
    const struct fcpc_program settings = {.strategy = by_dcp ? FCP_STRATEGY_DCP : FCP_STRATEGY_FCP};
    const planning named = {.program = &settings};
    shared by = {.strategy = *strategy_of(&named), .fcp = strategy_of(&named), .program = program, .heavy = heavy};
    if (by_fcp) by.strategy.place = place_shared;
    if (!same_under_any_mask(&by.strategy, program)) by.strategy.divide = divide_for_others;
    const compile_watch first = {.see = take, .context = &t, .tried = watch ? watch->tried : NULL,
                                 .strategy = by_fcp || by_dcp ? &by.strategy : NULL};
    fcp_code code = compile_batch(layer_of(program, heavy), batch, stop, d, &first, &each[heavy], &out_plans[heavy]);
    if (!code && t.failed) code = FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < program->layer_count && !code; i++)
        if (i != heavy) code = plan_other(&t, layer_of(program, i), batch, stop, d, &each[i], &out_plans[i]);
    arena_free(&t.memory);
    return code;
}

/* Refuses masks that take too long, before the first is asked. */
static fcp_code look_ahead(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                           const compile_watch *watch) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < program->layer_count && !code; i++)
        code = compile_look_ahead(layer_of(program, i), batch, stop, d, watch, NULL);
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
