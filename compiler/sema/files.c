/* files.c: lists the files that a program names for lengths, fields, tables and slices. (data_file.c reads them.)
 *
 * Cost: O(the program).
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/files.h"
#include "compiler/base/text.h"

char *sema_path(sema *s, const expr *e) {
    bool relative = e->name[0] != '/' && e->at.source == s->main_source;
    text path = {0};
    text_printf(&path, "%s%s", relative ? s->folder : "", e->name);
    char *full = text_take(&path);
    if (!full) sema_no_memory(s);
    return full;
}

bool sema_is_npy(const char *path, const char *bytes, size_t size) {
    size_t length = strlen(path);
    return (size >= 6 && !memcmp(bytes, "\x93NUMPY", 6)) || (length > 4 && !strcmp(path + length - 4, ".npy"));
}

/* --- which files a program names ---------------------------------------------------------------------------------- */

void sema_list_file(sema *s, const char *path, span at) {
    struct program_file *f = ARENA_ZNEW(&s->out->arena, struct program_file, 1);
    if (f) *f = (struct program_file){s->out->files, arena_copy(&s->out->arena, path, strlen(path)), at};
    if (f && f->path) s->out->files = f;
    else sema_no_memory(s);
}

static void list_file(sema *s, const expr *e) {
    char *path = sema_path(s, e);
    if (path) sema_list_file(s, path, e->at);
    free(path);
}

static void list_args(sema *s, const arg *args);

/* Lists every file("path") in an expression. */
static void list_expr(sema *s, const expr *e) {
    for (; e && e->kind == EXPR_BINARY; e = e->a) list_expr(s, e->b); /* the left side may be deep */
    if (!e) return;
    switch ((expr_kind)e->kind) {
    case EXPR_CALL:
        for (const arg *a = ast_is_call(e, words_sources[SOURCE_FILE]) ? e->args : NULL; a; a = a->next)
            if (a->value && a->value->kind == EXPR_STRING) list_file(s, a->value);
        list_args(s, e->args);
        break;
    case EXPR_LIST:
    case EXPR_TUPLE: list_args(s, e->args); break;
    case EXPR_INDEX: list_expr(s, e->d); /* fall through */
    case EXPR_UNARY:
    case EXPR_IF:
    case EXPR_RANGE:
    case EXPR_REPEAT:
    case EXPR_ON:
    case EXPR_OVER:
    case EXPR_PAIR:
        list_expr(s, e->a);
        list_expr(s, e->b);
        list_expr(s, e->c);
        break;
    default: break;
    }
}

static void list_args(sema *s, const arg *args) {
    for (const arg *a = args; a; a = a->next) list_expr(s, a->value);
}

void sema_list_files(sema *s) {
    for (const section *x = s->program.sections; x; x = x->next)
        for (const entry *e = x->entries; e; e = e->next) list_expr(s, e->value);
    for (const mask *m = s->program.masks; m; m = m->next) {
        list_args(s, m->params);
        list_expr(s, m->body);
        for (const definition *d = m->definitions; d; d = d->next) list_expr(s, d->body);
    }
}

bool sema_show_files(sema *s, const fcpc_options *options) {
    for (const struct program_file *f = s->out->files; f && options->see_file; f = f->next) {
        fcp_error err = {0};
        fcp_code code = options->see_file(options->context, f->path, &err);
        if (!code) continue;
        diag_error(s->d, code, f->at, "'%s' %s", *err.file ? err.file : f->path, err.message);
        return false;
    }
    return true;
}
