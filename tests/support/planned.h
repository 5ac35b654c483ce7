/* planned.h: runs a program's text through the planner up to the slots, for tests that look at what each pass has
 * made. */
#ifndef PLANNED_H
#define PLANNED_H
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/lower/lower.h"
#include "compiler/passes/strategy_table.h"
#include "tests/support/scatter.h"

typedef struct planned {
    fcpc_diagnostics *d;
    fcpc_program *program;
    fcpc_batch batch;
    planning at;
    /* what is in it, for short */
    problem p;
    uint32_t *home;
    traffic t;
    reshuffle r;
    schedule s;
    slots slots;
} planned;

static inline fcpc_program *parse_text(const char *source, fcpc_diagnostics *d) {
    fcpc_program *program = NULL;
    fcp_code code = fcpc_parse_text("test.fcp", source, strlen(source), NULL, d, &program);
    if (code) {
        char *picture = fcpc_diagnostics_render(d, false);
        cr_assert_fail("%s", picture);
    }
    return program;
}

/* Runs a pass, as compile.c does. */
static inline void run_pass(planned *x, fcp_code (*pass)(planning *x)) {
    fcp_code code = pass(&x->at);
    char *picture = code ? fcpc_diagnostics_render(x->d, false) : NULL;
    cr_assert_eq(code, FCP_OK, "%s: %s", fcp_code_name(code), picture);
    arena_reset(&x->at.scratch);
}

/* The passes that follow the placement. */
static inline void plan_rest(planned *x) {
    run_pass(x, traffic_build);
    run_pass(x, reshuffle_build);
    run_pass(x, schedule_build);
    run_pass(x, slots_build);
    run_pass(x, rounds_build);
    x->t = *x->at.traffic;
    x->r = *x->at.reshuffle;
    x->s = *x->at.schedule;
    x->slots = *x->at.slots;
}

/* The passes up to the placement, by a strategy in place of the program's or NULL. */
static inline void plan_to_placement(planned *x, const char *source, const strategy *by) {
    memset(x, 0, sizeof *x);
    x->d = fcpc_diagnostics_new();
    x->program = parse_text(source, x->d);
    x->at = (planning){.program = x->program, .batch = &x->batch, .d = x->d, .block = program_block(x->program),
                       .coalesce = x->program->coalesce, .strategy = by};
    run_pass(x, bind_lengths);
    run_pass(x, problem_open);
    run_pass(x, strategy_cut);
    run_pass(x, problem_tiles);
    run_pass(x, strategy_divide);
    run_pass(x, strategy_place);
    x->p = *x->at.problem;
    x->home = (uint32_t *)x->at.placement->home;
}

static inline void plan_scatter(planned *x, const char *source, const scatter *s) {
    plan_to_placement(x, source, &s->strategy);
    plan_rest(x);
}

/* Homes are drawn at random from the seed, or the strategy's when the seed is 0. */
static inline void plan_passes(planned *x, const char *source, unsigned seed) {
    plan_to_placement(x, source, NULL);
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t b = 0; seed && b < x->p.block_count; b++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        x->home[b] = (uint32_t)(state >> 40) % x->p.ranks;
    }
    plan_rest(x);
}

static inline void planned_free(planned *x) {
    arena_free(&x->at.memory);
    arena_free(&x->at.work);
    arena_free(&x->at.scratch);
    cells_free(x->at.cells);
    fcpc_program_free(x->program);
    fcpc_diagnostics_free(x->d);
}

/* Programs that differ in everything the passes look at. */
static inline const char *sample_program(unsigned i, char *buffer, size_t size) {
    static const char *const masks[] = {"causal", "full", "window(w = 700)", "lambda(sink = 64, window = 512)",
                                        "shared_question(p = 20, answers = 4)"};
    static const char *const lengths[] = {"5000, 3000, 1200, 700 x 5, 130 x 20", "16384", "1 x 40, 6000, 129",
                                          "900 x 12, 257", "100:5000, 1:3000 x 5, 700, 400:50", "2000:77 x 9, 1:1",
                                          "1:700 x 40, 300:1000 x 5"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag", "planned", "contiguous(group = %u)",
                                          "zigzag(group = %u)"};
    char layout[40];
    snprintf(layout, sizeof layout, layouts[i % 6], i % 4 < 3 ? 1 + i % 4 : (1 + i % 3) * (1 + i % 4));
    snprintf(buffer, size,
             "model { heads = 4; kv_heads = 2; head_dim = 64 }\ncluster { nodes = %u; gpus = %u; fabric = %s }\n"
             "batch { lengths = [%s]%s }\n"
             "plan { mask = %s; block = %u; layout = %s; strategy = fcp(coalesce = %u, buffers = %u)\n"
             "passes = forward%s }\n",
             1 + i % 3, 1 + i % 4, i % 5 == 3 ? "rail" : "fat_tree", lengths[i % 7],
             i % 11 == 3 ? "; align = top_left" : "", masks[i % 5], 128 * (1 + i % 4), layout, 1 + i % 7, 1 + i % 4,
             i % 6 == 5 ? "" : ", backward");
    return buffer;
}
enum { SAMPLES = 60 };
#endif
