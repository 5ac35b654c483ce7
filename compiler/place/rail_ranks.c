/* rail_ranks.c: on a network of rails, chooses which node is which, and which GPU of its node each rank is.
 *
 * Requires: homes that are the strategy's choice, and a rank for each tile.
 * Gives: the same placement with nodes, and the ranks in each node, renumbered. Ranks that shared a node still do.
 * Cost: O(tiles + runs of the layout + nodes^2) for each sweep over nodes, and O(what travels + nodes x gpus^2) for
 *     each sweep over ranks.
 * Units: bytes, of all passes of the plan.
 *
 * Why. On rails GPU i of a node has fast links to GPU i of every other node, and to no other GPU there. So what goes
 * from GPU 2 to a reader that is GPU 5 of another node takes one more hop inside a node. How ranks are numbered does
 * not change what they compute, nor what they send to whom. So they are numbered such that most bytes go between equal
 * numbers. The bytes are those of K, V, Q and results, and of the tokens that the caller holds, because the caller's
 * ranks keep their numbers.
 *
 * Example: two nodes of two. Rank 0 has a block that rank 3 reads, and rank 1 one that rank 2 reads. If ranks 2 and 3
 * exchange their numbers, both blocks stay on their rails.
 *
 * How:
 *   1. Nodes. Two nodes exchange their numbers if more of the tokens that the caller holds are then at home in the node
 *      that holds them. This is repeated while it gains. Those tokens do not cross between nodes at all.
 *   2. Ranks, by local search: the nodes are taken one after the other, while all others stay. The gain of giving a
 *      rank of this node number i is the bytes between it and all ranks with number i elsewhere. Two ranks exchange
 *      their numbers if the sum of their gains grows by that. Each exchange raises the sum over all nodes, so the
 *      search ends; the number of sweeps is bounded, too.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sides.h"

/* What travels between two ranks of different nodes. */
typedef struct flow {
    uint32_t from, to;
    uint64_t bytes;
} flow;

typedef struct rails {
    planning *x;
    uint32_t *home, *exec;   /* exec: NULL: at home */
    uint32_t gpus;
    flow *flows;
    uint32_t count;
    size_t room;
    /* [node * nodes + other]: bytes of tokens at home in `node` that the caller holds in `other`; NULL: counted
     * already */
    uint64_t *by_node;
    uint64_t *by_number;     /* [rank * gpus + i]: bytes that the caller holds at ranks number i of other nodes */
    uint32_t *seen;          /* per rank: the last block that it was found to need, + 1 */
    uint32_t *number;        /* per rank: its number in its node */
    uint32_t *start, *of;    /* the flows of a rank: of[start[r]] on, each 2 * the flow + 1 if the rank is its `to` */
    uint64_t *gain;          /* [member * gpus + i], of the node at hand */
} rails;

static uint32_t node_of(const rails *s, uint32_t rank) { return rank / s->gpus; }

static fcp_code add_flow(rails *s, uint32_t home, uint32_t reader, uint32_t block, uint64_t bytes) {
    if (node_of(s, home) == node_of(s, reader) || s->seen[reader] == block + 1) return FCP_OK;
    s->seen[reader] = block + 1;
    s->flows = arena_grow(&s->x->scratch, s->flows, s->count, &s->room, sizeof *s->flows);
    if (!s->flows) return FCP_E_NO_MEMORY;
    if (s->count == UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    s->flows[s->count++] = (flow){home, reader, bytes};
    return FCP_OK;
}

/* Lists what travels between nodes: from homes to the ranks that read keys, and to those that compute rows. */
static fcp_code list_flows(rails *s) {
    const problem *p = s->x->problem;
    const place_bytes each = place_token_bytes(s->x, s->x->program->passes);
    uint32_t *start, *tile;
    fcp_code code = group_new(&s->x->scratch, p->tile_k, sizeof *p->tile_k, p->tile_count, p->block_count, s->x->stop,
                              &start, &tile);
    for (uint32_t b = 0; b < p->block_count && !code; b++)
        for (uint32_t i = start[b]; i < start[b + 1] && !code; i++)
            code = add_flow(s, s->home[b], place_rank(s->home, s->exec, p->tile_q, tile[i]), b,
                            p->blocks[b].tokens * each.kv);
    memset(s->seen, 0, p->ranks * sizeof *s->seen);
    for (uint32_t t = 0; t < p->tile_count && !code && s->exec; t++) {
        const uint32_t b = p->tile_q[t];
        code = add_flow(s, s->home[b], s->exec[t], b, p->blocks[b].tokens * each.part);
    }
    return code;
}

/* Adds the bytes of a piece of a block to the counts, by the caller's ranks that hold its tokens. home: the block's
 * home. */
static void count_piece(rails *s, fcp_walk *walk, const fcp_piece *piece, uint32_t home, uint64_t each) {
    const uint64_t at = s->x->problem->rule.offsets[walk->side][piece->sequence] + piece->start;
    const uint64_t end = at + piece->length;
    fcp_walk_to(walk, piece->sequence, piece->start);
    for (uint64_t from = at, to; from < end; from = to) {
        const uint32_t caller = fcp_walk_rank(walk);
        to = fcp_walk_end(walk) < end ? fcp_walk_end(walk) : end;
        const uint32_t node = node_of(s, home), other = node_of(s, caller);
        if (s->by_node) s->by_node[(size_t)node * s->x->program->nodes + other] += (to - from) * each;
        else if (node != other)
            s->by_number[(size_t)home * s->gpus + caller % s->gpus] += (to - from) * each;
        if (to < end) fcp_walk_next(walk);
    }
}

/* Counts the bytes between the caller's ranks and the homes of all blocks: between nodes (by_node) while nodes are
 * numbered, afterwards between a home and a number (by_number). */
static fcp_code count_held(rails *s, const fcp_problem *facts) {
    const problem *p = s->x->problem;
    if (s->x->program->layout == FCP_LAYOUT_PLANNED) return FCP_OK; /* nothing is brought home */
    fcp_walk walks[FCP_SIDES] = {fcp_walk_of(&p->rule, FCP_QUERIES), fcp_walk_of(&p->rule, FCP_KEYS)};
    for (uint32_t b = 0; b < p->block_count; b++) {
        const fcp_block *block = &p->blocks[b];
        uint64_t each = 0;
        if (planning_stopped(s->x)) return FCP_E_INTERRUPTED;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (s->x->program->passes[pass])
                each += fcp_held_bytes(facts, block->holds, FCP_IN, (fcp_pass)pass) +
                        fcp_held_bytes(facts, block->holds, FCP_OUT, (fcp_pass)pass);
        for (uint32_t i = block->first_piece; i < block->first_piece + block->pieces; i++)
            count_piece(s, &walks[fcp_side_of(block)], &p->pieces[i], s->home[b], each);
    }
    return FCP_OK;
}

/* Lets members of a set exchange their numbers, two at a time, as long as the sum over all members of gain[member * n +
 * number[member]] grows. Returns whether some have. */
static bool exchange_numbers(const uint64_t *gain, uint32_t n, uint32_t *number) {
    bool changed = false, again = true;
    while (again) {
        again = false;
        for (uint32_t a = 0; a < n; a++)
            for (uint32_t b = a + 1; b < n; b++) {
                const uint64_t *of_a = gain + (size_t)a * n, *of_b = gain + (size_t)b * n;
                const uint32_t kept = number[a];
                if (of_a[number[b]] + of_b[kept] <= of_a[kept] + of_b[number[b]]) continue;
                number[a] = number[b], number[b] = kept;
                changed = again = true;
            }
    }
    return changed;
}

/* Renumbers the nodes. */
static fcp_code number_nodes(rails *s, const fcp_problem *facts) {
    const problem *p = s->x->problem;
    const uint32_t nodes = s->x->program->nodes;
    uint32_t *number = ARENA_NEW(&s->x->scratch, uint32_t, nodes);
    s->by_node = ARENA_ZNEW(&s->x->scratch, uint64_t, (size_t)nodes * nodes);
    if (!number || !s->by_node) return FCP_E_NO_MEMORY;
    for (uint32_t v = 0; v < nodes; v++) number[v] = v;
    fcp_code code = count_held(s, facts);
    if (code) return code;
    exchange_numbers(s->by_node, nodes, number);
    s->by_node = NULL;
    for (uint32_t b = 0; b < p->block_count; b++)
        s->home[b] = number[s->home[b] / s->gpus] * s->gpus + s->home[b] % s->gpus;
    for (uint32_t t = 0; s->exec && t < p->tile_count; t++)
        s->exec[t] = number[s->exec[t] / s->gpus] * s->gpus + s->exec[t] % s->gpus;
    return FCP_OK;
}

/* Lists for each rank the flows that begin or end there. */
static fcp_code list_by_rank(rails *s) {
    uint32_t *ends = ARENA_NEW(&s->x->scratch, uint32_t, 2 * (size_t)s->count + 1);
    for (uint32_t i = 0; ends && i < s->count; i++)
        ends[2 * (size_t)i] = s->flows[i].from, ends[2 * (size_t)i + 1] = s->flows[i].to;
    return !ends ? FCP_E_NO_MEMORY : group_new(&s->x->scratch, ends, sizeof *ends, 2 * s->count, s->x->problem->ranks,
                                               s->x->stop, &s->start, &s->of);
}

static void find_gains(rails *s, uint32_t node) {
    const uint32_t first = node * s->gpus;
    memcpy(s->gain, s->by_number + (size_t)first * s->gpus, (size_t)s->gpus * s->gpus * sizeof *s->gain);
    for (uint32_t r = first; r < first + s->gpus; r++)
        for (uint32_t i = s->start[r]; i < s->start[r + 1]; i++) {
            const flow *f = &s->flows[s->of[i] / 2];
            const uint32_t other = s->of[i] & 1 ? f->from : f->to;
            s->gain[(size_t)(r - first) * s->gpus + s->number[other]] += f->bytes;
        }
}

/* Lets the ranks of a node exchange their numbers as long as that gains. Returns whether some have. */
static bool number_ranks(rails *s, uint32_t node) {
    find_gains(s, node);
    return exchange_numbers(s->gain, s->gpus, s->number + (size_t)node * s->gpus);
}

fcp_code place_on_rails(planning *x, uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const uint32_t gpus = x->program->gpus, nodes = x->program->nodes, ranks = p->ranks;
    arena *scratch = &x->scratch;
    rails s = {.x = x, .home = home, .exec = exec, .gpus = gpus};
    fcp_problem facts;
    if (gpus < 2 || nodes < 2) return FCP_OK;
    problem_facts(x, &facts);
    s.by_number = ARENA_ZNEW(scratch, uint64_t, (size_t)ranks * gpus);
    s.gain = ARENA_NEW(scratch, uint64_t, (size_t)gpus * gpus);
    s.seen = ARENA_ZNEW(scratch, uint32_t, ranks);
    s.number = ARENA_NEW(scratch, uint32_t, ranks);
    if (!s.by_number || !s.gain || !s.seen || !s.number) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) s.number[r] = r % gpus;
    fcp_code code = number_nodes(&s, &facts);
    if (!code) code = list_flows(&s);
    if (!code) code = count_held(&s, &facts);
    if (!code) code = list_by_rank(&s);
    bool changed = true;
    for (uint32_t sweep = 0; sweep < RAIL_SWEEPS && changed && !code; sweep++) {
        changed = false;
        for (uint32_t v = 0; v < nodes && !code; v++) {
            if (planning_stopped(x)) code = FCP_E_INTERRUPTED;
            else changed |= number_ranks(&s, v);
        }
    }
    if (code) return code;
    for (uint32_t r = 0; r < ranks; r++) s.number[r] += r / gpus * gpus; /* from here on: its new rank */
    for (uint32_t b = 0; b < p->block_count; b++) home[b] = s.number[home[b]];
    for (uint32_t t = 0; exec && t < p->tile_count; t++) exec[t] = s.number[exec[t]];
    return FCP_OK;
}
