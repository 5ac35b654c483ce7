/* candidate.h: what `fcpc sim` predicts of one candidate: a plan, or a program with some settings. */
#ifndef FCPC_CLI_CANDIDATE_H
#define FCPC_CLI_CANDIDATE_H
#include "compiler/cli/cmd.h"
#include "compiler/show/summary.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan_summary.h"

/* What was predicted. */
typedef struct candidate {
    fcp_error error; /* code 0: it was planned */
    fcpc_diagnostics *diagnostics; /* of one that was not; the caller frees it */
    fcp_summary summary;
    uint64_t memory_cap;
    struct {
        bool there; /* the plan has the pass, whatever it takes: a batch without tokens takes no time */
        uint64_t makespan, bound[SIM_BOUNDS], largest, exposed[SIM_REASONS], bytes[FCP_FABRICS];
        double compute, mfu; /* compute: of the busiest rank over the mean */
        double least, most;  /* makespans of all draws, in seconds */
    } pass[FCP_PASSES];
} candidate;

/* Is shown a plan that was predicted, with the options of the prediction, while they are there. */
typedef fcp_code candidate_shown(void *context, const fcp_plan *plan, const sim_profile *profile,
                                 const sim_options *options, const sim_result *result, fcp_error *err);

/* How candidates are predicted. */
typedef struct candidate_how {
    const cmd_line *line;
    sim_options options; /* without noise and seed */
    uint64_t noise;      /* percent */
    uint64_t seeds;      /* how many draws; 0: nothing is drawn but, for pulls, once */
    candidate_shown *shown; /* of candidate_predict_all; NULL: nobody looks */
    void *context;          /* of shown */
} candidate_how;

/* The profile of --profile, or of the plan's gpu. */
fcp_code candidate_profile(const cmd_line *line, const fcp_plan *plan, sim_profile *out, fcp_error *err);
/* Predicts all plans of the input, of a program with layers one after the other: *out is their sum, and out_each,
 * unless NULL, has room for each. What *out_result points to, of the last one, is in `memory`. */
fcp_code candidate_predict_all(const candidate_how *how, const cmd_input *input, const sim_profile *profile,
                               arena *memory, candidate *out, candidate *out_each, sim_result *out_result,
                               fcp_error *err);
/* Plans and predicts the program that `opened` has open, with settings beside those of the line: `count` times NAME and
 * VALUE. What is wrong with the candidate is in out->error; errors of the command line, of memory and of the profile
 * are returned. The program's own warnings are not printed. */
fcp_code candidate_try(const candidate_how *how, const cmd_input *opened, const char *const (*settings)[2],
                       size_t count, sim_profile *out_profile, candidate *out, fcp_error *err);

/* Warnings about what the program's author may regret, each with the setting that would help and what it would gain;
 * added to the diagnostics (advice.c). `opened` as for candidate_try. */
fcp_code candidate_advise(const candidate_how *how, const cmd_input *opened, const fcp_plan *plan,
                          const sim_profile *profile, const candidate *own, fcpc_diagnostics *d, fcp_error *err);
/* phase_memory.c. Of a plan whose blocks hold some heads: the memory of its phases, beside what the paper of UPipe counts; as
 * text, and as the member `phases` of the open object, for one pass. Of another plan nothing. */
fcp_code cmd_print_phases(const fcp_plan *plan, fcp_error *err);
fcp_code cmd_phases_json(json *j, const fcp_plan *plan, fcp_pass pass, fcp_error *err);
#endif
