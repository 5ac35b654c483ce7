/* bundles.h: which tokens are in each bundle that IN, OUT and COPY move. A bundle is all tokens that one rank's caller
 * holds and whose home is one other rank (plan/FORMAT.md).
 *
 * The plan does not list them, because they follow from the layout and the blocks. These functions work them out once,
 * when a session gets its plan, for the ranks of this process. An extract has those of its rank.
 */
#ifndef FCP_EXEC_BUNDLES_H
#define FCP_EXEC_BUNDLES_H
#include "runtime/plan/extract.h"
#include "runtime/plan/instructions.h"

typedef struct fcp_bundle {
    const fcp_bundle_run *runs; /* in order of `at` */
    uint32_t count;
} fcp_bundle;

typedef struct fcp_bundles fcp_bundles;
/* Makes the bundles of ranks first_rank to first_rank + rank_count - 1: all those that have one of these ranks as the
 * caller's end or as the home. The plan must be verified.
 *
 * Cost: O(ranks + pieces + runs of the layout); memory for the bundles of these ranks and their runs. The bundles of an
 * extract are those that it has, and it must outlive them. */
fcp_code fcp_bundles_make(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_bundles **out_bundles,
                          fcp_error *err);
void fcp_bundles_free(fcp_bundles *bundles); /* NULL: nothing happens */
/* The bundle that a transfer of class IN or OUT of `rank` moves a part of; a COPY's is that with itself. */
fcp_bundle fcp_bundle_of(const fcp_bundles *bundles, uint32_t rank, const fcp_transfer *t);
/* A rank's bundles as an extract has them: where its groups begin in the list of bundles, and the list. */
const uint64_t *fcp_bundles_groups(const fcp_bundles *bundles, uint32_t rank, const fcp_bundle_at **out_list);
/* All runs of a rank's bundles, one bundle after the other; fcp_bundle_of points into them. */
fcp_bundle fcp_bundles_of(const fcp_bundles *bundles, uint32_t rank);
/* Walks over the parts of a bundle's runs that a transfer moves. `i` is where the walk stands, 0 at the beginning.
 * False: there are no more. */
bool fcp_bundle_next(const fcp_bundle *bundle, const fcp_transfer *t, uint32_t *i, fcp_bundle_run *out_run);
#endif
