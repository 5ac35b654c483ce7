/* test_auto_first.c: tests the settings that strategy = auto tries first, and that the plan which it keeps is hardly
 * ever slower than one with a setting that a user would write down. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/compile.h"
#include "compiler/simulate/simulate.h"
#include "tests/support/predicted.h"
#include "tests/support/splitmix.h"

static void plan_it(const char *source, auto_report *report, fcp_plan **out) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    const fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.tried = report};
    cr_assert_eq(fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program), FCP_OK, "%s", source);
    cr_assert_eq(compile_batch(program, &batch, NULL, d, &watch, NULL, out), FCP_OK, "%s", source);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* What a candidate of a strategy says of a parameter; 0: nothing. */
static uint32_t says(const auto_candidate *c, const char *param) {
    const uint32_t of = strategy_find_param(c->strategy, param);
    for (uint32_t i = 0; i < c->settings; i++)
        if (c->set[i].param == of) return c->set[i].value;
    return 0;
}

/* dcp begins with a tolerance that is safe where it chooses homes. Where tokens stay it has more divisions, unless the
 * program states `coalesce`. Small blocks of cad have stages as long as others. */
Test(auto_first, settings) {
    static const struct {
        const char *layout, *strategy;
        uint32_t epsilon, divisions, coalesce; /* of dcp's first candidate; of cad's small blocks */
    } cases[] = {{"planned", "auto", 50000, 0, 32},
                 {"contiguous", "auto", 20000, 24, 32},
                 {"contiguous", "auto(coalesce = 8)", 20000, 0, 0},
                 {"zigzag", "auto", 20000, 24, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[400];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        const auto_candidate *dcp = NULL;
        uint32_t small = 0;
        snprintf(source, sizeof source,
                 "model { heads = 8; kv_heads = 2; head_dim = 128 }\ncluster { nodes = 2; gpus = 2; gpu = h200 }\n"
                 "batch { lengths = [30000, 3000 x 10] }\nplan { mask = causal; layout = %s; strategy = %s }\n",
                 cases[i].layout, cases[i].strategy);
        plan_it(source, &r, &plan);
        for (const auto_candidate *c = r.at; c < r.at + r.count; c++) {
            if (c->found) continue;
            if (c->strategy == FCP_STRATEGY_DCP && !dcp) dcp = c;
            if (c->strategy != FCP_STRATEGY_CAD || c->block >= r.at[0].block) continue;
            cr_expect_eq(says(c, "coalesce"), cases[i].coalesce, "%s", source);
            small++;
        }
        cr_assert(dcp && small, "%s", source);
        cr_expect_eq(says(dcp, "epsilon_compute"), cases[i].epsilon, "%s", source);
        cr_expect_eq(says(dcp, "divisions"), cases[i].divisions, "%s", source);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* Lengths with a long tail: most have some thousand tokens, one in ten up to 60,000. */
static void draw_lengths(uint64_t seed, char *out, size_t size) {
    size_t at = 0;
    for (uint32_t tokens = 0; tokens < 400000;) {
        const uint64_t drawn = splitmix(&seed);
        const uint32_t n = 200 + (uint32_t)(drawn >> 8) % (drawn % 10 ? 6000 : 60000);
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu32, tokens ? ", " : "", n);
        cr_assert_lt(at, size);
        tokens += n;
    }
}

/* Batches that are drawn, on two nodes of eight: no setting is faster than effort 1 by more than 3 %. */
Test(auto_first, no_setting_is_much_faster, .timeout = 300) {
    static const char *const masks[] = {"causal", "lambda(window = 2000)"};
    static const char *const layouts[] = {"contiguous", "planned"};
    static const char *const settings[] = {
        "strategy = fcp; block = 2K", "strategy = fcp; block = 1K",
        "strategy = dcp(epsilon_compute = 0.02); block = 1K",
        "strategy = dcp(epsilon_compute = 0.05); block = 2K", "strategy = dcp(epsilon_compute = 0.01); block = 1K",
        "strategy = cad(tolerance = 0.02); block = 2K", "strategy = cad(tolerance = 0.02, coalesce = 32); block = 1K",
        "strategy = ulysses"};
    enum { SETTINGS = sizeof settings / sizeof *settings };
    for (int i = 0; i < 8; i++) {
        char lengths[4000], head[4400], source[4500];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        draw_lengths(1 + (uint64_t)i / 4, lengths, sizeof lengths);
        snprintf(head, sizeof head,
                 "model { heads = 64; kv_heads = 8; head_dim = 128 }\ncluster { nodes = 2; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = [%s] }\nplan { mask = %s; layout = %s; ",
                 lengths, masks[i & 1], layouts[i >> 1 & 1]);
        snprintf(source, sizeof source, "%sstrategy = auto }\n", head);
        plan_it(source, &r, &plan);
        const uint64_t time = auto_makespan(&r);
        fcp_plan_free(plan);
        for (int s = 0; s < SETTINGS; s++) {
            plan = NULL;
            snprintf(source, sizeof source, "%s%s }\n", head, settings[s]);
            plan_it(source, NULL, &plan);
            const uint64_t fixed = predicted(plan);
            cr_expect_leq(time, fixed + fixed / 100 * 3, "batch %d, %s, %s, %s: %" PRIu64 " and %" PRIu64 " ps", i / 4,
                          masks[i & 1], layouts[i >> 1 & 1], settings[s], time, fixed);
            fcp_plan_free(plan);
        }
        auto_report_free(&r);
    }
}
