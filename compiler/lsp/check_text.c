/* check_text.c: checks a text as `fcpc FILE` would, in two steps: it is parsed, and then planned, which gives warnings
 * and figures. Between the steps the editor gets what the first has found, because planning may take seconds.
 *
 * A job has a copy of the text, so that the document may change meanwhile; what the job then says is thrown away.
 * Limits:  planning that takes too long is no error of the program: the editor says so as an information (E405).
 * Threads: lsp_job_run uses nothing but the job.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/sema/program.h"
#include "compiler/sema/strategies.h"
#include "compiler/show/summary.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"

struct lsp_job {
    const lsp_document *of; /* to be compared, not read: it may be gone */
    uint64_t change;        /* of the text */
    char *name;
    text bytes;
    int stop;      /* set atomically */
    int late;      /* likewise: that is why it stopped */
    bool planning; /* the step that runs, or is next */
    bool done;
    fcp_code code; /* of planning */
    diags *d;
    fcpc_program *program;
    lsp_figures figures;
};

/* --- jobs --------------------------------------------------------------------------------------------------------- */

static void job_free(lsp_job *job) {
    if (!job) return;
    fcpc_program_free(job->program);
    fcpc_diagnostics_free(job->d);
    lsp_figures_free(&job->figures);
    text_free(&job->bytes);
    free(job->name);
    free(job);
}

static lsp_job *job_new(const lsp_document *doc) {
    lsp_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->of = doc;
    job->change = doc->change;
    job->name = strdup(doc->path);
    job->d = fcpc_diagnostics_new();
    text_add(&job->bytes, doc->lines.bytes, doc->bytes.size);
    if (job->name && job->d && !job->bytes.failed) return job;
    job_free(job);
    return NULL;
}

static void stop_job(lsp_job *job) { __atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED); }

void lsp_job_late(lsp_job *job) {
    __atomic_store_n(&job->late, 1, __ATOMIC_RELAXED);
    stop_job(job);
}

void lsp_stop(lsp_server *s) {
    if (s->job) stop_job(s->job);
}

void lsp_forget_job(lsp_server *s, const lsp_document *doc) {
    if (s->job && s->job->of == doc) stop_job(s->job);
}

static lsp_document *document_of(const lsp_server *s, const lsp_job *job) {
    lsp_document *doc = s->documents;
    while (doc && doc->change != job->change) doc = doc->next;
    return doc;
}

lsp_job *lsp_next_job(lsp_server *s) {
    if (s->state != LSP_RUNNING || s->life != LSP_READY) return NULL;
    if (s->job) return s->job;
    lsp_document *doc = s->documents;
    while (doc && doc->checked) doc = doc->next;
    return doc ? s->job = job_new(doc) : NULL;
}

/* --- on the job's thread ------------------------------------------------------------------------------------------ */

static void parse_step(lsp_job *job) {
    const fcpc_options options = {.size = sizeof options, .stop = &job->stop, .regular_files = true};
    const char *bytes = job->bytes.at ? job->bytes.at : "";
    fcpc_parse_text(job->name, bytes, job->bytes.size, &options, job->d, &job->program);
    job->planning = true;
    size_t count;
    const uint64_t *lengths = job->program ? fcpc_program_lengths(job->program, &count) : NULL;
    job->done = !lengths;
}

/* The predicted time of both passes. */
static double predict(const fcp_plan *plan, const volatile int *stop) {
    sim_profile how = {.name = ""};
    sim_result result;
    arena memory = {0};
    double seconds = 0;
    const sim_options options = {.seed = 1, .brief = true, .stop = stop};
    if (!sim_profile_of(plan->cluster, &how, NULL) && !simulate(plan, &how, &options, &memory, &result, NULL))
        for (int pass = 0; pass < FCP_PASSES; pass++)
            seconds += (double)result.pass[pass].makespan / (double)SIM_SECOND;
    arena_free(&memory);
    return seconds;
}

/* Keeps what hover and inlay hints tell of the plans, one for each mask. */
static void keep_figures(lsp_job *job, fcp_plan *const *plans, uint32_t count) {
    lsp_figures *f = &job->figures;
    const fcp_problem *p = plans[0]->problem;
    const fcpc_program *program = job->program;
    f->masks = ARENA_ZNEW(&f->memory, struct lsp_mask_figures, count);
    if (!f->masks) return;
    f->ranks = p->ranks;
    f->nodes = p->nodes;
    f->block = p->block;
    f->blocks = plans[0]->summary->blocks;
    f->tokens = p->tokens;
    f->strategy = summary_strategy(p->strategy);
    f->block_found = program->block == BLOCK_AUTO;
    f->strategy_found = program->strategy == (fcp_strategy)STRATEGY_AUTO;
    for (uint32_t i = 0; i < count; i++) {
        const summary_figures of = summary_derive(plans[i]);
        const fcpc_program *own = i ? program->layers[i].program : program;
        struct lsp_mask_figures *m = &f->masks[f->mask_count];
        m->call = arena_copy(&f->memory, own->mask_name, strlen(own->mask_name));
        if (!m->call) return;
        m->pairs = of.pairs;
        m->density = of.density;
        fcpc_program_layers(program, i, &m->times);
        f->seconds += predict(plans[i], &job->stop) * m->times;
        f->mask_count++;
    }
    f->known = !job->stop;
}

static void plan_step(lsp_job *job) {
    const uint32_t count = fcpc_program_layers(job->program, 0, NULL);
    fcp_plan **plans = calloc(count, sizeof(fcp_plan *));
    const fcpc_batch batch = {.size = sizeof batch, .max_seconds = LSP_MASK_SECONDS};
    job->done = true;
    job->code = FCP_E_NO_MEMORY;
    if (plans) job->code = fcpc_plan_layers(job->program, &batch, &job->stop, job->d, NULL, plans);
    if (plans && !job->code) keep_figures(job, plans, count);
    for (uint32_t i = 0; plans && i < count; i++) fcp_plan_free(plans[i]);
    free(plans);
}

void lsp_job_run(lsp_job *job) {
    if (job->planning) plan_step(job);
    else parse_step(job);
}

/* --- what the editor is told -------------------------------------------------------------------------------------- */

bool lsp_is_own(const lsp_document *doc, const diags *d, span at) {
    const char *name, *bytes;
    size_t size;
    bool builtin;
    if (at.source >= diag_source_count(d)) return false;
    diag_source_get(d, at.source, &name, &bytes, &size, &builtin);
    return !builtin && size == doc->bytes.size && !strcmp(name, doc->path);
}

enum { SEVERITY_ERROR = 1, SEVERITY_WARNING, SEVERITY_INFORMATION };

/* The message, with its hints below it. If its place is in another file, that is said before it. */
static char *message_of(const lsp_document *doc, const diags *d, size_t i, const fcpc_diagnostic *one) {
    text out = {0};
    span at;
    const char *note;
    if (*one->file && !lsp_is_own(doc, d, diag_at(d, i)))
        text_printf(&out, "%s:%u:%u: ", one->file, one->line, one->column);
    text_puts(&out, one->message);
    for (size_t n = 0; diag_note(d, i, n, &at, &note); n++)
        if (at.source == UINT32_MAX) text_printf(&out, "\nhint: %s", note);
    return text_take(&out);
}

/* Where it is shown: at its place; if that is in another file, at the first place in this text that it names; else at
 * the text's beginning. */
static span shown_at(const lsp_document *doc, const diags *d, size_t i) {
    span at = diag_at(d, i);
    const char *note;
    for (size_t n = 0; !lsp_is_own(doc, d, at); n++)
        if (!diag_note(d, i, n, &at, &note)) return (span){0, 0, 0};
    return at;
}

static void add_related(const lsp_document *doc, const diags *d, size_t i, json *j) {
    span at;
    const char *note;
    json_array(j, "relatedInformation");
    for (size_t n = 0; diag_note(d, i, n, &at, &note); n++) {
        if (!lsp_is_own(doc, d, at)) continue;
        json_object(j, NULL);
        json_object(j, "location");
        json_string(j, "uri", doc->uri);
        lsp_json_range(j, "range", &doc->lines, at.begin, at.end);
        json_end(j);
        json_string(j, "message", note);
        json_end(j);
    }
    json_end(j);
}

void lsp_json_diagnostic(const lsp_document *doc, const diags *d, size_t i, json *j) {
    fcpc_diagnostic one;
    fcpc_diagnostics_get(d, i, &one);
    const span at = shown_at(doc, d, i);
    const bool brief = one.code == FCP_E_TOO_LONG;
    char *message = message_of(doc, d, i, &one);
    json_object(j, NULL);
    lsp_json_range(j, "range", &doc->lines, at.begin, at.end);
    json_u64(j, "severity", one.warning ? SEVERITY_WARNING : brief ? SEVERITY_INFORMATION : SEVERITY_ERROR);
    if (!one.warning) json_string(j, "code", fcp_code_name(one.code));
    json_string(j, "source", "fcpc");
    json_string(j, "message", message ? message : one.message);
    add_related(doc, d, i, j);
    json_end(j);
    free(message);
}

static void begin_publish(const lsp_document *doc, json *j) {
    lsp_begin(j, "textDocument/publishDiagnostics");
    json_string(j, "uri", doc->uri);
    if (doc->has_version) json_i64(j, "version", doc->version);
    json_array(j, "diagnostics");
}

void lsp_publish_none(lsp_server *s, const lsp_document *doc) {
    json j = {0};
    begin_publish(doc, &j);
    json_end(&j);
    lsp_send(s, &j);
}

static void publish(lsp_server *s, const lsp_document *doc, const diags *d, bool late) {
    json j = {0};
    begin_publish(doc, &j);
    for (size_t i = 0; i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        if (one.code != FCP_E_INTERRUPTED) lsp_json_diagnostic(doc, d, i, &j);
    }
    if (late) {
        json_object(&j, NULL);
        lsp_json_range(&j, "range", &doc->lines, 0, 0);
        json_u64(&j, "severity", SEVERITY_INFORMATION);
        json_string(&j, "code", fcp_code_name(FCP_E_TOO_LONG));
        json_string(&j, "source", "fcpc");
        json_string(&j, "message", "this program takes too long to check while it is edited; fcpc FILE says the rest");
        json_end(&j);
    }
    json_end(&j);
    lsp_send(s, &j);
}

/* The editor may ask again for what depends on figures. */
static void refresh(lsp_server *s) {
    json j = {0};
    if (!s->refreshes) return;
    json_object(&j, NULL);
    json_string(&j, "jsonrpc", "2.0");
    json_string(&j, "method", "workspace/inlayHint/refresh");
    json_u64(&j, "id", ++s->asked);
    json_object(&j, "params");
    lsp_send(s, &j);
}

void lsp_job_done(lsp_server *s, lsp_job *job) {
    lsp_document *doc = document_of(s, job);
    const bool late = job->late;
    if (late) job->done = true;
    if (s->state != LSP_RUNNING || s->life != LSP_READY) doc = NULL;
    if (doc) {
        publish(s, doc, job->d, late);
        doc->checked = job->done;
    }
    if (doc && !job->done) return; /* the next step */
    if (doc) {
        fcpc_diagnostics_free(doc->d); /* of the same text, checked before it was saved */
        doc->d = job->d;
        job->d = NULL;
        lsp_figures_free(&doc->figures);
        doc->figures = job->figures;
        job->figures = (lsp_figures){0};
        refresh(s);
    }
    s->job = NULL;
    job_free(job);
}
