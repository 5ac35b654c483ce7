/* cut_items.h: counts how many rows and keys the work lists of a plan have cut into parts. A test of cutting asserts
 * that there are some, so that it fails when a change to its program leaves nothing to cut. */
#ifndef CUT_ITEMS_H
#define CUT_ITEMS_H
#include <criterion/criterion.h>

#include "runtime/worklists/worklists.h"
#include "tests/support/order_model.h"

typedef struct cut_items {
    uint64_t parts;  /* of rows whose keys are cut, and which the kernel itself joins */
    uint64_t later;  /* of these, how many go on from an earlier state */
    uint64_t merges; /* rows whose keys are in parts, which another kernel puts together */
    uint64_t shared; /* pieces of the backward pass whose keys another piece has, too */
    uint64_t begin;  /* of the others, those whose sums are empty; and those whose sums are not */
    uint64_t go_on;
} cut_items;

/* Of the lists of a pass, of all ranks together. `order` is that of the backward kernel. */
static inline cut_items cut_items_of(const fcp_plan *plan, fcp_pass pass, fcp_key_order order) {
    cut_items out = {0};
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        fcp_worklists w = {0};
        fcp_arena a;
        fcp_error err;
        uint64_t *first = order_model_arena(plan, rank, pass, &a);
        const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
        for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
            const fcp_instr *x = &plan->instrs[i];
            if (x->op != FCP_OP_ATTEND) continue;
            for (w.range = FCP_NONE; (w.range = fcp_launch_next_range(plan, x->a, x->b, w.range)) != FCP_NONE;) {
                cr_assert_eq(pass == FCP_FORWARD ? fcp_worklists_rows(&w, &a, x->a, x->b, &err)
                                                 : fcp_worklists_keys(&w, &a, x->a, x->b, order, &err), FCP_OK);
                for (uint32_t r = 0; pass == FCP_FORWARD && r < w.row_count; r++) {
                    const bool part = w.rows[r].parts > 1;
                    out.parts += part;
                    out.later += part && !(w.rows[r].flags & FK_FIRST);
                }
                out.merges += pass == FCP_FORWARD ? w.merge_count : 0;
                for (uint32_t k = 0; pass == FCP_BACKWARD && k < w.key_count; k++) {
                    out.shared += w.keys[k].lock != FK_NONE;
                    out.begin += w.keys[k].begins;
                    out.go_on += w.keys[k].lock == FK_NONE && !w.keys[k].begins;
                }
            }
        }
        fcp_worklists_free(&w);
        free(first);
    }
    return out;
}
#endif
