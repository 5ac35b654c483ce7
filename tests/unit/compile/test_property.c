/* test_property.c: draws random masks as source text, and compares what the compiler makes of each with its
 * meaning on every pair: values, faults, counts, classes and shapes. A mask that fails is made as small as it gets
 * and printed as a program.
 *
 * PROPERTY_SEED=N runs one program and prints it; PROPERTY_COUNT=N runs so many. */
#include "tests/support/amount.h"
#include "tests/support/shrink.h"
#include "compiler/problem/bind.h"
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"

#include <criterion/criterion.h>

enum { PROGRAMS = 2000, WHY = 240, TRIES = 20000, SIDE = P_LONGEST / FCP_CELL + 1 };

typedef struct judge {
    p_meaning meaning;
    char why[WHY];
    uint8_t at[P_LONGEST * P_LONGEST * P_HEADS]; /* 0, 1; beyond: what fault, of p_fault, and 1 */
    uint32_t pairs[(P_LONGEST + 1) * (P_LONGEST + 1)], faults[(P_LONGEST + 1) * (P_LONGEST + 1)]; /* before (q, k) */
    uint64_t n, queries;
    mc_env env;
    uint32_t heads; /* 1 if the mask does not name h */
    p_text text;
} judge;

__attribute__((format(printf, 2, 3))) static bool wrong(judge *j, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(j->why, sizeof j->why, format, args);
    va_end(args);
    return false;
}

static uint32_t inside(const judge *j, const uint32_t *table, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    uint64_t w = j->n + 1;
    return table[w * q1 + k1] - table[w * q0 + k1] - table[w * q1 + k0] + table[w * q0 + k0];
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What a stretch of a cell is. */
static unsigned class_of(const judge *j, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    uint64_t pairs = inside(j, j->pairs, q0, q1, k0, k1);
    return !pairs ? 0 : pairs == (q1 - q0) * (k1 - k0) * j->heads ? FCP_CELL_FULL : FCP_CELL_PARTIAL;
}

/* Every element, by query and key, by the program's meaning, and what mask code makes of it. */
static bool elements(judge *j, const property *p, const fcpc_program *program, const p_sequence *s) {
    const uint64_t n = s->n, w = n + 1;
    const int64_t first = p_first(p, s);
    const mc_env *env = &j->env;
    int64_t *scratch = malloc(program->mask.count * sizeof *scratch);
    int64_t *row_scratch = malloc(mc_row_scratch(program->mask) * sizeof *row_scratch);
    if (!scratch || !row_scratch) abort();
    bool right = true;
    j->n = n;
    j->queries = s->queries;
    if (env->q_first != first || env->queries != (int64_t)s->queries || env->n != (int64_t)n)
        right = wrong(j, "n = %d: queries begin at %d", (int)n, (int)env->q_first);
    j->heads = mc_uses(program->mask) & MC_USES_H ? p->heads : 1;
    memset(j->pairs, 0, w * sizeof *j->pairs);
    memset(j->faults, 0, w * sizeof *j->faults);
    for (uint64_t q = 0; q < s->queries && right; q++) {
        j->pairs[w * (q + 1)] = j->faults[w * (q + 1)] = 0;
        for (uint64_t k = 0; k < n && right; k++) {
            uint32_t pairs = 0, faults = 0;
            for (uint32_t h = 0; h < p->heads && right; h++) {
                p_place place = {.q = first + (int64_t)q, .k = (int64_t)k, .n = (int64_t)n, .h = h,
                                 .sequence = s, .meaning = j->meaning};
                int64_t value = p_value(p, p->root, &place);
                uint8_t want = place.fault ? 1 + (uint8_t)place.fault : (uint8_t)value;
                if (h >= j->heads) { /* it does not name h: all heads are alike */
                    if (want != j->at[(q * n + k) * j->heads])
                        right = wrong(j, "n = %d: h matters at q = %d, k = %d", (int)n, (int)place.q, (int)k);
                    continue;
                }
                bool answer = false;
                uint32_t node;
                mc_fault fault = mc_eval_checked(program->mask, env, place.q, place.k, h, scratch, &answer, &node);
                uint8_t got = fault ? 1 + (uint8_t)fault : (uint8_t)answer;
                if (got != want && (!place.fault || !fault)) /* where two elements fault, either may be named */
                    right = wrong(j, "n = %d: element q = %d, k = %d, h = %u is %d, not %d", (int)n, (int)place.q,
                                  (int)k, h, got, want);
                j->at[(q * n + k) * j->heads + h] = want;
                pairs += want == 1;
                faults += want > 1;
            }
            uint64_t here = w * (q + 1) + k + 1;
            j->pairs[here] = j->pairs[here - 1] + j->pairs[here - w] - j->pairs[here - w - 1] + pairs;
            j->faults[here] = j->faults[here - 1] + j->faults[here - w] - j->faults[here - w - 1] + faults;
        }
        uint8_t row[MC_ROW];
        for (uint64_t k = 0; k < n && right; k += MC_ROW) /* the executor's way */
            for (uint32_t h = 0; h < j->heads && right; h++) {
                uint32_t width = (uint32_t)least(n - k, MC_ROW);
                mc_eval_row(program->mask, env, first + (int64_t)q, (int64_t)k, width, h, row_scratch, row);
                for (uint32_t x = 0; x < width && right; x++) {
                    uint8_t want = j->at[(q * n + k + x) * j->heads + h];
                    if (want < 2 && row[x] != want)
                        right = wrong(j, "n = %d: row %d, k = %d, h = %u is %d, not %d", (int)n, (int)q,
                                      (int)(k + x), h, row[x], want);
                }
            }
    }
    free(scratch);
    free(row_scratch);
    return right;
}

/* Whether `code` is a right answer for a rectangle in which some element faults. */
static bool witness(judge *j, const char *what, fcp_code code, const cells_fault *f, uint64_t q0, uint64_t q1,
                    uint64_t k0, uint64_t k1) {
    if (code != FCP_E_MASK_DIV_ZERO && code != FCP_E_MASK_OVERFLOW && code != FCP_E_MASK_INDEX)
        return wrong(j, "n = %d: %s misses a fault: %s", (int)j->n, what, fcp_code_name(code));
    if ((code == FCP_E_MASK_DIV_ZERO) != (f->kind == MC_DIV_ZERO) ||
        (code == FCP_E_MASK_INDEX) != (f->kind == MC_INDEX))
        return wrong(j, "%s: two kinds of fault", what);
    int64_t row = f->q - j->env.q_first;
    if (f->n != (int64_t)j->n || row < (int64_t)q0 || row >= (int64_t)q1 || f->k < (int64_t)k0 ||
        f->k >= (int64_t)k1 || f->h < 0 || f->h >= j->heads)
        return wrong(j, "n = %d: %s: a fault outside", (int)j->n, what);
    if (j->at[((uint64_t)row * j->n + (uint64_t)f->k) * j->heads + (uint64_t)f->h] < 2)
        return wrong(j, "n = %d: %s: no fault at q = %d, k = %d", (int)j->n, what, (int)f->q, (int)f->k);
    return true;
}

static bool counts(judge *j, cells *c) {
    cells_counts got, want = {0};
    cells_fault fault = {0};
    uint64_t n = j->n, m = j->queries;
    fcp_code code = cells_count(c, &j->env, &got, &fault);
    if (inside(j, j->faults, 0, m, 0, n)) return witness(j, "counting", code, &fault, 0, m, 0, n);
    if (code != FCP_OK) return wrong(j, "n = %d: counting ends with %s", (int)n, fcp_code_name(code));
    for (uint64_t q = 0; q < m; q += FCP_CELL)
        for (uint64_t k = 0; k < n; k += FCP_CELL) {
            unsigned cls = class_of(j, q, least(m, q + FCP_CELL), k, least(n, k + FCP_CELL));
            want.none += cls == 0;
            want.full += cls == FCP_CELL_FULL;
            want.partial += cls == FCP_CELL_PARTIAL;
        }
    want.pairs = inside(j, j->pairs, 0, m, 0, n);
    if (memcmp(&got, &want, sizeof got))
        return wrong(j, "n = %d: %d pairs, not %d; %d full cells, not %d; %d partial, not %d; %d empty, not %d", (int)n,
                     (int)got.pairs, (int)want.pairs, (int)got.full, (int)want.full, (int)got.partial,
                     (int)want.partial, (int)got.none, (int)want.none);
    return true;
}

static bool classes(judge *j, const fcp_shape_rec *shape, const fcp_run *runs, uint64_t q0, uint64_t q1, uint64_t k0,
                    uint64_t k1) {
    uint8_t cls[SIDE][SIDE] = {{0}};
    uint32_t row = 0, col = 0, last = 0;
    for (uint32_t i = 0; i < shape->runs; i++) {
        const fcp_run *r = &runs[shape->first_run + i];
        bool order = i == 0 || r->row > row || (r->row == row && r->col >= col);
        bool merged = i == 0 || r->row != row || r->col != col || r->cls != last;
        if (!order || !merged || !r->count || r->row >= SIDE || r->col + r->count > SIDE)
            return wrong(j, "n = %d: runs of (%d, %d) out of order", (int)j->n, (int)q0, (int)k0);
        for (uint32_t x = 0; x < r->count; x++) cls[r->row][r->col + x] = (uint8_t)r->cls;
        row = r->row;
        col = r->col + r->count;
        last = r->cls;
    }
    for (uint64_t q = q0; q < q1; q += FCP_CELL)
        for (uint64_t k = k0; k < k1; k += FCP_CELL) {
            unsigned want = class_of(j, q, least(q + FCP_CELL, q1), k, least(k + FCP_CELL, k1));
            unsigned got = cls[(q - q0) / FCP_CELL][(k - k0) / FCP_CELL];
            if (got != want)
                return wrong(j, "n = %d: the cell at q = %d, k = %d is %u, not %u", (int)j->n, (int)q, (int)k, got,
                             want);
        }
    return true;
}

static bool grid(judge *j, cells *c, const p_sequence *s) {
    const uint64_t *q = s->q_cuts, *k = s->k_cuts;
    uint32_t rows = s->q_cut_count - 1, cols = s->k_cut_count - 1, shape_count, run_count;
    const cell_entry *entries;
    size_t count, at = 0;
    cells_fault fault = {0};
    fcp_code code = cells_grid(c, &j->env, q, rows, k, cols, &entries, &count, &fault);
    if (inside(j, j->faults, q[0], q[rows], k[0], k[cols]))
        return witness(j, "the grid", code, &fault, q[0], q[rows], k[0], k[cols]);
    if (code != FCP_OK) return wrong(j, "n = %d: the grid ends with %s", (int)s->n, fcp_code_name(code));
    const fcp_run *runs;
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (uint32_t a = 0; a < rows; a++)
        for (uint32_t b = 0; b < cols; b++) {
            uint64_t pairs = inside(j, j->pairs, q[a], q[a + 1], k[b], k[b + 1]);
            bool here = at < count && entries[at].q_piece == a && entries[at].k_piece == b;
            if (here != (pairs > 0))
                return wrong(j, "n = %d: pieces (%u, %u) have %d pairs, and %s", (int)s->n, a, b, (int)pairs,
                             here ? "a tile" : "no tile");
            if (!here) continue;
            const fcp_shape_rec *shape = &shapes[entries[at++].shape];
            if (shape->pairs != pairs || shape->q_length != q[a + 1] - q[a] || shape->k_length != k[b + 1] - k[b])
                return wrong(j, "n = %d: pieces (%u, %u): %u x %u with %d pairs, not %d", (int)s->n, a, b,
                             shape->q_length, shape->k_length, (int)shape->pairs, (int)pairs);
            if (!classes(j, shape, runs, q[a], q[a + 1], k[b], k[b + 1])) return false;
        }
    return at == count || wrong(j, "n = %d: %d tiles too many", (int)s->n, (int)(count - at));
}

static bool right(judge *j, const property *p) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    p_source(p, &j->text);
    fcp_code code = fcpc_parse_text("drawn.fcp", j->text.text, j->text.size, NULL, d, &program);
    bool good = true;
    if (code != FCP_OK) {
        char *picture = fcpc_diagnostics_render(d, false);
        good = wrong(j, "refused: %s", picture);
        free(picture);
    }
    cells *c = program ? cells_new(program->mask, p->heads) : NULL;
    if (good && !c) abort();
    const fcpc_batch own = FCPC_BATCH_INIT;
    planning x = {.program = program, .batch = &own, .d = d};
    if (good && (bind_lengths(&x) != FCP_OK || bind_batch(&x) != FCP_OK)) good = wrong(j, "fields do not bind");
    for (uint32_t i = 0; i < p->sequences && good; i++) {
        const p_sequence *s = &p->sequence[i];
        j->env = bind_sequence(x.binding, i);
        good = elements(j, p, program, s) && grid(j, c, s) && counts(j, c) && grid(j, c, s);
    }
    cells_free(c);
    arena_free(&x.memory);
    arena_free(&x.work);
    arena_free(&x.scratch);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return good;
}

static bool fails(const property *p, void *with) { return !right(with, p); }

static judge *judge_new(p_meaning meaning) {
    judge *j = calloc(1, sizeof *j);
    if (!j) abort();
    j->meaning = meaning;
    return j;
}

static long from_environment(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? strtol(value, NULL, 10) : otherwise;
}

Test(property, masks_mean_what_they_say) {
    judge *j = judge_new(P_RIGHT);
    property *p = malloc(sizeof *p);
    long seed = from_environment("PROPERTY_SEED", 0),
         count = from_environment("PROPERTY_COUNT", (long)amount(PROGRAMS / 6, PROGRAMS));
    for (long i = seed ? seed : 1; i <= (seed ? seed : count); i++) {
        p_draw_program(p, (uint64_t)i);
        if (seed) {
            p_source(p, &j->text);
            fputs(j->text.text, stderr);
        }
        if (right(j, p)) continue;
        p_shrink(p, fails, j, TRIES);
        right(j, p);
        cr_assert_fail("seed %ld: %s, of\n%s", i, j->why, j->text.text);
    }
    free(p);
    free(j);
}

/* Judges that misread the language are found out, each by a program of few words. */
Test(property, failures_become_small) {
    static const struct { p_meaning meaning; int nodes; uint64_t tokens; } mistakes[] = {
        {P_LE_IS_LT, 3, 1}, {P_TRUNCATES, 5, 3}, {P_EAGER, 7, 1}, {P_H_IS_0, 3, 1}, {P_KINDS_ALIKE, 3, 2},
        {P_TURNED, 7, 8}};
    for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
        judge *j = judge_new(mistakes[m].meaning);
        property *p = malloc(sizeof *p);
        int found = 0, examples = (int)amount(2, 4);
        for (uint64_t seed = 1; seed < 2000 && found < examples; seed++) {
            p_draw_program(p, seed);
            if (right(j, p)) continue;
            found++;
            int before = p_size_of(p);
            p_shrink(p, fails, j, TRIES);
            cr_assert(!right(j, p) && j->why[0], "seed %d: it does not fail any more", (int)seed);
            int size = p_size_of(p);
            cr_assert(size <= mistakes[m].nodes && size <= before && p->sequences == 1 &&
                      p->sequence[0].n <= mistakes[m].tokens && p->sequence[0].q_cut_count == 2 &&
                      p->sequence[0].k_cut_count == 2,
                      "mistake %d, seed %d: %d nodes of %d: %s, of\n%s", (int)m, (int)seed, size, before, j->why,
                      j->text.text);
            j->meaning = P_RIGHT;
            cr_assert(right(j, p), "%s", j->why);
            j->meaning = mistakes[m].meaning;
        }
        cr_assert_eq(found, examples, "mistake %d: found %d times", (int)m, found);
        free(p);
        free(j);
    }
}
