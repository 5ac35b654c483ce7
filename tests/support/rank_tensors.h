/* rank_tensors.h: the tensors of all ranks of a plan, in host memory, for tests that run a session themselves. A plan
 * that takes no gradient of LSE gets none. */
#ifndef RANK_TENSORS_H
#define RANK_TENSORS_H
#include <stdlib.h>

#include "runtime/exec/tensors.h"
#include "runtime/judge/packed.h"

/* Numbers of a tensor, the same for each of its tokens whatever the backend. */
static inline void rank_tensor_draw(const fcp_shape *shape, uint64_t seed, unsigned set, uint64_t bytes, int t,
                                    void *to) {
    fcp_shape flat = *shape;
    const size_t token = fcp_tensor_token_bytes(shape, (fcp_tensor)t);
    fcp_packed one = {0};
    flat.tokens = flat.key_tokens = token ? bytes / token : 0;
    one.t[t] = to;
    fcp_packed_draw(&flat, set, seed, &one);
}

static inline void rank_tensors_open(const fcp_plan *plan, const fcp_shape *shape, fcp_tensors *all) {
    for (uint32_t r = 0; r < shape->ranks; r++)
        for (int t = 0; t < FCP_TENSORS; t++) {
            const uint64_t bytes = fcp_tensors_tokens(plan, r, (fcp_tensor)t) *
                                   fcp_tensor_token_bytes(shape, (fcp_tensor)t);
            if (t == FCP_TENSOR_DLSE && !shape->lse_gradient) continue;
            void *memory = calloc(1, bytes + 1);
            rank_tensor_draw(shape, r + 1, 1u << t, bytes, t, memory);
            fcp_tensors_set(&all[r], (fcp_tensor)t, memory);
        }
}

static inline void rank_tensors_close(const fcp_shape *shape, fcp_tensors *all) {
    for (uint32_t r = 0; r < shape->ranks; r++)
        for (int t = 0; t < FCP_TENSORS; t++) free(fcp_tensors_get(&all[r], (fcp_tensor)t));
}
#endif
