/* test_auto_budget.c: tests auto(budget = 2 s): what is counted ends the trying of candidates, the same with any number
 * of threads; a larger budget is never worse; and one candidate is planned in any case. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/compile.h"
#include "runtime/base/both.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/predicted.h"

#define MODEL "model { heads = 8; kv_heads = 2; head_dim = 128 }\n"
#define NODES MODEL "cluster { nodes = 2; gpus = 4; gpu = h200 }\n"
#define LENGTHS "batch { lengths = [40000, 9000, 3000 x 10, 500 x 20] }\n"

typedef struct chosen {
    auto_report r;
    fcp_plan *plan;
    char said[200]; /* the first warning */
} chosen;

/* `how`: what stands in the parentheses of auto. */
static void choose(const char *before, const char *plan, const char *how, chosen *out) {
    char source[1024];
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    const fcpc_batch batch = {.size = sizeof batch};
    memset(out, 0, sizeof *out);
    const compile_watch watch = {.tried = &out->r};
    snprintf(source, sizeof source, "%splan { %s; strategy = auto%s }\n", before, plan, how);
    cr_assert_eq(fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program), FCP_OK, "%s", source);
    cr_assert_eq(compile_batch(program, &batch, NULL, d, &watch, NULL, &out->plan), FCP_OK, "%s", source);
    fcpc_diagnostic one;
    for (size_t i = fcpc_diagnostics_count(d); i-- > 0;) {
        fcpc_diagnostics_get(d, i, &one);
        if (strstr(one.message, "budget")) snprintf(out->said, sizeof out->said, "%s", one.message);
    }
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

static void forget(chosen *c) {
    fcp_plan_free(c->plan);
    auto_report_free(&c->r);
}

static void choose_within(const char *before, const char *plan, uint64_t work, chosen *out) {
    char how[60];
    snprintf(how, sizeof how, "(budget = %" PRIu64 " us)", work / 1000);
    choose(before, plan, how, out);
}

static uint32_t count(const auto_report *r, auto_end end) {
    uint32_t found = 0;
    for (uint32_t n = 0; n < r->count; n++) found += r->at[n].end == end;
    return found;
}

static uint32_t predicted_of(const auto_report *r) {
    uint32_t found = 0;
    for (uint32_t n = 0; n < r->count; n++) found += r->at[n].makespan > 0;
    return found;
}

static void expect_alike(const chosen *a, const chosen *b) {
    cr_assert_eq(a->r.count, b->r.count);
    cr_expect_eq(a->r.work, b->r.work);
    cr_expect_eq(a->r.chosen, b->r.chosen);
    cr_expect_eq(a->r.moves.tried, b->r.moves.tried);
    for (uint32_t n = 0; n < a->r.count; n++) {
        cr_expect_eq(a->r.at[n].end, b->r.at[n].end);
        cr_expect_eq(a->r.at[n].makespan, b->r.at[n].makespan);
        cr_expect_eq(a->r.at[n].work, b->r.at[n].work);
    }
    cr_assert_eq(a->plan->instrs_count, b->plan->instrs_count);
    cr_expect_arr_eq(a->plan->instrs, b->plan->instrs, a->plan->instrs_count * sizeof *a->plan->instrs);
    cr_assert_eq(a->plan->parts_count, b->plan->parts_count);
    cr_expect_arr_eq(a->plan->parts, b->plan->parts, a->plan->parts_count * sizeof *a->plan->parts);
}

static const char *const plans[] = {"mask = causal; layout = contiguous", "mask = causal",
                                    "mask = shared_question; layout = zigzag"};
enum { PLANS = sizeof plans / sizeof *plans };

/* From nothing to all in eighths: each budget tries what the one below it does, and more. */
Test(auto_budget, more_is_never_worse, .timeout = 120) {
    uint32_t better = 0, cut = 0;
    for (int i = 0; i < PLANS; i++) {
        chosen all, some;
        choose(NODES LENGTHS, plans[i], "", &all);
        cr_expect(!all.r.spent && !count(&all.r, AUTO_OVER), "the usual budget is for larger batches");
        uint64_t before = UINT64_MAX, work = 0;
        for (uint64_t part = 0; part <= 9; part++) {
            choose_within(NODES LENGTHS, plans[i], part == 9 ? all.r.work * 4 : all.r.work / 8 * part + 1000, &some);
            cr_expect_eq(predicted(some.plan), auto_makespan(&some.r));
            cr_expect_leq(auto_makespan(&some.r), before, "%s, part %" PRIu64, plans[i], part);
            cr_expect_geq(some.r.work, work);
            cr_expect(part || predicted_of(&some.r) == 1);
            better += auto_makespan(&some.r) < before && before < UINT64_MAX;
            cut += some.r.spent;
            cr_expect(some.r.spent || !count(&some.r, AUTO_OVER));
            before = auto_makespan(&some.r), work = some.r.work;
            if (part == 9) expect_alike(&all, &some); /* it admits everything */
            forget(&some);
        }
        forget(&all);
    }
    cr_expect(better && cut > PLANS, "budgets cut in %" PRIu32 " cases, %" PRIu32 " are better", cut, better);
}

/* The first candidate is planned, and a warning says what it took. */
Test(auto_budget, too_small) {
    for (int i = 0; i < PLANS; i++) {
        chosen one;
        choose(NODES LENGTHS, plans[i], "(budget = 1 us)", &one);
        cr_expect_eq(predicted_of(&one.r), 1);
        cr_expect(one.r.spent && count(&one.r, AUTO_OVER) && !one.r.moves.tried);
        cr_expect_eq(one.r.work, one.r.at[one.r.chosen].work);
        cr_expect(strstr(one.said, "the budget is 1e-06 s, and one candidate takes 0.0"), "%s", one.said);
        forget(&one);
        choose(NODES LENGTHS, plans[i], "(budget = 1 s)", &one);
        cr_expect_str_empty(one.said);
        forget(&one);
    }
}

/* Where no second candidate fits, nothing cheaper is done in its place: no work is moved. Then less would be better
 * than more, if the second is faster. */
Test(auto_budget, nothing_in_its_place) {
    static const char long_ones[] = NODES "batch { lengths = [100000, 30000 x 4] }\n";
    chosen first, c;
    uint32_t alone = 0;
    choose(long_ones, "mask = causal", "(budget = 1 us, among = [fcp, dcp])", &first);
    for (uint64_t part = 12; part <= 60; part += 4) {
        char how[80];
        snprintf(how, sizeof how, "(budget = %" PRIu64 " us, among = [fcp, dcp])", first.r.work * part / 10000);
        choose(long_ones, "mask = causal", how, &c);
        if (predicted_of(&c.r) == 1) {
            alone++;
            cr_expect_eq(c.r.moves.tried, 0, "budget %" PRIu64, part);
        }
        forget(&c);
    }
    cr_expect(alone > 1 && alone < 13, "%" PRIu32, alone);
    forget(&first);
}

/* A candidate that cannot be planned does not count as the one that is. */
Test(auto_budget, first_is_refused) {
    chosen free, tight;
    char before[400];
    choose(NODES LENGTHS, "mask = causal", "(budget = 1 us, among = [dcp, ulysses, fcp, cad])", &free);
    snprintf(before, sizeof before,
             MODEL "cluster { nodes = 2; gpus = 4; gpu = h200; memory = %" PRIu64 " B }\n" LENGTHS,
             free.plan->summary->memory_peak_bytes - 1);
    choose(before, "mask = causal", "(budget = 1 us, among = [dcp, ulysses, fcp, cad])", &tight);
    cr_expect_eq(free.r.at[0].end, AUTO_CHOSEN);
    cr_expect_eq(tight.r.at[0].end, AUTO_REFUSED);
    cr_expect_eq(predicted_of(&tight.r), 1);
    forget(&free);
    forget(&tight);
}

static void take_one_processor(const cpu_set_t *all) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, all)) CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
}

/* A budget that cuts in the middle cuts at the same candidate with one thread and with two. */
Test(auto_budget, does_not_depend_on_threads, .timeout = 120) {
    cpu_set_t processors;
    cr_assert_eq(sched_getaffinity(0, sizeof processors, &processors), 0);
    for (int i = 0; i < PLANS; i++) {
        chosen all, two, one;
        choose(NODES LENGTHS, plans[i], "", &all);
        choose_within(NODES LENGTHS, plans[i], all.r.work / 4 * 3, &two);
        take_one_processor(&processors);
        cr_assert_not(fcp_both_at_once());
        choose_within(NODES LENGTHS, plans[i], all.r.work / 4 * 3, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof processors, &processors), 0);
        cr_expect(two.r.spent && predicted_of(&two.r) > 1);
        expect_alike(&one, &two);
        forget(&all), forget(&two), forget(&one);
    }
}

static uint32_t first_of(const auto_report *r, fcp_strategy which, bool groups) {
    uint32_t n = 0;
    while (n < r->count && (r->at[n].strategy != which || auto_has_groups(&r->at[n]) != groups)) n++;
    return n;
}

/* In a large batch what takes little comes first: dcp places its tiles slowly. In a small one the order is another. */
Test(auto_budget, cheap_ones_come_first, .timeout = 60) {
    static const struct {
        const char *batch;
        bool large;
    } cases[] = {{"cluster { nodes = 2; gpus = 8 }\nbatch { lengths = [32768 x 16] }\n", false},
                 {"cluster { nodes = 128; gpus = 8 }\nbatch { lengths = [32768 x 1024] }\n", true}};
    for (int i = 0; i < 2; i++) {
        char before[300];
        chosen c;
        snprintf(before, sizeof before, MODEL "%s", cases[i].batch);
        choose(before, "mask = causal", "(budget = 1 us, among = [fcp, dcp, groups, ulysses])", &c);
        const uint32_t dcp = first_of(&c.r, FCP_STRATEGY_DCP, false),
                       joined = first_of(&c.r, FCP_STRATEGY_ULYSSES, true),
                       groups = first_of(&c.r, FCP_STRATEGY_GROUPS, false);
        cr_assert(dcp < c.r.count && joined < c.r.count && groups < c.r.count);
        cr_expect_eq(joined < dcp, cases[i].large);
        cr_expect_eq(c.r.at[c.r.chosen].strategy, FCP_STRATEGY_FCP);
        cr_expect_lt(groups, c.r.count);
        forget(&c);
    }
}

/* Zigzag over 256 ranks would cut so many pieces that it is left out. That does not end the trying: neighbours of the
 * best are tried. The mask names heads, so pairs do not rule zigzag out. */
Test(auto_budget, far_too_long) {
    chosen c;
    choose(MODEL "cluster { nodes = 32; gpus = 8; gpu = h200 }\nbatch { lengths = [4096 x 60] }\n"
                 "mask own = causal and h < 3\n",
           "mask = own", "(among = [fcp, zigzag])", &c);
    const uint32_t zigzag = first_of(&c.r, FCP_STRATEGY_ZIGZAG, false);
    cr_assert_lt(zigzag, c.r.count);
    cr_expect_eq(c.r.at[zigzag].end, AUTO_OVER);
    cr_expect_not(c.r.spent);
    cr_expect_gt(predicted_of(&c.r), 2);
    forget(&c);
}

Test(auto_budget, values) {
    static const struct {
        const char *value;
        fcp_code code;
    } cases[] = {{"2 s", FCP_OK},     {"1.5 ms", FCP_OK},   {"auto", FCP_OK},        {"1 us", FCP_OK},
                 {"3600 s", FCP_OK},  {"0 s", FCP_E_VALUE}, {"999 ns", FCP_E_VALUE}, {"3600.000001 s", FCP_E_VALUE},
                 {"2", FCP_E_UNIT},   {"2 GB", FCP_E_UNIT}, {"-2 s", FCP_E_TYPE},    {"true", FCP_E_TYPE},
                 {"fast", FCP_E_TYPE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[200];
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcpc_diagnostic first = {.code = FCP_OK};
        snprintf(source, sizeof source, "batch { lengths = [9] }\nplan { mask = causal; strategy = auto(budget = %s) }",
                 cases[i].value);
        fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program);
        if (fcpc_diagnostics_count(d)) fcpc_diagnostics_get(d, 0, &first);
        cr_expect_eq(first.code, cases[i].code, "%s: %s", cases[i].value, fcp_code_name(first.code));
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}
