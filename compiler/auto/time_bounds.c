/* time_bounds.c: lower bounds on the time of a candidate, found before its schedule is made.
 *
 * Requires: a placement with its routes. For candidates that cut sequences evenly, and for groups, only what the mask
 *     allows in each sequence.
 * Gives: for each pass the time that the busiest rank computes, the time that the busiest port of each fabric sends or
 *     receives, and the largest of these. The simulator predicts no less: it uses the same times of cells and bytes.
 * Cost: O(parts + hops + bundles + ranks). Planning the rest takes many times that.
 *
 * A margin is a number of SMs that attention leaves to communication. If the program states none, the plan gets the one
 * with which it is fastest (passes/choose_margin.c). So the bound is the smallest over all margins that it may get.
 *
 * There are three kinds of bounds:
 *   1. Most candidates: from the placement and the routes, as above.
 *   2. Even cuts (ring, zigzag). Zigzag over 256 ranks makes 512 chunks of a few tokens of every sequence. To find
 *      their tiles takes minutes, and the plan is slow. Two facts rule it out at once:
 *      - A cell of 128 x 128 pairs takes the same time if only 4 x 4 of them exist. So W pairs in chunks of c tokens
 *        take the time of at least W / c^2 cells.
 *      - A node has x rows and y keys of a sequence. These make at most x y pairs, and each key that it fetches adds at
 *        most x. So N nodes fetch at least (W - N x y) / x keys.
 *   3. The strategy `groups`. Cutting its blocks would evaluate the mask on pieces that no other strategy has. Its
 *      bound does without: the lengths alone say which sequences share ranks. If no rank may compute more than t pairs,
 *      a group of sequences with W pairs needs W / t ranks, rounded up. Example: groups of 30, 20 and 20 pairs on four
 *      ranks. With t = 18 they would need two ranks each, six in all. With t = 20 they need four.
 */
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/base/bisect.h"
#include "compiler/place/groups/groups.h"
#include "compiler/problem/problem.h"
#include "compiler/schedule/reshuffle.h"
#include "compiler/schedule/traffic.h"
#include "compiler/simulate/cost_model.h"
#include "runtime/plan/bytes.h"

typedef unsigned __int128 wide;

static uint64_t narrow(wide v) { return v > UINT64_MAX / 8 ? UINT64_MAX / 8 : (uint64_t)v; }
static void raise(uint64_t *to, uint64_t v) {
    if (v > *to) *to = v;
}

/* The bytes and units that a rank's ports send and receive. */
typedef struct port {
    uint64_t bytes[FCP_FABRICS][2], units[FCP_FABRICS][2]; /* [fabric][FCP_SEND or FCP_RECV] */
} port;

static void carry(port *ports, uint32_t from, uint32_t to, int fabric, uint64_t bytes, uint64_t units) {
    ports[from].bytes[fabric][FCP_SEND] += bytes, ports[from].units[fabric][FCP_SEND] += units;
    ports[to].bytes[fabric][FCP_RECV] += bytes, ports[to].units[fabric][FCP_RECV] += units;
}

static void load_ports(const planning *x, const fcp_problem *facts, fcp_pass pass, port *ports) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    for (const hop *h = t->hops; h < t->hops + t->count; h++) {
        const uint64_t tokens = p->blocks[h->block].tokens;
        const fcp_class back = traffic_return(h, pass);
        carry(ports, h->src, h->dst, h->fabric, tokens * fcp_class_bytes(facts, (fcp_class)h->cls, pass), h->units);
        if (back == FCP_CLASSES) continue;
        carry(ports, h->dst, h->to, h->back_fabric, tokens * fcp_class_bytes(facts, back, pass),
              return_units(p, h, back));
    }
    for (uint32_t i = 0; i < x->reshuffle->count; i++) {
        const bundle *b = &x->reshuffle->bundles[i];
        if (b->caller == b->home) continue;
        const uint32_t holds = p->split ? 1u << b->side : FCP_HOLDS_BOTH, gpus = p->program->gpus;
        const uint64_t units = (b->tokens + p->unit - 1) / p->unit;
        const int fabric = b->caller / gpus == b->home / gpus ? FCP_LOCAL : FCP_NET;
        carry(ports, b->caller, b->home, fabric, b->tokens * fcp_held_bytes(facts, holds, FCP_IN, pass), units);
        carry(ports, b->home, b->caller, fabric, b->tokens * fcp_held_bytes(facts, holds, FCP_OUT, pass), units);
    }
}

/* For each shape of cells that the parts of tiles have: the time of its cells in the heads of a range, if attention has
 * all SMs. */
static uint64_t *time_shapes(const problem *p, const sim_model *m, sim_counts *counts, arena *scratch) {
    const uint64_t heads = (uint64_t)p->range_kv * p->range_sub;
    uint64_t *time = ARENA_ZNEW(scratch, uint64_t, p->shape_count + (size_t)1);
    if (!sim_count_shapes(counts, p->shapes, p->shape_count, p->runs)) return NULL;
    for (uint32_t s = 0; time && s < p->shape_count; s++) {
        const sim_cells *c = &counts->of[s];
        time[s] = (c->full * m->kernel.at[SIM_FULL] + c->partial * m->kernel.at[SIM_PARTIAL]) *
                  (p->sets ? p->sets[s].heads : heads);
    }
    for (uint32_t s = 0; time && p->sets && s < p->shape_count; s += p->sets[s].set)
        for (uint32_t c = 1; c < p->sets[s].set; c++) time[s] += time[s + c];
    return time;
}

/* `time` is that of cells with all SMs. Returns their time on the SMs that the margin leaves. */
static wide on_share(const sim_model *m, uint64_t time) { return (wide)time * m->sms / (m->sms - m->margin); }

static uint64_t tile_time(const problem *p, const uint64_t *shape, uint32_t t) {
    uint64_t time = 0;
    for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + 1]; i++) time += shape[p->parts[i].shape];
    return time;
}

fcp_code auto_tile_times(const problem *p, const sim_model *m, sim_counts *counts, arena *scratch, uint64_t *time) {
    const uint64_t *shape = time_shapes(p, m, counts, scratch);
    if (!shape) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) time[t] = narrow(on_share(m, tile_time(p, shape, t)));
    return FCP_OK;
}

/* What each rank does in a pass: the time of its cells with all SMs, and what its ports carry. */
typedef struct loads {
    uint64_t *work; /* NULL: the plan does not have the pass */
    port *ports;
} loads;

static fcp_code load_pass(planning *x, const fcp_problem *facts, const sim_model *m, sim_counts *counts, loads *out) {
    const problem *p = x->problem;
    uint64_t *shape = time_shapes(p, m, counts, &x->scratch);
    *out = (loads){ARENA_ZNEW(&x->scratch, uint64_t, p->ranks), ARENA_ZNEW(&x->scratch, port, p->ranks)};
    if (!shape || !out->work || !out->ports) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        if (planning_stopped_at(x, t)) return FCP_E_INTERRUPTED;
        out->work[placement_exec(x->placement, t)] += tile_time(p, shape, t);
    }
    load_ports(x, facts, m->pass, out->ports);
    return FCP_OK;
}

static void bound_pass(const loads *l, uint32_t ranks, const sim_model *m, uint64_t of[AUTO_BOUNDS]) {
    for (uint32_t r = 0; r < ranks; r++) {
        raise(&of[AUTO_COMPUTE], narrow(on_share(m, l->work[r])));
        for (int way = 0; way < 2; way++)
            for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
                raise(&of[fabric == FCP_NET ? AUTO_NET : AUTO_LOCAL],
                      narrow((wide)l->ports[r].bytes[fabric][way] * SIM_SECOND / m->rate[fabric] +
                             (wide)l->ports[r].units[fabric][way] * m->latency[fabric]));
    }
}

/* The margins that the plan may get. */
static sim_margins margins_of(const struct fcpc_program *g) {
    return g->margins ? *g->margins : (sim_margins){1, {g->margin}};
}

/* Keeps the smaller of two bounds, for two margins: the plan gets the margin with which it is faster. */
static void keep_least(const auto_bounds *with, bool first, auto_bounds *out) {
    if (first || with->all < out->all) *out = *with;
}

/* Adds the bounds of one pass to the sums over both passes. */
static void add_pass(const uint64_t of[AUTO_BOUNDS], auto_bounds *out) {
    uint64_t largest = 0;
    for (int b = 0; b < AUTO_BOUNDS; b++) {
        out->of[b] += of[b];
        raise(&largest, of[b]);
    }
    out->all += largest;
}

/* The memory of the fullest rank, counting only the tensors of the tokens that ranks own, and nothing that arrives. */
static fcp_code least_memory(planning *x, const fcp_problem *facts, uint64_t *out_memory, uint32_t *out_rank) {
    const problem *p = x->problem;
    uint64_t(*tokens)[FCP_SIDES] = arena_zalloc(&x->scratch, p->ranks, sizeof *tokens, _Alignof(uint64_t));
    const uint64_t none[FCP_CLASSES] = {0};
    if (!tokens) return FCP_E_NO_MEMORY;
    *out_memory = *out_rank = 0;
    for (uint32_t b = 0; b < p->range_blocks; b++)
        for (int side = 0; side < FCP_SIDES; side++)
            if (problem_holds(p, b, (fcp_side)side) && p->head_count == 1)
                tokens[x->placement->home[b]][side] += p->blocks[b].tokens;
    for (uint32_t r = 0; r < p->ranks; r++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const uint64_t bytes =
                facts->passes >> pass & 1
                    ? fcp_rank_memory(facts, (fcp_pass)pass, tokens[r][FCP_QUERIES], tokens[r][FCP_KEYS], none)
                    : 0;
            if (bytes > *out_memory) *out_memory = bytes, *out_rank = r;
        }
    return FCP_OK;
}

fcp_code auto_bound_routes(planning *x, const sim_profile *profile, sim_counts *counts, auto_bounds *out,
                           uint64_t *out_memory, uint32_t *out_rank) {
    const sim_margins margins = margins_of(x->program);
    fcp_problem facts;
    sim_model m;
    loads of_pass[FCP_PASSES] = {{NULL}};
    problem_facts(x, &facts);
    fcp_code code = least_memory(x, &facts, out_memory, out_rank);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        if (!(facts.passes >> pass & 1)) continue;
        sim_model_device(&facts, &x->program->cluster, (fcp_pass)pass, profile, &m);
        code = load_pass(x, &facts, &m, counts, &of_pass[pass]);
    }
    for (uint32_t i = 0; i < margins.count && !code; i++) {
        auto_bounds with = {.all = 0};
        facts.margin = margins.at[i];
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            uint64_t of[AUTO_BOUNDS] = {0};
            if (!of_pass[pass].work) continue;
            sim_model_device(&facts, &x->program->cluster, (fcp_pass)pass, profile, &m);
            bound_pass(&of_pass[pass], x->problem->ranks, &m, of);
            add_pass(of, &with);
        }
        keep_least(&with, !i, out);
    }
    arena_reset(&x->scratch);
    return code;
}

uint64_t auto_homecoming(const planning *x, const sim_profile *profile) {
    const problem *p = x->problem;
    const uint64_t gpus = p->program->gpus, near = p->ranks > gpus ? gpus : 1; /* ranks nearer than `fabric` */
    const fcp_fabric fabric = p->ranks > gpus ? FCP_NET : FCP_LOCAL;
    const sim_margins margins = margins_of(p->program);
    fcp_problem facts;
    uint64_t time = 0;
    problem_facts(x, &facts);
    facts.margin = margins.at[margins.count - 1]; /* with the largest, net is as fast as it can be */
    for (int pass = 0; pass < FCP_PASSES && !p->split; pass++) {
        sim_model m;
        if (!(facts.passes >> pass & 1)) continue;
        sim_model_device(&facts, &x->program->cluster, (fcp_pass)pass, profile, &m);
        const uint64_t bytes = fcp_held_bytes(&facts, FCP_HOLDS_BOTH, FCP_IN, (fcp_pass)pass) +
                               fcp_held_bytes(&facts, FCP_HOLDS_BOTH, FCP_OUT, (fcp_pass)pass);
        time += narrow((wide)p->tokens * bytes / p->ranks * (p->ranks - near) / p->ranks * SIM_SECOND / m.rate[fabric]);
    }
    return time;
}

fcp_code auto_count_pairs(const planning *x, arena *memory, auto_pairs *out) {
    const problem *p = x->problem;
    if (p->head_count != 1) return FCP_OK; /* pairs of some heads alone; another candidate will tell */
    *out = (auto_pairs){.of = ARENA_ZNEW(memory, uint64_t, p->sequences),
                        .queries = ARENA_NEW(memory, uint64_t, p->sequences),
                        .keys = ARENA_NEW(memory, uint64_t, p->sequences), .sequences = p->sequences};
    if (!out->of || !out->queries || !out->keys) return FCP_E_NO_MEMORY;
    memcpy(out->queries, p->queries, p->sequences * sizeof *p->queries);
    memcpy(out->keys, p->lengths, p->sequences * sizeof *p->lengths);
    for (uint32_t i = 0; i < p->part_count; i++)
        out->of[p->pieces[p->parts[i].q_piece].sequence] += problem_part_pairs(p, &p->parts[i]);
    return FCP_OK;
}

static uint64_t at_most(uint64_t v, uint64_t most) { return v < most ? v : most; }

/* The time of a cell of one head: a FULL or a PARTIAL one, whichever takes less. */
static uint64_t least_cell(const sim_model *m) {
    return m->kernel.at[m->kernel.at[SIM_FULL] < m->kernel.at[SIM_PARTIAL] ? SIM_FULL : SIM_PARTIAL];
}

/* How many heads the numbers of pairs are sums over: all, if the mask differs between heads; otherwise 1. */
static uint64_t pairs_weight(const struct fcpc_program *g) { return mc_uses(g->mask) & MC_USES_H ? g->heads : 1; }

void auto_bound_even(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs, uint32_t even,
                     auto_bounds *out) {
    const uint64_t ranks = (uint64_t)g->nodes * g->gpus, parts = ranks * even;
    const uint64_t weight = pairs_weight(g);
    wide pieces = 0, keys = 0;
    for (uint32_t s = 0; s < pairs->sequences; s++) {
        const uint64_t rows = (pairs->queries[s] + parts - 1) / parts, columns = (pairs->keys[s] + parts - 1) / parts;
        if (!rows || !columns) continue;
        const wide area = (wide)at_most(rows, FCP_CELL) * at_most(columns, FCP_CELL) * weight;
        const wide a = (wide)rows * even * g->gpus * weight, own = a * columns * even * g->gpus * g->nodes;
        pieces += (pairs->of[s] + area - 1) / area;
        if (pairs->of[s] > own) keys += (pairs->of[s] - own) / a;
    }
    const sim_margins margins = margins_of(g);
    fcp_problem facts = problem_early_facts(g);
    for (uint32_t i = 0; i < margins.count; i++) {
        auto_bounds with = {.all = 0};
        facts.margin = margins.at[i];
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            uint64_t of[AUTO_BOUNDS] = {0};
            sim_model m;
            if (!g->passes[pass]) continue;
            sim_model_device(&facts, &g->cluster, (fcp_pass)pass, profile, &m);
            uint64_t bytes = fcp_class_bytes(&facts, FCP_KV, (fcp_pass)pass);
            if (pass == FCP_BACKWARD) bytes += fcp_class_bytes(&facts, FCP_DKV, FCP_BACKWARD); /* and home again */
            of[AUTO_COMPUTE] = narrow(pieces * least_cell(&m) * g->heads / ranks * m.sms / (m.sms - m.margin));
            of[AUTO_NET] = narrow(keys * bytes / ranks * SIM_SECOND / m.rate[FCP_NET]);
            add_pass(of, &with);
        }
        keep_least(&with, !i, out);
    }
}

/* Do the groups find enough ranks if no rank may compute more than `most` pairs? A group with W pairs needs W / most
 * ranks, rounded up. */
static bool are_enough(const groups_group *groups, const wide *pairs, uint32_t count, uint32_t ranks, wide most) {
    wide sum = 0;
    for (uint32_t i = 0; i < count && sum <= ranks; i++) {
        const wide degree = (pairs[i] + most - 1) / most;
        sum += degree > groups[i].least ? degree : groups[i].least;
    }
    return sum <= ranks;
}

/* A lower bound on the pairs of the busiest rank under the strategy groups; 0: the groups cannot be made. */
static fcp_code busiest_of_groups(const struct fcpc_program *g, const auto_pairs *pairs, arena *scratch, wide *out) {
    const uint32_t ranks = g->nodes * g->gpus;
    uint64_t *size = ARENA_NEW(scratch, uint64_t, pairs->sequences);
    uint32_t *of = ARENA_NEW(scratch, uint32_t, pairs->sequences), count = 0;
    groups_group *groups = ARENA_NEW(scratch, groups_group, pairs->sequences);
    wide *sum = arena_zalloc(scratch, pairs->sequences, sizeof *sum, _Alignof(wide)), low = 1, high = 1;
    *out = 0;
    if (!size || !of || !groups || !sum) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < pairs->sequences; s++)
        size[s] = pairs->queries[s] > pairs->keys[s] ? pairs->queries[s] : pairs->keys[s];
    const fcp_code code = groups_pack(size, pairs->sequences, g->tokens, ranks, scratch, of, groups, &count);
    if (code) return code == FCP_E_VALUE ? FCP_OK : code;
    for (uint32_t s = 0; s < pairs->sequences; s++) sum[of[s]] += pairs->of[s];
    for (uint32_t i = 0; i < count; i++)
        if (sum[i] > high) high = sum[i];
    if (!are_enough(groups, sum, count, ranks, high)) return FCP_OK;
    BISECT(low, high, work, !are_enough(groups, sum, count, ranks, work))
    *out = low;
    return FCP_OK;
}

fcp_code auto_bound_groups(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs,
                           auto_bounds *out) {
    const fcp_problem facts = problem_early_facts(g); /* with the least margin, under which computing is fastest */
    const wide area = (wide)FCP_CELL * FCP_CELL * pairs_weight(g);
    arena scratch = {0};
    wide most;
    fcp_code code = busiest_of_groups(g, pairs, &scratch, &most);
    arena_free(&scratch);
    *out = (auto_bounds){.all = 0};
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        uint64_t of[AUTO_BOUNDS] = {0};
        sim_model m;
        if (!g->passes[pass]) continue;
        sim_model_device(&facts, &g->cluster, (fcp_pass)pass, profile, &m);
        of[AUTO_COMPUTE] = narrow(on_share(&m, narrow(most * least_cell(&m) * g->heads / area)));
        add_pass(of, out);
    }
    return code;
}
