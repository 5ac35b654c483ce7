/* test_sizes.c: tests block = auto with a strategy that the program names. The time that is predicted for each size is
 * that of the same program with this size written in it; the best size is kept; and other settings stay as written. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/compile.h"
#include "tests/support/amount.h"
#include "tests/support/predicted.h"

#define MODEL "model { heads = 8; kv_heads = 2; head_dim = 128 }\n"

static const struct sample {
    const char *cluster, *batch, *plan;
} samples[] = {
    {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10, 500 x 20]", "mask = causal"},
    {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10, 500 x 20]",
     "mask = causal; layout = contiguous; strategy = cad(tolerance = 0.05, coalesce = 8)"},
    {"nodes = 4; gpus = 2; gpu = h100", "lengths = [16384 x 6]",
     "mask = lambda(window = 2000); strategy = dcp(epsilon_compute = 0.05, divisions = 3)"},
    {"nodes = 2; gpus = 4; gpu = a100", "lengths = [30000, 5000 x 8]",
     "mask = causal; layout = zigzag; passes = forward; strategy = fcp(buffers = 2, split = off)"},
    {"nodes = 2; gpus = 4; gpu = h200", "lengths = [30000, 5000 x 20]",
     "mask = causal; layout = contiguous; strategy = groups(tokens = 40K)"},
    {"nodes = 2; gpus = 2; gpu = h100; oversubscription = 4", "lengths = [100:4000, 1:8192 x 9]", "mask = causal"},
    {"gpus = 4; gpu = h200", "lengths = [20000, 700 x 9]", "mask = some; tokens = equal"},
    {"gpus = 2; gpu = h100", "lengths = [300, 20]", "mask = full"},
    {"gpu = h100", "lengths = [9000, 20]", "mask = causal"},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void write_program(const struct sample *s, const char *block, char out[1024]) {
    snprintf(out, 1024, MODEL "cluster { %s }\nbatch { %s }\nmask some = causal and h < 3\nplan { %s%s%s }\n",
             s->cluster, s->batch, s->plan, *block ? "; block = " : "", block);
}

static fcpc_program *parse(const char *source, fcpc_diagnostics *d) {
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program), FCP_OK, "%s", source);
    return program;
}

/* *said, if somebody asks: what the compiler says; the caller frees it. */
static fcp_code plan_it(const char *source, auto_report *report, fcp_plan **out, char **said) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse(source, d);
    const fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.tried = report};
    fcp_code code = compile_batch(program, &batch, NULL, d, &watch, NULL, out);
    if (said) *said = fcpc_diagnostics_render(d, false);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

static void expect_same_plan(const fcp_plan *a, const fcp_plan *b, const char *source) {
    uint8_t is[FCP_DIGEST_BYTES], was[FCP_DIGEST_BYTES];
    fcp_error err;
    cr_assert_eq(fcp_plan_digest(a, is, &err), FCP_OK);
    cr_assert_eq(fcp_plan_digest(b, was, &err), FCP_OK);
    cr_expect_arr_eq(is, was, sizeof is, "%s", source);
}

Test(sizes, each_is_the_program_that_states_it, .timeout = 300) {
    uint32_t sizes = 0, chosen_first = 0;
    for (int i = 0; i < SAMPLES; i++) {
        char source[1024], size[16];
        auto_report r = {.count = 0};
        fcp_plan *kept = NULL;
        write_program(&samples[i], "auto", source);
        cr_assert_eq(plan_it(source, &r, &kept, NULL), FCP_OK, "%s", source);
        cr_expect_eq(predicted(kept), r.at[r.chosen].makespan, "%s", source);
        cr_expect_eq(kept->problem->block, r.at[r.chosen].block);
        cr_assert_geq(r.count, 2);
        for (uint32_t n = 0; n < r.count; n++) {
            const auto_candidate *c = &r.at[n];
            fcp_plan *plan = NULL;
            cr_expect(!c->settings && c->strategy == kept->problem->strategy);
            for (uint32_t k = 0; k < n; k++) cr_expect_neq(c->block, r.at[k].block, "%s", source);
            snprintf(size, sizeof size, "%" PRIu32, c->block);
            write_program(&samples[i], size, source);
            cr_assert_eq(plan_it(source, NULL, &plan, NULL), FCP_OK, "%s", source);
            const uint64_t takes = predicted(plan);
            cr_expect(c->makespan ? c->makespan == takes : c->end == AUTO_BOUND, "%s", source);
            cr_expect_leq(c->bound.all, takes, "%s", source);
            cr_expect_leq(r.at[r.chosen].makespan, takes, "%s", source);
            cr_expect_eq(kept->problem->buffers, plan->problem->buffers);
            if (n == r.chosen) cr_expect_eq(kept->instrs_count, plan->instrs_count);
            fcp_plan_free(plan);
        }
        sizes += r.count;
        chosen_first += r.chosen < 2;
        fcp_plan_free(kept);
        auto_report_free(&r);
    }
    cr_expect_gt(sizes, 3 * SAMPLES);
    cr_expect(chosen_first && chosen_first < SAMPLES, "the first two are best %" PRIu32 " times", chosen_first);
}

/* A program that says nothing of blocks is one that says auto. One processor finds what two find. */
Test(sizes, default_is_auto) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    for (int i = 0; i < SAMPLES; i++) {
        char source[1024];
        fcp_plan *stated = NULL, *plain = NULL;
        write_program(&samples[i], "auto", source);
        cr_assert_eq(plan_it(source, NULL, &stated, NULL), FCP_OK, "%s", source);
        write_program(&samples[i], "", source);
        cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
        cr_assert_eq(plan_it(source, NULL, &plain, NULL), FCP_OK, "%s", source);
        cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
        cr_expect_eq(stated->problem->block, plain->problem->block, "%s", source);
        cr_expect_eq(stated->instrs_count, plain->instrs_count);
        cr_expect_eq(predicted(stated), predicted(plain));
        fcp_plan_free(stated);
        fcp_plan_free(plain);
    }
}

/* On batches like those of training no size from 512 to 16K is more than two percent faster. */
Test(sizes, no_other_size_is_much_faster, .timeout = 300) {
    static const char *const plans[] = {"mask = causal", "mask = lambda", "mask = causal; layout = contiguous",
                                        "mask = shared_question; layout = contiguous; strategy = cad",
                                        "mask = causal; strategy = dcp"};
    const int count = (int)amount(5, 30);
    for (int i = 0; i < count; i++) {
        uint64_t best = 0;
        for (uint32_t block = 256; block <= 16384; block *= 2) { /* 256 stands for auto */
            char source[1024], size[16] = "auto";
            fcp_plan *plan = NULL;
            if (best) snprintf(size, sizeof size, "%" PRIu32, block);
            snprintf(source, sizeof source,
                     "model { heads = 64; kv_heads = 8; head_dim = 128 }\ncluster { nodes = 4; gpus = 8; gpu = h200 }\n"
                     "batch { lengths = lognormal(median = %d, sigma = 1.%d, max = 120K, tokens = 1M, seed = %d) }\n"
                     "plan { %s; block = %s }\n", 1000 << i % 3, 2 + i % 5, i + 1, plans[i % 5], size);
            cr_assert_eq(plan_it(source, NULL, &plan, NULL), FCP_OK, "%s", source);
            if (best) cr_expect_leq(best / 100 * 98, predicted(plan), "%s", source);
            else best = predicted(plan);
            fcp_plan_free(plan);
        }
    }
}

/* The search begins with large blocks, where small ones make many tiles; and goes on to small ones, where the mask
 * leaves few. */
Test(sizes, long_sequences) {
    static const char *const masks[] = {"causal", "lambda(window = 4K)"};
    for (int i = 0; i < 2; i++) {
        char source[1024];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        snprintf(source, sizeof source,
                 "model { heads = 64; kv_heads = 8; head_dim = 128 }\ncluster { nodes = 8; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = [2M] }\nplan { mask = %s }\n", masks[i]);
        cr_assert_eq(plan_it(source, &r, &plan, NULL), FCP_OK);
        cr_expect_geq(r.at[0].block, 8192);
        if (i) cr_expect_leq(plan->problem->block, 4096);
        else cr_expect_leq(auto_makespan(&r) / 103 * 100, r.at[r.chosen].bound.all);
        if (!i) cr_expect_eq(r.count, 2);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* Batches of one program have sizes of their own: those that each has in a program of its own. */
Test(sizes, batches_of_one_program) {
    static const uint64_t small[] = {3000, 500, 20}, large[] = {100000, 30000, 9000, 2000, 700};
    static const fcpc_batch batches[] = {{.size = sizeof(fcpc_batch), .lengths = small, .count = 3},
                                         {.size = sizeof(fcpc_batch), .lengths = large, .count = 5},
                                         {.size = sizeof(fcpc_batch), .lengths = small, .count = 3}};
    const char *source = MODEL "cluster { gpus = 4; gpu = h200 }\nplan { mask = causal }\n";
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse(source, d);
    uint32_t sizes[3];
    for (int i = 0; i < 3; i++) {
        fcp_plan *plan = NULL, *alone = NULL;
        cr_assert_eq(fcpc_plan_batch(program, &batches[i], NULL, d, NULL, &plan), FCP_OK);
        fcpc_program *fresh = parse(source, d);
        cr_assert_eq(fcpc_plan_batch(fresh, &batches[i], NULL, d, NULL, &alone), FCP_OK);
        expect_same_plan(plan, alone, source);
        sizes[i] = plan->problem->block;
        fcp_plan_free(plan);
        fcp_plan_free(alone);
        fcpc_program_free(fresh);
    }
    cr_expect(sizes[0] == sizes[2] && sizes[0] != sizes[1]);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* Plans of layers share one size. */
Test(sizes, layers) {
    const char *source = MODEL "cluster { nodes = 2; gpus = 4; gpu = h200 }\nbatch { lengths = [40000, 3000 x 10] }\n"
                               "plan { layers = [window(w = 1000) x 3, causal]; strategy = %s; layout = contiguous }\n";
    static const char *const by[] = {"fcp", "cad", "dcp"};
    for (int i = 0; i < 3; i++) {
        char program_text[512];
        fcp_plan *plans[2] = {NULL};
        snprintf(program_text, sizeof program_text, source, by[i]);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse(program_text, d);
        const fcpc_batch batch = {.size = sizeof batch};
        cr_assert_eq(fcpc_plan_layers(program, &batch, NULL, d, NULL, plans), FCP_OK, "%s", by[i]);
        cr_expect_eq(plans[0]->problem->block, plans[1]->problem->block);
        for (int k = 0; k < 2; k++) fcp_plan_free(plans[k]);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

/* A size that is refused is not the end; if all are, the error is that of the first. */
Test(sizes, refused) {
    static const struct sample tight = {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10]",
                                        "mask = causal; strategy = dcp(epsilon_memory = 0.02)"},
                               none = {"gpus = 2; gpu = h200; memory = 1 MB", "lengths = [40000]", "mask = causal"};
    char source[1024], *said = NULL;
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    write_program(&tight, "16K", source);
    cr_expect_eq(plan_it(source, NULL, &plan, NULL), FCP_E_VALUE);
    write_program(&tight, "auto", source);
    cr_expect_eq(plan_it(source, &r, &plan, NULL), FCP_OK);
    uint32_t refused = 0;
    for (uint32_t n = 0; n < r.count; n++) refused += r.at[n].end == AUTO_REFUSED;
    cr_expect(refused && r.at[r.chosen].end == AUTO_CHOSEN);
    fcp_plan_free(plan);
    auto_report_free(&r);
    write_program(&none, "auto", source);
    cr_expect_eq(plan_it(source, &r, &plan, &said), FCP_E_MEMORY_CAP);
    cr_assert(said && strstr(said, "cluster.memory allows"), "%s", said);
    for (uint32_t n = 0; n < r.count; n++) cr_expect_eq(r.at[n].end, AUTO_REFUSED);
    free(said);
    auto_report_free(&r);
}

/* A warning of blocks names no other size: those that were tried are slower. */
Test(sizes, warnings) {
    static const struct sample heavy = {"nodes = 8; gpus = 8; gpu = h200", "lengths = [16384, 4000 x 10]",
                                        "mask = causal"};
    char source[1024], *said = NULL;
    fcp_plan *plan = NULL;
    write_program(&heavy, "", source);
    cr_assert_eq(plan_it(source, NULL, &plan, &said), FCP_OK);
    cr_expect(strstr(said, "no placement can balance it") && strstr(said, "block = auto has found it") &&
                  !strstr(said, "would do"), "%s", said);
    free(said);
    fcp_plan_free(plan);
    write_program(&heavy, "256", source);
    cr_assert_eq(plan_it(source, NULL, &plan, &said), FCP_OK);
    cr_expect(strstr(said, "plan.block = 128 would do"), "%s", said);
    free(said);
    fcp_plan_free(plan);
}
