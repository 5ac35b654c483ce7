/* test_blas.c: tests that OpenBLAS is loaded when it is needed, the messages if it is missing or there is no memory for
 * it, and its products. Each test is a process of its own, in which nothing has loaded it. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/exec/session.h"
#include "runtime/host/blas.h"
#include "runtime/judge/packed.h"
#include "tests/support/hand_plan.h"
#include "tests/support/sanitized.h"

enum { LIMITED = !SANITIZED }; /* sanitizers map more than any limit */
enum { ALL = (1 << FCP_TENSORS) - 1, MB = 1 << 20 };

static const uint64_t lengths[] = {300, 212};
static hand *make_plan(void) { return hand_make(2, 4, 2, 32, FCP_FP32, 256, "causal", lengths, 2); }

/* Creates a session on the host and runs the forward pass. */
static fcp_code run_once(const fcp_plan *plan, fcp_error *err) {
    fcp_session *session = NULL;
    fcp_session_options options = {.size = sizeof options, .compute_threads = 2};
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_session_create(plan, &options, &session, err);
    if (!code) code = fcp_packed_alloc(&shape, ALL, &packed, err);
    if (!code) fcp_packed_draw(&shape, ALL, 1, &packed);
    if (!code) code = fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, err);
    fcp_packed_free(&packed);
    fcp_session_free(session);
    return code;
}

/* The address space of this process, in bytes. */
static size_t mapped(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}
static void limit(size_t bytes) {
    struct rlimit r = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    cr_assert(setrlimit(RLIMIT_AS, &r) == 0);
}

Test(blas, a_file_that_is_not_there_is_named) {
    hand *h = make_plan();
    fcp_error err = {0};
    setenv("FCP_OPENBLAS", "/nowhere/libblas.so", 1);
    cr_assert(run_once(&h->plan, &err) == FCP_E_BACKEND);
    cr_assert(strstr(err.message, "OpenBLAS") && strstr(err.message, "/nowhere/libblas.so"), "%s", err.message);
    cr_assert(!strstr(err.message, "cuda"), "%s", err.message);
    unsetenv("FCP_OPENBLAS");
    cr_assert(run_once(&h->plan, &err) == FCP_OK, "%s", err.message);
    hand_free(h);
}

/* As a library that is there, and needs another that is not. */
Test(blas, what_the_loader_says_of_a_file_is_said) {
    hand *h = make_plan();
    fcp_error err = {0};
    setenv("FCP_OPENBLAS", "/etc/passwd", 1);
    cr_assert(run_once(&h->plan, &err) == FCP_E_BACKEND);
    cr_assert(strstr(err.message, "OpenBLAS cannot be loaded: /etc/passwd: ") && strstr(err.message, "ELF") &&
              strstr(err.message, "install it"), "%s", err.message);
    hand_free(h);
}

Test(blas, another_library_is_not_taken_for_it) {
    hand *h = make_plan();
    fcp_error err = {0};
    setenv("FCP_OPENBLAS", "libm.so.6", 1);
    cr_assert(run_once(&h->plan, &err) == FCP_E_BACKEND);
    cr_assert(strstr(err.message, "cblas_sgemm"), "%s", err.message);
    hand_free(h);
}

Test(blas, it_is_not_loaded_before_a_session_needs_it) {
    hand *h = make_plan();
    fcp_error err = {0};
    cr_assert(!dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD));
    cr_assert(run_once(&h->plan, &err) == FCP_OK, "%s", err.message);
    cr_assert(dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD));
    hand_free(h);
}

/* Whatever the limit of the address space: a run is right, or reports that there is no memory, within seconds. It does
 * no harm to later runs. */
Test(blas, little_memory_is_an_error_and_no_hang) {
    if (!LIMITED) cr_skip_test("sanitizers map more than any limit");
    hand *h = make_plan();
    unsigned seen = 0;
    for (size_t more = 16; more <= 1024; more += more < 128 ? 56 : 128) {
        pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0) {
            fcp_error err = {0};
            alarm(60);
            limit(mapped() + more * MB);
            fcp_code code = run_once(&h->plan, &err);
            limit(RLIM_INFINITY);
            fcp_code again = run_once(&h->plan, &err);
            _exit(again != FCP_OK ? 3 : code == FCP_OK ? 0 : code == FCP_E_NO_MEMORY ? 1 : 2);
        }
        int status = 0;
        cr_assert(waitpid(child, &status, 0) == child);
        cr_assert(WIFEXITED(status), "with %zu MB more: signal %d", more, WTERMSIG(status));
        cr_assert(WEXITSTATUS(status) <= 1, "with %zu MB more: %d", more, WEXITSTATUS(status));
        seen |= 1u << WEXITSTATUS(status);
    }
    cr_assert(seen == 3, "both happen");
    hand_free(h);
}

Test(blas, products_turned_and_not) {
    enum { ROWS = 3, COLUMNS = 5, INNER = 4, STRIDE = 7 };
    fcp_error err = {0};
    cr_assert(fcp_blas_load(&err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_blas_open(1, &err) == FCP_OK, "%s", err.message);
    fcp_blas_enter();
    for (int turned = 0; turned < 4; turned++) {
        float a[ROWS * INNER], b[INNER * COLUMNS], c[ROWS * STRIDE], wanted[ROWS * STRIDE];
        bool ta = turned & 1, tb = turned >> 1;
        for (int i = 0; i < ROWS * STRIDE; i++) c[i] = wanted[i] = (float)i;
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < INNER; k++) a[ta ? k * ROWS + r : r * INNER + k] = (float)(1 + r + 10 * k);
        for (int k = 0; k < INNER; k++)
            for (int n = 0; n < COLUMNS; n++) b[tb ? n * INNER + k : k * COLUMNS + n] = (float)(2 + n - k);
        for (int r = 0; r < ROWS; r++)
            for (int n = 0; n < COLUMNS; n++) {
                float sum = 0;
                for (int k = 0; k < INNER; k++) sum += (float)(1 + r + 10 * k) * (float)(2 + n - k);
                wanted[r * STRIDE + n] = 2 * sum + 3 * wanted[r * STRIDE + n];
            }
        fcp_blas_multiply(&(fcp_product){.rows = ROWS,
                                         .columns = COLUMNS,
                                         .inner = INNER,
                                         .a = a,
                                         .a_turned = ta,
                                         .a_stride = ta ? ROWS : INNER,
                                         .b = b,
                                         .b_turned = tb,
                                         .b_stride = tb ? INNER : COLUMNS,
                                         .c = c,
                                         .stride = STRIDE,
                                         .scale = 2,
                                         .keep = 3});
        cr_assert(memcmp(c, wanted, sizeof c) == 0, "turned %d", turned);
    }
    fcp_blas_leave();
    fcp_blas_close(1);
}
