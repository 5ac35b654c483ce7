/* rooms.c: finds the rank that has room, without a look at all ranks.
 *
 * Requires: load and held of each rank; dcp_rooms_set after they change.
 * Gives: what a look at all ranks would give, with the same ties.
 * Cost: of a change O(log ranks). Of a search mostly that, too; at worst O(ranks). Of empty ranks O(gpus + nodes / 64).
 * Memory: O(ranks).
 * Units: pairs, tokens.
 *
 * A tree. Each vertex has the least and the largest load and held of the ranks below it, which give a bound on how well
 * any of them suits. The search goes to the child with the better bound first, and passes over vertices whose bound is
 * no better than the best rank so far (branch and bound). At a leaf the bound is exact. Where one rank has room for
 * pairs alone and another for tokens alone, the least load and the least held promise room for both. So a vertex also
 * has the most room that a single rank has of its scarcer kind, and of both kinds added up.
 *
 * Empty ranks. For each number of empty ranks there is a set of the nodes that have so many, as bits.
 */
#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/place/dcp/dcp.h"

typedef struct query {
    dcp_request of;
    uint64_t pairs, tokens; /* as shares of the caps */
} query;

/* How well a rank of vertex n suits at best: the larger, the better. 0: none has room. */
static uint64_t bound_of(const dcp_rooms *x, uint32_t n, const query *q) {
    const dcp_input *in = x->in;
    const dcp_room *v = &x->tree[n];
    const uint64_t scarce = min_u64(q->pairs, q->tokens), sum = q->pairs + q->tokens;
    if (v->load + q->of.work > in->pair_cap || v->held + q->of.tokens > in->token_cap) return 0;
    if (v->scarce < scarce || v->sum < sum) return 0;
    const uint64_t pairs = in->pair_cap - q->of.work, tokens = in->token_cap - q->of.tokens;
    if (q->of.loose) {
        const uint64_t most = min_u64(v->scarce - scarce, (v->sum - sum) / 2);
        return 1 + min_u64(most, min_u64(dcp_share(pairs - v->load, in->pair_cap),
                                         dcp_share(tokens - v->held, in->token_cap)));
    }
    const uint64_t a = dcp_share(sub_sat(pairs, v->load_most), in->pair_cap);
    const uint64_t b = dcp_share(sub_sat(tokens, v->held_most), in->token_cap);
    return UINT64_MAX - (a * a + b * b);
}

/* Searches below vertex n, whose bound is given and whose first rank is `first`. */
static void search(const dcp_rooms *x, uint32_t n, uint32_t first, uint32_t ranks, uint64_t bound, const query *q,
                   uint64_t *best, uint32_t *rank) {
    if (bound < *best || !bound || (bound == *best && first >= *rank)) return;
    if (ranks == 1) {
        *best = bound;
        *rank = first;
        return;
    }
    const uint32_t half = ranks / 2;
    const uint64_t left = bound_of(x, 2 * n, q), right = bound_of(x, 2 * n + 1, q);
    if (right > left) search(x, 2 * n + 1, first + half, half, right, q, best, rank);
    search(x, 2 * n, first, half, left, q, best, rank);
    if (right <= left) search(x, 2 * n + 1, first + half, half, right, q, best, rank);
}

uint32_t dcp_rooms_find(const dcp_rooms *x, const dcp_request *of) {
    const query q = {*of, dcp_share(of->work, x->in->pair_cap), dcp_share(of->tokens, x->in->token_cap)};
    uint64_t best = 0;
    uint32_t rank = FCP_NONE;
    search(x, 1, 0, x->leaves, bound_of(x, 1, &q), &q, &best, &rank);
    return rank;
}

uint32_t dcp_rooms_least(const dcp_rooms *x) {
    uint32_t n = 1;
    while (n < x->leaves) n = 2 * n + (x->tree[2 * n].load > x->tree[2 * n + 1].load);
    return n - x->leaves;
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static void join_children(dcp_rooms *x, uint32_t n) {
    const dcp_room *a = &x->tree[2 * n], *b = &x->tree[2 * n + 1];
    x->tree[n] =
        (dcp_room){min_u64(a->load, b->load),           max_u64(a->load_most, b->load_most), min_u64(a->held, b->held),
                   max_u64(a->held_most, b->held_most), max_u64(a->scarce, b->scarce),       max_u64(a->sum, b->sum)};
}

static dcp_room leaf_of(const dcp_input *in, uint64_t load, uint64_t held) {
    const uint64_t pairs = dcp_share(sub_sat(in->pair_cap, load), in->pair_cap);
    const uint64_t tokens = dcp_share(sub_sat(in->token_cap, held), in->token_cap);
    return (dcp_room){load, load, held, held, min_u64(pairs, tokens), pairs + tokens};
}

void dcp_rooms_set_empty(dcp_rooms *x, uint32_t node, uint32_t count) {
    const uint64_t bit = UINT64_C(1) << node % 64;
    x->sets[(size_t)x->empty[node] * x->words + node / 64] &= ~bit;
    x->sets[(size_t)count * x->words + node / 64] |= bit;
    x->empty[node] = count;
}

void dcp_rooms_set(dcp_rooms *x, uint32_t r) {
    dcp_room *leaf = &x->tree[x->leaves + r];
    const uint64_t load = x->load[r], held = x->held[r];
    const bool fills = !leaf->load && !leaf->held && (load || held);
    *leaf = leaf_of(x->in, load, held);
    if (fills) dcp_rooms_set_empty(x, r / x->in->gpus, x->empty[r / x->in->gpus] - 1);
    for (uint32_t n = (x->leaves + r) / 2; n; n /= 2) join_children(x, n);
}

void dcp_rooms_set_all(dcp_rooms *x) {
    const uint32_t ranks = x->in->ranks, gpus = x->in->gpus;
    memset(x->empty, 0, x->nodes * sizeof *x->empty);
    memset(x->sets, 0, x->words * (gpus + (size_t)1) * sizeof *x->sets);
    for (uint32_t r = 0; r < x->leaves; r++) { /* leaves without a rank are full */
        const uint64_t load = r < ranks ? x->load[r] : UINT64_MAX / 2, held = r < ranks ? x->held[r] : UINT64_MAX / 2;
        x->tree[x->leaves + r] = leaf_of(x->in, load, held);
        if (!load && !held) x->empty[r / gpus]++;
    }
    for (uint32_t v = 0; v < x->nodes; v++) dcp_rooms_set_empty(x, v, x->empty[v]);
    for (uint32_t n = x->leaves; n-- > 1;) join_children(x, n);
}

fcp_code dcp_rooms_open(dcp_rooms *x, const dcp_input *in, const dcp_partition *p, arena *scratch) {
    *x = (dcp_rooms){.in = in, .load = p->load, .held = p->held, .leaves = 1};
    while (x->leaves < in->ranks) x->leaves *= 2;
    x->nodes = (in->ranks + in->gpus - 1) / in->gpus;
    x->words = x->nodes / 64 + 1;
    x->tree = ARENA_NEW(scratch, dcp_room, 2 * (size_t)x->leaves);
    x->empty = ARENA_NEW(scratch, uint32_t, x->nodes);
    x->sets = ARENA_NEW(scratch, uint64_t, x->words * (in->gpus + (size_t)1));
    if (!x->tree || !x->empty || !x->sets) return FCP_E_NO_MEMORY;
    dcp_rooms_set_all(x);
    return FCP_OK;
}

/* --- empty ranks -------------------------------------------------------------------------------------------------- */

/* The first node with so many empty ranks, or FCP_NONE. */
static uint32_t first_with(const dcp_rooms *x, uint32_t count) {
    const uint64_t *set = x->sets + (size_t)count * x->words;
    for (uint32_t i = 0; i < x->words; i++)
        if (set[i]) return i * 64 + (uint32_t)__builtin_ctzll(set[i]);
    return FCP_NONE;
}

uint32_t dcp_rooms_empty_node(const dcp_rooms *x, uint64_t wanted) {
    const uint32_t gpus = x->in->gpus;
    uint32_t node = FCP_NONE;
    for (uint64_t e = wanted ? wanted : 1; e <= gpus && node == FCP_NONE; e++) node = first_with(x, (uint32_t)e);
    for (uint32_t e = wanted > gpus ? gpus : (uint32_t)wanted; e > 0 && node == FCP_NONE; e--) node = first_with(x, e);
    return node;
}
