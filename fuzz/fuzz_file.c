/* fuzz_file.c: bytes as the files that programs name: lengths, fields, tables, slices; text or .npy.
 *
 * Oracle: a program that reads the file compiles to a plan that verifies, or ends with an error that has a code, a
 *         message and a picture.
 * Input:  a byte that says what the file is, and the file; the corpus holds one of each and broken ones.
 * Build:  clang -fsanitize=fuzzer,address,undefined, with libfcpc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A program's text before and after the path. */
static const struct { const char *before, *after; } programs[] = {
    {"batch { lengths = [64] }\nplan { block = 128; mask = slices(file(\"", "\")) }"},
    {"batch { lengths = [8, 4]; field d = file(\"", "\") }\nplan { block = 128; mask = document(d = d) }"},
    {"batch { lengths = [8, 4]; field d = file(\"",
     "\", range = -3..100) }\nplan { block = 128; mask = document(d = d) }"},
    {"batch { lengths = [8] }\nmodel { table t = file(\"",
     "\") }\nmask m = t[q % 2, k % 2] > 0\nplan { block = 128; mask = m }"},
    {"batch { lengths = [8] }\nmodel { table t = file(\"",
     "\") }\nscore b = s + t[(q + k) % 3]\nplan { block = 128; mask = causal; score = b }"},
    {"batch { lengths = file(\"", "\") }\nplan { mask = causal }"}, /* parsed only: a batch may be very large */
};
enum { PROGRAMS = sizeof programs / sizeof *programs, SOURCE = 9000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const unsigned which = data[0] / 2 % PROGRAMS;
    const char *folder = getenv("TMPDIR");
    char path[4200], source[SOURCE];
    snprintf(path, sizeof path, "%.4000s/fcp-fuzz-%ld.%s", folder && *folder ? folder : "/tmp", (long)getpid(),
             data[0] % 2 ? "npy" : "txt");
    snprintf(source, sizeof source, "%s%s%s", programs[which].before, path, programs[which].after);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data + 1, 1, size - 1, f) != size - 1 || fclose(f)) abort();
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_error err;
    fcp_code code = d ? fcpc_parse_text("input", source, strlen(source), NULL, d, &program) : FCP_OK;
    if (d && !code && which + 1 < PROGRAMS) {
        code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
        if (!code && fcp_plan_verify(plan, NULL, NULL, &err)) abort();
    }
    if (code) {
        fcpc_diagnostic first;
        char *picture = fcpc_diagnostics_render(d, false);
        fcpc_diagnostics_get(d, 0, &first);
        if (plan || !fcpc_diagnostics_count(d) || !*first.message || !picture) abort();
        free(picture);
    }
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    unlink(path);
    return 0;
}
