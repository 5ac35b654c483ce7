/* test_dcp.c: tests the hypergraph partitioner of strategy dcp against its definition and against all placements of
 * small batches, and dcp on whole programs: caps, errors, stages. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compiler/place/dcp/dcp.h"
#include "tests/support/amount.h"
#include "tests/support/planned.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

enum { BLOCKS = 400, TILES = 40000, KV = 4096, WHOLE = 33024, PART = 49664 };

typedef struct batch {
    dcp_input in;
    dcp_block block[BLOCKS];
    uint32_t start[BLOCKS + 1], k[TILES];
    uint64_t pairs[TILES];
    uint64_t work, all;
} batch;

/* Sequences of that many blocks each; 0 ends the list. A row sees itself, the first `sink` blocks, and the last
 * `window` blocks before it. With `wide` the last row of a sequence sees everything. */
static void fill(batch *b, const uint32_t *lengths, uint32_t ranks, uint32_t gpus, uint32_t sink, uint32_t window,
                 bool wide, uint32_t size) {
    uint32_t n = 0, tiles = 0;
    b->work = b->all = 0;
    for (; *lengths; lengths++)
        for (uint32_t first = n, q = 0; q < *lengths; q++, n++) {
            b->block[n] = (dcp_block){size, KV * (uint64_t)size, WHOLE * (uint64_t)size, PART * (uint64_t)size};
            b->all += size;
            b->start[n] = tiles;
            for (uint32_t k = 0; k <= q; k++) {
                if (k >= sink && k + window < q && !(wide && q + 1 == *lengths)) continue;
                b->k[tiles] = first + k;
                b->pairs[tiles] = k == q ? size * (size + 1) / 2 : size * (uint64_t)size;
                b->work += b->pairs[tiles++];
            }
        }
    b->start[n] = tiles;
    b->in = (dcp_input){.ranks = ranks,
                        .gpus = gpus,
                        .blocks = n,
                        .block = b->block,
                        .tile_start = b->start,
                        .tile_k = b->k,
                        .tile_pairs = b->pairs,
                        .net = 9};
}

static void caps(batch *b, uint32_t pairs, uint32_t tokens) { /* in percent of the mean */
    b->in.pair_cap = b->work * pairs / 100 / b->in.ranks;
    b->in.token_cap = b->all * tokens / 100 / b->in.ranks;
}

/* --- what a placement costs, by its definition -------------------------------------------------------------------- */

static dcp_cost count(const batch *b, const uint32_t *home, const uint32_t *exec) {
    dcp_cost c = {0};
    const uint32_t ranks = b->in.ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t load = 0, held = 0;
        for (uint32_t x = 0; x < b->in.blocks; x++) {
            const uint32_t node = r / b->in.gpus;
            bool computes = false, reads = false, node_computes = false, node_reads = false, several = false;
            held += home[x] == r ? b->block[x].tokens : 0;
            for (uint32_t t = b->start[x]; t < b->start[x + 1]; t++) {
                load += exec[t] == r ? b->pairs[t] : 0;
                computes |= exec[t] == r;
                node_computes |= exec[t] / b->in.gpus == node;
                several |= exec[t] != exec[b->start[x]];
            }
            for (uint32_t t = 0; t < b->start[b->in.blocks]; t++)
                if (b->k[t] == x) {
                    reads |= exec[t] == r;
                    node_reads |= exec[t] / b->in.gpus == node;
                }
            const uint64_t row = several ? b->block[x].part : b->block[x].whole;
            if (home[x] != r) c.bytes += computes * row + reads * b->block[x].kv;
            if (home[x] / b->in.gpus != node && r % b->in.gpus == 0) /* a node is counted at its first rank */
                c.net += node_computes * row + node_reads * b->block[x].kv;
        }
        if (load > c.most_pairs) c.most_pairs = load;
        if (held > c.most_tokens) c.most_tokens = held;
    }
    return c;
}

static uint64_t weighted(const batch *b, const dcp_cost *c) { return c->bytes + (b->in.net - 1) * c->net; }

static dcp_cost divide(batch *b, uint32_t *home, uint32_t *exec) {
    arena a = {0};
    dcp_cost c, again;
    memset(home, 0xff, b->in.blocks * sizeof *home);
    memset(exec, 0xff, b->start[b->in.blocks] * sizeof *exec);
    cr_assert_eq(dcp_partition_batch(&b->in, &a, home, exec), FCP_OK);
    for (uint32_t x = 0; x < b->in.blocks; x++) cr_assert_lt(home[x], b->in.ranks);
    for (uint32_t t = 0; t < b->start[b->in.blocks]; t++) cr_assert_lt(exec[t], b->in.ranks);
    cr_assert_eq(dcp_cost_of(&b->in, home, exec, &a, &c), FCP_OK);
    again = count(b, home, exec);
    cr_assert_eq(c.bytes, again.bytes);
    cr_assert_eq(c.net, again.net);
    cr_assert_eq(c.most_pairs, again.most_pairs);
    cr_assert_eq(c.most_tokens, again.most_tokens);
    arena_free(&a);
    return c;
}

/* --- room at ranks ------------------------------------------------------------------------------------------------ */

/* The least share of both caps that is left at rank r with so much more; -1: it does not fit. */
static int64_t room_with(const dcp_input *in, const dcp_partition *p, uint32_t r, uint64_t work, uint64_t tokens) {
    if (p->load[r] + work > in->pair_cap || p->held[r] + tokens > in->token_cap) return -1;
    const uint64_t x = dcp_share(in->pair_cap - p->load[r] - work, in->pair_cap);
    const uint64_t y = dcp_share(in->token_cap - p->held[r] - tokens, in->token_cap);
    return (int64_t)(x < y ? x : y);
}

/* Ranks fill up, at random, with some that are empty, equal, or over a cap. */
Test(dcp, worst_fit_is_that_of_a_look_at_all_ranks) {
    enum { RANKS = 100, STEPS = 20000 };
    static uint64_t load[RANKS], held[RANKS];
    const dcp_partition p = {.load = load, .held = held};
    uint64_t state = 5;
    uint32_t nowhere = 0;
    for (uint32_t ranks = 1; ranks <= RANKS; ranks += 33) {
        const dcp_input in = {.ranks = ranks, .gpus = 8, .pair_cap = 90001, .token_cap = 700};
        arena scratch = {0};
        dcp_rooms rooms;
        memset(load, 0, sizeof load);
        memset(held, 0, sizeof held);
        cr_assert_eq(dcp_rooms_open(&rooms, &in, &p, &scratch), FCP_OK);
        dcp_rooms_fill(&rooms);
        for (uint32_t i = 0; i < STEPS; i++) {
            const uint64_t work = draw(&state, draw(&state, 2) ? 300 : 95000), tokens = draw(&state, 30);
            const uint32_t r = dcp_rooms_find(&rooms, work, tokens);
            int64_t most = -1;
            for (uint32_t k = 0; k < ranks; k++) {
                const int64_t room = room_with(&in, &p, k, work, tokens);
                most = room > most ? room : most;
            }
            nowhere += most < 0;
            cr_assert_eq(r == FCP_NONE, most < 0, "ranks %u, step %u", ranks, i);
            if (r != FCP_NONE) cr_assert_eq(room_with(&in, &p, r, work, tokens), most, "ranks %u, step %u", ranks, i);
            const uint32_t other = (uint32_t)draw(&state, ranks), changed = i % 3 && r != FCP_NONE ? r : other;
            load[changed] = changed == r ? load[r] + work : draw(&state, 100000);
            held[changed] = changed == r ? held[r] + tokens : draw(&state, 750);
            if (i % 16 == 0) load[changed] = held[changed] = 0;
            dcp_rooms_set(&rooms, changed);
        }
        arena_free(&scratch);
    }
    cr_assert_gt(nowhere, 1000);
}

/* --- joined blocks ------------------------------------------------------------------------------------------------ */

/* The tiles of each column begin where those before end. */
static void start_columns(const batch *b, arena *a, dcp_columns *c) {
    c->start = ARENA_ZNEW(a, uint32_t, b->in.blocks + 1);
    for (uint32_t t = 0; t < b->start[b->in.blocks]; t++) c->start[b->k[t] + 1]++;
    for (uint32_t k = 0; k < b->in.blocks; k++) c->start[k + 1] += c->start[k];
}

/* Only neighbouring blocks of a sequence with many tiles for each of its ranks are contracted. No tokens, bytes or
 * pairs are lost. */
Test(dcp, blocks_of_a_sequence_with_many_tiles_are_joined) {
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    const uint32_t lengths[] = {5, 250, 9, 0};
    uint64_t pairs = 0, tokens = 0, kv = 0;
    arena a = {0};
    dcp_derived j;
    fill(&b, lengths, 16, 8, 0, 1000, false, 16);
    caps(&b, 110, 110);
    dcp_columns c = {.components = 3, .first = (uint32_t[]){0, 5, 255, 264}};
    c.member = ARENA_NEW(&a, uint32_t, BLOCKS);
    for (uint32_t q = 0; q < b.in.blocks; q++) c.member[q] = q;
    start_columns(&b, &a, &c);
    cr_assert_eq(dcp_coarsen_batch(&b.in, &c, &a, &j), FCP_OK);
    /* 31,375 tiles on 16 ranks: joined by four they are about 2,000, by two 7,875 */
    cr_assert_eq(j.in.blocks, 5 + 63 + 9);
    for (uint32_t q = 0; q < b.in.blocks; q++) {
        tokens += b.block[q].tokens;
        cr_assert_eq(j.block[q], q < 5 ? q : q < 255 ? 5 + (q - 5) / 4 : q - 255 + 68);
        for (uint32_t t = b.start[q]; t < b.start[q + 1]; t++) {
            const uint32_t to = j.tile[t];
            cr_assert(to >= j.in.tile_start[j.block[q]] && to < j.in.tile_start[j.block[q] + 1]);
            cr_assert_eq(j.in.tile_k[to], j.block[b.k[t]]);
        }
    }
    for (uint32_t q = 0; q < j.in.blocks; q++) {
        tokens -= j.in.block[q].tokens;
        kv += j.in.block[q].kv;
        for (uint32_t t = j.in.tile_start[q]; t < j.in.tile_start[q + 1]; t++) {
            pairs += j.in.tile_pairs[t];
            cr_assert(t == j.in.tile_start[q] || j.in.tile_k[t] > j.in.tile_k[t - 1]);
        }
    }
    cr_assert_eq(tokens, 0);
    cr_assert_eq(kv, KV * b.all);
    cr_assert_eq(pairs, b.work);
    arena_free(&a);
    const dcp_cost cost = divide(&b, home, exec);
    cr_assert_leq(cost.most_pairs, b.in.pair_cap);
    cr_assert_leq(cost.most_tokens, b.in.token_cap);
    const uint32_t few[] = {5, 40, 9, 0}; /* 820 tiles */
    fill(&b, few, 16, 8, 0, 1000, false, 16);
    caps(&b, 110, 110);
    c.member = ARENA_NEW(&a, uint32_t, BLOCKS);
    for (uint32_t q = 0; q < b.in.blocks; q++) c.member[q] = q;
    c.first = (uint32_t[]){0, 5, 45, 54};
    start_columns(&b, &a, &c);
    cr_assert_eq(dcp_coarsen_batch(&b.in, &c, &a, &j), FCP_OK);
    cr_assert_eq(j.in.blocks, b.in.blocks);
    arena_free(&a);
}

/* --- small batches: all placements -------------------------------------------------------------------------------- */

enum { RANKS = 3, MOST_TILES = 6, CELL = 32 };

typedef struct way {
    uint64_t pairs, tokens, cost;
} way;

/* What all placements of a batch cost. */
static way *all_ways(const batch *b, uint32_t *out_count) {
    const uint32_t n = b->in.blocks, tiles = b->start[n];
    uint32_t rank[BLOCKS];
    *out_count = 1;
    for (uint32_t i = 0; i < n + tiles; i++) *out_count *= RANKS;
    way *ways = malloc(*out_count * sizeof *ways);
    cr_assert_not_null(ways);
    for (uint32_t i = 0; i < *out_count; i++) {
        for (uint32_t x = 0, left = i; x < n + tiles; x++, left /= RANKS) rank[x] = left % RANKS;
        const dcp_cost c = count(b, rank, rank + n);
        ways[i] = (way){c.most_pairs, c.most_tokens, weighted(b, &c)};
    }
    return ways;
}

/* If some placement keeps the caps, dcp's keeps them, and costs at most half as much again as the best. */
Test(dcp, small_batches_against_all_placements) {
    static const uint32_t lists[][5] = {{3, 0}, {2, 1, 0}, {1, 2, 0}, {1, 1, 1, 0}, {2, 0}, {1, 1, 2, 0}, {2, 2, 0},
                                        {1, 1, 1, 1, 0}};
    static batch b;
    uint32_t compared = 0, moving = 0, bounded = 0, tight = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (uint32_t gpus = 1; gpus <= RANKS; gpus += 2) {
            uint32_t home[BLOCKS], exec[MOST_TILES], count_of_ways;
            fill(&b, lists[l], RANKS, gpus, 0, 9, false, CELL);
            way *ways = all_ways(&b, &count_of_ways);
            for (uint32_t pairs = 100; pairs <= 300; pairs += 20)
                for (uint32_t tokens = 100; tokens <= 300; tokens += 50) {
                    uint64_t best = UINT64_MAX;
                    caps(&b, pairs, tokens);
                    for (uint32_t i = 0; i < count_of_ways; i++)
                        if (ways[i].pairs <= b.in.pair_cap && ways[i].tokens <= b.in.token_cap && ways[i].cost < best)
                            best = ways[i].cost;
                    const dcp_cost c = divide(&b, home, exec);
                    arena scratch = {0};
                    uint64_t bound;
                    if (best == UINT64_MAX) continue;
                    cr_assert_eq(dcp_bound(&b.in, &scratch, &bound), FCP_OK);
                    arena_free(&scratch);
                    cr_expect_leq(bound, best, "list %zu, caps %u %u: bound %lu of %lu", l, pairs, tokens, bound, best);
                    bounded += bound > 0;
                    tight += bound > 0 && 2 * bound >= best;
                    cr_expect_leq(c.most_pairs, b.in.pair_cap, "list %zu, caps %u %u", l, pairs, tokens);
                    cr_expect_leq(c.most_tokens, b.in.token_cap, "list %zu, caps %u %u", l, pairs, tokens);
                    cr_expect_geq(weighted(&b, &c), best, "list %zu, caps %u %u: not a placement", l, pairs, tokens);
                    cr_expect_leq(2 * weighted(&b, &c), 3 * best, "list %zu, caps %u %u: %lu of %lu", l, pairs, tokens,
                                  weighted(&b, &c), best);
                    compared++;
                    moving += best > 0;
                }
            free(ways);
        }
    cr_assert_gt(compared, 600);
    cr_assert_gt(moving, 200);
    cr_assert_gt(bounded, 100, "%u", bounded);
    cr_assert_gt(tight, 30, "%u", tight);
}

static uint32_t power(uint32_t base, uint32_t exponent) { return exponent ? base * power(base, exponent - 1) : 1; }

/* The same where homes are given. Then only tiles are placed, and dcp is compared with the best of all ways to place
 * them. */
Test(dcp, small_batches_with_given_homes) {
    static const uint32_t lists[][4] = {{3, 0}, {2, 1, 0}, {1, 2, 0}, {2, 2, 0}, {1, 1, 1, 0}};
    static batch b;
    uint32_t compared = 0, moving = 0, given[BLOCKS], home[BLOCKS], exec[MOST_TILES], rank[MOST_TILES];
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (uint32_t gpus = 1; gpus <= RANKS; gpus += 2) {
            fill(&b, lists[l], RANKS, gpus, 0, 9, false, CELL);
            const uint32_t n = b.in.blocks, tiles = b.start[n];
            for (uint32_t h = 0, all = power(RANKS, n); h < all; h++) {
                for (uint32_t x = 0, left = h; x < n; x++, left /= RANKS) given[x] = left % RANKS;
                for (uint32_t pairs = 100; pairs <= 300; pairs += 40) {
                    uint64_t best = UINT64_MAX;
                    caps(&b, pairs, 100);
                    b.in.token_cap = UINT64_MAX / 2;
                    for (uint32_t i = 0, ways = power(RANKS, tiles); i < ways; i++) {
                        for (uint32_t t = 0, left = i; t < tiles; t++, left /= RANKS) rank[t] = left % RANKS;
                        const dcp_cost c = count(&b, given, rank);
                        if (c.most_pairs <= b.in.pair_cap && weighted(&b, &c) < best) best = weighted(&b, &c);
                    }
                    b.in.fixed = given;
                    const dcp_cost c = divide(&b, home, exec);
                    cr_assert_arr_eq(home, given, n * sizeof *home);
                    b.in.fixed = NULL;
                    if (best == UINT64_MAX) continue;
                    cr_expect_leq(c.most_pairs, b.in.pair_cap, "list %zu, homes %u, cap %u", l, h, pairs);
                    cr_expect_leq(2 * weighted(&b, &c), 3 * best, "list %zu, homes %u, cap %u: %lu of %lu", l, h, pairs,
                                  weighted(&b, &c), best);
                    cr_expect_geq(weighted(&b, &c), best);
                    compared++;
                    moving += best > 0;
                }
            }
        }
    cr_assert_gt(compared, 1500);
    cr_assert_gt(moving, 1000);
}

/* --- larger ones -------------------------------------------------------------------------------------------------- */

/* If some rank always has room for one more block or tile, the caps are kept. The same input gives the same
 * placement. */
Test(dcp, caps_are_kept_and_nothing_is_drawn) {
    uint64_t state = 5;
    static batch b;
    for (unsigned i = 0; i < amount(100, 300); i++) {
        uint32_t lengths[16] = {0}, left = 8 + (uint32_t)draw(&state, 150), count_of_sequences = 0;
        for (; left && count_of_sequences < 15; count_of_sequences++) {
            uint32_t n = 1 + (uint32_t)draw(&state, draw(&state, 3) ? 8 : left);
            lengths[count_of_sequences] = n < left ? n : left;
            left -= lengths[count_of_sequences];
        }
        const uint32_t gpus = 1 + (uint32_t)draw(&state, 4), ranks = gpus * (1 + (uint32_t)draw(&state, 4));
        fill(&b, lengths, ranks, gpus, (uint32_t)draw(&state, 3), (uint32_t)draw(&state, 4) ? 3 : 200,
             draw(&state, 2), 128);
        caps(&b, 100 + (uint32_t)draw(&state, 100), 100 + (uint32_t)draw(&state, 200));
        b.in.pair_cap = b.in.pair_cap < b.work / ranks + 128 * 128 ? b.work / ranks + 128 * 128 : b.in.pair_cap;
        b.in.token_cap = b.in.token_cap < b.all / ranks + 128 ? b.all / ranks + 128 : b.in.token_cap;
        static uint32_t home[2][BLOCKS], exec[2][TILES];
        const dcp_cost c = divide(&b, home[0], exec[0]);
        cr_assert_leq(c.most_pairs, b.in.pair_cap, "batch %d", i);
        cr_assert_leq(c.most_tokens, b.in.token_cap, "batch %d", i);
        divide(&b, home[1], exec[1]);
        cr_assert_arr_eq(home[0], home[1], b.in.blocks * sizeof **home);
        cr_assert_arr_eq(exec[0], exec[1], b.start[b.in.blocks] * sizeof **exec);
    }
}

/* Sequences that fit on nodes, but not on ranks, stay within nodes. */
Test(dcp, sequences_that_fit_on_a_node_stay_there) {
    static const uint32_t lengths[] = {12, 12, 12, 12, 0};
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    for (uint32_t gpus = 2; gpus <= 4; gpus++) {
        fill(&b, lengths, 4 * gpus, gpus, 0, 99, false, 128);
        caps(&b, 130, 130);
        const dcp_cost c = divide(&b, home, exec);
        cr_assert_eq(c.net, 0, "nodes of %u", gpus);
        cr_assert_gt(c.bytes, 0);
    }
}

/* What a first placement costs; false: it is over a cap. */
static bool first_cost(const batch *b, bool by_nodes, dcp_cost *out) {
    arena a = {0}, step = {0};
    dcp_partition p;
    cr_assert(dcp_open_partition(&b->in, &a, &p));
    cr_assert_eq(by_nodes ? dcp_initial_by_nodes(&b->in, &a, &step, &p)
                          : dcp_initial_partition(&b->in, NULL, &a, &p), FCP_OK);
    arena_free(&step);
    for (uint32_t r = 0; r < b->in.ranks; r++) {
        uint64_t load = 0, held = 0;
        for (uint32_t t = 0; t < b->start[b->in.blocks]; t++) load += p.exec[t] == r ? b->pairs[t] : 0;
        for (uint32_t x = 0; x < b->in.blocks; x++) held += p.home[x] == r ? b->block[x].tokens : 0;
        cr_assert_eq(load, p.load[r]);
        cr_assert_eq(held, p.held[r]);
    }
    cr_assert_eq(dcp_cost_of(&b->in, p.home, p.exec, &a, out), FCP_OK);
    arena_free(&a);
    return out->most_pairs <= b->in.pair_cap && out->most_tokens <= b->in.token_cap;
}

/* Where bytes between nodes cost most, the cheaper of the two initial partitions is refined. */
Test(dcp, the_cheaper_first_placement_is_refined) {
    uint64_t state = 11;
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    uint32_t compared = 0, nodes_won = 0, flat_won = 0;
    for (int i = 0; i < 24; i++) {
        uint32_t lengths[9] = {0};
        for (uint32_t k = 0; k < 8; k++) lengths[k] = 4 + (uint32_t)draw(&state, k ? 12 : 40);
        const uint32_t gpus = 2 + (uint32_t)draw(&state, 3), nodes = 2 + (uint32_t)draw(&state, 3);
        fill(&b, lengths, gpus * nodes, gpus, 0, 200, false, 128);
        caps(&b, 115 + (uint32_t)draw(&state, 30), 115 + (uint32_t)draw(&state, 60));
        dcp_cost flat, by_nodes;
        if (!first_cost(&b, false, &flat) || !first_cost(&b, true, &by_nodes)) continue;
        const dcp_cost c = divide(&b, home, exec);
        const bool tried = 2 * (b.in.net - 1) * flat.net >= weighted(&b, &flat);
        cr_assert_leq(weighted(&b, &c), weighted(&b, &flat), "batch %d", i);
        if (tried) cr_assert_leq(weighted(&b, &c), weighted(&b, &by_nodes), "batch %d", i);
        compared++;
        nodes_won += tried && weighted(&b, &by_nodes) < weighted(&b, &flat);
        flat_won += weighted(&b, &by_nodes) > weighted(&b, &flat);
    }
    cr_assert_gt(compared, 10, "%u", compared);
    cr_assert_gt(nodes_won, 3, "%u", nodes_won);
    cr_assert_gt(flat_won, 2, "%u", flat_won);
}

/* Under a window mask a sequence is cut into runs. Each cut costs the window, and there are no more cuts than the caps
 * ask for. */
Test(dcp, a_window_costs_a_window_at_each_cut) {
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    for (uint32_t ranks = 2; ranks <= 8; ranks++) {
        const uint32_t lengths[] = {10 * ranks, 1, 1, 1, 0}; /* and some that fit anywhere */
        fill(&b, lengths, ranks, ranks, 0, 2, false, 128);
        caps(&b, 120, 120);
        const dcp_cost c = divide(&b, home, exec);
        cr_assert_eq(c.bytes, (ranks - 1) * 2 * (uint64_t)KV * 128, "%u ranks: %lu", ranks, c.bytes);
    }
}

/* Sequences that fit on ranks whole move nothing, even where they fill them to the brim. */
Test(dcp, whole_sequences_move_nothing) {
    static const uint32_t lengths[] = {9, 7, 8, 8, 6, 6, 4, 12, 4, 0};
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    fill(&b, lengths, 4, 2, 0, 0, false, 128); /* rows see themselves alone */
    caps(&b, 100, 100);
    const dcp_cost c = divide(&b, home, exec);
    cr_assert_eq(c.bytes, 0);
    cr_assert_eq(c.most_tokens, b.in.token_cap);
    fill(&b, lengths, 4, 2, 0, 99, false, 128);
    caps(&b, 200, 100);
    const dcp_cost causal = divide(&b, home, exec);
    cr_assert_eq(causal.most_tokens, b.in.token_cap);
    cr_assert_eq(causal.bytes, 0);
}

/* A row that sees all of a long sequence is computed where its keys are: only Q travels, and states come back. */
Test(dcp, wide_rows_stay_with_their_keys) {
    static const uint32_t lengths[] = {160, 0};
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    fill(&b, lengths, 4, 4, 0, 2, true, 128);
    caps(&b, 110, 110);
    const dcp_cost c = divide(&b, home, exec);
    uint64_t cuts = 3 * 2 * (uint64_t)KV * 128, row = 3 * (uint64_t)PART * 128;
    cr_assert_leq(c.bytes, cuts + row);
}

/* Sequences of which each rank has about as many keys as Q and a partial result are bytes, which is 12 blocks: a rank's
 * part of the last row costs no more than that, and each cut the keys of one block. */
Test(dcp, a_part_of_a_wide_row_costs_no_more_than_its_query) {
    static const struct {
        uint32_t lengths[3], cuts;
    } cases[] = {{{62, 0}, 4}, {{66, 0}, 4}, {{70, 0}, 4}, {{34, 26, 0}, 3}};
    static batch b;
    static uint32_t home[BLOCKS], exec[TILES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill(&b, cases[i].lengths, 5, 5, 0, 1, true, 128);
        caps(&b, 112, 115);
        const dcp_cost c = divide(&b, home, exec);
        cr_expect_leq(c.bytes, cases[i].cuts * (uint64_t)(PART + KV) * 128, "case %zu: %lu", i, c.bytes);
    }
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

#define PROGRAM(strategy)                                                                                              \
    "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [60000, 20000, 3000 x 12, 500 x 20] }\n"                       \
    "plan { mask = lambda(sink = 64, window = 4096); block = 1K; strategy = " strategy "; passes = forward }\n"

Test(dcp, programs_keep_both_caps_and_move_less_than_fcp) {
    static const char *const programs[] = {PROGRAM("dcp"), PROGRAM("fcp(tolerance = 0.1)")};
    uint64_t units[2];
    for (int i = 0; i < 2; i++) {
        planned x;
        plan_passes(&x, programs[i], 0);
        uint64_t load[8] = {0}, held[8] = {0};
        for (uint32_t b = 0; b < x.p.block_count; b++) held[x.home[b]] += x.p.blocks[b].tokens;
        for (uint32_t t = 0; t < x.p.tile_count; t++) load[placement_exec(x.at.placement, t)] += x.p.tile_pairs[t];
        for (int r = 0; r < 8 && !i; r++) {
            cr_assert_leq(load[r] * 80, x.p.pairs * 11);
            cr_assert_leq(held[r] * 80, x.p.tokens * 11);
        }
        units[i] = x.t.units;
        planned_free(&x);
    }
    cr_assert_lt(units[0], units[1], "%lu, fcp %lu", units[0], units[1]);
}

/* With a stated layout tokens stay where the caller holds them. Nothing is brought to homes and back; work moves until
 * the cap is kept. */
Test(dcp, a_stated_layout_gives_the_homes) {
    static const char *const layouts[] = {"contiguous", "zigzag", "contiguous(group = 4)"};
    for (int i = 0; i < 3; i++) {
        char text[400];
        planned x;
        problem_run *runs;
        uint32_t count_of_runs;
        snprintf(text, sizeof text,
                 "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [60000, 20000, 3000 x 12, 500 x 20] }\n"
                 "plan { mask = causal; block = 1K; strategy = dcp; layout = %s }\n", layouts[i]);
        plan_passes(&x, text, 0);
        cr_assert_eq(problem_held(&x.at, FCP_QUERIES, &runs, &count_of_runs), FCP_OK);
        uint64_t load[8] = {0}, most = 0, held[8] = {0}, there[8] = {0};
        for (uint32_t r = 0; r < count_of_runs; r++) held[runs[r].rank] += runs[r].end - runs[r].start;
        for (uint32_t b = 0; b < x.p.block_count; b++) there[x.home[b]] += x.p.blocks[b].tokens;
        cr_expect_arr_eq(held, there, sizeof held);
        for (uint32_t b = 0; b < x.p.block_count; b++)
            for (uint32_t k = x.p.blocks[b].first_piece; k < x.p.blocks[b].first_piece + x.p.blocks[b].pieces; k++) {
                const fcp_piece *piece = &x.p.pieces[k];
                uint32_t r = 0;
                while (runs[r].sequence != piece->sequence || runs[r].end <= piece->start) r++;
                cr_assert_eq(runs[r].rank, x.home[b]);
                cr_assert_geq(runs[r].end, piece->start + piece->length);
            }
        for (uint32_t t = 0; t < x.p.tile_count; t++) load[placement_exec(x.at.placement, t)] += x.p.tile_pairs[t];
        for (int r = 0; r < 8; r++) most = load[r] > most ? load[r] : most;
        cr_expect_leq(most * 80, x.p.pairs * 11, "%s: %lu of %lu", layouts[i], most, x.p.pairs / 8);
        for (uint32_t k = 0; k < x.r.count && i != 1; k++) cr_expect_eq(x.r.bundles[k].caller, x.r.bundles[k].home);
        planned_free(&x);
    }
}

/* The bound of the bytes is below what is moved, also where blocks are too large for the tolerance. */
Test(dcp, bytes_are_not_below_their_bound) {
    static const char *const plans[] = {
        "causal; block = 128; layout = contiguous; strategy = dcp",
        "causal; block = 1K; layout = contiguous; strategy = dcp(epsilon_compute = 0.001)",
        "lambda(sink = 64, window = 512); block = 256; layout = contiguous; strategy = dcp",
        "full; block = 512; layout = zigzag; strategy = dcp(epsilon_compute = 0.5)",
        "causal; block = 128; strategy = dcp",
        "causal; block = 2K; strategy = dcp(epsilon_compute = 0.001)",
        "full; block = 256; strategy = dcp",
        "lambda(sink = 64, window = 512); block = 256; strategy = dcp(epsilon_compute = 0.02)",
        "prefix(p = 2000); block = 128; strategy = dcp(epsilon_compute = 0.3, epsilon_memory = 2.0)"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [9000, 2500, 100 x 9] }\n"
                 "plan { passes = forward; mask = %s }\n", plans[i]);
        fcpc_program *program = parse_text(text, NULL);
        const fcpc_batch own = {.size = sizeof own, .bound = true};
        fcpc_times times;
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan_batch(program, &own, NULL, NULL, &times, &plan), FCP_OK);
        if (i != 2) cr_expect_gt(times.bytes_lower_bound, 0, "plan %zu", i); /* of a window it knows little */
        cr_expect_leq(times.bytes_lower_bound, plan->summary->bytes_total, "plan %zu", i);
        if (i < 3) cr_expect_eq(plan->summary->bytes_reshuffle, 0, "plan %zu", i); /* zigzag gathers crumbs */
        fcp_plan_free(plan);
        fcpc_program_free(program);
    }
}

/* So it is of a batch with fewer pairs than there are ranks. */
Test(dcp, bytes_of_few_pairs_are_not_below_their_bound) {
    static const char *const plans[] = {"dcp", "dcp; layout = zigzag", "groups; layout = contiguous",
                                        "ulysses; layout = contiguous", "cad", "fcp"};
    for (size_t i = 0; i < 2 * sizeof plans / sizeof *plans; i++) {
        char text[300];
        snprintf(text, sizeof text, "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [1 x %d] }\n"
                 "plan { mask = causal; strategy = %s }\n", i % 2 ? 5 : 1, plans[i / 2]);
        fcpc_program *program = parse_text(text, NULL);
        const fcpc_batch own = {.size = sizeof own, .bound = true};
        fcpc_times times;
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan_batch(program, &own, NULL, NULL, &times, &plan), FCP_OK, "%s", text);
        cr_expect_leq(times.bytes_lower_bound, plan->summary->bytes_total, "%s", text);
        fcp_plan_free(plan);
        fcpc_program_free(program);
    }
}

/* Blocks that are too large for epsilon_memory are an error, which names a size that would do. With that size the batch
 * is planned. */
Test(dcp, blocks_too_large_for_epsilon_memory_are_an_error) {
    static const struct { const char *block, *strategy; fcp_code code; const char *said[2]; } cases[] = {
        {"4K", "dcp(epsilon_memory = 0.01)", FCP_E_VALUE,
         {"epsilon_memory = 0.01: blocks of 4096 tokens are 26.7 % of a rank's",
          "hint: 0.267 or block = 128 would do"}},
        {"4K", "dcp(epsilon_memory = 0.267)", FCP_OK, {"", ""}},
        {"128", "dcp(epsilon_memory = 0.01)", FCP_OK, {"", ""}},
        {"4K", "dcp", FCP_OK, {"", ""}},
        {"4K", "dcp(epsilon_memory = 0.001)", FCP_E_VALUE, {"blocks of 4096", "hint: 0.267 would do"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "cluster { nodes = 1; gpus = 8 }\nbatch { lengths = [65536, 57344] }\n"
                 "plan { mask = causal; block = %s; strategy = %s; passes = forward }\n",
                 cases[i].block, cases[i].strategy);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_text(text, d);
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), cases[i].code, "case %zu", i);
        char *picture = fcpc_diagnostics_render(d, false);
        for (int k = 0; k < 2; k++) cr_assert(strstr(picture, cases[i].said[k]), "case %zu: %s", i, picture);
        free(picture);
        fcp_plan_free(plan);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

Test(dcp, divisions_say_how_many_stages_there_are) {
    static const char *const programs[] = {PROGRAM("dcp(divisions = 2)"), PROGRAM("dcp(divisions = 3)"),
                                           PROGRAM("dcp(divisions = 5)")};
    for (uint32_t i = 0, divisions = 2; i < 3; divisions += ++i) {
        planned x;
        plan_passes(&x, programs[i], 0);
        const uint32_t *rounds = x.s.independent, most = rounds[0] > rounds[1] ? rounds[0] : rounds[1];
        cr_assert_gt(most, 4);
        cr_assert_eq(x.at.coalesce, (most + divisions - 2) / (divisions - 1));
        planned_free(&x);
    }
}
