/* bench_cells.c: measures what it costs to classify a mask's cells: for each mask of the prelude over a million tokens,
 * for all pairs of pieces in whole batches, and for a long program from its text to the plan.
 *
 * The compiler gets masks as text. Brute force evaluates each mask's definition, a C function, pair by pair, over the
 * longest sequence that takes it about BRUTE_SECONDS. On that sequence both must count the same pairs. */
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"
#include "tests/support/known_masks.h"
#include "tests/bench/bench.h"
#include "tests/bench/flex.h"
#include "tests/bench/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, TOKENS = 1 << 20, MIB = 1 << 20, BRUTE_LEAST = 1024 };
#define BRUTE_SECONDS 0.2

typedef struct bench_mask {
    int mask;
    int64_t p[KNOWN_PARAMS];
    uint64_t n, unit; /* lengths are multiples of unit; 0: any */
    double goal_ms;
} bench_mask;

static const bench_mask MASKS[] = {
    {K_FULL, {0}, TOKENS, 0, 50},
    {K_CAUSAL, {0}, TOKENS, 0, 50},
    {K_WINDOW, {4096}, TOKENS, 0, 50},
    {K_WINDOW_BOTH, {4096, 1024}, TOKENS, 0, 50},
    {K_PREFIX, {1000}, TOKENS, 0, 50},
    {K_LAMBDA, {64, 4096}, TOKENS, 0, 50},
    {K_SHARED_QUESTION, {20, 4}, TOKENS, 0, 50},
    {K_CAUSAL_BLOCKWISE, {256, 2}, TOKENS, 0, 50},
    {K_CAUSAL_BLOCKWISE_FM, {4096}, TOKENS, 0, 50},
    {K_CAUSAL_BLOCKWISE_FM, {1000}, TOKENS, 0, 50},
    {K_BLOCK_CAUSAL, {1000}, TOKENS, 0, 50},
    {K_BLOCK_CAUSAL, {4096}, TOKENS, 0, 50},
    {K_GLOBAL_WINDOW, {64, 4096}, TOKENS, 0, 50},
    {K_QK_SPARSE, {500000, 100000}, TOKENS, 0, 50},
    {K_BLOCK_DIFFUSION, {32}, TOKENS, 2, 50},
    {K_BLOCK_DIFFUSION, {1000}, TOKENS, 2, 50},
    {K_DRAFT_TRAIN, {1000, 1000}, TOKENS, 0, 50},
    {K_DILATED, {4096, 4}, TOKENS, 0, 50},
    {K_SVG_SPATIAL, {226, 4096}, TOKENS, 0, 50},
    {K_STA2D, {1024, 16, 16, 9, 9}, TOKENS, 1024 * 16, 50},
    {K_NATTEN2D, {1024, 63, 63, 1, 1, 1, 1}, TOKENS, 1024, 200},
    {K_NATTEN2D, {1000, 63, 63, 1, 1, 1, 1}, 1048000, 1000, 200},
    {K_NATTEN2D,
     {1021, 63, 63, 1, 1, 1, 1},
     1048567,
     1021,
     0}, /* a prime: hardly two cells of a row of pixels are alike */
    {K_STA3D, {80, 48, 8, 8, 6, 3, 3, 3}, 1036800, 80 * 48 * 6, 200},
    {K_SVG_TEMPORAL, {226, 4096, 128}, TOKENS, 0, 200},
    {K_SVG_TEMPORAL, {226, 3600, 128}, TOKENS, 0, 200},
    {K_SVG_TEMPORAL, {226, 1350, 128}, TOKENS, 0, 200},
};
enum { MASK_COUNT = sizeof MASKS / sizeof *MASKS };

/* "natten2d(1024, 63, 63)": without what has a default */
static int params_shown(const known_mask *k) { return k->needed ? k->needed : KNOWN_PARAMS; }
static const char *short_name(const bench_mask *m, char out[KNOWN_CALL]) {
    const known_mask *k = &KNOWN[m->mask];
    int at = snprintf(out, KNOWN_CALL, "%s", k->name);
    for (int i = 0; i < params_shown(k) && k->params[i]; i++)
        at += snprintf(out + at, (size_t)(KNOWN_CALL - at), "%s%lld", i ? ", " : "(", (long long)m->p[i]);
    if (k->params[0]) snprintf(out + at, (size_t)(KNOWN_CALL - at), ")");
    return out;
}

static fcpc_program *parse(const bench_mask *m) {
    char call[KNOWN_CALL], source[KNOWN_CALL + 32];
    fcpc_program *p = NULL;
    snprintf(source, sizeof source, "plan { mask = %s }\n", known_call(&KNOWN[m->mask], m->p, call));
    return fcpc_parse_text("bench.fcp", source, strlen(source), NULL, NULL, &p) == FCP_OK ? p : NULL;
}

/* The definition, pair by pair: the first `rows` queries of n tokens. */
static uint64_t brute_force(const bench_mask *m, uint64_t rows, uint64_t n) {
    known_allow *allow = KNOWN[m->mask].allow;
    uint64_t pairs = 0;
    for (uint64_t q = 0; q < rows; q++)
        for (uint64_t k = 0; k < n; k++) pairs += allow(m->p, (int64_t)q, (int64_t)k, (int64_t)n);
    return pairs;
}

/* Is that what the compiler counts? */
static bool agrees(const fcpc_program *p, uint64_t rows, uint64_t n, uint64_t pairs) {
    cells *c = cells_new(p->mask, 1);
    cells_counts counts = {0};
    fcp_code code = c ? cells_count(c, MC_LENGTH((int64_t)n), &counts, NULL) : FCP_E_NO_MEMORY;
    if (code == FCP_OK && rows < n) {
        const uint64_t q_cuts[] = {0, rows}, k_cuts[] = {0, n};
        const cell_entry *entry;
        const fcp_run *runs;
        size_t count;
        uint32_t shapes;
        code = cells_grid(c, MC_LENGTH((int64_t)n), q_cuts, 1, k_cuts, 1, &entry, &count, NULL);
        counts.pairs = code == FCP_OK && count ? cells_shapes(c, &shapes, &runs, &shapes)[entry->shape].pairs : 0;
    }
    cells_free(c);
    return code == FCP_OK && counts.pairs == pairs;
}

/* Writes what brute force does; false if it counts something else. Where the shortest sequence is long, it does as many
 * of its queries as it can. */
static bool beside(const bench_mask *m, const fcpc_program *p, char *out, size_t size) {
    uint64_t unit = m->unit ? m->unit : 1, n = (BRUTE_LEAST + unit - 1) / unit * unit, rows, pairs;
    double seconds;
    for (;; n *= 2) {
        rows = n > 8 * BRUTE_LEAST ? 8 * BRUTE_LEAST * BRUTE_LEAST / n : n;
        double start = bench_now();
        pairs = brute_force(m, rows, n);
        seconds = bench_now() - start;
        if (seconds * 4 > BRUTE_SECONDS || rows < n) break;
    }
    bool same = agrees(p, rows, n, pairs);
    double all = seconds * ((double)m->n / (double)rows) * ((double)m->n / (double)n);
    snprintf(out, size, "%s brute force %.0f ms for %llu x %llu (all: %.0f s)", same ? "" : " NOT THE SAME AS",
             seconds * 1e3, (unsigned long long)rows, (unsigned long long)n, all);
    return same;
}

/* Adds what FlexAttention's create_block_mask does to a note; false if its blocks are not ours. */
static bool beside_flex(flex *f, const bench_mask *m, const fcpc_program *p, char *out, size_t size) {
    const known_mask *known = &KNOWN[m->mask];
    char text[KNOWN_PARAMS][24];
    const char *params[KNOWN_PARAMS];
    int count = 0;
    flex_result r;
    for (; count < params_shown(known) && known->params[count]; count++) {
        snprintf(text[count], sizeof text[count], "%lld", (long long)m->p[count]);
        params[count] = text[count];
    }
    if (!flex_ask(f, known->name, m->unit, params, count, &r)) return true;
    bool same = true;
    if (r.full >= 0 && r.queries == r.n) {
        cells *c = cells_new(p->mask, 1);
        cells_counts counts = {0};
        same = c && cells_count(c, MC_LENGTH((int64_t)r.n), &counts, NULL) == FCP_OK &&
               counts.full == (uint64_t)r.full && counts.partial == (uint64_t)r.partial;
        cells_free(c);
    }
    double all = r.seconds * ((double)m->n / (double)r.queries) * ((double)m->n / (double)r.n);
    snprintf(out, size, ";%s FlexAttention %.0f ms, %.0f MiB for %llu x %llu (all: %.0f s)",
             same ? "" : " NOT THE SAME AS", r.seconds * 1e3, r.mebibytes, (unsigned long long)r.queries,
             (unsigned long long)r.n, all);
    return same;
}

static void bench_count(const bench_mask *m, flex *f) {
    fcpc_program *p = parse(m);
    double times[RUNS];
    cells_counts counts = {0};
    cells_stats stats = {0};
    bool ok = p != NULL;
    for (int i = 0; i < RUNS && p; i++) {
        double start = bench_now();
        cells *c = cells_new(p->mask, 1);
        ok = c && cells_count(c, MC_LENGTH((int64_t)m->n), &counts, NULL) == FCP_OK && ok;
        times[i] = bench_now() - start;
        if (c) cells_get_stats(c, &stats);
        cells_free(c);
    }
    char name[KNOWN_CALL + 32], text[KNOWN_CALL], goal[32] = "", brute[96] = "", other[128] = "", note[448];
    double ms = p ? bench_median(times, RUNS) * 1e3 : 0;
    ok = ok && beside(m, p, brute, sizeof brute);
    snprintf(name, sizeof name, "count 1M, %s", short_name(m, text));
    if (p && bench_wants(name)) ok = beside_flex(f, m, p, other, sizeof other) && ok;
    if (m->goal_ms > 0) snprintf(goal, sizeof goal, "<= %.0f ms", m->goal_ms);
    snprintf(note, sizeof note, "%.1f MiB (<= 64); %llu full, %llu partial cells; %llu boxes; by elements %.4g %%;%s%s",
             (double)stats.bytes / MIB, (unsigned long long)counts.full, (unsigned long long)counts.partial,
             (unsigned long long)stats.boxes,
             counts.pairs ? 100 * (double)stats.elements / (double)counts.pairs : 0, brute, other);
    bench_row(name, ms, "ms", goal, ok && ms <= m->goal_ms && stats.bytes <= 64 * (uint64_t)MIB, note);
    fcpc_program_free(p);
}

/* Every sequence of a batch, cut at multiples of `block`. */
static void bench_grids(const bench_mask *m, const char *what, const uint64_t *lengths, size_t count, uint64_t block,
                        double goal_ms, const char *remark) {
    size_t pairs = 0, pieces = 0, room = 2;
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        if (lengths[i] / block + 2 > room) room = lengths[i] / block + 2;
    uint64_t *cuts = malloc(room * sizeof *cuts);
    fcpc_program *p = parse(m);
    double times[RUNS];
    cells_stats stats = {0};
    for (int i = 0; i < RUNS && p && cuts; i++) {
        double start = bench_now();
        cells *c = cells_new(p->mask, 1);
        pairs = pieces = 0;
        for (size_t s = 0; s < count && c; s++) {
            uint32_t n = 0;
            for (uint64_t at = 0; at < lengths[s]; at += block) cuts[n++] = at;
            cuts[n] = lengths[s];
            const cell_entry *entries;
            size_t made = 0;
            ok = cells_grid(c, MC_LENGTH((int64_t)(lengths[s])), cuts, n, cuts, n, &entries, &made, NULL) == FCP_OK &&
                 ok;
            pairs += made;
            pieces += n;
        }
        times[i] = bench_now() - start;
        ok = ok && c;
        if (c) cells_get_stats(c, &stats);
        cells_free(c);
    }
    char name[KNOWN_CALL + 96], text[KNOWN_CALL], goal[32] = "", note[200];
    ok = ok && p && cuts && count;
    double ms = ok ? bench_median(times, RUNS) * 1e3 : 0;
    snprintf(name, sizeof name, "classify %s, %s, block %llu", what, short_name(m, text), (unsigned long long)block);
    if (goal_ms > 0) snprintf(goal, sizeof goal, "<= %.0f ms", goal_ms);
    snprintf(note, sizeof note, "%zu pieces, %zu pairs, %.0f ns a pair; %llu boxes, %llu rows, %.0f KiB%s", pieces,
             pairs,
             ms * 1e6 / (double)(pairs ? pairs : 1), (unsigned long long)stats.boxes, (unsigned long long)stats.rows,
             (double)stats.bytes / 1024, remark);
    bench_row(name, ms, "ms", goal, ok && ms <= goal_ms, note);
    free(cuts);
    fcpc_program_free(p);
}

static void bench_batches(void) {
    static const bench_mask batch[] = {{K_CAUSAL, {0}, 0, 0, 0}, {K_LAMBDA, {64, 4096}, 0, 0, 0},
                                       {K_SHARED_QUESTION, {20, 4}, 0, 0, 0}, {K_DILATED, {4096, 4}, 0, 0, 0}};
    enum { ANSWERED = 1024 };
    size_t count;
    bool drawn;
    uint64_t *lengths = workload_lengths("wlbllm-256x32k", 256u << 15, &count, &drawn);
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++)
        bench_grids(&batch[i], "wlbllm-256x32k", lengths, lengths ? count : 0, 2048, 0, drawn ? "; drawn lengths" : "");
    free(lengths);
    lengths = malloc(ANSWERED * sizeof *lengths);
    for (int i = 0; i < ANSWERED && lengths; i++) lengths[i] = 128 << 10;
    bench_grids(&batch[2], "128M tokens (128K each)", lengths, lengths ? ANSWERED : 0, 4096, 200, "");
    for (int i = 0; i < ANSWERED && lengths; i++) /* no two alike */
        lengths[i] = (uint64_t)((128 << 10) - ANSWERED / 2 + i);
    bench_grids(&batch[2], "128M tokens (128K +- 512)", lengths, lengths ? ANSWERED : 0, 4096, 0, "");
    free(lengths);
}

/* --- masks without structure -------------------------------------------------------------------------------------- */

/* All pieces of one sequence under a mask of which nearly every pair has to be looked at; once, for it takes long. */
static void bench_unstructured(const char *name, const char *condition, uint64_t n) {
    enum { BLOCK = 4096, NOISE = 1000, GOAL_S = 20 };
    if (!bench_wants(name)) return;
    char source[256], note[200];
    fcpc_program *p = NULL;
    snprintf(source, sizeof source, "batch { field z = given(range = 0..1000) }\nmask m = %s\nplan { mask = m }\n",
             condition);
    int16_t *z = malloc(n * sizeof *z);
    uint64_t *cuts = malloc((n / BLOCK + 1) * sizeof *cuts), state = 1, pairs = 0;
    bool ok = z && cuts && fcpc_parse_text("bench.fcp", source, strlen(source), NULL, NULL, &p) == FCP_OK;
    for (uint64_t i = 0; i < n && z; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        z[i] = (int16_t)((state >> 33) % NOISE);
    }
    const uint32_t pieces = (uint32_t)(n / BLOCK);
    for (uint32_t i = 0; i <= pieces && cuts; i++) cuts[i] = i * (uint64_t)BLOCK;
    const mc_array array = {z, 0, (int64_t)n, 0, MC_I16};
    const mc_env env = {.n = (int64_t)n, .queries = (int64_t)n, .arrays = &array};
    double start = bench_now();
    cells *c = ok ? cells_new(p->mask, 1) : NULL;
    const cell_entry *entries;
    size_t count = 0;
    ok = c && cells_grid(c, &env, cuts, pieces, cuts, pieces, &entries, &count, NULL) == FCP_OK;
    double seconds = bench_now() - start;
    cells_stats stats = {0};
    if (ok) {
        uint32_t shapes, runs;
        const fcp_run *run;
        const fcp_shape_rec *shape = cells_shapes(c, &shapes, &run, &runs);
        for (size_t i = 0; i < count; i++) pairs += shape[entries[i].shape].pairs;
        cells_get_stats(c, &stats);
    }
    uint64_t some = 0, want = 0; /* a corner of it, pair by pair */
    int64_t values[64];
    const uint64_t corner[2] = {0, 500};
    ok = ok && p->mask.count <= 64 && cells_grid(c, &env, corner, 1, corner, 1, &entries, &count, NULL) == FCP_OK;
    if (ok) {
        uint32_t shapes, runs;
        const fcp_run *run;
        some = count ? cells_shapes(c, &shapes, &run, &runs)[entries->shape].pairs : 0;
        for (int64_t q = 0; q < 500; q++)
            for (int64_t k = 0; k < 500; k++) want += mc_eval(p->mask, &env, q, k, 0, values);
    }
    ok = ok && some == want;
    snprintf(note, sizeof note, "%llu pairs of %llu looked at, %.2f ns each; %llu allowed; %.1f MiB",
             (unsigned long long)stats.elements, (unsigned long long)(n * n),
             stats.elements ? seconds * 1e9 / (double)stats.elements : 0, (unsigned long long)pairs,
             (double)stats.bytes / MIB);
    bench_row(name, seconds, "s", "<= 20 s", ok && seconds <= GOAL_S, note);
    cells_free(c);
    fcpc_program_free(p);
    free(cuts);
    free(z);
}

/* --- a long program --------------------------------------------------------------------------------------------- */

enum { LONG_MASKS = 111, LONG_ROOM = 1 << 17 };

/* Writes a program with nine lines for each mask, and a plan at the end. A mask has numbers and functions, and calls
 * the prelude and the mask before it; every tenth calls no earlier one. Returns the number of lines. */
static int write_program(char *out) {
    int at = 0, lines = 0;
    for (int i = 0; i < LONG_MASKS; i++) {
        char before[16] = "causal";
        if (i % 10) snprintf(before, sizeof before, "part%d", i - 1);
        at += snprintf(out + at, (size_t)(LONG_ROOM - at),
                       "mask part%d(size = %d, near = 100) =\n"
                       "    (window(w = near) or same(q, k) or outer or early) and %s\n"
                       "    where {\n        each = max(1, n / size)\n"
                       "        block(t) = min(t / each, size - 1)\n"
                       "        same(a, b) = block(a) == block(b) and abs(a - b) %% %d < 7\n"
                       "        outer = if q %% each == 0 then k < near else k %% (each + near) == %d\n"
                       "        early = k < min(near, each / 2)\n    }\n",
                       i, 3 + i % 7, before, 11 + i % 5, i % 3);
    }
    at += snprintf(out + at, (size_t)(LONG_ROOM - at), "model { heads = 8; kv_heads = 2 }\ncluster { gpus = 8 }\n"
                   "batch { lengths = [8192, 4096 x 2] }\nplan {\n    mask = part%d(near = 64)\n    block = 512\n}\n",
                   LONG_MASKS - 2);
    for (int i = 0; i < at; i++) lines += out[i] == '\n';
    return lines;
}

static void bench_long_program(void) {
    char *source = malloc(LONG_ROOM), name[64], note[160];
    double parse_s[RUNS], plan_s[RUNS];
    int lines = source ? write_program(source) : 0;
    bool ok = source != NULL;
    uint32_t nodes = 0;
    for (int i = 0; i < RUNS && source; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *p = NULL;
        fcp_plan *plan = NULL;
        double start = bench_now();
        ok = d && fcpc_parse_text("long.fcp", source, strlen(source), NULL, d, &p) == FCP_OK && ok;
        parse_s[i] = bench_now() - start;
        ok = ok && fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan) == FCP_OK;
        plan_s[i] = bench_now() - start;
        if (p) nodes = p->mask.count;
        fcp_plan_free(plan);
        fcpc_program_free(p);
        fcpc_diagnostics_free(d);
    }
    double ms = ok ? bench_median(plan_s, RUNS) * 1e3 : 0;
    snprintf(name, sizeof name, "compile a program of %d lines, 16K tokens", lines);
    snprintf(note, sizeof note, "text to plan; text to checked program %.2f ms; its mask has %u operations",
             ok ? bench_median(parse_s, RUNS) * 1e3 : 0, nodes);
    bench_row(name, ms, "ms", "<= 20 ms", ok && ms <= 20, note);
    free(source);
}

void bench_cells(void) {
    flex *f = flex_open();
    for (int i = 0; i < MASK_COUNT; i++) bench_count(&MASKS[i], f);
    flex_close(f);
    bench_batches();
    bench_unstructured("classify 128K, (q * k) % 1009 < (q + k) % 13", "(q * k) % 1009 < (q + k) % 13", 128 << 10);
    bench_unstructured("classify 64K, a field of noise", "(z[q] * z[k]) % 7 < (z[q] + z[k]) % 5", 64 << 10);
    bench_long_program();
}
