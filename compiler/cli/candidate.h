/* candidate.h: what `fcpc sim` predicts of one candidate: a plan, or a program with some settings changed. */
#ifndef FCPC_CLI_CANDIDATE_H
#define FCPC_CLI_CANDIDATE_H
#include "compiler/cli/cmd.h"
#include "compiler/show/summary.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan_summary.h"

/* The prediction of one pass. */
typedef struct candidate_pass {
    bool there;          /* does the plan have the pass? */
    sim_pass sim;        /* makespan, bounds, exposed times and bytes */
    uint64_t largest;    /* of the bounds */
    double compute, mfu; /* compute: the busiest rank's compute over the mean */
    double least, most;  /* the range of makespans of the random runs, in seconds */
} candidate_pass;

/* The prediction of one candidate. */
typedef struct candidate {
    fcp_error error; /* why it could not be planned or predicted; code 0: it could */
    fcpc_diagnostics *diagnostics; /* of a candidate that could not be planned; the caller frees it */
    fcp_summary summary;
    candidate_pass pass[FCP_PASSES];
} candidate;

/* A function that is called with each plan that was predicted, the prediction, and its options, while the plan still
 * exists. */
typedef fcp_code candidate_shown(void *context, const fcp_plan *plan, const sim_profile *profile,
                                 const sim_options *options, const sim_result *result, fcp_error *err);

/* How candidates are predicted. */
typedef struct candidate_how {
    const cmd_line *line;
    sim_options options; /* all but noise and seed */
    uint64_t noise;      /* percent */
    uint64_t seeds;      /* how many random runs are made besides; 0: none */
    candidate_shown *shown; /* gets each plan of candidate_predict_all; NULL: none is shown */
    void *context;          /* handed to shown */
} candidate_how;

/* The profile of --profile, or of the plan's gpu. */
fcp_code candidate_profile(const cmd_line *line, const fcp_plan *plan, sim_profile *out, fcp_error *err);
/* Predicts all plans of the input. *out is their sum, as layers of a model run one after the other. out_each, unless
 * NULL, has room for the prediction of each. *out_result is that of the last plan, and points into `memory`. */
fcp_code candidate_predict_all(const candidate_how *how, const cmd_input *input, const sim_profile *profile,
                               arena *memory, candidate *out, candidate *out_each, sim_result *out_result,
                               fcp_error *err);
/* Plans and predicts the program that `opened` has open, with `count` more settings, each a NAME and a VALUE. An error
 * of this candidate is stored in out->error; errors of the command line, of memory and of the profile are returned.
 * Warnings of the program are not printed. */
fcp_code candidate_try(const candidate_how *how, const cmd_input *opened, const char *const (*settings)[2],
                       size_t count, sim_profile *out_profile, candidate *out, fcp_error *err);

/* Adds warnings to `d` about settings that the program's author may want to change. Each names a setting and says what
 * it would gain (advice.c). `opened` is as for candidate_try. */
fcp_code candidate_advise(const candidate_how *how, const cmd_input *opened, const fcp_plan *plan,
                          const sim_profile *profile, const candidate *own, fcpc_diagnostics *d, fcp_error *err);
/* The memory of each phase of a plan that computes some heads at a time (phase_memory.c): as text; and, for one pass,
 * as the member `phases` of the open object. For other plans they add nothing. */
fcp_code cmd_print_phases(const fcp_plan *plan, fcp_error *err);
fcp_code cmd_phases_json(json *j, const fcp_plan *plan, fcp_pass pass, fcp_error *err);
#endif
