/* fused_plans.h: small plans for tests of fused passes (runtime/worklists/fuse.h), from drawn programs and from
 * examples. The caller's tensors lie as the program's layout says. With the layout `planned` they lie at their homes,
 * so that no result has to be sent back before the pass has ended. */
#ifndef FUSED_PLANS_H
#define FUSED_PLANS_H
#include "runtime/worklists/fuse.h"
#include "tests/oracle/random_program.h"
#include "tests/oracle/small_examples.h"
#include "tests/support/plan_of.h"

/* How work is placed: rows at home and a buffer for each stage, so that a rank's pass is one launch; as the program
 * says; rows moved, with few buffers; rows moved as DCP does. Where an example cannot have a way it has its own. */
enum { FUSED_WAYS = 4 };
static const char *const fused_ways[FUSED_WAYS] = {"plan.strategy=fcp(coalesce=2, buffers=8)", NULL,
                                                   "plan.strategy=cad(buffers=2)", "plan.strategy=dcp(buffers=3)"};

/* The plan of a drawn program that is small enough for fibers and has several ranks; NULL: it is not, or has no
 * plan. */
static inline fcp_plan *fused_drawn(const random_program *p, unsigned way, bool planned) {
    const char *defines[4] = {"plan.margin=1", "plan.passes=forward,backward"};
    size_t count = 2;
    const uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus * (p->head_dim / 16);
    fcp_plan *plan = NULL;
    char *said;
    if (p->dtype == FCP_FP32 || (p->head_dim != 16 && p->head_dim != 32) || cost > 64) return NULL;
    if (p->tokens * p->heads < 64 || p->nodes * p->gpus < 2) return NULL;
    if (fused_ways[way]) defines[count++] = fused_ways[way];
    if (planned) defines[count++] = "plan.layout=planned";
    const fcp_code code = plan_try("drawn.fcp", p->text, defines, count, &plan, &said);
    free(said);
    return code ? NULL : plan;
}

/* An example as it is made small elsewhere, on three ranks, with `strategy` or (NULL) its own. */
static inline fcp_code fused_try(const small_example *e, const char *strategy, bool planned, fcp_plan **out,
                                 char **said) {
    char path[120], lengths[80];
    const char *defines[20] = {"plan.margin=1", "model.heads=2", "model.kv_heads=1", "model.head_dim=16",
                               "model.dtype=bf16", "cluster.nodes=1", "cluster.gpus=3", "plan.block=128",
                               "plan.passes=forward,backward"};
    size_t count = 9;
    snprintf(path, sizeof path, "examples/%s", e->file);
    snprintf(lengths, sizeof lengths, "batch.lengths=%s", e->lengths ? e->lengths : "");
    if (e->lengths) defines[count++] = lengths;
    if (strategy) defines[count++] = strategy;
    for (size_t i = 0; i < 8 && e->defines[i]; i++) defines[count++] = e->defines[i];
    if (planned) defines[count++] = "plan.layout=planned";
    return plan_try(path, NULL, defines, count, out, said);
}

/* How many examples there are, and the i-th of them: on three ranks, or as it is if it must have its strategy. */
enum {
    FUSED_SMALL = sizeof small_examples / sizeof *small_examples,
    FUSED_EXAMPLES = FUSED_SMALL + sizeof other_examples / sizeof *other_examples
};
static inline const small_example *fused_example_of(size_t i) {
    return i < FUSED_SMALL ? &small_examples[i] : &other_examples[i - FUSED_SMALL];
}
static inline fcp_plan *fused_example(size_t i, unsigned way, bool planned) {
    const small_example *e = fused_example_of(i);
    fcp_plan *plan = NULL;
    char *said;
    fcp_code code = fused_try(e, fused_ways[way], planned, &plan, &said);
    if (code && fused_ways[way]) {
        free(said);
        code = fused_try(e, NULL, planned, &plan, &said);
    }
    cr_assert(!code, "%s: %s", e->file, said);
    free(said);
    return plan;
}

/* How many ATTENDs a pass of all ranks has, and how many launches they are. */
typedef struct fused_counts {
    uint32_t attends, launches;
} fused_counts;
static inline fused_counts fused_count(const fcp_plan *plan, fcp_pass pass) {
    fused_counts all = {0};
    for (uint32_t r = 0; (plan->problem->passes >> pass & 1) && r < plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, pass, r, FCP_COMPUTE);
        fcp_fusion_run *runs;
        uint32_t count;
        fcp_error err;
        cr_assert_eq(fcp_fusion_runs(plan, pass, r, &runs, &count, &err), FCP_OK, "%s", err.message);
        for (uint32_t i = 0; i < s->count; i++) all.attends += plan->instrs[s->first + i].op == FCP_OP_ATTEND;
        all.launches += count;
        free(runs);
    }
    return all;
}
#endif
