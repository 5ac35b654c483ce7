/* emit_cost.c: `fcpc emit --cost`: prints what one step of each kernel costs, as a table or as JSON. A step is one turn
 * of a kernel's main loop.
 *
 * Requires: a cubin with line numbers of its source; nvdisasm.
 * Gives:    emit_cost.h. Each loop over steps has a row for FULL cells and one for PARTIAL cells: a warp's
 *           instructions, and for how many clocks they keep each unit of a quarter of an SM busy. Those that access
 *           shared memory stand in two columns.
 */
#include "compiler/cli/emit_cost.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/head_ranges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/show/model.h"
#include "runtime/jit/disassemble.h"
#include "runtime/worklists/worklists.h"

fcp_code cost_of_cubin(const char *arch, const char *source, const fcp_cubin *cubin, cost_report *out, fcp_error *err) {
    const cost_machine *machine = cost_machine_of(arch);
    char *listing = NULL, wrong[160];
    *out = (cost_report){0};
    if (!machine) return fcp_fail(err, FCP_E_ARCH, "--cost has no speeds of %.40s", arch);
    cmd_doing("disassembling kernels");
    fcp_code code = fcp_disassemble(cubin->bytes, cubin->size, &listing, err);
    if (!code && !cost_read(source, listing, machine, out, wrong))
        code = fcp_fail(err, FCP_E_LISTING, "what nvdisasm printed cannot be read: %s", wrong);
    cmd_done();
    free(listing);
    return code;
}

static const char *bound_name(const cost_counts *c) {
    cost_pipe p = cost_bound(c);
    return p == COST_PIPES ? "issue" : cost_pipe_names[p];
}

static void print_class(text *out, const char *name, const cost_counts *c) {
    text_printf(out, "  %-8s instructions", name);
    for (int p = 0; p < COST_PIPES; p++) text_printf(out, " %7" PRIu64, c->instructions[p]);
    text_printf(out, " %7" PRIu64 "  %" PRIu64 " waits, %" PRIu64 " arrivals, %" PRIu64 " fences", cost_issue(c),
                c->waits, c->arrivals, c->fences);
    if (c->elements) text_printf(out, ", %" PRIu64 " for elements", c->elements);
    if (c->bytes) text_printf(out, ", %" PRIu64 " bytes of global memory", c->bytes);
    if (c->unknown_loops) text_printf(out, "; %" PRIu64 " loops of unknown length, counted once", c->unknown_loops);
    text_printf(out, "\n  %-8s clocks      ", "");
    for (int p = 0; p < COST_PIPES; p++) text_printf(out, " %7" PRIu64, c->clocks[p]);
    text_printf(out, " %7" PRIu64 "  bound by %s\n", cost_issue(c), bound_name(c));
}

static void print_kernel(text *out, const cost_kernel *k, const fcp_cubin *cubin) {
    text_printf(out, "%s: %" PRIu32 " instructions", k->name, k->instructions);
    for (uint32_t i = 0; i < cubin->kernel_count; i++)
        if (strcmp(cubin->kernels[i].name, k->name) == 0)
            text_printf(out, ", %" PRIu32 " registers, %" PRIu32 " bytes spilled", cubin->kernels[i].registers,
                        cubin->kernels[i].spill_stores + cubin->kernels[i].spill_loads);
    if (*k->unknown) text_printf(out, "; instructions that are not known count as other, such as %s", k->unknown);
    if (!k->step_count) text_printf(out, "; no loop over steps");
    text_puts(out, "\n");
    for (uint32_t s = 0; s < k->step_count; s++) {
        text_printf(out, "  %-8s %-12s", "a step", "of a warp");
        for (int p = 0; p < COST_PIPES; p++) text_printf(out, " %7s", cost_pipe_names[p]);
        text_printf(out, " %7s\n", "issue");
        const cost_step *x = &k->steps[s];
        if (!memcmp(&x->of[COST_FULL], &x->of[COST_PARTIAL], sizeof x->of[0])) {
            print_class(out, "any", &x->of[COST_FULL]); /* small kernels compute FULL and PARTIAL cells alike */
            continue;
        }
        for (int class = 0; class < COST_CLASSES; class++)
            if (x->has[class]) print_class(out, cost_class_names[class], &x->of[class]);
    }
}

/* The launches of a pass that is computed stage by stage. */
typedef struct pass_cost {
    uint64_t launches;    /* on the rank with the most */
    uint64_t state_bytes; /* forward, of running state that launches write and later ones read, on all ranks, at most:
                           * rows that meet no key in a launch are left out there */
} pass_cost;

/* Bytes of a token's running state. */
static uint64_t state_row(const fcp_plan *plan) {
    return (uint64_t)fcp_range_heads(plan->problem) * (plan->problem->value_dim + 2) * sizeof(float);
}

static uint64_t state_bytes_of(const fcp_plan *plan, const fcp_visit *visit) {
    return plan->blocks[visit->q_block].tokens * state_row(plan) *
           (!(visit->flags & FCP_VISIT_FIRST) + !(visit->flags & FCP_VISIT_LAST));
}

static pass_cost cost_of_stages(const fcp_plan *plan, fcp_pass pass) {
    pass_cost out = {0, 0};
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        const fcp_stream *compute = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
        uint64_t launches = 0;
        for (uint32_t i = compute->first; i < compute->first + compute->count; i++) {
            const fcp_instr *x = &plan->instrs[i];
            if (x->op != FCP_OP_ATTEND) continue;
            for (uint32_t r = FCP_NONE; (r = fcp_launch_next_range(plan, x->a, x->b, r)) != FCP_NONE;) launches++;
            for (uint32_t v = x->a; pass == FCP_FORWARD && v < x->a + x->b; v++)
                out.state_bytes += state_bytes_of(plan, &plan->visits[v]);
        }
        if (launches > out.launches) out.launches = launches;
    }
    return out;
}

static void print_stages(text *out, const fcp_plan *plan, const cost_stages *stages) {
    text_printf(out, "by stages, to compare:\n");
    for (uint32_t i = 0; i < stages->report->count; i++) print_kernel(out, &stages->report->kernels[i], stages->cubin);
    for (int p = 0; p < FCP_PASSES; p++) {
        if (!(stages->passes >> p & 1)) continue;
        const pass_cost c = cost_of_stages(plan, (fcp_pass)p);
        text_printf(out, "  %s: %" PRIu64 " launches on the rank that has most, and as a pass %" PRIu64,
                    fcp_pass_names[p], c.launches, stages->fused[p].launches);
        if (p == FCP_FORWARD)
            text_printf(out, "; at most %" PRIu64 " bytes of running state written and read, and as a pass %" PRIu64,
                        c.state_bytes, stages->fused[p].state_tokens * state_row(plan));
        text_printf(out, "\n");
    }
}

void cost_table(const char *arch, const fcp_plan *plan, const cost_report *report, const fcp_cubin *cubin,
                const cost_stages *stages, text *out) {
    char packing[SHOW_SENTENCE];
    const cost_machine *m = cost_machine_of(arch);
    for (uint32_t i = 0; i < report->count; i++) print_kernel(out, &report->kernels[i], cubin);
    if (stages) print_stages(out, plan, stages);
    if (show_packing(plan, packing)) text_printf(out, "short queries: %s\n", packing);
    text_printf(out, "speeds of %s: products of a warp %" PRIu32, m->arch, m->warp_flops);
    if (m->group_flops) text_printf(out, ", of a warpgroup %" PRIu32, m->group_flops);
    text_printf(out, " operations a clock and multiprocessor (%s)\n", cost_sources[COST_TENSOR]);
    text_printf(out, "  %-8s %d bytes a clock and multiprocessor (%s)\n", cost_pipe_names[COST_SHARED],
                COST_SHARED_BYTES, cost_sources[COST_SHARED]);
    for (int p = COST_MUFU; p < COST_PIPES; p++)
        text_printf(out, "  %-8s %" PRIu32 " clocks (%s)\n", cost_pipe_names[p], m->clocks[p], cost_sources[p]);
}

void cost_json(json *j, const cost_report *report, const char *kernel) {
    for (uint32_t i = 0; i < report->count; i++) {
        const cost_kernel *k = &report->kernels[i];
        if (strcmp(k->name, kernel)) continue;
        json_u64(j, "instructions", k->instructions);
        json_string(j, "unknown_instruction", *k->unknown ? k->unknown : NULL);
        json_array(j, "steps");
        for (uint32_t s = 0; s < k->step_count; s++) {
            json_object(j, NULL);
            for (int class = 0; class < COST_CLASSES; class++) {
                const cost_counts *c = &k->steps[s].of[class];
                if (!k->steps[s].has[class]) continue;
                json_object(j, cost_class_names[class]);
                json_object(j, "instructions");
                for (int p = 0; p < COST_PIPES; p++) json_u64(j, cost_pipe_names[p], c->instructions[p]);
                json_end(j);
                json_object(j, "clocks");
                for (int p = 0; p < COST_PIPES; p++) json_u64(j, cost_pipe_names[p], c->clocks[p]);
                json_end(j);
                json_u64(j, "issued", cost_issue(c));
                json_u64(j, "waits", c->waits);
                json_u64(j, "arrivals", c->arrivals);
                json_u64(j, "fences", c->fences);
                json_u64(j, "elements", c->elements);
                json_u64(j, "global_bytes", c->bytes);
                json_u64(j, "unknown_loops", c->unknown_loops);
                json_string(j, "bound", bound_name(c));
                json_end(j);
            }
            json_end(j);
        }
        json_end(j);
    }
}

void cost_json_stages(json *j, const fcp_plan *plan, const cost_stages *stages) {
    json_object(j, "by_stages");
    if (stages->passes >> FCP_FORWARD & 1) {
        const pass_cost c = cost_of_stages(plan, FCP_FORWARD);
        json_u64(j, "launches", c.launches);
        json_u64(j, "launches_as_a_pass", stages->fused[FCP_FORWARD].launches);
        json_u64(j, "state_bytes", c.state_bytes);
        json_u64(j, "state_bytes_as_a_pass", stages->fused[FCP_FORWARD].state_tokens * state_row(plan));
    }
    if (stages->passes >> FCP_BACKWARD & 1) {
        json_u64(j, "backward_launches", cost_of_stages(plan, FCP_BACKWARD).launches);
        json_u64(j, "backward_launches_as_a_pass", stages->fused[FCP_BACKWARD].launches);
    }
    json_array(j, "kernels");
    for (uint32_t i = 0; i < stages->report->count; i++) {
        json_object(j, NULL);
        json_string(j, "name", stages->report->kernels[i].name);
        cost_json(j, stages->report, stages->report->kernels[i].name);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}
