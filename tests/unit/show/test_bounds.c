/* test_bounds.c: tests that no figure of a summary or a prediction is below the lower bound that is printed beside it:
 * for each mask of a program with layers, and for their sums. */
#define _GNU_SOURCE /* memmem */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/compile.h"
#include "compiler/show/summary.h"
#include "tests/support/amount.h"
#include "tests/support/splitmix.h"

/* Every bound, and what it bounds: one member, or two that are added up. */
static const struct { const char *bound, *figures[2]; } pairs[] = {
    {"compute_floor", {"compute_max_over_mean"}},
    {"bytes_lower_bound", {"bytes_total"}},
    {"rounds_lower_bound", {"rounds"}},
    {"rounds_bound", {"rounds", "rounds_dependent"}},
    {"backward_rounds_bound", {"backward_rounds", "backward_rounds_dependent"}},
    {"makespan_lower_bound_s", {"makespan_s"}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static unsigned positive[PAIRS]; /* how often the bound said something */

/* The first number under that key at or behind `from`. */
static double number(const char *from, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(from, quoted);
    cr_assert_not_null(at, "there is no %s", key);
    return strtod(at + strlen(quoted), NULL);
}

/* Compares all bounds of an object, which may hold others. */
static void compare(const char *object, const char *what) {
    for (const char *at = object; (at = strstr(at, "\": ")); at++) {
        const char *key = at;
        while (key[-1] != '"') key--;
        const size_t length = (size_t)(at - key);
        int n = 0;
        while (n < PAIRS && (strlen(pairs[n].bound) != length || memcmp(pairs[n].bound, key, length))) n++;
        const bool named = memmem(key, length, "bound", 5) || memmem(key, length, "floor", 5);
        if (n == PAIRS) {
            cr_assert(!named || at[3] == '{', "%.*s bounds nothing that is known here", (int)length, key);
            continue;
        }
        const char *begin = key; /* of the object that it is a member of */
        while (*begin != '{' && *begin != '}') begin--;
        const double bound = strtod(at + 3, NULL);
        double figure = number(begin, pairs[n].figures[0]);
        if (pairs[n].figures[1]) figure += number(begin, pairs[n].figures[1]);
        positive[n] += bound > 0;
        cr_expect_leq(bound, figure * (1 + 1e-9), "%.*s = %g, and the figure is %g: %s", (int)length, key, bound,
                      figure, what);
    }
}

static void compare_summary(const fcp_plan *plan, const fcpc_times *times, const char *what) {
    char *object = NULL;
    cr_assert_eq(fcpc_summary_json(plan, times, &object, NULL), FCP_OK);
    compare(object, what);
    free(object);
}

static uint32_t pick(uint64_t *state, uint32_t n) { return (uint32_t)(splitmix(state) >> 33) % n; }

static void put_masks(uint64_t *state, char *out, size_t room) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "window(w = 1500)", "prefix(p = 30)",
                                        "lambda(window = 64, sink = 3)"};
    const uint32_t count = 1 + pick(state, 3);
    size_t used = (size_t)snprintf(out, room, "layers = [");
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s x %u", i ? ", " : "", masks[pick(state, 6)],
                                 1 + pick(state, 4));
    snprintf(out + used, room - used, "]");
}

Test(bounds, of_layers, .timeout = 300) {
    static const char *const by[] = {"fcp", "ring", "zigzag", "cad", "cad(base = fcp)", "dcp", "groups",
                                     "ulysses + ring", "auto(among = [cad, fcp])", "dcp(epsilon_compute = 0.01)",
                                     "cad(tolerance = 0.001)"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (uint64_t seed = 1; seed <= amount(120, 2000); seed++) {
        char masks[200], source[1024];
        uint64_t state = seed;
        put_masks(&state, masks, sizeof masks);
        snprintf(source, sizeof source,
                 "model { heads = 4; kv_heads = 2; head_dim = 32 }\ncluster { nodes = %u; gpus = %u }\n"
                 "batch { lengths = [%u, %u x %u] }\n"
                 "plan { %s; strategy = %s; layout = %s; block = %u; passes = forward%s }\n",
                 1 + pick(&state, 3), 1u << pick(&state, 3), 1 + pick(&state, 6000), 1 + pick(&state, 900),
                 1 + pick(&state, 5), masks, by[pick(&state, sizeof by / sizeof *by)], layouts[pick(&state, 3)],
                 128u << pick(&state, 4), pick(&state, 3) ? ", backward" : "");
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcp_plan *plans[3] = {NULL};
        fcpc_times all, each[3];
        const fcpc_batch batch = {.size = sizeof batch, .bound = true};
        const compile_watch watch = {.each = each};
        fcp_code code = fcpc_parse_text("drawn.fcp", source, strlen(source), NULL, d, &program);
        if (code != FCP_E_HEADS) {
            cr_assert_eq(code, FCP_OK, "%s%s", source, fcpc_diagnostics_render(d, false));
            code = compile_layers(program, &batch, NULL, d, &watch, &all, plans);
            cr_assert_eq(code, FCP_OK, "%s%s", source, fcpc_diagnostics_render(d, false));
        }
        for (uint32_t i = 0; !code && i < fcpc_program_layers(program, 0, NULL); i++) {
            char *object = NULL;
            compare_summary(plans[i], &each[i], source);
            if (!i) compare_summary(plans[i], &all, source);
            if (!i) cr_expect_eq(all.bytes_lower_bound, each[i].bytes_lower_bound, "%s", source);
            cr_assert_eq(fcpc_simulate_json(plans[i], NULL, &object, NULL), FCP_OK);
            compare(object, source);
            free(object);
            fcp_plan_free(plans[i]);
        }
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
    for (int n = 0; n < PAIRS; n++) cr_expect_gt(positive[n], 20, "%s was 0 nearly always", pairs[n].bound);
}
