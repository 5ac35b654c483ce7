/* cmd_verify.c: `fcpc verify PLAN`: runs the verifier, and prints what it has proven and what it has not. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "compiler/cli/cmd.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/verify/verify.h"

/* What was proven of a plan. */
typedef struct proof {
    fcp_verify_report report;
    fcp_pairs_proof pairs; /* with --pairs */
    bool slices;           /* with --slices */
    uint8_t root[FCP_DIGEST_BYTES];
    double seconds;
} proof;

/* Lists in JSON what was proven, and what was not. */
static void list_proven(const fcp_plan *plan, const proof *x, bool pairs, json *j) {
    static const char *const always[] = {"tiles", "transfers", "waits", "slots", "rounds", "partial_results", "results",
                                         "reshuffle", "memory", "summary"};
    json_array(j, "proven");
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) json_string(j, NULL, always[i]);
    if (x->report.halves) json_string(j, NULL, "halves");
    if (plan->score_count) json_string(j, NULL, "slope");
    if (pairs) json_string(j, NULL, "pairs");
    if (x->slices) json_string(j, NULL, "slices");
    json_end(j);
    json_array(j, "not_proven");
    if (!pairs) json_string(j, NULL, "pairs");
    json_string(j, NULL, "source");
    json_end(j);
}

static void print_text(const fcp_plan *plan, const proof *x, bool pairs) {
    const fcp_problem *p = plan->problem;
    const fcp_verify_report *r = &x->report;
    printf("  %" PRIu64 " tiles, each computed once, on blocks that are present when they are read\n", r->tiles);
    printf("  %" PRIu64 " transfers, each send with its receive; no rank sends or receives twice in a round of a "
           "fabric\n", r->transfers);
    printf("  %" PRIu64 " instructions without a wait cycle; no slot is overwritten while it is still to be read\n",
           r->instructions);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (p->passes & 1u << pass)
            printf("  %-8s %" PRIu64 " rounds of what can be sent at once, the bound: net %" PRIu64
                   ", local %" PRIu64 "\n",
                   fcp_pass_names[pass], r->rounds[pass], r->delta[pass][FCP_NET], r->delta[pass][FCP_LOCAL]);
    printf("  every partial result is reduced once, in order, and every result is made once and comes home\n");
    if (r->halves)
        printf("  work moves in two halves; at each rank at most half of what waits for others needs the second\n");
    if (plan->score_count) printf("  the slope of the score is its derivative\n");
    printf("  memory %" PRIu64 " bytes at the largest rank, cap %" PRIu64 "; the summary follows from the tables\n",
           plan->summary->memory_peak_bytes, p->memory_cap);
    if (pairs)
        printf("  %" PRIu64 " pairs: tiles have those that the mask's code allows, and no others; %" PRIu64
               " boxes of pairs and %" PRIu64 " single pairs were evaluated\n",
               x->pairs.pairs, x->pairs.boxes, x->pairs.elements);
    char hex[2 * FCP_DIGEST_BYTES + 1];
    if (x->slices) printf("  the extracts of all ranks are of this plan, root %s\n", cmd_hex(x->root, hex));
    printf(pairs ? "  not proven: that the mask's code is what the source says\n"
                 : "  not proven: that tiles have the pairs of the mask; --pairs evaluates it\n");
}

static void add_json(json *j, const fcp_plan *plan, const proof *x, bool pairs) {
    const fcp_verify_report *r = &x->report;
    list_proven(plan, x, pairs, j);
    json_u64(j, "ranks", plan->problem->ranks);
    json_u64(j, "tiles", r->tiles);
    json_u64(j, "transfers", r->transfers);
    json_u64(j, "instructions", r->instructions);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(plan->problem->passes & 1u << pass)) continue;
        json_object(j, fcp_pass_names[pass]);
        json_u64(j, "rounds", r->rounds[pass]);
        json_u64(j, "delta_net", r->delta[pass][FCP_NET]);
        json_u64(j, "delta_local", r->delta[pass][FCP_LOCAL]);
        json_end(j);
    }
    json_bool(j, "halves", r->halves);
    if (pairs) {
        json_object(j, "pairs");
        json_u64(j, "pairs", x->pairs.pairs);
        json_u64(j, "boxes", x->pairs.boxes);
        json_u64(j, "elements", x->pairs.elements);
        json_end(j);
    }
    char hex[2 * FCP_DIGEST_BYTES + 1];
    if (x->slices) json_string(j, "root", cmd_hex(x->root, hex));
    json_u64(j, "memory_peak_bytes", plan->summary->memory_peak_bytes);
    json_u64(j, "memory_cap_bytes", plan->problem->memory_cap);
    json_double(j, "seconds", x->seconds);
}

/* Verifies one plan. It was verified when it was loaded, but without a report. */
static fcp_code prove(const fcp_plan *plan, bool pairs, double max_seconds, proof *out, fcp_error *err) {
    const double start = cmd_now();
    cmd_doing("verifying");
    fcp_code code = fcp_plan_verify(plan, NULL, &out->report, err);
    cmd_done();
    if (!code && pairs) {
        cmd_doing("evaluating the mask");
        code = fcp_plan_verify_pairs(plan, max_seconds, NULL, &out->pairs, err);
        cmd_done();
    }
    out->seconds = cmd_now() - start;
    return code;
}

/* Cuts the plan's extracts again, and compares: those of the file, one by one, must have the root that these have. */
static fcp_code prove_slices(const fcp_plan *plan, const char *path, proof *out, fcp_error *err) {
    char *slices = cmd_slices_path(path);
    fcp_code code =
        slices ? fcp_extracts_root(plan, NULL, out->root, err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    for (uint32_t r = 0; r < plan->problem->ranks && !code; r++) {
        fcp_plan *extract = NULL;
        code = fcp_extracts_load(slices, r, out->root, &extract, err);
        fcp_plan_free(extract);
    }
    free(slices);
    out->slices = true;
    return code;
}

/* Proves all plans and prints a paragraph for each. In JSON each plan of a program with layers is an element of
 * `layers`, and the members of the first plan also stand in the outermost object. */
static fcp_code prove_all(const cmd_line *line, const cmd_input *input, json *j, fcp_error *err) {
    const bool pairs = line->value[OPT_PAIRS], layers = input->layer_count, quiet = line->quiet || line->json;
    double max_seconds = 0;
    fcp_code code = cmd_max_seconds(line, &max_seconds, err);
    for (uint32_t i = 0; i < cmd_plans(input) && !code; i++) {
        const fcp_plan *plan = cmd_plan(input, i);
        proof x = {{0}};
        text name = {0};
        code = prove(plan, pairs, max_seconds, &x, err);
        if (!code && line->value[OPT_SLICES]) code = prove_slices(plan, line->file, &x, err);
        if (!code) code = cmd_layer_text(input, i, &name, err);
        if (!code && !i) add_json(j, plan, &x, pairs);
        if (!code && layers) {
            if (!i) json_array(j, "layers");
            json_object(j, NULL);
            code = cmd_layer_json(input, i, j, err);
            add_json(j, plan, &x, pairs);
            json_end(j);
        }
        if (!code && !quiet) {
            printf("%s%s%.*s: proven for %" PRIu32 " rank%s\n", line->file, layers ? ", " : "", (int)name.size,
                   layers ? name.at : "", plan->problem->ranks, plan->problem->ranks == 1 ? "" : "s");
            print_text(plan, &x, pairs);
        }
        text_free(&name);
    }
    if (layers && !code) json_end(j);
    return code;
}

/* An empty file is a plan that was cut short. cmd_load would take it for a program without a batch. */
static bool empty_file(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0;
}

fcp_code cmd_verify(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcp_code code = empty_file(line->file) ? fcp_plan_load(line->file, &input->plan, err) : cmd_load(line, input, err);
    if (!code && line->value[OPT_SLICES] && !input->is_plan)
        code = fcp_fail(err, FCP_E_USAGE, "--slices is about the file beside a plan: verify the plan, not the program");
    if (code != FCP_OK) return code;
    json j = {0};
    json_object(&j, NULL);
    json_bool(&j, "ok", true);
    json_string(&j, "file", line->file);
    code = prove_all(line, input, &j, err);
    if (line->json) return cmd_json_finish(&j, input->diagnostics, code, err);
    json_free(&j);
    return code ? code : cmd_flush(err);
}
