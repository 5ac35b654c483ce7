/* test_verify_recurrent.c: what is proven of layers that recur: right plans pass, whatever made their layout; each kind
 * of damage in plan_damage_recurrent.h is refused with the right code; and every number of their tables matters. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "runtime/plan/enum_names.h"
#include "tests/support/amount.h"
#include "tests/support/plan_damage_recurrent.h"
#include "tests/support/plan_of.h"
#include "tests/support/recurrent_plan.h"
#include "tests/support/scatter.h"

/* Both directions, states of each kind, and halos that reach beyond one stretch. */
static const fcp_recurrent layers[] = {
    {.kind = FCP_SCAN, .times = 3, .heads = 32, .rows = 128, .columns = 128, .decay = FCP_DECAY_SCALAR},
    {.kind = FCP_HALO, .times = 3, .before = 3, .channels = 64},
    {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 16, .columns = 8, .decay = FCP_DECAY_MATRIX, .reverse = 1},
    {.kind = FCP_HALO, .times = 1, .before = 40, .after = 150, .channels = 64},
    {.kind = FCP_SCAN, .times = 2, .heads = 6, .rows = 64, .columns = 64, .decay = FCP_DECAY_VECTOR},
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* --- plans -------------------------------------------------------------------------------------------------------- */

static const char *const layouts[] = {
    "layout = contiguous; strategy = cad",
    "layout = zigzag; strategy = zigzag",
    "strategy = fcp; block = 128",
    "strategy = dcp; block = 128",
    "layout = zigzag(group = 2); strategy = groups",
    "strategy = ring",
    "layout = contiguous; strategy = ulysses",
};
static const char *const clusters[] = {"gpus = 2", "nodes = 2; gpus = 2", "nodes = 3; gpus = 2; fabric = rail",
                                       "nodes = 4; gpus = 1"};
static const char *const batches[] = {
    "lengths = [1000, 3, 700, 1, 0, 1500, 64 x 5]",
    "lengths = [600, 60]; field doc = [0 x 100, 1 x 2, 2 x 498, 0 x 60]; documents = doc",
    "lengths = [1 x 7, 40, 2 x 5, 900]",
};
enum {
    LAYOUTS = sizeof layouts / sizeof *layouts,
    CLUSTERS = sizeof clusters / sizeof *clusters,
    BATCHES = sizeof batches / sizeof *batches,
    ALL = LAYOUTS * CLUSTERS * BATCHES,
};

static fcp_plan *subject(unsigned number) {
    char text[512];
    snprintf(text, sizeof text,
             "model { heads = 24; head_dim = 16 }\ncluster { %s }\nbatch { %s }\n"
             "plan { mask = causal; passes = forward%s; %s }\n",
             clusters[number % CLUSTERS], batches[number / CLUSTERS % BATCHES], number % 5 == 4 ? "" : ", backward",
             layouts[number / CLUSTERS / BATCHES % LAYOUTS]);
    fcp_plan *plan = plan_of(text);
    recurrent_give(plan, layers, LAYERS);
    return plan;
}

/* Homes are drawn at random: documents are in pieces of any length, in any order. */
static fcp_plan *scattered(unsigned seed) {
    static const char *const plans[] = {"layout = planned", "layout = contiguous", "layout = zigzag"};
    char text[512];
    scatter s = scatter_new(seed);
    s.one_range = seed % 4 < 3; /* else queries and keys may be at different ranks */
    snprintf(text, sizeof text,
             "model { heads = 8; kv_heads = 2; head_dim = 16 }\ncluster { %s }\nbatch { %s }\n"
             "plan { mask = causal; block = 128; strategy = fcp(coalesce = 2); passes = forward, backward; %s }\n",
             clusters[seed % CLUSTERS], batches[seed / 3 % BATCHES], plans[seed % 3]);
    fcp_plan *plan = scatter_plan(text, &s);
    cr_assert(plan);
    recurrent_give(plan, layers, LAYERS);
    return plan;
}

static void expect_right(const fcp_plan *plan, const char *what, unsigned number) {
    fcp_error err = {0};
    cr_expect_eq(fcp_plan_check(plan, NULL, &err), FCP_OK, "%s %u: %s", what, number, err.message);
    if (!err.code)
        cr_expect_eq(fcp_plan_verify(plan, NULL, NULL, &err), FCP_OK, "%s %u: %s", what, number, err.message);
}

Test(verify_recurrent, right_plans_pass) {
    uint64_t steps = 0;
    for (unsigned i = 0; i < ALL; i++) {
        fcp_plan *plan = subject(i);
        expect_right(plan, "plan", i);
        steps += plan->steps_count;
        fcp_plan_free(plan);
    }
    for (unsigned i = 0; i < amount(30, 600); i++) {
        fcp_plan *plan = scattered(i);
        expect_right(plan, "scatter", i);
        steps += plan->steps_count;
        fcp_plan_free(plan);
    }
    cr_expect_gt(steps, 10000);
}

Test(verify_recurrent, stops_when_told) {
    fcp_plan *plan = subject(1);
    volatile int stop = 1;
    fcp_error err;
    cr_assert_gt(plan->steps_count, 0);
    cr_expect_eq(fcp_plan_check(plan, &stop, &err), FCP_E_INTERRUPTED);
    cr_expect_eq(fcp_plan_verify(plan, &stop, NULL, &err), FCP_E_INTERRUPTED);
    fcp_plan_free(plan);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

enum { KINDS = sizeof recurrent_kinds / sizeof *recurrent_kinds, TRIES = 12 };

static bool named_right(const damage *k, fcp_code code) {
    for (size_t i = 0; i < sizeof k->codes / sizeof *k->codes && k->codes[i]; i++)
        if (k->codes[i] == code) return true;
    return false;
}

/* Tables of a plan: number 0 to DAMAGED - 1. Between them they have every shape and kind of step, and several parts. */
static const struct {
    bool scattered;
    unsigned number;
} chosen[] = {{false, 27}, {false, 34}, {true, 6}, {false, 36}, {false, 44}, {true, 9}, {false, 67}};
enum { DAMAGED = sizeof chosen / sizeof *chosen };
static void damaged(unsigned number, tables *t) {
    fcp_plan *plan = chosen[number].scattered ? scattered(chosen[number].number) : subject(chosen[number].number);
    tables_copy(t, plan);
    tables_plan(t);
    fcp_plan_free(plan);
}

Test(verify_recurrent, every_damage_is_caught_by_name) {
    uint32_t done[KINDS] = {0};
    for (unsigned number = 0; number < DAMAGED; number++) {
        tables whole;
        damaged(number, &whole);
        for (int k = 0; k < KINDS; k++)
            for (unsigned try = 0; try < amount(6, 40); try++) {
                tables t;
                fcp_error err = {0};
                draw d = {(number + 1) * UINT64_C(1000003) + (uint64_t)k * 1009 + try, 0};
                tables_copy(&t, &whole.plan);
                tables_plan(&t);
                if (recurrent_kinds[k].apply(&t, &d)) {
                    const fcp_code code = judge(&t, &err);
                    unsigned rank;
                    char pass[16];
                    done[k]++;
                    cr_expect(named_right(&recurrent_kinds[k], code), "%s, plan %u, try %u: %s %s",
                              recurrent_kinds[k].name, number, try, fcp_code_name(code), err.message);
                    if (sscanf(err.message, "%15[a-z], rank %u,", pass, &rank) == 2)
                        cr_expect(err.where.rank == rank && !strcmp(pass, fcp_pass_names[err.where.pass]), "%s",
                                  err.message);
                }
                tables_free(&t);
            }
        tables_free(&whole);
    }
    for (int k = 0; k < KINDS; k++) cr_expect(done[k] >= 3, "%s: done %u times", recurrent_kinds[k].name, done[k]);
}

/* Every number of the tables is changed by itself, and each change is refused. Exceptions: what a program states and no
 * step depends on, and the word for the shape. */
static bool free_to_differ(const tables *t, int section, uint64_t record, size_t offset) {
    if (section != FCP_SECTION_RECURRENT) return false;
    switch (offset) {
    case offsetof(fcp_recurrent, times): return true;
    case offsetof(fcp_recurrent, channels): return t->recurrent[record].kind == FCP_HALO;
    case offsetof(fcp_recurrent, heads):
    case offsetof(fcp_recurrent, rows):
    case offsetof(fcp_recurrent, columns):
    case offsetof(fcp_recurrent, decay):
    case offsetof(fcp_recurrent, shape): return t->recurrent[record].kind == FCP_SCAN;
    default: return false;
    }
}

Test(verify_recurrent, every_number_matters) {
    for (unsigned number = 0; number < DAMAGED; number += 3) {
        tables t;
        damaged(number, &t);
        const struct {
            int section;
            void *at;
            uint64_t count;
            size_t size;
        } sections[] = {{FCP_SECTION_RECURRENT, t.recurrent, t.recurrent_count, sizeof *t.recurrent},
                        {FCP_SECTION_STEP_STREAMS, t.step_streams, t.step_streams_count, sizeof *t.step_streams},
                        {FCP_SECTION_STEPS, t.steps, t.steps_count, sizeof *t.steps},
                        {FCP_SECTION_HALO_ROWS, t.halo_rows, t.halo_rows_count, sizeof *t.halo_rows}};
        draw d = {number, 0};
        for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
            for (uint64_t n = sections[s].count * sections[s].size / 4, i = 0; i < n; i++) {
                const uint64_t record = i * 4 / sections[s].size;
                const size_t offset = i * 4 % sections[s].size;
                if (free_to_differ(&t, sections[s].section, record, offset) || (s && next(&d) % amount(16, 1)))
                    continue;
                uint32_t *at = (uint32_t *)sections[s].at + i, keep = *at;
                const uint32_t others[] = {keep + 1, keep - 1, keep ^ 0x80000000, keep ^ (uint32_t)next(&d),
                                           0,        FCP_NONE};
                for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                    fcp_error err = {0};
                    if (others[o] == keep) continue;
                    *at = others[o];
                    cr_expect(judge(&t, &err), "plan %u, section %d, record %llu, byte %zu: %u may be %u", number,
                              sections[s].section, (unsigned long long)record, offset, keep, others[o]);
                }
                *at = keep;
            }
        tables_free(&t);
    }
}

/* --- tables that do not fit together ------------------------------------------------------------------------------ */

Test(verify_recurrent, tables_are_there_together) {
    tables t;
    fcp_error err;
    damaged(1, &t);
    cr_assert_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    uint64_t *const counts[] = {&t.recurrent_count, &t.step_streams_count, &t.steps_count, &t.halo_rows_count};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint64_t keep = *counts[i];
        cr_assert_gt(keep, 0);
        for (int all = 0; all < 2; all++) {
            *counts[i] = all ? 0 : keep - 1;
            cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "table %zu: %s", i, err.message);
        }
        *counts[i] = keep;
    }
    t.step_streams[0].temporaries = 1 << 30; /* for which there would have to be memory */
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);
}

/* A table of layers alone claims networks of nothing, over a batch whose documents are cut. */
Test(verify_recurrent, networks_of_nothing) {
    for (int kind = 0; kind < FCP_LAYER_KINDS; kind++) {
        tables t;
        fcp_error err;
        damaged(1, &t);
        t.recurrent[0] =
            kind == FCP_HALO
                ? (fcp_recurrent){.kind = FCP_HALO, .times = 1, .before = 1, .channels = 1, .parts = 1}
                : (fcp_recurrent){.kind = FCP_SCAN, .times = 1, .heads = 1, .rows = 1, .columns = 1, .parts = 1};
        t.recurrent_count = 1;
        t.step_streams_count = FCP_PASSES * (uint64_t)t.problem->ranks;
        memset(t.step_streams, 0, t.step_streams_count * sizeof *t.step_streams);
        t.steps_count = t.halo_rows_count = 0;
        cr_expect_eq(judge(&t, &err), kind == FCP_HALO ? FCP_E_VERIFY_HALO : FCP_E_VERIFY_SCAN, "%s", err.message);
        tables_free(&t);
    }
}

/* Where each document is at one rank as it is, there is nothing to do, and nothing may be done. */
Test(verify_recurrent, whole_documents) {
    fcp_plan *plan = plan_of("model { heads = 8; head_dim = 16 }\nbatch { lengths = [100, 50, 0, 7] }\n"
                             "cluster { gpus = 2 }\nplan { mask = causal; layout = contiguous(group = 1) }\n");
    recurrent_give(plan, layers, LAYERS);
    cr_expect(plan->recurrent_count == LAYERS && !plan->steps_count);
    expect_right(plan, "whole documents", 0);
    tables t;
    fcp_error err;
    tables_copy(&t, plan);
    fcp_plan_free(plan);
    tables_plan(&t);
    cr_assert_gt(stretches_at(&t, 0), 0);
    insert_step(&t, 0, 0, (fcp_step){.op = FCP_STEP_COPY, .a = 0, .out = 2 * stretches_at(&t, 0)});
    t.step_streams[0].temporaries = 1;
    cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_SCAN, "%s", err.message);
    tables_free(&t);
}
