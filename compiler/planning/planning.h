/* planning.h: what the passes share while one batch is planned.
 *
 * Every pass is a function fcp_code PASS(planning *x). It reads what earlier passes have left in x, adds its own part,
 * and reports what is wrong to x->d. If it fails, it returns the code, and its part may stay NULL.
 *
 * Memory has three lifetimes:
 *   memory   what the plan keeps; it becomes the plan's
 *   work     what later passes read; it lives until the planning ends
 *   scratch  what a pass needs for itself; it is emptied after every pass
 * If a pass does two things at the same time, the second has arenas of its own (pair.h).
 */
#ifndef FCPC_PLANNING_H
#define FCPC_PLANNING_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/sema/strategies.h"
#include "runtime/base/stop.h"
#include "runtime/plan/records.h"

/* The arenas of a second thread. */
typedef struct aside {
    arena work, scratch;
} aside;

typedef struct planning planning;
struct planning {
    const struct fcpc_program *program;

    /* the batch; borrowed from the caller or the program */
    const fcpc_batch *batch;
    const uint64_t *lengths; /* keys of each sequence */
    const uint64_t *queries; /* of each sequence; NULL: as many as keys */
    size_t count;

    const volatile int *stop; /* asked with planning_stopped; NULL: nobody stops this planning */
    diags *d;
    uint32_t shift;   /* of the program's sources in d */
    fcpc_times times;
    arena memory, work, scratch;
    aside *aside; /* copies of a planning share it; NULL: there is no second thread */

    bool trial; /* one of several candidates: nothing is looked for that would only be said to the user */
    bool alone; /* a trial, and no other is made at this time: it may use two threads */
    const struct strategy *strategy; /* in place of the program's; NULL: the program's (place/place.h) */
    /* the program's masks if all are to have the homes that are chosen here: passes/other_masks.h; NULL: only one */
    const struct other_masks *others;
    uint32_t block;    /* tokens of a block */
    uint32_t coalesce; /* independent rounds to a stage; 0: schedule_build finds out, from program->divisions */

    /* What deciding the mask will cost, once somebody has asked (problem/mask_time.c). */
    struct planning_outlook {
        bool known;
        uint64_t pairs, work; /* cells_outlook */
    } outlook;
    /* called once if it will take long, before it begins; or NULL */
    void (*soon)(void *context, const planning *x);
    void *soon_context;

    /* Where several plannings of one batch and mask keep what the mask answered, one planning at a time; NULL: this one
     * asks for itself. */
    struct problem_kept *kept;

    /* what the passes made, in the order they run; NULL: not yet */
    struct cells *cells;
    struct binding *binding;
    struct problem *problem;
    const uint64_t *second_half; /* pingpong: of each sequence the row at which its second half begins; else NULL */
    struct division *division; /* cad: who computes what, found before the blocks are cut */
    struct grouping *grouping; /* groups: which sequences share ranks, found before the blocks are cut */
    struct sharing *sharing;   /* ulysses, upipe: which heads are computed where and when */
    uint32_t *block_home; /* dcp: where blocks stay, found when they are cut; NULL: it chooses homes */
    const uint64_t **other_work; /* per mask, first this one: pairs of each block (passes/other_masks.c) */
    uint32_t *tile_rank; /* who computes each tile, where a strategy finds that while it finds homes */
    struct placement *placement;
    struct traffic *traffic;
    struct reshuffle *reshuffle;
    struct schedule *schedule;
    struct slots *slots;
    fcp_plan *plan;
    fcp_problem *facts; /* the plan's PROBLEM record */
};

/* Begins a planning of the batch by the program's strategy. What passes make lives until planning_end, except the plan,
 * which is the caller's. */
void planning_begin(planning *x, const struct fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                    diags *d);
/* Gives back the scratch arenas. After that no pass may run on x, but what passes have made can still be read. */
void planning_rest(planning *x);
void planning_end(planning *x);
fcp_code planning_own(planning *x); /* the pass that makes the plan the owner of its tables' memory */

static inline bool planning_stopped(const planning *x) { return fcp_stop_asked(x->stop); }

/* Should a loop end early? Looks at x->stop at every 1024th index, from 0. */
static inline bool planning_stopped_at(const planning *x, uint64_t index) {
    return !(index & 1023) && fcp_stop_asked(x->stop);
}

/* A place in the program as x->d numbers it. */
static inline span planning_span(const planning *x, span at) {
    if (at.source != SPAN_NONE.source) at.source += x->shift;
    return at;
}

/* The place to show if a batch is too large for a plan: the size of blocks if the program states one, otherwise the
 * lengths. */
static inline span planning_size_span(const planning *x) {
    const struct fcpc_program *g = x->program;
    return g->at[AT_BLOCK].source != SPAN_NONE.source ? g->at[AT_BLOCK] : g->at[AT_LENGTHS];
}

/* Reports an error at a place of the program and returns its code: return planning_fail(x, FCP_E_LENGTHS, ...). */
#define planning_fail(x, code, at, ...)                                                                                \
    (diag_error((x)->d, (code), planning_span((x), (at)), __VA_ARGS__), (fcp_code)(code))
#endif
