/* sinks.c: sinks that a run brings, and their gradients.
 *
 * The gradient of a head's sink is -sum of exp(sink - LSE) delta over the head's rows. LSE is two floats, and delta
 * includes the gradient of LSE if the run has one.
 *
 * Requires: a run whose tensors were checked; for gradients, a pass that has ended, so that LSE and delta of home rows
 *           lie in the arena. dQ has been rounded by then, and its memory is used for sums.
 * Order:    all of it is in communication streams, as IN and OUT are, and outside the graph of the pass.
 * Sums:     each FK_FOLD neighbouring rows of a head are added up to one row, and these again, until one is left. So
 *           the bits depend on nothing but where rows are.
 * Cost:     LSE and delta are read once; a launch for each factor of FK_FOLD in the number of rows.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/head_ranges.h"

/* Copies the sinks of the model's heads to those of each range, neighbouring heads at once. */
static fcp_code put_ranges(fcp_cuda_session *s, uint32_t rank, const float *from, fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    const uint32_t heads = p->range_kv * p->range_sub;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->plan->heads_count; i++)
        for (uint32_t h = 0, end; !code && h < heads; h = end) {
            const uint32_t first = fcp_model_head(p, &s->plan->heads[i], h);
            for (end = h + 1; end < heads && fcp_model_head(p, &s->plan->heads[i], end) == first + end - h;) end++;
            code = fcp_cuda_copy_outside(s, rank, true, (void *)(uintptr_t)(from + first),
                                         s->ranks[rank].device->sinks + ((cu_ptr)i * heads + h) * sizeof(float),
                                         (end - h) * sizeof(float), err);
        }
    return code;
}

fcp_code fcp_cuda_sinks_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        uint32_t r = s->base.first_rank;
        while (r < fcp_cuda_end(s) && s->ranks[r].device != d) r++;
        if (!d->sinks || r == fcp_cuda_end(s)) continue;
        const float *given = tensors[r - s->base.first_rank].sink; /* all ranks have the same */
        code = fcp_cuda_use(s, d, err);
        if (!code && given) code = put_ranges(s, r, given, err);
        else if (!code && d->own_sinks)
            code = fcp_cuda_copy(s, d, d->sinks, d, d->plan_sinks, fcp_launch_sink_count(s->plan) * sizeof(float),
                                 s->ranks[r].streams[FCP_COMM], err);
        if (code) return code;
        d->own_sinks |= given != NULL;
    }
    return FCP_OK;
}

/* Sums all home rows of one range of heads into the model's heads at `sums`. */
static fcp_code fold_range(fcp_cuda_session *s, cuda_rank *rank, uint32_t range, cu_ptr sums, fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    const fcp_problem *p = s->plan->problem;
    const uint64_t *queries = a->home_first[FCP_QUERIES], row = a->heads * sizeof(float);
    cu_ptr from = (uintptr_t)a->dq; /* one number of each head and row suffices, and dQ has head_dim of them */
    uint64_t count = 0;
    fcp_code code = FCP_OK;
    for (uint32_t slot = 0, end; !code && slot < a->homes; slot = end) { /* neighbours of one range at once */
        const uint32_t own = s->plan->blocks[a->home_block[slot]].heads;
        for (end = slot + 1; end < a->homes && s->plan->blocks[a->home_block[end]].heads == own;) end++;
        const uint64_t rows = queries[end] - queries[slot];
        if (own != range || !rows) continue;
        const fk_support x = {.to = from + count * row, .from = (uintptr_t)a->delta + queries[slot] * row,
                              .lse = (uintptr_t)a->lse + queries[slot] * row,
                              .lse_low = (uintptr_t)a->lse_low + queries[slot] * row, .count = rows, .heads = a->heads,
                              .sinks = fcp_launch_sinks_of(s->plan, rank->device->sinks, range)};
        code = fcp_cuda_fold_sinks(s, rank, x, err);
        count += (rows + FK_FOLD - 1) / FK_FOLD;
    }
    while (!code && count) {
        const bool last = count <= FK_FOLD;
        const cu_ptr to = last ? sums : from + count * row;
        const fk_support x = {.to = to, .from = from, .count = count, .heads = a->heads,
                              .model_head = fcp_model_head(p, &s->plan->heads[range], 0),
                              .group = last ? a->heads / a->kv_heads : 0, .shared = p->heads / p->kv_heads};
        code = fcp_cuda_fold_sinks(s, rank, x, err);
        from = to;
        count = last ? 0 : (count + FK_FOLD - 1) / FK_FOLD;
    }
    return code;
}

fcp_code fcp_cuda_sinks_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err) {
    const size_t bytes = s->plan->problem->heads * sizeof(float);
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        float *out = tensors[r - s->base.first_rank].d_sink;
        if (!out) continue;
        const cu_ptr sums = rank->device->sink_sums + (r - s->base.first_rank) * fcp_cuda_sink_sums_size(s->plan);
        code = fcp_cuda_use(s, rank->device, err);
        if (!code) code = fcp_cuda_fill(s, sums, 0, bytes, rank->streams[FCP_COMM], err);
        for (uint32_t i = 0; !code && i < s->plan->heads_count; i++) code = fold_range(s, rank, i, sums, err);
        if (!code) code = fcp_cuda_result_out(s, r, CUDA_D_SINK, out, sums, bytes, err);
    }
    return code;
}
