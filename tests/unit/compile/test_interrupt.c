/* test_interrupt.c: tests that planning ends soon after the caller asks it to, whatever it is doing, and that no memory
 * or thread is left over.
 *
 * Planning calls fcp_stop_asked (runtime/base/stop.h) from time to time to learn whether it should end. This file
 * replaces that function, so that it can end planning at any one of the calls, and measure the time between two of
 * them.
 */
#include <pthread.h>
#include <time.h>

#include "compiler/passes/pass_list.h"
#include "runtime/base/stop.h"
#include "runtime/plan/plan_check.h"
#include "tests/support/amount.h"
#include "tests/support/planned.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary.h"

/* Blocks of memory in use. Sanitizers count for themselves. */
static long live;
#if !SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);
void *malloc(size_t size) {
    void *p = __libc_malloc(size);
    __atomic_add_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    return p;
}
void *calloc(size_t count, size_t size) {
    void *p = __libc_calloc(count, size);
    __atomic_add_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    return p;
}
void *realloc(void *p, size_t size) {
    void *grown = __libc_realloc(p, size);
    if (!p) __atomic_add_fetch(&live, grown != NULL, __ATOMIC_RELAXED);
    return grown;
}
void *__libc_memalign(size_t alignment, size_t size);
void *aligned_alloc(size_t alignment, size_t size) {
    void *p = __libc_memalign(alignment, size);
    __atomic_add_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    return p;
}
void free(void *p) {
    __atomic_sub_fetch(&live, p != NULL, __ATOMIC_RELAXED);
    __libc_free(p);
}
#endif

/* Two threads may ask: large plans are made and verified by two, and auto predicts two candidates at a time. */
static struct {
    uint64_t asked, end_at; /* questions so far; the one that is answered with yes, 0: none */
    bool timed;
    double longest;         /* if it is timed: processor time between two questions of a thread, at most */
    uint64_t run;           /* the number of the planning */
    volatile int flag;
    pthread_mutex_t lock;
} stop = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local double last; /* processor time of this thread's last question, */
static _Thread_local uint64_t run; /* in this planning */

static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool fcp_stop_asked(const volatile int *asked) {
    if (!asked) return false;
    const double now = stop.timed ? processor_time() : 0;
    pthread_mutex_lock(&stop.lock);
    if (run == stop.run && now - last > stop.longest) stop.longest = now - last;
    if (++stop.asked == stop.end_at) stop.flag = 1;
    const bool yes = stop.flag;
    pthread_mutex_unlock(&stop.lock);
    last = now;
    run = stop.run;
    return yes;
}

/* By the program's strategy, or by a scatter. */
static fcp_code plan_until(const fcpc_program *program, const scatter *by, uint64_t end_at, fcp_plan **plan) {
    const fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.strategy = by ? &by->strategy : NULL};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    stop.asked = 0, stop.end_at = end_at, stop.flag = 0, stop.longest = 0, stop.run++;
    fcp_code code = compile_batch(program, &batch, &stop.flag, d, &watch, NULL, plan);
    if (code) cr_assert_eq(diag_first_code(d), code);
    fcpc_diagnostics_free(d);
    return code;
}

/* Ends a planning at its questions, all or many of them; returns how many there are. */
static uint64_t end_everywhere(const char *text, const scatter *by) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text(text, d);
    fcp_plan *plan = NULL;
    cr_assert_eq(plan_until(program, by, 0, &plan), FCP_OK);
    uint64_t all = stop.asked, step = all / 60 + 1;
    fcp_plan_free(plan);
    plan = NULL;
    for (uint64_t n = 1; n <= all; n += n < 40 || n + 5 > all ? 1 : step) {
        cr_assert_eq(plan_until(program, by, n, &plan), FCP_E_INTERRUPTED, "question %lu of %lu", (unsigned long)n,
                     (unsigned long)all);
        cr_assert_null(plan);
        cr_assert_leq(stop.asked, n + 8, "%lu further questions were asked", (unsigned long)(stop.asked - n));
    }
    cr_assert_eq(plan_until(program, by, 0, &plan), FCP_OK); /* what was kept for the next batch is good */
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return all;
}

/* Every question may be the last. */
Test(interrupt, at_every_question) {
    char text[1024];
    static const char *const more[] = {
        ("cluster { gpus = 8 }\nbatch { lengths = [9000, 700 x 4] }\n"
         "plan { mask = causal; strategy = ring; layout = zigzag }\n"),
        "cluster { gpus = 4 }\nbatch { lengths = [20000, 512 x 10] }\nplan { mask = causal; block = auto }\n",
        "cluster { gpus = 16 }\nbatch { lengths = [30000, 40 x 100] }\nplan { mask = window(w = 900); block = 128 }\n",
        ("cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [9000, 700 x 4] }\n"
         "plan { mask = causal; strategy = auto; layout = contiguous }\n"),
        ("cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [30000, 900 x 30] }\n"
         "plan { mask = causal; block = 512; strategy = dcp }\n"),
        ("cluster { nodes = 4; gpus = 4 }\nbatch { lengths = [20000, 900 x 20] }\n"
         "plan { mask = causal; block = 512; strategy = ulysses + fcp }\n"),
        /* in two threads */
        ("cluster { nodes = 4; gpus = 8 }\nbatch { lengths = [9000, 20000 x 3, 700 x 150, 333 x 200] }\n"
         "plan { mask = causal; block = 128; strategy = fcp; layout = contiguous }\n"),
        ("cluster { nodes = 4; gpus = 8 }\nbatch { lengths = [9000, 20000 x 3, 700 x 150, 333 x 200] }\n"
         "plan { mask = causal; block = 128; strategy = cad; layout = contiguous }\n"),
    };
    enum { MORE = sizeof more / sizeof *more };
    uint64_t questions = 0;
    for (unsigned i = 0; i < MORE + amount(3, 12); i++) {
        const char *program = i < MORE ? more[i] : sample_program(4 * i + 1, text, sizeof text);
        const scatter drawn = scatter_new(i), *by = i % 2 && i >= MORE ? &drawn : NULL;
        questions += end_everywhere(program, by);
        if (i % amount(3, 1)) continue;
        long before = live;
        end_everywhere(program, by);
        long lost = live - before; /* read before Criterion allocates */
        cr_assert_eq(lost, 0, "%ld blocks of memory were left behind", lost);
    }
    cr_assert_geq(questions, 10 * 40);
}

/* The list of passes in stretches, each up to a pass that is named. Those that go over ranks ask once for each of them
 * at least. The others are short, or ask once in so many records that this batch has too few. */
static const struct {
    const char *name;
    pass_function *last;
    bool by_rank;
} stretches[] = {
    {"cutting", strategy_cut, false},      {"tiles", problem_tiles, true},      {"placing", strategy_place, false},
    {"traffic", traffic_build, true},      {"reshuffle", reshuffle_build, true}, {"schedule", schedule_build, true},
    {"slots", slots_build, false},         {"rounds", rounds_build, true},      {"lowering", planning_own, false},
    {"verifying", NULL, true},
};
enum { STRETCHES = sizeof stretches / sizeof *stretches };

/* Plans, and counts the questions of each stretch. */
static fcp_code plan_in_stretches(const fcpc_program *program, const scatter *by, uint64_t asked[STRETCHES]) {
    const fcpc_batch batch = {.size = sizeof batch};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    planning x;
    stop.end_at = 0, stop.flag = 0, stop.longest = 0, stop.run++;
    planning_begin(&x, program, &batch, &stop.flag, d);
    x.strategy = by ? &by->strategy : NULL;
    fcp_code code = FCP_OK;
    for (unsigned i = 0; i < STRETCHES && !code; i++) {
        stop.asked = 0;
        code = passes_run(&x, i ? stretches[i - 1].last : NULL, stretches[i].last);
        asked[i] = stop.asked;
    }
    fcp_plan_free(x.plan);
    passes_end(&x);
    fcpc_diagnostics_free(d);
    return code;
}

/* A pass that forgets to ask is found by the count of its questions, which is the same on every machine. The aim is 0.2
 * seconds between two of them: FCPC_STOP_NODES=4096 tries 32K ranks and prints the time. */
Test(interrupt, asks_often, .timeout = 600) {
    const char *nodes = getenv("FCPC_STOP_NODES");
    static const char *const strategies[] = {"fcp",  "fcp; layout = contiguous", "dcp", "cad; layout = contiguous",
                                             "ring", "zigzag",                   "fcp"};
    enum { COUNT = sizeof strategies / sizeof *strategies, SLOW = 4 }; /* from there on, 8 nodes are enough */
    scatter drawn = scatter_new(1);
    drawn.one_range = true;
    stop.timed = nodes;
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned count = nodes ? (unsigned)atoi(nodes) : amount(16, 128);
        if (i >= SLOW && count > 8) count = 8;
        char text[1024];
        snprintf(text, sizeof text,
                 "model { heads = 64; kv_heads = 8 }\ncluster { nodes = %u; gpus = 8; memory = 1000000 GB }\n"
                 "batch { lengths = lognormal(median = 3K, sigma = 1.4, max = 512K, seed = 1, tokens = %lu) }\n"
                 "plan { mask = causal; block = 2K; strategy = %s }\n",
                 count, (unsigned long)count * 8 * 32768, strategies[i]);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_text(text, d);
        uint64_t asked[STRETCHES] = {0};
        cr_assert_eq(plan_in_stretches(program, i == COUNT - 1 ? &drawn : NULL, asked), FCP_OK);
        for (unsigned s = 0; s < STRETCHES; s++)
            if (stretches[s].by_rank)
                cr_expect_geq(asked[s], count * 8, "%s, %s: %lu questions for %u ranks", strategies[i],
                              stretches[s].name, (unsigned long)asked[s], count * 8);
        if (nodes) fprintf(stderr, "%s: at most %.3f s between two questions\n", strategies[i], stop.longest);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

/* --- parsing, and looking at plans -------------------------------------------------------------------------------- */

static fcp_code parse_until(const char *program_text, uint64_t end_at) {
    const fcpc_options options = {.size = sizeof options, .stop = &stop.flag};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    stop.asked = 0, stop.end_at = end_at, stop.flag = 0, stop.run++;
    const fcp_code code = fcpc_parse_text("", program_text, strlen(program_text), &options, d, &program);
    if (code) cr_assert_eq(diag_first_code(d), code);
    else fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* `begin`, a piece many times, and `end`; the caller frees it. */
static char *repeated(const char *begin, const char *piece, size_t times, const char *end) {
    const size_t first = strlen(begin), each = strlen(piece);
    char *made = malloc(first + each * times + strlen(end) + 1);
    cr_assert_not_null(made);
    memcpy(made, begin, first);
    for (size_t i = 0; i < times; i++) memcpy(made + first + i * each, piece, each);
    strcpy(made + first + each * times, end);
    return made;
}

/* A parse that takes long asks often, and ends at each question. */
Test(interrupt, parsing) {
    enum { MANY = 140000 };
    char path[TEMPORARY], named[TEMPORARY + 100];
    cr_assert(temporary_file(path, "lengths"));
    char *numbers = repeated("", "1\n", 2 * MANY, ""),
         *list = repeated("batch { lengths = [", "1,", MANY, "1] }\nplan { mask = causal }"),
         *field = repeated("batch { lengths = [140001]; field x = [", "1,", MANY, "1] }\nplan { mask = causal }");
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(numbers, f) >= 0 && fclose(f) == 0);
    snprintf(named, sizeof named, "batch { lengths = file(\"%s\") }\nplan { mask = causal }", path);
    const struct { const char *name, *program; uint64_t least; } cases[] = {
        {"drawn lengths",
         "batch { lengths = lognormal(median = 4, sigma = 1.0, count = 140000) }\nplan { mask = causal }", 8},
        {"a file", named, 8},
        {"a list", list, 12},
        {"a field", field, 12},
        {"a repeated number",
         "batch { lengths = [4M]; field x = [1 x 4M] }\nmask m = x[q] == 1\nplan { mask = m }", 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const long before = live;
        cr_assert_eq(parse_until(cases[i].program, 0), FCP_OK, "%s", cases[i].name);
        const uint64_t all = stop.asked;
        for (uint64_t n = 1; n <= all; n++)
            cr_expect_eq(parse_until(cases[i].program, n), FCP_E_INTERRUPTED, "%s", cases[i].name);
        const long lost = live - before; /* read before Criterion allocates */
        cr_expect_geq(all, cases[i].least, "%s: %lu questions", cases[i].name, (unsigned long)all);
        cr_expect_eq(lost, 0, "%s: %ld blocks of memory were left behind", cases[i].name, lost);
    }
    free(numbers), free(list), free(field);
    unlink(path);
}

/* Where tokens are does not depend on the order of blocks, also where there are more than are sorted at once. */
Test(interrupt, homes) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text("cluster { gpus = 2 }\nbatch { lengths = [3 x 280000] }\n"
                                       "plan { mask = causal; block = 1K; strategy = ring; layout = contiguous }\n", d);
    fcp_plan *plan = NULL;
    cr_assert_eq(plan_until(program, NULL, 0, &plan), FCP_OK);
    cr_assert_gt(plan->pieces_count, UINT64_C(1) << 18);
    fcp_plan other = *plan;
    fcp_block *blocks = malloc(plan->blocks_count * sizeof *blocks);
    for (uint64_t i = 0; i < plan->blocks_count; i++) blocks[i] = plan->blocks[plan->blocks_count - 1 - i];
    other.blocks = blocks;
    uint8_t want[FCP_DIGEST_BYTES], got[FCP_DIGEST_BYTES];
    cr_assert_eq(fcp_plan_homes(plan, want, NULL), FCP_OK);
    const long before = live;
    stop.asked = 0, stop.end_at = 0, stop.flag = 0;
    cr_assert_eq(fcp_plan_homes_until(&other, &stop.flag, got, NULL), FCP_OK);
    cr_expect_arr_eq(got, want, FCP_DIGEST_BYTES);
    const uint64_t all = stop.asked;
    for (uint64_t n = 1; n <= all; n++) {
        stop.asked = 0, stop.end_at = n, stop.flag = 0;
        cr_expect_eq(fcp_plan_homes_until(&other, &stop.flag, got, NULL), FCP_E_INTERRUPTED);
    }
    const long lost = live - before;
    cr_expect_geq(all, 6);
    cr_expect_eq(lost, 0, "%ld blocks of memory were left behind", lost);
    free(blocks);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}
