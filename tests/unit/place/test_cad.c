/* test_cad.c: tests the strategy cad. A division of work has every pair once and keeps the caps; its bytes are compared
 * with all divisions of small batches, and with the lower bound. Whole programs are planned with many masks, layouts,
 * bases, servers and parts of a batch. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/amount.h"
#include "tests/support/cad_cost.h"
#include "tests/support/planned.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

static const cad_price usual = {4096, 33024, 49664};

typedef struct batch {
    cad_input in;
    problem_run *runs;
    uint64_t lengths[64];
} batch;

static void fill(batch *b, uint32_t sequences, uint32_t ranks, uint32_t gpus, uint32_t holders, uint32_t tolerance,
                 uint32_t shard) {
    b->in = (cad_input){.ranks = ranks, .gpus = gpus, .tolerance = tolerance, .price = usual};
    b->in.pairs =
        (cad_pairs){.sequences = sequences, .queries = b->lengths, .keys = b->lengths, .shard = shard, .weight = 1};
    b->runs = cad_contiguous(b->lengths, sequences, holders, &b->in.row_count);
    b->in.rows = b->in.keys = b->runs;
    b->in.key_count = b->in.row_count;
    b->in.servers = ranks - holders;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

Test(cad, causal_sums_are_those_of_counting) {
    uint64_t state = 1;
    for (int i = 0; i < 3000; i++) {
        uint64_t queries = 1 + draw(&state, 30), keys = 1 + draw(&state, 30);
        cad_pairs p = {1, &queries, &keys, draw(&state, 2), 1 + (uint32_t)draw(&state, 9), 1, NULL};
        uint64_t x = draw(&state, queries), y = x + draw(&state, queries - x + 1);
        uint64_t k0 = draw(&state, keys), k1 = k0 + draw(&state, keys - k0 + 1), work = 0, last = 0;
        int64_t first = p.top_left ? 0 : (int64_t)keys - (int64_t)queries;
        for (uint64_t q = x; q < y; q++)
            for (uint64_t k = k0; k < k1; k++)
                if ((int64_t)k <= first + (int64_t)q) work++, last = k + 1 > last ? k + 1 : last;
        cad_run r = {0, 0, x, y, k0, k1};
        cr_assert_eq(cad_work(&p, &r), work);
        if (work) cr_assert_eq(cad_span(&p, &r), last - k0);
        uint64_t most = draw(&state, 200);
        cad_run part = r;
        part.x = cad_last_rows(&p, &r, most, &work);
        cr_assert(part.x >= x && part.x <= y && (part.x % p.shard == 0 || part.x == x || part.x == y));
        cr_assert_leq(cad_work(&p, &part), most);
        cr_assert_eq(work, cad_work(&p, &part));
        if (part.x > x) {
            cad_run above = r;
            above.y = part.x;
            part.x = cad_row_before(&p, &above);
            cr_assert_gt(cad_work(&p, &part), most, "one shard more would fit");
        }
        part = r;
        part.k1 = cad_first_keys(&p, &r, 1, k0, k1, most, &work);
        cr_assert_leq(cad_work(&p, &part), most);
        cr_assert_eq(work, cad_work(&p, &part));
        if (part.k1 < k1) {
            part.k1 = (part.k1 / p.shard + 1) * p.shard < k1 ? (part.k1 / p.shard + 1) * p.shard : k1;
            cr_assert_gt(cad_work(&p, &part), most, "one shard more would fit");
        }
        part = r;
        part.k0 = cad_last_keys(&p, &r, most);
        cr_assert_leq(cad_work(&p, &part), most);
        if (part.k0 > k0) {
            part.k0 = (part.k0 - 1) / p.shard * p.shard > k0 ? (part.k0 - 1) / p.shard * p.shard : k0;
            cr_assert_gt(cad_work(&p, &part), most, "one shard more would fit");
        }
    }
}

/* --- every pair once, and caps ------------------------------------------------------------------------------------ */

/* Each pair of a causal batch lies in one share; returns the heaviest rank's work. */
static uint64_t check_shares(const batch *b, const cad_shares *s) {
    uint64_t *load = calloc(b->in.ranks, sizeof *load), most = 0;
    for (uint32_t q = 0; q < b->in.pairs.sequences; q++) {
        uint64_t n = b->lengths[q];
        uint8_t *seen = calloc(n * n, 1);
        bool twice = false;
        for (size_t i = 0; i < s->count; i++) {
            const cad_share *share = &s->at[i];
            if (share->run.sequence != q) continue;
            cr_assert_lt(share->rank, b->in.ranks);
            load[share->rank] += cad_work(&b->in.pairs, &share->run);
            for (uint64_t x = share->run.x; x < share->run.y; x++) {
                uint32_t at = 0;
                while (b->runs[at].sequence != q || b->runs[at].end <= x) at++;
                cr_assert_eq(b->runs[at].rank, share->run.home);
                for (uint64_t k = share->run.k0; k < share->run.k1 && k <= x; k++) twice |= seen[x * n + k]++;
            }
        }
        cr_assert(!twice, "sequence %u: a pair is there twice", q);
        for (uint64_t x = 0; x < n; x++) cr_assert(!memchr(seen + x * n, 0, x + 1), "sequence %u, row %lu", q, x);
        free(seen);
    }
    for (uint32_t r = 0; r < b->in.ranks; r++)
        if (load[r] > most) most = load[r];
    free(load);
    return most;
}

Test(cad, every_pair_is_computed_once_within_the_caps) {
    uint64_t state = 7;
    for (int i = 0; i < (int)amount(500, 1500); i++) {
        batch b;
        uint32_t sequences = 1 + (uint32_t)draw(&state, 12), gpus = 1 + (uint32_t)draw(&state, 4);
        uint32_t ranks = gpus * (1 + (uint32_t)draw(&state, 4)), shard = 1 + (uint32_t)draw(&state, 8);
        for (uint32_t s = 0; s < sequences; s++) b.lengths[s] = 1 + draw(&state, draw(&state, 4) ? 40 : 200);
        uint32_t servers = ranks > 1 && !draw(&state, 4) ? 1 + (uint32_t)draw(&state, ranks - 1) : 0;
        fill(&b, sequences, ranks, gpus, ranks - servers, 1000 + (uint32_t)draw(&state, 200000), shard);
        arena memory = {0}, scratch = {0};
        cad_shares shares, again;
        cr_assert_eq(cad_divide(&b.in, &memory, &scratch, &shares), FCP_OK);
        uint64_t most = check_shares(&b, &shares), work = 0, bytes, all = 0;
        for (uint32_t s = 0; s < sequences; s++) work += b.lengths[s] * (b.lengths[s] + 1) / 2;
        uint64_t *load = calloc(ranks, sizeof *load), *cap = calloc(ranks, sizeof *cap);
        for (uint32_t k = 0; k < b.in.row_count; k++) {
            cad_run r = {b.runs[k].sequence, 0, b.runs[k].start, b.runs[k].end, 0, b.lengths[b.runs[k].sequence]};
            load[b.runs[k].rank] += cad_work(&b.in.pairs, &r);
        }
        cr_assert_eq(cad_caps(&b.in, load, &scratch, cap), FCP_OK);
        for (uint32_t r = 0; r < ranks; r++) all = cap[r] > all ? cap[r] : all;
        /* what fits nowhere stays at home: with every rank almost full, less than a cell of each sequence and rank */
        cr_assert_leq(most, all + (uint64_t)shard * shard * (ranks + 1), "%lu of %lu, shards of %u", most, all, shard);
        cad_cost_sum cost;
        cad_cost_of(&b.in, &shares, &cost);
        cr_assert_eq(cost.work, work);
        cr_assert_eq(cad_bound(&b.in, &scratch, &bytes), FCP_OK);
        if (most <= all && !servers) cr_assert_leq(bytes, cost.kv + cost.rows, "batch %d", i);
        arena other = {0};
        cr_assert_eq(cad_divide(&b.in, &other, &scratch, &again), FCP_OK);
        cr_assert_eq(again.count, shares.count);
        for (size_t k = 0; k < shares.count; k++) {
            cr_assert_eq(again.at[k].rank, shares.at[k].rank);
            cr_assert_arr_eq(&again.at[k].run, &shares.at[k].run, sizeof shares.at[k].run);
        }
        arena_free(&memory), arena_free(&scratch), arena_free(&other);
        free(load), free(cap), free(b.runs);
    }
}

/* --- small batches: all divisions --------------------------------------------------------------------------------- */

enum { CELL = 32, TILES = 6, RANKS = 3 };

/* The bytes and the heaviest rank of one way to give tiles to ranks. A tile is a row shard, a key shard and a
 * sequence. */
static uint64_t bytes_of(const batch *b, const uint32_t (*tile)[3], uint32_t tiles, const uint32_t *rank,
                         uint64_t *out_most) {
    uint64_t load[RANKS] = {0}, bytes = 0;
    uint32_t home[8][8], at[8][8] = {{0}}, keys[8][8] = {{0}};
    for (uint32_t i = 0; i < b->in.row_count; i++)
        for (uint64_t x = b->runs[i].start; x < b->runs[i].end; x += CELL)
            home[b->runs[i].sequence][x / CELL] = b->runs[i].rank;
    for (uint32_t t = 0; t < tiles; t++) {
        load[rank[t]] += tile[t][0] == tile[t][1] ? CELL * (CELL + 1) / 2 : CELL * CELL;
        at[tile[t][2]][tile[t][0]] |= 1u << rank[t];
        keys[tile[t][2]][tile[t][1]] |= 1u << rank[t];
    }
    for (uint32_t s = 0; s < b->in.pairs.sequences; s++)
        for (uint32_t x = 0; x < b->lengths[s] / CELL; x++) {
            uint32_t away = at[s][x] & ~(1u << home[s][x]);
            bytes += CELL * (uint64_t)__builtin_popcount(away) * usual.part;
            if (away == at[s][x]) bytes -= CELL * (usual.part - usual.whole); /* one of them sends the result home */
            bytes += CELL * (uint64_t)__builtin_popcount(keys[s][x] & ~(1u << home[s][x])) * usual.kv;
        }
    *out_most = 0;
    for (int r = 0; r < RANKS; r++)
        if (load[r] > *out_most) *out_most = load[r];
    return bytes;
}

/* --- tries -------------------------------------------------------------------------------------------------------- */

/* Ranks 1 to `ranks` have room for the rows of sequence 0, which rank 0 holds. */
static uint64_t price_of_shares(const batch *b, cad_shares *shares) {
    cad_cost_sum cost;
    for (size_t i = 0; i < shares->count; i++) shares->at[i].rank += 1; /* bins are counted from the first rank on */
    cad_cost_of(&b->in, shares, &cost);
    for (size_t i = 0; i < shares->count; i++) shares->at[i].rank -= 1;
    return cost.kv + cost.rows;
}

Test(cad, tries_cost_no_more_than_the_first_and_often_less) {
    uint64_t state = 11;
    int better = 0;
    enum { BATCHES = 200 };
    for (int i = 0; i < BATCHES; i++) {
        batch b = {.lengths = {200 + draw(&state, 2000)}};
        uint32_t bins = 2 + (uint32_t)draw(&state, 7);
        fill(&b, 1, bins + 1, bins + 1, 1, 1000, 1 + (uint32_t)draw(&state, 16));
        b.in.price = (cad_price){4096, 1032, 1552}; /* rows so cheap that keys are divided, too */
        uint64_t n = b.lengths[0], room[8], tried[8], all = 0, work = 0;
        cad_run r = {0, 0, n / 2, n, 0, n}; /* the second half of the rows */
        for (uint32_t k = 0; k < bins; k++) all += room[k] = 1 + draw(&state, 100);
        for (uint32_t k = 0; k < bins; k++) tried[k] = room[k] = room[k] * (cad_work(&b.in.pairs, &r) + 4 * n) / all;
        arena memory = {0}, trial = {0};
        cad_groups groups;
        cad_shares plain = {0}, best;
        cad_runs runs = {&r, 1, 1};
        const cad_node node = {1, bins, tried, NULL, 0};
        cr_assert_eq(cad_group(&b.in, &memory, &r, 1, &groups), FCP_OK);
        cr_assert_eq(cad_sweep(&b.in, &memory, &groups, NULL, room, bins, 0, &plain), FCP_OK);
        uint64_t given[8];
        memcpy(given, tried, sizeof given);
        cr_assert_eq(cad_try(&b.in, &memory, &trial, &runs, &node, 0, 32, &best), FCP_OK);
        bool whole = true;
        for (size_t k = 0; k < plain.count; k++) whole = whole && plain.at[k].rank != FCP_NONE;
        for (size_t k = 0; k < best.count; k++) {
            work += cad_work(&b.in.pairs, &best.at[k].run);
            if (best.at[k].rank == FCP_NONE) whole = false;
            else given[best.at[k].rank] -= cad_work(&b.in.pairs, &best.at[k].run);
        }
        cr_assert_eq(work, cad_work(&b.in.pairs, &r));
        cr_assert_arr_eq(given, tried, bins * sizeof *given, "the room that is left");
        if (whole) {
            uint64_t usual_price = price_of_shares(&b, &plain), price = price_of_shares(&b, &best);
            cr_assert_leq(price, usual_price, "batch %d", i);
            better += price < usual_price;
        }
        arena_free(&trial);
        arena_free(&memory);
        free(b.runs);
    }
    cr_assert_gt(better, BATCHES / 4, "%d of %d", better, BATCHES);
}

Test(cad, small_batches_against_all_divisions) {
    static const uint64_t lists[][4] = {{3, 0}, {2, 1, 0},    {1, 2, 0}, {1, 1, 1, 0},
                                        {2, 0}, {1, 1, 2, 0}, {2, 2, 0}, {1, 2, 1, 0}};
    uint32_t compared = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (uint32_t tolerance = 50000; tolerance <= 1000000; tolerance += 50000)
            for (uint32_t holders = 1; holders <= RANKS; holders++) {
                batch b;
                uint32_t sequences = 0, tile[TILES][3], tiles = 0, shards = 0;
                for (; lists[l][sequences]; sequences++) {
                    b.lengths[sequences] = lists[l][sequences] * CELL;
                    shards += (uint32_t)lists[l][sequences];
                    for (uint32_t x = 0; x < lists[l][sequences]; x++)
                        for (uint32_t k = 0; k <= x; k++)
                            tile[tiles][0] = x, tile[tiles][1] = k, tile[tiles++][2] = sequences;
                }
                if (shards % holders) continue; /* homes at whole shards */
                fill(&b, sequences, RANKS, RANKS, holders, tolerance, CELL);
                b.in.servers = 0;
                arena memory = {0}, scratch = {0};
                cad_shares shares;
                cad_cost_sum cost;
                uint64_t bound, best = UINT64_MAX, cap[RANKS], load[RANKS] = {0};
                cr_assert_eq(cad_divide(&b.in, &memory, &scratch, &shares), FCP_OK);
                uint64_t ours = check_shares(&b, &shares);
                cad_cost_of(&b.in, &shares, &cost);
                load[0] = cost.work;
                cr_assert_eq(cad_caps(&b.in, load, &scratch, cap), FCP_OK);
                cr_assert_eq(cad_bound(&b.in, &scratch, &bound), FCP_OK);
                uint32_t ways = 1, rank[TILES];
                for (uint32_t t = 0; t < tiles; t++) ways *= RANKS;
                for (uint32_t w = 0; w < ways; w++) {
                    uint64_t most, bytes;
                    for (uint32_t t = 0, rest = w; t < tiles; t++, rest /= RANKS) rank[t] = rest % RANKS;
                    bytes = bytes_of(&b, (const uint32_t (*)[3])tile, tiles, rank, &most);
                    if (most <= cap[0]) {
                        cr_assert_leq(bound, bytes, "list %zu, way %u: bound %lu, bytes %lu", l, w, bound, bytes);
                        if (bytes < best) best = bytes;
                    }
                }
                if (ours <= cap[0] && best != UINT64_MAX) {
                    compared++;
                    /* one sequence of three shards on one rank: 1.67 times; all others at most 1.28 */
                    uint64_t most = l == 0 && holders == 1 ? 17 : 13;
                    cr_assert_leq(10 * (cost.kv + cost.rows), most * best,
                                  "list %zu, tolerance %u, %u holders: %lu, best %lu", l, tolerance, holders,
                                  cost.kv + cost.rows, best);
                }
                if (best != UINT64_MAX)
                    cr_expect_leq(ours, cap[0], "list %zu, tolerance %u, %u holders: %lu of %lu", l, tolerance, holders,
                                  ours, cap[0]);
                arena_free(&memory), arena_free(&scratch);
                free(b.runs);
            }
    cr_assert_gt(compared, 100);
}

/* --- wires -------------------------------------------------------------------------------------------------------- */

enum { SHARD = 32 }; /* homes and shares begin at its multiples */

/* How many rows of the ranks first to first + ranks - 1 are computed, in part at least, by ranks outside. */
static uint64_t rows_leaving(const batch *b, const cad_shares *shares, uint32_t first, uint32_t ranks) {
    uint64_t rows = 0;
    for (uint32_t i = 0; i < b->in.row_count; i++) {
        const problem_run *h = &b->in.rows[i];
        if (h->rank - first >= ranks) continue;
        for (uint64_t q = h->start; q < h->end; q += SHARD) {
            bool leaves = false;
            for (size_t k = 0; k < shares->count && !leaves; k++) {
                cad_run r = shares->at[k].run;
                if (shares->at[k].rank - first < ranks || r.sequence != h->sequence || q < r.x || q >= r.y) continue;
                r.x = q, r.y = q + SHARD;
                leaves = cad_work(&b->in.pairs, &r) > 0;
            }
            rows += leaves * SHARD;
        }
    }
    return rows;
}

/* Thirty-two ranks on eight nodes. The first node holds one sequence of 4K tokens and has most of the work; the others
 * hold short sequences. If only balance counted, other nodes would take some keys of nearly all of the first node's
 * rows, so nearly all rows would leave it. When cad is told that wires are slow, fewer rows leave. Still no rank has
 * more work than its cap. */
Test(cad, slow_wires_keep_rows_in_their_node) {
    uint64_t most_leave = 0, cap[32], load[32] = {0};
    for (uint64_t bytes = 0, step = 0; step < 3; step++) {
        batch b = {.lengths = {4096}};
        for (int i = 1; i < 57; i++) b.lengths[i] = 512;
        fill(&b, 57, 32, 4, 32, 20000, SHARD);
        b.in.wire = (cad_wire){16384, 4096, bytes};
        arena memory = {0}, scratch = {0}, second = {0};
        cad_shares shares, again;
        cr_assert_eq(cad_divide(&b.in, &memory, &scratch, &shares), FCP_OK);
        b.in.second = &second; /* two threads find the same */
        cr_assert_eq(cad_divide(&b.in, &memory, &scratch, &again), FCP_OK);
        b.in.second = NULL;
        cr_assert_eq(shares.count, again.count);
        for (size_t i = 0; i < shares.count; i++) {
            const cad_share *x = &shares.at[i], *y = &again.at[i];
            cr_assert_eq(x->rank, y->rank);
            cr_assert(!memcmp(&x->run, &y->run, sizeof x->run));
        }
        uint64_t most = check_shares(&b, &shares), leaving = rows_leaving(&b, &shares, 0, 4);
        if (!step) {
            cad_cost_sum cost;
            cad_cost_of(&b.in, &shares, &cost);
            load[0] = cost.work;
            cr_assert_eq(cad_caps(&b.in, load, &scratch, cap), FCP_OK);
            /* with these wires a mean rank computes as long as a rank of this node sends its part of all its keys and
             * of these rows */
            bytes = (leaving * 16384 + 4096 * 4096) / 4 * 1000000 / (cost.work / 32);
            most_leave = leaving;
        } else {
            cr_expect_lt(leaving, most_leave, "%lu rows at %lu bytes, %lu before", leaving, bytes, most_leave);
            bytes = bytes / 7 * 10; /* and now it sends for seven tenths of that time */
        }
        cr_expect_leq(most, cap[0]);
        arena_free(&memory), arena_free(&scratch), arena_free(&second);
        free(b.runs);
    }
}

/* A node holds a sequence of 4K tokens, seven others hold one of 3K and one of 1K: no node has twice its share of the
 * work. Slow wires change nothing. */
Test(cad, slow_wires_leave_nodes_with_their_share_alone) {
    cad_shares shares[2];
    arena memory = {0}, scratch = {0};
    batch b = {.lengths = {4096}};
    for (int i = 1; i < 15; i++) b.lengths[i] = i % 2 ? 3072 : 1024;
    fill(&b, 15, 32, 4, 32, 5000, SHARD);
    for (uint64_t bytes = 0, step = 0; step < 2; step++) {
        b.in.wire = (cad_wire){16384, 4096, bytes};
        cr_assert_eq(cad_divide(&b.in, &memory, &scratch, &shares[step]), FCP_OK);
        cad_cost_sum cost;
        cad_cost_of(&b.in, &shares[step], &cost);
        /* with these wires a mean rank computes half as long as a rank of the first node sends its part of these
         * rows */
        bytes = rows_leaving(&b, &shares[step], 0, 4) * 16384 / 4 * 1000000 / (cost.work / 32) / 2;
        cr_assert_gt(bytes, 0);
    }
    cr_assert_eq(shares[0].count, shares[1].count);
    for (size_t i = 0; i < shares[0].count; i++) {
        cr_expect_eq(shares[0].at[i].rank, shares[1].at[i].rank);
        cr_expect(!memcmp(&shares[0].at[i].run, &shares[1].at[i].run, sizeof shares[0].at[i].run));
    }
    arena_free(&memory), arena_free(&scratch);
    free(b.runs);
}

/* --- whole programs ----------------------------------------------------------------------------------------------- */

typedef struct look {
    double over;          /* heaviest rank / mean */
    uint64_t moved;       /* tiles away from their Q block's home */
    uint32_t holders;     /* ranks with tokens */
    uint64_t misplaced;   /* tokens that are not where the caller holds them */
    uint32_t blocks;
    uint64_t read;        /* tokens of KV that ranks read which are not their home */
} look;

static uint64_t tokens_read(const planning *x) {
    const problem *p = x->problem;
    bool *reads = calloc((size_t)p->block_count * p->ranks, 1);
    uint64_t tokens = 0;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t k = p->tile_k[t], r = placement_exec(x->placement, t);
        bool *seen = &reads[(size_t)k * p->ranks + r];
        if (!*seen && r != x->placement->home[k]) tokens += p->blocks[k].tokens;
        *seen = true;
    }
    free(reads);
    return tokens;
}

static uint32_t rank_of(const problem_run *runs, uint32_t count, uint32_t sequence, uint64_t at) {
    uint32_t i = 0;
    while (i < count && (runs[i].sequence != sequence || at < runs[i].start || at >= runs[i].end)) i++;
    return i < count ? runs[i].rank : FCP_NONE;
}

static void see(look *l, const planning *x) {
    const problem *p = x->problem;
    uint64_t *load = calloc(p->ranks, sizeof *load), most = 0;
    bool *holds = calloc(p->ranks, 1);
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t r = placement_exec(x->placement, t);
        cr_assert_lt(r, p->ranks);
        load[r] += p->tile_pairs[t];
        l->moved += r != x->placement->home[p->tile_q[t]];
    }
    for (uint32_t r = 0; r < p->ranks; r++) most = load[r] > most ? load[r] : most;
    l->blocks = p->block_count;
    l->read = tokens_read(x);
    l->over = p->pairs ? (double)most * p->ranks / (double)p->pairs : 1;
    planning other = *x;
    other.work = (arena){0};
    for (int side = 0; side < FCP_SIDES; side++) {
        problem_run *runs;
        uint32_t count;
        cr_assert_eq(problem_held(&other, (fcp_side)side, &runs, &count), FCP_OK);
        for (uint32_t i = 0; i < p->piece_count; i++) {
            const fcp_piece *piece = &p->pieces[i];
            uint32_t home = x->placement->home[piece->block];
            holds[home] = true;
            if (!problem_holds(p, piece->block, (fcp_side)side)) continue;
            if (rank_of(runs, count, piece->sequence, piece->start) != home ||
                rank_of(runs, count, piece->sequence, piece->start + piece->length - 1) != home)
                l->misplaced += piece->length;
        }
    }
    for (uint32_t r = 0; r < p->ranks; r++) l->holders += holds[r];
    arena_free(&other.work);
    free(load), free(holds);
}

static look plan(const char *cluster, const char *lengths, const char *rest) {
    char source[2048];
    snprintf(
        source, sizeof source,
        "model { heads = 8; kv_heads = 2; head_dim = 64 }\ncluster { %s }\nbatch { %s }\nplan { block = 256; %s }\n",
        cluster, lengths, rest);
    look l = {0};
    planned x;
    plan_to_placement(&x, source, NULL);
    see(&l, &x.at);
    plan_rest(&x);
    planned_free(&x);
    return l;
}

Test(cad, masks_and_layouts) {
    static const char *const masks[] = {"causal",
                                        "full",
                                        "window(w = 700)",
                                        "lambda(sink = 64, window = 512)",
                                        "shared_question(p = 20, answers = 4)",
                                        "prefix(p = 900)"};
    static const char *const layouts[] = {"contiguous", "planned", "zigzag"};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            char rest[256];
            snprintf(rest, sizeof rest, "mask = %s; layout = %s; strategy = cad(tolerance = 0.05, shard = 64)",
                     masks[m], layouts[l]);
            look s = plan("nodes = 2; gpus = 4", "lengths = [9000, 700 x 9, 40 x 30, 2500]", rest);
            cr_expect_eq(s.misplaced, 0, "%s", rest);
            cr_expect_gt(s.moved, 0, "%s", rest);
            cr_expect_leq(s.over, m == 0 ? 1.051 : 1.12, "%s: %f", rest, s.over);
        }
}

Test(cad, bases_servers_and_parts_of_a_batch) {
    static const char *const bases[] = {"fcp", "ring", "zigzag"};
    for (int b = 0; b < 3; b++) {
        char rest[256];
        snprintf(rest, sizeof rest, "mask = causal; strategy = cad(tolerance = 0.02, base = %s, shard = 32)", bases[b]);
        look s = plan("nodes = 2; gpus = 4", "lengths = [12000, 700 x 9, 40 x 30]", rest);
        cr_expect_leq(s.over, 1.021, "%s: %f", rest, s.over);
        cr_expect_eq(s.holders, 8);
    }
    look s = plan("nodes = 2; gpus = 4", "lengths = [9000, 700 x 9]",
                  "mask = causal; layout = planned; strategy = cad(servers = 2, shard = 32)");
    cr_expect_eq(s.holders, 6);
    cr_expect_eq(s.misplaced, 0);
    cr_expect_gt(s.moved, 0);
    s = plan("nodes = 2; gpus = 4", "lengths = [9000, 500] on 0..4, [300 x 20] on 2..8",
             "mask = causal; layout = planned; strategy = cad(shard = 32)");
    cr_expect_eq(s.holders, 8);
    cr_expect_eq(s.misplaced, 0);
    cr_expect_leq(s.over, 1.021);
}

/* In zigzag a sequence stays in place if it is long enough for its keys to travel to all nodes behind the computing;
 * where heads are shared each key goes to few ranks anyway, and on one node keys do not travel over net. */
Test(cad, zigzag_stays_where_keys_are_hidden) {
    static const struct { const char *cluster, *batch, *by; bool stays; } cases[] = {
        {"nodes = 8; gpus = 2", "48000", "cad", true},    {"nodes = 8; gpus = 2", "36000", "cad", false},
        {"nodes = 8; gpus = 2", "48000", "dcp", true},    {"nodes = 8; gpus = 2", "36000", "dcp", false},
        {"nodes = 8; gpus = 2", "36000", "ulysses", true}, {"nodes = 1; gpus = 16", "36000", "cad", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "model { heads = 64; kv_heads = 8 }\ncluster { %s; gpu = h200 }\n"
                 "batch { lengths = [%s] }\nplan { mask = causal; passes = forward; layout = zigzag; strategy = %s }\n",
                 cases[i].cluster, cases[i].batch, cases[i].by);
        fcpc_program *program = parse_text(text, NULL);
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan_batch(program, NULL, NULL, NULL, NULL, &plan), FCP_OK, "%s", text);
        cr_expect_eq(!plan->summary->bytes_reshuffle, cases[i].stays, "%s", text);
        fcp_plan_free(plan);
        fcpc_program_free(program);
    }
}

/* Small pieces share blocks. Base zigzag cuts each of the 64 sequences into 16 pieces of 15 tokens. Pieces with the
 * same number are at home on the same rank, so they go into the same blocks, at most 64 in all. The strategy zigzag
 * makes its blocks of the same pieces. Here cad moves no work, and reads no more keys from other ranks than zigzag. */
Test(cad, crumbs_share_blocks) {
    static const char cluster[] = "nodes = 2; gpus = 4", lengths[] = "lengths = [240 x 64]";
    look s = plan(cluster, lengths, "mask = causal; strategy = cad(tolerance = 0.1, base = zigzag, shard = 32)");
    look zigzag = plan(cluster, lengths, "mask = causal; strategy = zigzag");
    cr_expect_leq(s.blocks, 16 * 4, "%u blocks", s.blocks);
    cr_expect_eq(s.moved, 0);
    cr_expect_eq(s.read, zigzag.read, "%llu tokens, and %llu", (unsigned long long)s.read,
                 (unsigned long long)zigzag.read);
}

/* One sequence has most of the work: its last blocks are too heavy for one of 48 ranks. */
Test(split, heavy_blocks_are_shared) {
    static const char batch_of[] = "lengths = [20000, 256 x 150]";
    look s = plan("nodes = 6; gpus = 8", batch_of, "mask = causal; strategy = fcp");
    cr_expect_gt(s.moved, 0);
    cr_expect_leq(s.over, 1.006, "%f", s.over);
    s = plan("nodes = 6; gpus = 8", batch_of, "mask = causal; strategy = fcp(tolerance = 0.1)");
    cr_expect_leq(s.over, 1.101, "%f", s.over);
    s = plan("nodes = 6; gpus = 8", batch_of, "mask = causal; strategy = fcp(split = off)");
    cr_expect_eq(s.moved, 0);
    s = plan("nodes = 1; gpus = 4", batch_of, "mask = causal; strategy = fcp"); /* no block is too heavy */
    cr_expect_eq(s.moved, 0);
}

/* With many ranks, too, sums are fine enough to fill each rank to the tolerance: the tables grow with the ranks. */
Test(cad, many_ranks_keep_the_tolerance) {
    look s = plan("nodes = 512; gpus = 8", "lengths = [4K x 600, 200 x 20000]",
                  "mask = lambda(sink = 16, window = 256); layout = contiguous; strategy = cad(shard = 32)");
    cr_expect_leq(s.over, 1.0201, "%f", s.over);
}

Test(cad, odd_batches) {
    look s = plan("nodes = 2; gpus = 4", "lengths = [5]",
                  "mask = causal; layout = contiguous; strategy = cad"); /* more ranks than tokens */
    cr_expect_eq(s.misplaced, 0);
    s = plan("nodes = 1; gpus = 1", "lengths = [500, 600]", "mask = causal; layout = contiguous; strategy = cad");
    cr_expect_eq(s.moved, 0);
    s = plan("nodes = 4; gpus = 2", "lengths = [40000]",
             "mask = causal; layout = contiguous; strategy = cad(tolerance = 0.005)"); /* one giant */
    cr_expect_leq(s.over, 1.0051);
    cr_expect_eq(s.misplaced, 0);
    s = plan("nodes = 2; gpus = 2", "lengths = [3000:9000, 1:4000 x 20, 500]",
             "mask = causal; layout = contiguous; strategy = cad(shard = 64)");
    cr_expect_eq(s.misplaced, 0);
    cr_expect_leq(s.over, 1.05, "%f", s.over);
}
