/* save.h: writes a plan as the bytes of a file. */
#ifndef FCP_PLAN_SAVE_H
#define FCP_PLAN_SAVE_H
#include "runtime/fcp.h"

/* Writes the bytes of a plan file to a descriptor. 0, or an errno value; EOVERFLOW: the tables are larger than any
 * file. */
int fcp_plan_write(const fcp_plan *plan, int fd);
#endif
