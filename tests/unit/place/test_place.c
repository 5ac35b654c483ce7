/* test_place.c: tests placement: LPT against its definition, the guarantees of strategy fcp, and the figures by which
 * placements are compared (weigh_placement.c), against brute force. */
#include <criterion/criterion.h>

#include "compiler/place/fcp/place_fcp.h"
#include "tests/bench/place_batch.h"
#include "tests/support/place_cost.h"
#include "tests/support/planned.h"
#include "tests/support/skips.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

/* Long-tailed lengths: most short, a few very long. */
static uint32_t draw_lengths(uint64_t *state, uint64_t tokens, uint64_t longest, uint64_t *out) {
    uint32_t count = 0;
    while (tokens) {
        uint64_t n = 1 + draw(state, 4000);
        if (!draw(state, 12)) n *= 1 + draw(state, 12);
        if (!draw(state, 150)) n = longest / 2 + draw(state, longest / 2 + 1);
        if (n > tokens) n = tokens;
        out[count++] = n;
        tokens -= n;
    }
    return count;
}

static place_batch causal(uint64_t seed, uint32_t ranks, uint64_t per_rank, uint64_t longest, uint32_t block) {
    uint64_t state = seed, *lengths = malloc(ranks * per_rank * sizeof *lengths);
    cr_assert_not_null(lengths);
    uint32_t count = draw_lengths(&state, ranks * per_rank, longest, lengths);
    place_batch b;
    cr_assert(place_batch_causal(&b, lengths, count, ranks, 8, block));
    free(lengths);
    return b;
}

/* A problem from parts that the caller fills: n blocks, at most `reads` reads each. */
static place_batch blank(uint32_t n, uint32_t reads, uint32_t ranks, uint32_t block) {
    place_batch b = {.tokens = calloc(n + 1, sizeof(uint32_t)), .start = calloc(n + 2, sizeof(uint32_t)),
                     .reads = calloc((size_t)n * reads + 1, sizeof(uint32_t)), .work = calloc(n + 1, sizeof(uint64_t))};
    cr_assert(b.tokens && b.start && b.reads && b.work);
    b.in = (place_input){.tolerance = 5000, .ranks = ranks, .gpus = 4, .blocks = n, .block = block, .tokens = b.tokens,
                         .work = b.work,
                         .reads_start = b.start, .reads = b.reads};
    return b;
}

typedef fcp_code placer(const place_input *in, arena *scratch, uint32_t *out_home);

/* Places, checks that homes exist, measures. */
static place_cost place(const place_input *in, placer *by, uint32_t *home) {
    arena a = {0};
    place_cost c;
    memset(home, 0xff, in->blocks * sizeof *home);
    cr_assert_eq(by(in, &a, home), FCP_OK);
    for (uint32_t b = 0; b < in->blocks; b++) cr_assert_lt(home[b], in->ranks);
    cr_assert_eq(place_measure(in, &a, home, &c), FCP_OK);
    arena_free(&a);
    return c;
}

static uint64_t limit_of(const place_input *in, const place_cost *c) { /* 1.005 x max(mean, heaviest) */
    uint64_t base = (c->work_total + in->ranks - 1) / in->ranks;
    if (c->work_heaviest > base) base = c->work_heaviest;
    return base + base / 200;
}

static uint32_t empty_ranks(const place_input *in, const uint32_t *home) {
    uint32_t empty = in->ranks;
    uint8_t *seen = calloc(in->ranks, 1);
    for (uint32_t b = 0; b < in->blocks; b++)
        if (!seen[home[b]]++) empty--; /* at most 255 blocks a rank in these tests */
    free(seen);
    return empty;
}

/* --- ring --------------------------------------------------------------------------------------------------------- */

Test(place, ring_and_zigzag) {
    for (uint32_t chunk = 0; chunk < 4; chunk++) cr_expect_eq(place_chunk(chunk, 4, 1), chunk);
    static const uint32_t zigzag[] = {0, 1, 2, 3, 3, 2, 1, 0};
    for (uint32_t chunk = 0; chunk < 8; chunk++) cr_expect_eq(place_chunk(chunk, 4, 2), zigzag[chunk]);
}

/* --- LPT ---------------------------------------------------------------------------------------------------------- */

/* By the definition, in O(blocks x ranks). */
static void naive_lpt(const place_input *in, uint32_t *home) {
    uint64_t *load = calloc(in->ranks, sizeof *load), *tokens = calloc(in->ranks, sizeof *tokens);
    uint64_t *turn = calloc(in->ranks, sizeof *turn), cap = place_token_cap(in);
    uint8_t *done = calloc(in->blocks, 1);
    for (uint32_t r = 0; r < in->ranks; r++) turn[r] = in->ranks - r;
    for (uint32_t i = 0; i < in->blocks; i++) {
        uint32_t b = FCP_NONE, best = FCP_NONE;
        for (uint32_t k = 0; k < in->blocks; k++)
            if (!done[k] && (b == FCP_NONE || in->work[k] > in->work[b])) b = k;
        done[b] = 1;
        for (uint32_t r = 0; r < in->ranks; r++)
            if (tokens[r] + in->tokens[b] <= cap &&
                (best == FCP_NONE || load[r] < load[best] || (load[r] == load[best] && turn[r] > turn[best])))
                best = r;
        cr_assert_neq(best, FCP_NONE, "no rank has room for block %u", b);
        load[best] += in->work[b];
        tokens[best] += in->tokens[b];
        turn[best] = (uint64_t)in->ranks + i + 1;
        home[b] = best;
    }
    free(load), free(tokens), free(turn), free(done);
}

Test(place, lpt_is_its_definition) {
    uint64_t state = 7;
    for (uint32_t trial = 0; trial < 60; trial++) {
        uint32_t n = 1 + (uint32_t)draw(&state, 120), ranks = 1 + (uint32_t)draw(&state, 12);
        uint32_t sizes = 1 + (uint32_t)draw(&state, 5);
        place_batch b = blank(n, 0, ranks, 64);
        for (uint32_t i = 0; i < n; i++) {
            b.tokens[i] = draw(&state, 2) ? 64 : 1 + (uint32_t)draw(&state, 64);
            b.work[i] = draw(&state, sizes * sizes * 10); /* few values: many ties */
        }
        uint32_t *home = calloc(n, sizeof *home), *expected = calloc(n, sizeof *expected);
        place_cost c = place(&b.in, place_lpt, home);
        naive_lpt(&b.in, expected);
        for (uint32_t i = 0; i < n; i++) cr_assert_eq(home[i], expected[i], "trial %u block %u", trial, i);
        cr_assert_leq(c.tokens_max, place_token_cap(&b.in));
        free(home), free(expected);
        place_batch_free(&b);
    }
}

Test(place, lpt_deals_equal_blocks_in_zigzag) {
    static const uint32_t expected[] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
    place_batch b = blank(9, 0, 3, 16);
    for (uint32_t i = 0; i < 9; i++) b.tokens[i] = 16, b.work[i] = 5;
    uint32_t home[9];
    place(&b.in, place_lpt, home);
    for (uint32_t i = 0; i < 9; i++) cr_expect_eq(home[i], expected[i]);
    place_batch_free(&b);
}

Test(place, lpt_keeps_the_cap_when_light_blocks_are_long) {
    /* one heavy short block per rank but one: without the cap the last rank would take every long light block */
    place_batch b = blank(20, 0, 4, 100);
    for (uint32_t i = 0; i < 20; i++) b.tokens[i] = i < 3 ? 10 : 100, b.work[i] = i < 3 ? 1000 : 1;
    uint32_t home[20];
    place_cost c = place(&b.in, place_lpt, home);
    cr_expect_leq(c.tokens_max, place_token_cap(&b.in));
    cr_expect_eq(place_token_cap(&b.in), 1730 / 4 + 100);
    place_batch_free(&b);
}

/* The least work that the busiest rank can have: all ways are tried. load: of each rank so far. */
static uint64_t best_makespan(const uint64_t *work, uint32_t n, uint64_t *load, uint32_t ranks) {
    uint64_t best = UINT64_MAX;
    if (!n) {
        best = 0;
        for (uint32_t r = 0; r < ranks; r++) best = load[r] > best ? load[r] : best;
        return best;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        load[r] += work[n - 1];
        const uint64_t found = best_makespan(work, n - 1, load, ranks);
        load[r] -= work[n - 1];
        best = found < best ? found : best;
        if (!load[r]) break; /* empty ranks are alike */
    }
    return best;
}

/* Graham: 4/3 - 1/(3 m) of the best, where the cap on tokens is in nobody's way. His worst case is met: 5 5 4 4 3 3 3 on
 * three ranks, where LPT has 11 and the best is 9. */
Test(place, lpt_keeps_grahams_bound) {
    uint64_t state = 11;
    bool tight = false;
    for (uint32_t trial = 0; trial < 400; trial++) {
        const uint32_t ranks = trial ? 1 + (uint32_t)draw(&state, 4) : 3;
        const uint32_t n = trial ? ranks + (uint32_t)draw(&state, 6) : 7;
        static const uint64_t worst[] = {5, 5, 4, 4, 3, 3, 3};
        uint64_t work[10], load[4] = {0};
        uint32_t home[10];
        place_batch b = blank(n, 0, ranks, 64);
        for (uint32_t i = 0; i < n; i++) {
            b.tokens[i] = 1;
            b.work[i] = work[i] = trial ? 1 + draw(&state, 30) : worst[i];
        }
        const place_cost c = place(&b.in, place_lpt, home);
        const uint64_t best = best_makespan(work, n, load, ranks);
        cr_assert_leq(c.work_max * 3 * ranks, best * (4 * ranks - 1), "trial %u", trial);
        tight |= c.work_max * 3 * ranks == best * (4 * ranks - 1) && ranks > 1;
        place_batch_free(&b);
    }
    cr_assert(tight);
}

static void plan_placed(planned *x, const char *lengths, const char *mask, const char *by) {
    char source[400];
    snprintf(source, sizeof source,
             "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [%s] }\n"
             "plan { mask = %s; block = 512; strategy = fcp(place = %s) }\n",
             lengths, mask, by);
    plan_to_placement(x, source, NULL);
}

/* What a program with place = lpt gets is that and nothing else; with place = near no more is moved. */
Test(place, fcp_by_lpt) {
    static const char *const lengths[] = {"9000, 5000 x 3, 700 x 9, 100 x 40", "65536", "300:5000, 4000:900, 2000 x 7"};
    static const char *const masks[] = {"causal", "full"};
    for (int i = 0; i < 6; i++) {
        planned x, near;
        place_input in;
        place_cost cost[2];
        arena a = {0};
        plan_placed(&x, lengths[i / 2], masks[i % 2], "lpt");
        plan_placed(&near, lengths[i / 2], masks[i % 2], "near");
        cr_assert_eq(place_input_of(&x.at, &in), FCP_OK);
        uint32_t *home = ARENA_NEW(&a, uint32_t, in.blocks);
        cr_assert_eq(place_lpt(&in, &a, home), FCP_OK);
        if (x.p.split) cr_assert_eq(place_keys(&x.p, &in, &a, home), FCP_OK);
        cr_assert_arr_eq(x.home, home, in.blocks * sizeof *home);
        cr_assert(!x.at.placement->exec && !near.at.placement->exec);
        cr_assert_eq(place_measure(&in, &a, home, &cost[0]), FCP_OK);
        cr_assert_eq(place_measure(&in, &a, near.home, &cost[1]), FCP_OK);
        cr_assert_leq(cost[0].tokens_max, place_token_cap(&in) + (x.p.split ? in.block : 0));
        cr_assert_leq(cost[1].tokens_moved, cost[0].tokens_moved, "%s, %s", lengths[i / 2], masks[i % 2]);
        arena_free(&a);
        planned_free(&x), planned_free(&near);
    }
}

/* --- measure ------------------------------------------------------------------------------------------------------ */

Test(place, measure_is_brute_force) {
    uint64_t state = 3;
    for (uint32_t trial = 0; trial < 40; trial++) {
        uint32_t n = 1 + (uint32_t)draw(&state, 40), ranks = 1 + (uint32_t)draw(&state, 10);
        place_batch b = blank(n, n, ranks, 64);
        uint32_t home[40];
        bool moves[40][10] = {{0}}, nodes[40][4] = {{0}};
        uint64_t moved = 0, net = 0, send[10] = {0}, receive[10] = {0}, work[10] = {0}, tokens[10] = {0};
        for (uint32_t i = 0; i < n; i++) home[i] = (uint32_t)draw(&state, ranks);
        for (uint32_t i = 0, e = 0; i < n; i++) {
            b.tokens[i] = 1 + (uint32_t)draw(&state, 64);
            b.work[i] = draw(&state, 100);
            work[home[i]] += b.work[i];
            tokens[home[i]] += b.tokens[i];
            for (uint32_t j = 0; j < n; j++)
                if (!draw(&state, 4)) {
                    b.reads[e++] = j;
                    moves[j][home[i]] = home[i] != home[j];
                    nodes[j][home[i] / 4] = home[i] / 4 != home[j] / 4;
                }
            b.start[i + 1] = e;
        }
        for (uint32_t j = 0; j < n; j++) {
            for (uint32_t r = 0; r < ranks; r++) {
                if (!moves[j][r]) continue;
                moved += b.tokens[j];
                send[home[j]]++;
                receive[r]++;
            }
            for (uint32_t v = 0; v < 3; v++) net += nodes[j][v] ? b.tokens[j] : 0;
        }
        uint64_t most[4] = {0};
        for (uint32_t r = 0; r < ranks; r++) {
            if (work[r] > most[0]) most[0] = work[r];
            if (tokens[r] > most[1]) most[1] = tokens[r];
            if (send[r] > most[2]) most[2] = send[r];
            if (receive[r] > most[3]) most[3] = receive[r];
        }
        arena a = {0};
        place_cost c;
        cr_assert_eq(place_measure(&b.in, &a, home, &c), FCP_OK);
        cr_expect_eq(c.tokens_moved, moved);
        cr_expect_eq(c.tokens_moved_net, net);
        cr_expect_eq(c.work_max, most[0]);
        cr_expect_eq(c.tokens_max, most[1]);
        cr_expect_eq(c.send_max, most[2]);
        cr_expect_eq(c.recv_max, most[3]);
        arena_free(&a);
        place_batch_free(&b);
    }
}

/* --- fcp ---------------------------------------------------------------------------------------------------------- */

Test(place, fcp_balances_and_saves_on_long_tailed_batches) {
    static const struct { uint32_t ranks, block; uint64_t per_rank, longest; } cases[] = {
        {8, 1024, 32768, 60000}, {16, 1024, 32768, 100000}, {32, 2048, 32768, 100000}, {64, 1024, 16384, 200000},
        {64, 2048, 32768, 120000}, {128, 2048, 32768, 120000},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            place_batch b = causal(seed, cases[i].ranks, cases[i].per_rank, cases[i].longest, cases[i].block);
            uint32_t *home = calloc(b.in.blocks, sizeof *home);
            place_cost lpt = place(&b.in, place_lpt, home), c = place(&b.in, place_fcp, home);
            cr_expect_leq(c.tokens_max, place_token_cap(&b.in), "case %u seed %lu", i, (unsigned long)seed);
            cr_expect_leq(c.work_max, limit_of(&b.in, &c), "case %u seed %lu: %.5f", i, (unsigned long)seed,
                          (double)c.work_max / (double)limit_of(&b.in, &c));
            cr_expect_leq(4 * c.tokens_moved, 3 * lpt.tokens_moved, "case %u seed %lu: moved %lu, LPT %lu", i,
                          (unsigned long)seed, (unsigned long)c.tokens_moved, (unsigned long)lpt.tokens_moved);
            cr_expect_leq(c.tokens_moved_net, c.tokens_moved);
            cr_expect_eq(empty_ranks(&b.in, home), 0);
            free(home);
            place_batch_free(&b);
        }
}

Test(place, fcp_keeps_what_fits_on_one_rank_together) {
    /* 40 sequences of 4 blocks, 8 ranks: five sequences each, and nothing need move */
    uint64_t lengths[40];
    for (uint32_t i = 0; i < 40; i++) lengths[i] = 4 * 256;
    place_batch b;
    cr_assert(place_batch_causal(&b, lengths, 40, 8, 8, 256));
    uint32_t home[160];
    place_cost c = place(&b.in, place_fcp, home);
    cr_expect_eq(c.tokens_moved, 0);
    cr_expect_eq(c.work_max * 8, c.work_total);
    place_batch_free(&b);
}

Test(place, fcp_keeps_sequences_in_their_node) {
    /* two sequences that each need half of 16 ranks: each can stay in its own node of 8 */
    uint64_t lengths[2] = {64 * 128, 64 * 128};
    place_batch b;
    cr_assert(place_batch_causal(&b, lengths, 2, 16, 8, 128));
    uint32_t home[128];
    place_cost c = place(&b.in, place_fcp, home);
    cr_expect_leq(c.work_max, limit_of(&b.in, &c));
    cr_expect_lt(5 * c.tokens_moved_net, c.tokens_moved);
    place_batch_free(&b);
}

Test(place, fcp_with_a_block_above_the_mean) {
    uint64_t lengths[200];
    for (uint32_t i = 0; i < 200; i++) lengths[i] = 500 + i;
    lengths[17] = 40 * 1024;
    place_batch b;
    cr_assert(place_batch_causal(&b, lengths, 200, 40, 8, 1024));
    uint32_t *home = calloc(b.in.blocks, sizeof *home);
    place_cost c = place(&b.in, place_fcp, home);
    cr_expect_gt(c.work_heaviest * 40, c.work_total);
    cr_expect_leq(c.work_max, limit_of(&b.in, &c));
    cr_expect_leq(c.tokens_max, place_token_cap(&b.in));
    cr_expect_eq(empty_ranks(&b.in, home), 0);
    free(home);
    place_batch_free(&b);
}

Test(place, fcp_on_other_masks) {
    /* one sequence of 96 blocks under a window of 4 blocks, under a full mask, with a sink of 2 blocks and a window */
    for (uint32_t mask = 0; mask < 3; mask++) {
        place_batch b = blank(96, 96, 8, 128);
        for (uint32_t i = 0, e = 0; i < 96; i++) {
            b.tokens[i] = 128;
            for (uint32_t j = 0; j < 96; j++)
                if (mask == 1 || (j <= i && (i - j < 4 || (mask == 2 && j < 2)))) {
                    b.reads[e++] = j;
                    b.work[i] += mask == 1 || j < i ? 128 * 128 : 128 * 129 / 2;
                }
            b.start[i + 1] = e;
        }
        uint32_t home[96];
        place_cost lpt = place(&b.in, place_lpt, home), c = place(&b.in, place_fcp, home);
        cr_expect_leq(c.tokens_max, place_token_cap(&b.in));
        cr_expect_leq(c.work_max * 1000, lpt.work_max * 1010, "mask %u: %lu, LPT %lu", mask, (unsigned long)c.work_max,
                      (unsigned long)lpt.work_max);
        cr_expect_leq(c.tokens_moved, lpt.tokens_moved, "mask %u", mask);
        if (mask != 1) cr_expect_leq(2 * c.tokens_moved, lpt.tokens_moved, "mask %u: %lu, LPT %lu", mask,
                                     (unsigned long)c.tokens_moved, (unsigned long)lpt.tokens_moved);
        cr_expect_eq(empty_ranks(&b.in, home), 0);
        place_batch_free(&b);
    }
}

Test(place, fcp_on_small_and_odd_problems) {
    uint32_t home[64];
    place_batch b = blank(5, 1, 1, 16); /* one rank */
    for (uint32_t i = 0; i < 5; i++) b.tokens[i] = 16, b.work[i] = i;
    place_cost c = place(&b.in, place_fcp, home);
    cr_expect_eq(c.tokens_max, 80);
    place_batch_free(&b);

    b = blank(0, 1, 3, 16); /* nothing */
    place(&b.in, place_fcp, home);
    place(&b.in, place_lpt, home);
    place_batch_free(&b);

    for (uint32_t kind = 0; kind < 3; kind++) { /* as many blocks as ranks: equal, of no work, one block has it all */
        b = blank(12, 1, 12, 16);
        for (uint32_t i = 0; i < 12; i++) {
            b.tokens[i] = 16;
            b.work[i] = kind == 0 ? 9 : kind == 1 ? 0 : i == 7 ? 1000000 : 0;
        }
        place(&b.in, place_fcp, home);
        cr_expect_eq(empty_ranks(&b.in, home), 0, "kind %u", kind);
        place_batch_free(&b);
    }

    b = blank(48, 1, 6, 16); /* no work: tokens are balanced instead */
    for (uint32_t i = 0; i < 48; i++) b.tokens[i] = 16;
    c = place(&b.in, place_fcp, home);
    cr_expect_eq(c.tokens_max, 128);
    place_batch_free(&b);

    b = blank(50, 1, 6, 16); /* equal blocks that cannot be balanced: 50 = 6 x 8 + 2 */
    for (uint32_t i = 0; i < 50; i++) b.tokens[i] = 16, b.work[i] = 77;
    c = place(&b.in, place_fcp, home);
    cr_expect_eq(c.work_max, 9 * 77);
    place_batch_free(&b);

    b = blank(3, 1, 8, 16); /* fewer blocks than ranks */
    for (uint32_t i = 0; i < 3; i++) b.tokens[i] = 16, b.work[i] = 5;
    c = place(&b.in, place_fcp, home);
    cr_expect_eq(c.work_max, 5);
    place_batch_free(&b);
}

Test(place, fcp_survives_anything) {
    uint64_t state = 99;
    for (uint32_t trial = 0; trial < 400; trial++) {
        uint32_t n = 1 + (uint32_t)draw(&state, 60), ranks = 1 + (uint32_t)draw(&state, 20);
        uint32_t reads = 1 + (uint32_t)draw(&state, 6), huge = (uint32_t)draw(&state, 4);
        place_batch b = blank(n, n, ranks, 128);
        b.in.gpus = 1 + (uint32_t)draw(&state, 8);
        for (uint32_t i = 0, e = 0; i < n; i++) {
            b.tokens[i] = draw(&state, 3) ? 128 : 1 + (uint32_t)draw(&state, 128);
            b.work[i] = draw(&state, 5) ? draw(&state, 1000) : 0;
            if (huge == 1) b.work[i] <<= draw(&state, 46);
            if (huge == 2) b.work[i] = UINT64_MAX / 64;
            for (uint32_t j = 0; j < n; j++)
                if (!draw(&state, reads * 3)) b.reads[e++] = j;
            b.start[i + 1] = e;
        }
        uint32_t *home = calloc(n, sizeof *home), *again = calloc(n, sizeof *again);
        place_cost c = place(&b.in, place_fcp, home);
        cr_expect_leq(c.tokens_max, place_token_cap(&b.in), "trial %u", trial);
        if (n >= ranks) cr_expect_eq(empty_ranks(&b.in, home), 0, "trial %u", trial);
        place(&b.in, place_fcp, again);
        cr_expect_arr_eq(home, again, n * sizeof *home, "trial %u", trial);
        free(home), free(again);
        place_batch_free(&b);
    }
}

Test(place, interrupted) {
    place_batch b = causal(5, 16, 8192, 40000, 512);
    volatile int stop = 1;
    b.in.stop = &stop;
    uint32_t *home = calloc(b.in.blocks, sizeof *home);
    arena a = {0};
    cr_expect_eq(place_fcp(&b.in, &a, home), FCP_E_INTERRUPTED);
    cr_expect_eq(place_lpt(&b.in, &a, home), FCP_E_INTERRUPTED);
    arena_free(&a);
    free(home);
    place_batch_free(&b);
}

/* Every batch of lengths at hand. */
Test(place, fcp_on_real_lengths) {
    static const char *const kinds[] = {"wlbllm", "prolong", "wikipedia"};
    static const uint32_t sizes[] = {8, 32, 64, 256};
    const char *folder = getenv("FCPC_WORKLOADS");
    unsigned found = 0;
    if (!folder || !*folder) folder = "../shared/workloads";
    for (unsigned k = 0; k < 3; k++)
        for (unsigned s = 0; s < 4; s++) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s-%ux32k.lengths", folder, kinds[k], sizes[s]);
            FILE *f = fopen(path, "r");
            if (!f) continue;
            found++;
            static uint64_t lengths[65536];
            unsigned long long n;
            uint32_t count = 0;
            while (count < 65536 && fscanf(f, "%llu", &n) == 1) lengths[count++] = n;
            fclose(f);
            for (uint32_t block = 4096; block >= 1024; block /= 2) {
                place_batch b;
                cr_assert(place_batch_causal(&b, lengths, count, sizes[s], 8, block));
                uint32_t *home = calloc(b.in.blocks, sizeof *home);
                place_cost lpt = place(&b.in, place_lpt, home), c = place(&b.in, place_fcp, home);
                uint64_t limit = limit_of(&b.in, &c);
                if (sizes[s] == 8 && block == 4096) limit += limit / 200;
                cr_expect_leq(c.work_max, limit, "%s block %u", path, block);
                cr_expect_leq(c.tokens_max, place_token_cap(&b.in), "%s block %u", path, block);
                cr_expect_lt(c.tokens_moved, lpt.tokens_moved, "%s block %u", path, block);
                cr_expect_eq(empty_ranks(&b.in, home), 0);
                free(home);
                place_batch_free(&b);
            }
        }
    if (!found) SKIPPED("real lengths: no NAME-RANKSx32k.lengths in '%s'; FCPC_WORKLOADS names another folder", folder);
}
