/* inlay.c: figures of the plan that the editor shows in the text, behind the settings that they follow from: pairs
 * behind the mask, ranks behind gpus, blocks behind block, and the predicted time behind the strategy. What the program
 * leaves out is shown behind `plan` or `cluster`.
 *
 * There are none until the newest text has been planned. The server then tells the editor to ask again.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/lsp/lsp_parts.h"
#include "compiler/show/summary.h"

typedef struct hints {
    const lsp_document *doc;
    const lsp_tree *t;
    size_t begin, end; /* the part of the text that is asked for */
    json *j;
} hints;

/* Shows a label behind byte `at`, and empties it. */
static void show(const hints *h, size_t at, text *label) {
    text_add(label, "", 1);
    if (label->failed) h->j->out.failed = true;
    else if (at >= h->begin && at <= h->end) {
        json_object(h->j, NULL);
        lsp_json_position(h->j, "position", lsp_lines_position(&h->doc->lines, at));
        json_string(h->j, "label", label->at);
        json_bool(h->j, "paddingLeft", true);
        json_end(h->j);
    }
    label->size = 0;
}

/* Shows it behind the value of the first of these keys that the program sets; if it sets none, behind the name of the
 * section. */
static void show_behind(const hints *h, const char *section_name, const char *const *keys, text *label) {
    size_t at = SIZE_MAX;
    for (const section *x = h->t->program.sections; x && at == SIZE_MAX; x = x->next)
        if (!strcmp(x->name, section_name)) at = x->name_at.end;
    for (bool found = false; *keys && !found; keys++)
        for (const section *x = h->t->program.sections; x && !found; x = x->next)
            for (const entry *e = strcmp(x->name, section_name) ? NULL : x->entries; e && !found; e = e->next)
                if (!e->as && (found = !strcmp(e->key, *keys))) at = lsp_tree_statement(h->t, e->key_at).end;
    show(h, at, label); /* SIZE_MAX is in no part */
}

static void add_time(text *label, double seconds) {
    static const struct {
        double of;
        const char *unit;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    int i = 0;
    while (i < 2 && seconds < units[i].of) i++;
    text_printf(label, "%.3g %s predicted", seconds / units[i].of, units[i].unit);
}

static void add_masks(const hints *h, text *label) {
    const lsp_figures *f = &h->doc->figures;
    char number[SUMMARY_NUMBER];
    for (uint32_t i = 0; i < f->mask_count; i++)
        text_printf(label, "%s%s pairs, %.3g %%", i ? "; " : "", summary_number(number, f->masks[i].pairs, ""),
                    100 * f->masks[i].density);
}

static void show_figures(const hints *h) {
    const lsp_figures *f = &h->doc->figures;
    text label = {0};
    add_masks(h, &label);
    show_behind(h, "plan", (const char *const[]){"mask", "layers", NULL}, &label);
    text_printf(&label, "%u rank%s", f->ranks, text_plural(f->ranks));
    show_behind(h, "cluster", (const char *const[]){"gpus", "nodes", NULL}, &label);
    text_printf(&label, "%llu block%s", (unsigned long long)f->blocks, text_plural(f->blocks));
    if (f->block_found) text_printf(&label, " of %u tokens", f->block);
    show_behind(h, "plan", (const char *const[]){"block", NULL}, &label);
    if (f->strategy_found) text_printf(&label, "%s, ", f->strategy);
    add_time(&label, f->seconds);
    if (f->seconds > 0) show_behind(h, "plan", (const char *const[]){"strategy", NULL}, &label);
    text_free(&label);
}

void lsp_inlay_hints(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_position from = {0, 0}, to = {UINT32_MAX, 0};
    lsp_document *doc = lsp_find_document(s, params, reply);
    lsp_tree *t = doc ? lsp_document_tree(doc) : NULL;
    if (doc && !t) lsp_fail(reply, RPC_INTERNAL, "out of memory");
    if (!t) return;
    if (!lsp_find_position(params, "range.start", &from) || !lsp_find_position(params, "range.end", &to)) {
        lsp_fail(reply, RPC_PARAMS, "range is missing, or is none");
        return;
    }
    const hints h = {doc, t, lsp_lines_offset(&doc->lines, from), lsp_lines_offset(&doc->lines, to), &reply->result};
    json_array(h.j, NULL);
    if (doc->figures.known) show_figures(&h);
    json_end(h.j);
}
