/* cuda_tables.c: tables of reals that a run brings, and their gradients.
 *
 * Requires: a run whose tensors were checked.
 * Method:   fk_backward_tables runs behind the kernels of each ATTEND (compute_queue.c). Its sums are whole numbers, so
 *           they do not depend on the order in which CTAs add. They are cleared before the pass and rounded behind it.
 * Order:    what is done here is in communication streams, as IN and OUT are, and outside the graph of the pass.
 * Cost:     FK_SUM_BYTES for each number and rank, from the first run on that wants gradients; they are cleared and
 *           read in every such run.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/plan_arrays.h"

#include "runtime/plan/table_reads.h"

/* Takes room for the sums of each rank, and for the floats that are made of them. A capture allows no allocation. */
static fcp_code take_room(fcp_cuda_session *s, fcp_error *err) {
    const size_t bytes = s->sums * (FK_SUM_BYTES + sizeof(float));
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        if (rank->kept[CUDA_SUMS].held >= bytes) continue;
        if (s->outer)
            return fcp_fail(err, FCP_E_ARGUMENT, "the stream is being captured, and no run has had gradients of tables "
                            "yet: run the backward pass with them once outside the capture");
        code = fcp_cuda_keep(s, rank->device, bytes, NULL, "gradients of tables", &rank->kept[CUDA_SUMS], err);
    }
    return code;
}

fcp_code fcp_cuda_tables_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err) {
    s->table_gradients = false;
    for (uint32_t i = 0; pass == FCP_BACKWARD && i < s->base.rank_count; i++)
        s->table_gradients = s->table_gradients || tensors[i].d_table;
    if (!s->table_gradients) return FCP_OK;
    if (s->sums) return take_room(s, err);
    fcp_table_reads *reads = NULL; /* they say what is wrong with the score */
    const fcp_code code = fcp_table_reads_make(s->plan, &reads, err);
    fcp_table_reads_free(reads);
    return code ? code : fcp_fail(err, FCP_E_TENSOR, "the plan has tables, and its score reads none of them");
}

/* Copies the tables of reals to where kernels read them: from the caller's memory at `given`, or the plan's. */
static fcp_code put_tables(fcp_cuda_session *s, uint32_t r, const float *given, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    cuda_device *d = s->ranks[r].device;
    size_t first = 0;
    fcp_code code = FCP_OK;
    for (uint64_t i = 0; !code && i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        if (!fcp_array_learnable(a)) continue;
        const size_t count = fcp_array_bytes(a) / sizeof(double);
        const cu_ptr to = d->data + a->offset, from = d->plan_tables + first * sizeof(float);
        if (count && given)
            code = fcp_cuda_copy_outside(s, r, true, (void *)(uintptr_t)(given + first), to, count * sizeof(float),
                                         err);
        else if (count)
            code = fcp_cuda_copy(s, d, to, d, from, count * sizeof(float), s->ranks[r].streams[FCP_COMM], err);
        first += count;
    }
    return code;
}

fcp_code fcp_cuda_tables_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        uint32_t r = s->base.first_rank;
        while (r < fcp_cuda_end(s) && s->ranks[r].device != d) r++;
        if (r == fcp_cuda_end(s)) continue;
        const float *given = tensors[r - s->base.first_rank].table; /* all ranks have the same */
        code = given || d->own_tables ? fcp_cuda_use(s, d, err) : FCP_OK;
        if (!code && (given || d->own_tables)) code = put_tables(s, r, given, err);
        d->own_tables |= given != NULL;
    }
    for (uint32_t r = s->base.first_rank; s->table_gradients && !code && r < fcp_cuda_end(s); r++) {
        const cuda_rank *rank = &s->ranks[r];
        code = fcp_cuda_use(s, rank->device, err);
        if (!code) code = fcp_cuda_fill(s, rank->kept[CUDA_SUMS].at, 0, s->sums * FK_SUM_BYTES, rank->streams[FCP_COMM],
                                        err);
    }
    return code;
}

fcp_code fcp_cuda_tables_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        float *out = tensors[r - s->base.first_rank].d_table;
        const cu_ptr sums = rank->kept[CUDA_SUMS].at;
        const fk_support x = {.to = sums + s->sums * FK_SUM_BYTES, .from = sums, .count = s->sums};
        if (!out) continue;
        code = fcp_cuda_use(s, rank->device, err);
        if (!code) code = fcp_cuda_round_sums(s, rank, x, err);
        if (!code) code = fcp_cuda_result_out(s, r, CUDA_D_TABLE, out, x.to, s->sums * sizeof(float), err);
    }
    return code;
}
