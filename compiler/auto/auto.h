/* auto.h: strategy = auto: plans a batch in several ways, predicts how long each plan takes, and keeps the fastest.
 *
 * Example: a batch in contiguous layout on 64 ranks. First the list (candidates.c) is tried. fcp would take 58 ms,
 * because all tokens must be brought to other homes and back. cad takes 30 ms with a tolerance of 0.02, and 28 ms with
 * 0.1. Zigzag is not even planned: what its ranks would fetch takes 170 ms on the network. So cad(tolerance = 0.1) is
 * the best. Then its neighbours are tried (search.c): with coalesce = 32 it takes 27 ms. Then work is moved
 * (local_search.c): rank 12 ends last, because it waits for results that other ranks compute for it. It computes some
 * of these rows itself, and the plan takes 26 ms.
 *
 * Units: times are in picoseconds, of both passes together, as compiler/simulate predicts them.
 */
#ifndef FCPC_AUTO_AUTO_H
#define FCPC_AUTO_AUTO_H
#include "compiler/auto/report.h"
#include "compiler/auto/auto_tuning.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "compiler/simulate/cost_model.h"

/* Tries candidates. *out_settings becomes a copy of the program with the settings of the best candidate; the caller
 * then plans it like any program. If a placement was found that is faster than the strategy's own, report->moves holds
 * it. If the program names its strategy and leaves only the size of blocks open (block = auto), only sizes are tried.
 *
 * *kept receives the answers of the mask, which save time when the caller plans. The caller frees it, even after an
 * error.
 *
 * If no candidate can be planned, *out_settings has the settings of the first one, and the function returns FCP_OK: the
 * caller's planning will then report the error. Other codes: FCP_E_NO_MEMORY, FCP_E_INTERRUPTED, FCP_E_PROFILE.
 * Cost: a planning without proof and a prediction for each candidate, unless its bound rules it out. */
fcp_code auto_choose(const struct fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                     problem_kept *kept, struct fcpc_program *out_settings, auto_report *report);

/* --- inside the room ---------------------------------------------------------------------------------------------- */

/* What a mask allows in each sequence, of which a planning has found out. */
typedef struct auto_pairs {
    uint64_t *of, *queries, *keys; /* per sequence */
    uint32_t sequences;
} auto_pairs;

typedef struct auto_trial auto_trial;
typedef struct auto_job {
    const struct fcpc_program *program;
    const fcpc_batch *batch;
    const volatile int *stop;
    problem_kept kept; /* what the mask has answered; it answers one planning at a time */
    sim_profile profile;
    auto_report *report;
    auto_pairs pairs;    /* of NULL: not known yet */
    uint32_t best;       /* FCP_NONE: none has been predicted */
    sim_room room[2];
    auto_trial *base;    /* a planning with the best candidate's placement; NULL: none */
    auto_trial *rival;   /* another strategy's planning, if it is nearly as fast; NULL: none */
    arena memory;        /* of result */
    sim_result result;   /* the best candidate's */
} auto_job;

/* A candidate under way. */
struct auto_trial {
    auto_job *job;
    auto_candidate *made;
    uint64_t limit; /* the time that is to be beaten */
    struct fcpc_program settings;
    fcpc_diagnostics *d;
    planning x;
    problem problem;     /* x.problem and x.placement of one that is derived */
    placement placement;
    auto_trial *of;       /* it is derived from it; NULL: it is not derived */
    bool placed;          /* it has its placement */
    bool routed;          /* it has its routes, and its bounds */
    bool ready;                  /* its placement, if it has none, routes, schedule and prediction are to come */
    fcp_code code;
    sim_room *room;    /* its thread's */
    sim_counts own, *counts; /* of the problem's shapes: its own, or of the one that it is derived from */
    arena memory;      /* of result */
    sim_result result; /* if it was predicted */
};

/* candidates.c. Fills the report with the candidates that are tried first, and leaves room for `more` that are found
 * later. *out_middle: the size of blocks that is tried first. */
fcp_code auto_list(auto_job *j, uint32_t more, uint32_t *out_middle);
/* Do tokens stay where the caller holds them? */
bool auto_keeps_homes(const auto_job *j, const auto_candidate *c);
/* Is it tried by effort 1 only if nothing else can be planned? It needs less memory, and seldom wins. */
bool auto_is_spare(const auto_candidate *c);

/* sizes.c. Tries sizes of blocks with the strategy that the program names. */
fcp_code auto_try_sizes(auto_job *j);
/* The size of blocks that is tried first: 2K tokens. In a small batch it is less, so that every rank has eight blocks
 * of twice the size; it is BLOCK_LEAST or more. */
uint32_t auto_middle_size(const struct fcpc_program *g, const fcpc_batch *batch);

/* trial.c. The program with a candidate's settings. False: its heads do not divide among the ranks. */
bool auto_apply(const struct fcpc_program *g, const auto_candidate *c, struct fcpc_program *out);
/* What a parameter of the strategy is that divides the candidate's batch. */
uint32_t auto_value(const struct fcpc_program *g, const auto_candidate *c, uint32_t param);
uint64_t auto_best_time(const auto_job *j);
/* Is it effort 1, and does the best candidate take long to plan? */
bool auto_is_hasty(const auto_job *j, uint32_t effort);
/* Is it another strategy's than the best one's, and nearly as fast as that? */
bool auto_is_rival(const auto_job *j, const auto_candidate *c);
/* Plans and predicts the candidates with the numbers n[0] to n[count - 1], two at most, unless their bounds rule them
 * out. Two may run at the same time. Both are compared with the candidate that was best before. */
fcp_code auto_try(auto_job *j, const uint32_t *n, uint32_t count);
/* Begins a planning with t->settings and the placement of `of`, and the same blocks and tiles. Errors: t->code. */
void auto_derive(auto_job *j, auto_trial *t, const auto_trial *of);
/* Makes routes, schedule and prediction of at most two trials that have a placement, at the same time if there is a
 * second thread. t->made learns what becomes of each. Errors: t->code. */
void auto_predict(auto_trial *t, uint32_t count);
void auto_finish(auto_trial *t);
/* Frees what it has; *out_kept: what the mask answered, which is now the caller's. */
void auto_forget(auto_job *j, problem_kept *out_kept);
static inline uint64_t auto_time(const sim_result *r) {
    return r->pass[FCP_FORWARD].makespan + r->pass[FCP_BACKWARD].makespan;
}
/* The pass that takes longer. */
static inline const sim_pass *auto_longer(const sim_result *r) {
    return &r->pass[r->pass[FCP_BACKWARD].makespan > r->pass[FCP_FORWARD].makespan ? FCP_BACKWARD : FCP_FORWARD];
}
/* What keeps a rank of that pass. */
auto_resource auto_keeps(const sim_rank *r);

/* search.c. Tries at most `budget` neighbours of the best candidate, and up to `most` as long as they gain much. */
fcp_code auto_search(auto_job *j, uint32_t effort, uint32_t budget, uint32_t most);

/* One of the first neighbours that the search would try, with the placement of the best candidate or of its rival;
 * FCP_NONE: there is none. */
uint32_t auto_neighbour(auto_job *j, uint32_t effort);

/* local_search.c. Moves rows and blocks of the best candidate: report->moves. It tries at most `budget` placements, and
 * up to `most` as long as they gain. */
fcp_code auto_move(auto_job *j, uint32_t budget, uint32_t most);

/* time_bounds.c. A time that no plan with the placement and the routes of x can beat. *out_memory: bytes that its
 * fullest rank, *out_rank, needs at least. FCP_E_NO_MEMORY. Cost: O(parts + hops + bundles + ranks). */
fcp_code auto_bound_routes(planning *x, const sim_profile *profile, sim_counts *counts, auto_bounds *out,
                           uint64_t *out_memory, uint32_t *out_rank);
/* The time of each tile's cells, all heads together, on the SMs that the margin leaves. FCP_E_NO_MEMORY. */
fcp_code auto_tile_times(const problem *p, const sim_model *m, sim_counts *counts, arena *scratch, uint64_t *time);

/* The time that it takes to bring tokens to homes that are chosen without a look at the layout, and the results back:
 * of n ranks, each keeps only the n-th part of its tokens. 0: not known. */
uint64_t auto_homecoming(const planning *x, const sim_profile *profile);
/* FCP_E_NO_MEMORY. Cost: O(parts). */
fcp_code auto_count_pairs(const planning *x, arena *memory, auto_pairs *out);
/* A time that no plan can beat that cuts every sequence into `even` chunks a rank. */
void auto_bound_even(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs, uint32_t even,
                     auto_bounds *out);
/* A time that no plan by the strategy groups can beat, with the program's settings. Zeros: it cannot make its groups.
 * FCP_E_NO_MEMORY. Cost: sorting the sequences. */
fcp_code auto_bound_groups(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs,
                           auto_bounds *out);
#endif
