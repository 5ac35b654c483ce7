/* verify.c: `fcpc verify PLAN`: runs the verifier, and says what it has proven. */
#include <inttypes.h>
#include <sys/stat.h>

#include "compiler/cli/cmd.h"

static void print_text(const cmd_line *line, const fcp_plan *plan, const fcp_verify_report *r) {
    const fcp_problem *p = plan->problem;
    printf("%s: proven right for %" PRIu32 " rank%s\n", line->file, p->ranks, p->ranks == 1 ? "" : "s");
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
    printf("  memory %" PRIu64 " bytes at the largest rank, cap %" PRIu64 "; the summary follows from the tables\n",
           plan->summary->memory_peak_bytes, p->memory_cap);
}

static fcp_code print_json(const cmd_line *line, const cmd_input *input, const fcp_verify_report *r, double seconds,
                           fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    json_bool(&j, "ok", true);
    json_string(&j, "file", line->file);
    json_u64(&j, "ranks", input->plan->problem->ranks);
    json_u64(&j, "tiles", r->tiles);
    json_u64(&j, "transfers", r->transfers);
    json_u64(&j, "instructions", r->instructions);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(input->plan->problem->passes & 1u << pass)) continue;
        json_object(&j, fcp_pass_names[pass]);
        json_u64(&j, "rounds", r->rounds[pass]);
        json_u64(&j, "delta_net", r->delta[pass][FCP_NET]);
        json_u64(&j, "delta_local", r->delta[pass][FCP_LOCAL]);
        json_end(&j);
    }
    json_bool(&j, "halves", r->halves);
    json_u64(&j, "memory_peak_bytes", input->plan->summary->memory_peak_bytes);
    json_u64(&j, "memory_cap_bytes", input->plan->problem->memory_cap);
    json_double(&j, "seconds", seconds);
    cmd_json_diagnostics(&j, input->diagnostics, NULL);
    json_end(&j);
    return cmd_json_print(&j, err);
}

/* cmd_load would take an empty file for a program without a batch. Given to `verify`, it is a plan that was cut short.
 * */
static bool empty_file(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0;
}

fcp_code cmd_verify(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcp_code code = empty_file(line->file) ? fcp_plan_load(line->file, &input->plan, err) : cmd_load(line, input, err);
    if (code != FCP_OK) return code;
    fcp_verify_report report;
    double start = cmd_now();
    cmd_doing("verifying");
    code = fcp_plan_verify(input->plan, NULL, &report, err); /* again: loading keeps no report */
    cmd_done();
    if (code != FCP_OK) return code;
    if (line->json) return print_json(line, input, &report, cmd_now() - start, err);
    if (!line->quiet) print_text(line, input->plan, &report);
    return cmd_flush(err);
}
