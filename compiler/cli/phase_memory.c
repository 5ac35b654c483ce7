/* phase_memory.c: the memory of each phase of a plan that computes some heads at a time (`upipe`), as `fcpc sim` prints
 * it: in bytes, and as a fraction of what all heads at once would need.
 *
 * The paper of UPipe counts K and V in proportion to the query heads of a phase. A plan holds whole KV heads, which may
 * be more. So the fraction is printed by both counts.
 */
#include <inttypes.h>

#include "compiler/base/integers.h"
#include "compiler/cli/candidate.h"
#include "compiler/simulate/phases.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/head_ranges.h"

/* The memory of a phase over that of all heads at once. *out_paper: the same as UPipe's paper counts it. */
static double part_of_all(const fcp_plan *plan, uint32_t phases, double *out_paper) {
    const fcp_problem *p = plan->problem;
    const uint32_t shared = p->heads / p->kv_heads, own = phases * p->range_kv * p->range_sub;
    const double key = (double)fcp_kv_dim(p) / (p->head_dim + p->value_dim);
    *out_paper = sim_phase_part(shared, phases, shared, 1);
    return sim_phase_part(p->range_sub, phases, (uint32_t)common_divisor(own, shared), key);
}

static bool alike(const sim_phase *a, const sim_phase *b) {
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        if (a->of_class[cls] != b->of_class[cls]) return false;
    return true;
}

/* Prints one line for neighbouring phases that hold the same: `first` to `end` - 1. */
static void print_alike(fcp_pass pass, const sim_phases *x, uint32_t first, uint32_t end) {
    char number[SUMMARY_NUMBER];
    const sim_phase *p = &x->phase[first];
    const char *separator = "";
    printf("slots     %-8s ", fcp_pass_names[pass]);
    if (end - first > 1) printf("phases %" PRIu32 " to %" PRIu32 ", ", first, end - 1);
    else if (x->count > 1) printf("phase %" PRIu32 ", ", first);
    printf("stages %" PRIu32 " to %" PRIu32 ": %s", p->first_stage, x->phase[end - 1].last_stage,
           summary_number(number, (double)p->bytes, "B"));
    printf("%s (", end - first > 1 ? " each" : "");
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        if (!p->of_class[cls]) continue;
        printf("%s%s %s", separator, fcp_class_texts[cls], summary_number(number, (double)p->of_class[cls], "B"));
        separator = ", ";
    }
    printf(")\n");
}

static void print_pass(const fcp_plan *plan, fcp_pass pass, const sim_phases *x) {
    char number[SUMMARY_NUMBER];
    for (uint32_t first = 0, end; first < x->count; first = end) {
        for (end = first + 1; end < x->count && alike(&x->phase[first], &x->phase[end]);) end++;
        print_alike(pass, x, first, end);
    }
    if (x->count < 2) return;
    double paper;
    const double own = part_of_all(plan, x->count, &paper);
    printf("          %-8s in all %s; a phase holds %.4g of what all heads at once do, ", fcp_pass_names[pass],
           summary_number(number, (double)x->peak, "B"), own);
    printf("%.1f %% less (as the paper counts %.4g, %.1f %%)\n", 100 * (1 - own), paper, 100 * (1 - paper));
}

fcp_code cmd_print_phases(const fcp_plan *plan, fcp_error *err) {
    arena memory = {0};
    fcp_code code = FCP_OK;
    for (int pass = 0; pass < FCP_PASSES && !code && fcp_plan_ranges(plan) > 1; pass++) {
        sim_phases x;
        if (!(plan->problem->passes >> pass & 1)) continue;
        code = sim_phases_of(plan, (fcp_pass)pass, &memory, &x);
        if (code) fcp_fail(err, code, "out of memory");
        else print_pass(plan, (fcp_pass)pass, &x);
    }
    arena_free(&memory);
    return code;
}

fcp_code cmd_phases_json(json *j, const fcp_plan *plan, fcp_pass pass, fcp_error *err) {
    arena memory = {0};
    sim_phases x;
    if (fcp_plan_ranges(plan) == 1 || !(plan->problem->passes >> pass & 1)) return FCP_OK;
    fcp_code code = sim_phases_of(plan, pass, &memory, &x);
    if (code) fcp_fail(err, code, "out of memory");
    else {
        double paper;
        json_object(j, "phases");
        json_u64(j, "peak_bytes", x.peak);
        json_double(j, "part_of_all_heads", part_of_all(plan, x.count, &paper));
        json_double(j, "part_of_all_heads_paper", paper);
        json_array(j, "slot_bytes");
        for (uint32_t i = 0; i < x.count; i++) json_u64(j, NULL, x.phase[i].bytes);
        json_end(j);
        json_end(j);
    }
    arena_free(&memory);
    return code;
}
