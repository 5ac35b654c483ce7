/* test_public.c: tests the functions of libfcpc that return a summary, a picture or an explanation: that the text is
 * whole, and that option structures of older and newer versions are accepted. Other tests check what the pictures
 * show. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "tests/support/temporary.h"

static const char source[] = "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\n"
                             "cluster { nodes = 2; gpus = 2 }\n"
                             "batch { lengths = [700, 300, 300] }\n"
                             "plan { mask = lambda(sink = 8, window = 100); block = 128 }\n";

static fcp_plan *make_plan(fcpc_times *out_times) {
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_parse_text("a.fcp", source, sizeof source - 1, NULL, NULL, &program), FCP_OK);
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, out_times, &plan), FCP_OK);
    fcpc_program_free(program);
    return plan;
}

static int lines_of(const char *text) {
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

Test(public, summary) {
    fcpc_times times;
    fcp_plan *plan = make_plan(&times);
    char *text = NULL, *object = NULL;
    cr_assert_eq(fcpc_summary_text(plan, &times, "some/where/a.fcp", "a.plan", &text, NULL), FCP_OK);
    cr_expect_eq(lines_of(text), 5);
    cr_expect_eq(strncmp(text, "a.fcp: 4 ranks (2 nodes of 2), 1300 tokens in 3 sequences, ", 59), 0, "%s", text);
    cr_expect(strstr(text, " in a.plan, verified; "));
    cr_assert_eq(fcpc_summary_json(plan, NULL, &object, NULL), FCP_OK);
    cr_expect(strstr(object, "\"ranks\": 4,") && strstr(object, "\"tokens\": 1300,") && strstr(object, "\"total\": 0"));
    cr_expect(object[0] == '{' && object[strlen(object) - 1] == '}');
    free(text);
    free(object);
    fcp_plan_free(plan);
}

/* Where work moves, every width has a picture; one that has no room for the columns of what moved leaves them out. */
Test(public, a_picture_of_moved_work_fits_every_width) {
    static const char moving[] = "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\n"
                                 "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [3000, 100] }\n"
                                 "plan { mask = causal; block = 128; strategy = cad; layout = contiguous }\n";
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_parse_text("a.fcp", moving, sizeof moving - 1, NULL, NULL, &program), FCP_OK);
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK);
    for (uint32_t width = 20; width <= 160; width++) {
        const fcpc_show_options options = {.size = sizeof options, .width = width};
        char *text = NULL;
        cr_assert_eq(fcpc_show_text(plan, &options, &text, NULL), FCP_OK);
        cr_expect_eq(strstr(text, " gives  takes") != NULL, width >= 78, "width %u", width);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            cr_assert_leq(strcspn(line, "\n"), width < 64 ? 64 : width, "width %u: %.60s", width, line);
        free(text);
    }
    fcp_plan_free(plan);
    fcpc_program_free(program);
}

/* There is a bound of the bytes if it is asked for and work moves. */
static void check_bound(const char *strategy) {
    char in_place[300];
    snprintf(in_place, sizeof in_place, "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\n"
                                        "cluster { nodes = 2; gpus = 2 }\n"
                                        "batch { lengths = [3000, 100] }\n"
                                        "plan { mask = causal; block = 128; strategy = %s; layout = contiguous }\n",
             strategy);
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text("a.fcp", in_place, strlen(in_place), NULL, NULL, &program), FCP_OK);
    for (int asked = 0; asked < 2; asked++) {
        const fcpc_batch batch = {.size = sizeof batch, .bound = asked};
        fcpc_times times;
        fcp_plan *plan = NULL;
        char *object = NULL;
        cr_assert_eq(fcpc_plan_batch(program, &batch, NULL, NULL, &times, &plan), FCP_OK);
        cr_expect_eq(times.bytes_lower_bound > 0, asked);
        cr_assert_eq(fcpc_summary_json(plan, &times, &object, NULL), FCP_OK);
        cr_expect_eq(!strstr(object, "\"bytes_lower_bound\": 0,"), asked);
        free(object);
        fcp_plan_free(plan);
    }
    fcpc_program_free(program);
}

Test(public, bound_of_the_bytes) {
    check_bound("cad");
    check_bound("dcp");
}

Test(public, pictures) {
    fcpc_times times;
    fcp_plan *plan = make_plan(&times);
    fcpc_show_options options = FCPC_SHOW_OPTIONS_INIT;
    char *text = NULL, *again = NULL, *svg = NULL, *html = NULL, *json = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcpc_show_text(plan, NULL, &text, NULL), FCP_OK);
    cr_assert_eq(fcpc_show_text(plan, &options, &again, NULL), FCP_OK);
    cr_expect_str_eq(text, again);
    for (const char *c = text; *c; c++) cr_expect(*c == '\n' || (*c >= ' ' && *c < 127));
    cr_assert_eq(fcpc_show_svg(plan, &options, &svg, NULL), FCP_OK);
    cr_expect(strstr(svg, "</svg>"));
    cr_assert_eq(fcpc_show_html(plan, NULL, &html, NULL), FCP_OK);
    cr_expect(strstr(html, "</html>"));
    free(again), free(svg), free(text);

    options.part = options.choose_sequence = true;
    options.sequence = 1;
    options.row = 250;
    options.col_end = 20;
    cr_assert_eq(fcpc_show_text(plan, &options, &text, NULL), FCP_OK);
    cr_expect(strstr(text, "sequence 1: 300 tokens, 2 alike; rows 250..300, cols 0..20"), "%s", text);
    cr_assert_eq(fcpc_show_json(plan, &options, &json, NULL), FCP_OK);
    cr_expect(strstr(json, "\"rows\": [250, 300]") && strstr(json, "\"pairs_drawn\": 400"), "%s", json);
    cr_assert_eq(fcpc_show_svg(plan, &options, &svg, NULL), FCP_OK);
    cr_expect(strstr(svg, "</svg>"));
    free(text), free(json), free(svg), free(html);

    html = json = NULL;
    cr_expect_eq(fcpc_show_html(plan, &options, &html, &err), FCP_E_ARGUMENT);
    options.sequence = 3;
    cr_expect_eq(fcpc_show_json(plan, &options, &json, &err), FCP_E_VALUE);
    cr_expect(strstr(err.message, "there is no sequence 3"), "%s", err.message);
    cr_expect_eq(fcpc_show_json(plan, NULL, &json, &err), FCP_E_ARGUMENT);
    cr_expect(!html && !json);
    fcp_plan_free(plan);
}

Test(public, explanations) {
    fcpc_times times;
    fcp_plan *plan = make_plan(&times);
    fcpc_question question = FCPC_QUESTION_INIT;
    char *text = NULL, *object = NULL;
    question.q = 300;
    question.k = 100;
    cr_assert_eq(fcpc_explain_text("a.fcp", source, sizeof source - 1, NULL, &question, NULL, &text), FCP_OK);
    cr_expect(strstr(text, "q = 300 does not see k = 100 (n = 700)"), "%s", text);
    free(text);
    question.plan = plan;
    question.choose_sequence = true;
    question.sequence = 2;
    question.q = 299;
    question.k = 7;
    cr_assert_eq(fcpc_explain_json("a.plan", NULL, 0, NULL, &question, NULL, &object), FCP_OK);
    cr_expect(strstr(object, "\"allowed\": true") && strstr(object, "\"n\": 300"), "%s", object);
    free(object);
    object = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    question.k = 300;
    cr_expect_eq(fcpc_explain_json("a.plan", NULL, 0, NULL, &question, d, &object), FCP_E_VALUE);
    question.size = 0;
    cr_expect_eq(fcpc_explain_json("a.plan", NULL, 0, NULL, &question, d, &object), FCP_E_ARGUMENT);
    question.size = sizeof question;
    question.width = UINT32_MAX; /* each line would have four GB */
    cr_expect_eq(fcpc_explain_text("a.plan", NULL, 0, NULL, &question, d, &object), FCP_E_ARGUMENT);
    cr_expect(!object);
    fcpc_diagnostic said;
    cr_assert_eq(fcpc_diagnostics_count(d), 3);
    fcpc_diagnostics_get(d, 1, &said);
    cr_expect_str_eq(said.message, "fcpc_question.size is 0: set it to sizeof(fcpc_question)");
    fcpc_diagnostics_free(d);
    fcp_plan_free(plan);
}

/* Texts and plans in memory need no name. */
Test(public, no_name) {
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    char *text = NULL;
    cr_assert_eq(fcpc_parse_text(NULL, source, sizeof source - 1, NULL, NULL, &program), FCP_OK);
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK);
    cr_assert_eq(fcpc_summary_text(plan, NULL, NULL, NULL, &text, NULL), FCP_OK);
    cr_expect_eq(strncmp(text, "plan: 4 ranks", 13), 0, "%s", text);
    free(text);
    fcpc_question question = FCPC_QUESTION_INIT;
    question.q = 300;
    cr_assert_eq(fcpc_explain_text(NULL, source, sizeof source - 1, NULL, &question, NULL, &text), FCP_OK);
    free(text);
    question.plan = plan;
    cr_assert_eq(fcpc_explain_text(NULL, NULL, 0, NULL, &question, NULL, &text), FCP_OK);
    free(text);
    fcp_plan_free(plan);
    fcpc_program_free(program);
}

/* A caller that was compiled against another header. */
Test(public, options_of_other_versions) {
    static const char *const defines[] = {"plan.block=256"};
    struct { fcpc_options known; uint64_t later; } newer = {
        {.size = sizeof newer, .defines = defines, .define_count = 1}, 0};
    struct { size_t size; const char *const *defines; size_t define_count; } older = {sizeof older, defines, 1};
    fcpc_program *program = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    cr_expect_eq(fcpc_parse_text("a", source, sizeof source - 1, &newer.known, d, &program), FCP_OK);
    char *made = fcpc_program_print(program);
    cr_expect(strstr(made, "block = 256"), "%s", made);
    free(made);
    fcpc_program_free(program);
    cr_expect_eq(fcpc_parse_text("a", source, sizeof source - 1, (fcpc_options *)&older, d, &program), FCP_OK);
    made = fcpc_program_print(program);
    cr_expect(strstr(made, "block = 256"), "%s", made);
    free(made);
    fcpc_program *none = NULL;
    newer.later = 1;
    cr_expect_eq(fcpc_parse_text("a", source, sizeof source - 1, &newer.known, d, &none), FCP_E_ARGUMENT);
    newer.known.size = 3;
    cr_expect_eq(fcpc_parse_text("a", source, sizeof source - 1, &newer.known, d, &none), FCP_E_ARGUMENT);
    newer.known.size = SIZE_MAX;
    cr_expect_eq(fcpc_parse_text("a", source, sizeof source - 1, &newer.known, d, &none), FCP_E_ARGUMENT);
    cr_expect_null(none);
    fcp_plan *plan = NULL;
    cr_expect_eq(fcpc_plan_batch(program, &(fcpc_batch){0}, NULL, d, NULL, &plan), FCP_E_ARGUMENT);
    cr_expect_null(plan);
    cr_expect_eq(fcpc_plan_batch(program, &(fcpc_batch)FCPC_BATCH_INIT, NULL, d, NULL, &plan), FCP_OK);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

Test(public, version_and_files) {
    cr_expect_str_eq(fcpc_version(), FCPC_VERSION);
    static const char names[] =
        "batch { lengths = [3]; field d = [0, 1, 2] }\nmask m = d[q] == d[k]\nplan { mask = m }";
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text("a", names, sizeof names - 1, NULL, NULL, &program), FCP_OK);
    cr_expect_null(fcpc_program_file(program, 0));
    fcpc_program_free(program);
    char path[TEMPORARY];
    cr_assert(temporary_file(path, "public"));
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs("3\n", f);
    fclose(f);
    const fcpc_options options = {.size = sizeof options, .lengths_file = path};
    cr_assert_eq(fcpc_parse_text("a", names, sizeof names - 1, &options, NULL, &program), FCP_OK);
    cr_expect_str_eq(fcpc_program_file(program, 0), path);
    cr_expect_null(fcpc_program_file(program, 1));
    fcpc_program_free(program);
    remove(path);
}
