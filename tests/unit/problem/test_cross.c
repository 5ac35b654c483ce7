/* test_cross.c: tests sequences that have more or fewer queries than keys: their counts, where their blocks lie,
 * what the public functions say of such a plan, and that it runs. Random programs of this kind are in
 * tests/oracle. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "compiler/cells/masked_rows.h"
#include "compiler/sema/program.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/file.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/sanitized.h"
#include "tests/support/mask_samples.h"
#include "tests/support/plan_of.h"

/* --- the mask ----------------------------------------------------------------------------------------------------- */

/* Pairs, and rows that see nothing, of queries at [first, first + queries) and keys at [0, n): against every
 * element. */
static void check_env(mc_code mask, const mc_env *env, const char *what) {
    int64_t *values = malloc(mask.count * sizeof *values);
    uint64_t pairs = 0, masked = 0;
    for (int64_t q = env->q_first; q < env->q_first + env->queries; q++) {
        uint64_t row = 0;
        for (int64_t k = 0; k < env->n; k++) row += mc_eval(mask, env, q, k, 0, values);
        pairs += row;
        masked += row == 0;
    }
    cells *c = cells_new(mask, 1);
    cells_counts counts;
    cells_fault fault;
    cr_assert_eq(cells_count(c, env, &counts, &fault), FCP_OK, "%s", what);
    cr_expect_eq(counts.pairs, pairs, "%s: %llu pairs, not %llu", what, (unsigned long long)counts.pairs,
                 (unsigned long long)pairs);
    uint64_t cuts[2][40], pieces[2] = {0}, lengths[2] = {(uint64_t)env->queries, (uint64_t)env->n};
    for (int side = 0; side < 2; side++) {
        for (uint64_t at = 0; at < lengths[side]; at += side ? 128 : 96) cuts[side][pieces[side]++] = at;
        cuts[side][pieces[side]] = lengths[side];
    }
    const cell_entry *entries;
    size_t count;
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    uint64_t sum = 0;
    cr_assert_eq(cells_grid(c, env, cuts[0], (uint32_t)pieces[0], cuts[1], (uint32_t)pieces[1], &entries, &count,
                            &fault),
                 FCP_OK, "%s", what);
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (size_t i = 0; i < count; i++) sum += shapes[entries[i].shape].pairs;
    cr_expect_eq(sum, pairs, "%s: a grid of %llu pairs, not %llu", what, (unsigned long long)sum,
                 (unsigned long long)pairs);
    cells_free(c);
    row_search *search = row_search_new(mask, 1);
    masked_rows r;
    cr_assert_eq(masked_rows_find(search, env, &r), FCP_OK);
    cr_expect_eq(r.rows, masked, "%s: %llu rows see nothing, not %llu", what, (unsigned long long)r.rows,
                 (unsigned long long)masked);
    row_search_free(search);
    free(values);
}

Test(cross, masks_at_offsets) {
    static const int64_t envs[][3] = {{300, 200, 100}, {300, 299, 1}, {100, -150, 250}, {257, 0, 130}, {130, 0, 400},
                                      {1, -5, 6},      {400, 144, 256}, {128, -128, 128}, {90, 90, 40}};
    for (int s = 0; s < SAMPLES; s++)
        for (size_t i = 0; i < sizeof envs / sizeof *envs; i++) {
            exprs e = {0};
            mc_node *nodes;
            int root = sample_mask(&e, (enum sample)s, 7, 30);
            mc_code mask = lower_mask(&e, root, &nodes);
            char what[80];
            snprintf(what, sizeof what, "sample %d, %d keys, %d queries from %d", s, (int)envs[i][0], (int)envs[i][2],
                     (int)envs[i][1]);
            check_env(mask, &(mc_env){.n = envs[i][0], .q_first = envs[i][1], .queries = envs[i][2]}, what);
            free(nodes);
        }
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static fcp_code plan_batch(const fcpc_program *program, const uint64_t *keys, const uint64_t *queries, size_t count,
                           fcp_plan **out) {
    const fcpc_batch batch = {.size = sizeof(fcpc_batch), .lengths = keys, .queries = queries, .count = count};
    return fcpc_plan_batch(program, &batch, NULL, NULL, NULL, out);
}

static bool same_tables(const fcp_plan *a, const fcp_plan *b) {
    const void *x[FCP_SECTION_COUNT], *y[FCP_SECTION_COUNT];
    uint64_t n[FCP_SECTION_COUNT], m[FCP_SECTION_COUNT];
    cr_assert(fcp_plan_sections(a, x, n) && fcp_plan_sections(b, y, m));
    for (int i = 0; i < FCP_SECTION_COUNT; i++)
        if (n[i] != m[i] || (n[i] && memcmp(x[i], y[i], n[i]))) return false;
    return true;
}

Test(cross, batches_in_process) {
    fcpc_program *program = program_named("a.fcp", "model { heads = 2; head_dim = 8; dtype = fp32 }\n"
                                                   "cluster { gpus = 2 }\n"
                                  "batch { lengths = [100:700, 1:300, 256] }\nplan { mask = causal; block = 128 }\n");
    const uint64_t keys[] = {700, 300, 256}, queries[] = {100, 1, 256}, none[] = {100, 0, 256};
    const uint64_t many[] = {UINT64_C(1) << 40, 1, 1};
    fcp_plan *own = NULL, *given = NULL, *square = NULL, *plain = NULL;
    cr_assert_eq(plan_batch(program, NULL, NULL, 0, &own), FCP_OK);
    cr_assert_eq(plan_batch(program, keys, queries, 3, &given), FCP_OK);
    cr_expect(fcp_plan_split(own) && same_tables(own, given));
    /* as many queries as keys, said or not: the same plan */
    cr_assert_eq(plan_batch(program, keys, keys, 3, &square), FCP_OK);
    cr_assert_eq(fcpc_plan(program, keys, 3, NULL, NULL, NULL, &plain), FCP_OK);
    cr_expect(!fcp_plan_split(square) && same_tables(square, plain));
    cr_expect_eq(square->blocks[0].holds, FCP_HOLDS_BOTH);
    fcp_plan *refused = NULL;
    fcp_plan *some = NULL;
    cr_assert_eq(plan_batch(program, keys, none, 3, &some), FCP_OK); /* a sequence of 300 keys without queries */
    cr_expect(some->sequences[1].queries == 0 && some->sequences[1].keys == 300 && some->sequences[1].q_first == 300);
    fcp_plan_free(some);
    cr_expect_eq(plan_batch(program, keys, many, 3, &refused), FCP_E_LENGTHS);
    cr_expect_null(refused);
    fcp_plan_free(own);
    fcp_plan_free(given);
    fcp_plan_free(square);
    fcp_plan_free(plain);
    fcpc_program_free(program);
}

Test(cross, what_the_public_header_says) {
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (int l = 0; l < 3; l++)
        for (int align = 0; align < 2; align++) {
            char text[512];
            snprintf(text, sizeof text,
                     "model { heads = 2; kv_heads = 1; head_dim = 8; dtype = fp32 }\ncluster { nodes = 2; gpus = 2 }\n"
                     "batch { lengths = [100:700, 300:40, 64 x 3]; align = %s }\n"
                     "plan { mask = causal; block = 128; layout = %s }\n",
                     align ? "top_left" : "bottom_right", layouts[l]);
            fcp_plan *plan = plan_of(text);
            fcp_shape shape;
            fcp_plan_shape(plan, &shape);
            cr_expect(shape.tokens == 592 && shape.key_tokens == 932 && shape.sequences == 5);
            uint64_t n;
            cr_expect(fcp_plan_sequence_offset(plan, 1, &n) == 100 && n == 300);
            cr_expect(fcp_plan_key_offset(plan, 1, &n) == 700 && n == 40);
            cr_expect(fcp_plan_key_offset(plan, 5, &n) == 932 && n == 0);
            cr_expect_eq(fcp_plan_query_position(plan, 0), align ? 0 : 600);
            cr_expect_eq(fcp_plan_query_position(plan, 1), align ? 0 : -260);
            cr_expect_eq(fcp_plan_query_position(plan, 2), 0);
            uint64_t sums[2] = {0};
            for (uint32_t r = 0; r < shape.ranks; r++) {
                fcp_layout_at at = {0};
                fcp_span run;
                uint64_t sum = 0, keys = fcp_plan_rank_keys(plan, r);
                while (fcp_plan_layout_keys(plan, r, &at, &run)) sum += run.length;
                cr_expect_eq(sum, keys);
                sums[0] += fcp_plan_rank_queries(plan, r);
                sums[1] += keys;
                if (l == 1) cr_expect(keys == 932 / 4 && fcp_plan_rank_queries(plan, r) == 592 / 4);
            }
            cr_expect(sums[0] == shape.tokens && sums[1] == shape.key_tokens);
            fcp_plan_free(plan);
        }
}

/* Decoding: the work of a batch is its keys, and these can all lie with the queries that read them. */
Test(cross, decoding_moves_nothing_and_balances) {
    fcp_plan *plan = plan_of("model { heads = 64; kv_heads = 8; head_dim = 128 }\ncluster { nodes = 2; gpus = 8 }\n"
                             "batch { lengths = [1:32K x 16, 1:8K x 256, 1:1000 x 300] }\n"
                             "plan { mask = causal; block = 1K; passes = forward }\n");
    const fcp_summary *s = plan->summary;
    uint64_t mean = plan->problem->key_tokens / 16;
    cr_expect_eq(s->bytes_total, 0);
    cr_expect_leq(s->pairs_max_rank * 16, s->pairs / 100 * 101);
    cr_expect_leq(s->key_tokens_max_rank, mean + 1024);
    cr_expect_eq(s->pairs, plan->problem->key_tokens);
    fcp_plan_free(plan);
    /* few long ones: queries of one block each, keys wherever a reader has room */
    plan = plan_of("model { heads = 8; kv_heads = 8; head_dim = 64 }\ncluster { gpus = 8 }\n"
                   "batch { lengths = [1:64K x 8] }\nplan { mask = causal; block = 1K; passes = forward }\n");
    cr_expect_eq(plan->summary->bytes_total, 0);
    cr_expect_eq(plan->summary->pairs_max_rank, 65536);
    fcp_plan_free(plan);
}

/* Blocks lie where they are read, but no rank goes empty for that. */
Test(cross, no_rank_is_empty) {
    fcp_plan *plan = plan_of("model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\n"
                             "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [100:700, 1:300 x 4, 150:40, 64] }\n"
                             "plan { mask = causal; block = 128 }\n");
    uint32_t held[4] = {0};
    for (uint64_t b = 0; b < plan->blocks_count; b++) held[plan->blocks[b].home]++;
    for (int r = 0; r < 4; r++) cr_expect_gt(held[r], 0, "rank %d", r);
    fcp_plan_free(plan);
}

/* Running state of a Q block takes the tokens of a Q block, not of a KV block. */
Test(cross, state_slots_are_of_query_blocks) {
    fcp_plan *plan = plan_of("model { heads = 4; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { gpus = 4 }\n"
                             "batch { lengths = [3:5000 x 3] }\nplan { mask = full; block = 512; passes = forward }\n");
    const fcp_problem *p = plan->problem;
    cr_expect(p->max_block == 512 && p->max_q_block <= 9, "%u and %u", p->max_block, p->max_q_block);
    uint64_t state = fcp_class_bytes(p, FCP_STATE, FCP_FORWARD), q = fcp_class_bytes(p, FCP_Q, FCP_FORWARD);
    const uint64_t none[FCP_CLASSES] = {0}, states[FCP_CLASSES] = {[FCP_STATE] = 5};
    cr_expect_eq(fcp_rank_memory(p, FCP_FORWARD, 0, 0, states), 5 * p->max_q_block * state);
    cr_expect_eq(fcp_rank_memory(p, FCP_FORWARD, 1, 0, none), 2 * q + 4 * 8);
    cr_expect_eq(fcp_rank_memory(p, FCP_FORWARD, 0, 1, none), fcp_class_bytes(p, FCP_KV, FCP_FORWARD));
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int cls = FCP_IN; cls <= FCP_OUT; cls++)
            cr_expect_eq(fcp_held_bytes(p, FCP_HOLDS_Q, (fcp_class)cls, (fcp_pass)pass) +
                             fcp_held_bytes(p, FCP_HOLDS_KV, (fcp_class)cls, (fcp_pass)pass),
                         fcp_class_bytes(p, (fcp_class)cls, (fcp_pass)pass));
    cr_expect_eq(fcp_held_bytes(p, FCP_HOLDS_KV, FCP_OUT, FCP_FORWARD), 0);
    fcp_plan_free(plan);
}

/* A batch too large for a plan is refused before memory is taken for it: here under a limit of 1 GiB. */
Test(cross, batches_too_large_for_a_plan) {
    static const char *const lengths[] = {"[137438953472:1]", "[1:549755813888]", "[1024G:1]"};
#if !SANITIZED /* sanitizers take more for themselves */
    setrlimit(RLIMIT_AS, &(struct rlimit){UINT64_C(1) << 30, UINT64_C(1) << 30});
#endif
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int gpus = 8; gpus <= 1024; gpus *= 128)
            for (int automatic = 0; automatic < 2; automatic++) {
                char source[200];
                snprintf(source, sizeof source, "cluster { gpus = %d }\nbatch { lengths = %s }\nplan { mask = full%s }",
                         gpus, lengths[i], automatic ? "; block = auto" : "");
                fcpc_program *program = program_named("a.fcp", source);
                fcp_plan *plan = NULL;
                cr_expect_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_E_PLAN_SIZE, "%s", source);
                fcp_plan_free(plan);
                fcpc_program_free(program);
            }
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void run(const char *text) {
    fcp_plan *plan = plan_of(text);
    fcp_shape shape;
    fcp_error err = {0};
    fcp_packed packed = {{NULL}};
    fcp_session *session = NULL;
    fcp_check_report report = FCP_CHECK_START;
    unsigned inputs = fcp_pass_inputs(FCP_FORWARD) | 1u << FCP_TENSOR_DO;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, inputs, 7, &packed);
    cr_assert_eq(fcp_session_create(plan, NULL, &session, &err), FCP_OK, "%s", err.message);
    unsigned passes = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass]) {
            passes |= 1u << pass;
            cr_assert_eq(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err), FCP_OK, "%s\n%s",
                         err.message, text);
        }
    cr_assert_eq(fcp_check_run(plan,
                      &(fcp_check_options){.passes = passes, .threads = 1}, &packed, &report, &err), FCP_OK, "%s",
                      err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_expect(!report.tensor[t].checked || report.tensor[t].ok, "%s is off by %g, allowed %g\n%s",
                  fcp_tensor_name((fcp_tensor)t), report.tensor[t].max_abs_error, report.tensor[t].tolerance, text);
    cr_expect_eq(report.tensor[FCP_TENSOR_DK].checked, shape.has_pass[FCP_BACKWARD]);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

Test(cross, forward_and_backward) {
    static const char *const batches[] = {
        "[1:700 x 5, 1:130, 1:1]",                      /* decoding */
        "[100:900, 128:512, 40:41]",                    /* chunked prefill */
        "[300:77 x 3, 20:5]; align = top_left",         /* cross-attention */
        "[500:60, 129:128]",                            /* more queries: the first see nothing under causal */
        "[100:700, 300, 1:400 x 3, 200:50, 64 x 4]",    /* all of it */
    };
    static const char *const masks[] = {"causal", "full", "window(w = 150)"};
    static const char *const strategies[] = {"fcp(coalesce = 1)", "ring", "zigzag"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    int i = 0;
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int s = 0; s < 3; s++, i++) {
            char text[512];
            snprintf(text, sizeof text,
                     "model { heads = 4; kv_heads = %d; head_dim = 16; dtype = %s }\n"
                     "cluster { nodes = %d; gpus = 2; fabric = %s }\nbatch { lengths = %s }\n"
                     "plan { mask = %s; block = 128; strategy = %s; layout = %s }\n",
                     1 << i % 3, i % 4 == 3 ? "bf16" : "fp32", 1 + i % 2, i % 5 ? "fat_tree" : "rail", batches[b],
                     masks[i % 3], strategies[s], layouts[(i + (int)b) % 3]);
            run(text);
        }
}

/* A rank that holds keys alone, or queries alone, needs no tensors of the other side. */
Test(cross, tensors_of_one_side_may_be_missing) {
    fcp_plan *plan = plan_of("model { heads = 2; kv_heads = 2; head_dim = 8; dtype = fp32 }\ncluster { gpus = 3 }\n"
                             "batch { lengths = [1:384] }\nplan { mask = full; block = 128; passes = forward }\n");
    fcp_tensors tensors[3] = {0};
    void *memory[3][5] = {0};
    for (uint32_t r = 0; r < 3; r++) {
        uint64_t q = fcp_plan_rank_queries(plan, r), k = fcp_plan_rank_keys(plan, r);
        for (int i = 0; i < 5; i++) {
            uint64_t tokens = i == 1 || i == 2 ? k : q;
            memory[r][i] = tokens ? calloc(tokens * 16, sizeof(float)) : NULL;
        }
        tensors[r] = (fcp_tensors){.q = memory[r][0], .k = memory[r][1], .v = memory[r][2], .o = memory[r][3],
                                   .lse = memory[r][4]};
    }
    fcp_session *session = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_session_create(plan, NULL, &session, &err), FCP_OK, "%s", err.message);
    cr_expect_eq(fcp_session_run(session, FCP_FORWARD, tensors, &err), FCP_OK, "%s", err.message);
    for (uint32_t r = 0; r < 3; r++) { /* one that is needed */
        fcp_tensors kept = tensors[r];
        if (!kept.k) continue;
        tensors[r].k = NULL;
        cr_expect_eq(fcp_session_run(session, FCP_FORWARD, tensors, &err), FCP_E_TENSOR);
        tensors[r] = kept;
    }
    fcp_session_free(session);
    for (uint32_t r = 0; r < 3; r++)
        for (int i = 0; i < 5; i++) free(memory[r][i]);
    fcp_plan_free(plan);
}

/* --- warnings ----------------------------------------------------------------------------------------------------- */

static void expect_warning(const char *text, const char *expected) {
    fcpc_program *program = program_named("a.fcp", text);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), FCP_OK);
    char *shown = fcpc_diagnostics_render(d, false);
    cr_expect(expected ? strstr(shown, expected) != NULL : !*shown, "%s", shown);
    free(shown);
    fcp_plan_free(plan);
    fcpc_diagnostics_free(d);
    fcpc_program_free(program);
}

Test(cross, warnings) {
    expect_warning("batch { lengths = [50:10, 7] }\nplan { mask = causal }",
                   "causal: 40 queries of 1 sequence see no key: q = -40 to -1 of sequence 0 (50 queries, 10 keys)");
    expect_warning("batch { lengths = [1:10, 5:10 x 2] }\nmask m = k > q\nplan { mask = m }",
                   "m: 3 queries of 3 sequences see no key: for instance q = 9 of sequence 1 (5 queries, 10 keys)");
    expect_warning("batch { lengths = [3:9]; align = top_left }\nplan { mask = window(w = 2) }", NULL);
    /* decoding under causal sees everything, as it should */
    expect_warning("batch { lengths = [1:10 x 3] }\nplan { mask = causal }", NULL);
    expect_warning("batch { lengths = [2:10 x 3] }\nmask m = k < 20\nplan { mask = m }", "allows every pair");
}
