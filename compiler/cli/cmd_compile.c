/* cmd_compile.c: `fcpc FILE.fcp -o PLAN`: compiles a program to a plan, which is verified, and writes it. A program
 * with layers makes a plan for each mask: a.plan, a.2.plan, ... */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/dump_passes.h"
#include "compiler/show/summary.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/save.h"

fcp_code cmd_write_plans(const cmd_input *input, const char *path, bool regular, fcp_error *err) {
    const uint32_t count = cmd_plans(input);
    cmd_file *files = calloc(count, sizeof *files);
    char **paths = calloc(count, sizeof *paths);
    fcp_code code = files && paths ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; files && i < count; i++) files[i] = CMD_FILE_NONE;
    for (uint32_t i = 0; i < count && !code; i++) {
        files[i].regular = regular;
        paths[i] = cmd_layer_path(path, i);
        code = paths[i] ? cmd_file_open(&files[i], paths[i], err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        int why = code ? 0 : fcp_plan_write(cmd_plan(input, i), files[i].file.fd);
        if (why) code = cmd_cannot_write(paths[i], why, err);
    }
    if (files) code = cmd_files_commit(files, count, code, err);
    for (uint32_t i = 0; paths && i < count; i++) free(paths[i]);
    free(paths);
    free(files);
    return code;
}

/* Finds the paths of the extracts. What lies at such a path and is no file of extracts is not replaced: the caller has
 * not named it, and it may be one that the program reads. */
static fcp_code find_slices(cmd_input *input, const char *path, fcp_error *err) {
    const uint32_t count = cmd_plans(input);
    fcp_code code = FCP_OK;
    input->slices = calloc(count, sizeof *input->slices);
    for (uint32_t i = 0; i < count && !code; i++) {
        struct cmd_slices *x = input->slices ? &input->slices[i] : NULL;
        char *plan = x ? cmd_layer_path(path, i) : NULL;
        if (plan) x->path = cmd_slices_path(plan);
        free(plan);
        if (!x || !x->path) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        if (access(x->path, F_OK) == 0 && fcp_extracts_said(x->path, x->root, NULL) == FCP_E_PLAN_MAGIC)
            code = fcp_fail_in(err, FCP_E_WRITE, x->path, 0, 0,
                               "is there, and is no file of extracts: --slices would replace it");
    }
    return code;
}

/* How well work is balanced in a program with layers: the busiest rank's work divided by the mean. most: for the mask
 * where it is largest. layers: for all layers together, each as long as its busiest rank. */
typedef struct layers_balance {
    double most, layers;
} layers_balance;

static layers_balance balance_of(const cmd_input *input) {
    layers_balance out = {0};
    double busiest = 0, means = 0;
    for (uint32_t i = 0; i < input->layer_count; i++) {
        const fcp_plan *plan = cmd_plan(input, i);
        const double most = (double)plan->summary->pairs_max_rank, times = (double)input->layers[i].times,
                     mean = (double)plan->summary->pairs / plan->problem->ranks;
        if (mean > 0 && most / mean > out.most) out.most = most / mean;
        busiest += times * most;
        means += times * mean;
    }
    if (means > 0) out.layers = busiest / means;
    return out;
}

static void balance_json(const cmd_input *input, json *j) {
    if (!input->layer_count) return;
    const layers_balance balance = balance_of(input);
    json_double(j, "compute_max_over_mean_any", balance.most);
    json_double(j, "compute_max_over_mean_layers", balance.layers);
}

/* Adds the members of one plan: its summary, its path, perhaps its digest, and the digest of its homes. */
static fcp_code plan_json(const cmd_input *input, uint32_t number, const fcpc_times *times, const char *path,
                          bool digest, const volatile int *stop, json *j, fcp_error *err) {
    const fcp_plan *plan = cmd_plan(input, number);
    uint8_t bytes[FCP_DIGEST_BYTES];
    char hex[2 * FCP_DIGEST_BYTES + 1];
    summary_json(j, plan, times);
    json_string(j, "plan", path);
    fcp_code code = digest ? fcp_plan_digest(plan, bytes, err) : FCP_OK;
    if (!code && digest) json_string(j, "digest", cmd_hex(bytes, hex));
    if (!code) code = fcp_plan_homes_until(plan, stop, bytes, err);
    if (!code) json_string(j, "homes", cmd_hex(bytes, hex));
    if (!code && input->slices) {
        json_string(j, "slices", input->slices[number].path);
        json_string(j, "root", cmd_hex(input->slices[number].root, hex));
    }
    return code;
}

fcp_code cmd_plans_json(const cmd_input *input, const char *path, bool digest, const volatile int *stop, json *j,
                        fcp_error *err) {
    fcp_code code = plan_json(input, 0, &input->times, path, digest, stop, j, err);
    balance_json(input, j);
    if (!input->layer_count) return code;
    json_array(j, "layers");
    for (uint32_t i = 0; i < input->layer_count && !code; i++) {
        char *written = path ? cmd_layer_path(path, i) : NULL;
        json_object(j, NULL);
        code = cmd_layer_json(input, i, j, err);
        if (!code) code = plan_json(input, i, cmd_times(input, i), written, digest, stop, j, err);
        json_end(j);
        free(written);
    }
    json_end(j);
    return code;
}

static fcp_code add_summary(const cmd_line *line, const cmd_input *input, const char *path, text *out, fcp_error *err) {
    uint8_t homes[FCP_DIGEST_BYTES];
    char hex[2 * FCP_DIGEST_BYTES + 1];
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < cmd_plans(input) && !code; i++) {
        char *written = path ? cmd_layer_path(path, i) : NULL;
        summary_text(out, cmd_plan(input, i), cmd_times(input, i), cmd_name(line), written);
        free(written);
        if (input->slices)
            text_printf(out, "  slices  %s, root %s\n", input->slices[i].path, cmd_hex(input->slices[i].root, hex));
        if (!input->layer_count) continue;
        text_puts(out, "  layers  ");
        code = cmd_layer_text(input, i, out, err);
        text_puts(out, "\n");
    }
    if (code || !input->layer_count) return code;
    const layers_balance balance = balance_of(input);
    code = fcp_plan_homes(input->plan, homes, err);
    if (!code)
        text_printf(out, "  homes   %s, of all masks; work max/mean %.4f under any, %.4f over all layers; %.2f ms\n",
                    cmd_hex(homes, hex), balance.most, balance.layers, 1e3 * input->times.total);
    return code;
}

static fcp_code print_json(const cmd_input *input, const char *path, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    fcp_code code = cmd_plans_json(input, path, false, NULL, &j, err);
    if (input->tried.count) auto_json(&input->tried, &j, "auto");
    return cmd_json_finish(&j, input->diagnostics, code, err);
}

/* Prints to stdout what auto tried. */
static fcp_code print_tried(const cmd_input *input, fcp_error *err) {
    text tried = {0};
    auto_print(&input->tried, &tried);
    return cmd_text_print(&tried, stdout, FCP_OK, err);
}

/* Makes malloc faster for a process that plans once. The kernel has to zero every page that it hands out, so memory
 * that one pass frees should be kept for the next: both threads use one heap, which is never trimmed and grows by whole
 * megabytes. */
static void keep_memory(void) {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_TOP_PAD, 1 << 20);
}

fcp_code cmd_compile(const cmd_line *line, cmd_input *input, fcp_error *err) {
    keep_memory();
    const char *path = line->value[OPT_OUTPUT], *passes = line->value[OPT_DUMP];
    fcp_code code = passes ? dump_select(passes, &input->dump, err) : FCP_OK;
    if (passes && line->json) code = fcp_fail(err, FCP_E_USAGE, "--dump prints text, --json one object: one of them");
    if (code == FCP_OK) code = cmd_open(line, input, err);
    if (code == FCP_OK && input->is_plan)
        code = fcp_fail(err, FCP_E_USAGE, "%.200s is a plan already; fcpc help lists what can be done with it",
                        cmd_name(line));
    if (code == FCP_OK) code = cmd_load(line, input, err);
    if (code == FCP_OK && !input->tried.count && line->value[OPT_EXPLAIN])
        code = fcp_fail(err, FCP_E_USAGE, "--explain: this program leaves neither strategy nor block to auto");
    const bool slices = line->value[OPT_SLICES];
    if (code == FCP_OK && slices && (!path || !strcmp(path, "-")))
        code = fcp_fail(err, FCP_E_USAGE, "--slices writes a file beside the plan: say where, with -o PLAN");
    if (code == FCP_OK && slices) code = find_slices(input, path, err);
    if (code == FCP_OK && path) {
        cmd_doing("writing");
        code = cmd_write_plans(input, path, false, err);
        for (uint32_t i = 0; i < cmd_plans(input) && !code && slices; i++)
            code = fcp_extracts_save(cmd_plan(input, i), input->slices[i].path, NULL, input->slices[i].root, err);
        cmd_done();
    }
    if (code == FCP_OK && !line->quiet) {
        text lines = {0};
        code = add_summary(line, input, path, &lines, err);
        code = cmd_text_print(&lines, stderr, code, err);
    }
    if (code != FCP_OK) return code;
    if (line->json) return print_json(input, path, err);
    if (line->value[OPT_EXPLAIN]) return print_tried(input, err);
    return passes ? cmd_flush(err) : FCP_OK;
}
