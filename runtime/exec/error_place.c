/* error_place.c: the place in a plan that an error names, in words (error_place.h). */
#include "runtime/exec/error_place.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/instructions.h"

#include <stdio.h>

fcp_where fcp_where_rank(uint32_t rank) {
    fcp_where where = FCP_WHERE_NONE;
    where.rank = rank;
    return where;
}

/* NULL: the queue is not so long. */
static const fcp_instr *instruction(const fcp_plan *plan, const fcp_where *w) {
    const fcp_stream *stream = fcp_stream_of(plan, (fcp_pass)w->pass, w->rank, (fcp_queue)w->queue);
    return w->instruction < stream->count ? &plan->instrs[stream->first + w->instruction] : NULL;
}

fcp_where fcp_where_instruction(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_queue queue, uint32_t index) {
    fcp_where where = {.rank = rank, .pass = (uint32_t)pass, .queue = (uint32_t)queue, .instruction = index};
    const fcp_instr *x = instruction(plan, &where);
    where.stage = x ? x->stage : FCP_NOWHERE;
    if (!x) where.instruction = FCP_NOWHERE;
    return where;
}

int fcp_where_text(const fcp_plan *plan, const fcp_where *w, const char *before, char *out, size_t size) {
    const fcp_instr *x = instruction(plan, w);
    if (!x)
        return snprintf(out, size, "rank %u, %s pass, in the %s queue, which is empty", w->rank,
                        fcp_pass_names[w->pass], fcp_queue_texts[w->queue]);
    return snprintf(out, size, "rank %u, %s pass, stage %u, %sinstruction %u of the %s queue (%s)", w->rank,
                    fcp_pass_names[w->pass],
                    w->stage, before, w->instruction, fcp_queue_texts[w->queue], fcp_op_names[x->op]);
}
