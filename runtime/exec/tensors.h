/* tensors.h: a plan's tensors as a whole, packed over the batch, and how they come to ranks and back.
 *
 * A packed tensor is [tokens, heads or kv_heads, head_dim], dense, in the plan's dtype, sequences end to end in batch
 * order; LSE is [tokens, heads] float32. K, V and their gradients have the batch's keys, the others its queries. A
 * plan's caller holds them cut by rank instead (fcp_plan_layout, fcp_plan_layout_keys).
 */
#ifndef FCP_EXEC_TENSORS_H
#define FCP_EXEC_TENSORS_H
#include "runtime/fcp.h"

/* name, member of fcp_tensors, heads: 'q' query heads, 'k' KV heads; 'l': LSE. */
#define FCP_TENSOR_LIST(X)                                                                                             \
    X(Q, q, 'q') X(K, k, 'k') X(V, v, 'k') X(O, o, 'q') X(LSE, lse, 'l') X(DO, d_o, 'q') X(DQ, dq, 'q') X(DK, dk, 'k') \
    X(DV, dv, 'k')
typedef enum fcp_tensor {
#define X(id, member, kind) FCP_TENSOR_##id,
    FCP_TENSOR_LIST(X)
#undef X
    FCP_TENSORS
} fcp_tensor;

/* Packed tensors; members may be NULL. Owned by whoever allocated them; fcp_packed_free frees all with free(). */
typedef struct fcp_packed {
    void *t[FCP_TENSORS];
} fcp_packed;

const char *fcp_tensor_name(fcp_tensor t); /* "q" "k" "v" "o" "lse" "do" "dq" "dk" "dv" */
/* Dimensions of a packed tensor: 3, or 2 for LSE. */
uint32_t fcp_tensor_shape(const fcp_shape *shape, fcp_tensor t, uint64_t out_shape[3]);
fcp_dtype fcp_tensor_dtype(const fcp_shape *shape, fcp_tensor t); /* the plan's; fp32 for LSE */
size_t fcp_tensor_token_bytes(const fcp_shape *shape, fcp_tensor t); /* bytes of one token */
/* Which tensors a pass reads, and which it writes: bit per fcp_tensor. */
unsigned fcp_pass_inputs(fcp_pass pass);
unsigned fcp_pass_outputs(fcp_pass pass);

/* A member of fcp_tensors, its name there ("d_o" where a tensor is called "do"), and how many tokens of it a rank's caller has. */
void *fcp_tensors_get(const fcp_tensors *x, fcp_tensor t);
void fcp_tensors_set(fcp_tensors *x, fcp_tensor t, void *data);
const char *fcp_tensors_name(fcp_tensor t);
uint64_t fcp_tensors_tokens(const fcp_plan *plan, uint32_t rank, fcp_tensor t);

/* Allocates (malloc) the tensors of `set` that are still NULL. On an error frees nothing: fcp_packed_free does. */
fcp_code fcp_packed_alloc(const fcp_shape *shape, unsigned set, fcp_packed *packed, fcp_error *err);
void fcp_packed_free(fcp_packed *packed);

/* Fills the allocated tensors of `set` (never LSE) with numbers drawn from an integer generator: sums of uniform ones,
 * mean 0, variance about 1, rounded to the dtype. A number depends on seed, tensor and index alone. */
void fcp_packed_draw(const fcp_shape *shape, unsigned set, uint64_t seed, fcp_packed *packed);

/* Bytes of a packed tensor; SIZE_MAX where they cannot be counted. */
size_t fcp_packed_bytes(const fcp_shape *shape, fcp_tensor t);
/* Whether a tensor has the KV side's tokens and heads (k, v, dk, dv), not the Q side's. */
bool fcp_tensor_of_keys(fcp_tensor t);
#endif
