/* test_compile.c: tests fcpc_plan as a whole: the same bytes every time, block = auto, warnings, and what it
 * refuses. */
#include "tests/support/planned.h"

static fcp_code plan_text(const char *text, fcp_plan **plan, char **picture) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text(text, d);
    fcp_code code = fcpc_plan(program, NULL, 0, NULL, d, NULL, plan);
    *picture = fcpc_diagnostics_render(d, false);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

static void refuse(fcp_code expected, const char *words, const char *text) {
    fcp_plan *plan = NULL;
    char *picture;
    fcp_code code = plan_text(text, &plan, &picture);
    cr_assert_eq(code, expected, "%s instead of %s:\n%s", fcp_code_name(code), fcp_code_name(expected), picture);
    cr_assert(strstr(picture, words), "no \"%s\" in\n%s", words, picture);
    cr_assert_null(plan);
    free(picture);
}

static bool same_tables(const fcp_plan *a, const fcp_plan *b) {
#define X(id, type, member)                                                                                            \
    if (a->member##_count != b->member##_count ||                                                                      \
        (a->member##_count && memcmp(a->member, b->member, a->member##_count * sizeof(type))))                         \
        return false;
    FCP_SECTIONS(X)
#undef X
    return true;
}

Test(compile, same_bytes_every_time) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i += 3) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_text(sample_program(i, text, sizeof text), d);
        fcp_plan *first, *again, *other;
        uint64_t lengths[] = {4000, 3000, 2000, 1000, 128, 128, 128, 128};
        cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &first), FCP_OK);
        cr_assert_eq(fcpc_plan(program, lengths, 8, NULL, d, NULL, &other), FCP_OK); /* leaves its workspace behind */
        cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &again), FCP_OK);
        cr_assert(same_tables(first, again));
        cr_assert(!same_tables(first, other));
        fcp_plan_free(first);
        fcp_plan_free(again);
        fcp_plan_free(other);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

Test(compile, coalesce_changes_neither_bytes_nor_rounds) {
    fcp_summary first = {0};
    for (unsigned coalesce = 1; coalesce <= 64; coalesce *= 2) {
        char text[512], *picture;
        snprintf(text, sizeof text,
                 "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [20000, 9000, 3000 x 4] }\n"
                 "plan { mask = causal; block = 512; strategy = fcp(coalesce = %u) }\n", coalesce);
        fcp_plan *plan;
        cr_assert_eq(plan_text(text, &plan, &picture), FCP_OK, "%s", picture);
        if (coalesce == 1) first = *plan->summary;
        cr_assert_eq(plan->summary->bytes_total, first.bytes_total);
        cr_assert_eq(plan->summary->rounds, first.rounds);
        cr_assert_eq(plan->summary->backward_bytes_total, first.backward_bytes_total);
        cr_assert(plan->summary->stages <= first.stages);
        fcp_plan_free(plan);
        free(picture);
    }
}

Test(compile, refuses) {
    
    refuse(FCP_E_MEMORY_CAP, "would",
           "cluster { gpus = 2; memory = 1 MB }\nbatch { lengths = [65536] }\nplan { mask = causal; block = 512 }\n");
    refuse(FCP_E_MASK_DIV_ZERO, "division by zero for q = 0, k = 0",
           "batch { lengths = [100] }\nmask m = q / k > 1\nplan { mask = m }\n");
    refuse(FCP_E_MASK_EXACT, "7 is not a multiple of 2",
           "batch { lengths = [7] }\nmask m = exact(n, 2) > q\nplan { mask = m }\n");
    refuse(FCP_E_MASK_DIV_ZERO, "division by zero", /* what exact is made of, but written by hand */
           "batch { lengths = [7] }\nmask m = n / (if n % 2 == 0 then 2 else 0) > q\nplan { mask = m }\n");
    refuse(FCP_E_MASK_OVERFLOW, "overflow",
           "batch { lengths = [100] }\nmask m = q * 9223372036854775807 > k\nplan { mask = m }\n");
}

/* A batch of fewer blocks than ranks is planned: some ranks own nothing, and a warning says how many. */
Test(compile, ranks_without_tokens) {
    static const struct { const char *plan, *lengths, *warning, *hint; } cases[] = {
        {"block = 512", "512", "7 of 8 ranks get no tokens: the batch has only 1 block", "with plan.block = 64 every"},
        {"block = 128", "80", "7 of 8 ranks get no tokens", "with plan.block = 10 every"},
        {"block = 128", "3", "7 of 8 ranks get no tokens", "they take part in the plan and compute nothing"},
        {"strategy = ring", "5", "3 of 8 ranks get no tokens: the batch has only 5 blocks", "they take part"},
        {"strategy = zigzag", "5", "of 8 ranks get no tokens", "they take part"},
        {"strategy = ring", "1:3", "5 of 8 ranks get no tokens", "they take part"},
        {"block = 128; layout = contiguous", "1:300", "4 of 8 ranks get no tokens", "compute nothing"},
        {"block = 128; layout = zigzag; passes = forward", "130", "6 of 8 ranks get no tokens", "with plan.block = 16"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], *picture;
        snprintf(text, sizeof text,
                 "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [%s] }\nplan { mask = causal; %s }\n",
                 cases[i].lengths, cases[i].plan);
        fcp_plan *plan;
        cr_assert_eq(plan_text(text, &plan, &picture), FCP_OK, "%s", picture);
        cr_expect(strstr(picture, cases[i].warning), "no \"%s\" in\n%s", cases[i].warning, picture);
        cr_expect(strstr(picture, cases[i].hint), "no \"%s\" in\n%s", cases[i].hint, picture);
        cr_expect(!strstr(picture, "fair share"), "%s", picture); /* one warning is enough */
        fcp_plan_free(plan);
        free(picture);
    }
}

/* Any size below 128 will do. */
Test(compile, small_blocks) {
    for (unsigned block = 1; block < 128; block += block < 24 ? 1 : 13) {
        char text[512], *picture;
        snprintf(text, sizeof text,
                 "cluster { gpus = 4 }\nbatch { lengths = [80, 200, 7] }\nplan { mask = causal; block = %u }\n", block);
        fcp_plan *plan;
        cr_assert_eq(plan_text(text, &plan, &picture), FCP_OK, "%s", picture);
        cr_expect_eq(plan->problem->max_block, block);
        cr_expect_eq(plan->summary->pairs, 80 * 81 / 2 + 200 * 201 / 2 + 7 * 8 / 2);
        cr_expect_eq(!strstr(picture, "1 of 4 ranks gets no tokens"), plan->blocks_count >= 4, "%s", picture);
        fcp_plan_free(plan);
        free(picture);
    }
}

Test(compile, no_batch) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text("plan { mask = causal }\n", d);
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), FCP_E_MISSING);
    uint64_t bad[] = {5, 0};
    cr_assert_eq(fcpc_plan(program, bad, 2, NULL, d, NULL, &plan), FCP_E_LENGTHS);
    uint64_t huge[] = {UINT64_C(1) << 40, 1};
    cr_assert_eq(fcpc_plan(program, huge, 2, NULL, d, NULL, &plan), FCP_E_LENGTHS);
    int stop = 1;
    uint64_t fine[] = {1000};
    cr_assert_eq(fcpc_plan(program, fine, 1, &stop, d, NULL, &plan), FCP_E_INTERRUPTED);
    cr_assert_null(plan);
    cr_assert_eq(fcpc_plan(program, bad, 2, NULL, NULL, NULL, &plan), FCP_E_LENGTHS); /* nobody listens */
    cr_assert_eq(fcpc_plan(program, fine, 1, NULL, NULL, NULL, &plan), FCP_OK);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

Test(compile, heavy_block_is_a_warning_that_names_the_size) {
    fcp_plan *plan;
    char *picture;
    cr_assert_eq(
        plan_text(
            "cluster { gpus = 8 }\nbatch { lengths = [16384, 4000 x 10] }\nplan { mask = causal; block = 4096 }\n",
            &plan, &picture),
        FCP_OK, "%s", picture);
    cr_assert(strstr(picture, "warning") && strstr(picture, "plan.block = 1024 would do"), "%s", picture);
    fcp_plan_free(plan);
    free(picture);
}

Test(compile, block_auto) {
    fcp_plan *plan;
    char *picture;
    cr_assert_eq(
        plan_text("cluster { gpus = 8 }\nbatch { lengths = [16384, 512 x 10] }\nplan { mask = causal; block = auto }\n",
                  &plan, &picture),
        FCP_OK, "%s", picture);
    cr_assert_eq(plan->problem->block, 1024, "%u", plan->problem->block); /* 2048 would be too heavy */
    cr_assert(!strstr(picture, "warning"), "%s", picture);
    fcp_plan_free(plan);
    free(picture);
}
