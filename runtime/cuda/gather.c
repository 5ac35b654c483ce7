/* gather.c: moves the rows of a unit by one launch of fk_gather.
 *
 * Requires: the session's bundles; the kernels.
 * Cost:     on the device 24 bytes for each run of a rank's bundles; a launch for each unit.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/sides.h"

#include <stdlib.h>

#include "runtime/exec/host_reshuffle.h"

_Static_assert((int)FK_GATHER_TENSORS == (int)FCP_MOVED, "as many tensors move");

fcp_code fcp_cuda_gather_plan(fcp_cuda_session *s, uint32_t rank, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    cuda_rank *r = &s->ranks[rank];
    const fcp_bundle all = fcp_bundles_of(s->bundles, rank);
    free(r->runs);
    r->run_count = all.count;
    r->runs = malloc(((size_t)all.count + 1) * sizeof *r->runs);
    if (!r->runs) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the bundles of rank %u", rank);
    for (uint32_t i = 0; i < all.count; i++) {
        const fcp_bundle_run *run = &all.runs[i];
        const fcp_block *k = &plan->blocks[run->block];
        const fcp_heads *h = &plan->heads[k->heads];
        const fcp_homes *at = &s->homes[k->home]; /* of another rank, an extract knows no homes, and none is needed */
        const uint64_t first = k->home_slot < at->homes ? at->first[fcp_side_of(k)][k->home_slot] : 0;
        r->runs[i] = (fk_gather_run){.home = first + run->first,
                                     .place = run->place,
                                     .at = run->at,
                                     .kv_first = h->kv_first,
                                     .sub_first = h->sub_first};
    }
    return FCP_OK;
}

fcp_code fcp_cuda_gather_load(fcp_cuda_session *s, uint32_t rank, fcp_error *err) {
    cuda_rank *r = &s->ranks[rank];
    fcp_code code = fcp_cuda_keep(s, r->device, r->run_count * sizeof *r->runs, r->runs, "the bundles",
                                  &r->kept[CUDA_RUNS], err);
    free(r->runs);
    r->runs = NULL;
    return code;
}

fcp_code fcp_cuda_gather(fcp_cuda_session *s, uint32_t rank, const cuda_unit_move *move, cu_stream stream,
                         fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    const fcp_transfer *t = move->transfer;
    cu_ptr message = move->message;
    const cuda_rank *r = &s->ranks[rank];
    fcp_moved tensors[FCP_MOVED];
    const fcp_bundle all = fcp_bundles_of(s->bundles, rank), bundle = fcp_bundle_of(s->bundles, rank, t);
    fk_gather_launch x = {.runs = r->kept[CUDA_RUNS].at + (cu_ptr)(bundle.runs - all.runs) * sizeof(fk_gather_run),
                          .run_count = bundle.count,
                          .first = t->first,
                          .tokens = t->tokens,
                          .tensors = fcp_moved_tensors(move->home, move->caller, t, tensors),
                          .to = move->to,
                          .from = move->from};
    fk_u32 shared = p->heads / p->kv_heads;
    for (uint32_t i = 0; i < x.tensors; i++) {
        const fcp_moved *m = &tensors[i];
        fk_u32 head = (fk_u32)(m->head / 4), of_q = m->of_keys ? 1 : shared;
        const cu_ptr at[] = {[FK_IN_MESSAGE] = message, [FK_AT_BLOCKS] = (uintptr_t)m->home,
                             [FK_AT_CALLER] = (uintptr_t)m->caller};
        bool whole = m->of_keys || p->range_sub == shared;
        x.tensor[i] = (fk_gather_tensor){.to = at[move->to],
                                         .from = at[move->from],
                                         .row = (fk_u32)(m->row / 4),
                                         .full = (fk_u32)(m->full / 4),
                                         .chunk = whole ? (fk_u32)(m->row / 4) : p->range_sub * head,
                                         .stride = of_q * head,
                                         .kv_step = of_q * head,
                                         .sub_step = m->of_keys ? 0 : head};
        message += t->tokens * m->row;
    }
    uint64_t ctas = ((uint64_t)t->tokens + FK_SUPPORT_THREADS / 32 - 1) / (FK_SUPPORT_THREADS / 32);
    fcp_code code = fcp_cuda_use(s, r->device, err);
    return code ? code : fcp_cuda_launch(s, r->device, CUDA_GATHER, ctas, (uint32_t)r->device->multiprocessors,
                                         stream, &x, err);
}
