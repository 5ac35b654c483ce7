/* cmd_show.c: `fcpc show FILE`: draws the mask, the placement and the pipeline, or a part of one sequence's mask, in
 * the terminal or into a file. */
#include <stdlib.h>
#include <string.h>

#include "compiler/cli/cmd.h"
#include "compiler/show/model.h"
#include "compiler/show/summary.h"
#include "compiler/show/zoom.h"

/* The options that name a file to draw into. */
static const cmd_option files[] = {OPT_SVG, OPT_HTML, OPT_PNG};
enum { FILES = sizeof files / sizeof *files };

static bool locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
    }
    return false;
}

/* Draws the plan: as HTML or SVG if the option `as` is one for such a file (PNG is made of SVG), else as text for the
 * terminal. */
static fcp_code draw(const fcp_plan *plan, const fcpc_show_options *how, cmd_option as, char **out, fcp_error *err) {
    if (as == OPT_HTML) return fcpc_show_html(plan, how, out, err);
    if (as == OPT_SVG || as == OPT_PNG) return fcpc_show_svg(plan, how, out, err);
    return fcpc_show_text(plan, how, out, err);
}

static fcp_code draw_file(const fcp_plan *plan, const fcpc_show_options *how, cmd_option as, const char *path,
                          fcp_error *err) {
    char *image = NULL;
    fcp_code code = draw(plan, how, as, &image, err);
    if (code == FCP_OK && as == OPT_PNG) code = cmd_png(image, strlen(image), path, err);
    else if (code == FCP_OK) code = cmd_file_write(path, image, strlen(image), err);
    free(image);
    return code;
}

/* Reads --rows, --cols, --seq, --head, --width, --ascii. */
static fcp_code read_options(const cmd_line *line, fcpc_show_options *out, fcp_error *err) {
    uint64_t width = 0, sequence = 0, head = 0;
    *out = (fcpc_show_options){.size = sizeof *out,
                               .colour = cmd_colour(stdout),
                               .unicode = locale_is_utf8() && !line->value[OPT_ASCII],
                               .part = line->value[OPT_ROWS] || line->value[OPT_COLS] || line->value[OPT_SEQ] ||
                                       line->value[OPT_HEAD],
                               .choose_sequence = line->value[OPT_SEQ] != NULL,
                               .choose_head = line->value[OPT_HEAD] != NULL,
                               .ranks = line->value[OPT_RANKS],
                               .profile = line->value[OPT_PROFILE]};
    fcp_code code = cmd_number(line, OPT_WIDTH, 20, 1000, cmd_width(), &width, err);
    if (code == FCP_OK) code = cmd_check_drawing(line, err);
    if (code == FCP_OK) code = cmd_range(line, OPT_ROWS, &out->row, &out->row_end, err);
    if (code == FCP_OK) code = cmd_range(line, OPT_COLS, &out->col, &out->col_end, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_SEQ, 0, UINT32_MAX - 1, 0, &sequence, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_HEAD, 0, 4095, 0, &head, err);
    if (code == FCP_OK && out->part && line->value[OPT_HTML])
        code = fcp_fail(err, FCP_E_USAGE,
                        "--html draws a whole plan: --rows, --cols, --seq and --head go with --svg and --png");
    out->width = (uint32_t)width;
    out->sequence = (uint32_t)sequence;
    out->head = (uint32_t)head;
    return code;
}

/* Adds how many pairs each sign of the drawn part stands for. If there is an image, its signs are counted, else those
 * of the terminal, which are fewer. */
static fcp_code add_view(json *j, const cmd_line *line, const fcp_plan *plan, const fcpc_show_options *how,
                         fcp_error *err) {
    uint32_t down = ZOOM_SVG_SIDE, across = ZOOM_SVG_SIDE;
    arena memory = {0};
    zoom z;
    if (!line->value[OPT_SVG] && !line->value[OPT_PNG]) zoom_room(how->width, &down, &across);
    fcp_code code = zoom_make(plan, how, down, across, &memory, &z, err);
    if (code == FCP_OK) {
        json_object(j, "view");
        zoom_json(j, &z);
        json_end(j);
    }
    arena_free(&memory);
    return code;
}

/* Adds how much work is computed on another rank than the home of its queries. */
static fcp_code add_moves(json *j, const fcp_plan *plan, fcp_error *err) {
    arena memory = {0};
    show_moves moves;
    fcp_code code = show_moves_find(plan, &memory, &moves);
    if (code == FCP_OK) {
        json_u64(j, "tiles_moved", moves.tiles);
        json_u64(j, "pairs_moved", moves.pairs);
    }
    arena_free(&memory);
    return code == FCP_OK ? code : fcp_fail(err, code, "%s", fcp_code_text(code));
}

/* Adds what is drawn of plan number i. If there are several plans, its files have its number. */
static fcp_code plan_json(json *j, const cmd_line *line, const cmd_input *input, uint32_t i,
                          const fcpc_show_options *how, fcp_error *err) {
    const fcp_plan *plan = cmd_plan(input, i);
    summary_json(j, plan, cmd_times(input, i));
    char packing[SHOW_SENTENCE];
    json_string(j, "short_queries", show_packing(plan, packing) ? packing : NULL);
    fcp_code code = add_moves(j, plan, err);
    if (code == FCP_OK && how->part) code = add_view(j, line, plan, how, err);
    for (size_t f = 0; f < FILES; f++) {
        char *path = line->value[files[f]] ? cmd_layer_path(line->value[files[f]], i) : NULL;
        json_string(j, cmd_options[files[f]].name, path);
        free(path);
    }
    return code;
}

static fcp_code print_json(const cmd_line *line, const cmd_input *input, const fcpc_show_options *how, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    fcp_code code = plan_json(&j, line, input, 0, how, err);
    if (input->layer_count) json_array(&j, "layers");
    for (uint32_t i = 0; i < input->layer_count && !code; i++) {
        json_object(&j, NULL);
        code = cmd_layer_json(input, i, &j, err);
        if (!code) code = plan_json(&j, line, input, i, how, err);
        json_end(&j);
    }
    if (input->layer_count) json_end(&j);
    return cmd_json_finish(&j, input->diagnostics, code, err);
}

/* Draws all plans for the terminal, of a program with layers each below a line that says which it is. */
static fcp_code print_text(const cmd_input *input, const fcpc_show_options *how, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < cmd_plans(input) && !code; i++) {
        char *picture = NULL;
        text name = {0};
        code = cmd_layer_text(input, i, &name, err);
        if (!code) code = draw(cmd_plan(input, i), how, OPT_COUNT, &picture, err);
        if (!code && name.size) printf("%s%.*s\n\n", i ? "\n" : "", (int)name.size, name.at);
        if (!code) fputs(picture, stdout);
        free(picture);
        text_free(&name);
    }
    return code == FCP_OK ? cmd_flush(err) : code;
}

/* Draws each plan into its file of the option, if the line has that. */
static fcp_code draw_files(const cmd_line *line, const cmd_input *input, const fcpc_show_options *how, cmd_option as,
                           fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; line->value[as] && i < cmd_plans(input) && !code; i++) {
        char *path = cmd_layer_path(line->value[as], i);
        code = path ? draw_file(cmd_plan(input, i), how, as, path, err)
                    : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        free(path);
    }
    return code;
}

fcp_code cmd_show(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcpc_show_options how;
    const bool any = line->value[OPT_SVG] || line->value[OPT_HTML] || line->value[OPT_PNG];
    fcp_code code = read_options(line, &how, err);
    if (code == FCP_OK && line->value[OPT_PNG]) code = cmd_png_check(line->value[OPT_PNG], err);
    if (code == FCP_OK) code = cmd_load(line, input, err);
    for (size_t f = 0; f < FILES && !code; f++) code = draw_files(line, input, &how, files[f], err);
    if (code != FCP_OK) return code;
    if (line->json) return print_json(line, input, &how, err);
    return any ? FCP_OK : print_text(input, &how, err);
}
