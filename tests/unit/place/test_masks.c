/* test_masks.c: tests homes that serve several masks. In small batches they are compared with all possible homes; whole
 * programs with `layers` are planned, too. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compiler/place/place.h"
#include "tests/support/planned.h"

enum { RANKS = 3, BLOCKS = 7, MASKS = 2, WAYS = 2187, TOKENS = 128 }; /* 3^7 ways */

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

/* What homes amount to: the most work of a rank under each mask, and the most tokens. */
typedef struct outcome {
    uint64_t most[MASKS], tokens;
} outcome;

static outcome outcome_of(uint64_t work[MASKS][BLOCKS], const uint32_t *home) {
    outcome o = {.tokens = 0};
    for (uint32_t r = 0; r < RANKS; r++) {
        uint64_t load[MASKS] = {0}, held = 0;
        for (uint32_t b = 0; b < BLOCKS; b++)
            if (home[b] == r) {
                held += TOKENS;
                for (int m = 0; m < MASKS; m++) load[m] += work[m][b];
            }
        for (int m = 0; m < MASKS; m++) o.most[m] = load[m] > o.most[m] ? load[m] : o.most[m];
        o.tokens = held > o.tokens ? held : o.tokens;
    }
    return o;
}

static void home_of(uint32_t way, uint32_t *home) {
    for (uint32_t b = 0; b < BLOCKS; b++, way /= RANKS) home[b] = way % RANKS;
}

/* No homes become worse. Where some homes keep all caps, these are kept in most batches, and the second mask's is never
 * exceeded by more than half of it. */
Test(masks, small_batches_against_all_homes) {
    uint64_t state = 3, work[MASKS][BLOCKS];
    uint32_t tokens[BLOCKS], possible = 0, kept = 0, improved = 0;
    for (int i = 0; i < 400; i++) {
        uint64_t sum[MASKS] = {0}, cap[MASKS];
        uint32_t home[BLOCKS], other[BLOCKS];
        for (uint32_t b = 0; b < BLOCKS; b++) {
            tokens[b] = TOKENS;
            work[0][b] = 1 + draw(&state, 1000);
            work[1][b] = 1 + draw(&state, 300);
            for (int m = 0; m < MASKS; m++) sum[m] += work[m][b];
        }
        const place_input in = {.ranks = RANKS, .gpus = RANKS, .blocks = BLOCKS, .block = TOKENS, .tokens = tokens};
        home_of((uint32_t)draw(&state, WAYS), home);
        const outcome before = outcome_of(work, home);
        for (int m = 0; m < MASKS; m++) cap[m] = sum[m] * (m ? 120 : 130) / 100 / RANKS;
        if (cap[0] < before.most[0]) cap[0] = before.most[0];
        bool can = false;
        for (uint32_t way = 0; way < WAYS && !can; way++) {
            home_of(way, other);
            const outcome o = outcome_of(work, other);
            can = o.most[0] <= cap[0] && o.most[1] <= cap[1] && o.tokens <= place_token_cap(&in);
        }
        arena scratch = {0};
        const uint64_t *const of[] = {work[0], work[1]};
        cr_assert_eq(place_for_masks(&in, &(place_masks){MASKS, of, cap}, &scratch, home), FCP_OK);
        arena_free(&scratch);
        const outcome after = outcome_of(work, home);
        cr_expect_leq(after.most[0], cap[0], "batch %d", i);
        cr_expect(after.tokens <= place_token_cap(&in) || after.tokens <= before.tokens, "batch %d", i);
        cr_expect(after.most[1] <= before.most[1] || after.most[1] <= cap[1], "batch %d: %lu, before %lu", i,
                  after.most[1], before.most[1]);
        improved += after.most[1] < before.most[1];
        if (!can || before.tokens > place_token_cap(&in)) continue;
        possible++;
        kept += after.most[1] <= cap[1];
        cr_expect_leq(2 * after.most[1], 3 * cap[1], "batch %d: %lu of %lu", i, after.most[1], cap[1]);
    }
    cr_expect_gt(possible, 50, "%u", possible);
    cr_expect_geq(10 * kept, 9 * possible, "%u of %u", kept, possible);
    cr_expect_gt(improved, 100, "%u", improved);
}

/* The busiest home's work under each mask of a program, over the mean. */
static void plan_layers(const char *layers, double out[2]) {
    char source[400];
    fcp_plan *plans[2];
    snprintf(source, sizeof source,
             "cluster { nodes = 2; gpus = 8; memory = 1 TB }\n"
             "batch { lengths = [100000, 60000, 4000 x 30, 500 x 60] }\n"
             "plan { %s; block = 1K; strategy = fcp; passes = forward }\n", layers);
    fcpc_program *program = parse_text(source, NULL);
    const fcpc_batch own = {.size = sizeof own};
    cr_assert_eq(fcpc_plan_layers(program, &own, NULL, NULL, NULL, plans), FCP_OK);
    for (int i = 0; i < 2; i++) {
        const uint32_t ranks = plans[i]->problem->ranks;
        uint64_t load[16] = {0}, most = 0;
        for (uint64_t t = 0; t < plans[i]->tiles_count; t++)
            load[plans[i]->blocks[plans[i]->tiles[t].q_block].home] += plans[i]->tiles[t].pairs;
        for (uint32_t r = 0; r < ranks; r++) most = load[r] > most ? load[r] : most;
        out[i] = (double)most * ranks / (double)plans[i]->summary->pairs;
        fcp_plan_free(plans[i]);
    }
    fcpc_program_free(program);
}

/* Layers with a window count more than one that sees everything: homes are balanced under both masks. */
Test(masks, layers_share_balanced_homes) {
    double each[2], again[2];
    plan_layers("layers = [causal, window(w = 4096) x 3]", each);
    cr_expect_leq(each[0], 1.11, "%f", each[0]);
    cr_expect_leq(each[1], 1.25, "%f", each[1]);
    plan_layers("layers = [window(w = 4096) x 3, causal]", again);
    cr_expect_eq(each[0], again[1]);
    cr_expect_eq(each[1], again[0]);
}

/* Plans two layers; their homes must be equal. */
static void check_homes(const char *source) {
    uint8_t homes[2][FCP_DIGEST_BYTES];
    fcp_plan *plans[2];
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text(source, NULL);
    const fcpc_batch own = {.size = sizeof own};
    const fcp_code code = fcpc_plan_layers(program, &own, NULL, d, NULL, plans);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert_eq(code, FCP_OK, "%s\n%s", source, said);
    for (int layer = 0; layer < 2; layer++) {
        cr_assert_eq(fcp_plan_homes(plans[layer], homes[layer], NULL), FCP_OK);
        fcp_plan_free(plans[layer]);
    }
    cr_expect_arr_eq(homes[0], homes[1], FCP_DIGEST_BYTES, "%s", source);
    free(said);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* Homes that follow from a mask are those of all layers: tokens = equal chooses them by work, whoever chose them
 * before, and base = fcp whatever the layout. */
Test(masks, homes_of_one_mask_are_those_of_all_layers) {
    static const char *const settings[] = {
        "strategy = zigzag; layout = planned; tokens = equal",
        "strategy = ring; layout = contiguous; tokens = equal",
        "strategy = cad(base = fcp); layout = contiguous",
        "strategy = cad(base = ring); layout = zigzag; tokens = equal",
        "strategy = cad; layout = contiguous; tokens = equal"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char source[400];
        snprintf(source, sizeof source,
                 "cluster { nodes = 3; gpus = 4; gpu = cpu }\nbatch { lengths = [170, 110, 110, 80 x 4, 21] }\n"
                 "plan { layers = [full, causal x 3]; block = 128; %s }\n", settings[i]);
        check_homes(source);
    }
}

/* The same on a network of rails, where ranks are numbered for what travels under one mask; and where under one of the
 * masks few rows of some blocks are read by many, so that these blocks are divided. */
Test(masks, homes_of_all_layers_on_rails) {
    static const char *const strategies[] = {"fcp", "ring", "zigzag", "cad", "cad(base = ring)", "cad(base = zigzag)",
        "cad(base = zigzag, servers = 3)", "cad(base = fcp)", "dcp", "groups", "ulysses", "ulysses(inside = 2) + ring",
        "ulysses(inside = 2) + fcp", "ulysses(inside = 2) + cad(base = ring)", "ulysses(inside = 4) + dcp"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        for (size_t layout = 0; layout < sizeof layouts / sizeof *layouts; layout++) {
            char source[600];
            snprintf(source, sizeof source,
                     "model { heads = 8; kv_heads = 8; head_dim = 16 }\n"
                     "cluster { nodes = 2; gpus = 4; gpu = cpu; inter = 1 MB/s; fabric = rail }\n"
                     "batch { lengths = [5428, 2605, 220 x 3] }\nmask few = 0 <= q - k and (q - k < 154 or k < 30)\n"
                     "plan { layers = [few, causal x 3]; block = 512; strategy = %s; layout = %s }\n", strategies[i],
                     layouts[layout]);
            check_homes(source);
        }
}
