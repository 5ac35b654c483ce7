/* fuzz_parse.c: gives bytes to the parser and, if they parse, to the rest of the front end.
 *
 * Oracle: 1. Bytes that do not parse end with an error that has a message and a picture of the place. A picture takes
 *     as long as a parse, so the fuzzer draws one in PICTURES; a replay draws all of them.
 *         2. If bytes parse, the tree is printed. Parsing that text and printing again gives the same text.
 *         3. Running `fmt` twice gives the same text as running it once.
 *         4. Compiling the bytes gives a program, or an error as in 1. The program's canonical text compiles to a
 *            program with the same canonical text and the same mask code.
 *         5. `explain` and the mask code agree about a pair.
 * Input:  any bytes; the corpus holds small programs. The fuzzer stays below 128 bytes, because a parse takes as long
 *         as its text, and each feature of the language fits into that. fuzz/corpus/parse-large holds longer ones, for
 *         replays.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "compiler/syntax/parse.h"
#include "compiler/explain/explain.h"
#include "compiler/syntax/format.h"
#include "compiler/sema/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
    __attribute__((weak)); /* NULL in a replay */

enum { PICTURES = 8 };

static void check_diagnostics(fcpc_diagnostics *d, bool draw) {
    fcpc_diagnostic first;
    fcpc_diagnostics_get(d, 0, &first);
    if (!fcpc_diagnostics_count(d) || !*first.message) abort();
    if (!draw) return;
    char *picture = fcpc_diagnostics_render(d, false);
    if (!picture) abort();
    free(picture);
}

/* Whether the picture of what is wrong with these bytes is drawn. */
static bool drawn(const char *bytes, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
    return !LLVMFuzzerMutate || (hash >> 32) % PICTURES == 0;
}

/* The canonical text of bytes that parse; NULL if they do not. */
static char *reprint(const char *bytes, size_t size) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    arena a = {0};
    ast tree;
    text out = {0};
    char *printed = NULL;
    uint32_t number = d ? diag_source(d, "input", bytes, size, false) : UINT32_MAX;
    if (number != UINT32_MAX) {
        if (parse_program(d, &a, number, NULL, &tree) && !diag_errors(d)) {
            ast_print(&tree, &out, NULL);
            printed = text_take(&out);
        } else
            check_diagnostics(d, drawn(bytes, size));
    }
    arena_free(&a);
    fcpc_diagnostics_free(d);
    return printed;
}

/* The layout of bytes that parse. */
static char *laid_out(const char *bytes, size_t size) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    text out = {0};
    if (!d || format_source("input", bytes, size, d, &out) != FCP_OK) abort();
    char *made = text_take(&out);
    fcpc_diagnostics_free(d);
    return made;
}

static fcpc_program *compile(const char *bytes, size_t size) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    if (!d) return NULL;
    fcp_code code = fcpc_parse_text("input", bytes, size, NULL, d, &p);
    if (code != FCP_OK) {
        if (p) abort();
        check_diagnostics(d, true);
    }
    fcpc_diagnostics_free(d);
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* files outside the input are not its business */
    if (memmem(data, size, "file", 4)) return 0;
    char *once = reprint((const char *)data, size);
    if (!once) return 0; /* most inputs end here */
    char *twice = reprint(once, strlen(once));
    if (!twice || strcmp(once, twice)) abort();
    free(twice);
    free(once);
    char *first = laid_out((const char *)data, size);
    if (!memchr(data, 0, size)) { /* comments may hold NULs */
        char *second = laid_out(first, strlen(first));
        if (strcmp(first, second)) abort();
        free(second);
    }
    free(first);
    fcpc_program *p = compile((const char *)data, size);
    if (p) {
        fcpc_program *again = compile(p->canonical, strlen(p->canonical));
        if (!again || strcmp(p->canonical, again->canonical) || strcmp(p->mask_name, again->mask_name) ||
            p->mask.count != again->mask.count ||
            memcmp(p->mask.nodes, again->mask.nodes, p->mask.count * sizeof *p->mask.nodes) ||
            p->length_count != again->length_count)
            abort();
        fcpc_program_free(again);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        explanation e = {.q = size % 7, .k = size % 5, .n = p->array_count ? 0 : 7};
        fcp_code code = d ? explain_pair("input", (const char *)data, size, NULL, d, &e) : FCP_OK;
        /* a sequence of the batch may be too short for the pair or have other queries, a field have no values */
        const bool may_fail = code == FCP_E_VALUE ? p->array_count || p->queries : p->array_count && code == FCP_E_FIELD;
        if (code != FCP_OK && !may_fail) abort();
        arena_free(&e.arena);
        fcpc_diagnostics_free(d);
    }
    fcpc_program_free(p);
    return 0;
}
