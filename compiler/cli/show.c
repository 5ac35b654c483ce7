/* show.c: `fcpc show FILE`: the mask, the placement and the pipeline, or a part of one sequence's mask, in the
 * terminal or as a file. */
#include <stdlib.h>
#include <string.h>

#include "compiler/cli/cmd.h"
#include "compiler/show/terminal.h"
#include "compiler/show/zoom.h"
#include "compiler/show/summary.h"

static bool locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
    }
    return false;
}

/* What is drawn: a plan, or a part of a mask. */
typedef struct picture {
    const fcp_plan *plan;
    const zoom *part; /* NULL: the plan */
} picture;

static void add_text(void *context, const char *bytes, size_t size) { text_add(context, bytes, size); }

static fcp_code draw(const picture *p, cmd_option as, text *out, fcp_error *err) {
    fcp_code code;
    if (as == OPT_HTML) code = show_html(p->plan, add_text, out, err);
    else if (p->part) code = zoom_svg(p->part, add_text, out, err);
    else code = show_svg(p->plan, add_text, out, err);
    return code == FCP_OK && out->failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : code;
}

static fcp_code draw_file(const picture *p, cmd_option as, const char *path, fcp_error *err) {
    text image = {0};
    fcp_code code = draw(p, as, &image, err);
    if (code == FCP_OK && as == OPT_PNG) code = cmd_png(image.at, image.size, path, err);
    else if (code == FCP_OK) code = cmd_file_write(path, image.at, image.size, err);
    text_free(&image);
    return code;
}

/* --- a part of a mask --------------------------------------------------------------------------------------------- */

/* Reads --rows, --cols, --seq; *out_any: one of them was given. */
static fcp_code read_view(const cmd_line *line, zoom_view *out, bool *out_any, fcp_error *err) {
    *out = (zoom_view){.sequence = FCP_NONE};
    *out_any = line->value[OPT_ROWS] || line->value[OPT_COLS] || line->value[OPT_SEQ];
    fcp_code code = cmd_range(line, OPT_ROWS, &out->row, &out->row_end, err);
    if (code == FCP_OK) code = cmd_range(line, OPT_COLS, &out->col, &out->col_end, err);
    if (code == FCP_OK && line->value[OPT_SEQ])
        code = cmd_number(line, OPT_SEQ, 0, UINT32_MAX - 1, 0, &out->sequence, err);
    if (code == FCP_OK && *out_any && line->value[OPT_HTML])
        code =
            fcp_fail(err, FCP_E_USAGE, "--html draws a whole plan: --rows, --cols and --seq go with --svg and --png");
    return code;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static fcp_code print_json(const cmd_line *line, const cmd_input *input, const picture *p, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    summary_json(&j, input->plan, &input->times);
    if (p->part) {
        json_object(&j, "view");
        zoom_json(&j, p->part);
        json_end(&j);
    }
    json_string(&j, "svg", line->value[OPT_SVG]);
    json_string(&j, "html", line->value[OPT_HTML]);
    json_string(&j, "png", line->value[OPT_PNG]);
    cmd_json_diagnostics(&j, input->diagnostics, NULL);
    json_end(&j);
    return cmd_json_print(&j, err);
}

static fcp_code show_picture(const cmd_line *line, const cmd_input *input, const picture *p, uint32_t width,
                             fcp_error *err) {
    static const cmd_option files[] = {OPT_SVG, OPT_HTML, OPT_PNG};
    bool any = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = line->value[files[i]];
        fcp_code code = path ? draw_file(p, files[i], path, err) : FCP_OK;
        if (code != FCP_OK) return code;
        any |= path != NULL;
    }
    if (line->json) return print_json(line, input, p, err);
    if (any) return FCP_OK;
    show_options options = {
        .width = width, .colour = cmd_colour(stdout), .unicode = locale_is_utf8() && !line->value[OPT_ASCII]};
    fcp_code code = p->part ? zoom_text(p->part, &options, cmd_emit, stdout, err)
                            : show_text(input->plan, &options, cmd_emit, stdout, err);
    return code == FCP_OK ? cmd_flush(err) : code;
}

fcp_code cmd_show(const cmd_line *line, cmd_input *input, fcp_error *err) {
    uint64_t width = 0;
    zoom_view view;
    bool part = false;
    arena memory = {0};
    zoom z;
    fcp_code code = cmd_number(line, OPT_WIDTH, 20, 1000, cmd_width(), &width, err);
    if (code == FCP_OK) code = read_view(line, &view, &part, err);
    if (code == FCP_OK && line->value[OPT_PNG]) code = cmd_png_check(line->value[OPT_PNG], err);
    if (code == FCP_OK) code = cmd_load(line, input, err);
    if (code == FCP_OK && part) {
        zoom_room((uint32_t)width, &view.most_rows, &view.most_cols);
        if (line->value[OPT_SVG] || line->value[OPT_PNG]) view.most_rows = view.most_cols = ZOOM_SVG_SIDE;
        code = zoom_make(input->plan, &view, &memory, &z, err);
    }
    const picture p = {input->plan, part ? &z : NULL};
    if (code == FCP_OK) code = show_picture(line, input, &p, (uint32_t)width, err);
    arena_free(&memory);
    return code;
}
