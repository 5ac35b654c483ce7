/* test_explain.c: tests explanations of why a query sees a key, on every pair of small sequences: they agree with the
 * mask code (which explain_pair itself checks), their steps are right, and so are the conditions that they call
 * decisive. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/explain/where_computed.h"
#include "compiler/explain/explain.h"
#include "compiler/base/text.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

static fcp_code explain(const char *program, int64_t q, int64_t k, int64_t n, explanation *out) {
    diags *d = fcpc_diagnostics_new();
    *out = (explanation){.q = q, .k = k, .n = n};
    fcp_code code = explain_pair("a.fcp", program, strlen(program), NULL, d, out);
    cr_expect_eq(code != FCP_OK, diag_errors(d) > 0);
    fcpc_diagnostics_free(d);
    return code;
}

static void whole(const char *program, int64_t n) {
    for (int64_t q = 0; q < n; q++)
        for (int64_t k = 0; k < n; k++) {
            explanation e;
            cr_assert_eq(explain(program, q, k, n, &e), FCP_OK, "%s: q = %d, k = %d", program, (int)q, (int)k);
            cr_expect_gt(e.count, 0);
            cr_expect_eq(e.steps[0].depth, 0);
            cr_expect_eq(e.steps[0].kind, e.kind);
            cr_expect(e.kind == EXPLAIN_FAULT || e.reasons > 0);
            for (size_t i = 1; i < e.count; i++) cr_expect_leq(e.steps[i].depth, e.steps[i - 1].depth + 1);
            arena_free(&e.arena);
        }
}

Test(explain, agrees_with_the_mask_code) {
    static const char *const masks[] = {
        "full", "causal", "window(w = 5)", "window_both(l = 2, r = 3)", "prefix(p = 4)", "lambda(sink = 2, window = 6)",
        "shared_question(p = 30, answers = 3)", "causal_blockwise(b = 4, w = 2)", "block_causal(b = 5)",
        "global_window(g = 2, w = 3)", "dilated(w = 9, d = 3)"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char program[200];
        snprintf(program, sizeof program, "plan { mask = %s }", masks[i]);
        whole(program, 21);
    }
    whole("plan { mask = m }\nmask m = (if q < k then k - q < 3 else q / 3 == k / 3) == (not (h == 1) or f(q) != -k)\n"
          "where { f(a) = abs(min(a, 4) - max(a, 7, k)) % 5 }", 17);
    whole("plan { mask = m(flag = false) }\nmask m(flag = true, w = 3) = flag or inner(w = q % w) and not flag\n"
          "mask inner(w) = abs(q - k) <= w", 13);
    whole("plan { mask = m }\nmask m = q < 5 or q / (k - 3) > 0 and true", 9); /* faults, where it is reached */
    whole("plan { mask = m }\nmask m = unused(w = q / k)\nmask unused(w) = k <= q or w > 1", 9);
    whole("plan { mask = m }\nmask m = k <= q and unused(w = q / k)\nmask unused(w) = k < 4", 9);
    whole("plan { mask = m }\nmask m = q * 4611686018427387904 >= k * 3", 5);
}

static const explain_step *step(const explanation *e, const char *wanted) {
    for (size_t i = 0; i < e->count; i++)
        if (!strcmp(e->steps[i].text, wanted)) return &e->steps[i];
    cr_assert_fail("no step '%s'", wanted);
    return NULL;
}

Test(explain, steps) {
    explanation e;
    cr_assert_eq(
        explain("mask m(w = 8) =\n    causal and (k < 2 or near(q) - k < w)\n    where { near(t) = t / 2 * 2 }\n"
                "plan { mask = m }",
                101, 50, 0, &e),
        FCP_OK);
    cr_expect_eq(e.n, 102);
    cr_expect(!e.allowed);
    cr_expect_str_eq(e.mask, "m(w = 8)");
    const explain_step *s = step(&e, "near(q) - k < w");
    cr_expect_str_eq(s->with, "50 < 8");
    cr_expect_eq(s->line, 2);
    cr_expect_eq(s->column, 26);
    cr_expect_str_eq(step(&e, "near(q)")->with, "t = 101");
    cr_expect_eq(step(&e, "near(q)")->value, 100);
    cr_expect_str_eq(step(&e, "t / 2 * 2")->with, "101 / 2 * 2");
    cr_expect(step(&e, "k <= q")->builtin);
    cr_assert_eq(e.reasons, 2);
    cr_expect_str_eq(e.because[0], "k < 2 is false (50 < 2)");
    cr_expect_str_eq(e.because[1], "near(q) - k < w is false (50 < 8)");
    arena_free(&e.arena);

    cr_assert_eq(explain("plan { mask = lambda }", 3, 4, 0, &e), FCP_OK);
    cr_expect(!e.allowed);
    cr_expect_eq(step(&e, "k < sink or q - k < window")->kind, EXPLAIN_UNREACHED);
    cr_expect_str_eq(e.because[0], "k <= q is false (4 <= 3)");
    arena_free(&e.arena);

    cr_assert_eq(explain("plan { mask = m } mask", 3, 4, 0, &e), FCP_E_SYNTAX);
    arena_free(&e.arena);
}

Test(explain, repeats_and_size) {
    explanation e; /* what doubles at every level is explained once */
    char program[4000] = "plan { mask = m }\nmask m = f40(q) > k where { f0(t) = t % 2\n";
    for (int i = 1; i <= 40; i++) {
        char line[80];
        snprintf(line, sizeof line, "f%d(t) = max(f%d(t), f%d(t))\n", i, i - 1, i - 1);
        strcat(program, line);
    }
    strcat(program, "}");
    cr_assert_eq(explain(program, 5, 0, 9, &e), FCP_OK);
    cr_expect(e.allowed);
    cr_expect_lt(e.count, 200);
    arena_free(&e.arena);

    text chain = {0}; /* longer than is kept */
    text_puts(&chain, "plan { mask = m }\nmask m = k < 0");
    for (int i = 0; i < 9000; i++) text_printf(&chain, " or q == %d", i);
    char *long_one = text_take(&chain);
    cr_assert_eq(explain(long_one, 8500, 3, 10000, &e), FCP_OK);
    cr_expect(e.allowed);
    cr_expect_eq(e.count, EXPLAIN_STEPS);
    cr_expect_gt(e.left_out, 0);
    free(long_one);
    arena_free(&e.arena);
}

Test(explain, wrong_pairs) {
    explanation e;
    cr_expect_eq(explain("plan { mask = causal }\nbatch { lengths = [10, 20, 5] }", 19, 20, 0, &e), FCP_E_VALUE);
    arena_free(&e.arena);
    cr_expect_eq(explain("plan { mask = causal }\nbatch { lengths = [10, 20, 5] }", 19, 3, 0, &e), FCP_OK);
    cr_expect_eq(e.n, 20);
    arena_free(&e.arena);
    cr_expect_eq(explain("plan { mask = causal }", -1, 3, 10, &e), FCP_E_VALUE);
    arena_free(&e.arena);
    cr_expect_eq(explain("plan { mask = nothing }", 1, 3, 10, &e), FCP_E_UNKNOWN_NAME);
    arena_free(&e.arena);
}

/* Every pair that the mask allows is computed where its tile is, and its block comes from holder to holder. */
Test(explain, who_computes_a_pair) {
    static const char program[] =
        "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { nodes = 2; gpus = 2 }\n"
        "batch { lengths = [900, 1500, 40] }\nplan { mask = lambda(sink = 3, window = 700); block = 128 }\n";
    fcp_plan *plan = plan_of(program);
    uint32_t stops = 0;
    for (int64_t q = 0; q < 1500; q += 61)
        for (int64_t k = 0; k < 1500; k += 47) {
            diags *d = fcpc_diagnostics_new();
            explanation e = {.q = q, .k = k, .sequence = 1, .asked = true, .plan = plan};
            cr_assert_eq(explain_pair("a.fcp", plan->source, plan->source_count, NULL, d, &e), FCP_OK);
            cr_assert_eq(e.computed != NULL, e.allowed, "q = %d, k = %d", (int)q, (int)k);
            const explain_computed *c = e.computed;
            if (c) {
                const explain_way *w = &c->keys;
                cr_expect_eq(c->rank, plan->blocks[c->queries.block].home);
                cr_expect_eq(c->queries.count, 0);
                cr_expect_eq(c->parts, 1);
                cr_expect_eq(c->pairs_here, c->pairs_of_home);
                cr_expect_eq(w->count == 0, c->rank == w->home);
                cr_expect(!w->count || w->stops[w->count - 1] == c->rank);
                cr_expect_leq(w->count, 2, "once to a node, and on from there");
                stops += w->count;
            }
            arena_free(&e.arena);
            fcpc_diagnostics_free(d);
        }
    cr_expect_gt(stops, 20);
    fcp_plan_free(plan);
}

/* Rows that several ranks compute, and none of them is at home: one of those ranks makes the result. Others' results
 * are made at home, of what comes there. */
Test(explain, who_makes_the_result) {
    fcp_plan *plan = plan_of("model { heads = 2; kv_heads = 1; head_dim = 16 }\ncluster { nodes = 2; gpus = 2 }\n"
                             "batch { lengths = [500, 60 x 2] }\nplan { mask = causal; block = 128; "
                             "strategy = cad(coalesce = 1, buffers = 2, shard = 32); layout = contiguous }\n");
    unsigned away = 0, at_home = 0;
    for (int64_t q = 0; q < 500; q += 5) {
        diags *d = fcpc_diagnostics_new();
        explanation e = {.q = q, .k = 0, .sequence = 0, .asked = true, .plan = plan};
        cr_assert_eq(explain_pair("a.fcp", plan->source, plan->source_count, NULL, d, &e), FCP_OK);
        const explain_computed *c = e.computed;
        text said = {0};
        explain_computed_text(c, &said);
        text_add(&said, "", 1);
        bool whole = plan->blocks[c->queries.block].flags & FCP_BLOCK_WHOLE;
        cr_expect_eq(c->maker != c->queries.home, whole);
        cr_expect(c->parts > 1 || c->maker == c->rank);
        if (c->rank != c->queries.home)
            cr_expect_eq(!!strstr(said.at, "sends back"), whole, "%s", said.at);
        away += whole && c->parts > 1;
        at_home += !whole && c->parts > 1;
        text_free(&said);
        arena_free(&e.arena);
        fcpc_diagnostics_free(d);
    }
    cr_expect(away && at_home, "%u, %u", away, at_home);
    fcp_plan_free(plan);
}
