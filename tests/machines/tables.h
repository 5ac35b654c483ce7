/* tables.h: what the machines keep for launches: what all launches of a plan read, and room that grows for locks and
 * for parts of rows. */
#ifndef MACHINES_TABLES_H
#define MACHINES_TABLES_H
#include <stdlib.h>

#include "runtime/worklists/worklists.h"

typedef struct plan_tables {
    fk_sequence *sequences;
    fk_u64 *arrays;
    fk_bands *bands;
    void *data;
    float *sinks;
} plan_tables;

static inline void tables_free(plan_tables *t) {
    free(t->sequences);
    free(t->arrays);
    free(t->bands);
    free(t->data);
    free(t->sinks);
}

/* False: there is no memory; tables_free frees what was made. The plan outlives the tables, which name its bands. */
static inline bool tables_make(const fcp_plan *plan, plan_tables *t) {
    t->sequences = calloc(plan->sequences_count + 1, sizeof *t->sequences);
    t->arrays = calloc(plan->arrays_count + 1, sizeof *t->arrays);
    t->bands = calloc(plan->slices_count + 1, sizeof *t->bands);
    t->data = malloc(plan->data_count + 1);
    t->sinks = calloc(fcp_launch_sink_count(plan) + 1, sizeof *t->sinks);
    if (!t->sequences || !t->arrays || !t->bands || !t->data || !t->sinks) return false;
    fcp_launch_sequences(plan, t->sequences);
    fcp_launch_data(plan, t->data);
    fcp_launch_arrays(plan, (uintptr_t)t->data, t->arrays);
    fcp_launch_bands(plan, (uintptr_t)plan->band_rows, (uintptr_t)plan->bands, t->bands);
    fcp_launch_sinks(plan, t->sinks);
    return true;
}

/* Tells a launch for a range of heads where they are. */
static inline void tables_tell(const plan_tables *t, const fcp_plan *plan, uint32_t range, fk_launch *launch) {
    launch->sequences = (uintptr_t)t->sequences;
    launch->arrays = (uintptr_t)t->arrays;
    launch->bands = (uintptr_t)t->bands;
    launch->sinks = fcp_launch_sinks_of(plan, (uintptr_t)t->sinks, range);
}

typedef struct machine_room {
    uint32_t *at; /* locks, and after them the counter; or parts of rows that are not yet put together */
    uint32_t words;
} machine_room;

/* Makes room for so many words. What was in it is lost. False: there is no memory. */
static inline bool room_for(machine_room *room, uint32_t words) {
    if (words <= room->words) return true;
    free(room->at);
    room->at = malloc(words * sizeof *room->at);
    room->words = room->at ? words : 0;
    return room->at != NULL;
}
#endif
