/* maps.c: makes tensor maps, which describe the tensors in a rank's arena to the TMA of sm_90a.
 *
 * Requires: an arena with its final address, and rows at multiples of 16 bytes.
 * Cost:     six calls of the driver for each rank and pass, once for a plan. Launches carry the maps as parameters.
 */
#include "runtime/cuda/cuda.h"

#include <inttypes.h>
#include <string.h>

static fcp_code make_map(fcp_cuda_session *s, const fcp_launch_tensor *x, fk_u64 out[16], fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    const uint64_t dims[4] = {x->numbers, x->heads, x->rows, x->slots};
    const unsigned box[4] = {FK_BOX, 1, FK_BOX, 1}, steps[4] = {1, 1, 1, 1};
    fk_map map = {{0}}; /* its type aligns it to 64, as the driver wants it */
    fcp_code code = FCP_OK;
    if (x->rows > INT32_MAX)
        return fcp_fail(err, FCP_E_PLAN_SIZE, "the copy engine counts rows in 31 bits, and a rank has %" PRIu64,
                        x->rows);
    if (x->rows)
        code = fcp_cuda_check(s->cuda,
                              s->cuda->call.tensor_map(&map, p->dtype == FCP_BF16 ? CU_TENSOR_BF16 : CU_TENSOR_FP16, 4,
                                                       (void *)(uintptr_t)x->address, dims, x->strides, box, steps, 0,
                                                       CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_256, 0),
                              err, "the driver makes no map of %" PRIu64 " rows of %u heads of %u", x->rows, x->heads,
                              x->numbers);
    if (!code) memcpy(out, &map, sizeof map);
    return code;
}

static bool any_maps(const cuda_device *d, fcp_pass pass) {
    bool any = false;
    for (int id = CUDA_FORWARD; id < CUDA_BEGIN_LSE; id++)
        any = any || ((id == CUDA_FORWARD) == (pass == FCP_FORWARD) && d->kernels[id].maps);
    return any;
}

fcp_code fcp_cuda_maps_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err) {
    fcp_launch_tensor tensors[FCP_LAUNCH_TENSORS];
    fcp_code code = FCP_OK;
    if (!any_maps(rank->device, pass)) return FCP_OK;
    code = fcp_cuda_use(s, rank->device, err); /* the driver may need a current context */
    fcp_launch_tensors(&rank->arena[pass], tensors);
    for (int i = 0; !code && i < FCP_LAUNCH_TENSORS; i++) code = make_map(s, &tensors[i], rank->maps[pass][i], err);
    return code;
}

void *fcp_cuda_with_maps(const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, fk_launch *launch,
                         fk_launch_maps *maps) {
    fk_map all[FCP_LAUNCH_TENSORS];
    if (!rank->device->kernels[id].maps) return launch;
    memcpy(all, rank->maps[pass], sizeof all);
    fcp_launch_maps(launch, all, maps);
    return maps;
}
