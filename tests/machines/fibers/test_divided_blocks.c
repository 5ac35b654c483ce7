/* test_divided_blocks.c: tests kernels on plans whose blocks were divided. All rows see some keys in the middle of a
 * block. These keys become a block of their own. The keys before and after them form another block, of two pieces. */
#include "tests/machines/fibers/fibers.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"

static void judge(const char *model, const fcp_backend *backend) {
    char text[400];
    snprintf(text, sizeof text, "model { heads = 1; kv_heads = 1; %s }\ncluster { nodes = 2; gpus = 3 }\n"
             "batch { lengths = [3300, 100] }\nmask m = abs(q - k) < 60 or (720 <= k and k < 740)\n"
             "plan { mask = m; block = 512; strategy = dcp; passes = forward, backward }\n", model);
    fcp_plan *plan = plan_named("divided.fcp", text);
    uint32_t pieces = 0, small = 0;
    for (size_t b = 0; b < plan->blocks_count; b++) {
        pieces += plan->blocks[b].pieces == 2 && plan->blocks[b].tokens == 384;
        small += plan->blocks[b].pieces == 1 && plan->blocks[b].tokens == 128;
    }
    cr_assert(pieces == 1 && small == 1, "no block is divided");
    judge_plan(plan, backend, 3, false, model);
    fcp_plan_free(plan);
}

Test(divided_blocks, kernels) { judge("head_dim = 16; dtype = bf16", &fibers_backend); }
Test(divided_blocks, kernels_sm90) { judge("head_dim = 64; dtype = bf16", &fibers_sm90_backend); }
