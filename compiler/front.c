/* front.c: from text to a checked program, on one page: read, parse, override, declare, check, print.
 *
 * Requires: bytes. Gives: an fcpc_program that owns all it refers to, or every error found, in the order of the lines
 * of defence: reading, lexing and parsing, overrides, names and types, keys and values; a later line is manned only if
 * the earlier ones held. Cost: O(source + batch + inlined mask).
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "compiler/base/sized.h"
#include "compiler/sema/sema.h"
#include "compiler/workspace.h"

extern const char fcpc_prelude[];
extern const unsigned fcpc_prelude_size;

static bool out_of_memory(sema *s) {
    diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    return false;
}

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Each -D becomes a source of its own, so that errors in it can be shown. */
static bool override(sema *s, const char *define) {
    text name = {0};
    size_t size = strlen(define);
    text_printf(&name, "-D %.60s%s", define, size > 60 ? "..." : "");
    char *label = text_take(&name);
    uint32_t number = label ? diag_source(s->d, label, define, size, false) : UINT32_MAX;
    free(label);
    if (number == UINT32_MAX) return out_of_memory(s);
    sema_apply_override(s, number);
    return true;
}

/* --lengths FILE: as if the batch had said file("FILE"), seen from the current folder. */
static bool override_lengths(sema *s, const char *path) {
    uint32_t number = diag_source(s->d, "--lengths", path, strlen(path), false);
    if (number == UINT32_MAX) return out_of_memory(s);
    span at = {number, 0, (uint32_t)strlen(path)};
    expr *call = sema_new_expr(s, EXPR_CALL, at), *string = sema_new_expr(s, EXPR_STRING, at);
    arg *a = ARENA_ZNEW(s->scratch, arg, 1);
    char *copy = arena_copy(s->scratch, path, strlen(path));
    if (!call || !string || !a || !copy) return out_of_memory(s);
    string->name = copy;
    *a = (arg){.value = string};
    call->name = "file";
    call->name_at = at;
    call->args = a;
    call->arg_count = 1;
    return sema_set_entry(s, SECTION_BATCH, KEY_LENGTHS, call, at) != NULL;
}

/* --- finishing ---------------------------------------------------------------------------------------------------- */

static const char *print(sema *s, bool batch) {
    text out = {0};
    ast_print(&s->program, batch, &out);
    const char *copy = out.failed ? NULL : arena_copy(&s->out->arena, out.at ? out.at : "", out.size);
    text_free(&out);
    if (!copy) out_of_memory(s);
    return copy;
}

static void shift(span *at, uint32_t base) {
    if (at->source != UINT32_MAX) at->source -= base;
}

/* The sources that the program's spans refer to, from `base` on; spans then count from the first of them. */
static bool keep_sources(sema *s, uint32_t base) {
    struct fcpc_program *p = s->out;
    uint32_t count = diag_source_count(s->d) - base;
    struct program_source *sources = ARENA_ZNEW(&p->arena, struct program_source, count);
    if (!sources) return out_of_memory(s);
    for (uint32_t i = 0; i < count; i++) {
        const char *name, *bytes;
        diag_source_get(s->d, base + i, &name, &bytes, &sources[i].size, &sources[i].builtin);
        sources[i].name = arena_copy(&p->arena, name, strlen(name));
        sources[i].text = arena_copy(&p->arena, bytes, sources[i].size);
        if (!sources[i].name || !sources[i].text) return out_of_memory(s);
    }
    p->sources = sources;
    p->source_count = count;
    span *spans = (span *)p->mask_spans;
    for (uint32_t i = 0; i < p->mask.count; i++) shift(&spans[i], base);
    spans = (span *)p->score_spans;
    for (uint32_t i = 0; i < p->score.count; i++) shift(&spans[i], base);
    if (!p->check.count) p->check = p->mask, p->check_spans = p->mask_spans;
    spans = (span *)p->check_spans;
    for (uint32_t i = 0; i < p->check.count && spans != p->mask_spans; i++) shift(&spans[i], base);
    struct program_param *params = (struct program_param *)p->mask_params;
    for (uint32_t i = 0; i < p->mask_param_count; i++) shift(&params[i].at, base);
    program_slices *slices = (program_slices *)p->slices_about;
    for (uint32_t i = 0; i < p->slices_count; i++) shift(&slices[i].at, base);
    program_array *arrays = (program_array *)p->arrays;
    for (uint32_t i = 0; i < p->array_count; i++) shift(&arrays[i].at, base);
    span *const others[] = {&p->mask_span,    &p->score_span,  &p->block_span,  &p->ranks_span,
                            &p->lengths_span, &p->memory_span, &p->strategy_span};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) shift(others[i], base);
    return true;
}

/* The code of the first error from number `from` on. */
static fcp_code first_code(const diags *d, size_t from) {
    for (size_t i = from; i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic found;
        fcpc_diagnostics_get(d, i, &found);
        if (!found.warning) return found.code;
    }
    return diag_first_code(d);
}

/* --- the pipeline ------------------------------------------------------------------------------------------------- */

static bool parse_sources(sema *s, uint32_t base, size_t errors) {
    uint32_t prelude = diag_source(s->d, "<prelude>", fcpc_prelude, fcpc_prelude_size, true);
    if (prelude == UINT32_MAX) return out_of_memory(s);
    return parse_program(s->d, s->scratch, base, &s->program) &&
           parse_program(s->d, s->scratch, prelude, &s->prelude) && diag_errors(s->d) == errors;
}

static void run(sema *s, const fcpc_options *options, uint32_t base, size_t errors) {
    if (!parse_sources(s, base, errors)) return;
    sema_list_files(s);
    for (size_t i = 0; i < options->define_count; i++)
        if (!override(s, options->defines[i])) return;
    if (options->lengths_file && !override_lengths(s, options->lengths_file)) return;
    for (size_t i = 0; i < options->field_count; i++)
        if (!sema_override_field(s, options->fields[i])) return;
    sema_list_files(s); /* those that options name */
    if (diag_errors(s->d) > errors || !sema_declare_masks(s) || !sema_declare_arrays(s)) return;
    /* a plan holds the arrays that its own mask and score read, and no others */
    for (mask *m = s->program.masks; m && !s->plan; m = m->next) expr_check_mask(s, m);
    sema_check_keys(s, options);
    if (diag_errors(s->d) > errors) return;
    sema_warn_unused(s);
    s->out->canonical = print(s, true);
    s->out->plan_source = print(s, false);
    keep_sources(s, base);
    s->out->workspace = workspace_new(); /* without one, planning keeps nothing */
}

fcp_code sema_text(const char *name, const char *bytes, size_t size, const fcpc_options *options, const fcp_plan *plan,
                   fcpc_diagnostics *d, fcpc_program **out_program, sema_use *use, void *context) {
    double start = fcp_clock();
    fcpc_diagnostics *own = d ? NULL : fcpc_diagnostics_new();
    if (!d) d = own;
    fcpc_program *p = calloc(1, sizeof *p);
    arena scratch = {0};
    fcp_code code = FCP_E_NO_MEMORY;
    const char *slash = strrchr(name, '/');
    char *folder = strndup(name, slash ? (size_t)(slash - name) + 1 : 0);
    size_t errors = d ? diag_errors(d) : 0, kept = d ? fcpc_diagnostics_count(d) : 0;
    uint32_t base = d && p && folder ? diag_source(d, name, bytes, size, false) : UINT32_MAX;
    if (base != UINT32_MAX) {
        fcpc_options asked;
        fcp_error wrong;
        sema s = {.d = d, .scratch = &scratch, .out = p, .main_source = base, .folder = folder, .plan = plan};
        p->mask_span = p->score_span = SPAN_NONE;
        if (sized_read(&asked, sizeof asked, options, "fcpc_options", &wrong) == FCP_OK) run(&s, &asked, base, errors);
        else diag_error(d, wrong.code, SPAN_NONE, "%s", wrong.message);
        code = diag_errors(d) > errors ? first_code(d, kept) : FCP_OK;
        if (code == FCP_OK && use) code = use(&s, context);
        if (code == FCP_OK && diag_errors(d) > errors) code = first_code(d, kept);
        free(s.symbols);
        free(s.memos);
        free(s.places);
    } else if (d) diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory");
    if (code == FCP_OK) {
        p->parse_seconds = fcp_clock() - start;
        *out_program = p;
        p = NULL;
    }
    fcpc_program_free(p);
    free(folder);
    arena_free(&scratch);
    fcpc_diagnostics_free(own);
    return code;
}

fcp_code fcpc_parse_text(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                         fcpc_diagnostics *d, fcpc_program **out_program) {
    return sema_text(name, bytes, size, options, NULL, d, out_program, NULL, NULL);
}

fcp_code fcpc_parse_file(const char *path, const fcpc_options *options, fcpc_diagnostics *d,
                         fcpc_program **out_program) {
    text bytes = {0};
    int failure = text_read(&bytes, path, SOURCE_MAX);
    fcp_code code = FCP_OK;
    if (failure || bytes.failed) {
        code = failure ? FCP_E_READ : FCP_E_NO_MEMORY;
        if (d && failure) diag_error(d, code, SPAN_NONE, "cannot read '%s': %s", path, strerror(failure));
        else if (d) diag_error(d, code, SPAN_NONE, "out of memory reading '%s'", path);
    } else code = fcpc_parse_text(path, bytes.at ? bytes.at : "", bytes.size, options, d, out_program);
    text_free(&bytes);
    return code;
}

void fcpc_program_free(fcpc_program *program) {
    if (!program) return;
    workspace_release(program->workspace);
    arena a = program->arena; /* which the program does not lie in */
    free(program);
    arena_free(&a);
}

const char *fcpc_version(void) { return FCPC_VERSION; }

char *fcpc_program_print(const fcpc_program *program) { return strdup(program->canonical); }

const uint64_t *fcpc_program_lengths(const fcpc_program *program, size_t *out_count) {
    *out_count = program->length_count;
    return program->lengths;
}

const char *fcpc_program_file(const fcpc_program *program, size_t number) {
    const struct program_file *f = program->files;
    while (f && number--) f = f->next;
    return f ? f->path : NULL;
}

const uint64_t *fcpc_program_queries(const fcpc_program *program) { return program->queries; }
