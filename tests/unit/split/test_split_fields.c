/* test_split_fields.c: tests how batches are split whose masks read fields: trees of rollouts. What a tree costs is
 * compared with its cells, counted pair by pair; and micro-batches of trees that are as long but have less to compute
 * are even. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/place/groups/groups.h"
#include "compiler/sema/program.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"

#define TREES "mask tree = causal and q <= last[k]\nmask near = tree and at[q] - at[k] < 200\n"
#define FIELDS "field last = given; field at = given"

enum { COUNT = 12, LONGEST = 900, ALL = COUNT * LONGEST };

/* A batch of trees: token i of a tree has position at[i], and its subtree ends with last[i]. */
typedef struct trees {
    uint64_t lengths[COUNT], tokens;
    int64_t last[ALL], at[ALL];
    fcpc_field fields[2];
    fcpc_batch batch;
} trees;

/* Trees of chains that start behind a token of the stem: the more of them, the fewer pairs. */
static void draw_trees(trees *t, const uint64_t *lengths, const uint32_t *chains, uint64_t *state) {
    *t = (trees){.tokens = 0};
    for (int s = 0; s < COUNT; s++) {
        const uint64_t n = t->lengths[s] = lengths[s], stem = chains[s] > 1 ? n / 8 : n;
        int64_t *last = t->last + t->tokens, *at = t->at + t->tokens;
        for (uint64_t i = 0; i < stem; i++) last[i] = (int64_t)n - 1, at[i] = (int64_t)i;
        for (uint64_t i = stem, c = 0; i < n; c++) {
            const uint64_t end = c + 1 >= chains[s] || i + (n - stem) / chains[s] > n ? n : i + (n - stem) / chains[s];
            const uint64_t behind = splitmix(state) % (stem + 1);
            for (uint64_t k = i; k < end; k++) last[k] = (int64_t)end - 1, at[k] = (int64_t)(behind + k - i);
            i = end > i ? end : n;
        }
        t->tokens += n;
    }
    t->fields[0] = (fcpc_field){"last", t->last, t->tokens, NULL};
    t->fields[1] = (fcpc_field){"at", t->at, t->tokens, NULL};
    t->batch = (fcpc_batch){.size = sizeof t->batch,
                            .lengths = t->lengths,
                            .count = COUNT,
                            .fields = t->fields,
                            .field_count = 2};
}

/* The cells of one tree, by the definition of its mask. window 0: there is none. */
static groups_group count_pairs(const trees *t, int s, int64_t window) {
    const int64_t n = (int64_t)t->lengths[s], *last = t->last, *at = t->at;
    for (int i = 0; i < s; i++) last += t->lengths[i], at += t->lengths[i];
    groups_group g = {.tokens = (uint64_t)n, .queries = (uint64_t)n, .keys = (uint64_t)n};
    for (int64_t row = 0; row < n; row += 128)
        for (int64_t column = 0; column < n; column += 128) {
            const int64_t q_end = row + 128 < n ? row + 128 : n, k_end = column + 128 < n ? column + 128 : n;
            int64_t allowed = 0;
            for (int64_t q = row; q < q_end; q++)
                for (int64_t k = column; k < k_end; k++)
                    allowed += k <= q && q <= last[k] && (!window || at[q] - at[k] < window);
            g.cells++;
            g.full += allowed == (q_end - row) * (k_end - column);
            g.partial += allowed && allowed < (q_end - row) * (k_end - column);
        }
    return g;
}

static fcp_code split_trees(const fcpc_program *program, const fcpc_batch *batch, fcpc_split_options how, uint32_t *of,
                            double *seconds, uint32_t *made, char **said) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    how.size = sizeof how;
    fcp_code code = fcpc_split_batch(program, batch, &how, NULL, d, of, seconds, made);
    *said = fcpc_diagnostics_render(d, false);
    fcpc_diagnostics_free(d);
    return code;
}

/* A micro-batch for each tree: its seconds are those of its cells under the masks of all layers. */
Test(split_fields, a_tree_costs_its_own_cells) {
    static const struct sample {
        const char *plan;
        int full, near; /* layers */
    } samples[] = {{"mask = tree; strategy = groups(tokens = 4K)", 1, 0},
                   {"mask = near; strategy = fcp", 0, 1},
                   {"layers = [tree x 2, near x 6]; strategy = fcp", 2, 6}};
    uint64_t state = 5;
    for (int i = 0; i < 9; i++) {
        const struct sample *x = &samples[i % 3];
        static trees t;
        uint64_t lengths[COUNT];
        uint32_t chains[COUNT], of[COUNT], made;
        double seconds[COUNT];
        char text[512], *said;
        for (int s = 0; s < COUNT; s++) {
            lengths[s] = s % 3 ? 512 : splitmix(&state) % LONGEST; /* many are as long as others */
            chains[s] = 1 + (uint32_t)(splitmix(&state) % 9);
        }
        draw_trees(&t, lengths, chains, &state);
        snprintf(text, sizeof text,
                 "model { heads = 8; kv_heads = 2 }\ncluster { gpus = 4; gpu = h200 }\nbatch { " FIELDS " }\n" TREES
                 "plan { %s }\n",
                 x->plan);
        fcpc_program *program = program_named("t.fcp", text);
        const fcp_code code =
            split_trees(program, &t.batch, (fcpc_split_options){.least = COUNT}, of, seconds, &made, &said);
        cr_assert_eq(code, FCP_OK, "%s", said);
        free(said);
        cr_assert_eq(made, COUNT);
        groups_model model;
        fcp_error err;
        cr_assert_eq(groups_model_of(program, &model, &err), FCP_OK);
        for (int s = 0; s < COUNT; s++) {
            const groups_group full = count_pairs(&t, s, 0), near = count_pairs(&t, s, 200);
            const double expected = 1e-12 / 4 *
                                    ((double)x->full * (double)groups_time(&model, &full, 1) +
                                     (double)x->near * (double)groups_time(&model, &near, 1));
            cr_assert(fabs(seconds[of[s]] - expected) <= 1e-9 * expected, "tree %d of draw %d: %g s, expected %g", s, i,
                      seconds[of[s]], expected);
        }
        fcpc_program_free(program);
    }
}

/* Half of the trees are one chain, half are sixteen: equal lengths, but about four times the pairs. By lengths alone
 * micro-batches could have all the chains. */
Test(split_fields, micro_batches_are_even_and_hold_the_cap) {
    static trees t;
    uint64_t lengths[COUNT], state = 7;
    uint32_t chains[COUNT], of[COUNT], made;
    double seconds[COUNT];
    char *said;
    for (int s = 0; s < COUNT; s++) lengths[s] = LONGEST, chains[s] = s < COUNT / 2 ? 1 : 16;
    draw_trees(&t, lengths, chains, &state);
    fcpc_program *program =
        program_named("t.fcp", "model { heads = 8; kv_heads = 2 }\ncluster { gpus = 2; gpu = h200 }\nbatch { " FIELDS
                               " }\n" TREES "plan { mask = tree; strategy = fcp }\n");
    cr_assert_eq(split_trees(program, &t.batch, (fcpc_split_options){.tokens = 2 * LONGEST}, of, seconds, &made, &said),
                 FCP_OK, "%s", said);
    free(said);
    cr_assert_eq(made, 3);
    uint32_t count[3] = {0}, heavy[3] = {0};
    for (int s = 0; s < COUNT; s++) count[of[s]]++, heavy[of[s]] += s < COUNT / 2;
    for (uint32_t m = 0; m < made; m++) {
        cr_assert_eq(count[m], 4);
        cr_assert_eq(heavy[m], 2);
        cr_assert_lt(seconds[0], 1.05 * seconds[m]);
    }
    const fcpc_split_options tight = {.tokens = LONGEST / 2 - 1};
    cr_assert_eq(split_trees(program, &t.batch, tight, of, seconds, &made, &said), FCP_E_VALUE);
    cr_assert(strstr(said, "sequence 0 has 900 tokens: more than 2 ranks hold at 449 tokens each"), "%s", said);
    free(said);
    fcpc_program_free(program);
}

/* Fields that are missing, or have too few or wrong values, are refused as by a plan, with the same words. */
Test(split_fields, wrong_fields_are_refused_as_in_a_plan) {
    static trees t;
    uint64_t lengths[COUNT], state = 9;
    uint32_t chains[COUNT], of[COUNT], made;
    for (int s = 0; s < COUNT; s++) lengths[s] = 100 + (uint64_t)s, chains[s] = 2;
    draw_trees(&t, lengths, chains, &state);
    fcpc_program *program = program_named("t.fcp", "cluster { gpus = 2 }\nbatch { " FIELDS " }\n" TREES
                                                   "plan { layers = [tree, near]; strategy = fcp }\n");
    for (int i = 0; i < 5; i++) {
        fcpc_field fields[3] = {t.fields[0], t.fields[1], {"other", t.at, t.tokens, NULL}};
        fcpc_batch batch = t.batch;
        batch.fields = fields;
        char *said, *planned;
        fcp_plan *plans[2] = {NULL};
        if (i == 0) batch.field_count = 1; /* `at` is missing: only the second mask reads it */
        else if (i == 1) batch.field_count = 0, batch.fields = NULL;
        else if (i == 2) fields[0].count--;
        else if (i == 3) batch.field_count = 3; /* there is no such field */
        else fields[1].name = "last";           /* given twice */
        cr_assert_eq(split_trees(program, &batch, (fcpc_split_options){.tokens = 0}, of, NULL, &made, &said),
                     FCP_E_FIELD, "case %d: %s", i, said);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        cr_assert_eq(fcpc_plan_layers(program, &batch, NULL, d, NULL, plans), FCP_E_FIELD);
        planned = fcpc_diagnostics_render(d, false);
        fcpc_diagnostics_free(d);
        cr_assert_str_eq(said, planned, "case %d", i);
        free(said), free(planned);
    }
    fcpc_program_free(program);
}

/* A mask that fails at a pair of one tree alone, whose length others have too. */
Test(split_fields, a_fault_is_found_in_whichever_sequence) {
    int64_t at[30];
    uint32_t of[3], made;
    char *said;
    const uint64_t lengths[3] = {10, 10, 10};
    for (int i = 0; i < 30; i++) at[i] = i == 15 ? 0 : 1;
    const fcpc_field field = {"at", at, 30, NULL};
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = 3, .fields = &field, .field_count = 1};
    fcpc_program *program =
        program_named("t.fcp", "cluster { gpus = 2 }\nbatch { field at = given }\n"
                               "mask m = causal and q / at[k] >= 0\nplan { mask = m; strategy = fcp }\n");
    cr_assert_eq(split_trees(program, &batch, (fcpc_split_options){.tokens = 0}, of, NULL, &made, &said),
                 FCP_E_MASK_DIV_ZERO, "%s", said);
    cr_assert(strstr(said, "division by zero for q = 5, k = 5"), "%s", said);
    free(said);
    fcpc_program_free(program);
}

/* --- forests ------------------------------------------------------------------------------------------------------ */

enum { ROLLOUTS = 24, PROMPT = 60, ANSWER = 100 };

/* Three prompts with eight answers each, of unlike lengths. */
static fcpc_forest *make_forest(uint64_t *longest) {
    static uint64_t lengths[ROLLOUTS];
    static int64_t tokens[ROLLOUTS * (PROMPT + ANSWER)];
    fcpc_forest *forest;
    uint64_t at = 0;
    *longest = 0;
    for (int i = 0; i < ROLLOUTS; i++) {
        lengths[i] = PROMPT + 1 + (uint64_t)(i * 37 % ANSWER);
        for (uint64_t t = 0; t < lengths[i]; t++) tokens[at++] = t < PROMPT ? i % 3 : 100 + i;
        if (lengths[i] > *longest) *longest = lengths[i];
    }
    const fcpc_rollouts r = {.size = sizeof r, .count = ROLLOUTS, .lengths = lengths, .tokens = tokens};
    cr_assert_eq(fcpc_forest_make(&r, &forest, NULL), FCP_OK);
    return forest;
}

/* Each rollout is in one micro-batch, which can be planned with the fields of its own trees and holds the cap. Whole
 * trees stay whole where they fit. */
Test(split_forest, each_micro_batch_can_be_planned) {
    fcpc_program *program =
        program_named("t.fcp", "model { heads = 8; kv_heads = 2 }\ncluster { gpus = 2; gpu = h200 }\nbatch { " FIELDS
                               " }\n" TREES "plan { layers = [tree, near x 3]; block = 128; strategy = fcp }\n");
    uint64_t longest;
    fcpc_forest *forest = make_forest(&longest), *cut, *part;
    fcpc_forest_view v, w;
    fcpc_forest_look(forest, &v);
    cr_assert_eq(v.trees, 3);
    const uint32_t caps[] = {(uint32_t)(longest + 1) / 2, 200, 300, 400, 0};
    uint64_t before = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint32_t of[ROLLOUTS], made, rollouts = 0;
        double seconds[ROLLOUTS];
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        const fcpc_split_options how = {.size = sizeof how, .tokens = caps[i]};
        const fcp_code code = fcpc_split_forest(program, forest, &how, NULL, d, &cut, of, seconds, &made);
        char *said = fcpc_diagnostics_render(d, false);
        cr_assert_eq(code, FCP_OK, "%s", said);
        free(said);
        fcpc_diagnostics_free(d);
        fcpc_forest_look(cut, &w);
        cr_assert_leq(w.tokens, before, "a larger cap repeats no more");
        before = w.tokens;
        const uint32_t all = w.trees;
        for (uint32_t m = 0; m < made; m++) {
            uint32_t which[ROLLOUTS], count = 0;
            fcp_plan *plans[2];
            cr_assert_gt(seconds[m], 0);
            cr_assert_leq(seconds[m], seconds[0]);
            for (uint32_t t = 0; t < all; t++)
                if (of[t] == m) which[count++] = t;
            cr_assert_eq(fcpc_forest_pick(cut, which, count, &part, NULL), FCP_OK);
            fcpc_forest_look(part, &w);
            if (caps[i]) cr_assert_leq(w.tokens, 2 * (uint64_t)caps[i]);
            rollouts += w.rollouts;
            const fcpc_field fields[] = {{"at", w.position, w.tokens, NULL}, {"last", w.last, w.tokens, NULL}};
            const fcpc_batch batch = {.size = sizeof batch,
                                      .lengths = w.lengths,
                                      .count = w.trees,
                                      .fields = fields,
                                      .field_count = 2};
            cr_assert_eq(fcpc_plan_layers(program, &batch, NULL, NULL, NULL, plans), FCP_OK);
            fcp_plan_free(plans[0]), fcp_plan_free(plans[1]);
            fcpc_forest_free(part);
        }
        cr_assert_eq(rollouts, ROLLOUTS);
        fcpc_forest_free(cut);
    }
    cr_assert_eq(before, v.tokens, "nothing is cut without need");
    fcpc_forest_free(forest);
    fcpc_program_free(program);
}

Test(split_forest, what_is_wrong_is_refused) {
    fcpc_program *program =
        program_named("t.fcp", "cluster { gpus = 2 }\nbatch { " FIELDS "; field more = given }\n" TREES
                               "mask other = tree and more[k] == 0\n"
                               "plan { mask = other; strategy = fcp }\n");
    uint64_t longest;
    fcpc_forest *forest = make_forest(&longest), *cut = NULL;
    uint32_t of[ROLLOUTS], made;
    const struct wrong {
        fcpc_split_options how;
        fcp_code code;
        const char *says;
    } cases[] = {{{.size = sizeof(fcpc_split_options), .tokens = 1u << 24}, FCP_E_ARGUMENT, "2^24"},
                 {{.size = 1}, FCP_E_ARGUMENT, "fcpc_split_options"},
                 {{.size = sizeof(fcpc_split_options), .tokens = (uint32_t)(longest - 1) / 2}, FCP_E_VALUE, "rollout "},
                 {{.size = sizeof(fcpc_split_options)}, FCP_E_FIELD, "field 'more' has no values"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        cr_assert_eq(fcpc_split_forest(program, forest, &cases[i].how, NULL, d, &cut, of, NULL, &made), cases[i].code);
        char *said = fcpc_diagnostics_render(d, false);
        cr_assert(strstr(said, cases[i].says), "case %zu: %s", i, said);
        free(said);
        fcpc_diagnostics_free(d);
        cr_assert_eq(fcpc_split_forest(program, forest, &cases[i].how, NULL, NULL, &cut, of, NULL, &made),
                     cases[i].code);
        cr_assert_null(cut);
    }
    fcpc_forest_free(forest);
    const fcpc_rollouts none = {.size = sizeof none};
    cr_assert_eq(fcpc_forest_make(&none, &forest, NULL), FCP_OK);
    cr_assert_eq(fcpc_split_forest(program, forest, NULL, NULL, NULL, &cut, of, NULL, &made), FCP_OK);
    cr_assert_eq(made, 0, "no micro-batch of no tree");
    fcpc_forest_free(forest), fcpc_forest_free(cut);
    fcpc_program_free(program);
}
