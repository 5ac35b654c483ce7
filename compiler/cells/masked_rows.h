/* masked_rows.h: finds the rows of a sequence that are fully masked, which means that their query sees no key. The user
 * is warned of them, because their output is 0. */
#ifndef FCPC_CELLS_MASKED_ROWS_H
#define FCPC_CELLS_MASKED_ROWS_H
#include "compiler/cells/cells.h"

typedef struct row_search row_search;

/* The mask is borrowed. It must not fault in any sequence that is asked about. NULL: out of memory. */
row_search *row_search_new(mc_code mask, uint32_t heads);
void row_search_free(row_search *s);
void row_search_set_stop(row_search *s, const volatile int *stop); /* as cells_set_stop */

/* The fully masked rows of a sequence. Rows are counted from its first query. If the mask names h, a row is a query of
 * one head. */
typedef struct masked_rows {
    uint64_t rows;       /* how many there are */
    uint64_t first, end; /* the first stretch of them, */
    uint32_t head;       /* and its head */
    bool at_least;       /* the search became too long and was given up: there may be more */
} masked_rows;

fcp_code masked_rows_find(row_search *s, const mc_env *env, masked_rows *out); /* FCP_E_NO_MEMORY, FCP_E_INTERRUPTED */

/* After a call that found none: is it certain that no shorter sequence has any, as long as its queries are its keys? */
bool masked_rows_never(const row_search *s);
#endif
