/* blind.h: finds the queries of a sequence that see no key at all, so that the user can be warned. */
#ifndef FCPC_CELLS_BLIND_H
#define FCPC_CELLS_BLIND_H
#include "compiler/cells/cells.h"

typedef struct blind blind;

/* The mask is borrowed. It must not fault in any sequence that is asked about. `effort`: how many boxes and rows may be
 * evaluated in all before the search is given up. NULL: out of memory. */
blind *blind_new(mc_code mask, uint32_t heads, uint64_t effort);
void blind_free(blind *b);
void blind_set_stop(blind *b, const volatile int *stop); /* as cells_set_stop */

/* The rows of a sequence that see nothing. Rows are counted from its first query. If the mask names h, a row is a query
 * of one head. */
typedef struct blind_rows {
    uint64_t rows;       /* how many there are */
    uint64_t first, end; /* the first stretch of them, */
    uint32_t head;       /* and its head */
    bool at_least;       /* the search was given up, so there may be more */
} blind_rows;

fcp_code blind_find(blind *b, const mc_env *env, blind_rows *out); /* FCP_E_NO_MEMORY, FCP_E_INTERRUPTED */

/* After a call that found none: is it certain that no shorter sequence has any, as long as its queries are its keys? */
bool blind_never(const blind *b);
#endif
