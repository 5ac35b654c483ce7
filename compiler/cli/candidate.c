/* candidate.c: plans a program with some settings, and predicts its times. */
#include <stdlib.h>
#include <string.h>

#include "compiler/cli/candidate.h"
#include "compiler/front/front.h"
#include "runtime/plan/plan.h"

fcp_code candidate_profile(const cmd_line *line, const fcp_plan *plan, sim_profile *out, fcp_error *err) {
    if (line->value[OPT_PROFILE]) return sim_profile_open(line->value[OPT_PROFILE], false, out, err);
    return sim_profile_of(plan->cluster, out, err);
}

/* The busiest rank's compute over the mean. */
static double max_over_mean(const sim_pass *x) {
    return x->bound[SIM_BOUND_MEAN] ? (double)x->bound[SIM_BOUND_COMPUTE] / (double)x->bound[SIM_BOUND_MEAN] : 1;
}

/* Predicts a plan. What *out_result points to is in `memory`. */
static fcp_code predict(const candidate_how *how, const fcp_plan *plan, const sim_profile *profile, arena *memory,
                        candidate *out, sim_result *out_result, fcp_error *err) {
    sim_options options = how->options;
    options.seed = 1;
    fcp_code code = front_linear(plan, options.linear);
    if (code) return fcp_fail(err, code, "%s", fcp_code_text(code));
    code = simulate(plan, profile, &options, memory, out_result, err);
    if (code) return code;
    out->summary = *plan->summary;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const sim_pass *x = &out_result->pass[pass];
        out->pass[pass] = (candidate_pass){.there = plan->problem->passes >> pass & 1, .sim = *x,
                                           .largest = sim_largest_bound(x), .compute = max_over_mean(x),
                                           .mfu = x->makespan ? sim_mfu(plan, x) : 0};
    }
    if (how->shown && (code = how->shown(how->context, plan, profile, &options, out_result, err))) return code;
    options.watch = NULL;
    options.noise = (uint32_t)how->noise * 10;
    for (options.seed = 1; options.seed <= how->seeds && !code; options.seed++) {
        arena scratch = {0};
        sim_result drawn;
        code = simulate(plan, profile, &options, &scratch, &drawn, err);
        for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
            double time = (double)drawn.pass[pass].makespan / (double)SIM_SECOND;
            if (options.seed == 1 || time < out->pass[pass].least) out->pass[pass].least = time;
            if (options.seed == 1 || time > out->pass[pass].most) out->pass[pass].most = time;
        }
        arena_free(&scratch);
    }
    return code;
}

/* Adds `times` layers of one mask to the sum. A model computes its layers one after the other, so times, bounds and
 * bytes add up; memory is that of the mask that needs most. The first call has a sum of zeros. */
static void add_layers(candidate *sum, const candidate *one, uint32_t times) {
    const uint64_t n = times, peak = sum->summary.memory_peak_bytes;
    if (peak <= one->summary.memory_peak_bytes) sum->summary = one->summary;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        candidate_pass *to = &sum->pass[pass];
        const candidate_pass *x = &one->pass[pass];
        const double before = (double)to->sim.makespan, added = (double)n * (double)x->sim.makespan;
        if (before + added > 0) to->mfu = (to->mfu * before + x->mfu * added) / (before + added);
        to->there |= x->there;
        to->sim.makespan += n * x->sim.makespan;
        to->sim.linear += n * x->sim.linear;
        to->sim.layer += n * x->sim.layer;
        to->sim.recurrent += x->sim.recurrent; /* of all layers that recur: one plan has them */
        for (int i = 0; i < FCP_FABRICS; i++) to->sim.recurrent_bytes[i] += x->sim.recurrent_bytes[i];
        for (int b = 0; b < SIM_BOUNDS; b++) to->sim.bound[b] += n * x->sim.bound[b];
        for (int i = 0; i < SIM_REASONS; i++) to->sim.exposed[i] += n * x->sim.exposed[i];
        for (int i = 0; i < FCP_FABRICS; i++) to->sim.bytes[i] += n * x->sim.bytes[i];
        to->largest += n * x->largest;
        to->least += (double)n * x->least;
        to->most += (double)n * x->most;
        to->compute = max_over_mean(&to->sim);
    }
}

/* The layers that recur are layers of the model, too: what they take is added to the sum. They compute nothing that is
 * counted, and no bound of theirs is known but that they take what they take. */
static void add_recurrent(candidate_pass *sum) {
    const double attention = (double)sum->sim.makespan, all = attention + (double)sum->sim.recurrent;
    if (all > 0) sum->mfu *= attention / all;
    sum->sim.makespan += sum->sim.recurrent;
    sum->largest += sum->sim.recurrent;
    sum->least += (double)sum->sim.recurrent / (double)SIM_SECOND;
    sum->most += (double)sum->sim.recurrent / (double)SIM_SECOND;
    for (int i = 0; i < FCP_FABRICS; i++) sum->sim.bytes[i] += sum->sim.recurrent_bytes[i];
}

fcp_code candidate_predict_all(const candidate_how *how, const cmd_input *input, const sim_profile *profile,
                               arena *memory, candidate *out, candidate *out_each, sim_result *out_result,
                               fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < cmd_plans(input) && !code; i++) {
        candidate one = {.error = {0}};
        code = predict(how, cmd_plan(input, i), profile, memory, &one, out_result, err);
        if (out_each) out_each[i] = one;
        if (input->layer_count) add_layers(out, &one, input->layers[i].times);
        else *out = one;
    }
    for (int pass = 0; pass < FCP_PASSES && input->layer_count; pass++) add_recurrent(&out->pass[pass]);
    return code;
}

fcp_code candidate_try(const candidate_how *how, const cmd_input *opened, const char *const (*settings)[2],
                       size_t count, sim_profile *out_profile, candidate *out, fcp_error *err) {
    cmd_line line = *how->line;
    arena memory = {0};
    const char **defines = ARENA_NEW(&memory, const char *, line.define_count + count + 1);
    cmd_input input = {.opened = opened->opened,
                       .is_plan = opened->is_plan,
                       .in_memory = opened->in_memory,
                       .silent = true};
    fcp_code code = defines ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code && opened->in_memory) text_add(&input.bytes, opened->bytes.at, opened->bytes.size);
    for (size_t i = 0; i < line.define_count && !code; i++) defines[i] = line.defines[i];
    for (size_t i = 0; i < count && !code; i++) {
        text define = {0};
        text_printf(&define, "%s=%s", settings[i][0], settings[i][1]);
        defines[line.define_count + i] = define.failed ? NULL : arena_copy(&memory, define.at, define.size);
        if (!defines[line.define_count + i]) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        text_free(&define);
    }
    if (!code) {
        line.defines = defines;
        line.define_count += count;
        fcp_error why = {0};
        sim_result result;
        code = cmd_load(&line, &input, &why);
        if (!code) code = candidate_profile(&line, input.plan, out_profile, &why);
        if (!code) code = candidate_predict_all(how, &input, out_profile, &memory, out, NULL, &result, &why);
        if (code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED || code == FCP_E_PROFILE) *err = why;
        else if (code) {
            out->error = why;
            out->diagnostics = input.diagnostics;
            input.diagnostics = NULL;
            code = FCP_OK;
        }
    }
    arena_free(&memory);
    cmd_input_free(&input);
    return code;
}
