/* test_no_memory.c: tests that parsing, planning, loading a plan and making a session end with an error wherever memory
 * runs out.
 *
 * 1. Each of these runs once, and its requests for memory are counted.
 * 2. It runs again for each request, and that request fails.
 * 3. Then there must be no program, plan or session, and no memory may be left in use. The error is E012, or the one
 *    that is given with enough memory; only its hint may then be missing.
 * This file replaces malloc and its like, and the allocation of arenas, to count requests and to make them fail.
 *
 * Programs that are parsed: those of the golden files, of the examples and of tests/golden/dump and passes. Between
 * them they have every section, key, kind of mask, score, field, file and mistake. Programs that are planned: every
 * strategy.
 */
#define _GNU_SOURCE /* RTLD_NEXT, sched_setaffinity */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>

#include "compiler/base/arena.h"
#include "compiler/sema/program.h"
#include "tests/support/amount.h"
#include "tests/support/diag_case.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary.h"

/* --- memory that runs out ----------------------------------------------------------------------------------------- */

static struct {
    bool on;
    uint32_t asked, fail_at; /* requests so far; the one that fails, 0: none */
} memory;
static _Thread_local uint32_t inside; /* a request of an arena is under way: what it asks malloc for is the same one */
static long live;                     /* blocks of malloc in use; sanitizers have other ways to get and free some */

static bool refused(void) {
    if (!memory.on || inside || __atomic_add_fetch(&memory.asked, 1, __ATOMIC_RELAXED) != memory.fail_at) return false;
    errno = ENOMEM;
    return true;
}
static void *count(void *p) {
    __atomic_add_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    return p;
}

#if SANITIZED
#define REAL(name) __interceptor_##name
#else
#define REAL(name) __libc_##name
#endif
void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t count, size_t size);
void *REAL(realloc)(void *p, size_t size);
void *REAL(memalign)(size_t alignment, size_t size);
void REAL(free)(void *p);
void *malloc(size_t size) { return refused() ? NULL : count(REAL(malloc)(size)); }
void *calloc(size_t number, size_t size) { return refused() ? NULL : count(REAL(calloc)(number, size)); }
void *realloc(void *p, size_t size) {
    void *grown = refused() ? NULL : REAL(realloc)(p, size);
    return p ? grown : count(grown);
}
void *aligned_alloc(size_t alignment, size_t size) {
    return refused() ? NULL : count(REAL(memalign)(alignment, size));
}
void free(void *p) {
    __atomic_sub_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    REAL(free)(p);
}

/* The library's own function of that name. */
static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}
#define ARENA_CALL(type, name, ...)                                                                                    \
    static type *own;                                                                                                  \
    if (!own) own = (type *)real(name);                                                                                \
    if (refused()) return NULL;                                                                                        \
    inside++;                                                                                                          \
    void *p = own(__VA_ARGS__);                                                                                        \
    inside--;                                                                                                          \
    return p

typedef void *allocate(arena *a, size_t count, size_t size, size_t align);
typedef char *copy(arena *a, const char *bytes, size_t length);
typedef void *grow(arena *a, void *array, size_t count, size_t *room, size_t size);
void *arena_alloc(arena *a, size_t count, size_t size, size_t align) {
    ARENA_CALL(allocate, "arena_alloc", a, count, size, align);
}
void *arena_zalloc(arena *a, size_t count, size_t size, size_t align) {
    ARENA_CALL(allocate, "arena_zalloc", a, count, size, align);
}
char *arena_copy(arena *a, const char *bytes, size_t length) { ARENA_CALL(copy, "arena_copy", a, bytes, length); }
void *arena_double(arena *a, void *array, size_t count, size_t *room, size_t size) {
    ARENA_CALL(grow, "arena_double", a, array, count, room, size);
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

typedef struct input {
    const char *name, *text;
    size_t size;
    const fcpc_options *options;
} input;

/* What a parse says and gives. */
typedef struct answer {
    fcp_code code;
    fcpc_diagnostics *d;
    char *printed; /* of the program; NULL: there is none */
    long left;     /* blocks that it left in use */
} answer;

/* Parses with memory for fail_at - 1 requests, and then all but one; 0: for all. */
static answer parse(const input *in, uint32_t fail_at) {
    answer a = {.d = fcpc_diagnostics_new()};
    fcpc_program *p = NULL;
    cr_assert_not_null(a.d);
    const long before = live;
    memory.asked = 0, memory.fail_at = fail_at, memory.on = true;
    a.code = fcpc_parse_text(in->name, in->text, in->size, in->options, NULL, &p);
    memory.on = false;
    cr_assert_eq(a.code == FCP_OK, p != NULL, "%s, request %u: %s, and %sa program", in->name, fail_at,
                 fcp_code_name(a.code), p ? "" : "not ");
    fcpc_program_free(p);
    p = NULL;
    a.left = live - before;
    /* Once more with diagnostics, which have memory of their own. */
    memory.asked = 0, memory.on = true;
    a.code = fcpc_parse_text(in->name, in->text, in->size, in->options, a.d, &p);
    memory.on = false;
    cr_assert_eq(a.code == FCP_OK, p != NULL, "%s, request %u: %s, and %sa program", in->name, fail_at,
                 fcp_code_name(a.code), p ? "" : "not ");
    if (p) a.printed = fcpc_program_print(p);
    fcpc_program_free(p);
    return a;
}

static void forget(answer *a) {
    fcpc_diagnostics_free(a->d);
    free(a->printed);
}

/* Does the answer with all memory say this? Without memory for it, an error says less, and has its place elsewhere:
 * that of a file where the program names it. */
static bool says(const answer *whole, fcp_code code) {
    fcpc_diagnostic g;
    for (size_t i = 0; i < fcpc_diagnostics_count(whole->d); i++) {
        fcpc_diagnostics_get(whole->d, i, &g);
        if (g.code == code) return true;
    }
    return code == whole->code;
}

/* One answer with less memory, beside the one with all. */
static void compare(const input *in, const answer *whole, const answer *a, uint32_t fail_at) {
    fcpc_diagnostic g;
    bool told = false;
    for (size_t i = 0; i < fcpc_diagnostics_count(a->d); i++) {
        fcpc_diagnostics_get(a->d, i, &g);
        told |= g.code == FCP_E_NO_MEMORY;
        cr_expect(g.code == FCP_E_NO_MEMORY || says(whole, g.code), "%s, request %u: %s: %s", in->name, fail_at,
                  fcp_code_name(g.code), g.message);
    }
    cr_expect(says(whole, a->code) || a->code == FCP_E_NO_MEMORY, "%s, request %u: %s", in->name, fail_at,
              fcp_code_name(a->code));
    if (a->code == FCP_E_NO_MEMORY) cr_expect(told, "%s, request %u: nothing is said", in->name, fail_at);
    if (a->printed) cr_expect_str_eq(a->printed, whole->printed, "%s, request %u", in->name, fail_at);
    if (!SANITIZED) cr_expect_eq(a->left, 0, "%s, request %u: %ld blocks are left", in->name, fail_at, a->left);
}

static uint32_t cases, failed;

/* `step`: of all requests one in so many fails. */
static void run_out(const input *in, uint32_t step) {
    answer whole = parse(in, 0);
    const uint32_t all = memory.asked;
    if (!SANITIZED) cr_expect_eq(whole.left, 0, "%s leaves %ld blocks", in->name, whole.left);
    for (uint32_t n = 1 + cases % step; n <= all; n += step) {
        answer a = parse(in, n);
        compare(in, &whole, &a, n);
        failed += a.code == FCP_E_NO_MEMORY;
        forget(&a);
    }
    forget(&whole);
    cases++;
}

/* Programs that are wrong, and some that are right. */
Test(no_memory, golden_cases, .timeout = 300) {
    struct dirent **names;
    const int count = diag_case_names(&names);
    for (int i = 0; i < count; i++) {
        diag_case c = {.bytes = NULL};
        diag_case_read(names[i]->d_name, &c);
        run_out(&(input){"a.fcp", c.program, c.size, &c.options}, amount(8, 1));
        diag_case_free(&c);
        free(names[i]);
    }
    free(names);
    cr_expect_gt(failed, 500, "%u requests failed", failed);
}

/* Calls `use` with each program of a folder: its path and its text. */
static void each_program(const char *name, void (*use)(const char *path, const char *text, size_t size)) {
    DIR *folder = opendir(name);
    cr_assert_not_null(folder, "%s", name);
    for (struct dirent *e; (e = readdir(folder));) {
        char path[512];
        size_t size;
        if (!strstr(e->d_name, ".fcp")) continue;
        snprintf(path, sizeof path, "%s/%s", name, e->d_name);
        char *bytes = diag_case_bytes(path, &size);
        use(path, bytes, size);
        free(bytes);
    }
    closedir(folder);
}

static void parse_without(const char *path, const char *text, size_t size) {
    run_out(&(input){path, text, size, NULL}, amount(11, 1));
}

/* Programs that are right, with the files that they name. */
Test(no_memory, programs, .timeout = 300) {
    static const char *const folders[] = {"examples", "examples/masks", "examples/scores", "examples/seeds",
                                          "tests/golden/dump", "tests/golden/passes"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) each_program(folders[f], parse_without);
    cr_expect_gt(cases, 60);
    cr_expect_gt(failed, 500, "%u requests failed", failed);
}

/* --- planning ----------------------------------------------------------------------------------------------------- */

/* Plans all masks of a program. out_digest: of the plans, if there are any. */
static fcp_code plan(const fcpc_program *program, uint32_t fail_at, diags *d,
                     uint8_t out_digest[64][FCP_DIGEST_BYTES]) {
    const fcpc_batch batch = FCPC_BATCH_INIT;
    const uint32_t masks = fcpc_program_layers(program, 0, NULL);
    fcp_plan *plans[64] = {NULL};
    memory.asked = 0, memory.fail_at = fail_at, memory.on = true;
    const fcp_code code = fcpc_plan_layers(program, &batch, NULL, d, NULL, plans);
    memory.on = false;
    for (uint32_t i = 0; i < masks; i++) {
        cr_assert_eq(code == FCP_OK, plans[i] != NULL);
        if (plans[i]) cr_assert_eq(fcp_plan_digest(plans[i], out_digest[i], NULL), FCP_OK);
        fcp_plan_free(plans[i]);
    }
    return code;
}

static void plan_without(const char *name, const char *text, size_t size, uint32_t samples) {
    static uint8_t whole[64][FCP_DIGEST_BYTES], now[64][FCP_DIGEST_BYTES];
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text(name, text, size, NULL, NULL, &program), FCP_OK, "%s", name);
    fcp_code code = plan(program, 0, NULL, whole);
    cr_assert_eq(code, FCP_OK, "%s: %s", name, fcp_code_name(code));
    fcpc_program_free(program);
    const long before = live; /* now libc has what it keeps for the next thread */
    cr_assert_eq(fcpc_parse_text(name, text, size, NULL, NULL, &program), FCP_OK, "%s", name);
    plan(program, 0, NULL, whole);
    const uint32_t all = memory.asked, step = all / samples + 1;
    for (uint32_t n = 1 + cases % step; n <= all; n += step) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        code = plan(program, n, d, now);
        cr_expect(code == FCP_OK || code == FCP_E_NO_MEMORY, "%s, request %u of %u: %s", name, n, all,
                  fcp_code_name(code));
        cr_expect_eq(diag_first_code(d), code, "%s, request %u: %s is said, not %s", name, n,
                     fcp_code_name(diag_first_code(d)), fcp_code_name(code));
        if (!code) cr_expect_arr_eq(now, whole, sizeof now, "%s, request %u: another plan", name, n);
        failed += code == FCP_E_NO_MEMORY;
        fcpc_diagnostics_free(d);
        code = plan(program, 0, NULL, now); /* what was kept for the next batch is good */
        cr_expect_eq(code, FCP_OK, "%s, after request %u: %s", name, n, fcp_code_name(code));
        cr_expect_arr_eq(now, whole, sizeof now, "%s, after request %u: another plan", name, n);
    }
    fcpc_program_free(program);
    if (!SANITIZED) cr_expect_eq(live, before, "%s leaves %ld blocks", name, live - before);
    cases++;
}

/* A sanitizer asks for memory where a thread begins, and gives up if there is none. With one processor planning has one
 * thread. */
static void spare_sanitizers(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (SANITIZED) cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
}

#define MODEL "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { nodes = 2; gpus = 2 }\n"
#define BATCH "batch { lengths = [900, 300, 60 x 4] }\n"
Test(no_memory, planning, .timeout = 300) {
    static const char *const by[] = {
        "strategy = fcp", "strategy = fcp; layout = zigzag; block = 128", "strategy = ring; layout = contiguous",
        "strategy = zigzag; tokens = equal", "strategy = cad(pingpong = true); block = 128",
        "strategy = cad(servers = 1); layout = zigzag", "strategy = cad(base = fcp)", "strategy = ulysses",
        "strategy = upipe(heads = 4); layout = contiguous", "strategy = ulysses + ring", "strategy = dcp; block = 128",
        "strategy = ulysses + fcp; tokens = equal; block = 128", "strategy = ulysses + cad; layout = contiguous",
        "strategy = upipe + dcp; layout = zigzag; block = 128",
        "strategy = dcp; layout = contiguous", "strategy = groups(tokens = 512); block = 128",
        "strategy = groups(shape = ring); layout = zigzag", "strategy = auto; layout = contiguous",
        "strategy = auto(effort = 2, among = [fcp, ulysses])", "relay = off; wire = bf16; passes = forward"};
    spare_sanitizers();
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        for (int layers = 0; layers < 2; layers++) {
            char text[1024];
            const int size = snprintf(text, sizeof text, MODEL BATCH "plan { %s; %s }\n",
                                      layers ? "layers = [window(w = 200), causal x 3]" : "mask = causal", by[i]);
            plan_without(by[i], text, (size_t)size, amount(12, 200));
        }
    cr_expect_gt(failed, 100, "%u requests failed", failed);
}

static void plan_golden(const char *path, const char *text, size_t size) {
    plan_without(path, text, size, amount(12, 200));
}

Test(no_memory, planning_of_golden_programs, .timeout = 300) {
    spare_sanitizers();
    each_program("tests/golden/dump", plan_golden);
    each_program("tests/golden/passes", plan_golden);
    cr_expect_gt(failed, 50, "%u requests failed", failed);
}

/* --- plans from files, and sessions ------------------------------------------------------------------------------- */

enum { FILE_BYTES = 1 << 20 };

static fcp_plan *plan_and_bytes(const char *text, uint8_t *out_bytes, size_t *out_size) {
    char path[TEMPORARY];
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_parse_text("s.fcp", text, strlen(text), NULL, NULL, &program), FCP_OK);
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK);
    fcpc_program_free(program);
    cr_assert(temporary_file(path, "memory"));
    cr_assert_eq(fcp_plan_save(plan, path, NULL), FCP_OK);
    FILE *f = fopen(path, "rb");
    *out_size = fread(out_bytes, 1, FILE_BYTES, f);
    fclose(f);
    unlink(path);
    return plan;
}

/* A plan is loaded, and a session made of one plan that is then given another. */
Test(no_memory, sessions, .timeout = 300) {
    static uint8_t bytes[FILE_BYTES];
    const fcp_session_options options = {.size = sizeof options, .backend = "host", .transport = "threads",
                                         .compute_threads = 2};
    size_t size;
    fcp_plan *first = plan_and_bytes(MODEL BATCH "plan { mask = causal; strategy = ring }", bytes, &size);
    fcp_plan *second = plan_and_bytes(MODEL BATCH "plan { mask = full; strategy = ring }", bytes, &size);
    uint32_t all = 1;
    for (uint32_t n = 0; n <= all; n++) { /* the first time nothing fails, and libraries are loaded */
        fcp_session *session = NULL;
        fcp_plan *loaded = NULL;
        fcp_error err = {0};
        uint32_t number = 0;
        memory.asked = 0, memory.fail_at = n, memory.on = true;
        fcp_code code = fcp_plan_load_memory(bytes, size, &loaded, &err);
        if (!code) code = fcp_session_create(first, &options, &session, &err);
        if (!code) code = fcp_session_add(session, second, 0, &number, &err);
        memory.on = false;
        if (n < 1) all = memory.asked;
        cr_expect(code == FCP_OK || code == FCP_E_NO_MEMORY, "request %u of %u: %s: %s", n, all, fcp_code_name(code),
                  err.message);
        cr_expect(n || code == FCP_OK, "%s: %s", fcp_code_name(code), err.message);
        cr_expect_eq(code, err.code, "request %u: %s is said", n, fcp_code_name(err.code));
        failed += code == FCP_E_NO_MEMORY;
        fcp_session_free(session);
        fcp_plan_free(loaded);
    }
    cr_expect_gt(failed, 20, "%u of %u requests failed", failed, all);
    fcp_plan_free(first);
    fcp_plan_free(second);
}
