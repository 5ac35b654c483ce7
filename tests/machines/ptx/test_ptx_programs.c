/* test_ptx_programs.c: executes the PTX that NVRTC makes of random programs, to test the source text that is printed
 * from their masks and scores. PTX_RUNS is the number of programs.
 */
#include <stdlib.h>

#include "runtime/jit/kernel_source.h"
#include "tests/oracle/random_program.h"
#include "tests/support/plan_of.h"
#include "tests/support/scatter.h"
#include "tests/machines/ptx/judge.h"

/* NULL where it has no plan, or no kernels. */
static fcp_plan *plan_drawn(const random_program *p) {
    fcp_plan *plan;
    fcp_error err;
    char *said;
    fcp_code code = plan_try("drawn.fcp", p->text, NULL, 0, &plan, &said);
    free(said);
    if (!code && fcp_kernel_check(plan, &err) == FCP_OK) return plan;
    fcp_plan_free(plan);
    return NULL;
}

Test(ptx, random_programs) {
    static const fcp_backend *const backends[] = {&ptx_backend, &ptx_ordered_backend, &ptx_unordered_backend};
    const char *runs = getenv("PTX_RUNS"), *sanitizer = getenv("SAN");
    unsigned wanted = runs && *runs ? (unsigned)strtoul(runs, NULL, 10) : sanitizer && *sanitizer ? 2 : 8, done = 0;
    random_program *p = calloc(1, sizeof *p);
    if (!compiler()) return;
    for (unsigned seed = 1; done < wanted && seed < 100 * wanted + 100; seed++) {
        char text[TEXT];
        dice d = dice_of(seed, 4711);
        draw_program(p, &d, 12000);
        uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus * (p->strategy ? 2 : 1);
        if (cost > 64) continue;
        fcp_plan *plan = plan_drawn(p);
        if (!plan) continue;
        judge(plan, backends[done % 3], seed, text);
        cr_expect(!*text, "seed %u, %s\n%s: %s", seed, p->text, backends[done % 3]->name, text);
        fcp_plan_free(plan);
        done++;
    }
    fprintf(stderr, "%u random programs\n", done);
    cr_assert_eq(done, wanted, "too few programs were run for this test to mean anything");
    free(p);
}

/* Fields of every shape at once: numbers of a sequence, of each head, of blocks that each head keeps or leaves out; and
 * reals that a score adds. In the second sequence the first query is at position 180, in the third cell of 64. */
Test(ptx, fields) {
    static const fcp_backend *const backends[] = {&ptx_backend, &ptx_sm90_backend};
    enum { BLOCKS = 2 * 5 * 5 + 2 * 3 * 5, KEYS = 300 + 300, ROWS = 5 + 3 };
    if (!compiler()) return;
    for (unsigned i = 0; i < 2; i++) {
        char said[TEXT], blocks[3 * BLOCKS + 1] = "", bias[8 * KEYS + 1] = "", rows[8 * ROWS + 1] = "";
        static char program[2 * TEXT + 8 * KEYS];
        for (int j = 0; j < BLOCKS; j++) sprintf(blocks + strlen(blocks), j ? ", %d" : "%d", j * 7 % 5 < 3);
        for (int j = 0; j < KEYS; j++) sprintf(bias + strlen(bias), j ? ", %.2f" : "%.2f", j * 37 % 200 * 0.01 - 1);
        for (int j = 0; j < ROWS; j++) sprintf(rows + strlen(rows), j ? ", %.2f" : "%.2f", j * 0.25 - 1);
        snprintf(program, sizeof program,
                 "model { heads = 2; kv_heads = 1; head_dim = %d }\ncluster { gpus = 2 }\n"
                 "batch { lengths = [300, 120:300]\n field prefix = [20, 70] over sequences\n"
                 " field keep = [%s] over heads, queries / 64, keys / 64\n field bias = [%s]\n"
                 " field row = [%s] over queries / 64\n field slope = [0.5, -0.25, 0.125, 1.0] over heads }\n"
                 "mask m = k < prefix or k <= q and keep[h, q / 64, k / 64] == 1\n"
                 "score x = tanh(s / 8.0) * 8.0 + bias[k] * row[q / 64] + slope[h]\n"
                 "plan { mask = m; score = x; block = 128; passes = forward, backward }\n",
                 i ? 64 : 16, blocks, bias, rows);
        fcp_plan *plan = plan_named("fields.fcp", program);
        judge(plan, backends[i], i, said);
        cr_expect(!*said, "%s: %s", backends[i]->name, said);
        fcp_plan_free(plan);
    }
}

/* Few queries and many keys: heads share tiles, keys are cut into parts, and these are put together. */
Test(ptx, short_queries) {
    static const fcp_backend *const backends[] = {&ptx_backend, &ptx_sm90_backend, &ptx_sm90_backend};
    static const char *const models[] = {"heads = 6; kv_heads = 2; head_dim = 16",
                                         "heads = 4; kv_heads = 1; head_dim = 64",
                                         "heads = 3; kv_heads = 1; head_dim = 128; dtype = fp16"};
    static const char *const plans[] = {"mask = causal; score = alibi; sink = 0.25", "mask = causal",
                                        "mask = dilated(w = 900, d = 3); score = softcap(c = 20)"};
    if (!compiler()) return;
    for (unsigned i = 0; i < 3; i++) {
        char text[TEXT], program[400];
        snprintf(program, sizeof program,
                 "model { %s }\ncluster { gpus = 2 }\nbatch { lengths = [1:1500, 40:130, 200] }\n"
                 "plan { %s; block = 256; passes = forward }\n", models[i], plans[i]);
        fcp_plan *plan = plan_named("short.fcp", program);
        judge(plan, backends[i], i, text);
        cr_expect(!*text, "%s%s: %s", program, backends[i]->name, text);
        fcp_plan_free(plan);
    }
}

/* Fewer rows than SMs: their keys are cut, and the part that comes last joins all. */
Test(ptx, cut_rows) {
    static const fcp_backend *const backends[] = {&ptx_backend, &ptx_sm90_backend, &ptx_backend, &ptx_sm90_backend};
    static const char *const models[] = {"heads = 2; kv_heads = 1; head_dim = 16",
                                         "heads = 1; kv_heads = 1; head_dim = 64; dtype = fp16",
                                         "heads = 1; kv_heads = 1; head_dim = 128",
                                         "heads = 1; kv_heads = 1; head_dim = 256"};
    static const char *const plans[] = {"mask = causal; sink = 0.25", "mask = causal; score = alibi",
                                        "mask = full", "mask = causal"};
    if (!compiler()) return;
    for (unsigned i = 0; i < 4; i++) {
        char text[TEXT], program[400];
        snprintf(program, sizeof program,
                 "model { %s }\ncluster { gpu = h100 }\nbatch { lengths = [%s] }\n"
                 "plan { %s; block = 512; strategy = fcp(coalesce = 8); passes = forward }\n",
                 models[i], i == 2 ? "130:1500" : "1500, 100", plans[i]);
        fcp_plan *plan = plan_named("cut.fcp", program);
        judge(plan, backends[i], i, text);
        cr_expect(!*text, "%s%s: %s", program, backends[i]->name, text);
        fcp_plan_free(plan);
    }
}

/* What a part leaves is read where nothing orders that. */
Test(ptx, cut_rows_flaws) {
    static const ptx_change flaws[] = {
        {"fk_forward", "atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc", -1, NULL},
        {"fk_forward_sm90", "atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc", -1, NULL}};
    if (!compiler()) return;
    fcp_plan *plan = plan_named("cut.fcp", "model { heads = 1; kv_heads = 1; head_dim = 64 }\ncluster { gpu = h100 }\n"
                                "batch { lengths = [130:1500] }\nplan { mask = full; block = 2K; "
                                "strategy = fcp(coalesce = 8); passes = forward }\n");
    for (unsigned i = 0; i < 2; i++) {
        char text[TEXT] = "";
        for (uint64_t seed = 0; !*text && seed < 8; seed++) { /* where parts run side by side */
            ptx_device_seed(seed);
            ptx_device_change(&flaws[i]);
            judge(plan, i ? &ptx_sm90_backend : &ptx_backend, 1, text);
            cr_expect(ptx_device_change(NULL) > 0, "nothing was changed");
        }
        cr_expect(strstr(text, "race") || strstr(text, "order"), "%s: %s", flaws[i].kernel, text);
    }
    ptx_device_seed(0);
    fcp_plan_free(plan);
}

/* Little work: a list of the forward pass has an item for each head. */
Test(ptx, dealt) {
    char text[TEXT], program[300];
    if (!compiler()) return;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(program, sizeof program,
                 "model { heads = 55; kv_heads = 1; head_dim = %d }\ncluster { gpu = a100 }\n"
                 "batch { lengths = [200, 100, 60] }\nplan { mask = causal; block = 1K; passes = forward }\n", i ? 64 : 16);
        fcp_plan *plan = plan_named("dealt.fcp", program);
        const fcp_backend *backend = i ? &ptx_sm90_backend : &ptx_backend;
        judge(plan, backend, i, text);
        cr_expect(!*text, "%s: %s", backend->name, text);
        fcp_plan_free(plan);
    }
}

/* Plans that compute blocks away from home: rows are read in one place and written to another, states are merged. */
Test(ptx, scattered_plans) {
    static const fcp_backend *const backends[] = {&ptx_backend, &ptx_ordered_backend, &ptx_unordered_backend,
                                                  &ptx_sm90_backend, &ptx_unordered_sm90_backend};
    const char *sanitizer = getenv("SAN");
    if (!compiler()) return;
    for (unsigned i = 0, step = sanitizer && *sanitizer ? 2 : 1; i < 5; i += step) {
        char text[TEXT], program[300];
        snprintf(program, sizeof program,
                 "model { heads = 2; kv_heads = 1; head_dim = %u; dtype = bf16 }\ncluster { nodes = 2; gpus = 2 }\n"
                 "batch { lengths = [330, 70] }\nmask by_head = k <= q and q - k < 90 + 100 * h\n"
                 "plan { mask = by_head; score = alibi; block = 128; sink = [0.25, -0.5] }\n", i < 3 ? 16 : 64);
        scatter by = scatter_new(40 + i);
        by.one_range = i % 2;
        fcp_plan *plan = scatter_plan(program, &by);
        cr_assert_not_null(plan);
        bool merges = false;
        for (uint64_t k = 0; k < plan->instrs_count; k++) merges |= plan->instrs[k].op == FCP_OP_MERGE;
        judge(plan, backends[i], i, text);
        cr_expect(!*text, "seed %u, %s: %s", 40 + i, backends[i]->name, text);
        cr_expect(merges, "seed %u merges nothing", 40 + i);
        fcp_plan_free(plan);
    }
}
