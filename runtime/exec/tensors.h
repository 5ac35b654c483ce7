/* tensors.h: the tensors of attention: names, shapes and sizes, and which pass reads and writes which.
 *
 * A *packed* tensor has the whole batch, one sequence after another, dense, in the plan's dtype. Q and dQ are [tokens,
 * heads, head_dim]; K and dK have kv_heads; V, O and their gradients have value_dim in place of head_dim. LSE, lse_low
 * and the gradient of LSE are [tokens, heads] in float32. K, V and their gradients have a row for each key, the others
 * for each query. With values_in_keys (fcp_shape), V and dV have rows of 0 numbers. The caller of a session holds other
 * tensors, which are cut by rank (fcp_tensors, fcp_plan_rank_queries).
 */
#ifndef FCP_EXEC_TENSORS_H
#define FCP_EXEC_TENSORS_H
#include "runtime/fcp.h"

/* X(ID, member of fcp_tensors, kind). Kinds: 'q' has a row for each query with head_dim numbers of all heads, 'o'
 * the same with value_dim; 'k' has a row for each key with head_dim numbers of the KV heads, 'v' the same with
 * value_dim; 'l' has one float for each query and head. */
#define FCP_TENSOR_LIST(X)                                                                                             \
    X(Q, q, 'q') X(K, k, 'k') X(V, v, 'v') X(O, o, 'o') X(LSE, lse, 'l') X(DO, d_o, 'o') X(DQ, dq, 'q') X(DK, dk, 'k') \
    X(DV, dv, 'v') X(LSE_LOW, lse_low, 'l') X(DLSE, d_lse, 'l')
typedef enum fcp_tensor {
#define X(id, member, kind) FCP_TENSOR_##id,
    FCP_TENSOR_LIST(X)
#undef X
    FCP_TENSORS
} fcp_tensor;

/* Packed tensors. Members may be NULL. The memory is from malloc, and fcp_packed_free frees all of it. */
typedef struct fcp_packed {
    void *t[FCP_TENSORS];
    /* What ranks write once, not for each token, as fcp_tensors has it; NULL: not wanted. */
    float *max_logit; /* [heads]: the largest of this process's ranks */
    float *d_sink;    /* [heads], and */
    float *d_table;   /* [fcp_plan_table_numbers]: the sums over this process's ranks */
} fcp_packed;

const char *fcp_tensor_name(fcp_tensor t); /* "q" "k" "v" "o" "lse" "do" "dq" "dk" "dv" "lse_low" "dlse" */
/* Fills the dimensions of a packed tensor and returns how many it has: 3, or 2 for LSE, whose third is then 1. */
uint32_t fcp_tensor_shape(const fcp_shape *shape, fcp_tensor t, uint64_t out_shape[3]);
fcp_dtype fcp_tensor_dtype(const fcp_shape *shape, fcp_tensor t); /* the plan's; fp32 for LSE */
size_t fcp_tensor_token_bytes(const fcp_shape *shape, fcp_tensor t); /* of one row: one token, all heads */
/* Which tensors a pass reads, and which it writes: bit t is fcp_tensor t. Optional tensors are not in these sets:
 * the forward pass may write LSE_LOW, and the backward pass may read it, and DLSE if the plan has lse_gradient. */
unsigned fcp_pass_inputs(fcp_pass pass);
unsigned fcp_pass_outputs(fcp_pass pass);
unsigned fcp_pass_optional(const fcp_shape *shape, fcp_pass pass);

/* A member of fcp_tensors; its name there, which is "d_o" for "do"; and how many rows of it a rank's caller has. */
void *fcp_tensors_get(const fcp_tensors *x, fcp_tensor t);
void fcp_tensors_set(fcp_tensors *x, fcp_tensor t, void *data);
const char *fcp_tensors_name(fcp_tensor t);
uint64_t fcp_tensors_tokens(const fcp_plan *plan, uint32_t rank, fcp_tensor t);

/* Allocates those tensors of `set` (a bit each) that are NULL. What was allocated before an error stays, for
 * fcp_packed_free. */
fcp_code fcp_packed_alloc(const fcp_shape *shape, unsigned set, fcp_packed *packed, fcp_error *err);
void fcp_packed_free(fcp_packed *packed);

/* Fills those tensors of `set` that are allocated, except LSE and LSE_LOW, with random numbers: mean 0, variance
 * about 1, rounded to the dtype. Each number depends only on the seed, the tensor and its index, so that every
 * process can make its own part. */
void fcp_packed_draw(const fcp_shape *shape, unsigned set, uint64_t seed, fcp_packed *packed);

/* Bytes of a packed tensor; SIZE_MAX if they are too many to count. */
size_t fcp_packed_bytes(const fcp_shape *shape, fcp_tensor t);
/* Whether a tensor has the KV side's tokens and heads (k, v, dk, dv), not the Q side's. */
bool fcp_tensor_of_keys(fcp_tensor t);
#endif
