/* public.c: defines the functions fcpc_summary_* and fcpc_show_* of fcpc.h, which give the summary and the pictures as
 * strings. */
#include "runtime/base/sized.h"
#include "runtime/plan/extract.h"
#include "compiler/show/summary.h"
#include "compiler/show/terminal.h"
#include "compiler/show/zoom.h"

/* --- the summary -------------------------------------------------------------------------------------------------- */

static const fcpc_times no_times;

fcp_code fcpc_summary_text(const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written,
                           char **out_text, fcp_error *err) {
    text t = {0};
    fcp_code code = fcp_plan_whole(plan, "a summary", err);
    if (code) return code;
    summary_text(&t, plan, times ? times : &no_times, name ? name : "plan", written);
    return text_hand_over(&t, FCP_OK, out_text, err);
}

fcp_code fcpc_summary_json(const fcp_plan *plan, const fcpc_times *times, char **out_text, fcp_error *err) {
    json j = {0};
    fcp_code code = fcp_plan_whole(plan, "a summary", err);
    if (code) return code;
    json_object(&j, NULL);
    summary_json(&j, plan, times ? times : &no_times);
    json_end(&j);
    return json_hand_over(&j, FCP_OK, out_text, err);
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

typedef enum form { TEXT, SVG, JSON } form;

/* Draws the whole plan, or the part that the options choose. JSON has the counts of a part alone. */
static fcp_code draw(const fcp_plan *plan, const fcpc_show_options *options, form as, char **out_text,
                     fcp_error *err) {
    fcpc_show_options o;
    text t = {0};
    json j = {0};
    arena memory = {0};
    zoom z;
    uint32_t rows = ZOOM_SVG_SIDE, cols = ZOOM_SVG_SIDE;
    fcp_code code = fcp_sized_read(&o, sizeof o, options, "fcpc_show_options", err);
    if (!code) code = fcp_plan_whole(plan, "a picture", err);
    if (code != FCP_OK) return code;
    if (as == JSON && !o.part)
        return fcp_fail(err, FCP_E_ARGUMENT, "the counts are of a part of a mask; fcpc_summary_json has a plan's");
    if (!o.width) o.width = 80;
    if (as != SVG) zoom_room(o.width, &rows, &cols);
    if (o.part) code = zoom_make(plan, &o, rows, cols, &memory, &z, err);
    if (!code && as == SVG) code = o.part ? zoom_svg(&z, &t, err) : show_svg(plan, &t, err);
    else if (!code && as == TEXT) code = o.part ? zoom_text(&z, &o, &t, err) : show_text(plan, &o, &t, err);
    else if (!code) {
        json_object(&j, NULL);
        zoom_json(&j, &z);
        json_end(&j);
    }
    arena_free(&memory);
    return as == JSON ? json_hand_over(&j, code, out_text, err) : text_hand_over(&t, code, out_text, err);
}

fcp_code fcpc_show_text(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    return draw(plan, options, TEXT, out_text, err);
}

fcp_code fcpc_show_svg(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    return draw(plan, options, SVG, out_text, err);
}

fcp_code fcpc_show_json(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    return draw(plan, options, JSON, out_text, err);
}
