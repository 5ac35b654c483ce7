/* emitted.h: the text that tests put around emitted functions to compile them as C, and calls of the emitted functions
 * that return all pairs of a row at once. */
#ifndef EMITTED_H
#define EMITTED_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/kernels/abi.h"
#include "tests/support/plain.h"
#include "tests/support/temporary.h"

/* Before the first of them: the primitives that they call. */
#define EMITTED_PRIMITIVES                                                                                             \
    "static inline float fk_exp2(float x) { return exp2f(x); }\n"                                                      \
    "static inline float fk_reciprocal(float x) { return 1 / x; }\n"                                                   \
    "static inline float fk_tanh_approx(float x) { return tanhf(x); }\n"                                               \
    "static inline float fk_fma(float a, float b, float c) { return fmaf(a, b, c); }\n"                                \
    "static inline float fk_rounded_product(float a, float b) { return a * b; }\n"                                     \
    "static inline float fk_rounded_sum(float a, float b) { return a + b; }\n"

/* A format with two numbers, both that of the program: keys_N and queries_N, if it has them. */
#define EMITTED_SPANS                                                                                                  \
    "#define PARAMETERS const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h\n"                                   \
    "#if FK_KEY_SPANS\n"                                                                                         \
    "fk_u32 keys_%lu(PARAMETERS) { return fk_keys(e, q, k, limit, h); }\n#endif\n"                                    \
    "#if FK_QUERY_SPANS\n"                                                                                            \
    "fk_u32 queries_%lu(PARAMETERS) { return fk_queries(e, q, k, limit, h); }\n#endif\n"                              \
    "#undef PARAMETERS\n#undef FK_KEY_SPANS\n#undef FK_QUERY_SPANS\n#undef fk_keys\n#undef fk_queries\n"

typedef int emitted_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h);
typedef float emitted_score(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h);
typedef fk_u32 emitted_spans(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h);

/* Compiles what `write` writes as C, with `warnings` (options of the compiler), and loads it. No file of it stays. */
static inline void *emitted_library(const char *warnings, void (*write)(FILE *f, const void *context),
                                    const void *context) {
    char folder[TEMPORARY], source[200], object[200], command[900];
    const char *cc = getenv("CC");
    cr_assert(temporary_folder(folder, "emit"));
    snprintf(source, sizeof source, "%s/a.c", folder);
    snprintf(object, sizeof object, "%s/a.so", folder);
    FILE *f = fopen(source, "w");
    cr_assert_not_null(f);
    write(f, context);
    cr_assert(fclose(f) == 0);
    snprintf(command, sizeof command,
             "%s -std=gnu11 -O1 -fno-strict-aliasing -ffp-contract=off %s -shared -fPIC -o %s %s -lm",
             cc && *cc ? cc : "cc", warnings, object, source);
    int status = system(command);
    void *library = status ? NULL : dlopen(object, RTLD_NOW);
    unlink(source);
    unlink(object);
    rmdir(folder);
    cr_assert(library != NULL, "what is emitted does not compile, or not load");
    return library;
}

/* The function NAME_NUMBER of a library; NULL: the program has none. */
static inline void *emitted_find(void *library, const char *name, size_t number) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s_%zu", name, number);
    return dlsym(library, symbol);
}
/* The same of a function that every program has. */
static inline void *emitted_function(void *library, const char *name, size_t number) {
    void *f = emitted_find(library, name, number);
    cr_assert(f != NULL, "%s_%zu", name, number);
    return f;
}

/* The position, from the first, that bit i of a word stands for. */
static inline int64_t emitted_column(int i) { return i / 2 * 8 + i % 2; }
#endif
