/* recurrent_plan.h: gives a compiled plan layers that recur, as if its program had them, for tests that need no program
 * with such layers. */
#ifndef RECURRENT_PLAN_H
#define RECURRENT_PLAN_H
#include <stdlib.h>

#include "compiler/recurrent/recurrent_make.h"
#include "runtime/plan/plan_index.h"

/* What such a plan owns beside its tables. */
typedef struct recurrent_owner {
    arena memory;
    void *owner;
    void (*release)(void *owner);
} recurrent_owner;

static inline void recurrent_release(void *owner) {
    recurrent_owner *o = owner;
    if (o->release) o->release(o->owner);
    arena_free(&o->memory);
    free(o);
}

/* Adds `count` kinds of layers, of which what a program states is filled in. Its sequences have as many queries as
 * keys. */
static inline void recurrent_give(fcp_plan *plan, const fcp_recurrent *layers, uint32_t count) {
    recurrent_owner *o = calloc(1, sizeof *o);
    arena scratch = {0};
    recurrent_tables t;
    if (!o || recurrent_make(plan, layers, count, &o->memory, &scratch, NULL, &t)) abort();
    arena_free(&scratch);
    o->owner = plan->owner;
    o->release = plan->release;
    plan->owner = o;
    plan->release = recurrent_release;
    plan->recurrent = t.recurrent, plan->recurrent_count = t.recurrent_count;
    plan->step_streams = t.step_streams, plan->step_streams_count = t.step_streams_count;
    plan->steps = t.steps, plan->steps_count = t.steps_count;
    plan->halo_rows = t.halo_rows, plan->halo_rows_count = t.halo_rows_count;
    if (fcp_plan_index(plan, NULL)) abort();
}
#endif
