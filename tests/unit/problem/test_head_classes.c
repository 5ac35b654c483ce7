/* test_head_classes.c: tests masks that differ by head: which heads belong to one class, because their masks are equal,
 * and that a plan has for each head the same pairs as a plan of this head alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/plan_of.h"

static fcp_plan *plan_by(const char *mask, const char *tables, uint32_t heads, const char *rest) {
    char text[800];
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = 16; dtype = bf16; %s }\n"
             "cluster { gpus = 2 }\nbatch { lengths = [2500, 700, 90] }\nmask m = %s\nplan { mask = m; %s }\n",
             heads, heads % 2 ? 1 : heads / 2, tables, mask, rest);
    return plan_named("classes.fcp", text);
}

/* The classes of a mask's heads, as text: "0 1 0". */
static void expect_classes_of(fcp_plan *plan, const char *mask, const char *wanted) {
    char found[200] = "";
    for (uint64_t h = 0, at = 0; h < plan->head_classes_count; h++)
        at += (uint64_t)snprintf(found + at, sizeof found - at, "%s%u", h ? " " : "", plan->head_classes[h]);
    cr_expect_str_eq(found, wanted, "%s: %s", mask, found);
    fcp_plan_free(plan);
}

static void expect_classes(const char *mask, const char *tables, uint32_t heads, const char *wanted) {
    expect_classes_of(plan_by(mask, tables, heads, "block = 512"), mask, wanted);
}

/* The same of 4 heads, for a field of two sequences. */
static void expect_field_classes(const char *mask, const char *field, const char *wanted) {
    char text[800];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\n"
             "batch { lengths = [300, 200]; field x = %s }\nmask m = %s\nplan { mask = m }\n",
             field, mask);
    expect_classes_of(plan_named("classes.fcp", text), mask, wanted);
}

Test(head_classes, found) {
    expect_classes("causal", "", 4, "");
    expect_classes("causal and q - k < w[h]", "table w = [512, 64, 512, 65]", 4, "0 1 0 2");
    expect_classes("causal and q - k < w[h]", "table w = [64 x 4]", 4, "0 0 0 0");
    expect_classes("causal and (h < 2 or q - k < w[h])", "table w = [1, 2, 64, 64]", 4, "0 0 1 1");
    expect_classes("causal and (q - k < 100 or h % 3 == 0)", "", 6, "0 1 1 0 1 1");
    expect_classes("causal and q - k < 64 * (h / 2 + 1)", "", 6, "0 0 1 1 2 2");
    expect_classes("causal and h >= 0", "", 3, "0 0 0");
    /* a table with a row for each head: equal rows are one class */
    expect_classes("causal and allowed[h, k / 1024] == 1",
                   "table allowed = [[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 0, 1]]", 4, "0 1 0 1");
    /* a guard that a head makes true or false */
    expect_classes("causal and (if h == 0 then k < 100 else q / h < 900)", "", 3, "0 1 2");
}

/* Heads are of one class if a field has the same values for them in each sequence; from sequence to sequence these may
 * differ. */
Test(head_classes, found_by_fields) {
    expect_field_classes("causal and q - k < x[h]", "[8, 9, 8, 8, 1, 2, 1, 3] over heads", "0 1 0 2");
    expect_field_classes("causal and q - k < x[h]", "[5, 5, 5, 5, 7, 7, 7, 7] over heads", "0 0 0 0");
    expect_field_classes("causal and q - k < x[h / 2]", "[5, 6, 7, 7] over kv_heads", "0 0 1 1");
    expect_field_classes("causal and q - k < x", "[5, 6] over sequences", "");
    /* 2 x 2 blocks of the first sequence, and 1 x 1 of the second */
    expect_field_classes(
        "x[h, q / 200, k / 200] == 1",
        "[1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0] over heads, queries / 200, keys / 200",
        "0 1 0 2");
}

/* The cells of one class of a plan, over the batch: FULL and PARTIAL ones, and pairs of one head. */
typedef struct seen {
    uint64_t full, partial, pairs;
} seen;
static seen seen_by(const fcp_plan *plan, uint32_t head) {
    seen s = {0};
    for (uint64_t t = 0; t < plan->tiles_count; t++) {
        const fcp_tile *tile = &plan->tiles[t];
        const uint32_t range = plan->blocks[tile->q_block].heads;
        for (uint32_t i = 0; i < fcp_range_heads(plan->problem); i++) {
            if (fcp_model_head(plan->problem, &plan->heads[range], i) != head) continue;
            for (uint32_t j = tile->first_part; j < tile->first_part + tile->parts; j++) {
                const fcp_shape_rec *shape = &plan->shapes[plan->parts[j].shape + fcp_class_of(plan, range, i)];
                s.pairs += shape->pairs;
                for (uint32_t r = shape->first_run; r < shape->first_run + shape->runs; r++)
                    *(plan->runs[r].cls == FCP_CELL_FULL ? &s.full : &s.partial) += plan->runs[r].count;
            }
        }
    }
    return s;
}

/* A plan has for each head the pairs of a plan for this head's mask alone and, where blocks are the same, its cells.
 * The plan's pairs are the sum over heads. */
static void expect_own_masks(const char *mask, const char *of_head, const char *tables, uint32_t heads,
                             const char *rest) {
    const bool same_cuts = !strstr(rest, "contiguous");
    fcp_plan *plan = plan_by(mask, tables, heads, rest);
    uint64_t sum = 0;
    for (uint32_t h = 0; h < heads; h++) {
        char own[200];
        snprintf(own, sizeof own, of_head, h, h);
        fcp_plan *one = plan_by(own, tables, 1, "block = 512");
        const seen x = seen_by(plan, h), y = seen_by(one, 0);
        cr_expect_eq(x.pairs, y.pairs, "%s, head %u", mask, h);
        if (same_cuts) cr_expect(x.full == y.full && x.partial == y.partial, "%s, head %u", mask, h);
        sum += y.pairs;
        fcp_plan_free(one);
    }
    cr_expect_eq(plan->summary->pairs, sum, "%s", mask);
    fcp_plan_free(plan);
}

Test(head_classes, each_head_has_its_own_mask) {
    expect_own_masks("causal and q - k < w[h]", "causal and q - k < w[%u]",
                     "table w = [512, 64, 4096, 64, 1000, 0]", 6, "block = 512");
    expect_own_masks("causal and q - k < w[h]", "causal and q - k < w[%u]", "table w = [512, 64, 512, 64]", 4,
                     "block = 512; strategy = ulysses(inside = 2); layout = contiguous");
    expect_own_masks("k <= q + 50 * h and (q + k) % 3 != h", "k <= q + 50 * %u and (q + k) %% 3 != %u", "", 4,
                     "block = 512");
}

/* A mask that faults for one head alone says so, with that head. */
Test(head_classes, fault_of_one_head) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    static const char text[] = "model { heads = 4; kv_heads = 4; head_dim = 16 }\nbatch { lengths = [300] }\n"
                               "mask m = causal and q / (h - 2) < 1000\nplan { mask = m }\n";
    cr_assert_eq(fcpc_parse_text("fault.fcp", text, strlen(text), NULL, d, &program), FCP_OK);
    cr_expect_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), FCP_E_MASK_DIV_ZERO);
    char *picture = fcpc_diagnostics_render(d, false);
    cr_expect(strstr(picture, "h = 2"), "%s", picture);
    free(picture);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}
