/* cmd_sim.c: `fcpc sim FILE`: predicts how long a plan takes, and prints it beside the bounds that no plan can beat. It
 * does so for one program or plan, or for several strategies and settings side by side (candidates). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/cli/candidate.h"
#include "compiler/base/diag.h"
#include "compiler/page/page.h"
#include "compiler/show/model.h"
#include "compiler/simulate/recurrent_walk.h"
#include "runtime/base/saturate.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan.h"

enum { MOST_POINTS = 4096, MOST_SWEEPS = 16 };

/* One setting that varies, and the values that it takes. */
typedef struct sweep {
    char *name;
    char **values;
    size_t count;
} sweep;

typedef struct run {
    const cmd_line *line;
    candidate_how how;
    sim_profile profile; /* the last candidate's; with --profile that of all */
    arena memory; /* of the sweeps */
    sweep sweeps[MOST_SWEEPS];
    size_t sweep_count;
    bool layer;   /* some program says what linear layers take, so that there are times of layers */
    size_t point; /* the combination of settings that is being predicted */
    candidate *layers; /* of a program with layers and without sweeps: each mask; else NULL */
    page page;    /* of --html */
    text html, trace, csv; /* the files */
} run;

/* Splits at commas that stand outside brackets: "fcp(coalesce = 2, buffers = 3),ring" has two parts. */
static fcp_code split(const char *typed, arena *memory, sweep *out, fcp_error *err) {
    size_t commas = 0;
    for (const char *s = typed; *s; s++) commas += *s == ',';
    out->values = ARENA_NEW(memory, char *, commas + 1);
    if (!out->values) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    int depth = 0;
    for (const char *begin = typed, *s = typed;; s++) {
        depth += *s == '(' || *s == '[' ? 1 : *s == ')' || *s == ']' ? -1 : 0;
        if (*s && (*s != ',' || depth > 0)) continue;
        if (s == begin) return fcp_fail(err, FCP_E_USAGE, "'%.60s' has an empty value", typed);
        if (!(out->values[out->count++] = arena_copy(memory, begin, (size_t)(s - begin))))
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        if (!*s) return FCP_OK;
        begin = s + 1;
    }
}

static fcp_code add_sweep(run *r, const char *name, size_t name_size, const char *values, fcp_error *err) {
    if (r->sweep_count == MOST_SWEEPS) return fcp_fail(err, FCP_E_USAGE, "--sweep: %d at most", MOST_SWEEPS);
    for (size_t i = 0; i < r->sweep_count; i++)
        if (strlen(r->sweeps[i].name) == name_size && !memcmp(r->sweeps[i].name, name, name_size))
            return fcp_fail(err, FCP_E_USAGE, "--sweep: --strategy varies %s already", r->sweeps[i].name);
    sweep *s = &r->sweeps[r->sweep_count++];
    if (!(s->name = arena_copy(&r->memory, name, name_size))) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    return split(values, &r->memory, s, err);
}

/* E001 for a strategy that does not exist, which is a typing error. A strategy that exists and refuses the batch is no
 * error here: it has a row in the table. */
static fcp_code check_strategies(const sweep *s, fcp_error *err) {
    for (size_t i = 0; i < s->count; i++) {
        const size_t length = strcspn(s->values[i], "( +");
        bool found = false;
        for (int n = 0; n < STRATEGY_ANY && !found; n++)
            found = strlen(strategy_names[n]) == length && !memcmp(strategy_names[n], s->values[i], length);
        if (found) continue;
        const char *near = diag_nearest(s->values[i], length, strategy_names, STRATEGY_ANY);
        return fcp_fail(err, FCP_E_USAGE, "--strategy: there is no strategy '%.40s'%s%s%s", s->values[i],
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return FCP_OK;
}

static fcp_code read_sweeps(run *r, fcp_error *err) {
    const char *strategies = r->line->value[OPT_STRATEGY];
    fcp_code code = FCP_OK;
    if (strategies) {
        text all = {0};
        for (int i = 0; i < FCP_STRATEGY_COUNT; i++) text_printf(&all, "%s%s", i ? "," : "", fcp_strategy_names[i]);
        if (all.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        else
            code = add_sweep(r, "plan.strategy", strlen("plan.strategy"),
                             strcmp(strategies, "all") ? strategies : all.at, err);
        if (!code) code = check_strategies(&r->sweeps[0], err);
        text_free(&all);
    }
    for (size_t i = 0; i < r->line->sweep_count && !code; i++) {
        const char *typed = r->line->sweeps[i], *equals = strchr(typed, '=');
        if (!equals || equals == typed || !equals[1])
            return fcp_fail(err, FCP_E_USAGE, "--sweep is '%.60s': expected NAME=VALUE,VALUE,...", typed);
        code = add_sweep(r, typed, (size_t)(equals - typed), equals + 1, err);
    }
    uint64_t points = 1;
    for (size_t i = 0; i < r->sweep_count && !code; i++) points = fcp_times(points, r->sweeps[i].count);
    if (!code && points > MOST_POINTS)
        return fcp_fail(err, FCP_E_USAGE, "--sweep: %" PRIu64 " points, at most %d", points, MOST_POINTS);
    return code;
}

/* The value of sweep i at a point: the last sweep varies fastest. */
static const char *value_at(const run *r, size_t point, size_t i) {
    for (size_t later = r->sweep_count; later-- > i + 1;) point /= r->sweeps[later].count;
    return r->sweeps[i].values[point % r->sweeps[i].count];
}

/* --- what is printed ---------------------------------------------------------------------------------------------- */

static double seconds(uint64_t picoseconds) { return (double)picoseconds / (double)SIM_SECOND; }

/* The name of the largest bound. The bound of several layers is the sum of each one's largest, which may have different
 * names. */
static const char *largest_name(const candidate_pass *x) {
    for (int b = 0; b < SIM_BOUNDS; b++)
        if (x->sim.bound[b] == x->largest) return sim_bound_names[b];
    return "several";
}

static void point_text(const run *r, size_t point, text *out) {
    for (size_t i = 0; i < r->sweep_count; i++)
        text_printf(out, "%s%s=%s", i ? " " : "",
                    strcmp(r->sweeps[i].name, "plan.strategy") ? r->sweeps[i].name : "strategy", value_at(r, point, i));
}

/* The name of a mask's row in the table: "window(w = 4096) x 3", as the program lists it. */
static fcp_code mask_text(const cmd_input *input, uint32_t i, text *out, fcp_error *err) {
    arena memory = {0};
    const char *mask = NULL;
    fcp_code code = show_mask_text(cmd_plan(input, i), &memory, &mask);
    if (!code) text_puts(out, mask);
    if (!code && input->layers[i].times > 1) text_printf(out, " x %" PRIu32, input->layers[i].times);
    arena_free(&memory);
    return code ? fcp_fail(err, code, "%s", fcp_code_text(code)) : FCP_OK;
}

static void print_pass(const run *r, const text *name, int width, const candidate *c, int pass) {
    char net[SUMMARY_NUMBER], local[SUMMARY_NUMBER], memory[SUMMARY_NUMBER];
    const candidate_pass *x = &c->pass[pass];
    const sim_pass *s = &x->sim;
    if (!x->there) return;
    char layer[40] = "";
    if (r->layer) snprintf(layer, sizeof layer, " %9.4f %12.4f", 1e3 * seconds(s->linear), 1e3 * seconds(s->layer));
    printf("%-*.*s %-8s%s %12.4f %7.3f %-8s %8.3f | %8.3f %8.3f %8.3f %9.3f | %9s %9s %9s %6.3f\n", width,
           (int)name->size, name->size ? name->at : "", fcp_pass_names[pass], layer, 1e3 * seconds(s->makespan),
           x->largest ? (double)s->makespan / (double)x->largest : 1, largest_name(x), x->compute,
           1e3 * seconds(s->exposed[SIM_KV]), 1e3 * seconds(s->exposed[SIM_Q]), 1e3 * seconds(s->exposed[SIM_RETURN]),
           1e3 * seconds(s->exposed[SIM_RESHUFFLE]), summary_number(net, (double)s->bytes[FCP_NET], "B"),
           summary_number(local, (double)s->bytes[FCP_LOCAL], "B"),
           summary_number(memory, (double)c->summary.memory_peak_bytes, "B"), x->mfu);
    if (!r->how.seeds) return;
    printf("%-*s %-8s %12.4f to %.4f", width, "", "", 1e3 * x->least, 1e3 * x->most);
    if (r->how.noise) printf(" with up to %" PRIu64 " %% of noise", r->how.noise);
    printf(", %" PRIu64 " seeds\n", r->how.seeds);
}

static void print_row(const run *r, const text *name, int width, const candidate *x) {
    if (x->error.code)
        printf("%-*.*s %s: %s\n", width, (int)name->size, name->size ? name->at : "", fcp_code_name(x->error.code),
               x->error.message);
    for (int pass = 0; pass < FCP_PASSES && !x->error.code; pass++) print_pass(r, name, width, x, pass);
}

/* The rows of layers that recur: what one layer of each kind takes of other ranks. The busiest rank, what it waits
 * for and memory are known of attention alone. */
static fcp_code print_recurrent(const run *r, const fcp_plan *plan, int width, fcp_error *err) {
    char net[SUMMARY_NUMBER], local[SUMMARY_NUMBER], name[64];
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < plan->recurrent_count && !code; i++) {
        const fcp_recurrent *x = &plan->recurrent[i];
        snprintf(name, sizeof name, "%s x %" PRIu32, fcp_layer_kind_names[x->kind], x->times);
        for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
            sim_recurrent one;
            arena scratch = {0};
            sim_model links;
            if (!(plan->problem->passes >> pass & 1)) continue;
            sim_recurrent_model(plan, &r->profile, (fcp_pass)pass, &links);
            code = sim_recurrent_walk(plan, i, &links, &scratch, &one);
            arena_free(&scratch);
            if (code) return fcp_fail(err, code, "%s", fcp_code_text(code));
            printf("%-*s %-8s%s %12.4f %7s %-8s %8s | %8s %8s %8s %9s | %9s %9s\n", width, name, fcp_pass_names[pass],
                   r->layer ? "                       " : "", 1e3 * seconds(one.makespan), "", "", "", "", "", "", "",
                   summary_number(net, (double)one.bytes[FCP_NET], "B"),
                   summary_number(local, (double)one.bytes[FCP_LOCAL], "B"));
        }
    }
    return code;
}

/* The name of row i. If the program has several masks, their rows come first; then come those of the candidates. */
static fcp_code row_text(const run *r, const cmd_input *input, size_t i, text *out, fcp_error *err) {
    const uint32_t masks = r->layers ? input->layer_count : 0;
    fcp_code code = FCP_OK;
    uint64_t all = 0;
    for (uint32_t k = 0; k < masks; k++) all += input->layers[k].times;
    for (uint32_t k = 0; masks && k < input->plan->recurrent_count; k++) all += input->plan->recurrent[k].times;
    out->size = 0;
    if (i < masks) code = mask_text(input, (uint32_t)i, out, err);
    else if (masks) text_printf(out, "all %" PRIu64 " layers", all);
    else point_text(r, i, out);
    return code || !out->failed ? code : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
}

static fcp_code print_table(const run *r, const candidate *rows, size_t points, const cmd_input *input,
                            fcp_error *err) {
    const size_t masks = r->layers ? input->layer_count : 0;
    size_t width = 9;
    text name = {0};
    fcp_code code = FCP_OK;
    for (size_t i = 0; i < masks + points && !code; i++) {
        code = row_text(r, input, i, &name, err);
        if (name.size > width) width = name.size;
    }
    if (!code)
        printf("%-*s %-8s%s %12s %7s %-8s %8s | %8s %8s %8s %9s | %9s %9s %9s %6s\n", (int)width,
               r->sweep_count ? "candidate" : "", "pass", r->layer ? "    linear     layer ms" : "", "makespan ms",
               "/ bound", "which", "max/mean", "kv ms", "q ms", "ret. ms", "resh. ms", "net", "local", "memory", "MFU");
    for (size_t i = 0; i < masks + points && !code; i++) {
        /* of a program, before the sum of all layers; of a plan, behind it */
        if (masks && i == masks) code = print_recurrent(r, input->plan, (int)width, err);
        if (!code) code = row_text(r, input, i, &name, err);
        if (!code) print_row(r, &name, (int)width, i < masks ? &r->layers[i] : &rows[i - masks]);
        if (!masks && !r->sweep_count && !code) code = print_recurrent(r, input->plan, (int)width, err);
    }
    text_free(&name);
    if (!code && !r->sweep_count) code = cmd_print_phases(input->plan, err);
    return code ? code : cmd_flush(err);
}

static void csv_text(const run *r, const candidate *rows, size_t points, text *out) {
    for (size_t i = 0; i < r->sweep_count; i++) text_printf(out, "%s,", r->sweeps[i].name);
    text_printf(out,
                "pass,error,makespan_s,makespan_lower_bound_s,bound,compute_max_over_mean,exposed_kv_s,"
                "exposed_q_s,exposed_return_s,exposed_reshuffle_s,net_bytes,local_bytes,memory_peak_bytes,mfu%s%s\n",
                r->layer ? ",linear_s,layer_s" : "", r->how.seeds ? ",makespan_least_s,makespan_most_s" : "");
    for (size_t p = 0; p < points; p++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const candidate *c = &rows[p];
            const candidate_pass *x = &c->pass[pass];
            const sim_pass *s = &x->sim;
            if (c->error.code ? pass > 0 : !x->there) continue;
            for (size_t i = 0; i < r->sweep_count; i++) {
                const char *value = value_at(r, p, i);
                text_printf(out, strpbrk(value, ",\"") ? "\"%s\"," : "%s,", value);
            }
            if (c->error.code) {
                text_printf(out, ",%s,,,,,,,,,,,,%s%s\n", fcp_code_name(c->error.code), r->layer ? ",," : "",
                            r->how.seeds ? ",," : "");
                continue;
            }
            text_printf(out, "%s,,%.12g,%.12g,%s,%.6g,%.12g,%.12g,%.12g,%.12g,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6g",
                        fcp_pass_names[pass], seconds(s->makespan), seconds(x->largest), largest_name(x), x->compute,
                        seconds(s->exposed[SIM_KV]), seconds(s->exposed[SIM_Q]), seconds(s->exposed[SIM_RETURN]),
                        seconds(s->exposed[SIM_RESHUFFLE]), s->bytes[FCP_NET], s->bytes[FCP_LOCAL],
                        c->summary.memory_peak_bytes, x->mfu);
            if (r->layer) text_printf(out, ",%.12g,%.12g", seconds(s->linear), seconds(s->layer));
            if (r->how.seeds) text_printf(out, ",%.12g,%.12g", x->least, x->most);
            text_printf(out, "\n");
        }
}

/* Adds the members of one pass. */
static void pass_json(json *j, const run *r, const candidate_pass *x, const sim_pass *whole, const fcp_plan *plan) {
    sim_pass_json(j, &x->sim, x->largest, x->mfu);
    if (r->how.seeds) { /* the range of times of the random runs */
        json_object(j, "draws");
        json_u64(j, "noise_percent", r->how.noise);
        json_u64(j, "seeds", r->how.seeds);
        json_double(j, "makespan_least_s", x->least);
        json_double(j, "makespan_most_s", x->most);
        json_end(j);
    }
    if (whole) sim_ranks_json(j, whole, plan->problem->ranks);
}

static fcp_code row_json(json *j, const run *r, const candidate *x, const sim_result *whole, const fcp_plan *plan,
                         fcp_error *err) {
    fcp_code code = FCP_OK;
    if (x->error.code) {
        cmd_json_diagnostics(j, NULL, &x->error);
        return FCP_OK;
    }
    if (x->pass[FCP_FORWARD].there)
        pass_json(j, r, &x->pass[FCP_FORWARD], whole ? &whole->pass[FCP_FORWARD] : NULL, plan);
    if (whole) code = cmd_phases_json(j, plan, FCP_FORWARD, err);
    json_u64(j, "memory_peak_bytes_predicted", x->summary.memory_peak_bytes);
    if (x->pass[FCP_BACKWARD].there) {
        json_object(j, "backward");
        pass_json(j, r, &x->pass[FCP_BACKWARD], whole ? &whole->pass[FCP_BACKWARD] : NULL, plan);
        if (whole && !code) code = cmd_phases_json(j, plan, FCP_BACKWARD, err);
        json_end(j);
    }
    return code;
}

static void candidates_json(json *j, const char *key, const run *r, const candidate *rows, size_t points) {
    json_array(j, key);
    for (size_t p = 0; p < points; p++) {
        json_object(j, NULL);
        json_object(j, "settings");
        for (size_t i = 0; i < r->sweep_count; i++) json_string(j, r->sweeps[i].name, value_at(r, p, i));
        json_end(j);
        row_json(j, r, &rows[p], NULL, NULL, NULL);
        json_end(j);
    }
    json_end(j);
}

/* Each mask of a program with layers. */
static fcp_code layers_json(json *j, const run *r, const cmd_input *input, fcp_error *err) {
    fcp_code code = FCP_OK;
    json_array(j, "layers");
    for (uint32_t i = 0; i < input->layer_count && !code; i++) {
        json_object(j, NULL);
        code = cmd_layer_json(input, i, j, err);
        summary_json(j, cmd_plan(input, i), cmd_times(input, i));
        if (!code) code = row_json(j, r, &r->layers[i], NULL, NULL, err);
        json_end(j);
    }
    json_end(j);
    return code;
}

static fcp_code make_page(run *r, const candidate *rows, size_t points, fcp_error *err) {
    json j = {0};
    if (r->sweep_count) candidates_json(&j, NULL, r, rows, points);
    const char *all = r->sweep_count ? json_text(&j) : NULL;
    fcp_code code = !all && r->sweep_count ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory")
                                           : page_end(&r->page, all, &r->html, err);
    json_free(&j);
    return code;
}

/* Draws a plan for --trace and --html. The page of a long sweep has pictures of the first PAGE_PLANS plans only; its
 * curves have all. */
static fcp_code draw(void *context, const fcp_plan *plan, const sim_profile *profile, const sim_options *options,
                     const sim_result *result, fcp_error *err) {
    run *r = context;
    text name = {0};
    arena memory = {0};
    const char *mask = "";
    if (r->layers) show_mask_text(plan, &memory, &mask);
    point_text(r, r->point, &name);
    text_puts(&name, mask);
    text_add(&name, "", 1);
    arena_free(&memory);
    fcp_code code = name.failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
    if (!code && r->line->value[OPT_HTML] && r->page.plans < PAGE_PLANS)
        code = page_add(&r->page, name.at, plan, profile, NULL, options, result, r->line->value[OPT_RANKS], err);
    if (!code && r->line->value[OPT_TRACE])
        code = cmd_trace_predicted(r->line, plan, profile, options, result, &r->trace, err);
    text_free(&name);
    return code;
}

static fcp_code print_json(const run *r, const candidate *rows, size_t points, const cmd_input *input,
                           const sim_result *whole, fcp_error *err) {
    json j = {0};
    fcp_code code = FCP_OK;
    json_object(&j, NULL);
    json_string(&j, "profile", r->profile.name);
    if (r->layers) { /* the sum of all layers, then each mask */
        code = row_json(&j, r, rows, NULL, NULL, err);
        if (!code) code = layers_json(&j, r, input, err);
        cmd_json_diagnostics(&j, input->diagnostics, NULL);
    } else if (!r->sweep_count) {
        summary_json(&j, input->plan, &input->times);
        code = row_json(&j, r, rows, whole, input->plan, err);
        cmd_json_diagnostics(&j, input->diagnostics, NULL);
    } else {
        candidates_json(&j, "candidates", r, rows, points);
    }
    json_end(&j);
    if (!code) return cmd_json_print(&j, err);
    json_free(&j);
    return code;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Plans and predicts one combination of the sweeps' values. */
static fcp_code try_point(run *r, const cmd_input *opened, size_t point, candidate *out, fcp_error *err) {
    const char *settings[MOST_SWEEPS][2];
    for (size_t i = 0; i < r->sweep_count; i++) {
        settings[i][0] = r->sweeps[i].name;
        settings[i][1] = value_at(r, point, i);
    }
    r->point = point;
    return candidate_try(&r->how, opened, (const char *const(*)[2])settings, r->sweep_count, &r->profile, out, err);
}

/* Without sweeps: predicts the plan or program, and adds advice. */
static fcp_code predict_one(run *r, cmd_input *input, candidate *out, arena *memory, sim_result *result,
                            fcp_error *err) {
    cmd_input opened = {.opened = true, .is_plan = input->is_plan, .in_memory = input->in_memory};
    if (input->in_memory && !input->is_plan)
        text_add(&opened.bytes, input->bytes.at, input->bytes.size); /* compiling frees it */
    input->silent = true;
    fcp_code code =
        opened.bytes.failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : cmd_load(r->line, input, err);
    if (!code) code = candidate_profile(r->line, input->plan, &r->profile, err);
    if (!code && input->layer_count > 1 && r->line->value[OPT_TRACE])
        code = fcp_fail(err, FCP_E_USAGE,
                        "--trace draws one plan, and there are %" PRIu32 " masks: --layer chooses one",
                        input->layer_count);
    if (!code && input->layer_count && !(r->layers = calloc(input->layer_count, sizeof *r->layers)))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = candidate_predict_all(&r->how, input, &r->profile, memory, out, r->layers, result, err);
    r->how.shown = NULL; /* plans that are tried for advice are not drawn */
    if (!code && input->layer_count) cmd_render(input); /* advice is about one plan */
    else if (!code && !input->is_plan) {
        code = candidate_advise(&r->how, &opened, input->plan, &r->profile, out, input->diagnostics, err);
        if (!code) cmd_render(input);
    }
    text_free(&opened.bytes);
    return code;
}

static fcp_code predict_all(run *r, cmd_input *input, fcp_error *err) {
    size_t points = 1, planned = 0;
    for (size_t i = 0; i < r->sweep_count; i++) points *= r->sweeps[i].count;
    candidate *rows = calloc(points, sizeof *rows);
    arena memory = {0};
    sim_result result = {0};
    fcp_code code = rows ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code && !r->sweep_count) {
        code = predict_one(r, input, rows, &memory, &result, err);
        planned = code == FCP_OK;
    }
    for (size_t p = 0; p < points && !code && r->sweep_count; p++) {
        cmd_candidate(p + 1, points);
        code = try_point(r, input, p, &rows[p], err);
        planned += !code && !rows[p].error.code;
    }
    cmd_candidate(0, 0);
    for (size_t p = 0; p < points && rows; p++)
        for (int pass = 0; pass < FCP_PASSES; pass++) r->layer |= rows[p].pass[pass].sim.layer > 0;
    if (!code && !planned) {
        *err = rows[0].error;
        code = err->code;
        input->diagnostics = rows[0].diagnostics; /* with source lines, which the error lacks */
        rows[0].diagnostics = NULL;
    }
    const bool files = r->line->value[OPT_CSV] || r->line->value[OPT_HTML] || r->line->value[OPT_TRACE];
    const cmd_text texts[] = {{OPT_HTML, &r->html}, {OPT_TRACE, &r->trace}, {OPT_CSV, &r->csv}};
    if (!code && r->line->value[OPT_HTML]) code = make_page(r, rows, points, err);
    if (!code && r->line->value[OPT_CSV]) csv_text(r, rows, points, &r->csv);
    if (!code && r->csv.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = cmd_texts_write(r->line, texts, sizeof texts / sizeof *texts, err);
    if (!code && r->line->json) code = print_json(r, rows, points, input, &result, err);
    else if (!code && !(files && r->line->quiet)) code = print_table(r, rows, points, input, err);
    arena_free(&memory);
    for (size_t p = 0; rows && p < points; p++) fcpc_diagnostics_free(rows[p].diagnostics);
    free(rows);
    return code;
}

/* The words of --network and --without. */
static fcp_code read_network(run *r, fcp_error *err) {
    const char *network = r->line->value[OPT_NETWORK], *without = r->line->value[OPT_WITHOUT];
    int found = network ? SIM_NETWORKS : 0;
    for (int i = 0; network && i < SIM_NETWORKS; i++)
        if (!strcmp(network, sim_network_names[i])) found = i;
    if (found == SIM_NETWORKS)
        return fcp_fail(err, FCP_E_USAGE, "--network is '%.60s': expected rounds, shared, fluid or pulls", network);
    r->how.options.network = (sim_network)found;
    for (const char *at = without; at && *at;) {
        size_t size = strcspn(at, ",");
        int which = 0;
        while (which < SIM_WITHOUT_COUNT &&
               (strlen(sim_without_names[which]) != size || memcmp(at, sim_without_names[which], size)))
            which++;
        if (which == SIM_WITHOUT_COUNT)
            return fcp_fail(err, FCP_E_USAGE,
                            "--without is '%.60s': expected overlap, hiding or fusion, or several of them with commas",
                            without);
        r->how.options.without |= 1u << which;
        at += size + (at[size] == ',');
    }
    return FCP_OK;
}

fcp_code cmd_sim(const cmd_line *line, cmd_input *input, fcp_error *err) {
    run r = {.line = line, .how = {.line = line, .shown = draw, .context = &r}};
    fcp_code code = read_sweeps(&r, err);
    if (!code) code = read_network(&r, err);
    uint64_t incast = 0;
    if (!code) code = cmd_number(line, OPT_INCAST, 1, 99, 0, &incast, err);
    r.how.options.incast = (uint32_t)incast;
    if (!code && incast && r.how.options.network < SIM_NETWORK_FLUID)
        code = fcp_fail(err, FCP_E_USAGE,
                        "--incast goes with --network fluid or pulls: in rounds one transfer at a time enters a port");
    if (!code) code = cmd_number(line, OPT_NOISE, 1, 1000, 0, &r.how.noise, err);
    if (!code) code = cmd_number(line, OPT_SEEDS, 1, 100000, r.how.noise ? 16 : 0, &r.how.seeds, err);
    if (!code && line->value[OPT_SEEDS] && !r.how.noise && r.how.options.network != SIM_NETWORK_PULLS)
        code = fcp_fail(err, FCP_E_USAGE, "--seeds goes with --noise, or with --network pulls");
    if (!code) code = cmd_check_drawing(line, err);
    if (!code && line->value[OPT_TRACE] && r.sweep_count)
        code = fcp_fail(err, FCP_E_USAGE,
                        "--trace draws one plan: it does not go with --strategy and --sweep, and -D chooses one");
    if (!code && line->value[OPT_TRACE] && r.how.options.network > SIM_NETWORK_SHARED)
        code = fcp_fail(err, FCP_E_USAGE, "--trace needs rounds: with --network %s a rank's transfers overlap",
                        sim_network_names[r.how.options.network]);
    if (!code) code = cmd_open(line, input, err);
    if (!code && input->is_plan && r.sweep_count)
        code = fcp_fail(err, FCP_E_USAGE,
                        "%.200s is a plan: --strategy and --sweep need the program that it was made from", line->file);
    if (!code) code = predict_all(&r, input, err);
    free(r.layers);
    page_free(&r.page);
    text_free(&r.html);
    text_free(&r.trace);
    text_free(&r.csv);
    arena_free(&r.memory);
    return code;
}
