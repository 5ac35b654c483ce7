/* error_place.h: the place in a plan that an error names, in numbers and in words. */
#ifndef FCP_EXEC_ERROR_PLACE_H
#define FCP_EXEC_ERROR_PLACE_H
#include "runtime/plan/enums.h"

/* A rank, and nothing more. */
fcp_where fcp_where_rank(uint32_t rank);
/* Instruction `index` of a rank's queue in a pass. A queue without such an instruction: the queue. */
fcp_where fcp_where_instruction(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_queue queue, uint32_t index);
enum { FCP_WHERE_TEXT = 200 }; /* room for the words below */
/* Writes the place in words: "rank 3, forward pass, stage 2, instruction 7 of the compute queue (attend)". `before`
 * goes before "instruction". Returns the length, as snprintf does. */
int fcp_where_text(const fcp_plan *plan, const fcp_where *where, const char *before, char *out, size_t size);
#endif
