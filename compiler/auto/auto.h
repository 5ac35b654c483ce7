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

/* For each sequence, how many pairs the mask allows, and how many queries and keys there are. The first planning finds
 * that out. */
typedef struct auto_pairs {
    uint64_t *of, *queries, *keys; /* per sequence */
    uint32_t sequences;
} auto_pairs;

typedef struct auto_trial auto_trial;
typedef struct auto_job {
    const struct fcpc_program *program;
    const fcpc_batch *batch;
    const volatile int *stop;
    diags *d;          /* of the caller */
    problem_kept kept; /* what the mask has answered; it answers one planning at a time */
    sim_profile profile;
    auto_report *report;
    auto_pairs pairs;    /* of NULL: not known yet */
    uint64_t beside;     /* work of the first two candidates, where the budget left no room to try both at a time */
    uint32_t best;       /* FCP_NONE: none has been predicted */
    sim_room room[2];
    auto_trial *base;    /* a planning with the best candidate's placement; NULL: none */
    auto_trial *rival;   /* another strategy's planning, if it is nearly as fast; NULL: none */
    arena memory;        /* of result */
    sim_result result;   /* the best candidate's */
} auto_job;

/* A candidate while it is planned and predicted. */
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

/* Is the candidate judged by the lengths of sequences, before it is planned? */
static inline bool auto_is_judged(const auto_candidate *c) {
    return c->even || strategy_facts_of[c->strategy].packs_sequences;
}

/* candidates.c. Fills the report with the candidates that are tried first, and leaves room for `more` that are found
 * later. *out_middle: the size of blocks that is tried first. */
fcp_code auto_list(auto_job *j, uint32_t more, uint32_t *out_middle);
/* Do tokens stay where the caller holds them? */
bool auto_keeps_homes(const auto_job *j, const auto_candidate *c);
/* Is the candidate one of a line marked `spare` (candidates.c)? Such a one needs less memory and seldom wins. Effort 1
 * tries it only if nothing else can be planned. */
bool auto_is_spare(const auto_candidate *c);

/* budget.c. Sets the budget: what the program states, or the usual one. */
void auto_set_budget(auto_job *j);
/* About how much work it is to plan and predict the candidate. 0: it cannot be planned. */
uint64_t auto_estimate(const auto_job *j, const auto_candidate *c);
/* Where the batch is large, puts candidates of the list that take less work before those that take more: from first to
 * end - 1, all sizes of a line together. */
enum { AUTO_LISTED = 256 };
void auto_order(auto_job *j, uint32_t first, uint32_t end);
/* May so much more work be done? If not, the budget is spent from now on. The first candidate that can be planned may
 * exceed it; beside: this is not the first, but one that is tried beside it. */
bool auto_may_spend(auto_job *j, uint64_t work, bool beside);
/* Counts the work of a trial, as far as it came. */
void auto_count_work(auto_trial *t);
/* Notes the first candidate that was planned: the usual budget grows with its work. Warns if it alone exceeds a budget
 * that the program states. */
void auto_note_first(auto_job *j);

/* sizes.c. Tries sizes of blocks with the strategy that the program names. */
fcp_code auto_try_sizes(auto_job *j);
/* The lengths of the batch's sequences on one side. NULL: there are none. */
const uint64_t *auto_lengths(const struct fcpc_program *g, const fcpc_batch *batch, fcp_side side, size_t *count);
/* The size of blocks that is tried first: 2K tokens. In a small batch it is less: so small that every rank would still
 * get eight blocks of twice the size. It is never below BLOCK_LEAST. */
uint32_t auto_middle_size(const struct fcpc_program *g, const fcpc_batch *batch);

/* trial.c. *out becomes the program with a candidate's settings. False: its heads do not divide among the ranks. */
bool auto_apply(const struct fcpc_program *g, const auto_candidate *c, struct fcpc_program *out);
/* The value of a parameter that the candidate is planned with. If a second strategy divides the batch, as dcp does in
 * ulysses + dcp, it is that strategy's parameter. */
uint32_t auto_value(const struct fcpc_program *g, const auto_candidate *c, uint32_t param);
uint64_t auto_best_time(const auto_job *j);
/* Is this effort 1, and has the best candidate so many tiles (HEAVY_TILES) that what seldom gains is left out? */
bool auto_is_hasty(const auto_job *j, uint32_t effort);
/* Does it belong to another strategy than the best candidate, and take at most RIVAL_PERCENT of the best time? */
bool auto_is_rival(const auto_job *j, const auto_candidate *c);
/* Plans and predicts candidates n[0] to n[count - 1], two at most, unless their bounds rule them out. Two may run at
 * the same time. Each is compared with the candidate that was the best before the call. */
fcp_code auto_try(auto_job *j, const uint32_t *n, uint32_t count);
/* Begins a trial that shares blocks, tiles and placement with `of`, but has its own settings, t->settings. Errors:
 * t->code. */
void auto_derive(auto_job *j, auto_trial *t, const auto_trial *of);
/* Routes, schedules and predicts at most two trials that have a placement, at the same time if there is a second
 * thread. t->made receives the outcome of each. Errors: t->code. */
void auto_predict(auto_trial *t, uint32_t count);
void auto_finish(auto_trial *t);
/* Frees what the job holds, but for the mask's answers: *out_kept receives them, and the caller frees them. */
void auto_forget(auto_job *j, problem_kept *out_kept);
/* What candidates are compared by: the time of both passes; of a layer, if the program says what the rest of it takes. If
 * it has layers that recur, what they take is shared out among the layers of its mask. */
uint64_t auto_time(const struct fcpc_program *program, const sim_result *r);
/* The pass that takes longer. */
static inline const sim_pass *auto_longer(const sim_result *r) {
    return &r->pass[r->pass[FCP_BACKWARD].makespan > r->pass[FCP_FORWARD].makespan ? FCP_BACKWARD : FCP_FORWARD];
}
/* What takes most of this rank's time: computing, one of its ports, or waiting for rounds. */
auto_resource auto_keeps(const sim_rank *r);

/* search.c. Tries neighbours of the best candidate, at most `budget` of them; if some gain much, up to `most`. */
fcp_code auto_search(auto_job *j, uint32_t effort, uint32_t budget, uint32_t most);

/* A neighbour that the search would try early and that takes little to plan, because it has the placement of the best
 * candidate or of the rival. FCP_NONE: there is none. */
uint32_t auto_neighbour(auto_job *j, uint32_t effort);

/* local_search.c. Moves rows and blocks of the best candidate between ranks; report->moves receives the result. It
 * tries at most `budget` placements; if some gain, up to `most`. */
fcp_code auto_move(auto_job *j, uint32_t budget, uint32_t most);

/* time_bounds.c. *out: a time that no plan with the placement and the routes of x can beat. *out_memory: bytes that the
 * fullest rank, *out_rank, needs at least. Fails with FCP_E_NO_MEMORY. Cost: O(parts + hops + bundles + ranks). */
fcp_code auto_bound_routes(planning *x, const sim_profile *profile, sim_counts *counts, auto_bounds *out,
                           uint64_t *out_memory, uint32_t *out_rank);
/* For each tile, the time of its cells in all heads, on the SMs that the margin leaves. Fails with FCP_E_NO_MEMORY. */
fcp_code auto_tile_times(const problem *p, const sim_model *m, sim_counts *counts, arena *scratch, uint64_t *time);

/* How long it takes to bring all tokens to their homes and the results back, if homes are chosen without regard to the
 * layout: of n ranks, each then keeps only the n-th part of its tokens. 0: not known. */
uint64_t auto_homecoming(const planning *x, const sim_profile *profile);
/* Fills *out from the tiles of x. Fails with FCP_E_NO_MEMORY. Cost: O(parts). */
fcp_code auto_count_pairs(const planning *x, arena *memory, auto_pairs *out);
/* *out: a time that no plan can beat that cuts every sequence into `even` equal chunks for each rank. */
void auto_bound_even(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs, uint32_t even,
                     auto_bounds *out);
/* *out: a time that no plan by the strategy groups can beat with the program's settings; zeros if it cannot make its
 * groups. Fails with FCP_E_NO_MEMORY. Cost: sorting the sequences. */
fcp_code auto_bound_groups(const struct fcpc_program *g, const sim_profile *profile, const auto_pairs *pairs,
                           auto_bounds *out);
#endif
