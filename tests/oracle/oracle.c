/* oracle.c: random programs before the judge: hundreds compiled, a part of them run forward and backward. */
#include <criterion/criterion.h>

#include "judge.h"

static unsigned count_from_environment(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void sweep(unsigned first, unsigned count, uint64_t budget, bool execute) {
    random_program *p = zeros(1, sizeof *p);
    unsigned results[3] = {0};
    for (unsigned seed = first; seed < first + count; seed++) {
        dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u};
        for (int i = 0; i < 8; i++) roll(&d, 2);
        draw_program(p, &d, budget);
        results[check_program(seed, p, &d, execute)]++;
    }
    fprintf(stderr, "oracle: %u programs: %u planned%s, %u with a fault, %u with too many ranks\n", count, results[PLANNED],
            execute ? " and run" : "", results[FAULTED], results[REFUSED]);
    cr_assert(results[PLANNED] >= count / 4, "too few programs were planned for this test to mean anything");
    free(p);
}

Test(oracle, plans, .timeout = 600) { sweep(1, count_from_environment("ORACLE_PLANS", 400), 300000, false); }
Test(oracle, runs, .timeout = 600) { sweep(100001, count_from_environment("ORACLE_RUNS", 120), 120000, true); }
