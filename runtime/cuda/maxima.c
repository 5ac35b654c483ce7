/* maxima.c: the largest logit of each head, of the rows that a rank finishes.
 *
 * Each head has one number. A kernel that makes O and LSE of rows knows their largest logit, and raises the head's
 * number to it by an atomic maximum. A maximum is exact and does not depend on the order, so the bits do not either.
 *
 * Requires: a run whose tensors were checked.
 * Order:    the numbers become -inf where the pass begins, within its graph, and are copied in communication streams
 *           behind it, as results are. The launches in a graph have the address of the numbers, or 0. So a forward pass
 *           that wants them is a graph of its own.
 * Cost:     4 bytes for each head and rank, whether a run wants them or not; if it does, a fill, a copy, and the
 *           maxima in kernels.
 */
#include "runtime/cuda/cuda.h"

static size_t bytes_of(const fcp_cuda_session *s) { return s->plan->problem->heads * sizeof(float); }

void fcp_cuda_maxima_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors) {
    s->maxima = false;
    for (uint32_t i = 0; pass == FCP_FORWARD && i < s->base.rank_count; i++)
        s->maxima = s->maxima || tensors[i].max_logit;
}

cu_ptr fcp_cuda_maxima_of(const fcp_cuda_session *s, const cuda_rank *rank, fcp_pass pass) {
    if (!s->maxima || pass != FCP_FORWARD) return 0;
    return rank->device->maxima + (cu_ptr)(rank - s->ranks - s->base.first_rank) * fcp_cuda_maxima_size(s->plan);
}

fcp_code fcp_cuda_maxima_begin(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err) {
    const cu_ptr maxima = fcp_cuda_maxima_of(s, rank, pass);
    if (!maxima) return FCP_OK;
    return fcp_cuda_fill(s, maxima, 0xff800000u, bytes_of(s), rank->streams[FCP_COMPUTE], err);
}

fcp_code fcp_cuda_maxima_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && s->maxima && r < fcp_cuda_end(s); r++) {
        cuda_rank *rank = &s->ranks[r];
        float *out = tensors[r - s->base.first_rank].max_logit;
        if (!out) continue;
        code = fcp_cuda_use(s, rank->device, err);
        if (!code)
            code = fcp_cuda_result_out(s, r, CUDA_MAX_LOGIT, out, fcp_cuda_maxima_of(s, rank, FCP_FORWARD),
                                       bytes_of(s), err);
    }
    return code;
}
