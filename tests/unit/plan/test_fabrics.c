/* test_fabrics.c: tests which transfers over one fabric wait for transfers over the other one. All pairs of transfers
 * over two fabrics are looked at. The later one must wait exactly if both touch one slot and one of them writes it. If
 * it did not wait, it might come first. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/plan/enum_names.h"
#include "runtime/plan/fabrics.h"
#include "runtime/plan/instructions.h"
#include "tests/support/plan_of.h"

/* May two transfers over different fabrics not change places? They touch one slot, and one of them writes it. */
static bool in_order(const fcp_transfer *a, const fcp_transfer *b) {
    return a->fabric != b->fabric && a->cls == b->cls && a->slot == b->slot &&
           (a->dir == FCP_RECV || b->dir == FCP_RECV);
}

/* Has launch x a transfer that must stay before one of y over `fabric`? */
static bool holds_back(const fcp_plan *plan, const fcp_instr *x, const fcp_instr *y, uint32_t fabric) {
    for (uint32_t i = x->a; i < x->a + x->b; i++)
        for (uint32_t j = y->a; j < y->a + y->b; j++)
            if (plan->transfers[j].fabric == fabric && in_order(&plan->transfers[i], &plan->transfers[j])) return true;
    return false;
}

/* Is it a launch that moves blocks, and not the caller's tokens? */
static bool moves_blocks(const fcp_plan *plan, fcp_pass pass, const fcp_instr *x) {
    const fcp_round *rounds = plan->rounds + plan->round_starts[pass];
    return x->op == FCP_OP_LAUNCH && rounds[x->c].kind != FCP_ROUND_IN && rounds[x->c].kind != FCP_ROUND_OUT;
}

typedef struct found {
    unsigned launches, waits;
} found;

static void check_rank(const fcp_plan *plan, fcp_pass pass, uint32_t rank, found *out) {
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    const fcp_instr *all = &plan->instrs[stream->first];
    uint32_t(*waits)[FCP_FABRICS] = calloc(stream->count + 1, sizeof *waits), known[FCP_FABRICS] = {0};
    cr_assert(waits && fcp_fabric_waits(plan, pass, rank, waits));
    for (uint32_t j = 0; j < stream->count; j++) {
        bool moves = moves_blocks(plan, pass, &all[j]);
        for (uint32_t f = 0; f < FCP_FABRICS; f++) {
            uint32_t wait = waits[j][f], last = 0;
            cr_assert(moves || !wait, "instruction %u waits, and moves nothing", j);
            for (uint32_t i = 0; moves && i < j; i++)
                if (moves_blocks(plan, pass, &all[i]) && holds_back(plan, &all[i], &all[j], f)) last = i + 1;
            cr_assert_eq(wait, last > known[f] ? last : 0, "rank %u, instruction %u, %s: waits for %u, not %u", rank, j,
                         fcp_fabric_names[f], wait, last);
            if (last > known[f]) known[f] = last;
            out->waits += wait != 0;
        }
        out->launches += moves;
    }
    free(waits);
}

static void check(const char *mask, const char *more, found *out) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 2; gpus = 4 }\n"
             "batch { lengths = [3000, 900, 130 x 6] }\n"
             "plan { mask = %s; block = 128; passes = forward, backward%s }\n", mask, more);
    fcp_plan *plan = plan_named(mask, text);
    cr_assert(fcp_two_fabrics(plan->problem));
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t r = 0; r < plan->problem->ranks; r++) check_rank(plan, (fcp_pass)pass, r, out);
    fcp_plan_free(plan);
}

Test(fabrics, order_between_them) {
    found some = {0};
    check("causal", "", &some);
    check("full", "; strategy = zigzag; layout = zigzag", &some);
    check("causal", "; strategy = cad; layout = contiguous", &some);
    check("window(w = 700)", "; strategy = fcp(coalesce = 4, buffers = 2)", &some);
    fprintf(stderr, "%u launches, %u waits\n", some.launches, some.waits);
    cr_assert(some.launches > 300 && some.waits > 50 && some.waits < some.launches / 2, "%u launches, %u waits",
              some.launches, some.waits);
}

Test(fabrics, one_fabric) {
    fcp_plan *one = plan_named("one node", "model { heads = 1; kv_heads = 1; head_dim = 16; dtype = bf16 }\n"
                                           "cluster { nodes = 1; gpus = 4 }\nbatch { lengths = [900] }\n"
                                           "plan { mask = causal; block = 128 }\n");
    fcp_plan *apart = plan_named("a rank a node", "model { heads = 1; kv_heads = 1; head_dim = 16; dtype = bf16 }\n"
                                                  "cluster { nodes = 4; gpus = 1 }\nbatch { lengths = [900] }\n"
                                                  "plan { mask = causal; block = 128 }\n");
    cr_assert(!fcp_two_fabrics(one->problem) && !fcp_two_fabrics(apart->problem));
    fcp_plan_free(one);
    fcp_plan_free(apart);
}
