/* tables.h: shared by the machines that run kernels (fibers and ptx): the tables that all launches of a plan read,
 * memory for locks and for parts of rows, which grows, and the launch parameters that follow from a work list. */
#ifndef MACHINES_TABLES_H
#define MACHINES_TABLES_H
#include <stdlib.h>
#include <string.h>

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
    t->arrays = calloc(plan->sequences_count * plan->arrays_count + 1, sizeof *t->arrays);
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

/* How many words a list of rows needs: for running states of parts, and behind these for counters. */
typedef struct part_words {
    uint32_t states, all;
} part_words;

/* Fills the parameters of a launch for a list of rows, and gives it memory: NaN as states of parts, 0 as counters.
 * False: there is no memory. */
static inline bool tables_rows(const fcp_worklists *w, machine_room *room, fk_launch *launch, part_words *out) {
    const uint32_t counters = (uint32_t)fcp_worklists_counters(w), states = (uint32_t)(w->split_bytes / 4);
    *out = (part_words){states, states + counters};
    if (out->all && !room_for(room, out->all)) return false;
    if (states) memset(room->at, 0xff, states * sizeof *room->at); /* NaN */
    if (counters) memset(room->at + states, 0, counters * sizeof *room->at);
    launch->splits = (uintptr_t)room->at;
    launch->counter = counters ? (uintptr_t)(room->at + states) : 0;
    launch->items = (uintptr_t)w->rows;
    launch->runs = (uintptr_t)w->key_runs;
    launch->item_count = w->row_count;
    launch->subs = w->single;
    return true;
}

/* After the launch: checks that all counters are 0 again. */
static inline fcp_code tables_rows_ended(const machine_room *room, const part_words *words, fcp_error *err) {
    for (uint32_t i = words->states; i < words->all; i++)
        if (room->at[i]) return fcp_fail(err, FCP_E_INTERNAL, "counter %u is not 0 again", i - words->states);
    return FCP_OK;
}

/* The launch that joins the parts of rows whose heads share tiles (fk_combine). */
static inline fk_launch tables_merges(const fcp_worklists *w, const fk_launch *rows) {
    fk_launch merge = *rows;
    merge.items = (uintptr_t)w->merges;
    merge.item_count = w->merge_count;
    return merge;
}

/* Fills the parameters of a launch for a list of keys, and gives it locks if pieces take turns, and a counter behind
 * them, all 0. Returns how many words these are; 0: there is no memory. */
static inline uint32_t tables_keys(const fcp_worklists *w, machine_room *room, bool turns, fk_launch *launch) {
    const uint32_t words = (turns ? (uint32_t)fcp_worklists_lock_words(w->lock_count, launch->heads) : 0) + 1;
    if (!room_for(room, words)) return 0;
    memset(room->at, 0, words * sizeof *room->at);
    launch->locks = turns ? (uintptr_t)room->at : 0;
    launch->counter = (uintptr_t)(room->at + words - 1);
    launch->items = (uintptr_t)w->keys;
    launch->runs = (uintptr_t)w->row_runs;
    launch->item_count = w->key_count;
    launch->subs = w->subs;
    return words;
}
#endif
