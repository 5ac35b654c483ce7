/* workspace.h: memory that planning one batch after another uses again.
 *
 * A program owns a workspace; plans made from it hold it too, for their tables go back there when they are freed, whichever
 * ends first. A program may be planned from on several threads at a time: whoever comes takes what is there, or starts with
 * nothing; whoever ends leaves his if a place is free.
 */
#ifndef FCPC_WORKSPACE_H
#define FCPC_WORKSPACE_H
#include "runtime/plan/plan.h"
#include "compiler/base/arena.h"

typedef struct workspace workspace;
typedef enum workspace_use { WORKSPACE_PLAN, WORKSPACE_WORK, WORKSPACE_SCRATCH, WORKSPACE_USES } workspace_use;

workspace *workspace_new(void); /* NULL: out of memory */
void workspace_release(workspace *w); /* the program's hold on it; NULL is accepted */

/* An empty arena, with memory when some waits. w may be NULL: nothing is kept then. */
arena workspace_take(workspace *w, workspace_use use);
/* Takes the arena back, empty or not. */
void workspace_give(workspace *w, workspace_use use, arena *a);
/* Makes the plan own the arena its tables are in; false when out of memory. */
bool workspace_own(workspace *w, arena *a, fcp_plan *plan);
#endif
