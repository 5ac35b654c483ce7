/* fuzz_file.c: gives bytes to the readers of the files that a program may name: lengths, fields, tables and slices, as
 * text or as .npy.
 *
 * Oracle: A program that reads the file compiles to a plan that verifies, or ends with an error that has a message and
 *         a picture.
 * Input:  a byte that says what the file is, and the file. The corpus holds one of each kind, and broken ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/verify/verify.h"

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
    {"batch { lengths = [0, 0:3, 5:0, 4]; field d = file(\"", "\") }\nplan { block = 128; mask = document(d = d) }"},
    {"batch { lengths = [0, 9:0]; field d = file(\"", "\") }\nplan { block = 128; mask = document(d = d) }"},
};
enum { PROGRAMS = sizeof programs / sizeof *programs, LENGTHS = 5, SOURCE = 9000 };

/* The two files, text and .npy, that inputs are written to. `make fuzz` has them in memory. */
static char paths[2][4200];
static void remove_files(void) {
    for (int i = 0; i < 2; i++) unlink(paths[i]);
}
static void write_file(int npy, const uint8_t *bytes, size_t size) {
    static FILE *files[2];
    if (!files[0]) {
        const char *folder = getenv("TMPDIR");
        for (int i = 0; i < 2; i++) {
            snprintf(paths[i], sizeof paths[i], "%.4000s/fcp-fuzz-%ld.%s", folder && *folder ? folder : "/tmp",
                     (long)getpid(), i ? "npy" : "txt");
            if (!(files[i] = fopen(paths[i], "w+b"))) abort();
        }
        atexit(remove_files);
    }
    int fd = fileno(files[npy]);
    if (ftruncate(fd, 0) || pwrite(fd, bytes, size, 0) != (ssize_t)size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const unsigned which = data[0] / 2 % PROGRAMS;
    const int npy = data[0] % 2;
    char source[SOURCE];
    write_file(npy, data + 1, size - 1);
    snprintf(source, sizeof source, "%s%s%s", programs[which].before, paths[npy], programs[which].after);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_error err;
    fcp_code code = d ? fcpc_parse_text("input", source, strlen(source), NULL, d, &program) : FCP_OK;
    if (d && !code && which != LENGTHS) {
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
    return 0;
}
