/* test_prelude.c: tests the prelude's masks against their definitions in C: every pair, every count, every cell's
 * class. It also tests what they refuse, and that planning the largest of them costs in proportion to the boundary
 * between allowed and forbidden pairs. */
#include "tests/support/known_fields.h"
#include "tests/support/known_masks.h"
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"
#include "grammar/prelude.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plan_of.h"

static fcpc_program *program_of(const char *call) {
    char source[KNOWN_CALL + 32];
    snprintf(source, sizeof source, "plan { mask = %s }", call);
    return program_named("test.fcp", source);
}

/* Sums over rectangles of a mask, in O(1): table[(n + 1) * q + k] counts pairs before (q, k). */
typedef struct sums {
    uint64_t n, *table;
} sums;

static sums sum_up(const known_case *x, uint64_t n) {
    sums s = {n, calloc((n + 1) * (n + 1), sizeof *s.table)};
    cr_assert_not_null(s.table);
    for (uint64_t q = 0; q < n; q++)
        for (uint64_t k = 0; k < n; k++)
            s.table[(n + 1) * (q + 1) + k + 1] =
                s.table[(n + 1) * q + k + 1] + s.table[(n + 1) * (q + 1) + k] - s.table[(n + 1) * q + k] +
                KNOWN[x->mask].allow(x->p, (int64_t)q, (int64_t)k, (int64_t)n);
    return s;
}

static uint64_t pairs_in(const sums *s, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    const uint64_t *t = s->table, w = s->n + 1;
    return t[w * q1 + k1] - t[w * q0 + k1] - t[w * q1 + k0] + t[w * q0 + k0];
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void check_count(cells *c, const sums *s, const char *call) {
    cells_counts got, want = {0};
    cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)s->n), &got, NULL), FCP_OK);
    for (uint64_t q = 0; q < s->n; q += FCP_CELL)
        for (uint64_t k = 0; k < s->n; k += FCP_CELL) {
            uint64_t q1 = least(q + FCP_CELL, s->n), k1 = least(k + FCP_CELL, s->n), pairs = pairs_in(s, q, q1, k, k1);
            want.pairs += pairs;
            if (!pairs) want.none++;
            else if (pairs == (q1 - q) * (k1 - k)) want.full++;
            else want.partial++;
        }
    cr_assert(!memcmp(&got, &want, sizeof got), "%s, n = %d: pairs %d, not %d; full %d %d, partial %d %d", call,
              (int)s->n, (int)got.pairs, (int)want.pairs, (int)got.full, (int)want.full, (int)got.partial,
              (int)want.partial);
}

/* Blocks of `block`: every piece pair's count, every cell's class. */
static void check_grid(cells *c, const sums *s, uint64_t block, const char *call) {
    uint64_t cuts[64];
    uint32_t pieces = 0, shape_count, run_count;
    for (uint64_t at = 0; at < s->n; at += block) cuts[pieces++] = at;
    cuts[pieces] = s->n;
    const cell_entry *entry;
    const fcp_run *runs;
    size_t count, at = 0;
    cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)s->n), cuts, pieces, cuts, pieces, &entry, &count, NULL), FCP_OK);
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (uint32_t i = 0; i < pieces; i++)
        for (uint32_t j = 0; j < pieces; j++) {
            uint64_t pairs = pairs_in(s, cuts[i], cuts[i + 1], cuts[j], cuts[j + 1]);
            bool here = at < count && entry[at].q_piece == i && entry[at].k_piece == j;
            cr_assert_eq(here, pairs > 0, "%s, n = %d: (%u, %u)", call, (int)s->n, i, j);
            if (!here) continue;
            const fcp_shape_rec *shape = &shapes[entry[at++].shape];
            cr_assert_eq(shape->pairs, pairs, "%s, n = %d: (%u, %u)", call, (int)s->n, i, j);
            uint8_t cls[64][64] = {{0}};
            for (uint32_t r = 0; r < shape->runs; r++) {
                const fcp_run *run = &runs[shape->first_run + r];
                for (uint32_t x = 0; x < run->count; x++) cls[run->row][run->col + x] = (uint8_t)run->cls;
            }
            for (uint64_t q = cuts[i]; q < cuts[i + 1]; q += FCP_CELL)
                for (uint64_t k = cuts[j]; k < cuts[j + 1]; k += FCP_CELL) {
                    uint64_t q1 = least(q + FCP_CELL, cuts[i + 1]), k1 = least(k + FCP_CELL, cuts[j + 1]);
                    uint64_t inside = pairs_in(s, q, q1, k, k1);
                    unsigned want = !inside ? 0 : inside == (q1 - q) * (k1 - k) ? FCP_CELL_FULL : FCP_CELL_PARTIAL;
                    cr_assert_eq(cls[(q - cuts[i]) / FCP_CELL][(k - cuts[j]) / FCP_CELL], want,
                                 "%s, n = %d: cell at %d, %d", call, (int)s->n, (int)q, (int)k);
                }
        }
    cr_assert_eq(at, count);
}

Test(prelude, counts_and_classes) {
    for (int i = 0; i < KNOWN_CASE_COUNT; i++) {
        const known_case *x = &KNOWN_CASES[i];
        char call[KNOWN_CALL];
        fcpc_program *p = program_of(known_call(&KNOWN[x->mask], x->p, call));
        cells *c = cells_new(p->mask, 1);
        cells_stats stats;
        cr_assert_not_null(c);
        for (int j = 0; j < 4 && x->lengths[j]; j++) {
            sums s = sum_up(x, x->lengths[j]);
            check_count(c, &s, call);
            check_grid(c, &s, 128, call);
            check_grid(c, &s, 384, call);
            check_grid(c, &s, 100, call);
            free(s.table);
        }
        cells_get_stats(c, &stats);
        /* a causal window with gaps is a staircase of steps narrower than a cell, whose pairs are looked at */
        if (!strstr(call, "true")) cr_assert_eq(stats.elements, 0, "%s", call);
        cells_free(c);
        fcpc_program_free(p);
    }
}

/* What is right of a mask that has a period when it is answered by periods: odd ones, more cells, several of them. */
Test(prelude, periods) {
    static const known_case cases[] = {{K_NATTEN2D, {61, 9, 9, 1, 1, 1, 1}, {61 * 40}},
                                       {K_NATTEN2D, {129, 17, 5, 1, 1, 1, 1}, {129 * 19}},
                                       {K_NATTEN2D, {200, 31, 3, 1, 1, 1, 1}, {2400}},
                                       {K_NATTEN2D, {61, 8, 5, 1, 4, 2, 1}, {61 * 40}},
                                       {K_NATTEN1D, {260, 1, 4, 0}, {2600}},
                                       {K_STA2D, {40, 8, 3, 3, 3, 150, 1, 1}, {2430}},
                                       {K_SVG_TEMPORAL, {26, 350, 33}, {2600}},
                                       {K_SVG_TEMPORAL, {130, 129, 20}, {2500}},
                                       {K_SVG_TEMPORAL, {300, 7, 2}, {2000}},
                                       {K_STA2D, {40, 8, 3, 3, 3}, {2400}},
                                       {K_STA3D, {20, 10, 5, 5, 3, 3, 3, 3}, {2400}},
                                       {K_BLOCK_DIFFUSION, {131}, {2620}},
                                       {K_CAUSAL_BLOCKWISE_FM, {150}, {2600}},
                                       {K_DRAFT_TRAIN, {100, 137}, {2600}},
                                       {K_BLOCK_CAUSAL, {257}, {2600}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char call[KNOWN_CALL];
        fcpc_program *p = program_of(known_call(&KNOWN[cases[i].mask], cases[i].p, call));
        cells *c = cells_new(p->mask, 1);
        sums s = sum_up(&cases[i], cases[i].lengths[0]);
        check_count(c, &s, call);
        check_grid(c, &s, 256, call);
        free(s.table);
        cells_free(c);
        fcpc_program_free(p);
    }
}

/* A million tokens: few boxes, little memory, no elements; a row's pairs are counted once for all like it. */
Test(prelude, long_sequences) {
    static const known_case cases[] = {{K_NATTEN2D, {1024, 63, 63, 1, 1, 1, 1}, {1 << 20}},
                                       {K_NATTEN2D, {1000, 63, 63, 1, 1, 1, 1}, {1048000}},
                                       {K_NATTEN2D, {1024, 64, 32, 1, 8, 1, 4, 0, 0}, {1 << 20}},
                                       {K_NATTEN3D, {64, 64, 9, 9, 16, 1, 1, 1, 1, 1, 1, 0, 0, 1}, {1 << 20}},
                                       {K_STA2D, {1024, 16, 16, 9, 9}, {1 << 20}},
                                       {K_STA3D, {80, 48, 8, 8, 6, 3, 3, 3}, {1036800}},
                                       {K_SVG_TEMPORAL, {226, 4096, 128}, {1 << 20}},
                                       {K_SVG_TEMPORAL, {226, 3600, 128}, {1 << 20}},
                                       {K_BLOCK_DIFFUSION, {1000}, {1 << 20}},
                                       {K_CAUSAL_BLOCKWISE_FM, {1000}, {1 << 20}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const known_case *x = &cases[i];
        char call[KNOWN_CALL];
        fcpc_program *p = program_of(known_call(&KNOWN[x->mask], x->p, call));
        cells *c = cells_new(p->mask, 1);
        cells_counts got;
        cells_stats stats;
        uint64_t n = x->lengths[0], sampled = 0;
        cr_assert_eq(cells_count(c, MC_LENGTH((int64_t)n), &got, NULL), FCP_OK);
        cells_get_stats(c, &stats);
        cr_assert_eq(stats.elements, 0, "%s", call);
        cr_assert_lt(stats.boxes, 40000, "%s: %d boxes", call, (int)stats.boxes);
        cr_assert_lt(stats.bytes, 8 << 20, "%s: %d bytes", call, (int)stats.bytes);
        /* rows picked here and there, as slices of the whole */
        for (uint64_t q = 0; q < n; q += n / 7 + 1) {
            const uint64_t q_cuts[] = {q, q + 1}, k_cuts[] = {0, n};
            const cell_entry *entry;
            size_t count;
            uint32_t ignored;
            const fcp_run *runs;
            uint64_t pairs = 0;
            cr_assert_eq(cells_grid(c, MC_LENGTH((int64_t)n), q_cuts, 1, k_cuts, 1, &entry, &count, NULL), FCP_OK);
            for (uint64_t k = 0; k < n; k++)
                pairs += KNOWN[x->mask].allow(x->p, (int64_t)q, (int64_t)k, (int64_t)n);
            cr_assert(count == 1 && cells_shapes(c, &ignored, &runs, &ignored)[entry->shape].pairs == pairs,
                      "%s: row %d", call, (int)q);
            sampled += pairs;
        }
        cr_assert_gt(sampled, 0);
        cells_free(c);
        fcpc_program_free(p);
    }
}

/* --- completeness ------------------------------------------------------------------------------------------------- */

/* A mask that nobody defined in C, or that has no case, would be compared with nothing. */
Test(prelude, every_mask_is_compared) {
    for (unsigned i = 0; i < prelude_item_count; i++) {
        const char *name = prelude_items[i].name;
        bool found = prelude_items[i].score || !strcmp(name, "neighbourhood"); /* what natten1d calls for q and k */
        for (unsigned j = 0; j < KNOWN_CASE_COUNT; j++) found |= !strcmp(KNOWN[KNOWN_CASES[j].mask].name, name);
        for (unsigned j = 0; j < KNOWN_FIELD_MASK_COUNT; j++) {
            const char *call = KNOWN_FIELD_MASKS[j].call;
            found |= !strncmp(call, name, strlen(name)) && call[strlen(name)] == '(';
        }
        cr_expect(found, "no case of '%s' in known_masks.h or known_fields.h", name);
    }
}

/* --- what must divide ------------------------------------------------------------------------------------------- */

static void refuse(const char *mask, uint64_t n, fcp_code expected, const char *words) {
    char source[256];
    fcp_plan *plan;
    char *picture;
    snprintf(source, sizeof source, "batch { lengths = [%llu] }\nplan { mask = %s; block = 128 }\n",
             (unsigned long long)n, mask);
    fcp_code code = plan_try("test.fcp", source, NULL, 0, &plan, &picture);
    cr_expect_eq(code, expected, "%s, n = %d: %s\n%s", mask, (int)n, fcp_code_name(code), picture);
    cr_expect(!words || strstr(picture, words), "no \"%s\" in\n%s", words, picture);
    free(picture);
    fcp_plan_free(plan);
}

/* What parameters switch off leaves no code: images without strides and gaps cost what they did before there were
 * any. */
Test(prelude, defaults_cost_nothing) {
    static const struct {
        const char *call;
        uint32_t nodes;
    } calls[] = {{"natten2d(W = 32, kw = 7, kh = 7)", 29},
                 {"sta2d(W = 32, tw = 8, th = 4, kw = 3, kh = 3)", 38},
                 {"sta3d(W = 16, H = 8, tw = 4, th = 4, tt = 2, kw = 3, kh = 3, kt = 3)", 49}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fcpc_program *p = program_of(calls[i].call);
        cr_expect_leq(p->mask.count, calls[i].nodes, "%s: %u", calls[i].call, p->mask.count);
        fcpc_program_free(p);
    }
}

Test(prelude, refuses) {
    refuse("natten2d(W = 64, kw = 7, kh = 7)", 1000, FCP_E_MASK_EXACT,
           "1000 is not a multiple of 64 in a sequence of 1000");
    refuse("natten2d(W = 64, kw = 7, kh = 7)", 1024, FCP_OK, NULL);
    refuse("natten2d(W = 0, kw = 7, kh = 7)", 1024, FCP_E_MASK_DIV_ZERO, "division by zero");
    refuse("sta2d(W = 65, tw = 8, th = 8, kw = 3, kh = 3)", 1024, FCP_E_MASK_EXACT, "65 is not a multiple of 8");
    refuse("sta2d(W = 64, tw = 8, th = 8, kw = 3, kh = 3)", 640, FCP_E_MASK_EXACT, "10 is not a multiple of 8");
    refuse("sta3d(W = 8, H = 8, tw = 4, th = 4, tt = 4, kw = 3, kh = 3, kt = 3)", 384, FCP_E_MASK_EXACT,
           "6 is not a multiple of 4");
    refuse("sta3d(W = 8, H = 8, tw = 4, th = 4, tt = 4, kw = 3, kh = 3, kt = 3, partial = true)", 384, FCP_OK, NULL);
    refuse("sta3d(W = 8, H = 8, tw = 4, th = 4, tt = 4, kw = 3, kh = 3, kt = 3, text = 9)", 256, FCP_E_MASK_EXACT,
           "247 is not a multiple of 64");
    refuse("sta2d(W = 65, tw = 8, th = 8, kw = 3, kh = 3, partial = true)", 1040, FCP_OK, NULL);
    refuse("sta2d(W = 65, tw = 8, th = 8, kw = 3, kh = 3, partial = true)", 1041, FCP_E_MASK_EXACT,
           "1041 is not a multiple of 65");
    refuse("natten1d(kw = 7, dw = 0)", 1000, FCP_E_MASK_DIV_ZERO, "division by zero");
    refuse("natten1d(kw = 7, sw = 0)", 1000, FCP_E_MASK_DIV_ZERO, "division by zero");
    refuse("block_diffusion(b = 32)", 999, FCP_E_MASK_EXACT, "999 is not a multiple of 2");
    refuse("block_diffusion(b = 0)", 1000, FCP_E_MASK_DIV_ZERO, "division by zero");
    refuse("svg_temporal(P = 3, T = 0, w = 4)", 1000, FCP_E_MASK_DIV_ZERO, "division by zero");
    refuse("svg_temporal(P = 1000, T = 0, w = 4)", 1000, FCP_OK, NULL); /* all text: T is never reached */
}
