/* cut.h: cuts the extracts of ranks out of a plan (plan/extract.h). */
#ifndef FCP_EXEC_CUT_H
#define FCP_EXEC_CUT_H
#include "runtime/plan/extract.h"

/* What is worked out once for all ranks, or for a few. The plan must be verified, and outlive it. */
typedef struct fcp_cutter fcp_cutter;
fcp_code fcp_cutter_make(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_cutter **out_cutter,
                         fcp_error *err);
void fcp_cutter_free(fcp_cutter *cutter); /* NULL: nothing happens */
/* The body of a rank's extract (plan/extract_file.h). The bytes are the cutter's, until it cuts again. */
fcp_code fcp_cut(fcp_cutter *cutter, uint32_t rank, const void **out_body, size_t *out_size, fcp_error *err);
#endif
