/* job.c: the begin and the end of a choice: the profile, what is given back, and what is chosen.
 *
 * Requires: a program that leaves something to choose, and a batch.
 * Gives: a job without candidates; at the end the settings of the candidate that was chosen.
 */
#include "compiler/auto/auto.h"

#include <string.h>

fcp_code auto_open(auto_job *j, const auto_passes *passes, const struct fcpc_program *program, const fcpc_batch *batch,
                   const volatile int *stop, diags *d, const problem_kept *kept, auto_report *report) {
    *j = (auto_job){.passes = passes, .program = program, .batch = batch, .stop = stop, .report = report,
                    .best = FCP_NONE, .kept = {.outlook = kept->outlook}};
    fcp_error err = {0};
    fcp_code code = FCP_OK;
    if (program->profile) j->profile = *program->profile;
    else code = sim_profile_of(&program->cluster, &j->profile, &err);
    if (code) diag_error(d, code, SPAN_NONE, "%s", err.message);
    else memcpy(report->profile, j->profile.name, sizeof report->profile);
    return code;
}

void auto_take(auto_job *j, uint32_t n, struct fcpc_program *out_settings) {
    j->report->chosen = n;
    j->report->at[n].end = AUTO_CHOSEN;
    auto_apply(j->program, &j->report->at[n], out_settings);
}

fcp_code auto_close(auto_job *j, fcp_code code, problem_kept *out_kept) {
    auto_forget(j, out_kept);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED || code == FCP_E_PROFILE ? code : FCP_OK;
}
