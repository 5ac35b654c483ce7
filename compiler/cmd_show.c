/* cmd_show.c: `fcpc show FILE`: the mask, the placement and the pipeline, in the terminal or as a file. */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "show.h"
#include "summary.h"

static bool locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
    }
    return false;
}

typedef fcp_code draw(const fcp_plan *plan, fcp_emit *emit, void *context, fcp_error *err);

static fcp_code draw_file(const fcp_plan *plan, const char *path, draw *function, fcp_error *err) {
    cmd_file file;
    fcp_code code = cmd_file_open(&file, path, err);
    if (code == FCP_OK) {
        code = function(plan, cmd_emit, file.stream, err);
        if (code == FCP_OK) code = cmd_file_commit(&file, err);
        else cmd_file_abandon(&file);
    }
    return code;
}

fcp_code cmd_show(const cmd_line *line, cmd_input *input, fcp_error *err) {
    const cmd_option outputs[] = {OPT_SVG, OPT_HTML};
    uint64_t width = 0;
    fcp_code code = cmd_number(line, OPT_WIDTH, 20, 1000, cmd_width(), &width, err);
    if (code == FCP_OK) code = cmd_check_outputs(line, outputs, 2, err);
    if (code == FCP_OK) code = cmd_load(line, input, err);
    const char *svg = line->value[OPT_SVG], *html = line->value[OPT_HTML];
    if (code == FCP_OK && svg) code = draw_file(input->plan, svg, show_svg, err);
    if (code == FCP_OK && html) code = draw_file(input->plan, html, show_html, err);
    if (code != FCP_OK) return code;
    if (line->json) {
        json j = {0};
        json_object(&j, NULL);
        summary_json(&j, input->plan, &input->times);
        json_string(&j, "svg", svg);
        json_string(&j, "html", html);
        cmd_json_warnings(&j, input->diagnostics);
        json_end(&j);
        return cmd_json_print(&j, err);
    }
    if (svg || html) return FCP_OK;
    show_options options = {.width = (uint32_t)width,
                            .colour = cmd_colour(stdout),
                            .unicode = locale_is_utf8() && !line->value[OPT_ASCII]};
    code = show_text(input->plan, &options, cmd_emit, stdout, err);
    return code == FCP_OK ? cmd_flush(err) : code;
}
