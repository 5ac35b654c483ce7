/* test_zoom.c: tests pictures of a part of a mask. At several zooms, the pairs of every sign and the runs of every row
 * are compared with brute force. Parts that cannot be drawn are refused. Some pictures are compared with golden files.
 * GOLDEN_UPDATE=1 rewrites tests/golden/show/zoom-*. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/show/zoom.h"
#include "compiler/base/text.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

static void holds(const fcp_plan *plan, uint32_t down, uint32_t across, fcpc_show_options view) {
    arena memory = {0};
    zoom z;
    fcp_error err;
    cr_assert_eq(zoom_make(plan, &view, down, across, &memory, &z, &err), FCP_OK, "%s", err.message);
    cr_assert(z.rows <= down && z.cols <= across);
    mc_code mask = {plan->mask, (uint32_t)plan->mask_count};
    int64_t *values = malloc(mask.count * sizeof *values), n = (int64_t)z.n;
    uint64_t drawn = 0, whole = 0;
    const int64_t first = view.choose_head ? view.head : 0, end = first + z.heads;
    for (uint32_t r = 0; r < z.rows; r++)
        for (uint32_t c = 0; c < z.cols; c++) {
            uint64_t pairs = 0;
            for (int64_t h = first; h < end; h++)
                for (int64_t q = (int64_t)z.row_cut[r]; q < (int64_t)z.row_cut[r + 1]; q++)
                    for (int64_t k = (int64_t)z.col_cut[c]; k < (int64_t)z.col_cut[c + 1]; k++)
                        pairs += mc_eval(mask, MC_LENGTH(n), q, k, h, values);
            cr_assert_eq(z.pairs[(size_t)r * z.cols + c], pairs, "row %u, column %u", r, c);
            drawn += pairs;
        }
    for (int64_t h = first; h < end; h++)
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++) whole += mc_eval(mask, MC_LENGTH(n), q, k, h, values);
    cr_expect_eq(z.pairs_drawn, drawn);
    cr_expect_eq(z.all.pairs, whole);
    for (uint32_t r = 0; r < z.rows; r++) {
        uint32_t runs = 0;
        bool before = false;
        for (int64_t k = 0; k < n; k++) {
            bool now = mc_eval(mask, MC_LENGTH(n), (int64_t)z.row_cut[r], k, first, values);
            runs += now && !before;
            before = now;
        }
        cr_assert_eq(z.runs[r], runs, "row %u", r);
    }
    free(values);
    arena_free(&memory);
}

Test(zoom, counts) {
    static const char *const masks[] = {"causal", "lambda(sink = 5, window = 40)", "dilated(w = 200, d = 3)",
                                        "shared_question(p = 20, answers = 5)", "by_head"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char program[400];
        snprintf(program, sizeof program,
                 "model { heads = 2 }\nbatch { lengths = [300, 500, 300] }\n"
                 "mask by_head = if h == 1 then causal else q / 50 == k / 50\nplan { mask = %s; block = 128 }",
                 masks[i]);
        fcp_plan *plan = plan_of(program);
        holds(plan, 30, 30, (fcpc_show_options){0});
        holds(plan, 20, 31, (fcpc_show_options){.choose_sequence = true, .sequence = 2});
        holds(plan, 40, 40, (fcpc_show_options){.choose_sequence = true, .sequence = 1, .row = 37, .row_end = 61,
                                                .col = 20, .col_end = 60});
        holds(plan, 9, 9, (fcpc_show_options){.choose_sequence = true, .sequence = 1, .row = 499, .col = 131,
                                              .col_end = 9999});
        for (uint32_t head = 0; head < 2; head++)
            holds(plan, 20, 20, (fcpc_show_options){.choose_sequence = true, .choose_head = true, .head = head});
        fcp_plan_free(plan);
    }
}

/* Cells are those of each head, added up: of 16 cells, causal has 6 FULL and 4 PARTIAL ones, and blocks have 4. */
Test(zoom, cells_of_heads) {
    fcp_plan *plan = plan_of("model { heads = 3 }\nbatch { lengths = [512] }\n"
                             "mask m = if h == 1 then causal else q / 128 == k / 128\nplan { mask = m; block = 128 }");
    static const uint64_t full[] = {4, 6, 4}, partial[] = {0, 4, 0};
    for (uint32_t head = 0; head <= 3; head++) {
        arena memory = {0};
        zoom z;
        fcp_error err;
        const fcpc_show_options view = {.choose_sequence = true, .choose_head = head < 3, .head = head};
        cr_assert_eq(zoom_make(plan, &view, 9, 9, &memory, &z, &err), FCP_OK, "%s", err.message);
        cr_expect_eq(z.all.full, head < 3 ? full[head] : 14);
        cr_expect_eq(z.all.partial, head < 3 ? partial[head] : 4);
        arena_free(&memory);
    }
    fcp_plan_free(plan);
}

Test(zoom, what_is_not_there) {
    fcp_plan *plan = plan_of("batch { lengths = [300, 500] }\nplan { mask = causal }");
    static const fcpc_show_options wrong[] = {{.choose_head = true, .head = 8},
                                              {.choose_sequence = true, .sequence = 2},
                                              {.choose_sequence = true, .sequence = 0, .row = 300},
                                              {.col = 501, .col_end = 600}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arena memory = {0};
        zoom z;
        fcp_error err = {0};
        cr_expect_eq(zoom_make(plan, &wrong[i], 9, 9, &memory, &z, &err), FCP_E_VALUE);
        cr_expect(err.message[0]);
        arena_free(&memory);
    }
    fcp_plan_free(plan);
}

static void golden(const char *name, text *t) {
    char path[128];
    snprintf(path, sizeof path, "tests/golden/show/%s", name);
    if (getenv("GOLDEN_UPDATE")) {
        FILE *out = fopen(path, "wb");
        cr_assert(out && fwrite(t->at, 1, t->size, out) == t->size && fclose(out) == 0, "%s", path);
    }
    FILE *in = fopen(path, "rb");
    cr_assert_not_null(in, "%s cannot be read", path);
    char *expected = calloc(1, 1 << 20);
    size_t size = fread(expected, 1, (1 << 20) - 1, in);
    fclose(in);
    cr_expect(size == t->size && !memcmp(expected, t->at, size), "%s: not what is drawn:\n%.*s", path, (int)t->size,
              t->at);
    free(expected);
    text_free(t);
}

Test(zoom, pictures) {
    fcp_plan *plan =
        plan_of("batch { lengths = [2000, 700 x 3] }\nplan { mask = lambda(sink = 64, window = 300); block = 128 }");
    arena memory = {0};
    fcpc_show_options view = {.width = 80};
    uint32_t down, across;
    zoom z;
    fcp_error err;
    text t = {0};
    zoom_room(80, &down, &across);
    cr_assert_eq(zoom_make(plan, &view, down, across, &memory, &z, &err), FCP_OK);
    cr_assert_eq(zoom_text(&z, &view, &t, &err), FCP_OK);
    size_t widest = 0;
    for (size_t i = 0, at = 0; i < t.size; i++)
        if (t.at[i] == '\n') at = i + 1;
        else if (i + 1 - at > widest) widest = i + 1 - at;
    cr_expect_leq(widest, 80);
    golden("zoom.txt", &t);
    view = (fcpc_show_options){.width = 80, .unicode = true, .choose_sequence = true, .sequence = 1,
                               .row = 355, .row_end = 370, .col = 50, .col_end = 80};
    cr_assert_eq(zoom_make(plan, &view, 40, 40, &memory, &z, &err), FCP_OK);
    cr_assert_eq(zoom_text(&z, &view, &t, &err), FCP_OK);
    golden("zoom-pairs.txt", &t);
    cr_assert_eq(zoom_svg(&z, &t, &err), FCP_OK);
    golden("zoom-pairs.svg", &t);
    arena_free(&memory);
    fcp_plan_free(plan);
}
