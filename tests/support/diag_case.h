/* diag_case.h: reads the cases of tests/golden/diag.
 *
 * A case is a file NAME.case. It holds lines of options ("$ -D plan.block=2K", "$ --lengths FILE", "$ --field
 * NAME=FILE", "$ --need"), then the program, then a line of '=' signs, then what the compiler must say. Paths are
 * relative to the top of the tree, where tests run.
 */
#ifndef DIAG_CASE_H
#define DIAG_CASE_H
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"

enum { DIAG_CASE_OPTIONS = 16, DIAG_CASE_BYTES = 1 << 20 };
static const char diag_case_folder[] = "tests/golden/diag", diag_case_divider[] = "==========\n";

typedef struct diag_case {
    char path[512];
    char *bytes;            /* the file */
    const char *program;    /* in it, `size` bytes, which may be any */
    size_t size;
    char *expected;         /* in it: what the compiler says */
    fcpc_options options;   /* refer to the file and to the two lists below */
    const char *defines[DIAG_CASE_OPTIONS], *fields[DIAG_CASE_OPTIONS];
} diag_case;

static inline char *diag_case_bytes(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    char *bytes = malloc(DIAG_CASE_BYTES);
    *size = fread(bytes, 1, DIAG_CASE_BYTES - 1, f);
    bytes[*size] = 0;
    fclose(f);
    return bytes;
}

/* The first place of the divider at the start of a line, NULL if none; the program may hold NULs. */
static inline char *diag_case_find_divider(char *bytes, size_t size) {
    const size_t length = sizeof diag_case_divider - 1;
    for (char *at = bytes; at + length <= bytes + size; at++)
        if ((at == bytes || at[-1] == '\n') && !memcmp(at, diag_case_divider, length)) return at;
    return NULL;
}

/* Reads the case of that name into *c, which must stay where it is until diag_case_free. */
static inline void diag_case_read(const char *name, diag_case *c) {
    size_t size;
    snprintf(c->path, sizeof c->path, "%s/%s", diag_case_folder, name);
    c->bytes = diag_case_bytes(c->path, &size);
    char *end = diag_case_find_divider(c->bytes, size), *at = c->bytes;
    cr_assert_not_null(end, "%s has no divider", c->path);
    c->options = (fcpc_options){.size = sizeof(fcpc_options), .defines = c->defines, .fields = c->fields};
    while (!strncmp(at, "$ ", 2)) {
        char *line = at + 2, *newline = strchr(line, '\n');
        *newline = 0;
        cr_assert(c->options.define_count < DIAG_CASE_OPTIONS && c->options.field_count < DIAG_CASE_OPTIONS);
        if (!strncmp(line, "-D ", 3)) c->defines[c->options.define_count++] = line + 3;
        else if (!strncmp(line, "--lengths ", 10)) c->options.lengths_file = line + 10;
        else if (!strncmp(line, "--field ", 8)) c->fields[c->options.field_count++] = line + 8;
        else if (!strcmp(line, "--need")) c->options.need_lengths = true;
        else cr_assert_fail("%s: option %s", c->path, line);
        at = newline + 1;
    }
    c->program = at;
    c->size = (size_t)(end - at);
    c->expected = end + sizeof diag_case_divider - 1;
}

static inline void diag_case_free(diag_case *c) { free(c->bytes); }

static inline int diag_case_is_one(const struct dirent *e) { return strstr(e->d_name, ".case") != NULL; }
/* The names of all, in order; the caller frees each, and the list. */
static inline int diag_case_names(struct dirent ***out) {
    int count = scandir(diag_case_folder, out, diag_case_is_one, alphasort);
    cr_assert_geq(count, 30, "run from the top of the tree");
    return count;
}
#endif
