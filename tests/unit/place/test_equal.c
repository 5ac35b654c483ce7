/* test_equal.c: tests tokens = equal on whole placements: every rank holds the mean number of tokens, rounded down or
 * up; fewer blocks are cut than there are ranks; all tokens and pairs occur once; and no rank has more work than it
 * may. */
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"

/* A program's placement without `tokens = equal`, and with it. */
typedef struct figures {
    uint64_t pairs, busiest, pieces, blocks;
} figures;

static figures look(const planned *x) {
    figures f = {x->p.pairs, 0, x->p.piece_count, x->p.block_count};
    uint64_t *load = calloc(x->p.ranks, sizeof *load);
    for (uint32_t t = 0; t < x->p.tile_count; t++) load[placement_exec(x->at.placement, t)] += x->p.tile_pairs[t];
    for (uint32_t r = 0; r < x->p.ranks; r++)
        if (load[r] > f.busiest) f.busiest = load[r];
    free(load);
    return f;
}

static void check_tokens(const planned *x) {
    const problem *p = &x->p;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        uint64_t *held = calloc(p->ranks, sizeof *held), total = 0;
        for (uint32_t b = 0; b < p->range_blocks; b++)
            if (problem_holds(p, b, (fcp_side)side)) held[x->home[b]] += p->blocks[b].tokens;
        for (uint32_t r = 0; r < p->ranks; r++) total += held[r];
        cr_assert_eq(total, side ? p->key_tokens : p->tokens);
        for (uint32_t r = 0; r < p->ranks; r++)
            cr_assert(held[r] == total / p->ranks || held[r] == (total + p->ranks - 1) / p->ranks, "rank %u: %lu", r,
                      held[r]);
        free(held);
        for (uint32_t s = 0; s < p->sequences; s++) { /* every token of every sequence once, in order */
            uint64_t at = 0;
            for (uint32_t i = p->piece_start[side][s]; i < p->piece_start[side][s + 1]; i++) {
                const fcp_piece *piece = &p->pieces[p->sequence_piece[side][i]];
                cr_assert(piece->sequence == s && piece->start == at && piece->length);
                at += piece->length;
            }
            cr_assert_eq(at, problem_length(p, s, (fcp_side)side));
        }
    }
    for (uint32_t b = 0; b < p->range_blocks; b++) {
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < p->blocks[b].pieces; i++) {
            const fcp_piece *piece = &p->pieces[p->blocks[b].first_piece + i];
            cr_assert(piece->block == b && piece->offset == tokens);
            tokens += piece->length;
        }
        cr_assert(tokens == p->blocks[b].tokens && tokens);
    }
}

static void compare(const char *text, const char *equal) {
    planned x, y;
    plan_to_placement(&x, text, NULL);
    const figures one = look(&x);
    const uint64_t limit = x.p.pairs / x.p.ranks + x.p.pairs / x.p.ranks * x.program->tolerance / 1000000 + 1;
    plan_to_placement(&y, equal, NULL);
    const figures two = look(&y);
    check_tokens(&y);
    cr_assert_eq(one.pairs, two.pairs);
    const uint64_t sides = y.p.split ? 2 : 1;
    cr_assert_leq(two.blocks, one.blocks + sides * y.p.ranks, "%lu blocks became %lu", one.blocks, two.blocks);
    if (x.program->strategy != FCP_STRATEGY_RING && x.program->strategy != FCP_STRATEGY_ZIGZAG)
        cr_assert_leq(two.busiest, one.busiest > limit ? one.busiest : limit, "%s", equal);
    plan_rest(&y);
    planned_free(&x);
    planned_free(&y);
}

/* Replaces a word of the text. */
static void replace_word(char *text, size_t size, const char *word, const char *by) {
    char rest[1024], *at = strstr(text, word);
    snprintf(rest, sizeof rest, "%s", at + strlen(word));
    snprintf(at, size - (size_t)(at - text), "%s%s", by, rest);
}

Test(equal, every_strategy_and_layout) {
    static const char *const strategies[] = {"fcp(", "ring(", "zigzag(", "cad(base = fcp, ", "cad(base = zigzag, ",
                                             "groups(tokens = 40000, "};
    char text[2048], equal[2048];
    for (unsigned i = 0; i < 6 * SAMPLES; i++) {
        sample_program(i / 6, text, sizeof text);
        replace_word(text, sizeof text, "fcp(", strategies[i % 6]);
        if (i % 6 == 5 && !strstr(text, "layout = planned")) continue; /* homes are given: below */
        memcpy(equal, text, sizeof text);
        replace_word(equal, sizeof equal, "plan {", "plan { tokens = equal;");
        compare(text, equal);
    }
}

/* Where heads are divided inside groups and a ring goes through these, homes are the strategy's to choose, too. Long
 * sequences and crumbs, of one side and of two; two cuts more for each rank and side at most. */
Test(equal, rings_of_groups) {
    static const char *const batches[] = {"[9000, 40, 700, 700, 3, 2600, 5000]", "[1, 2, 3, 1, 1, 2, 1]", "[7]",
                                          "[300 x 40, 20000]", "[1:900, 500:2000, 64:64, 3:4000]", "[4096 x 8]"};
    static const char *const strategies[] = {"ulysses(inside = 4) + ring", "ulysses(inside = 2) + ring",
                                             "upipe(heads = 4, inside = 4) + ring"};
    for (int i = 0; i < 6 * 3; i++) {
        char text[512], equal[512];
        planned x, y;
        snprintf(text, sizeof text, "model { heads = 8; kv_heads = 4; head_dim = 16 }\n"
                 "cluster { nodes = 3; gpus = 4 }\nbatch { lengths = %s }\nplan { mask = causal; block = 128; "
                 "strategy = %s }\n", batches[i / 3], strategies[i % 3]);
        memcpy(equal, text, sizeof text);
        replace_word(equal, sizeof equal, "plan {", "plan { tokens = equal;");
        plan_to_placement(&x, text, NULL);
        plan_to_placement(&y, equal, NULL);
        check_tokens(&y);
        cr_expect_eq(x.p.pairs, y.p.pairs, "%s", equal);
        for (int side = 0; side < FCP_SIDES; side++)
            cr_expect_leq(y.p.piece_start[side][y.p.sequences],
                          x.p.piece_start[side][x.p.sequences] + 2 * x.p.ranks, "%s", equal);
        plan_rest(&y);
        planned_free(&x);
        planned_free(&y);
    }
}

/* Where the caller's layout gives homes, these are equal, or the batch is refused with a place and a hint. */
Test(equal, tokens_that_stay_must_be_equal_already) {
    static const struct { const char *plan, *says; } cases[] = {
        {"strategy = cad; layout = contiguous", NULL},
        {"strategy = cad", NULL},
        {"strategy = groups; layout = contiguous", NULL},
        {"strategy = cad; layout = contiguous(group = 2)",
         "tokens = equal: tokens stay where the caller holds them, and rank 0 holds 1500 tokens; 1525 would be equal"},
        {"strategy = groups; layout = contiguous(group = 2)",
         "tokens = equal: tokens stay where the caller holds them, and rank 0 holds 1500 tokens; 1525 would be equal"},
        {"strategy = fcp; layout = contiguous(group = 2)", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "cluster { gpus = 4 }\nbatch { lengths = [3000, 2000, 1101] }\n"
                 "plan { mask = causal; block = 256; tokens = equal; %s }\n", cases[i].plan);
        fcp_plan *plan;
        char *picture;
        fcp_code code = plan_try("test.fcp", text, NULL, 0, &plan, &picture);
        cr_assert_eq(code, cases[i].says ? FCP_E_VALUE : FCP_OK, "%s", picture);
        if (cases[i].says)
            cr_assert(strstr(picture, cases[i].says) && strstr(picture, "test.fcp:3:45: error[E206]") &&
                          strstr(picture, "hint: layout = contiguous, without a group"), "%s", picture);
        else cr_assert_eq(plan->summary->tokens_max_rank, 1526);
        free(picture);
        if (plan) fcp_plan_free(plan);
    }
}
