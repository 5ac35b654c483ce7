/* cell_bits.h: the mask of a PARTIAL cell as bits, with a cache.
 *
 * The cells of most masks repeat: a causal mask looks the same in every cell on the diagonal. If a mask depends only on
 * q - k (and on n and h), the cache keeps one cell for all cells at the same distance from the diagonal. One object
 * serves one thread.
 */
#ifndef FCP_HOST_CELL_BITS_H
#define FCP_HOST_CELL_BITS_H
#include "codegen/mask/code.h"
#include "runtime/host/row_ops.h"

typedef struct fcp_maskcells fcp_maskcells;

/* `code` must live as long as the object. NULL: out of memory. */
fcp_maskcells *fcp_maskcells_new(mc_code code);
/* Sets the sequence of the cells that are asked for next. `env` has its length and arrays, and must live until the
 * next call. `sequence` is its number in the plan: if the mask reads arrays, cells are remembered for one sequence
 * only. */
void fcp_maskcells_sequence(fcp_maskcells *cells, const mc_env *env, uint32_t sequence);
void fcp_maskcells_free(fcp_maskcells *cells);
/* allow(q0 + r, k0 + c, h) for all r < rows and c < columns, both at most 128. Bits beyond are undefined. The result
 * is valid until the next call. */
const fcp_mask_bits *fcp_maskcells_get(fcp_maskcells *cells, int64_t q0, int64_t k0, uint32_t rows, uint32_t columns,
                                       int64_t h);
#endif
