/* workspace.h: memory that is kept from one batch to the next, so that planning need not ask the system for it again:
 * a pool, whose pieces all arenas share, and small arenas.
 *
 * A program owns a workspace. Each plan made from the program holds it as well, because the plan's tables lie in one of
 * its arenas, which goes back to the workspace when the plan is freed. The workspace ends with its last holder.
 * Several threads may plan from one program at the same time: a thread takes an arena if one waits, and starts with an
 * empty one otherwise; afterwards it leaves its arena there if there is a free place.
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
