/* groups_cut.c: the groups strategy on a problem: packs its sequences, gives groups their ranks, and cuts blocks.
 *
 * Requires: a problem without blocks.
 * Gives: x->grouping, and pieces and blocks. A block ends at multiples of x->block from the beginning of a chunk, and
 *     where another rank's tokens begin. All rows of a block are computed by one rank.
 * Cost: sorting the sequences and the pieces; counting the cells of each distinct length, or of each sequence if the
 *     mask reads an array.
 *
 * Cutting. A group of d ranks cuts each of its sequences into d chunks (ring) or 2 d (zigzag). Rank i of the group
 * computes chunk i, in zigzag also chunk 2 d - 1 - i, and needs all keys of the group.
 * A sequence of n tokens is cut into `parts` chunks at floor((i n + f) / parts), where f is the number of tokens of
 * earlier sequences of the group, modulo parts. Without f, the few tokens of very short sequences would all be in their
 * last chunk, and so on one rank. Example: sequences of one token, two chunks: with f = 0 the token is in chunk 1, with
 * f = 1 in chunk 0.
 *
 * Which ranks a group gets depends on the layout:
 *   - layout = planned: chunks are at home where they are computed. Large groups take whole nodes, and small ones share
 *     nodes, best fit: a group of at most a node's ranks is on one node, unless no node has room for it.
 *   - A stated layout: tokens stay where they are, and their queries, keys and results travel. Groups take ranks in the
 *     order in which their tokens lie, so that what is near in the batch is near on the cluster.
 */
#include "compiler/place/groups/groups.h"
#include "runtime/plan/bytes.h"

#include <stdio.h>

#include "compiler/base/sort.h"
#include "compiler/planning/pair.h"
#include "compiler/problem/bins.h"
#include "compiler/problem/faults.h"
#include "compiler/problem/problem.h"
#include "compiler/simulate/profile.h"

/* --- the model ---------------------------------------------------------------------------------------------------- */

fcp_code groups_model_of(const struct fcpc_program *g, groups_model *out, fcp_error *err) {
    const fcp_problem p = problem_early_facts(g);
    sim_profile profile;
    fcp_code code = g->profile ? FCP_OK : sim_profile_of(&g->cluster, &profile, err);
    if (code) return code;
    if (g->profile) profile = *g->profile;
    const uint64_t latency = g->cluster.latency_ns * 1000;
    *out = (groups_model){.gpus = g->gpus, .ring = g->shape == GROUPS_RING,
                          .latency = {[FCP_NET] = latency, [FCP_LOCAL] = latency},
                          .rate = {[FCP_NET] = g->cluster.inter, [FCP_LOCAL] = g->cluster.intra}};
    if (profile.local && profile.local < latency) out->latency[FCP_LOCAL] = profile.local;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!g->passes[pass]) continue;
        const sim_kernel k = sim_profile_kernel(&profile, (fcp_pass)pass, g->head_dim, g->value_dim);
        out->pass[pass] = (groups_pass){.cell = k.at[SIM_FULL] * g->heads,
                                        .launch = k.at[SIM_LAUNCH],
                                        .bytes = fcp_class_bytes(&p, FCP_KV, (fcp_pass)pass),
                                        .linear = g->linear[pass]};
        if (pass == FCP_BACKWARD) out->pass[pass].bytes += fcp_class_bytes(&p, FCP_DKV, FCP_BACKWARD);
    }
    return FCP_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

enum { TOKENS_TEXT = 24 };
static void print_tokens(uint64_t n, char out[TOKENS_TEXT]) {
    if (n % 1024) snprintf(out, TOKENS_TEXT, "%llu", (unsigned long long)n);
    else snprintf(out, TOKENS_TEXT, "%lluK", (unsigned long long)n / 1024);
}

/* Hints at a number of tokens a rank with which all sequences fit: a multiple of 1024, or of 16 if it is below 1024. */
static void hint_tokens(planning *x, const uint64_t *size, uint64_t tokens, groups_group *groups, uint32_t *of) {
    const problem *p = x->problem;
    for (bool good = false; !good && tokens < BINS_SPACE_MAX; tokens += tokens / 16) {
        uint32_t count = 0;
        uint64_t sum = 0;
        arena scratch = {0};
        const uint64_t step = tokens < 1024 ? 16 : 1024;
        tokens = (tokens + step) / step * step;
        fcp_code code = tokens < BINS_SPACE_MAX ? groups_pack(size, p->sequences, (uint32_t)tokens, p->ranks, &scratch,
                                                              of, groups, &count) : FCP_E_VALUE;
        if (!code) {
            for (uint32_t i = 0; i < count; i++) sum += groups[i].least;
            good = sum <= p->ranks;
        }
        arena_free(&scratch);
        char each[TOKENS_TEXT];
        print_tokens(tokens, each);
        if (good) diag_hint(x->d, "groups(tokens = %s) would do", each);
    }
}

/* Reports that the batch does not fit on the ranks. s: the sequence that is too long by itself; FCP_NONE: all groups
 * together need too many ranks. */
static fcp_code report_too_few(planning *x, const uint64_t *size, uint32_t s, uint64_t ranks, groups_group *groups,
                        uint32_t *of) {
    const uint32_t tokens = x->program->tokens;
    char each[TOKENS_TEXT], who[64] = "the sequences need";
    print_tokens(tokens, each);
    if (s != FCP_NONE)
        snprintf(who, sizeof who, "sequence %u (%llu tokens) needs", s, (unsigned long long)size[s]);
    diag_error(x->d, FCP_E_VALUE, planning_span(x, x->program->at[AT_STRATEGY]),
               "groups: %s %llu ranks at %s tokens each; there are %u", who, (unsigned long long)ranks, each,
               x->problem->ranks);
    hint_tokens(x, size, s == FCP_NONE ? tokens : (size[s] - 1) / x->problem->ranks, groups, of);
    return FCP_E_VALUE;
}

/* What one thread does: counts the cells of sequences first to end - 1, in order of length. */
typedef struct counting {
    cells *of;
    const uint64_t *keys; /* of all sequences; the lower 24 bits are the sequence */
    uint32_t first, end, sequence;
    cells_counts *found; /* per sequence */
    cells_fault fault;
} counting;

/* Counts the cells of one thread's sequences. Sequences of equal lengths have equal cells, unless the mask reads an
 * array. Reports no error, because this may be the second thread. */
static fcp_code count_stretch(planning *x, void *given) {
    counting *g = given;
    const problem *p = x->problem;
    const bool alike = !p->binding || !p->binding->arrays;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0, before = FCP_NONE; i < p->sequences && !code; i++) {
        const uint32_t s = (uint32_t)(g->keys[i] & 0xffffff);
        if (s < g->first || s >= g->end) continue;
        g->sequence = s;
        bool same =
            before != FCP_NONE && alike && p->lengths[before] == p->lengths[s] && p->queries[before] == p->queries[s];
        const mc_env env = problem_env(p, s);
        if (planning_stopped_at(x, i)) code = FCP_E_INTERRUPTED;
        else if (same) g->found[s] = g->found[before];
        else code = cells_count(g->of, &env, &g->found[s], &g->fault);
        before = s;
    }
    return code;
}

/* A `cells` object evaluates the mask over sequences. If such objects are
 * kept for further plannings, a second thread counts half of the sequences with an object of its own. */
fcp_code groups_count(planning *x, const uint32_t *of, groups_group *groups) {
    const problem *p = x->problem;
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)p->sequences + 1);
    counting a = {.keys = keys, .end = p->sequences, .found = ARENA_NEW(&x->scratch, cells_counts, p->sequences)};
    if (!keys || !a.found) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < p->sequences; s++) keys[s] = p->lengths[s] << 24 | s; /* equal ones side by side */
    sort_u64(keys, keys + p->sequences, p->sequences);
    counting b = a;
    if (x->kept) a.end = b.first = problem_second(p);
    else b.first = p->sequences;
    const bool two = b.first < b.end;
    fcp_code code = problem_open_mask(x, &a.of);
    b.of = a.of;
    if (!code && two) code = problem_open_second(x, &b.of);
    if (!code) code = pair_make(x, two, (pair_piece){count_stretch, &a}, (pair_piece){count_stretch, &b});
    for (int i = 0; i < 2; i++) {
        const counting *g = i ? &a : &b;
        if (g->fault.kind == MC_OK) continue;
        code = faults_report(x, code, FAULTS_MASK, g->sequence, &g->fault);
        break;
    }
    for (uint32_t s = 0; s < p->sequences && !code; s++) {
        groups_group *g = &groups[of[s]];
        g->full += a.found[s].full;
        g->partial += a.found[s].partial;
        g->cells += a.found[s].full + a.found[s].partial + a.found[s].none;
        g->queries += p->queries[s];
        g->keys += p->lengths[s];
    }
    if (b.of != a.of) problem_close_mask(x, &b.of);
    problem_close_mask(x, &a.of);
    return code;
}

static fcp_code make_groups(planning *x, grouping *out) {
    const problem *p = x->problem;
    uint64_t *size = ARENA_NEW(&x->scratch, uint64_t, p->sequences), sum = 0;
    groups_model model;
    fcp_error err = {0};
    out->groups = ARENA_NEW(&x->work, groups_group, p->sequences);
    out->of = ARENA_NEW(&x->work, uint32_t, p->sequences);
    if (!size || !out->groups || !out->of) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < p->sequences; s++) size[s] = p->queries[s] > p->lengths[s] ? p->queries[s] : p->lengths[s];
    const uint32_t tokens = x->program->tokens;
    fcp_code code = groups_pack(size, p->sequences, tokens, p->ranks, &x->scratch, out->of, out->groups, &out->count);
    if (code == FCP_E_VALUE)
        return report_too_few(x, size, out->count, size[out->count] / tokens + (size[out->count] % tokens != 0),
                              out->groups, out->of);
    for (uint32_t i = 0; i < out->count && !code; i++) sum += out->groups[i].least;
    if (sum > p->ranks) return report_too_few(x, size, FCP_NONE, sum, out->groups, out->of);
    if (!code) code = groups_count(x, out->of, out->groups);
    if (code) return code;
    code = groups_model_of(x->program, &model, &err);
    if (code) return planning_fail(x, code, x->program->at[AT_STRATEGY], "%s", err.message);
    return groups_choose(&model, out->groups, out->count, p->ranks, &x->scratch);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

/* Gives groups their ranks, the largest group first. A group gets ranks of the fullest node that has room for it; if no
 * node has, ranks of several nodes. */
static fcp_code take_nodes(planning *x, grouping *g) {
    const uint32_t gpus = x->program->gpus, nodes = x->program->nodes;
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)g->count + 1);
    uint32_t *next = ARENA_NEW(&x->scratch, uint32_t, nodes); /* ranks of the node that have been given away */
    bins b;
    if (!keys || !next || !bins_init(&b, &x->scratch, gpus, nodes)) return FCP_E_NO_MEMORY;
    for (uint32_t n = nodes; n-- > 0;) { /* node 0 on top */
        next[n] = 0;
        bins_put(&b, gpus, n);
    }
    for (uint32_t i = 0; i < g->count; i++) keys[i] = g->groups[i].degree;
    order_falling(keys, keys + g->count, g->count);
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t which = (uint32_t)keys[i], *at = g->ranks + g->first[which], left = g->groups[which].degree;
        while (left) {
            uint32_t ask = left < gpus ? left : gpus, space = 0, n;
            while ((n = bins_take(&b, ask, &space)) == FCP_NONE) ask--; /* no node has so many: use up the fullest */
            for (uint32_t k = 0; k < ask; k++) *at++ = n * gpus + next[n]++;
            if (space > ask) bins_put(&b, space - ask, n);
            left -= ask;
        }
    }
    return FCP_OK;
}

/* Gives groups their ranks in the order in which their queries lie on the caller's ranks. runs: where the queries are,
 * by sequence. */
static fcp_code take_neighbours(planning *x, grouping *g, const problem_run *runs, uint32_t count) {
    unsigned __int128 *sum = ARENA_ZNEW(&x->scratch, unsigned __int128, g->count);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)g->count + 1);
    if (!sum || !keys) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        sum[g->of[runs[i].sequence]] += (unsigned __int128)runs[i].rank * (runs[i].end - runs[i].start);
    for (uint32_t i = 0; i < g->count; i++) /* the mean rank, in 128ths of a rank */
        keys[i] = (uint64_t)(sum[i] * 128 / (g->groups[i].queries ? g->groups[i].queries : 1));
    order_rising(keys, keys + g->count, g->count);
    for (uint32_t i = 0, rank = 0; i < g->count; i++)
        for (uint32_t which = (uint32_t)keys[i], k = 0; k < g->groups[which].degree; k++)
            g->ranks[g->first[which] + k] = rank++;
    return FCP_OK;
}

/* --- pieces and blocks -------------------------------------------------------------------------------------------- */

typedef struct cutter {
    planning *x;
    const grouping *g;
    problem_part *parts;
    uint32_t *rank; /* per part: who computes its rows */
    size_t count, room, rank_room;
    size_t first;   /* part of the chunk at hand */
} cutter;

/* Cuts the tokens `at` to `end` - 1 of a chunk into parts of a block's size. A shorter part at the end may share a
 * block with parts of other sequences that have the same home and the same `place`. */
static fcp_code add_parts(cutter *c, problem_part of, uint64_t at, uint64_t end, uint32_t rank, uint32_t place) {
    const uint32_t block = c->x->problem->block;
    for (; at < end; at += of.length) {
        of.start = at;
        of.length = end - at < block ? (uint32_t)(end - at) : block;
        of.place = of.length < block ? place : FCP_NONE;
        for (size_t i = c->first; i < c->count && of.place != FCP_NONE; i++) /* no two of a sequence in a block */
            if (c->parts[i].home == of.home && c->parts[i].place == of.place) of.place = FCP_NONE;
        c->parts = arena_grow(&c->x->scratch, c->parts, c->count, &c->room, sizeof *c->parts);
        c->rank = arena_grow(&c->x->scratch, c->rank, c->count, &c->rank_room, sizeof *c->rank);
        if (!c->parts || !c->rank) return FCP_E_NO_MEMORY;
        c->rank[c->count] = rank;
        c->parts[c->count++] = of;
    }
    return FCP_OK;
}

/* Cuts one side (queries or keys) of all sequences. runs: where the caller holds the tokens, by sequence and start.
 * NULL: chunks are at home where they are computed. */
static fcp_code cut_side(cutter *c, fcp_side side, const problem_run *runs) {
    const problem *p = c->x->problem;
    const grouping *g = c->g;
    uint64_t *before = ARENA_ZNEW(&c->x->scratch, uint64_t, g->count); /* tokens of earlier sequences of each group */
    if (!before) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < p->sequences; s++) {
        const uint32_t of = g->of[s], d = g->groups[of].degree;
        const uint32_t per_rank = d > 1 && p->program->shape == GROUPS_ZIGZAG ? 2 : 1, chunks = d * per_rank;
        const uint64_t n = problem_length(p, s, side), shift = before[of] % chunks;
        if (planning_stopped_at(c->x, s)) return FCP_E_INTERRUPTED;
        before[of] += n;
        uint64_t at = 0;
        for (uint32_t i = 0; i < chunks; i++) {
            const uint64_t chunk_end = (uint64_t)(((unsigned __int128)n * (i + 1) + shift) / chunks);
            const uint32_t rank = g->ranks[g->first[of] + place_chunk(i, d, per_rank)];
            problem_part part = {.sequence = s, .home = rank, .holds = p->split ? 1u << side : FCP_HOLDS_BOTH};
            c->first = c->count;
            while (at < chunk_end) {
                uint64_t end = chunk_end;
                if (runs) {
                    while (runs->sequence < s || runs->end <= at) runs++;
                    part.home = runs->rank;
                    if (runs->end < end) end = runs->end;
                }
                fcp_code code = add_parts(c, part, at, end, rank, 2 * g->first[of] + i);
                if (code) return code;
                at = end;
            }
        }
        if (c->count > UINT32_MAX / 4)
            return planning_fail(c->x, FCP_E_PLAN_SIZE, planning_size_span(c->x),
                                 "more than 2^30 pieces are more than a plan holds");
    }
    return FCP_OK;
}

fcp_code groups_cut(planning *x) {
    problem *p = x->problem;
    const bool in_place = x->program->layout != FCP_LAYOUT_PLANNED;
    grouping *g = ARENA_ZNEW(&x->work, grouping, 1);
    cutter c = {.x = x, .g = g};
    problem_run *runs[FCP_SIDES] = {NULL};
    uint32_t count[FCP_SIDES] = {0};
    if (!g) return FCP_E_NO_MEMORY;
    fcp_code code = problem_check_blocks(x);
    if (!code) code = make_groups(x, g);
    if (code) return code;
    g->first = ARENA_NEW(&x->work, uint32_t, g->count + (size_t)1);
    g->ranks = ARENA_NEW(&x->work, uint32_t, p->ranks);
    if (!g->first || !g->ranks) return FCP_E_NO_MEMORY;
    g->first[0] = 0;
    for (uint32_t i = 0; i < g->count; i++) g->first[i + 1] = g->first[i] + g->groups[i].degree;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && in_place && !code; side++)
        code = problem_held(x, (fcp_side)side, &runs[side], &count[side]);
    if (!code) code = in_place ? take_neighbours(x, g, runs[0], count[0]) : take_nodes(x, g);
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && !code; side++)
        code = cut_side(&c, (fcp_side)side, runs[side]);
    if (!code) code = problem_pack(x, c.parts, c.count, &g->home);
    g->rank = code ? NULL : ARENA_NEW(&x->work, uint32_t, p->block_count);
    if (!code && !g->rank) code = FCP_E_NO_MEMORY;
    for (size_t i = 0; i < c.count && !code; i++) g->rank[c.parts[i].block] = c.rank[i];
    if (!code) x->grouping = g;
    return code;
}

/* --- placing ------------------------------------------------------------------------------------------------------ */

fcp_code place_by_groups(planning *x, const place_input *in, uint32_t *home) {
    for (uint32_t b = 0; b < in->blocks; b++) home[b] = x->grouping->home[b];
    return FCP_OK;
}

fcp_code exec_by_groups(planning *x, const uint32_t *home, uint32_t *exec) {
    (void)home;
    for (uint32_t t = 0; t < x->problem->tile_count; t++) exec[t] = x->grouping->rank[x->problem->tile_q[t]];
    return FCP_OK;
}
