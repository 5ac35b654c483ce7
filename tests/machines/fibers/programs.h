/* programs.h: compiles random programs and all examples, runs them on fibers, and compares the results with the
 * definition of attention. FIBER_RUNS says how many random programs are drawn.
 */
#ifndef PROGRAMS_H
#define PROGRAMS_H
#include <stdlib.h>

#include "compiler/fcpc.h"
#include "tests/oracle/random_program.h"
#include "tests/oracle/small_examples.h"
#include "tests/machines/fibers/fibers.h"
#include "tests/support/judge_plan.h"
#include "tests/support/amount.h"

/* Compiles a drawn program, or the file at `path` if p is NULL. NULL: it has no plan; *out_picture has the
 * diagnostics in any case. */
static inline fcp_plan *make_plan(const char *path, const random_program *p, const fcpc_options *options,
                                  char **out_picture) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_code code = p ? fcpc_parse_text("drawn.fcp", p->text, p->size, options, d, &program)
                      : fcpc_parse_file(path, options, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    *out_picture = fcpc_diagnostics_render(d, false);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code ? NULL : plan;
}

/* How many programs to draw, where a test wants `all` of them when there is time. */
static inline unsigned draws_of(unsigned all) {
    const char *wanted = getenv("FIBER_RUNS");
    return wanted && *wanted ? (unsigned)strtoul(wanted, NULL, 10) : amount(all / 20, all);
}

/* Whether there are kernels for a drawn program, and it is small enough to run: a piece of a sequence costs as much as
 * 128 tokens, for each head and rank. */
static inline bool is_small(const random_program *p) {
    uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus * (p->head_dim / 16) * (p->strategy ? 2 : 1);
    return cost <= 64 && !p->values_in_keys &&
           fibers_kernels_find(p->head_dim, p->value_dim, (fcp_dtype)p->dtype, false);
}

/* Of `draws` programs those that are small enough, on each of `count` backends in turn; with `define`, as that
 * changes them. */
static inline void random_programs(unsigned draws, const fcp_backend *const *backends, unsigned count,
                                   const char **define) {
    fcpc_options options = {.size = sizeof(fcpc_options), .defines = define, .define_count = define ? 2 : 0};
    unsigned run = 0, refused = 0;
    random_program *p = calloc(1, sizeof *p);
    for (unsigned seed = 1; seed <= draws; seed++) {
        dice d = dice_of(seed, 77);
        draw_program(p, &d, 12000);
        if (!is_small(p)) continue;
        char *picture;
        fcp_plan *plan = make_plan(NULL, p, &options, &picture);
        const bool has = plan && fibers_kernels_of(plan);
        if (has) judge_plan(plan, backends[seed % count], seed, false, p->text);
        else refused++;
        run += has;
        fcp_plan_free(plan);
        free(picture);
    }
    fprintf(stderr, "fibers: %u programs drawn, %u run, %u without a plan or kernels\n", draws, run, refused);
    cr_assert(run >= draws / 30, "too few programs were run for this test to mean anything");
    free(p);
}

/* Of six examples one on the skeletons for mma.sync, and of 24 another on those for sm_90a, which take longer. Or
 * all on both. */
static inline void run_examples(bool sm90) {
    for (size_t i = 0; i < sizeof small_examples / sizeof *small_examples; i++) {
        if (amount(sm90 ? i % 24 != 0 : i % 6 != 1, false)) continue;
        char path[120], lengths[80], *picture;
        const char *defines[17] = {lengths, "model.heads=2", i % 3 ? "model.kv_heads=1" : "model.kv_heads=2",
                                   sm90           ? "model.head_dim=64"
                                   : i % 4 == 1   ? "model.head_dim=32"
                                                  : "model.head_dim=16",
                                   i % 2 ? "model.dtype=fp16" : "model.dtype=bf16", "cluster.nodes=1",
                                   "cluster.gpus=2", "plan.block=128",
                                   "plan.passes=forward,backward"};
        size_t count = 9;
        for (size_t j = 0; j < 8 && small_examples[i].defines[j]; j++) defines[count++] = small_examples[i].defines[j];
        snprintf(path, sizeof path, "examples/%s", small_examples[i].file);
        snprintf(lengths, sizeof lengths, "batch.lengths=%s", small_examples[i].lengths);
        fcpc_options options = {.size = sizeof(fcpc_options), .defines = defines, .define_count = count};
        fcp_plan *plan = make_plan(path, NULL, &options, &picture);
        cr_assert(plan, "%s: %s", path, picture);
        const fcp_backend *sm80 = i % 2 ? &fibers_backend : &fibers_ordered_backend;
        judge_plan(plan, sm90 ? &fibers_sm90_backend : sm80, i, i % 4 == 0, path);
        fcp_plan_free(plan);
        free(picture);
    }
}
#endif
