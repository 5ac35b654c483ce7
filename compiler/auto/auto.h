/* auto.h: strategy = auto: plans a batch in several ways, predicts how long each takes, and keeps the fastest.
 *
 * Example: a batch in contiguous layout on 64 ranks. fcp would take 58 ms, for its tokens must be brought home. cad
 * takes 30 ms with a tolerance of 0.02 and 28 ms with 0.1. Zigzag is not even planned: all that its ranks would fetch
 * takes 170 ms on the wires. So the plan is cad's, with a tolerance of 0.1.
 *
 * Candidates are planned by the passes of compiler/compile.c, which stands above this room and lends them.
 *
 * Units: times in picoseconds, of both passes together; as predicted by compiler/simulate.
 */
#ifndef FCPC_AUTO_AUTO_H
#define FCPC_AUTO_AUTO_H
#include "compiler/auto/report.h"
#include "compiler/place/strategies.h"
#include "compiler/simulate/simulate.h"

/* The passes, in three stretches: up to the placement; routes and the reshuffle; up to a plan,
 * which is not verified. */
typedef enum auto_stretch { AUTO_PLACE, AUTO_ROUTE, AUTO_PLAN } auto_stretch;
typedef struct auto_passes {
    void (*begin)(planning *x, const struct fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                  diags *d);
    fcp_code (*run)(planning *x, auto_stretch which);
    void (*end)(planning *x);
} auto_passes;

/* Tries candidates. *out_settings: a copy of the program with the settings of the best one, by which it is then planned
 * as any program is. Errors that are the batch's, and of the first candidate where none can be planned, are left to
 * that planning to report: then *out_settings are the first candidate's.
 * FCP_E_NO_MEMORY, FCP_E_INTERRUPTED, FCP_E_PROFILE.
 * Cost: for each candidate that is not ruled out by its bound a planning without proof, and a prediction. */
fcp_code auto_choose(const auto_passes *passes, const struct fcpc_program *program, const fcpc_batch *batch,
                     const volatile int *stop, diags *d, struct cells **kept, struct fcpc_program *out_settings,
                     auto_report *report);

/* --- inside the room ---------------------------------------------------------------------------------------------- */

/* bounds.c. What no plan with the placement and the routes of x can beat; *out_memory: bytes that its fullest rank
 * needs at least, *out_rank. FCP_E_NO_MEMORY. Cost: O(parts + hops + bundles + ranks). */
fcp_code auto_bound_routes(planning *x, const sim_profile *profile, auto_bounds *out, uint64_t *out_memory,
                           uint32_t *out_rank);

/* What a mask allows in each sequence, of which a planning has found out. */
typedef struct auto_pairs {
    uint64_t *of, *queries, *keys; /* per sequence */
    uint32_t sequences;
} auto_pairs;
/* FCP_E_NO_MEMORY. Cost: O(parts). */
fcp_code auto_count_pairs(const planning *x, arena *memory, auto_pairs *out);
/* What no plan can beat that cuts every sequence into `even` chunks a rank. */
void auto_bound_even(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs, uint32_t even,
                     auto_bounds *out);
#endif
