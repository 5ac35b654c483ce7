/* stretches.c: a rank's tokens as layers that recur see them, and which such layers a plan has.
 *
 * Requires: an indexed plan.
 * Gives:    the rank's layout of queries, cut where documents end, and joined where the next span goes on where the
 *           last one ended.
 * Cost:     linear in the rank's spans and documents, and a search in the documents for each span.
 */
#include "runtime/plan/stretches.h"

#include "runtime/plan/layout.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/sides.h"

/* The number of the last of `count` increasing numbers that is not above `x`. */
static uint64_t find(const uint64_t *starts, uint64_t count, uint64_t x) {
    uint64_t low = 0, high = count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (starts[middle] <= x) low = middle;
        else high = middle;
    }
    return low;
}

uint32_t fcp_stretches_of(const fcp_plan *plan, uint32_t rank, fcp_stretch *out) {
    const uint64_t *offsets = fcp_offsets(plan, FCP_QUERIES), *starts = plan->documents ? plan->documents : offsets;
    uint32_t count = 0;
    uint64_t first = 0;
    fcp_stretch last = {0};
    fcp_layout_at at = {0};
    fcp_span span;
    if (!plan->self) return 0;
    while (fcp_side_layout(plan, FCP_QUERIES, rank, &at, &span)) {
        uint64_t row = offsets[span.sequence] + span.start, end = row + span.length;
        uint64_t document = plan->documents ? find(starts, plan->documents_count, row) : span.sequence;
        for (; row < end; document++) {
            const uint64_t over = end < starts[document + 1] ? end : starts[document + 1];
            if (count && last.document == document && last.start + last.length == row) {
                last.length += over - row;
                last.ends = over == starts[document + 1];
                if (out) out[count - 1] = last;
            } else {
                last = (fcp_stretch){.document = document,
                                     .start = row,
                                     .first = first,
                                     .length = over - row,
                                     .begins = row == starts[document],
                                     .ends = over == starts[document + 1]};
                if (out) out[count] = last;
                count++;
            }
            first += over - row;
            row = over;
        }
    }
    return count;
}

uint32_t fcp_plan_stretches(const fcp_plan *plan, uint32_t rank, fcp_stretch *out) {
    const uint32_t count = fcp_stretches_of(plan, rank, out);
    if (!plan->extract || !out) return count;
    const uint64_t *offsets = fcp_offsets(plan, FCP_QUERIES);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t s = find(offsets, plan->sequences_count, out[i].start);
        if (!plan->documents) out[i].document = plan->extract->places[s].number;
        out[i].start += plan->extract->places[s].row[FCP_QUERIES] - offsets[s];
    }
    return count;
}

uint32_t fcp_plan_recurrent(const fcp_plan *plan, uint32_t number, fcp_layer_shape *out_shape) {
    if (number < plan->recurrent_count && out_shape) {
        const fcp_recurrent *x = &plan->recurrent[number];
        *out_shape = (fcp_layer_shape){.kind = (fcp_layer_kind)x->kind,
                                       .times = x->times,
                                       .before = x->before,
                                       .after = x->after,
                                       .channels = x->channels,
                                       .heads = x->heads,
                                       .rows = x->rows,
                                       .columns = x->columns,
                                       .decay = (fcp_decay)x->decay,
                                       .reverse = x->reverse != 0};
    }
    return (uint32_t)plan->recurrent_count;
}
