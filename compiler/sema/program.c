/* program.c: ends a parse: makes the canonical text of the program, and copies of the sources that its places refer to.
 *
 * A place in the text (struct span) names its source by a number. During a parse, that is a number in the diagnostics
 * object of the parse. A finished program has copies of its sources and numbers them from 0. So an error of a later
 * batch can be shown in another diagnostics object: program_attach adds the copies to it.
 */
#include "compiler/sema/program.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/sema/layer_masks.h"
#include "compiler/sema/sema.h"

/* Prints the canonical text, and the text that plans store. */
static bool print_program(sema *s) {
    struct fcpc_program *p = s->out;
    text out = {0};
    size_t batch[2];
    sema_show_layers(s, true);
    ast_print(&s->program, &out, batch);
    if (!out.failed) p->canonical = arena_copy(&p->arena, out.at ? out.at : "", out.size);
    sema_show_layers(s, false);
    if (s->layers_entry) { /* a plan has one layer's mask */
        out.size = 0;
        ast_print(&s->program, &out, batch);
    }
    if (out.size) {
        memmove(out.at + batch[0], out.at + batch[1], out.size - batch[1]);
        out.size -= batch[1] - batch[0];
    }
    if (!out.failed) p->plan_source = arena_copy(&p->arena, out.at ? out.at : "", out.size);
    text_free(&out);
    return (p->canonical && p->plan_source) || sema_no_memory(s);
}

static void rebase(span *at, uint32_t base) {
    if (at->source != UINT32_MAX) at->source -= base;
}

static void rebase_nodes(const mc_code *code, const span *spans, uint32_t base) {
    for (uint32_t i = 0; i < code->count; i++) rebase((span *)&spans[i], base);
}

/* Makes every span of the program count from source number `base`. */
static void rebase_spans(struct fcpc_program *p, uint32_t base) {
    rebase_nodes(&p->mask, p->mask_spans, base);
    rebase_nodes(&p->score, p->score_spans, base);
    if (p->check_spans != p->mask_spans) rebase_nodes(&p->check, p->check_spans, base);
    for (uint32_t i = 0; i < p->mask_param_count; i++) rebase((span *)&p->mask_params[i].at, base);
    for (uint32_t i = 0; i < p->slices_count; i++) rebase((span *)&p->slices_about[i].at, base);
    for (uint32_t i = 0; i < p->array_count; i++) rebase((span *)&p->arrays[i].at, base);
    for (uint32_t i = 0; i < p->exact_count; i++) rebase(&p->exact[i].at, base);
    for (int i = 0; i < PROGRAM_PLACES; i++) rebase(&p->at[i], base);
}

static bool keep_sources(sema *s) {
    struct fcpc_program *p = s->out;
    uint32_t base = s->main_source, count = diag_source_count(s->d) - base;
    struct program_source *sources = ARENA_ZNEW(&p->arena, struct program_source, count);
    if (!sources) return sema_no_memory(s);
    for (uint32_t i = 0; i < count; i++) {
        const char *name, *bytes;
        diag_source_get(s->d, base + i, &name, &bytes, &sources[i].size, &sources[i].builtin);
        diag_source_begin(s->d, base + i, &sources[i].line, &sources[i].column);
        sources[i].name = arena_copy(&p->arena, name, strlen(name));
        sources[i].text = arena_copy(&p->arena, bytes, sources[i].size);
        if (!sources[i].name || !sources[i].text) return sema_no_memory(s);
    }
    p->sources = sources;
    p->source_count = count;
    return true;
}

bool program_finish(sema *s) {
    struct fcpc_program *p = s->out;
    if (!p->check.count) { /* no score, or one that cannot fault */
        p->check = p->mask;
        p->check_spans = p->mask_spans;
    }
    if (!print_program(s) || !keep_sources(s)) return false;
    rebase_spans(p, s->main_source);
    return true;
}

/* Are the sources of the program those of d from number `base` on? */
static bool holds_sources(const diags *d, uint32_t base, const fcpc_program *program) {
    for (uint32_t i = 0; i < program->source_count; i++) {
        const struct program_source *own = &program->sources[i];
        const char *name, *bytes;
        size_t size;
        bool builtin;
        uint32_t line, column;
        diag_source_get(d, base + i, &name, &bytes, &size, &builtin);
        diag_source_begin(d, base + i, &line, &column);
        if (size != own->size || line != own->line || column != own->column || strcmp(name, own->name) ||
            memcmp(bytes, own->text, size))
            return false;
    }
    return true;
}

uint32_t program_attach(const fcpc_program *program, diags *d) {
    uint32_t known = diag_source_count(d), count = program->source_count;
    for (uint32_t base = 0; base + count <= known; base++)
        if (holds_sources(d, base, program)) return base;
    for (uint32_t i = 0; i < count; i++) {
        const struct program_source *own = &program->sources[i];
        const uint32_t number = own->builtin
                                    ? diag_source(d, own->name, own->text, own->size, true)
                                    : diag_excerpt(d, own->name, own->text, own->size, own->line, own->column);
        if (number == UINT32_MAX) return UINT32_MAX - count; /* out of memory: spans point nowhere */
    }
    return known;
}

fcpc_program *program_new(void) {
    fcpc_program *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    for (int i = 0; i < PROGRAM_PLACES; i++) p->at[i] = SPAN_NONE;
    p->documents = FCP_NONE;
    return p;
}

void program_free(fcpc_program *program) {
    arena a = program->arena; /* the program itself is not in it */
    free(program);
    arena_free(&a);
}

char *fcpc_program_print(const fcpc_program *program) { return strdup(program->canonical); }

const uint64_t *fcpc_program_lengths(const fcpc_program *program, size_t *out_count) {
    *out_count = program->length_count;
    return program->lengths;
}

const uint64_t *fcpc_program_queries(const fcpc_program *program) { return program->queries; }

const char *fcpc_version(void) { return FCPC_VERSION; }

const char *fcpc_program_file(const fcpc_program *program, size_t number) {
    const struct program_file *f = program->files;
    while (f && number--) f = f->next;
    return f ? f->path : NULL;
}
