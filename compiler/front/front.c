/* front.c: makes a checked program of a text; `check` lists the steps.
 *
 * Requires: any bytes.
 * Gives:    an fcpc_program that owns all it refers to, or errors. Names and types are checked only if the text parses
 *           and all options apply: otherwise one mistake would cause a dozen errors.
 * Cost:     O(source + batch + the mask and score with their definitions inlined).
 */
#define _GNU_SOURCE /* memmem */
#include "compiler/front/front.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/expr/choose.h"
#include "compiler/sema/arrays.h"
#include "compiler/sema/files.h"
#include "compiler/sema/index_order.h"
#include "compiler/sema/keys.h"
#include "compiler/sema/layer_masks.h"
#include "compiler/sema/names.h"
#include "compiler/sema/override.h"
#include "compiler/sema/recurrent_layers.h"
#include "compiler/sema/strategies.h"
#include "compiler/sema/unused.h"
#include "compiler/syntax/parse.h"
#include "compiler/planning/workspace.h"
#include "compiler/simulate/margin.h"
#include "compiler/simulate/profile.h"
#include "runtime/base/clock.h"
#include "runtime/base/read_file.h"
#include "runtime/base/sized.h"
#include "runtime/plan/plan.h"

/* Reads the profile `asked`, a file or a name, by which what the program leaves open is chosen. */
static void read_profile(sema *s, const char *asked) {
    fcp_error why = {0};
    sim_profile *p = ARENA_NEW(&s->out->arena, sim_profile, 1);
    fcp_code code = p ? sim_profile_open(asked, s->regular_files, p, &why) : FCP_E_NO_MEMORY;
    s->out->profile = p;
    s->out->profile_steers = s->out->strategy == (fcp_strategy)STRATEGY_AUTO || s->out->block == BLOCK_AUTO ||
                             s->out->margin == MARGIN_AUTO || strategy_facts_of[program_divides_by(s->out)].by_times;
    if (code && why.line) diag_error(s->d, code, SPAN_NONE, "%s:%u: %s", why.file, why.line, why.message);
    else if (code)
        diag_error(s->d, code, SPAN_NONE, "%s%s%s", why.file, *why.file ? ": " : "",
                   p ? why.message : fcp_code_text(code));
}

/* Lists the margins from which each plan gets one (passes/choose_margin.c), if the program does not state plan.margin.
 * The margin is how many SMs attention leaves to communication. */
static fcp_code list_margins(struct fcpc_program *p) {
    sim_profile profile = {.part = 1}; /* of a GPU without one nothing is known */
    char gpu[sizeof p->cluster.gpu + 1] = "";
    if (p->margin != MARGIN_AUTO) return FCP_OK;
    sim_margins *list = ARENA_NEW(&p->arena, sim_margins, 1);
    if (!list) return FCP_E_NO_MEMORY;
    memcpy(gpu, p->cluster.gpu, sizeof p->cluster.gpu);
    if (p->profile) profile = *p->profile;
    else sim_profile_device(gpu, &profile);
    sim_margins_list(p->nodes, p->gpus, &p->cluster, &profile, list);
    p->margin = list->at[0];
    if (list->count > 1) p->margins = list;
    return FCP_OK;
}

/* Checks the program in s->main_source into s->out. What is wrong is reported in s->d, which had `errors` before. */
static void check(sema *s, const fcpc_options *options, size_t errors) {
    sema_keys k = {0};
    if (!parse_program(s->d, s->scratch, s->main_source, s->stop, &s->program) || diag_errors(s->d) > errors) return;
    sema_list_files(s);
    if (!sema_override(s, options)) return;
    sema_list_files(s); /* options may name more files */
    if (options->profile && sim_profile_is_file(options->profile)) sema_list_file(s, options->profile, SPAN_NONE);
    if (diag_errors(s->d) > errors || !sema_show_files(s, options) || !sema_choose_layer(s)) return;
    if (!sema_declare_masks(s) || !sema_declare_arrays(s) || sema_stopped(s)) return;
    expr_check_masks(s);
    if (sema_stopped(s)) return;
    sema_collect_keys(s, &k);
    sema_check_model(s, &k);
    sema_check_recurrent(s);
    sema_check_cluster(s, &k);
    sema_check_linear(s, &k);
    sema_check_batch(s, &k, options->need_lengths);
    if (sema_stopped(s)) return;
    expr_choose_mask(s, &k);
    sema_check_plan(s, &k);
    expr_choose_score(s, &k);
    if (sema_stopped(s)) return;
    sema_finish_arrays(s);
    if (options->profile) read_profile(s, options->profile);
    if (diag_errors(s->d) > errors) return;
    if (list_margins(s->out)) diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    sema_warn_unused(s);
    sema_warn_index_order(s);
    if (sema_stopped(s) || !program_finish(s)) return;
    s->out->workspace = workspace_new(); /* without one, planning keeps nothing between batches */
}

/* The text as a program of one mask, that of a layer. */
static fcp_code parse_layer(const front_input *in, uint32_t layer, fcpc_diagnostics *d, fcpc_program **out_program,
                            front_use *use, void *context) {
    double start = fcp_clock();
    fcpc_diagnostics *own = d ? NULL : fcpc_diagnostics_new();
    if (!d) d = own;
    fcpc_program *p = program_new();
    arena scratch = {0};
    fcp_code code = FCP_E_NO_MEMORY;
    const char *slash = strrchr(in->name, '/');
    char *folder = strndup(in->name, slash ? (size_t)(slash - in->name) + 1 : 0);
    size_t errors = d ? diag_errors(d) : 0, kept = d ? fcpc_diagnostics_count(d) : 0;
    uint32_t source = d && p && folder ? diag_source(d, in->name, in->bytes, in->size, false) : UINT32_MAX;
    if (source != UINT32_MAX) {
        sema s = {.d = d, .scratch = &scratch, .out = p, .main_source = source, .folder = folder, .plan = in->plan,
                  .layer = layer};
        fcpc_options asked;
        fcp_error wrong;
        if (fcp_sized_read(&asked, sizeof asked, in->options, "fcpc_options", &wrong) == FCP_OK) {
            s.stop = asked.stop;
            s.regular_files = asked.regular_files;
            check(&s, &asked, errors);
        } else diag_error(d, wrong.code, SPAN_NONE, "%s", wrong.message);
        code = diag_errors(d) > errors ? diag_code_since(d, kept) : FCP_OK;
        if (code == FCP_OK && use) code = use(&s, context);
        if (code == FCP_OK && diag_errors(d) > errors) code = diag_code_since(d, kept);
        sema_free(&s);
    } else if (d) diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    if (code == FCP_OK) {
        p->parse_seconds = fcp_clock() - start;
        *out_program = p;
        p = NULL;
    }
    fcpc_program_free(p);
    free(folder);
    arena_free(&scratch);
    fcpc_diagnostics_free(own);
    return code;
}

fcp_code front_parse(const front_input *in, fcpc_diagnostics *d, fcpc_program **out_program, front_use *use,
                     void *context) {
    fcpc_program *p = NULL;
    fcp_code code = parse_layer(in, 0, d, &p, in->layer ? NULL : use, context);
    for (uint32_t i = 1; !code && i < p->layer_count; i++) {
        /* What is said of all layers was said with the first. */
        front_use *own = i == in->layer ? use : NULL;
        fcpc_diagnostics *unheard = fcpc_diagnostics_new();
        code = unheard ? parse_layer(in, i, unheard, &p->layers[i].program, own, context) : FCP_E_NO_MEMORY;
        fcpc_diagnostics_free(unheard);
        if (code && code != FCP_E_INTERRUPTED)
            code = parse_layer(in, i, d, &p->layers[i].program, own, context);
        if (!code) p->parse_seconds += p->layers[i].program->parse_seconds;
    }
    if (!code) *out_program = p;
    else fcpc_program_free(p);
    return code;
}

fcp_code front_linear(const fcp_plan *plan, uint64_t out[FCP_PASSES]) {
    const char *word = words_keys[KEY_LINEAR].name;
    const front_input in = {"<plan>", plan->source, plan->source_count, NULL, plan, 0};
    fcpc_program *p = NULL;
    memset(out, 0, FCP_PASSES * sizeof *out);
    if (!memmem(plan->source, plan->source_count, word, strlen(word))) return FCP_OK; /* so most plans cost nothing */
    const fcp_code code = front_parse(&in, NULL, &p, NULL, NULL);
    if (code) return code;
    memcpy(out, p->linear, sizeof p->linear);
    fcpc_program_free(p);
    return FCP_OK;
}

fcp_code fcpc_parse_text(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                         fcpc_diagnostics *d, fcpc_program **out_program) {
    const front_input in = {name ? name : "", bytes, size, options, NULL, 0};
    return front_parse(&in, d, out_program, NULL, NULL);
}

fcp_code fcpc_parse_file(const char *path, const fcpc_options *options, fcpc_diagnostics *d,
                         fcpc_program **out_program) {
    text bytes = {0};
    char room[128];
    fcpc_options asked;
    fcp_error ignored; /* what is wrong with the options is told when the text is parsed */
    const bool known = fcp_sized_read(&asked, sizeof asked, options, "fcpc_options", &ignored) == FCP_OK;
    int failure = text_read(&bytes, path, known && asked.regular_files, SOURCE_MAX);
    fcp_code code = FCP_OK;
    if (failure || bytes.failed) {
        code = failure ? FCP_E_READ : FCP_E_NO_MEMORY;
        if (d && failure)
            diag_error(d, code, SPAN_NONE, "cannot read '%s': %s", path, fcp_read_reason(failure, room));
        else if (d) diag_error(d, code, SPAN_NONE, "out of memory reading '%s'", path);
    } else code = fcpc_parse_text(path, bytes.at ? bytes.at : "", bytes.size, options, d, out_program);
    text_free(&bytes);
    return code;
}

void fcpc_program_free(fcpc_program *program) {
    if (!program) return;
    for (uint32_t i = 1; i < program->layer_count; i++) fcpc_program_free(program->layers[i].program);
    workspace_release(program->workspace);
    program_free(program);
}

uint32_t fcpc_program_layers(const fcpc_program *program, uint32_t number, uint32_t *out_times) {
    const uint32_t count = program->layer_count;
    if (out_times) *out_times = !count ? !number : number < count ? program->layers[number].times : 0;
    return program->layer_count ? program->layer_count : 1;
}
