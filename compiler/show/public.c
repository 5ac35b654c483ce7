/* public.c: the functions fcpc_summary_* and fcpc_show_* of fcpc.h, which give the summary and the pictures as
 * strings. */
#include <string.h>

#include "runtime/base/sized.h"
#include "compiler/show/summary.h"
#include "compiler/show/terminal.h"
#include "compiler/show/zoom.h"

/* Gives the text to the caller if `code` is FCP_OK and the text is whole; otherwise frees it. */
static fcp_code hand_over(text *t, fcp_code code, char **out_text, fcp_error *err) {
    char *made = code == FCP_OK ? text_take(t) : NULL;
    text_free(t);
    if (code != FCP_OK) return code;
    if (!made) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    *out_text = made;
    return FCP_OK;
}

static fcp_code hand_over_json(json *j, char **out_text, fcp_error *err) {
    const char *object = json_text(j);
    char *made = object ? strdup(object) : NULL;
    json_free(j);
    if (!made) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    *out_text = made;
    return FCP_OK;
}

/* --- the summary -------------------------------------------------------------------------------------------------- */

static const fcpc_times no_times;

fcp_code fcpc_summary_text(const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written,
                           char **out_text, fcp_error *err) {
    text t = {0};
    summary_text(&t, plan, times ? times : &no_times, name ? name : "plan", written);
    return hand_over(&t, FCP_OK, out_text, err);
}

fcp_code fcpc_summary_json(const fcp_plan *plan, const fcpc_times *times, char **out_text, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    summary_json(&j, plan, times ? times : &no_times);
    json_end(&j);
    return hand_over_json(&j, out_text, err);
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

fcp_code fcpc_show_text(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    fcpc_show_options o;
    fcp_code code = fcp_sized_read(&o, sizeof o, options, "fcpc_show_options", err);
    if (code != FCP_OK) return code;
    const show_options how = {.width = o.width ? o.width : 80, .colour = o.colour, .unicode = o.unicode};
    text t = {0};
    arena memory = {0};
    zoom z;
    if (o.part) {
        uint32_t rows, cols;
        zoom_room(how.width, &rows, &cols);
        code = zoom_part(plan, &o, rows, cols, &memory, &z, err);
        if (code == FCP_OK) code = zoom_text(&z, &how, &t, err);
    } else code = show_text(plan, &how, &t, err);
    arena_free(&memory);
    return hand_over(&t, code, out_text, err);
}

fcp_code fcpc_show_svg(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    fcpc_show_options o;
    fcp_code code = fcp_sized_read(&o, sizeof o, options, "fcpc_show_options", err);
    if (code != FCP_OK) return code;
    text t = {0};
    arena memory = {0};
    zoom z;
    if (o.part) {
        code = zoom_part(plan, &o, ZOOM_SVG_SIDE, ZOOM_SVG_SIDE, &memory, &z, err);
        if (code == FCP_OK) code = zoom_svg(&z, &t, err);
    } else code = show_svg(plan, &t, err);
    arena_free(&memory);
    return hand_over(&t, code, out_text, err);
}

fcp_code fcpc_show_json(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    fcpc_show_options o;
    fcp_code code = fcp_sized_read(&o, sizeof o, options, "fcpc_show_options", err);
    if (code != FCP_OK) return code;
    if (!o.part)
        return fcp_fail(err, FCP_E_ARGUMENT, "the counts are of a part of a mask; fcpc_summary_json has a plan's");
    json j = {0};
    arena memory = {0};
    zoom z;
    uint32_t rows, cols;
    zoom_room(o.width ? o.width : 80, &rows, &cols);
    code = zoom_part(plan, &o, rows, cols, &memory, &z, err);
    if (code == FCP_OK) {
        json_object(&j, NULL);
        zoom_json(&j, &z);
        json_end(&j);
        code = hand_over_json(&j, out_text, err);
    } else json_free(&j);
    arena_free(&memory);
    return code;
}
