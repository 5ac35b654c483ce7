/* fused_plans.h: plans for tests of forward passes in one launch (runtime/kernels/fuse.h): drawn programs and examples,
 * small, and placed so that most of them compute rows at home. */
#ifndef FUSED_PLANS_H
#define FUSED_PLANS_H
#include "tests/oracle/random_program.h"
#include "tests/oracle/small_examples.h"
#include "tests/support/plan_of.h"

/* The plan of a drawn program that is small enough for fibers and has several ranks; NULL: it is not, or has no plan. */
static inline fcp_plan *fused_drawn(const random_program *p) {
    const char *defines[] = {"plan.margin=1", "plan.strategy=fcp(coalesce=2, buffers=8)", "plan.passes=forward"};
    const uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus * (p->head_dim / 16);
    fcp_plan *plan = NULL;
    char *said;
    if (p->dtype == FCP_FP32 || (p->head_dim != 16 && p->head_dim != 32) || cost > 64) return NULL;
    if (p->tokens * p->heads < 64 || p->nodes * p->gpus < 2) return NULL;
    const fcp_code code = plan_try("drawn.fcp", p->text, defines, 3, &plan, &said);
    free(said);
    return code ? NULL : plan;
}

/* An example, made small, on three ranks; or as it is, if it must have its strategy. */
static inline fcp_plan *fused_example(const small_example *e) {
    char path[120], lengths[80];
    const char *defines[16] = {"plan.margin=1", "model.heads=2", "model.kv_heads=1", "model.head_dim=16",
                               "model.dtype=bf16", "cluster.nodes=1", "cluster.gpus=3", "plan.block=128",
                               "plan.passes=forward", lengths, "plan.strategy=fcp(coalesce=1, buffers=8)"};
    fcp_plan *plan = NULL;
    char *said;
    snprintf(path, sizeof path, "examples/%s", e->file);
    snprintf(lengths, sizeof lengths, "batch.lengths=%s", e->lengths);
    for (size_t all = 11; !plan && all > 9; all--) {
        size_t count = all;
        for (size_t i = 0; i < 8 && e->defines[i] && count < 16; i++) defines[count++] = e->defines[i];
        fcp_code code = plan_try(path, NULL, defines, count, &plan, &said);
        cr_assert(!code || all > 10, "%s: %s", path, said);
        free(said);
    }
    return plan;
}
#endif
