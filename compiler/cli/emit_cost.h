/* emit_cost.h: what `fcpc emit --cost` prints: what one step of each kernel of a cubin costs, that is, one turn of its
 * main loop (codegen/cost/cost.h). */
#ifndef FCPC_CLI_EMIT_COST_H
#define FCPC_CLI_EMIT_COST_H
#include "codegen/cost/cost.h"
#include "compiler/cli/cmd.h"
#include "runtime/worklists/fuse.h"
#include "runtime/jit/nvrtc.h"

/* Disassembles a cubin, made of `source` with line info, and reads its costs; the caller ends them with cost_free. */
fcp_code cost_of_cubin(const char *arch, const char *source, const fcp_cubin *cubin, cost_report *out, fcp_error *err);
/* Kernels that compute stage by stage, to compare fused passes with. `fused` has the totals of each fused pass. */
typedef struct cost_stages {
    unsigned passes; /* bit per fcp_pass: the fused ones */
    const cost_report *report;
    const fcp_cubin *cubin;
    const fcp_fusion_totals *fused;
} cost_stages;
/* Adds the report as text, with what the plan's kernels do with short queries. stages: NULL, if no pass is fused. */
void cost_table(const char *arch, const fcp_plan *plan, const cost_report *report, const fcp_cubin *cubin,
                const cost_stages *stages, text *out);
/* Adds what the report says of a kernel to its object. */
void cost_json(json *j, const cost_report *report, const char *kernel);
/* Adds the comparison with passes by stages. */
void cost_json_stages(json *j, const fcp_plan *plan, const cost_stages *stages);
#endif
