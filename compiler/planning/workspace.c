/* workspace.c: keeps arenas in a few places. Threads take and give them by atomic exchange, so no lock is needed. */
#include "compiler/planning/workspace.h"
#include "runtime/plan/plan.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PLACES = 2 }; /* of each use: whoever plans the next batch while the last plan runs has two plans at a time */

struct workspace {
    atomic_uint holders;
    arena_pool *pool;
    arena *_Atomic place[WORKSPACE_USES][PLACES];
};

typedef struct owner {
    arena tables;
    workspace *from; /* where the arena goes back to; may be NULL */
} owner;

workspace *workspace_new(void) {
    workspace *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    atomic_init(&w->holders, 1);
    w->pool = arena_pool_new();
    return w;
}

void workspace_release(workspace *w) {
    if (!w || atomic_fetch_sub(&w->holders, 1) != 1) return;
    for (int use = 0; use < WORKSPACE_USES; use++)
        for (int i = 0; i < PLACES; i++) {
            arena *a = atomic_load(&w->place[use][i]);
            if (a) arena_free(a);
            free(a);
        }
    arena_pool_free(w->pool);
    free(w);
}

arena workspace_take(workspace *w, workspace_use use) {
    arena taken = {.pool = w ? w->pool : NULL};
    for (int i = 0; w && i < PLACES; i++) {
        arena *a = atomic_exchange(&w->place[use][i], NULL);
        if (!a) continue;
        taken = *a;
        free(a);
        break;
    }
    return taken;
}

void workspace_give(workspace *w, workspace_use use, arena *a) {
    arena_reset(a);
    arena *kept = w && a->spare ? malloc(sizeof *kept) : NULL;
    if (kept) {
        *kept = *a;
        *a = (arena){0};
        for (int i = 0; i < PLACES; i++) {
            arena *none = NULL;
            if (atomic_compare_exchange_strong(&w->place[use][i], &none, kept)) return;
        }
        *a = *kept;
        free(kept);
    }
    arena_free(a);
}

static void release(void *x) {
    owner *o = x;
    workspace_give(o->from, WORKSPACE_PLAN, &o->tables);
    workspace_release(o->from);
    free(o);
}

bool workspace_own(workspace *w, arena *a, fcp_plan *plan) {
    owner *o = malloc(sizeof *o);
    if (!o) return false;
    *o = (owner){*a, w};
    *a = (arena){0};
    if (w) atomic_fetch_add(&w->holders, 1);
    plan->owner = o;
    plan->release = release;
    return true;
}
