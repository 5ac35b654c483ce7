/* compile.c: the pipeline, on one page: fcpc_plan.
 *
 *   program + batch
 *     -> binding    fields and tables                       problem/bind.c
 *     -> problem    blocks and tiles                        problem/problem.c, cells/cells.c (box/box.c, box/rows.c)
 *     -> homes      the strategy                            place_*.c
 *     -> traffic    fetches                                 schedule/traffic.c
 *     -> reshuffle  the caller's layout                     schedule/reshuffle.c
 *     -> schedule   arrivals, stages, visits                schedule/schedule.c, schedule/colour.c
 *     -> slots      lifetimes to places                     schedule/slots.c
 *     -> rounds     of both passes                          schedule/rounds.c, schedule/colour.c
 *     -> plan       tables, instructions, summary           lower/lower.c
 *     -> verified   independently                           ../runtime/verify/verify.c
 *
 * What a plan keeps is made in `memory`, which the plan then owns; what passes hand to each other, in `work`; what a
 * pass needs for itself, in `scratch`, reset between passes. All of them come from the program's workspace and go
 * back there for the next batch, a plan's when the plan is freed. Errors of the batch are the user's; a plan that does
 * not verify is a bug of ours (FCP_E_INTERNAL).
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "compiler/lower/lower.h"
#include "compiler/place/place.h"
#include "compiler/base/sized.h"
#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/problem/warn.h"
#include "compiler/workspace.h"

typedef struct run {
    const struct fcpc_program *program;
    const volatile int *stop;
    diags *d;
    uint32_t shift;      /* of the program's spans in d */
    fcpc_times times;
    const uint64_t *lengths, *queries; /* of the batch; queries NULL: as many as keys */
    size_t count;
    arena memory, work, scratch;
    cells *cells;
    binding binding;
    uint32_t fault_sequence; /* in which the mask faults */
    problem problem;
    uint32_t *home;
} run;

static span place_of(const run *r, span s) {
    if (s.source != SPAN_NONE.source) s.source += r->shift;
    return s;
}

static fcp_code report(const run *r, fcp_code code, span at, const fcp_error *err) {
    diag_error(r->d, code, place_of(r, at), "%s", err->message[0] ? err->message : fcp_code_text(code));
    return code;
}

static bool stopped(const run *r) { return r->stop && *r->stop; }

/* --- problem ------------------------------------------------------------------------------------------------------ */

/* The rest that `exact` found, by the shape expr/expr.c gives it: a / (if a % b == 0 then b else 0). */
static bool is_exact(mc_code mask, uint32_t node, uint32_t *a, uint32_t *b) {
    const mc_node *x = &mask.nodes[node], *y = x->op == MC_DIV ? &mask.nodes[x->b] : NULL;
    if (!y || y->op != MC_IF_I || mask.nodes[y->c].op != MC_CONST_I || mask.nodes[y->c].imm) return false;
    const mc_node *even = &mask.nodes[y->a];
    if (even->op != MC_EQ) return false;
    const mc_node *rest = &mask.nodes[mask.nodes[even->a].op == MC_MOD ? even->a : even->b];
    *a = x->a;
    *b = y->b;
    return rest->op == MC_MOD && rest->a == *a && rest->b == *b;
}

/* The values of all nodes where the mask, or the code that finds the score's faults, faults. */
static int64_t *fault_values(run *r, mc_code mask, const cells_fault *f) {
    int64_t *values = ARENA_NEW(&r->scratch, int64_t, mask.count);
    const mc_env env = bind_sequence(&r->binding, r->fault_sequence);
    if (values) mc_eval(mask, &env, f->q, f->k, f->h, values);
    return values;
}

/* A place outside the program's own text, as in the prelude: whose it is. */
static void tell_call(run *r, mc_code code, span at) {
    const bool mask = code.nodes == r->program->mask.nodes;
    const span call = mask ? r->program->mask_span : r->program->score_span;
    if (at.source != call.source) diag_also(r->d, place_of(r, call), mask ? "of this mask" : "of this score");
}

static fcp_code report_exact(run *r, mc_code mask, const span *spans, const cells_fault *f, uint32_t a, uint32_t b) {
    int64_t *values = fault_values(r, mask, f);
    if (!values) return FCP_E_NO_MEMORY;
    const int64_t dividend = values[a], divisor = values[b];
    bool fixed = true; /* of n alone: no q, k or h among what the two need */
    memset(values, 0, mask.count * sizeof *values);
    values[a] = values[b] = 1;
    for (uint32_t i = f->node; i-- > 0;) {
        const mc_node *x = &mask.nodes[i];
        if (!values[i]) continue;
        fixed &= x->op != MC_Q && x->op != MC_K && x->op != MC_H && x->op != MC_LOAD && x->op != MC_LOAD2;
        if (x->a != MC_NONE) values[x->a] = 1;
        if (x->b != MC_NONE) values[x->b] = 1;
        if (x->c != MC_NONE) values[x->c] = 1;
    }
    span at = spans[f->node];
    diag_error(r->d, FCP_E_MASK_EXACT, place_of(r, at), "%lld is not a multiple of %lld in a sequence of %lld tokens",
               (long long)dividend, (long long)divisor, (long long)f->n);
    if (!fixed)
        diag_hint(r->d, "for q = %lld, k = %lld and head %lld", (long long)f->q, (long long)f->k, (long long)f->h);
    tell_call(r, mask, at);
    return FCP_E_MASK_EXACT;
}

/* An element that an array does not have: which, and what it has. */
static fcp_code report_index(run *r, mc_code mask, const span *spans, const cells_fault *f) {
    const mc_node *x = &mask.nodes[f->node];
    const program_array *a = &r->program->arrays[x->imm];
    const mc_env env = bind_sequence(&r->binding, r->fault_sequence);
    const mc_array *bound = &env.arrays[x->imm];
    const int64_t *values = fault_values(r, mask, f);
    if (!values) return FCP_E_NO_MEMORY;
    text what = {0};
    long long i = values[x->a], j = x->op == MC_LOAD2 ? values[x->b] : 0, end = bound->first + bound->count;
    if (a->record.kind != FCP_TABLE)
        text_printf(&what, "position %lld of field '%s', which has %lld to %lld", i, a->name, (long long)bound->first,
                    end - 1);
    else if (x->op == MC_LOAD2)
        text_printf(&what, "element [%lld, %lld] of table '%s', which is %lld by %u", i, j, a->name, end,
                    bound->columns);
    else text_printf(&what, "element %lld of table '%s', which has %lld", i, a->name, end);
    if (mc_uses(mask) & MC_USES_H) text_printf(&what, ", for h = %lld,", (long long)f->h);
    else text_puts(&what, ", for");
    char *line = text_take(&what);
    if (!line) return FCP_E_NO_MEMORY;
    diag_error(r->d, FCP_E_MASK_INDEX, place_of(r, spans[f->node]),
               "%s q = %lld, k = %lld in a sequence of %lld tokens", line, (long long)f->q, (long long)f->k,
               (long long)f->n);
    free(line);
    if (r->problem.sequences != 1 && a->record.kind != FCP_TABLE)
        diag_hint(r->d, "sequence %u of the batch", r->fault_sequence);
    if (mask.nodes == r->program->mask.nodes)
        diag_hint(r->d, "a condition before it keeps it from being read: q > 0 and ...[q - 1]");
    else diag_hint(r->d, "min and max keep an index inside, or a condition: if q > 0 then ...[q - 1] else 0.0");
    tell_call(r, mask, spans[f->node]);
    return FCP_E_MASK_INDEX;
}

/* A fault of the mask, or of the code that finds the score's. */
static fcp_code report_fault(run *r, fcp_code code, mc_code mask, const span *spans, const cells_fault *f) {
    uint32_t a, b;
    if (f->kind == MC_INDEX && f->node < mask.count) return report_index(r, mask, spans, f);
    if (f->kind == MC_DIV_ZERO && f->node < mask.count && is_exact(mask, f->node, &a, &b))
        return report_exact(r, mask, spans, f, a, b);
    const char *what = f->kind == MC_DIV_ZERO ? "division by zero" : "overflow of a 64-bit integer";
    span at = f->node < mask.count ? spans[f->node] : r->program->mask_span;
    if (mc_uses(mask) & MC_USES_H)
        diag_error(r->d, code, place_of(r, at), "%s for q = %lld, k = %lld, h = %lld in a sequence of %lld tokens",
                   what, (long long)f->q, (long long)f->k, (long long)f->h, (long long)f->n);
    else
        diag_error(r->d, code, place_of(r, at), "%s for q = %lld, k = %lld in a sequence of %lld tokens", what,
                   (long long)f->q, (long long)f->k, (long long)f->n);
    tell_call(r, mask, at);
    return code;
}

static span span_of_error(const run *r, fcp_code code) {
    const struct fcpc_program *g = r->program;
    switch (code) {
    case FCP_E_LENGTHS: return g->lengths_span;
    case FCP_E_RANKS: return g->ranks_span;
    case FCP_E_PLAN_SIZE: return g->block_span.source != SPAN_NONE.source ? g->block_span : g->lengths_span;
    default: return SPAN_NONE;
    }
}

static fcp_code build_problem(run *r, uint32_t block, arena *plan, arena *work, problem *out) {
    cells_fault fault;
    fcp_error err = {0};
    fcp_code code = problem_build(r->program, r->lengths, r->queries, r->count, &r->binding, block, r->cells, plan,
                                  work, &r->scratch, out, &fault, &err);
    arena_reset(&r->scratch);
    if (!code) return FCP_OK;
    r->fault_sequence = out->sequence;
    if (fault.kind != MC_OK) return report_fault(r, code, r->program->mask, r->program->mask_spans, &fault);
    report(r, code, span_of_error(r, code), &err);
    if (code == FCP_E_RANKS && r->program->strategy == FCP_STRATEGY_FCP && block > FCP_CELL)
        diag_hint(r->d, "a smaller block gives more of them: plan.block = %u", block / 2 / FCP_CELL * FCP_CELL);
    return code;
}

/* Does code read a field, of which every sequence has its own part? */
static bool reads_field(const struct fcpc_program *g, mc_code code) {
    for (uint32_t i = 0; i < code.count; i++)
        if ((code.nodes[i].op == MC_LOAD || code.nodes[i].op == MC_LOAD2) &&
            g->arrays[code.nodes[i].imm].record.kind != FCP_TABLE)
            return true;
    return false;
}

/* Faults of the score, for pairs that the mask allows. Where it reads no field and queries and keys are as many, once
 * for each length, or for the longest sequence where the length does not matter. */
static fcp_code check_score(run *r) {
    const struct fcpc_program *g = r->program;
    const problem *p = &r->problem;
    if (g->check.nodes == g->mask.nodes) return FCP_OK;
    bool each = p->split || reads_field(g, g->check), by_length = mc_uses(g->check) & MC_USES_N;
    uint64_t *order = ARENA_NEW(&r->scratch, uint64_t, p->sequences),
             *room = ARENA_NEW(&r->scratch, uint64_t, p->sequences);
    uint32_t *kept = ARENA_NEW(&r->scratch, uint32_t, p->sequences), count = 0;
    cells *check = cells_new(g->check, g->heads);
    fcp_code code = order && room && kept && check ? FCP_OK : FCP_E_NO_MEMORY;
    if (!code) {
        cells_set_stop(check, r->stop);
        memcpy(order, p->lengths, p->sequences * sizeof *order);
        sort_u64(order, room, p->sequences);
        for (uint32_t i = 0; i < p->sequences; i++) /* the distinct ones */
            if (i + 1 == p->sequences || (order[i] != order[i + 1] && by_length)) order[count++] = order[i];
        uint32_t lengths = count;
        count = 0;
        memset(room, 0, p->sequences * sizeof *room);
        for (uint32_t s = 0; s < p->sequences; s++) {
            uint32_t lo = 0, hi = lengths;
            while (lo < hi) {
                uint32_t middle = lo + (hi - lo) / 2;
                if (order[middle] < p->lengths[s]) lo = middle + 1;
                else hi = middle;
            }
            bool first = lo < lengths && order[lo] == p->lengths[s] && !room[lo];
            if (first) room[lo] = 1; /* this length has its sequence */
            if (first || each) kept[count++] = s;
        }
    }
    for (uint32_t i = 0; i < count && !code; i++) {
        cells_counts counts;
        cells_fault fault = {0};
        const mc_env env = bind_sequence(&r->binding, kept[i]);
        code = cells_count(check, &env, &counts, &fault);
        r->fault_sequence = kept[i];
        if (code && fault.kind != MC_OK) code = report_fault(r, code, g->check, g->check_spans, &fault);
    }
    cells_free(check);
    arena_reset(&r->scratch);
    return code;
}

static bool too_heavy(const run *r, const problem *p) {
    return r->program->strategy == FCP_STRATEGY_FCP && (unsigned __int128)p->heaviest * p->ranks > p->pairs;
}

/* Whether, at a block size, one block is heavier than the mean rank. */
static fcp_code probe(run *r, uint32_t block, bool *out_heavy) {
    arena memory = {0};
    problem p;
    cells *kept = r->cells; /* a plan keeps the shapes of its own size only */
    r->cells = cells_new(r->program->mask, r->program->heads);
    if (r->cells) cells_set_stop(r->cells, r->stop);
    fcp_code code = r->cells ? build_problem(r, block, &memory, &memory, &p) : FCP_E_NO_MEMORY;
    if (!code) *out_heavy = too_heavy(r, &p);
    cells_free(r->cells);
    r->cells = kept;
    arena_free(&memory);
    return code;
}

/* block = auto: of the sizes 16K, 8K, ... 512 at which no block is heavier than the mean rank, the largest that leaves
 * every rank eight blocks to balance with; but if computing one of its tiles does not cover fetching the tile's KV over
 * the slower fabric, the smallest size that does. Where every size is too heavy, 512. */
static fcp_code choose_block(run *r, uint32_t *out) {
    const struct fcpc_program *g = r->program;
    uint64_t ranks = (uint64_t)g->nodes * g->gpus, bandwidth = g->nodes > 1 ? g->cluster.inter : g->cluster.intra;
    unsigned __int128 tokens = 0;
    for (size_t i = 0; i < r->count; i++) /* that blocks are made of */
        tokens += r->lengths[i] + (r->queries ? r->queries[i] : 0);
    *out = 512;
    for (uint32_t block = 16384; block >= 512; block /= 2) {
        if (tokens / block < ranks) continue;
        if (tokens / block > PROBLEM_BLOCKS_MAX) break;
        bool heavy;
        fcp_code code = probe(r, block, &heavy);
        if (code) return code;
        if (heavy) continue;
        /* 4 heads head_dim block^2 / flops >= 2 kv_heads head_dim bytes block / bandwidth */
        bool covers = ranks == 1 || (unsigned __int128)2 * g->heads * block * bandwidth >=
                                        (unsigned __int128)g->kv_heads * fcp_dtype_size(g->dtype) * g->cluster.flops;
        if (*out > 512 && !covers) break;
        *out = block;
        if (tokens / block >= 8 * ranks) break;
    }
    return FCP_OK;
}

/* A block heavier than the mean rank cannot be balanced at its home: say which size could. */
static fcp_code warn_heavy(run *r) {
    problem *p = &r->problem;
    if (!too_heavy(r, p)) return FCP_OK;
    uint32_t would = 0;
    for (uint32_t block = p->block / 2 / FCP_CELL * FCP_CELL; block >= FCP_CELL;
         block = block / 2 / FCP_CELL * FCP_CELL) {
        bool heavy;
        if (problem_least_blocks(p, block) > PROBLEM_BLOCKS_MAX) break;
        fcp_code code = probe(r, block, &heavy);
        if (code) return code;
        if (!heavy) {
            would = block;
            break;
        }
    }
    uint64_t percent = (uint64_t)((unsigned __int128)p->heaviest * p->ranks * 100 / (p->pairs ? p->pairs : 1));
    diag_warning(r->d, place_of(r, r->program->block_span),
                 "one block of %u tokens is %llu %% of a rank's fair share of work: no placement can balance it",
                 p->block, (unsigned long long)percent);
    if (would)
        diag_hint(r->d, "plan.block = %u would do", would);
    else
        diag_hint(r->d, "no block size would do: there is too little work for %u ranks", p->ranks);
    return FCP_OK;
}

/* --- placement to plan -------------------------------------------------------------------------------------------- */

static fcp_code place(run *r) {
    problem *p = &r->problem;
    r->home = ARENA_NEW(&r->work, uint32_t, p->block_count);
    if (!r->home) return FCP_E_NO_MEMORY;
    place_input in = {.stop = r->stop};
    fcp_code code = place_input_of(p, &r->scratch, &in);
    if (code) return code;
    if (r->program->strategy == FCP_STRATEGY_FCP) {
        code = place_fcp(&in, &r->scratch, r->home);
        return code || !p->split ? code : place_keys(p, &in, &r->scratch, r->home);
    }
    uint32_t per_rank = r->program->strategy == FCP_STRATEGY_ZIGZAG ? 2 : 1;
    uint32_t *chunk_home = ARENA_NEW(&r->scratch, uint32_t, (size_t)p->ranks * per_rank);
    if (!chunk_home) return FCP_E_NO_MEMORY;
    in.blocks = p->ranks * per_rank;
    place_ring(&in, per_rank, chunk_home);
    for (uint32_t b = 0; b < p->block_count; b++) r->home[b] = chunk_home[p->chunk[b]];
    return FCP_OK;
}

typedef struct product {
    traffic traffic;
    reshuffle reshuffle;
    schedule schedule;
    slots slots;
    lowering lowering;
} product;

static fcp_code build_schedule(run *r, product *x, uint32_t coalesce, arena *plan, arena *work) {
    double colouring = 0, start = fcp_clock();
    x->lowering = (lowering){&r->problem, r->home, &x->traffic, &x->reshuffle, &x->schedule, &x->slots, coalesce};
    fcp_code code = schedule_build(&r->problem, r->home, &x->traffic, &x->reshuffle, coalesce, plan, work, &r->scratch,
                                   &colouring, &x->schedule);
    arena_reset(&r->scratch);
    if (!code) code = slots_build(&r->problem, r->home, &x->traffic, &x->schedule, work, &r->scratch, &x->slots);
    arena_reset(&r->scratch);
    if (!code)
        code = rounds_build(&r->problem, r->home, &x->traffic, &x->reshuffle, &x->slots, coalesce, work, &r->scratch,
                            &colouring, &x->schedule);
    arena_reset(&r->scratch);
    r->times.colour += colouring;
    r->times.schedule += fcp_clock() - start - colouring;
    return code;
}

/* The plan does not fit: say how much it needs, and whether a smaller `coalesce` would do. */
static fcp_code report_memory(run *r, product *x, uint64_t peak) {
    uint64_t cap = r->program->memory_cap;
    diag_error(r->d, FCP_E_MEMORY_CAP, place_of(r, r->program->memory_span),
               "the plan needs %llu bytes on its fullest rank, cluster.memory allows %llu", (unsigned long long)peak,
               (unsigned long long)cap);
    for (uint32_t coalesce = x->lowering.coalesce / 2; coalesce; coalesce /= 2) {
        arena memory = {0};
        product smaller = {.traffic = x->traffic, .reshuffle = x->reshuffle};
        fcp_problem fp;
        fcp_code code = build_schedule(r, &smaller, coalesce, &memory, &memory);
        lower_problem(&smaller.lowering, &fp);
        uint64_t bytes = code ? UINT64_MAX : lower_memory_peak(&smaller.lowering, &fp);
        arena_free(&memory);
        if (bytes > cap) continue;
        diag_hint(r->d, "strategy %s(coalesce = %u) would need %llu bytes",
                  fcp_strategy_names[r->program->strategy], coalesce, (unsigned long long)bytes);
        return FCP_E_MEMORY_CAP;
    }
    diag_hint(r->d, "cluster.memory = %llu MB would do, or more ranks",
              (unsigned long long)((peak + 999999) / 1000000));
    return FCP_E_MEMORY_CAP;
}

static fcp_code make_plan(run *r, fcp_plan **out) {
    product x = {0};
    fcp_error err = {0};
    double start = fcp_clock();
    fcp_code code = place(r);
    r->times.place = fcp_clock() - start;
    arena_reset(&r->scratch);
    if (code) return code;
    if (stopped(r)) return FCP_E_INTERRUPTED;

    start = fcp_clock();
    code = traffic_build(&r->problem, r->home, &r->work, &r->scratch, &x.traffic);
    arena_reset(&r->scratch);
    if (code) return code;
    code = reshuffle_build(&r->problem, r->home, &r->memory, &r->work, &r->scratch, &x.reshuffle, &err);
    arena_reset(&r->scratch);
    if (code) return report(r, code, r->program->lengths_span, &err);
    r->times.schedule += fcp_clock() - start;
    if (stopped(r)) return FCP_E_INTERRUPTED;
    code = build_schedule(r, &x, r->program->coalesce, &r->memory, &r->work);
    if (code) return code;
    fcp_problem fp;
    lower_problem(&x.lowering, &fp);
    uint64_t peak = lower_memory_peak(&x.lowering, &fp);
    if (peak > r->program->memory_cap) return report_memory(r, &x, peak);

    start = fcp_clock();
    fcp_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return FCP_E_NO_MEMORY;
    code = lower(&x.lowering, &r->memory, &r->scratch, plan);
    if (!code && !workspace_own(r->program->workspace, &r->memory, plan)) code = FCP_E_NO_MEMORY;
    if (!code) code = fcp_plan_index(plan, &err);
    r->times.schedule += fcp_clock() - start;
    start = fcp_clock();
    if (!code && (code = fcp_plan_check(plan, &err) ? FCP_E_INTERNAL : FCP_OK) == FCP_OK)
        code = fcp_plan_verify(plan, NULL, NULL, &err) ? FCP_E_INTERNAL : FCP_OK;
    r->times.verify = fcp_clock() - start;
    if (code) {
        if (code == FCP_E_INTERNAL)
            diag_error(r->d, code, SPAN_NONE, "the plan does not verify (%s): %s", fcp_code_name(err.code),
                       err.message);
        fcp_plan_free(plan);
        return code;
    }
    *out = plan;
    return FCP_OK;
}

/* Slices that hold positions which no sequence has are a mistake of the file or of the batch. */
static fcp_code check_slices(const run *r) {
    uint64_t longest = 0; /* positions of a sequence: of its keys, and of queries that begin where they do */
    const uint64_t *queries = r->program->align == FCP_TOP_LEFT && r->queries ? r->queries : r->lengths;
    for (size_t i = 0; i < r->count; i++) {
        if (r->lengths[i] > longest) longest = r->lengths[i];
        if (queries[i] > longest) longest = queries[i];
    }
    for (uint32_t i = 0; i < r->program->slices_count; i++) {
        const program_slices *s = &r->program->slices_about[i];
        if ((uint64_t)s->reach <= longest) continue;
        const char *word = *s->file ? "slice of line" : "slice";
        diag_error(r->d, FCP_E_SLICES, place_of(r, s->at),
                   "%s %u%s%s%s reaches to position %lld; the longest sequence has %llu tokens", word, s->reach_line,
                   *s->file ? " of '" : "", s->file, *s->file ? "'" : "", (long long)s->reach,
                   (unsigned long long)longest);
        diag_hint(r->d, "positions count from the start of each sequence; q1 and k1 are the positions after the last");
        return FCP_E_SLICES;
    }
    return FCP_OK;
}

static fcp_code plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                           fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    double start = fcp_clock();
    run r = {.program = program, .stop = stop, .d = d, .shift = program_attach(program, d)};
    r.times.parse = program->parse_seconds;
    bool own = !batch->lengths;
    r.lengths = own ? program->lengths : batch->lengths;
    r.queries = own ? program->queries : batch->queries;
    r.count = own ? program->length_count : batch->count;
    fcp_code code = FCP_OK;
    if (!r.lengths) {
        diag_error(d, FCP_E_MISSING, SPAN_NONE, "no batch: the program has no lengths and none were given");
        return FCP_E_MISSING;
    }
    if (own && batch->queries) {
        diag_error(d, FCP_E_LENGTHS, SPAN_NONE, "the batch has queries without lengths, that is keys");
        return FCP_E_LENGTHS;
    }
    r.memory = workspace_take(program->workspace, WORKSPACE_PLAN);
    r.work = workspace_take(program->workspace, WORKSPACE_WORK);
    r.scratch = workspace_take(program->workspace, WORKSPACE_SCRATCH);
    r.cells = cells_new(program->mask, program->heads);
    if (r.cells) cells_set_stop(r.cells, stop);
    else code = FCP_E_NO_MEMORY;
    if (!code) code = check_slices(&r);
    if (!code) code = bind_batch(program, batch, &r.memory, &r.work, d, r.shift, &r.binding);
    uint32_t block = program->block ? program->block : 4096;
    if (!code && program->block == BLOCK_AUTO && program->strategy == FCP_STRATEGY_FCP)
        code = choose_block(&r, &block);
    if (!code) code = build_problem(&r, block, &r.memory, &r.work, &r.problem);
    if (!code) code = check_score(&r);
    if (!code) code = warn_heavy(&r);
    if (!code) code = warn_batch(program, &r.problem, r.cells, stop, d, r.shift, &r.scratch);
    arena_reset(&r.scratch);
    r.times.classify = fcp_clock() - start;
    if (!code && stopped(&r)) code = FCP_E_INTERRUPTED;
    if (!code) code = make_plan(&r, out_plan);
    workspace_give(program->workspace, WORKSPACE_PLAN, &r.memory);
    workspace_give(program->workspace, WORKSPACE_WORK, &r.work);
    workspace_give(program->workspace, WORKSPACE_SCRATCH, &r.scratch);
    cells_free(r.cells);
    r.times.total = r.times.parse + fcp_clock() - start;
    if (out_times) *out_times = r.times;
    if (code && diag_first_code(d) == FCP_OK) diag_error(d, code, SPAN_NONE, "%s", fcp_code_text(code));
    return code;
}

fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    fcpc_diagnostics *unheard = d ? NULL : fcpc_diagnostics_new();
    if (!d && !unheard) return FCP_E_NO_MEMORY;
    fcpc_batch own;
    fcp_error err;
    fcp_code code = sized_read(&own, sizeof own, batch, "fcpc_batch", &err);
    if (code) diag_error(d ? d : unheard, code, SPAN_NONE, "%s", err.message);
    else code = plan_batch(program, &own, stop, d ? d : unheard, out_times, out_plan);
    fcpc_diagnostics_free(unheard);
    return code;
}

fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    return fcpc_plan_batch(program, &batch, stop, d, out_times, out_plan);
}
