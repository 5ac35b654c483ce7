/* split_batch.c: splits a batch into micro-batches by what its sequences cost: fcpc_split_batch.
 *
 * Requires: a checked program, a batch as for a plan.
 * Gives: the micro-batch of each sequence. Whatever the strategy, no micro-batch has more tokens than all ranks hold
 *     together. With a strategy that packs sequences (groups), each can also be packed under the cap of a rank.
 * Cost: that of counting the mask's cells, as in place/groups: of each distinct length, or of each sequence if the mask
 *     reads fields; and that of split_items.c.
 *
 * A sequence costs what it would take one rank: its cells and its linear layers, in all layers. These are the figures
 * by which groups divides ranks. Where a micro-batch's work is spread evenly, its time is the sum of its costs over the
 * ranks, so micro-batches of equal cost take about as long.
 */
#include "compiler/split/split.h"

#include "compiler/base/diag.h"
#include "compiler/passes/pass_list.h"
#include "compiler/place/groups/groups.h"
#include "compiler/problem/problem.h"
#include "compiler/sema/strategies.h"
#include "runtime/base/sized.h"

typedef struct splitting {
    const fcpc_program *program;
    uint32_t tokens, ranks, count;
    split_item *items;
    uint64_t *size; /* of the sequences of a micro-batch */
    uint32_t *of;
    groups_group *groups;
    arena memory;
} splitting;

/* Adds what the sequences cost under one mask, `times` times. The first mask also tells their tokens. */
static fcp_code add_costs(splitting *s, const fcpc_program *program, uint32_t times, const fcpc_batch *batch,
                          const volatile int *stop, fcpc_diagnostics *d) {
    planning x;
    groups_model model;
    fcp_error err = {0};
    planning_begin(&x, program, batch, stop, d);
    fcp_code code = passes_run(&x, NULL, problem_open);
    const problem *p = x.problem;
    groups_group *each = code ? NULL : ARENA_ZNEW(&x.work, groups_group, p->sequences + (size_t)1);
    uint32_t *of = code ? NULL : ARENA_NEW(&x.work, uint32_t, p->sequences + (size_t)1);
    if (!code && (!each || !of)) code = FCP_E_NO_MEMORY;
    for (uint32_t i = 0; !code && i < p->sequences; i++) of[i] = i;
    if (!code) code = groups_count(&x, of, each);
    if (!code && (code = groups_model_of(program, &model, &err)))
        planning_fail(&x, code, program->at[AT_STRATEGY], "%s", err.message);
    if (!code && !s->items) {
        s->count = p->sequences;
        s->items = ARENA_ZNEW(&s->memory, split_item, s->count + (size_t)1);
        if (!s->items) code = FCP_E_NO_MEMORY;
    }
    const uint64_t most = (UINT64_C(1) << 62) / (s->count + (uint64_t)1); /* so that sums are exact */
    for (uint32_t i = 0; !code && i < s->count; i++) {
        const unsigned __int128 cost = s->items[i].cost + (unsigned __int128)groups_time(&model, &each[i], 1) * times;
        s->items[i].cost = cost < most ? (uint64_t)cost : most;
        s->items[i].tokens = p->queries[i] > p->lengths[i] ? p->queries[i] : p->lengths[i];
    }
    passes_end(&x);
    return code;
}

/* Whether groups can be made of these sequences that need no more ranks than there are. */
static bool can_pack(void *context, const uint32_t *items, uint32_t count) {
    splitting *s = context;
    arena scratch = {0};
    uint32_t made;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) s->size[i] = s->items[items[i]].tokens;
    const fcp_code code = groups_pack(s->size, count, s->tokens, s->ranks, &scratch, s->of, s->groups, &made);
    for (uint32_t g = 0; !code && g < made; g++) sum += s->groups[g].least;
    arena_free(&scratch);
    return !code && sum <= s->ranks;
}

uint64_t split_cap(const fcpc_program *program, const fcpc_split_options *how, uint32_t *out_each) {
    enum { USUAL = 65536 }; /* where the strategy has no cap of its own */
    *out_each = how->tokens ? how->tokens : program->tokens ? program->tokens : USUAL;
    return (uint64_t)*out_each * program->nodes * program->gpus;
}

static fcp_code split(splitting *s, const fcpc_split_options *how, fcpc_diagnostics *d, uint32_t *out_of,
                      uint32_t *out_count) {
    const bool packs = strategy_facts_of[s->program->strategy].packs_sequences;
    const size_t n = s->count + (size_t)1;
    s->size = ARENA_NEW(&s->memory, uint64_t, n);
    s->of = ARENA_NEW(&s->memory, uint32_t, n);
    s->groups = ARENA_NEW(&s->memory, groups_group, n);
    const split_how by = {.cap = split_cap(s->program, how, &s->tokens),
                          .least = how->least,
                          .keep_order = how->keep_order,
                          .accepts = packs ? can_pack : NULL,
                          .context = s};
    fcp_code code = s->size && s->of && s->groups ? FCP_OK : FCP_E_NO_MEMORY;
    if (!code) code = split_items(s->items, s->count, &by, &s->memory, out_of, out_count);
    if (code == FCP_E_VALUE)
        diag_error(d, code, SPAN_NONE, "sequence %u has %llu tokens: more than %u ranks hold at %u tokens each",
                   *out_count, (unsigned long long)s->items[*out_count].tokens, s->ranks, s->tokens);
    return code;
}

fcp_code split_check(const fcpc_split_options *how, fcp_error *err) {
    if (how->tokens < 1u << 24) return FCP_OK;
    return fcp_fail(err, FCP_E_ARGUMENT, "a rank holds at most 2^24 - 1 tokens, and these are %u", how->tokens);
}

fcp_code fcpc_split_batch(const fcpc_program *program, const fcpc_batch *batch, const fcpc_split_options *options,
                          const volatile int *stop, fcpc_diagnostics *d, uint32_t *out_of, double *out_seconds,
                          uint32_t *out_count) {
    fcpc_diagnostics *unheard = d ? NULL : fcpc_diagnostics_new();
    if (!d && !unheard) return FCP_E_NO_MEMORY;
    if (!d) d = unheard;
    fcpc_batch own;
    fcpc_split_options how;
    fcp_error err;
    fcp_code code = fcp_sized_read(&own, sizeof own, batch, "fcpc_batch", &err);
    if (!code) code = fcp_sized_read(&how, sizeof how, options, "fcpc_split_options", &err);
    if (!code) code = split_check(&how, &err);
    if (code) diag_error(d, code, SPAN_NONE, "%s", err.message);
    splitting s = {.program = program, .ranks = program->nodes * program->gpus};
    if (!code) code = add_costs(&s, program, program->layer_count ? program->layers[0].times : 1, &own, stop, d);
    for (uint32_t i = 1; !code && i < program->layer_count; i++)
        code = add_costs(&s, program->layers[i].program, program->layers[i].times, &own, stop, d);
    if (!code) code = split(&s, &how, d, out_of, out_count);
    for (uint32_t i = 0; !code && out_seconds && i < *out_count; i++) out_seconds[i] = 0;
    for (uint32_t i = 0; !code && out_seconds && i < s.count; i++)
        out_seconds[out_of[i]] += (double)s.items[i].cost * 1e-12 / s.ranks;
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    arena_free(&s.memory);
    fcpc_diagnostics_free(unheard);
    return code;
}
