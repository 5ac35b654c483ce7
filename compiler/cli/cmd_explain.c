/* cmd_explain.c: `fcpc explain FILE|PLAN|MASK q k`: says why a pair is allowed or not, and what the score makes of its
 * logit. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/explain/explain.h"
#include "compiler/base/real.h"
#include "runtime/plan/plan.h"

static bool ends_with(const char *string, const char *end) {
    size_t n = strlen(string), m = strlen(end);
    return n >= m && !strcmp(string + n - m, end);
}

/* Whether this is the call of a mask, as in `fcpc explain causal 3 2`, and not the name of a file. */
static bool is_call(const char *typed) {
    return strcmp(typed, "-") != 0 && access(typed, F_OK) != 0 && !ends_with(typed, ".fcp") &&
           !ends_with(typed, ".plan") && !strpbrk(typed, "\n#{}");
}

/* Reads the text that is explained into input->bytes: that of a program file, or the program in a plan. For a mask's
 * call such as `causal` it makes a program with that mask. */
static fcp_code read_subject(const cmd_line *line, cmd_input *input, const char **out_name, fcp_error *err) {
    fcp_code code = FCP_OK;
    if (is_call(line->file)) {
        *out_name = "<mask>";
        text_printf(&input->bytes, "plan { mask = %s }\n", line->file);
    } else {
        *out_name = cmd_name(line);
        code = cmd_open(line, input, err);
        if (code == FCP_OK) code = input->is_plan ? cmd_load(line, input, err) : cmd_source(line, input, err);
        if (code == FCP_OK && input->is_plan)
            text_add(&input->bytes, input->plan->source, input->plan->source_count);
    }
    if (code != FCP_OK || !input->bytes.failed) return code;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
}

static fcp_code print_text(const explanation *o, const char *name, uint32_t width, fcp_error *err) {
    text out = {0};
    explain_text(o, name, width, cmd_colour(stdout), &out);
    return cmd_text_print(&out, stdout, FCP_OK, err);
}

static fcp_code print_json(const explanation *o, const cmd_input *input, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    explain_json(o, &j);
    return cmd_json_finish(&j, input->diagnostics, FCP_OK, err);
}

static fcp_code read_logit(const char *word, double *out, fcp_error *err) {
    const char *digits = word + (*word == '-');
    size_t whole = strspn(digits, "0123456789"), size = whole, part = 0;
    if (digits[size] == '.') size += 1 + (part = strspn(digits + size + 1, "0123456789"));
    if (!whole || digits[size] || (size > whole && !part) || !real_parse(digits, out))
        return fcp_fail(err, FCP_E_USAGE, "--s takes a number, as in --s -1.5; this is '%.60s'", word);
    if (*word == '-') *out = -*out;
    return FCP_OK;
}

/* The number of the mask that --layer chooses, from 0. To count the masks, the program is parsed once more than needed;
 * its errors are reported later, when the pair is explained. */
static fcp_code find_layer(const cmd_line *line, const cmd_input *input, const char *name, uint32_t *out,
                           fcp_error *err) {
    const fcpc_options options = cmd_settings(line);
    fcpc_program *program = NULL;
    uint32_t chosen = 0;
    *out = 0;
    if (!line->value[OPT_LAYER]) return FCP_OK;
    if (fcpc_parse_text(name, input->bytes.at, input->bytes.size, &options, NULL, &program)) return FCP_OK;
    fcp_code code = cmd_choose_layer(line, program, &chosen, err);
    if (!code) *out = chosen - 1;
    fcpc_program_free(program);
    return code;
}

fcp_code cmd_explain(const cmd_line *line, cmd_input *input, fcp_error *err) {
    uint64_t q = 0, k = 0, n = 0, h = 0, width = 0;
    bool before = line->more[0][0] == '-'; /* the query stands before the first key */
    fcp_code code = cmd_position("q", line->more[0] + before, &q, err);
    if (code == FCP_OK) code = cmd_position("k", line->more[1], &k, err);
    if (code == FCP_OK && line->value[OPT_LENGTH]) code = cmd_position("--length", line->value[OPT_LENGTH], &n, err);
    if (code == FCP_OK && line->value[OPT_LENGTH] && !n)
        code = fcp_fail(err, FCP_E_USAGE, "--length must be at least 1");
    if (code == FCP_OK) code = cmd_number(line, OPT_HEAD, 0, 4095, 0, &h, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_WIDTH, 20, 1000, cmd_width(), &width, err);
    double logit = 0;
    if (code == FCP_OK && line->value[OPT_LOGIT]) code = read_logit(line->value[OPT_LOGIT], &logit, err);
    uint64_t sequence = 0;
    if (code == FCP_OK && line->value[OPT_SEQ]) code = cmd_number(line, OPT_SEQ, 0, UINT32_MAX - 1, 0, &sequence, err);
    const char *name = NULL;
    if (code == FCP_OK) code = read_subject(line, input, &name, err);
    if (code == FCP_OK && !input->diagnostics) input->diagnostics = fcpc_diagnostics_new();
    if (code == FCP_OK && !input->diagnostics) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    explanation out = {.q = before ? -(int64_t)q : (int64_t)q,
                       .k = (int64_t)k,
                       .n = (int64_t)n,
                       .h = (int64_t)h,
                       .s = logit,
                       .sequence = sequence,
                       .asked = line->value[OPT_SEQ] != NULL,
                       .plan = input->plan};
    if (code == FCP_OK) code = find_layer(line, input, name, &out.layer, err);
    if (code == FCP_OK) {
        fcpc_options options = cmd_settings(line);
        code = explain_pair(name, input->bytes.at, input->bytes.size, &options, input->diagnostics, &out);
        if (code != FCP_OK) cmd_first_error(input->diagnostics, code, err);
    }
    if (code == FCP_OK) code = line->json ? print_json(&out, input, err) : print_text(&out, name, (uint32_t)width, err);
    arena_free(&out.arena);
    return code;
}
