/* test_where_recurs.c: tests which stretch of a plan holds a token, for every token of a batch, against lists of the
 * rows that ranks hold; and what is printed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/explain/explain.h"
#include "compiler/explain/where_recurs.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

enum { RANKS = 3, TOKENS = 470 };

/* Where each row of the packed batch is. */
typedef struct places {
    uint32_t rank[TOKENS], at[TOKENS];
} places;

static places places_of(const fcp_plan *plan) {
    places p;
    for (uint32_t r = 0; r < RANKS; r++) {
        int64_t rows[TOKENS];
        const uint64_t count = fcp_plan_rank_queries(plan, r);
        cr_assert_leq(count, TOKENS);
        fcp_plan_rows(plan, r, false, 0, rows);
        for (uint32_t i = 0; i < count; i++) p.rank[rows[i]] = r, p.at[rows[i]] = i;
    }
    return p;
}

/* Does the token of row i lie right behind that of row i - 1? */
static bool joined(const places *p, uint64_t i) { return p->rank[i] == p->rank[i - 1] && p->at[i] == p->at[i - 1] + 1; }

/* Checks every token of the sequence that has rows begin to end - 1, and is one document. */
static void check_sequence(const fcp_plan *plan, const places *p, uint64_t sequence, uint64_t begin, uint64_t end) {
    uint64_t number = 0, stretches = 1;
    for (uint64_t i = begin + 1; i < end; i++) stretches += !joined(p, i);
    for (uint64_t i = begin; i < end; i++) {
        arena memory = {0};
        explain_stretch x;
        bool found;
        cr_assert_eq(explain_stretch_find(plan, sequence, (int64_t)(i - begin), &memory, &x, &found), FCP_OK);
        cr_assert(found);
        if (i == begin || !joined(p, i)) number++;
        uint64_t first = i, last = i;
        while (first > begin && joined(p, first)) first--;
        while (last + 1 < end && joined(p, last + 1)) last++;
        cr_assert_eq(x.rank, p->rank[i]);
        cr_assert_eq(x.number, number);
        cr_assert_eq(x.count, stretches);
        cr_assert_eq(x.first, (int64_t)(first - begin));
        cr_assert_eq(x.last, (int64_t)(last - begin));
        cr_assert_eq(x.before, first == begin ? FCP_NONE : p->rank[first - 1]);
        cr_assert_eq(x.behind, last + 1 == end ? FCP_NONE : p->rank[last + 1]);
        arena_free(&memory);
    }
}

Test(where_recurs, every_token) {
    static const char *const how[] = {"strategy = zigzag", "strategy = fcp; layout = zigzag", "strategy = fcp"};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char source[400];
        snprintf(source, sizeof source,
                 "model { heads = 2; head_dim = 16 }\ncluster { gpus = %d }\nbatch { lengths = [300, 130, 40] }\n"
                 "plan { block = 16; layers = [causal, scan x 2, halo(before = 1)]; %s }",
                 RANKS, how[i]);
        fcp_plan *plan = plan_of(source);
        const places p = places_of(plan);
        check_sequence(plan, &p, 0, 0, 300);
        check_sequence(plan, &p, 1, 300, 430);
        check_sequence(plan, &p, 2, 430, 470);
        fcp_plan_free(plan);
    }
}

/* What explain prints of a query, whether or not it sees the key. The caller frees it. */
static char *said(const fcp_plan *plan, int64_t q, bool as_json) {
    diags *d = fcpc_diagnostics_new();
    explanation e = {.q = q, .k = 3, .plan = plan};
    text out = {0};
    json j = {0};
    cr_assert_eq(explain_pair("a.fcp", plan->source, plan->source_count, NULL, d, &e), FCP_OK);
    if (as_json) {
        json_object(&j, NULL);
        explain_json(&e, &j);
        json_end(&j);
        out = j.out;
    } else explain_text(&e, "a.fcp", 80, false, &out);
    arena_free(&e.arena);
    fcpc_diagnostics_free(d);
    return text_take(&out);
}

static void expect_said(const fcp_plan *plan, int64_t q, bool as_json, const char *words) {
    char *all = said(plan, q, as_json);
    cr_expect(strstr(all, words), "q = %d: %s", (int)q, all);
    free(all);
}

/* The eight tokens of grammar/LANGUAGE.md. */
Test(where_recurs, words) {
    fcp_plan *plan = plan_of("model { heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\nbatch { lengths = [8] }\n"
                             "plan { strategy = zigzag; block = 2; layers = [causal, scan x 3, halo(before = 2), "
                             "halo(after = 1) x 2] }");
    expect_said(plan, 4, false,
                "\nfor layers that recur: token 4 is in stretch 2 of 3, tokens 2 to 5, at rank 1\n"
                "    of the stretch before it, at rank 0, it needs the state in 3 layers, and rows in 1 layer\n"
                "    of the stretch behind it, at rank 0, it needs rows in 2 layers\n");
    expect_said(plan, 1, false,
                "    nothing is before it, so there the state is 0, and rows are zeros\n    of the stretch "
                "behind it, at rank 1, it needs rows in 2 layers\n");
    expect_said(plan, 7, false, "    nothing is behind it, so there rows are zeros\n");
    expect_said(plan, 7, true,
                "\"stretch\": {\"rank\": 0, \"number\": 3, \"of\": 3, \"first\": 6, \"last\": 7, "
                "\"rank_before\": 1, \"rank_behind\": null}");
    fcp_plan_free(plan);
    plan = plan_of("model { heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\nbatch { lengths = [8] }\n"
                   "plan { strategy = zigzag; block = 2; mask = causal }");
    char *all = said(plan, 4, true), *lines = said(plan, 4, false);
    cr_expect(!strstr(all, "stretch") && !strstr(lines, "recur"), "%s%s", all, lines);
    free(all);
    free(lines);
    fcp_plan_free(plan);
}
