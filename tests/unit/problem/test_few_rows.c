/* test_few_rows.c: tests that blocks are divided into the rows that many read and the rest: which ones, where, and that
 * plans of divided blocks compute exactly the pairs of the mask. */
#include "compiler/passes/strategy_table.h"
#include "tests/support/amount.h"
#include "tests/support/cover.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"
#include "tests/support/splitmix.h"

#define HEAD "model { heads = 4; kv_heads = 2; head_dim = 64 }\n"

/* The blocks of a program before and after they are divided; planned_free(out). Returns how many there were. */
static uint32_t divide(const char *text, planned *out) {
    memset(out, 0, sizeof *out);
    out->d = fcpc_diagnostics_new();
    out->program = parse_text(text, out->d);
    out->at = (planning){.program = out->program, .batch = &out->batch, .d = out->d, .block = out->program->block,
                         .coalesce = out->program->coalesce};
    run_pass(out, bind_lengths);
    run_pass(out, bind_batch);
    run_pass(out, problem_open);
    run_pass(out, strategy_cut);
    run_pass(out, problem_tiles);
    const uint32_t before = out->at.problem->block_count;
    const uint64_t pairs = out->at.problem->pairs;
    run_pass(out, strategy_divide);
    out->p = *out->at.problem;
    check_cover(&out->p);
    cr_assert_eq(out->p.pairs, pairs);
    return before;
}

/* The block of KV that holds this token of sequence 0. */
static const fcp_block *block_at(const problem *p, uint64_t token) {
    for (uint32_t i = p->piece_start[FCP_KEYS][0]; i < p->piece_start[FCP_KEYS][1]; i++) {
        const fcp_piece *piece = &p->pieces[p->sequence_piece[FCP_KEYS][i]];
        if (token - piece->start < piece->length) return &p->blocks[piece->block];
    }
    cr_assert(false, "no block has token %llu", (unsigned long long)token);
    return NULL;
}

/* 64 tokens in front, of which each rank reads one column of cells. */
Test(few_rows, sink) {
    planned x;
    const uint32_t before = divide(HEAD "cluster { nodes = 32; gpus = 8 }\nbatch { lengths = [8M] }\n"
                                        "plan { mask = lambda(sink = 64, window = 4096); block = 2K }\n", &x);
    cr_assert_eq(before, 4096);
    cr_assert_eq(x.p.block_count, before + 1);
    cr_assert_eq(block_at(&x.p, 0)->tokens, 128);
    cr_assert_eq(block_at(&x.p, 128)->tokens, 2048 - 128);
    cr_assert_eq(block_at(&x.p, 2048)->tokens, 2048);
    planned_free(&x);
}

/* Keys in the middle of a block are cut out of it: what is before and behind them stays one block. */
Test(few_rows, middle) {
    planned x;
    divide(HEAD "cluster { gpus = 8 }\nbatch { lengths = [64K] }\nmask m = abs(q - k) < 500 or k / 100 == 50\n"
                "plan { mask = m; block = 2K }\n", &x); /* 5000 to 5099, in columns from 4992 to 5119 */
    cr_assert_eq(x.p.block_count, 33);
    cr_assert_eq(block_at(&x.p, 5000)->tokens, 128);
    cr_assert_eq(block_at(&x.p, 5000)->pieces, 1);
    cr_assert_eq(block_at(&x.p, 4991)->tokens, 2048 - 128);
    cr_assert_eq(block_at(&x.p, 4991)->pieces, 2);
    cr_assert_eq(block_at(&x.p, 4991), block_at(&x.p, 5120));
    planned_free(&x);
}

/* Marked tokens here and there in a block become one block, of a piece each. */
Test(few_rows, here_and_there) {
    planned x;
    divide(HEAD "cluster { gpus = 8 }\n"
                "batch { lengths = [64K]; field g = [0 x 300, 1 x 9, 0 x 500, 1, 0 x 600, 1 x 7, 0 x 64119] }\n"
                "plan { mask = m; block = 2K }\nmask m = abs(q - k) < 500 or g[k] == 1\n", &x);
    cr_assert_eq(x.p.block_count, 33);
    cr_assert_eq(block_at(&x.p, 300)->pieces, 3); /* 256 to 383, 768 to 895, 1408 to 1535 */
    cr_assert_eq(block_at(&x.p, 300)->tokens, 3 * 128);
    cr_assert_eq(block_at(&x.p, 300), block_at(&x.p, 809));
    cr_assert_eq(block_at(&x.p, 300), block_at(&x.p, 1411));
    cr_assert_eq(block_at(&x.p, 0)->pieces, 4);
    planned_free(&x);
}

/* The last column of every block is read by all that follow. All blocks are divided, because nearly all is saved, and
 * dcp keeps what was divided apart where it joins blocks. */
Test(few_rows, of_every_block) {
    static const char *const by[] = {"fcp", "dcp"};
    for (int i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "cluster { nodes = 2; gpus = 8 }\nbatch { lengths = [256K] }\n"
                 "mask m = causal and (q / 2048 == k / 2048 or k %% 2048 >= 1920)\n"
                 "plan { mask = m; block = 2K; strategy = %s }\n", by[i]);
        fcp_plan *plan = plan_of(text);
        const uint64_t key = 2 * 2 * 64 * 2; /* bytes */
        cr_assert_gt(plan->blocks_count, 2 * 128 * 9 / 10);
        /* a column of 128 blocks goes to 15 ranks at most; whole blocks would be 16 times as much */
        cr_assert_leq(plan->summary->bytes_total, 2 * 15 * 128 * 128 * key, "%s", by[i]);
        fcp_plan_free(plan);
    }
}

/* In a split plan keys are divided, and queries are not. */
Test(few_rows, keys_alone) {
    planned x;
    const uint32_t before =
        divide(HEAD "cluster { gpus = 8 }\nbatch { lengths = [32K:64K] }\n"
                    "plan { mask = lambda(sink = 64, window = 3000); block = 2K }\n", &x);
    cr_assert_eq(x.p.block_count, before + 1);
    cr_assert_eq(block_at(&x.p, 0)->tokens, 128);
    for (uint32_t b = 0; b < x.p.block_count; b++)
        cr_assert(x.p.blocks[b].holds != FCP_HOLDS_Q || x.p.blocks[b].tokens == 2048);
    planned_free(&x);
}

/* Where all of a block is read by whoever reads it, or by few, blocks stay as they were cut; so do those of strategies
 * that cut sequences evenly or in groups. */
Test(few_rows, nothing_to_divide) {
    static const char *const plans[] = {
        "mask = causal", "mask = full", "mask = window(w = 5000)", "mask = window(w = 500)", "mask = prefix(p = 500)",
        "mask = block_causal(b = 700)", "mask = dilated(w = 8000, d = 512)",
        "mask = lambda(sink = 64, window = 4096); strategy = ring",
        "mask = lambda(sink = 64, window = 4096); strategy = groups(tokens = 16K)"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char text[400];
        planned x;
        snprintf(text, sizeof text, HEAD "cluster { gpus = 8 }\nbatch { lengths = [64K, 9K, 700 x 5] }\n"
                                         "plan { %s; block = 2K }\n", plans[i]);
        const uint32_t before = divide(text, &x);
        cr_assert_eq(x.p.block_count, before, "%s", plans[i]);
        planned_free(&x);
    }
}

/* One other rank, and 384 tokens: that is not worth a block. */
Test(few_rows, too_little) {
    planned x;
    const uint32_t before = divide(HEAD "cluster { gpus = 2 }\nbatch { lengths = [16K] }\n"
                                        "plan { mask = lambda(sink = 64, window = 300); block = 512 }\n", &x);
    cr_assert_eq(x.p.block_count, before);
    planned_free(&x);
}

/* Tokens stay where the caller holds them, whatever is divided. */
Test(few_rows, homes_stay) {
    static const char *const by[] = {"cad(tolerance = 0.05)", "dcp"};
    for (int i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "cluster { gpus = 8 }\nbatch { lengths = [128K] }\n"
                 "plan { mask = lambda(sink = 64, window = 3000); block = 2K; layout = contiguous; strategy = %s }\n",
                 by[i]);
        fcp_plan *plan = plan_of(text);
        uint32_t small = 0;
        for (size_t b = 0; b < plan->blocks_count; b++) small += plan->blocks[b].tokens == 128;
        cr_assert_eq(small, 1, "%s", text);
        cr_assert_eq(plan->summary->bytes_reshuffle, 0, "%s", text);
        fcp_plan_free(plan);
    }
}

/* Of several masks on one set of homes, those with few pairs have their rows, too. */
Test(few_rows, layers) {
    static const char *const by[] = {"fcp", "dcp"};
    for (int i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "cluster { gpus = 8 }\nbatch { lengths = [64K] }\n"
                 "plan { layers = [causal, lambda(sink = 64, window = 3000)]; block = 2K; strategy = %s }\n", by[i]);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_text(text, d);
        const fcpc_batch batch = {.size = sizeof batch};
        fcp_plan *plans[2];
        cr_assert_eq(fcpc_plan_layers(program, &batch, NULL, d, NULL, plans), FCP_OK, "%s",
                     fcpc_diagnostics_render(d, false));
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(plans[k]->blocks_count, 33);
            cr_assert_eq(plans[k]->blocks[0].tokens, 128);
            fcp_plan_free(plans[k]);
        }
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

/* Programs drawn at random: whatever is divided, the plan is proven, and computes exactly the mask's pairs. */
Test(few_rows, drawn) {
    static const char *const by[] = {"fcp", "dcp", "cad(tolerance = 0.05)", "cad(base = fcp)",
                                     "fcp(coalesce = 3, buffers = 2)", "dcp(divisions = 3)"};
    static const char *const near[] = {"abs(q - k) < %u", "0 <= q - k and q - k < %u", "q / %u == k / %u"};
    static const char *const lengths[] = {"20K", "12K, 9K, 500 x 3", "15000, 6000, 777 x 4", "9000:17000, 4000"};
    uint64_t state = 35;
    uint32_t divided = 0;
    for (unsigned i = 0; i < amount(24, 240); i++) {
        char text[800], mask[300], first[80];
        const uint64_t from = splitmix(&state) % 3 ? 0 : splitmix(&state) % 4000, count = 1 + splitmix(&state) % 200;
        const unsigned width = 50 + (unsigned)(splitmix(&state) % 900);
        snprintf(first, sizeof first, near[splitmix(&state) % 3], width, width);
        snprintf(mask, sizeof mask, "%s or (%llu <= k and k < %llu)%s%s", first, (unsigned long long)from,
                 (unsigned long long)(from + count), splitmix(&state) % 4 ? "" : " or k % 9001 < 40",
                 splitmix(&state) % 4 ? "" : " or q < 70");
        snprintf(text, sizeof text,
                 "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { nodes = %u; gpus = %u; fabric = %s }\n"
                 "batch { lengths = [%s] }\nmask m = %s%s\n"
                 "plan { mask = m; block = %u; passes = forward, backward; layout = %s; strategy = %s%s }\n",
                 1 + (unsigned)(splitmix(&state) % 3), 3 + (unsigned)(splitmix(&state) % 3),
                 splitmix(&state) % 3 ? "fat_tree" : "rail", lengths[splitmix(&state) % 4], mask,
                 splitmix(&state) % 5 ? "" : " or (h == 1 and k < 300)", 512 + 128 * (unsigned)(splitmix(&state) % 9),
                 splitmix(&state) % 2 ? "planned" : "contiguous", by[splitmix(&state) % 6],
                 splitmix(&state) % 4 ? "" : "; tokens = equal");
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcp_plan *plan = NULL;
        fcp_error err = {0};
        fcp_code code = fcpc_parse_text("drawn.fcp", text, strlen(text), NULL, d, &program);
        if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
        char *said = fcpc_diagnostics_render(d, false);
        cr_assert(code == FCP_OK || strstr(said, "tokens = equal"), "%s\n%s", text, said);
        if (!code) cr_assert_eq(fcp_plan_verify_pairs(plan, 0, NULL, NULL, &err), FCP_OK, "%s\n%s", text, err.message);
        for (size_t b = 0; !code && b < plan->blocks_count; b++)
            if (plan->blocks[b].pieces == 2 && plan->pieces[plan->blocks[b].first_piece].sequence ==
                                                   plan->pieces[plan->blocks[b].first_piece + 1].sequence) {
                divided++;
                break;
            }
        free(said);
        fcp_plan_free(plan);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
    cr_assert_geq(divided, amount(24, 240) / 3, "%u", divided);
}
