/* mask_time.c: estimates how long it will take to find out which pairs of a batch the mask allows. Refuses a batch that
 * takes longer than the caller allows, and warns of one that takes long.
 *
 * Requires: a bound batch.
 * Gives: x->outlook, the estimate for the mask and for the check that the score does not fault; an error or a warning.
 * Cost: nothing if the estimate is not needed; else that of cells_look_ahead for one mask. If the mask names heads,
 *     that is once for each class of heads, but at most CLASSES_ASKED times.
 *
 * The estimate counts work (cells_stats.work) and measures no time. So a batch is refused on every machine or on none.
 */
#include "compiler/problem/problem.h"
#include "compiler/problem/problem_tuning.h"

#include <stdio.h>

#define SECOND 1e9    /* in work */
#define WAIT_LONG 10  /* seconds that are warned of */
enum { LENGTH_BITS = 40 };

/* Will problem_open accept these lengths? */
static bool are_good(const planning *x) {
    const uint64_t most = UINT64_C(1) << LENGTH_BITS, *queries = x->queries ? x->queries : x->lengths;
    uint64_t keys = 0, rows = 0;
    for (size_t i = 0; i < x->count; i++) {
        if (x->lengths[i] > most || queries[i] > most) return false;
        if ((keys += x->lengths[i]) > most || (rows += queries[i]) > most) return false;
    }
    return x->count && x->count <= UINT32_MAX / 2;
}

static mc_env env_of(const void *of, uint32_t sequence) { return problem_env(of, sequence); }

/* About how long a piece is, in cells. */
static uint64_t piece_of(const planning *x, const problem *p) {
    const struct fcpc_program *g = x->program;
    uint64_t longest = 0, tokens = x->block;
    for (uint32_t s = 0; s < p->sequences; s++)
        if (p->lengths[s] > longest) longest = p->lengths[s];
    const uint32_t even = strategy_facts_of[g->strategy].even;
    if (even) tokens = longest / ((uint64_t)g->nodes * g->gpus * even);
    return tokens < FCP_CELL ? 1 : tokens / FCP_CELL;
}

/* Adds the cost of a mask, multiplied by `times`. */
static fcp_code add_mask(planning *x, const problem *p, mc_code mask, uint32_t heads, double times) {
    const cells_batch batch = {p->sequences, piece_of(x, p), env_of, p};
    cells_outlook one = {0, 0};
    cells *c = cells_new(mask, heads);
    if (!c) return FCP_E_NO_MEMORY;
    cells_set_stop(c, x->stop);
    fcp_code code = cells_look_ahead(c, &batch, &one);
    cells_free(c);
    x->outlook.pairs += (uint64_t)(times * (double)one.pairs);
    x->outlook.work += (uint64_t)(times * (double)one.work);
    return code;
}

/* Adds the cost of the masks of all classes of heads, estimated from some classes if there are many. */
static fcp_code add_classes(planning *x, problem *p) {
    planning other = *x; /* only finds the classes */
    other.problem = p;
    other.memory = other.scratch = (arena){.pool = x->work.pool};
    fcp_code code = problem_find_classes(&other);
    const uint32_t all = p->class_count, asked = all < CLASSES_ASKED ? all : CLASSES_ASKED;
    for (uint32_t i = 0; i < asked && !code; i++) {
        mc_code mask;
        if (!problem_class_mask(p, (uint32_t)((uint64_t)i * all / asked), &other.memory, &mask)) code = FCP_E_NO_MEMORY;
        else code = add_mask(x, p, mask, 1, (double)all / asked);
    }
    arena_free(&other.memory);
    arena_free(&other.scratch);
    return code;
}

fcp_code problem_look_ahead(planning *x) {
    const struct fcpc_program *g = x->program;
    if (x->kept && x->kept->outlook.known) x->outlook = x->kept->outlook;
    if (x->outlook.known || !are_good(x)) return FCP_OK;
    problem p = {.program = g, .binding = x->binding, .lengths = x->lengths,
                 .queries = x->queries ? x->queries : x->lengths, .sequences = (uint32_t)x->count};
    x->outlook = (struct planning_outlook){.known = true};
    fcp_code code = mc_uses(g->mask) & MC_USES_H ? add_classes(x, &p) : add_mask(x, &p, g->mask, 1, 1);
    const uint64_t pairs = x->outlook.pairs;
    if (!code && g->check.nodes != g->mask.nodes) code = add_mask(x, &p, g->check, g->heads, 1);
    x->outlook.pairs = pairs; /* of the mask alone */
    if (x->kept) x->kept->outlook = x->outlook;
    return code;
}

static void hint(planning *x) {
    diag_hint(x->d, "smaller blocks do not help, shorter sequences do; conditions on q - k, on blocks of positions or "
                    "on fields with long runs decide many pairs at a time");
}

/* How many digits behind the point to print, so that numbers read 4.7, 52, 1670. */
static int digits(double x) { return x < 10; }

/* Writes a reason such as ": about 17 G of its pairs have to be looked at one by one", or nothing if there are few. */
static void write_reason(const planning *x, char out[96]) {
    const double pairs = (double)x->outlook.pairs / 1e9;
    out[0] = 0;
    if (pairs >= 0.1)
        snprintf(out, 96, ": about %.*f G of its pairs have to be looked at one by one", digits(pairs), pairs);
}

bool problem_takes_long(const planning *x) { return (double)x->outlook.work >= WAIT_LONG * SECOND; }

fcp_code problem_check_time(planning *x) {
    const double most = x->batch->max_seconds;
    char pairs[96];
    if (most < 0 || most != most)
        return planning_fail(x, FCP_E_ARGUMENT, SPAN_NONE, "max_seconds is %g: a limit is a number of seconds, or 0",
                             most);
    const bool first = !x->outlook.known && !(x->kept && x->kept->outlook.known);
    if (most == 0 && !x->soon && !x->batch->progress) return FCP_OK;
    fcp_code code = problem_look_ahead(x);
    const double seconds = (double)x->outlook.work / SECOND;
    if (code) return code;
    write_reason(x, pairs);
    if (most > 0 && seconds > most) {
        code = planning_fail(x, FCP_E_TOO_LONG, x->program->at[AT_MASK],
                             "%s takes about %.*f s of one processor to plan, and the limit is %g s%s",
                             x->program->mask_name, digits(seconds), seconds, most, pairs);
        hint(x);
        return code;
    }
    if (!x->soon || !first || !problem_takes_long(x)) return FCP_OK;
    diag_warning(x->d, planning_span(x, x->program->at[AT_MASK]),
                 "%s takes long to plan, about %.0f s of one processor%s", x->program->mask_name, seconds, pairs);
    hint(x);
    x->soon(x->soon_context, x);
    return FCP_OK;
}
