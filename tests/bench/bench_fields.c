/* bench_fields.c: measures what it costs to classify and count masks of per-token data over one long sequence. Brute
 * force runs beside it, and both must count the same.
 *
 * Times are of a processor. All of it has one thread, so on a machine that does nothing else they are what a clock says.
 *
 * Each mask is built twice by hand: as mask code, and as a C function that brute force calls for each pair. Data is
 * drawn from a fixed seed. Documents are those of the workload "wikipedia", or are drawn if that file is missing. */
#include "compiler/cells/cells.h"
#include "tests/bench/bench.h"
#include "tests/bench/flex.h"
#include "tests/bench/workload.h"
#include "tests/support/splitmix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS = 5, MIB = 1 << 20, TOKENS = 1 << 20, SEED = 12345, BRUTE = 16 << 10 };
enum { WINDOW = 1024, GLOBAL = 64, LIFE = 4096, BUCKETS = 1024, PREFIX = 64 };
enum { FOREST = 1980000, ROLLOUTS = 341000 };
enum { HEADS = 32, BLOCK = 128, BLOCKS = 256, SPANS = 402, PLAIN = 2048 };

typedef struct draws {
    uint64_t state;
} draws;

static uint64_t draw(draws *d, uint64_t below) {
    return splitmix(&d->state) % below;
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

typedef struct maker {
    mc_builder *b;
    uint32_t q, k;
} maker;

static uint32_t op(maker *m, mc_op o, uint32_t x, uint32_t y) { return mc_emit(m->b, o, x, y, MC_NONE, 0, MC_NONE, 0); }
static uint32_t number(maker *m, int64_t x) {
    return mc_emit(m->b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, x, MC_NONE, 0);
}
static uint32_t at(maker *m, int array, uint32_t i) {
    return mc_emit(m->b, MC_LOAD, i, MC_NONE, MC_NONE, array, MC_NONE, 0);
}
static uint32_t causal(maker *m) { return op(m, MC_LE, m->k, m->q); }
static uint32_t same(maker *m) { return op(m, MC_EQ, at(m, 0, m->q), at(m, 0, m->k)); }

static uint32_t make_document(maker *m) { return same(m); }
static uint32_t make_causal_document(maker *m) { return op(m, MC_AND, same(m), causal(m)); }
static uint32_t make_prefix_document(maker *m) {
    uint32_t early = op(m, MC_LT, op(m, MC_SUB, m->k, at(m, 1, m->k)), number(m, PREFIX));
    return op(m, MC_AND, same(m), op(m, MC_OR, causal(m), early));
}
static uint32_t make_global(maker *m) {
    uint32_t apart = op(m, MC_ABS, op(m, MC_SUB, m->q, m->k), MC_NONE), zero = number(m, 0);
    uint32_t either = op(m, MC_OR, op(m, MC_NE, at(m, 0, m->q), zero), op(m, MC_NE, at(m, 0, m->k), zero));
    return op(m, MC_OR, op(m, MC_LE, apart, number(m, WINDOW)), either);
}
static uint32_t make_eviction(maker *m) { return op(m, MC_AND, causal(m), op(m, MC_LT, m->q, at(m, 0, m->k))); }
static uint32_t make_tree(maker *m) {
    uint32_t inside = op(m, MC_AND, op(m, MC_LE, at(m, 0, m->k), m->q), op(m, MC_LE, m->q, at(m, 1, m->k)));
    return op(m, MC_OR, op(m, MC_LT, m->k, number(m, PREFIX)), inside);
}

/* A tree of rollouts: g is the last position of a token's subtree. */
static uint32_t make_rollouts(maker *m) { return op(m, MC_AND, causal(m), op(m, MC_LE, m->q, at(m, 1, m->k))); }

static uint32_t block(maker *m) { /* the block of head h is (h * BLOCKS + q / BLOCK, k / BLOCK) */
    const uint32_t size = number(m, BLOCK), h = mc_emit(m->b, MC_H, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
    const uint32_t row = op(m, MC_ADD, op(m, MC_MUL, h, number(m, BLOCKS)), op(m, MC_DIV, m->q, size));
    return mc_emit(m->b, MC_LOAD2, row, op(m, MC_DIV, m->k, size), MC_NONE, 2, MC_NONE, 0);
}
static uint32_t make_blocks(maker *m) { return op(m, MC_EQ, block(m), number(m, 1)); }
static uint32_t make_causal_blocks(maker *m) { return op(m, MC_AND, make_blocks(m), causal(m)); }
static uint32_t make_spans(maker *m) {
    return op(m, MC_OR, causal(m), op(m, MC_AND, same(m), op(m, MC_LT, number(m, 0), at(m, 0, m->q))));
}

static bool is_document(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)g;
    return f[q] == f[k];
}
static bool is_causal_document(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)g;
    return f[q] == f[k] && k <= q;
}
static bool is_prefix_document(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    return f[q] == f[k] && (k <= q || k - g[k] < PREFIX);
}
static bool is_global(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)g;
    return (q - k <= WINDOW && k - q <= WINDOW) || f[q] || f[k];
}
static bool is_eviction(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)g;
    return k <= q && q < f[k];
}
static bool is_tree(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    return k < PREFIX || (f[k] <= q && q <= g[k]);
}

static bool is_rollouts(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)f;
    return k <= q && q <= g[k];
}

static bool is_block(const int32_t *f, const int32_t *g, int64_t q, int64_t k) { /* of head 0 */
    (void)g;
    return f[q / BLOCK * BLOCKS + k / BLOCK] == 1;
}
static bool is_causal_block(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    return is_block(f, g, q, k) && k <= q;
}
static bool is_span(const int32_t *f, const int32_t *g, int64_t q, int64_t k) {
    (void)g;
    return k <= q || (f[q] == f[k] && f[q] > 0);
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* Each fills two fields of n tokens and may say something in the note. */
typedef bool fill(int32_t *f, int32_t *g, int64_t n, char note[64]);

static bool fill_documents(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    size_t count;
    bool drawn;
    uint64_t *lengths = workload_lengths("wikipedia", (uint64_t)n, &count, &drawn);
    int64_t i = 0;
    int32_t id = 0;
    for (size_t d = 0; lengths && count && i < n; d = (d + 1) % count, id++)
        for (int64_t start = i, end = i + (int64_t)lengths[d]; i < end && i < n; i++) f[i] = id, g[i] = (int32_t)start;
    snprintf(note, 64, "%d documents%s", (int)id, drawn ? ", drawn lengths" : "");
    free(lengths);
    return i == n;
}

/* The same documents, their numbers in no order. */
static bool fill_shuffled(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    if (!fill_documents(f, g, n, note)) return false;
    for (int64_t i = 0; i < n; i++) f[i] = (int32_t)((uint32_t)f[i] * 2654435761u >> 1);
    return true;
}

static bool fill_global(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    draws d = {SEED};
    (void)g;
    memset(f, 0, (size_t)n * sizeof *f);
    for (int left = GLOBAL; left > 0;) {
        uint64_t i = draw(&d, (uint64_t)n);
        left -= !f[i];
        f[i] = 1;
    }
    snprintf(note, 64, "%d global tokens", GLOBAL);
    return true;
}

static bool fill_eviction(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    draws d = {SEED};
    (void)g;
    for (int64_t i = 0; i < n; i++) f[i] = (int32_t)(i + 1 + (int64_t)draw(&d, LIFE));
    snprintf(note, 64, "lifetimes 1 to %d", LIFE);
    return true;
}

/* Every node's parent is any earlier node; numbered depth first. f: a node's place; g: the last of its subtree. */
static bool fill_tree(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    draws d = {SEED};
    int32_t *parent = malloc((size_t)n * sizeof *parent), *size = malloc((size_t)n * sizeof *size), *depth = NULL;
    int32_t *place = malloc((size_t)n * sizeof *place), *next = malloc((size_t)n * sizeof *next), deepest = 0;
    depth = calloc((size_t)n, sizeof *depth);
    bool ok = parent && size && place && next && depth;
    for (int64_t i = 0; i < n && ok; i++) {
        parent[i] = i ? (int32_t)draw(&d, (uint64_t)i) : 0;
        size[i] = 1;
        if (i) depth[i] = depth[parent[i]] + 1;
        if (depth[i] > deepest) deepest = depth[i];
    }
    for (int64_t i = n; ok && i-- > 1;) size[parent[i]] += size[i];
    for (int64_t i = 0; i < n && ok; i++) {
        place[i] = i ? next[parent[i]] : 0;
        if (i) next[parent[i]] += size[i];
        next[i] = place[i] + 1;
        f[place[i]] = place[i];
        g[place[i]] = place[i] + size[i] - 1;
    }
    snprintf(note, 64, "seed %d, depth %d", SEED, (int)deepest);
    free(parent);
    free(size);
    free(place);
    free(next);
    free(depth);
    return ok;
}

/* 1,000 trees of one prompt of 540 tokens, and 16 answers of 45 to 135 tokens each. */
static bool fill_forest(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    enum { PROMPT = 540, ANSWERS = 16, LEAST = 45, MORE = 91 };
    draws d = {SEED};
    int64_t i = 0;
    int trees = 0;
    (void)f;
    for (; i < n; trees++) {
        const int64_t first = i;
        i = i + PROMPT < n ? i + PROMPT : n;
        const int64_t prompt = i;
        for (int r = 0; r < ANSWERS && i < n; r++) {
            const int64_t own = LEAST + (int64_t)draw(&d, MORE), begin = i;
            i = i + own < n ? i + own : n;
            for (int64_t t = begin; t < i; t++) g[t] = (int32_t)(i - 1);
        }
        for (int64_t t = first; t < prompt; t++) g[t] = (int32_t)(i - 1);
    }
    snprintf(note, 64, "%d trees of %d rollouts", trees, ANSWERS);
    return true;
}

/* One tree: a prompt of 204 tokens, and some 10,000 stretches of 17 to 51 tokens. Each begins behind the one before it,
 * or behind one of its ancestors, so that agents' turns branch. */
static bool fill_turns(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    enum { PROMPT = 204, LEAST = 17, MORE = 35, DEEP = 64 };
    draws d = {SEED};
    int64_t begin[DEEP] = {0}, end[DEEP] = {PROMPT};
    int depth = 1, stretches = 0, deepest = 0;
    (void)f;
    for (int64_t i = PROMPT; i < n; stretches++) {
        const int keep = depth == DEEP ? DEEP / 2 : draw(&d, 2) ? 1 + (int)draw(&d, (uint64_t)depth) : depth;
        for (; depth > keep; depth--) /* these subtrees end here */
            for (int64_t t = begin[depth - 1]; t < end[depth - 1]; t++) g[t] = (int32_t)(i - 1);
        begin[depth] = i;
        i = i + LEAST + (int64_t)draw(&d, MORE);
        if (i > n) i = n;
        end[depth++] = i;
        deepest = depth > deepest ? depth : deepest;
    }
    for (; depth > 0; depth--)
        for (int64_t t = begin[depth - 1]; t < end[depth - 1]; t++) g[t] = (int32_t)(n - 1);
    snprintf(note, 64, "1 tree of %d stretches, at most %d deep", stretches, deepest);
    return true;
}

static bool fill_hash(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    draws d = {SEED};
    (void)g;
    for (int64_t i = 0; i < n; i++) f[i] = (int32_t)draw(&d, BUCKETS);
    snprintf(note, 64, "%d buckets", BUCKETS);
    return true;
}

static bool fill_random(int32_t *f, int64_t n, uint64_t values, char note[64]) {
    draws d = {SEED};
    for (int64_t i = 0; i < n; i++) f[i] = (int32_t)draw(&d, values);
    snprintf(note, 64, "%d random values", (int)values);
    return true;
}
static bool fill_two(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    (void)g;
    return fill_random(f, n, 2, note);
}
static bool fill_many(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    (void)g;
    return fill_random(f, n, 64, note);
}

/* Images of 1 to 512 tokens, with 0 to 140 tokens of text between them, which have -1. */
static bool fill_spans(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    draws d = {SEED};
    (void)g;
    int32_t id = 0;
    for (int64_t i = 0; i < n;) {
        const int64_t text = (int64_t)draw(&d, 141), image = id < SPANS ? 1 + (int64_t)draw(&d, 512) : 0;
        for (int64_t end = i + (id < SPANS ? text : n); i < end && i < n; i++) f[i] = -1;
        if (id < SPANS) id++;
        for (int64_t end = i + image; i < end && i < n; i++) f[i] = id;
    }
    snprintf(note, 64, "%d spans", (int)id);
    return true;
}

/* The blocks of all heads. One of `parts` is kept. */
static bool fill_blocks(int32_t *f, uint64_t parts, char note[64]) {
    draws d = {SEED};
    for (int64_t i = 0; i < HEADS * BLOCKS * BLOCKS; i++) f[i] = draw(&d, parts) == 0;
    snprintf(note, 64, "blocks of %d, 1 of %d kept", BLOCK, (int)parts);
    return true;
}
static bool fill_half(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    (void)g, (void)n;
    return fill_blocks(f, 2, note);
}
static bool fill_tenth(int32_t *f, int32_t *g, int64_t n, char note[64]) {
    (void)g, (void)n;
    return fill_blocks(f, 10, note);
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

typedef struct field_mask {
    const char *name;
    uint32_t (*make)(maker *m);
    bool (*allow)(const int32_t *f, const int32_t *g, int64_t q, int64_t k);
    fill *fill;
    int64_t n;
    double goal_ms;
    const char *flex, *params[3]; /* in bench_flex.py; "f", "g": the fields */
    uint32_t heads;               /* 0: the mask does not name h */
} field_mask;

static const field_mask MASKS[] = {
    {"document", make_document, is_document, fill_documents, TOKENS, 50, "document", {"f"}, 0},
    {"document, ids in no order", make_document, is_document, fill_shuffled, TOKENS, 50, "document", {"f"}, 0},
    {"causal_document",
     make_causal_document,
     is_causal_document,
     fill_documents,
     TOKENS,
     50,
     "causal_document",
     {"f"},
     0},
    {"causal_document", make_causal_document, is_causal_document, fill_documents, 10000000, 100, NULL, {0}, 0},
    {"prefix_document",
     make_prefix_document,
     is_prefix_document,
     fill_documents,
     TOKENS,
     50,
     "prefix_document",
     {"f", "64"},
     0},
    {"global_field, w 1024", make_global, is_global, fill_global, TOKENS, 50, "global_field", {"f", "1024"}, 0},
    {"random_eviction", make_eviction, is_eviction, fill_eviction, TOKENS, 50, "random_eviction", {"f"}, 0},
    {"tree", make_tree, is_tree, fill_tree, TOKENS, 50, "tree", {"f", "g", "64"}, 0},
    {"rollouts, 1,000 trees", make_rollouts, is_rollouts, fill_forest, FOREST, 50, NULL, {0}, 0},
    {"rollouts, 10,000 in a tree", make_rollouts, is_rollouts, fill_turns, ROLLOUTS, 20, NULL, {0}, 0},
    {"half of all blocks, 32 heads", make_blocks, is_block, fill_half, BLOCK *BLOCKS, 50, NULL, {0}, HEADS},
    {"a tenth of all blocks, 32 heads", make_blocks, is_block, fill_tenth, BLOCK *BLOCKS, 50, NULL, {0}, HEADS},
    {"causal, half of all blocks, 32 heads",
     make_causal_blocks,
     is_causal_block,
     fill_half,
     BLOCK *BLOCKS,
     50,
     NULL,
     {0},
     HEADS},
    {"equal of 2 values", make_document, is_document, fill_two, 256 << 10, 400, NULL, {0}, 0},
    {"equal of 64 values", make_document, is_document, fill_many, 128 << 10, 400, NULL, {0}, 0},
    {"causal, equal of 64 values", make_causal_document, is_causal_document, fill_many, 128 << 10, 400, NULL, {0}, 0},
    {"image spans", make_spans, is_span, fill_spans, 128 << 10, 100, NULL, {0}, 0},
    {"hash_sparse", make_causal_document, is_causal_document, fill_hash, 128 << 10, 1000, "hash_sparse", {"f"}, 0},
};

static bool count(mc_code mask, uint32_t heads, const int32_t *f, const int32_t *g, int64_t n, cells_counts *out,
                  cells_stats *stats) {
    const mc_array arrays[3] = {{f, 0, n, 0, MC_I32, 0, 0},
                                {g, 0, n, 0, MC_I32, 0, 0},
                                {f, 0, HEADS * BLOCKS, BLOCKS, MC_I32, 0, 0}};
    const mc_env env = {.n = n, .queries = n, .arrays = arrays};
    cells *c = cells_new(mask, heads ? heads : 1);
    bool ok = c && cells_count(c, &env, out, NULL) == FCP_OK;
    if (c) cells_get_stats(c, stats);
    cells_free(c);
    return ok;
}

/* Writes the first values of a field to a file that is gone when `file` is closed. */
enum { FLEX_MOST = 64 << 10 };
static FILE *write_values(const int32_t *v, int64_t n, char path[40]) {
    FILE *file = tmpfile();
    for (int64_t i = 0; file && i < n && i < FLEX_MOST; i++) {
        int64_t value = v[i];
        if (fwrite(&value, sizeof value, 1, file) != 1) break;
    }
    if (file && fflush(file) == 0) snprintf(path, 40, "/proc/%d/fd/%d", (int)getpid(), fileno(file));
    return file;
}

/* Adds what FlexAttention's create_block_mask does to a note; false if its blocks are not ours. */
static bool beside_flex(flex *py, const field_mask *m, mc_code mask, const int32_t *f, const int32_t *g, char *out,
                        size_t room) {
    char f_path[40] = "", g_path[40] = "";
    const char *params[3];
    int given = 0;
    flex_result r;
    if (!py || !m->flex) return true;
    FILE *f_file = write_values(f, m->n, f_path), *g_file = write_values(g, m->n, g_path);
    for (; given < 3 && m->params[given]; given++)
        params[given] = *m->params[given] == 'f' ? f_path : *m->params[given] == 'g' ? g_path : m->params[given];
    bool same = true, answered = flex_ask(py, m->flex, 0, params, given, &r);
    if (answered && r.full >= 0 && r.queries == r.n) {
        cells_counts counts = {0};
        cells_stats ignored;
        same = count(mask, 1, f, g, (int64_t)r.n, &counts, &ignored) && counts.full == (uint64_t)r.full &&
               counts.partial == (uint64_t)r.partial;
    }
    if (answered)
        snprintf(out, room, ";%s FlexAttention %.0f ms, %.0f MiB for %llu x %llu (all: %.0f s)",
                 same ? "" : " NOT THE SAME AS", r.seconds * 1e3, r.mebibytes, (unsigned long long)r.queries,
                 (unsigned long long)r.n,
                 r.seconds * ((double)m->n / (double)r.queries) * ((double)m->n / (double)r.n));
    if (f_file) fclose(f_file);
    if (g_file) fclose(g_file);
    return same;
}

/* How many million pairs a second the plain evaluator of mask code takes, on the first PLAIN queries and keys. */
static double plain_rate(mc_code mask, const int32_t *f, const int32_t *g, int64_t n) {
    const mc_array arrays[3] = {{f, 0, n, 0, MC_I32, 0, 0},
                                {g, 0, n, 0, MC_I32, 0, 0},
                                {f, 0, HEADS * BLOCKS, BLOCKS, MC_I32, 0, 0}};
    const mc_env env = {.n = n, .queries = n, .arrays = arrays};
    int64_t *scratch = malloc(mask.count * sizeof *scratch);
    uint64_t pairs = 0;
    const double start = bench_processor();
    for (int64_t q = 0; q < PLAIN && scratch; q++)
        for (int64_t k = 0; k < PLAIN; k++) pairs += mc_eval(mask, &env, q, k, 0, scratch);
    const double seconds = bench_processor() - start;
    free(scratch);
    return pairs || seconds > 0 ? (double)PLAIN * PLAIN / seconds / 1e6 : 0;
}

static void bench_mask(const field_mask *m, flex *py) {
    const size_t values = m->heads ? (size_t)HEADS * BLOCKS * BLOCKS : (size_t)m->n;
    int32_t *f = malloc(values * sizeof *f), *g = malloc((size_t)m->n * sizeof *g);
    maker make = {.b = mc_builder_new()};
    mc_node *nodes = NULL;
    uint32_t *places = NULL, size;
    char note[640], what[64] = "", name[96], goal[32], other[128] = "";
    bool ok = f && g && make.b && m->fill(f, g, m->n, what);
    if (ok) {
        make.q = mc_emit(make.b, MC_Q, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
        make.k = mc_emit(make.b, MC_K, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
        ok = mc_extract(make.b, m->make(&make), &nodes, &places, &size);
    }
    double times[RUNS] = {0};
    cells_counts counts = {0}, few = {0};
    cells_stats stats = {0}, ignored;
    for (int i = 0; i < RUNS && ok; i++) {
        double start = bench_processor();
        ok = count((mc_code){nodes, size}, m->heads, f, g, m->n, &counts, &stats);
        times[i] = bench_processor() - start;
    }
    uint64_t pairs = 0;
    double start = bench_processor(), ms = bench_median(times, RUNS) * 1e3;
    for (int64_t q = 0; q < BRUTE && ok; q++)
        for (int64_t k = 0; k < BRUTE; k++) pairs += m->allow(f, g, q, k);
    double seconds = bench_processor() - start;
    bool agrees = ok && count((mc_code){nodes, size}, 1, f, g, BRUTE, &few, &ignored) && few.pairs == pairs;
    snprintf(name, sizeof name, "count %.3gM, %s", (double)m->n / (m->n % 1000000 ? MIB : 1000000), m->name);
    snprintf(goal, sizeof goal, "<= %.0f ms", m->goal_ms);
    snprintf(note, sizeof note,
             "%s; %.1f MiB (<= 64); %llu full, %llu partial cells; %llu boxes, %llu rows; by elements %.4g %%;%s brute "
             "force %.0f ms for %d x %d (all: %.0f s), plain evaluator %.0f M pairs/s",
             what, (double)stats.bytes / MIB, (unsigned long long)counts.full, (unsigned long long)counts.partial,
             (unsigned long long)stats.boxes, (unsigned long long)stats.rows,
             counts.pairs ? 100 * (double)stats.elements / (double)counts.pairs : 0, agrees ? "" : " NOT THE SAME AS",
             seconds * 1e3, BRUTE, BRUTE,
             seconds * ((double)m->n / BRUTE) * ((double)m->n / BRUTE) * (m->heads ? m->heads : 1),
             ok ? plain_rate((mc_code){nodes, size}, f, g, m->n) : 0);
    if (ok && bench_wants(name))
        agrees = beside_flex(py, m, (mc_code){nodes, size}, f, g, other, sizeof other) && agrees;
    snprintf(note + strlen(note), sizeof note - strlen(note), "%s", other);
    bench_row(name, ms, "ms", goal, agrees && ms <= m->goal_ms && stats.bytes <= 64 * (uint64_t)MIB, note);
    free(nodes);
    free(places);
    mc_builder_free(make.b);
    free(f);
    free(g);
}

void bench_fields(void) {
    flex *py = flex_open();
    for (size_t i = 0; i < sizeof MASKS / sizeof *MASKS; i++) bench_mask(&MASKS[i], py);
    flex_close(py);
}
