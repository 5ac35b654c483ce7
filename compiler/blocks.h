/* blocks.h: what to say of blocks that are too large or too few. */
#ifndef FCPC_BLOCKS_H
#define FCPC_BLOCKS_H
#include "compiler/planning/planning.h"

/* Warns of a block that is heavier than the mean rank, and says which size would do. */
fcp_code blocks_warn_heavy(planning *x);
/* Warns of ranks that own no block: they take part in the plan, and do nothing. */
fcp_code blocks_warn_idle(planning *x);
#endif
