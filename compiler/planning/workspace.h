/* workspace.h: keeps memory from one batch to the next, so that planning need not ask the system for it again.
 *
 * A workspace has arenas, and a pool from which all arenas take their pieces. The program owns it. So does each plan of
 * the program, because the plan's tables are in one of the workspace's arenas, which goes back when the plan is freed.
 * The workspace is freed with its last owner.
 *
 * Several threads may plan from one program at the same time. Each takes an arena that is kept there, or begins with an
 * empty one. Afterwards it puts its arena back, if there is a free place.
 */
#ifndef FCPC_WORKSPACE_H
#define FCPC_WORKSPACE_H
#include "compiler/base/arena.h"
#include "runtime/plan/enums.h"

typedef struct workspace workspace;
typedef enum workspace_use {
    WORKSPACE_PLAN, WORKSPACE_WORK, WORKSPACE_SCRATCH,
    WORKSPACE_ASIDE_WORK, WORKSPACE_ASIDE_SCRATCH, /* of a second thread */
    WORKSPACE_USES
} workspace_use;

workspace *workspace_new(void);       /* held once, by the caller; NULL: out of memory */
void workspace_release(workspace *w); /* gives up one hold; NULL is accepted */

/* An empty arena, with the memory of an earlier batch if some waits. w may be NULL here and below: nothing is kept. */
arena workspace_take(workspace *w, workspace_use use);
/* Empties the arena and keeps its memory for the next batch, or frees it. *a is then an empty arena without memory. */
void workspace_give(workspace *w, workspace_use use, arena *a);
/* Makes the plan own the arena that its tables lie in; *a is then empty. False: out of memory, and *a is as it was. */
bool workspace_own(workspace *w, arena *a, fcp_plan *plan);
#endif
