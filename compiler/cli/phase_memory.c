/* phase_memory.c: what `fcpc sim` says about the memory of plans that divide heads: phase by phase, as a part of what all
 * heads at once would take, and beside that what the paper of UPipe counts.
 *
 * Units: bytes; parts of 1; and, for the paper's tables, one rank's tokens times all query heads.
 */
#include <inttypes.h>

#include "compiler/base/integers.h"
#include "compiler/cli/candidate.h"
#include "compiler/simulate/phases.h"

/* Who computes how much: query heads to a KV head, in the model, in a phase, and of all that a rank computes. */
typedef struct division {
    uint32_t model, phase, all;
} division;

static division division_of(const fcp_plan *plan, uint32_t phases) {
    const fcp_problem *p = plan->problem;
    const uint32_t model = p->heads / p->kv_heads;
    return (division){model, p->range_sub, (uint32_t)common_divisor(phases * p->range_kv * p->range_sub, model)};
}

/* K and V of a KV head, as a part of Q and O of a query head. */
static double key_of(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    return (double)fcp_kv_dim(p) / (p->head_dim + p->value_dim);
}

static bool alike(const sim_phase *a, const sim_phase *b) {
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        if (a->of_class[cls] != b->of_class[cls]) return false;
    return true;
}

/* A line for phases that follow each other and hold as much. */
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

static void print_fractions(fcp_pass pass, const char *whose, sim_fractions f) {
    static const char *const moments[FCP_PASSES][SIM_MOMENTS] = {
        {"before", "inputs travel", "kernel", "outputs travel"},
        {"before", "dO travels", "kernel", "gradients travel"}};
    printf("          %-8s %s:", fcp_pass_names[pass], whose);
    for (int i = 0; i < SIM_MOMENTS; i++)
        printf("%s %s %.4g", i ? "," : "", moments[pass][i], (double)f.over[i] / (double)f.under);
    printf("\n");
}

static void print_pass(const fcp_plan *plan, fcp_pass pass, const sim_phases *x) {
    char number[SUMMARY_NUMBER];
    for (uint32_t first = 0, end; first < x->count; first = end) {
        for (end = first + 1; end < x->count && alike(&x->phase[first], &x->phase[end]);) end++;
        print_alike(pass, x, first, end);
    }
    const division d = division_of(plan, x->count);
    const double own = sim_phase_part(d.phase, x->count, d.all, key_of(plan)),
                 paper = sim_phase_part(d.model, x->count, d.model, 1);
    if (x->count < 2) return;
    printf("          %-8s in all %s; a phase holds %.4g of what all heads at once do, ", fcp_pass_names[pass],
           summary_number(number, (double)x->peak, "B"), own);
    printf("%.1f %% less (as the paper counts %.4g, %.1f %%)\n", 100 * (1 - own), paper, 100 * (1 - paper));
    const fcp_problem *p = plan->problem;
    if (p->value_dim != p->head_dim || p->values_in_keys) return; /* the tables are of heads with K and V of one width */
    print_fractions(pass, pass == FCP_FORWARD ? "the paper's Table 2" : "the paper's Table 6",
                    sim_phase_fractions(pass, d.model, x->count));
    print_fractions(pass, "with the plan's K and V", sim_phase_fractions(pass, d.phase, x->count));
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
    if (code) {
        arena_free(&memory);
        return fcp_fail(err, code, "out of memory");
    }
    const division d = division_of(plan, x.count);
    json_object(j, "phases");
    json_u64(j, "peak_bytes", x.peak);
    json_double(j, "part_of_all_heads", sim_phase_part(d.phase, x.count, d.all, key_of(plan)));
    json_double(j, "part_of_all_heads_paper", sim_phase_part(d.model, x.count, d.model, 1));
    json_array(j, "slot_bytes");
    for (uint32_t i = 0; i < x.count; i++) json_u64(j, NULL, x.phase[i].bytes);
    json_end(j);
    json_end(j);
    arena_free(&memory);
    return FCP_OK;
}
