/* test_between.c: tests ulysses and upipe inside groups of ranks, with another strategy between the groups: the other
 * strategy decides as if each group were one rank, and the right ranks compute each head. Also tested are the bytes
 * that move, and that tokens stay in place where they should. tests/oracle runs such plans. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "compiler/place/heads/heads.h"
#include "runtime/host/host.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"

/* A cluster of `nodes` nodes, and what divides the batch among these. */
typedef struct joined_case {
    uint32_t nodes, gpus, heads, kv_heads;
    const char *inside, *between, *layout, *mask, *lengths;
} joined_case;

static const joined_case cases[] = {
    {4, 2, 8, 8, "ulysses", "fcp", "planned", "causal", "5000, 3000, 1200, 700 x 5, 130 x 20"},
    {3, 4, 8, 2, "ulysses", "fcp(tolerance = 0.02)", "contiguous", "window(w = 700)", "6000, 129, 1 x 40"},
    {2, 8, 64, 8, "ulysses", "fcp(split = off)", "planned", "causal", "9000, 300 x 7"},
    {4, 2, 8, 4, "upipe(heads = 4)", "fcp", "zigzag", "full", "900 x 12, 257"},
    {4, 2, 8, 8, "ulysses", "dcp", "planned", "lambda(sink = 64, window = 512)", "5000, 3000, 1200, 700 x 5"},
    {3, 4, 4, 2, "upipe", "dcp(epsilon_compute = 0.3)", "planned", "causal", "4000, 100 x 20"},
    {5, 2, 6, 3, "ulysses", "dcp(epsilon_compute = 0.02)", "contiguous", "causal", "16384"},
    {4, 4, 8, 8, "ulysses", "cad(tolerance = 0.05)", "contiguous", "causal", "7000, 3000, 1200, 700 x 5"},
    {4, 2, 8, 2, "ulysses", "cad(base = zigzag)", "zigzag", "causal", "5000, 3000, 120 x 9"},
    {4, 2, 8, 8, "upipe", "cad(base = fcp)", "planned", "full", "5000, 3000, 120 x 9"},
    {3, 2, 4, 4, "ulysses", "fcp", "planned", "by_head", "700, 300 x 7, 100:900"},
    {3, 2, 4, 4, "ulysses", "dcp", "zigzag", "by_head", "700, 300 x 7, 100:900"}};
enum { CASES = sizeof cases / sizeof *cases };

/* The program on nodes of `gpus` ranks, by `strategy`. */
static const char *text_of(const joined_case *c, uint32_t gpus, const char *by, char out[800]) {
    snprintf(out, 800,
             "model { heads = %u; kv_heads = %u; head_dim = 32; dtype = bf16 }\n"
             "cluster { nodes = %u; gpus = %u; gpu = h100 }\nbatch { lengths = [%s] }\n"
             "mask by_head = if h %% 2 == 1 then k <= q else q - k < 200\n"
             "plan { mask = %s; block = 256; layout = %s; strategy = %s }\n",
             c->heads, c->kv_heads, c->nodes, gpus, c->lengths, c->mask, c->layout, by);
    return out;
}

static const char *joined_text(const joined_case *c, char out[800]) {
    char by[100];
    snprintf(by, sizeof by, "%s + %s", c->inside, c->between);
    return text_of(c, c->gpus, by, out);
}

/* The first block with the same tokens. */
static void find_firsts(const problem *p, uint32_t *first) {
    for (uint32_t b = 0; b < p->range_blocks; b++)
        for (uint32_t twin = b; twin != FCP_NONE; twin = problem_twin(p, twin)) first[twin] = b;
}

static uint32_t find_tile_of(const problem *p, uint32_t q, uint32_t k) {
    for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++)
        if (p->tile_k[t] == k) return t;
    return FCP_NONE;
}

/* The strategy behind '+' decides for groups what it decides for the ranks of a cluster with one GPU for each group:
 * the same blocks, homes in the same groups, and tiles at the same groups. All ranges of heads have the same homes. */
Test(between, groups_stand_for_ranks) {
    for (int i = 0; i < CASES; i++) {
        const joined_case *c = &cases[i];
        char text[800], other[800];
        planned x, y;
        plan_to_placement(&x, joined_text(c, text), NULL);
        if (x.p.split && c->heads / c->kv_heads > 1) { /* one rank for each group would not split */
            planned_free(&x);
            continue;
        }
        plan_to_placement(&y, text_of(c, 1, c->between, other), NULL);
        const bool held = strategy_keeps_homes(x.program); /* then blocks end where a rank's tokens do */
        uint32_t *first = malloc(x.p.block_count * sizeof *first);
        find_firsts(&x.p, first);
        uint32_t wrong = 0; /* an assertion for each tile would take seconds */
        for (uint32_t b = 0; b < x.p.block_count; b++) wrong += x.home[b] != x.home[first[b]];
        if (!held) cr_assert_eq(x.p.range_blocks, y.p.block_count, "%s", text);
        for (uint32_t b = 0; b < y.p.block_count && !held; b++)
            wrong += x.home[b] / c->gpus != y.home[b];
        for (uint32_t t = 0; t < x.p.tile_count; t++) {
            const uint32_t q = x.p.tile_q[t], at = placement_exec(x.at.placement, t);
            wrong += at % c->gpus != x.at.sharing->lane[x.p.blocks[q].heads];
            if (held) continue;
            const uint32_t same = find_tile_of(&y.p, first[q], first[x.p.tile_k[t]]);
            wrong += same == FCP_NONE || at / c->gpus != placement_exec(y.at.placement, same);
        }
        cr_expect_eq(wrong, 0, "%u blocks or tiles elsewhere: %s", wrong, text);
        free(first);
        planned_free(&x), planned_free(&y);
    }
}

/* K and V of a block cross to a node at most once for each range of heads, from lane to lane, and to a rank that reads
 * them. With fcp, which computes each row at its home, queries stay in their node. */
Test(between, keys_cross_once_to_whom_reads_them) {
    uint64_t crossed = 0;
    for (int i = 0; i < CASES; i++) {
        char text[800];
        planned x;
        plan_passes(&x, joined_text(&cases[i], text), 0);
        const uint32_t gpus = cases[i].gpus;
        uint32_t wrong = 0;
        for (uint32_t f = 0; f < x.t.count; f++) {
            const hop *h = &x.t.hops[f];
            if (h->fabric != FCP_NET) continue;
            crossed++;
            wrong += h->src % gpus != h->dst % gpus;
            if (h->cls != FCP_KV) {
                wrong += strstr(text, "split = off") != NULL;
                continue;
            }
            for (uint32_t g = f + 1; g < x.t.keys && x.t.hops[g].block == h->block; g++)
                wrong += x.t.hops[g].fabric == FCP_NET && x.t.hops[g].dst / gpus == h->dst / gpus;
            wrong += !h->work;
        }
        cr_expect_eq(wrong, 0, "%u hops: %s", wrong, text);
        planned_free(&x);
    }
    cr_expect_gt(crossed, 100);
}

/* On one node the strategy behind '+' has nothing to divide. What moves is what ulysses moves: every rank's Q, K, V and
 * O, but for the heads that it computes itself. */
Test(between, one_group_moves_what_ulysses_moves) {
    static const char *const between[] = {"fcp", "cad", "dcp"};
    static const uint32_t heads[][2] = {{64, 64}, {64, 8}, {32, 8}, {8, 2}};
    for (size_t i = 0; i < 3 * (sizeof heads / sizeof *heads); i++) {
        joined_case c = {.nodes = 1, .gpus = 4, .inside = "ulysses", .between = between[i % 3],
                         .layout = "contiguous", .mask = "causal", .lengths = "16384"};
        c.heads = heads[i / 3][0], c.kv_heads = heads[i / 3][1];
        char text[800], other[800];
        fcp_plan *joined = plan_of(joined_text(&c, text)), *alone = plan_of(text_of(&c, 4, "ulysses", other));
        cr_expect_eq(joined->summary->bytes_total, alone->summary->bytes_total, "%s", text);
        cr_expect_eq(joined->summary->backward_bytes_total, alone->summary->backward_bytes_total, "%s", text);
        cr_expect_eq(joined->summary->pairs_max_rank, alone->summary->pairs_max_rank, "%s", text);
        fcp_plan_free(joined), fcp_plan_free(alone);
    }
}

/* Where homes are the caller's, blocks lie at the very ranks that hold their tokens, not merely in their groups:
 * nothing is reshuffled. */
Test(between, held_tokens_stay_at_their_ranks) {
    static const char *const layouts[] = {"contiguous", "zigzag", "contiguous(group = 4)", "zigzag(group = 2)"};
    static const char *const between[] = {"cad(tolerance = 0.05)", "dcp"};
    for (int i = 0; i < 8; i++) {
        joined_case c = {.nodes = 1, .gpus = 8, .heads = 8, .kv_heads = 4, .between = between[i % 2],
                         .layout = layouts[i / 2], .mask = "causal", .lengths = "24000"};
        c.inside = i % 3 ? "ulysses(inside = 4)" : "upipe(inside = 4, heads = 4)";
        char text[800];
        fcp_plan *plan = plan_of(joined_text(&c, text));
        cr_expect_eq(plan->summary->bytes_reshuffle, 0, "%s", text);
        fcp_plan_free(plan);
    }
}

/* Groups that are part of a node, that are several nodes, or that lie across nodes; ranks that only compute; equal
 * tokens; batches that leave groups empty: all run. */
Test(between, odd_groups_run) {
    static const char *const programs[] = {
        "nodes = 2; gpus = 4 }\nbatch { lengths = [700, 300] }\n"
        "plan { mask = causal; strategy = ulysses(inside = 2) + fcp",
        "nodes = 4; gpus = 2; fabric = rail }\nbatch { lengths = [700, 300] }\n"
        "plan { mask = causal; tokens = equal; strategy = ulysses(inside = 4) + fcp",
        "nodes = 4; gpus = 3 }\nbatch { lengths = [700, 300] }\n"
        "plan { mask = causal; strategy = ulysses(inside = 2) + dcp",
        "nodes = 3; gpus = 2 }\nbatch { lengths = [600, 300] }\n"
        "plan { mask = causal; layout = contiguous; strategy = ulysses + cad(servers = 2, pingpong = true)",
        "nodes = 4; gpus = 2 }\nbatch { lengths = [5] }\nplan { mask = causal; strategy = ulysses + fcp",
        "nodes = 2; gpus = 2 }\nbatch { lengths = [700, 300] }\nmask none = k < 0\n"
        "plan { mask = none; strategy = ulysses + dcp",
        "nodes = 2; gpus = 4; fabric = rail }\nbatch { lengths = [1:700, 1:300, 200:400] }\n"
        "plan { mask = causal; strategy = upipe(heads = 4) + fcp",
        "nodes = 2; gpus = 2 }\nbatch { lengths = [900] on 0..2, [70, 300] on 1..4 }\n"
        "plan { mask = causal; layout = contiguous; strategy = ulysses(inside = 2) + cad"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char text[900];
        snprintf(text, sizeof text,
                 "model { heads = 8; kv_heads = 2; head_dim = 16; dtype = fp32 }\ncluster { %s; block = 128 }\n",
                 programs[i]);
        fcp_plan *plan = plan_of(text);
        judge_plan(plan, &fcp_backend_host, 7 + i, true, text);
        fcp_plan_free(plan);
    }
}

/* A stage takes the usual rounds times the ranks of a group, 64 at most, unless the program states a number. */
Test(between, stages_are_as_long) {
    static const struct {
        const char *by;
        uint32_t coalesce, buffers;
    } said[] = {{"ulysses(inside = 2) + fcp", 32, 3},   {"ulysses + fcp", 64, 3},
                {"ulysses + cad(coalesce = 5)", 5, 3},  {"ulysses(buffers = 2) + fcp", 64, 2},
                {"ulysses + fcp(buffers = 4)", 64, 4},  {"upipe(heads = 8) + fcp", 1, 1},
                {"upipe(heads = 8) + fcp(buffers = 2)", 1, 2}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        joined_case c = {2, 8, 16, 16, "", "", "planned", "causal", "3000"};
        char text[800];
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = parse_text(text_of(&c, 8, said[i].by, text), d);
        cr_expect_eq(p->coalesce, said[i].coalesce, "%s", said[i].by);
        cr_expect_eq(p->buffers, said[i].buffers, "%s", said[i].by);
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
}
