/* mask.h: the mask of PARTIAL cells as bits, evaluated when first asked for and remembered.
 *
 * One object serves one thread. A mask that depends on q - k (and n, h) alone is recognised, and its cells are then
 * kept by their diagonal.
 */
#ifndef FCP_HOST_MASK_H
#define FCP_HOST_MASK_H
#include "codegen/mask/code.h"
#include "runtime/host/rows.h"

typedef struct fcp_maskcells fcp_maskcells;

/* `code` is borrowed. NULL when out of memory. */
fcp_maskcells *fcp_maskcells_new(mc_code code);
/* The sequence of what is asked for from here on, and its number, by which cells are remembered where the mask reads
 * arrays. `env` is borrowed. */
void fcp_maskcells_sequence(fcp_maskcells *cells, const mc_env *env, uint32_t sequence);
void fcp_maskcells_free(fcp_maskcells *cells);
/* allow(q0 + r, k0 + c) for r < rows, c < columns, both at most 128, in the sequence set, for query head h. Bits
 * beyond rows and columns are anything. The result stays valid until the next call. */
const fcp_mask_bits *fcp_maskcells_get(fcp_maskcells *cells, int64_t q0, int64_t k0, uint32_t rows, uint32_t columns,
                                       int64_t h);
#endif
