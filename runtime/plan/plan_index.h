/* plan_index.h: computes the members of fcp_plan that are not in the file but follow from its tables. */
#ifndef FCP_PLAN_PLAN_INDEX_H
#define FCP_PLAN_PLAN_INDEX_H
#include "runtime/fcp.h"

/* Fills what is derived from the tables. Called by the loader and the compiler. */
fcp_code fcp_plan_index(fcp_plan *plan, fcp_error *err);
/* Fills the part of it that follows from the lengths and the field of documents. */
fcp_code fcp_plan_index_documents(fcp_plan *plan, fcp_error *err);
/* Fills the part of it that follows from the layout. All other parts must have been filled. */
fcp_code fcp_plan_index_layout(fcp_plan *plan, fcp_error *err);
#endif
