/* traffic.c: decides which blocks travel to which ranks, and by which way.
 *
 * Requires: a problem with its tiles; a placement.
 * Gives: for every KV block, and for every rank other than its home that computes a tile on it, exactly one hop that
 *     brings the block there; the same for every Q block. The hops of a block are a tree whose root is its home.
 * Cost: O(tiles + hops + blocks + ranks); with relays that of routes.c or relays.c.
 *
 * Example: block 5 is at home on node 0, and ranks 8, 9 and 12 of node 1 read it. It crosses `net` once, say to rank 9,
 * which forwards it over `local` to ranks 8 and 12.
 *
 * Direct ways. Unless the placement has ways of its own, a block crosses to each other node once, and one rank there
 * passes it on to the node's other readers. On a fat tree this is the reader that has received least over net so far;
 * of equals the lowest rank. On rails it depends on who can send over a rail (over_a_rail). Whoever chose the ways,
 * rails.c keeps them on rails.
 *
 * Relays. If the program allows relays, other ways are tried, in which a rank of another node sends a block on: trees
 * of keys (relays.c); or, where work moves between ranks that hold their tokens, ways of all blocks that are found
 * together (routes.c). They replace the direct ways if they save enough time by the estimate of ways.c.
 *
 * Urgency. Rounds that bring what most work needs go first (hop.work). Results that must travel home should be made
 * early. So a tile that runs away from its Q block's home counts half as much again, and twice if it makes a partial
 * result.
 *
 * Results. If the home computes some tiles of a Q block, it merges the partial results that other ranks send. If it
 * computes none, one of the others can merge them and make the result. Then half as many bytes come home, because the
 * result is in the plan's dtype and partials are in fp32. To meet at that rank, all partials must come by it. So Q
 * leaves its home by one hop only, and its ways branch behind this hop (routes.c).
 */
#include "compiler/schedule/traffic.h"
#include "runtime/plan/bytes.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/schedule/rails.h"
#include "compiler/schedule/relays.h"
#include "compiler/schedule/routes.h"
#include "compiler/schedule/schedule_tuning.h"
#include "compiler/schedule/ways.h"

typedef struct state {
    planning *x;
    const problem *p;
    const placement *where;
    traffic *out;
    size_t room;         /* of out->hops */
    uint64_t bytes[FCP_CLASSES]; /* of a token, in the pass where it has most */
    uint32_t *readers;   /* the ranks that need the block at hand */
    uint64_t *work;      /* per rank: of its tiles on the block at hand */
    uint64_t *received;  /* per rank: bytes received over net */
    uint32_t *rank_hop;  /* per rank: the hop that brings it the block at hand */
    uint32_t *node_first, *next; /* the readers of each node, as linked lists */
    uint32_t *nodes;     /* nodes with readers */
    uint64_t *seen;      /* a bit per rank, all 0 between uses */
    leg *legs, *kept;    /* of the block at hand: as its ways were chosen, and as they stay on rails */
    rails_rank *on_rails; /* per rank; NULL: there are no rails */
    uint32_t *key_start, *key_tile; /* the tiles of KV block b: key_tile[key_start[b]] and on, in order of Q block */
    routes *together;    /* the ways of all blocks, found together; NULL: they are found block by block */
    uint32_t want;       /* the block of `together` whose ways are taken next */
    bool relay_all;      /* `together` is to be found */
    relays *trees;       /* NULL: all copies of a block come from its home */
} state;

/* Chooses the leg that enters a node on rails; r is the first reader in the node. A rail joins the ranks that have the
 * same index in their nodes. The first case that holds decides:
 *   1. The home and a reader of the node have the same index: the home sends to that reader.
 *   2. A reader of the home's node and a reader of this node have the same index: the reader in the home's node gets
 *      the block first, and sends it to the other. Of several such pairs, the one whose receiver has received least.
 *   3. The home sends to the rank of this node with its own index, which only passes the block on. */
static leg over_a_rail(const state *s, uint32_t home, uint32_t r) {
    const uint32_t gpus = s->p->program->gpus, home_node = home / gpus;
    leg by = {home, r / gpus * gpus + home % gpus};
    bool near = false;
    for (; r != FCP_NONE; r = s->next[r]) {
        const uint32_t from = home_node * gpus + r % gpus;
        if (from == home) return (leg){home, r};
        if (!s->work[from] || (near && s->received[r] >= s->received[by.dst])) continue;
        by = (leg){from, r};
        near = true;
    }
    return by;
}

/* The direct ways of a block. */
static uint32_t once_per_node(state *s, const need *n, leg *legs) {
    uint32_t gpus = s->p->program->gpus, home_node = n->home / gpus, nodes = 0, count = 0;
    const bool rail = s->on_rails;
    for (uint32_t i = 0; i < n->count; i++) { /* from the back, so that lists are in ascending order */
        uint32_t r = n->ranks[n->count - 1 - i], v = r / gpus;
        if (s->node_first[v] == FCP_NONE) s->nodes[nodes++] = v;
        s->next[r] = s->node_first[v];
        s->node_first[v] = r;
    }
    for (uint32_t r = s->node_first[home_node]; r != FCP_NONE; r = s->next[r]) legs[count++] = (leg){n->home, r};
    for (uint32_t i = nodes; i-- > 0;) { /* nodes were met in descending order */
        uint32_t v = s->nodes[i], first = s->node_first[v];
        s->node_first[v] = FCP_NONE;
        if (v == home_node) continue;
        leg by = {n->home, first};
        if (rail) by = over_a_rail(s, n->home, first);
        for (uint32_t r = s->next[first]; r != FCP_NONE && !rail; r = s->next[r])
            if (s->received[r] < s->received[by.dst]) by.dst = r;
        const uint32_t best = by.dst;
        legs[count++] = by;
        for (uint32_t r = first; r != FCP_NONE; r = s->next[r])
            if (r != best) legs[count++] = (leg){best, r};
    }
    return count;
}

/* Lets the results of a block that goes round a ring go on, along the block's hops, which are those from number `first`
 * on. A hop's `work` is still that of its own rank. */
static void return_around(traffic *t, uint32_t first, uint32_t home, uint32_t gpus) {
    bool bare = true;
    for (uint32_t f = first; f < t->count; f++) {
        hop *h = &t->hops[f];
        const bool last = f + 1 == t->count;
        h->bare = bare &= !h->work;
        h->onto = last ? FCP_NONE : f + 1;
        h->to = last ? home : t->hops[f + 1].dst;
        h->back_fabric = h->dst / gpus == h->to / gpus ? FCP_LOCAL : FCP_NET;
    }
}

/* Makes the hops of a block from its s->legs, which are first put on rails if the network has them. */
static fcp_code add_hops(state *s, const need *n, uint32_t count) {
    const uint32_t gpus = s->p->program->gpus;
    traffic *out = s->out;
    const uint32_t first = out->count;
    const bool waits = s->where->exec || s->trees;
    const leg *legs = s->on_rails ? s->kept : s->legs;
    bool deep = false;
    if (s->on_rails)
        count = rails_keep(n, s->p->program->gpus, s->legs, count, s->on_rails, s->received, s->kept);
    while (s->room - first < count) {
        if (s->room > UINT32_MAX / 8) return FCP_E_PLAN_SIZE;
        out->hops = arena_grow(&s->x->work, out->hops, s->room, &s->room, sizeof *out->hops);
        if (!out->hops) return FCP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t src = n->home, dst = legs[i].dst, parent = FCP_NONE;
        if (legs[i].src != src) {
            src = legs[i].src;
            parent = s->rank_hop[src];
            deep = true;
        }
        const fcp_fabric fabric = src / gpus == dst / gpus ? FCP_LOCAL : FCP_NET;
        const uint32_t unit = s->p->unit_of[fabric][n->cls], units = (s->p->blocks[n->block].tokens + unit - 1) / unit;
        out->units += units;
        if (fabric == FCP_NET) s->received[dst] += n->bytes;
        out->hops[out->count] = (hop){.block = n->block,
                                      .src = src,
                                      .dst = dst,
                                      .parent = parent,
                                      .to = src,
                                      .onto = parent,
                                      .work = n->work[dst],
                                      .units = units,
                                      .cls = (uint8_t)n->cls,
                                      .waits = waits && parent == FCP_NONE,
                                      .fabric = (uint8_t)fabric,
                                      .back_fabric = (uint8_t)fabric};
        s->rank_hop[dst] = out->count++;
    }
    if (out->onward) return_around(out, first, n->home, gpus);
    for (uint32_t h = out->count; deep && h-- > first;)
        if (out->hops[h].parent != FCP_NONE) out->hops[out->hops[h].parent].work += out->hops[h].work;
    return FCP_OK;
}

/* Sorts the readers of a block by rank: few by insertion, many by a bit for each rank. */
static void sort_readers(const state *s, uint32_t readers) {
    if (readers < 64) {
        for (uint32_t i = 1; i < readers; i++) {
            uint32_t r = s->readers[i], j = i;
            for (; j > 0 && s->readers[j - 1] > r; j--) s->readers[j] = s->readers[j - 1];
            s->readers[j] = r;
        }
        return;
    }
    for (uint32_t i = 0; i < readers; i++) s->seen[s->readers[i] / 64] |= UINT64_C(1) << s->readers[i] % 64;
    uint32_t at = 0;
    for (uint32_t w = 0; w <= (s->p->ranks - 1) / 64; w++)
        for (uint64_t *word = &s->seen[w]; *word; *word &= *word - 1)
            s->readers[at++] = w * 64 + (uint32_t)__builtin_ctzll(*word);
}

/* How much a tile counts: see Urgency in the head comment. */
static inline uint64_t tile_work(const state *s, uint32_t tile) {
    const problem *p = s->p;
    uint64_t pairs = p->tile_pairs[tile];
    if (!s->out->results || s->where->exec[tile] == s->where->home[p->tile_q[tile]]) return pairs;
    return pairs + (s->out->results[p->tile_q[tile]] == RESULT_PARTIAL ? pairs : pairs / 2);
}

/* Copies the ways that were found for the next block, in the order of find_routes. */
static uint32_t next_route(state *s, leg *legs) {
    const routes *r = s->together;
    uint32_t first = r->start[s->want], count = r->start[++s->want] - first;
    memcpy(legs, r->hops + first, count * sizeof *legs);
    return count;
}

/* Finds the ranks, other than its home, that need a block: s->readers, ascending. The tiles that read it are given as
 * for route_block. Adds each reader's work to s->work, which the caller sets back to 0. */
static uint32_t find_readers(state *s, uint32_t home, const uint32_t *tile, uint32_t first, uint32_t count) {
    uint32_t readers = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t t = tile ? tile[i] : first + i, r = placement_exec(s->where, t);
        if (r == home) continue;
        if (!s->work[r]) s->readers[readers++] = r;
        s->work[r] += tile_work(s, t);
    }
    if (readers) sort_readers(s, readers);
    return readers;
}

/* Counts the children of hop `parent` among the hops from number `first` on; *out_child is the last of them. */
static uint32_t count_children(const traffic *t, uint32_t first, uint32_t parent, uint32_t *out_child) {
    uint32_t count = 0;
    for (uint32_t h = first; h < t->count; h++)
        if (t->hops[h].parent == parent) {
            *out_child = h;
            count++;
        }
    return count;
}

/* Finds who makes the result of a Q block if the home computes nothing of it: the first rank on the block's way that
 * computes some of it, or from which it goes on to several ranks. All partial results come back by this rank. If it
 * leaves the home itself for several ranks, the home makes the result. The block's hops are those from hops[first]
 * on. */
static void choose_maker(state *s, uint32_t block, uint32_t first) {
    traffic *t = s->out;
    uint32_t maker = FCP_NONE, child;
    while (count_children(t, first, maker, &child) == 1) {
        maker = child;
        t->hops[maker].whole = true;
        if (s->work[t->hops[maker].dst]) break;
    }
    t->maker[block] = maker;
    if (maker != FCP_NONE && t->results[block] == RESULT_PARTIAL) t->results[block] = RESULT_JOINED;
}

/* Does the home of a Q block compute some of it? */
static bool home_computes(const state *s, uint32_t block) {
    for (uint32_t t = s->p->tile_start[block]; t < s->p->tile_start[block + 1]; t++)
        if (placement_exec(s->where, t) == s->where->home[block]) return true;
    return false;
}

/* Makes the hops of a block that `count` tiles need: tiles tile[0], tile[1], ...; or, if `tile` is NULL, the tiles from
 * `first` on. by_tile gets the hop of each tile. */
static fcp_code route_block(state *s, uint32_t block, fcp_class cls, const uint32_t *tile, uint32_t first,
                            uint32_t count, uint32_t *by_tile) {
    uint32_t home = s->where->home[block], readers = find_readers(s, home, tile, first, count);
    if (readers) {
        const need n = {block, home, readers, cls, s->p->blocks[block].tokens * s->bytes[cls], s->readers, s->work};
        uint32_t legs = s->together       ? next_route(s, s->legs)
                        : s->where->route ? s->where->route(s->x, &n, s->legs)
                                          : once_per_node(s, &n, s->legs);
        if (s->trees && cls == FCP_KV) relays_plant(s->trees, &n, s->legs, legs);
        const uint32_t before = s->out->count;
        fcp_code code = add_hops(s, &n, legs);
        if (code) return code;
        if (cls == FCP_Q && !home_computes(s, block)) choose_maker(s, block, before);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t t = tile ? tile[i] : first + i, r = placement_exec(s->where, t);
        by_tile[t] = r == home ? FCP_NONE : s->rank_hop[r];
    }
    for (uint32_t i = 0; i < readers; i++) s->work[s->readers[i]] = 0;
    return FCP_OK;
}

/* Says for each Q block what becomes of its results, except that RESULT_PARTIAL may still become RESULT_JOINED:
 * choose_maker decides that, once the block's ways are known. */
static fcp_code sort_results(state *s) {
    const problem *p = s->p;
    const uint32_t *exec = s->where->exec;
    s->out->results = ARENA_NEW(&s->x->work, uint8_t, p->block_count);
    s->out->tile_q = ARENA_NEW(&s->x->work, uint32_t, p->tile_count + (size_t)1);
    s->out->maker = ARENA_NEW(&s->x->work, uint32_t, p->block_count);
    if (!s->out->results || !s->out->tile_q || !s->out->maker) return FCP_E_NO_MEMORY;
    memset(s->out->maker, 0xff, p->block_count * sizeof *s->out->maker);
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint32_t first = p->tile_start[b], end = p->tile_start[b + 1], t = first;
        while (t < end && exec[t] == exec[first]) t++;
        s->out->results[b] = t < end ? RESULT_PARTIAL
                             : first < end && exec[first] != s->where->home[b] ? RESULT_WHOLE : RESULT_HOME;
    }
    return FCP_OK;
}

/* How many hops a way may have: if the program states `divisions`, one for each of them but the first. 0: any number. */
static uint32_t most_hops(const planning *x) {
    return x->coalesce || !x->program->divisions ? 0 : x->program->divisions - 1;
}

/* Finds the ways of all blocks together (routes.c). */
static fcp_code find_routes(state *s) {
    const problem *p = s->p;
    const struct fcpc_program *g = p->program;
    const uint32_t *start = s->key_start, *tile = s->key_tile;
    fcp_problem facts;
    problem_facts(s->x, &facts);
    const uint64_t whole = fcp_class_bytes(&facts, FCP_O, FCP_FORWARD);
    const uint64_t partial = fcp_class_bytes(&facts, FCP_STATE, FCP_FORWARD);
    size_t room = 0, readers_room = 0;
    uint32_t wants = 0, count = 0, *readers = NULL;
    route_want *want = NULL;
    for (int cls = FCP_KV; cls <= FCP_Q; cls++)
        for (uint32_t b = 0; b < p->block_count; b++) {
            uint32_t home = s->where->home[b], first = cls == FCP_KV ? start[b] : p->tile_start[b];
            uint32_t end = cls == FCP_KV ? start[b + 1] : p->tile_start[b + 1];
            if (planning_stopped_at(s->x, b)) return FCP_E_INTERRUPTED;
            uint32_t found = find_readers(s, home, cls == FCP_KV ? tile + first : NULL, first, end - first);
            if (!found) continue;
            if (wants == room && !(want = arena_grow(&s->x->scratch, want, wants, &room, sizeof *want)))
                return FCP_E_NO_MEMORY;
            const uint64_t tokens = p->blocks[b].tokens;
            want[wants] = (route_want){.src = home, .first = count, .count = found, .bytes = tokens * s->bytes[cls]};
            if (cls == FCP_Q) {
                want[wants].back = tokens * (s->out->results[b] == RESULT_PARTIAL ? partial : whole);
                if (s->out->results[b] == RESULT_PARTIAL && !home_computes(s, b)) want[wants].joined = tokens * whole;
            }
            wants++;
            for (uint32_t i = 0; i < found; i++) {
                if (count == readers_room &&
                    !(readers = arena_grow(&s->x->scratch, readers, count, &readers_room, sizeof *readers)))
                    return FCP_E_NO_MEMORY;
                if (count == UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
                readers[count++] = s->readers[i];
                s->work[s->readers[i]] = 0;
            }
        }
    const routes_input in = {.ranks = p->ranks,
                             .gpus = g->gpus,
                             .rail = g->topology == FCP_RAIL,
                             .most_hops = most_hops(s->x),
                             .wants = want,
                             .want_count = wants,
                             .readers = readers,
                             .stop = s->x->stop};
    s->together = ARENA_NEW(&s->x->scratch, routes, 1);
    s->want = 0;
    return s->together ? routes_find(&in, &s->x->scratch, &s->x->scratch, s->together) : FCP_E_NO_MEMORY;
}

/* Counts the units that go back, in the pass in which most do. */
static void count_returned(traffic *out, const problem *p) {
    if (p->program->passes[FCP_BACKWARD] && out->keys == out->count) out->returned = out->units; /* as they came */
    if (out->keys == out->count) return;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        uint64_t units = 0;
        if (!p->program->passes[pass]) continue;
        for (uint32_t h = pass == FCP_FORWARD ? out->keys : 0; h < out->count; h++)
            units += return_units(p, &out->hops[h], traffic_return(&out->hops[h], (fcp_pass)pass));
        if (units > out->returned) out->returned = units;
    }
}

/* Makes s->out: the hops of all blocks, by the ways of `together`, by trees, or by direct ways. */
static fcp_code make_hops(state *s) {
    const problem *p = s->p;
    const placement *where = s->where;
    traffic *out = s->out = ARENA_ZNEW(&s->x->work, traffic, 1);
    if (!out) return FCP_E_NO_MEMORY;
    out->tile_kv = ARENA_NEW(&s->x->work, uint32_t, p->tile_count + (size_t)1);
    out->hops = ARENA_NEW(&s->x->work, hop, s->room);
    out->trees = s->trees;
    out->around = where->around;
    out->onward = where->around && !s->on_rails; /* on rails the ways branch, and gradients come back along them */
    if (!out->tile_kv || !out->hops) return FCP_E_NO_MEMORY;
    memset(s->received, 0, p->ranks * sizeof *s->received);
    fcp_code code = where->exec ? sort_results(s) : FCP_OK;
    if (!code && s->relay_all) code = find_routes(s);
    for (uint32_t b = 0; !code && b < p->block_count; b++) {
        const uint32_t first = s->key_start[b];
        if (planning_stopped(s->x)) return FCP_E_INTERRUPTED;
        code = route_block(s, b, FCP_KV, s->key_tile + first, 0, s->key_start[b + 1] - first, out->tile_kv);
    }
    out->keys = out->count;
    for (uint32_t b = 0; !code && where->exec && b < p->block_count; b++) {
        if (planning_stopped(s->x)) return FCP_E_INTERRUPTED;
        code = route_block(s, b, FCP_Q, NULL, p->tile_start[b], p->tile_start[b + 1] - p->tile_start[b], out->tile_q);
    }
    if (code) return code;
    count_returned(out, p);
    return out->units > UINT32_MAX / 4 || out->returned > UINT32_MAX / 4 ? FCP_E_PLAN_SIZE : FCP_OK;
}

/* Does everything arrive in time? A block that is passed on takes a stage for each hop of its way. */
static fcp_code arrives_in_time(const state *s, bool *out) {
    const traffic *t = s->out;
    const uint32_t most = most_hops(s->x);
    uint32_t *hops = ARENA_NEW(&s->x->scratch, uint32_t, t->count + (size_t)1); /* from home to the end of each */
    *out = true;
    for (uint32_t f = 0; hops && f < t->count; f++) { /* a parent comes before the hops that pass its block on */
        hops[f] = t->hops[f].parent == FCP_NONE ? 1 : hops[t->hops[f].parent] + 1;
        *out &= !most || hops[f] <= most;
    }
    return hops ? FCP_OK : FCP_E_NO_MEMORY;
}

/* Replaces the direct ways in s->out by ways with relays, if these save enough, and need no more stages than the
 * program states. */
static fcp_code try_relays(state *s) {
    planning *x = s->x;
    traffic *direct = s->out;
    ways_time now, then;
    s->relay_all = s->where->exec && s->where->spread;
    fcp_code code = s->relay_all ? FCP_OK : relays_open(x, direct, &s->trees);
    if (code || (!s->relay_all && !s->trees)) return code;
    code = ways_time_of(x, direct, &now);
    if (code) return code;
    const uint64_t most = now.all - now.all / (s->trees ? TREES_SAVE : ROUTES_SAVE);
    if (s->trees && now.least >= most) return FCP_OK;
    code = make_hops(s);
    bool in_time = true;
    if (!code) code = arrives_in_time(s, &in_time);
    if (!code && in_time) code = ways_time_of(x, s->out, &then);
    if (code == FCP_E_PLAN_SIZE || (!code && (!in_time || then.all >= most))) {
        s->out = direct;
        code = FCP_OK;
    }
    return code;
}

fcp_code traffic_build(planning *x) {
    const problem *p = x->problem;
    const placement *where = x->placement;
    uint32_t ranks = p->ranks, blocks = p->block_count, tiles = p->tile_count;
    arena *scratch = &x->scratch;
    state s = {.x = x, .p = p, .where = where};
    s.readers = ARENA_NEW(scratch, uint32_t, ranks);
    s.work = ARENA_ZNEW(scratch, uint64_t, ranks);
    s.received = ARENA_NEW(scratch, uint64_t, ranks);
    s.rank_hop = ARENA_NEW(scratch, uint32_t, ranks);
    s.next = ARENA_NEW(scratch, uint32_t, ranks);
    s.node_first = ARENA_NEW(scratch, uint32_t, p->program->nodes);
    s.nodes = ARENA_NEW(scratch, uint32_t, p->program->nodes);
    s.seen = ARENA_ZNEW(scratch, uint64_t, ranks / 64 + 1);
    s.legs = ARENA_NEW(scratch, leg, ranks);
    const bool rails = p->program->topology == FCP_RAIL;
    if (rails) {
        s.kept = ARENA_NEW(scratch, leg, ranks);
        s.on_rails = ARENA_ZNEW(scratch, rails_rank, ranks);
        if (!s.kept || !s.on_rails) return FCP_E_NO_MEMORY;
    }
    if (!s.readers || !s.work || !s.received || !s.rank_hop || !s.next || !s.node_first || !s.nodes || !s.seen ||
        !s.legs)
        return FCP_E_NO_MEMORY;
    memset(s.node_first, 0xff, p->program->nodes * sizeof *s.node_first);
    fcp_code code = group_new(scratch, p->tile_k, sizeof *p->tile_k, tiles, blocks, x->stop, &s.key_start, &s.key_tile);
    if (code) return code;
    fcp_problem facts;
    problem_facts(x, &facts);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int cls = FCP_KV; cls <= FCP_Q; cls++) {
            uint64_t bytes = p->program->passes[pass] ? fcp_class_bytes(&facts, (fcp_class)cls, (fcp_pass)pass) : 0;
            if (bytes > s.bytes[cls]) s.bytes[cls] = bytes;
        }

    /* Room for one hop for each tile that is not at its KV block's home, and for twice as many on rails. A placement's
     * own ways and those of Q may need more; add_hops then makes more room. */
    for (uint32_t t = 0; t < tiles; t++) s.room += placement_exec(where, t) != where->home[p->tile_k[t]];
    s.room = s.room * (rails ? 2 : 1) + 1;
    code = make_hops(&s);
    if (!code && where->relay) code = try_relays(&s);
    if (code) return code;
    x->traffic = s.out;
    return FCP_OK;
}
