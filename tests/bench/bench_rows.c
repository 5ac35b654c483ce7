/* bench_rows.c: compares the keys that travel with the keys that must, for each mask of the prelude and for fcp, dcp
 * and cad.
 *
 * 64 heads, 8 of K and V, 64 ranks in nodes of 8, blocks of 2K.
 *
 * A key must travel to each rank whose queries read it, other than its home. Such keys are counted in whole columns of
 * cells, 128 keys each. A plan sends whole blocks, so more keys travel than must.
 *   figure of a row  keys that travel for each one that must
 *   note             keys that must travel, and queries that are computed away from home; then the same three figures
 *                    for blocks left as the strategy cuts them. The planner divides blocks further
 *                    (compiler/problem/few_rows.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"
#include "tests/bench/bench.h"

typedef struct moved_keys {
    uint64_t moved, needed, queries; /* tokens; queries: of rows that are computed away from home */
    uint32_t blocks;
    bool known;
} moved_keys;

/* Marks the columns of a part's keys that its classes read. */
static void mark_part(const problem *p, const fcp_part *part, uint8_t *marks) {
    const uint32_t set = p->sets ? p->sets[part->shape].set : 1;
    for (uint32_t s = part->shape; s < part->shape + set; s++)
        for (uint32_t i = p->shapes[s].first_run; i < p->shapes[s].first_run + p->shapes[s].runs; i++)
            memset(marks + p->runs[i].col, 1, p->runs[i].count);
}

/* Counts what one rank receives and needs. column: per piece, the number of its first. */
static void count_rank(const planning *x, uint32_t rank, const uint32_t *column, uint8_t *marks, moved_keys *out) {
    const problem *p = x->problem;
    memset(marks, 0, column[p->piece_count]);
    for (uint32_t q = 0; q < p->block_count; q++) {
        bool away = false;
        for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
            if (placement_exec(x->placement, t) != rank) continue;
            away |= x->placement->home[q] != rank;
            for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + 1]; i++)
                mark_part(p, &p->parts[i], marks + column[p->parts[i].k_piece]);
        }
        if (away) out->queries += p->blocks[q].tokens;
    }
    for (uint32_t b = 0; b < p->block_count; b++) {
        const fcp_block *of = &p->blocks[b];
        uint64_t needed = 0;
        for (uint32_t i = of->first_piece; i < of->first_piece + of->pieces; i++)
            for (uint32_t c = 0, n = p->pieces[i].length; c * FCP_CELL < n; c++)
                if (marks[column[i] + c]) needed += n - c * FCP_CELL < FCP_CELL ? n - c * FCP_CELL : FCP_CELL;
        if (!needed || x->placement->home[b] == rank) continue;
        out->moved += of->tokens;
        out->needed += needed;
    }
}

static void look(void *context, const planning *x) {
    moved_keys *out = context;
    const problem *p = x->problem;
    if (!x->plan) return;
    uint32_t *column = calloc(p->piece_count + (size_t)1, sizeof *column);
    for (uint32_t i = 0; column && i < p->piece_count; i++)
        column[i + 1] = column[i] + (p->pieces[i].length + FCP_CELL - 1) / FCP_CELL;
    uint8_t *marks = column ? malloc(column[p->piece_count] + (size_t)1) : NULL;
    for (uint32_t r = 0; marks && r < p->ranks; r++) count_rank(x, r, column, marks, out);
    out->blocks = p->block_count;
    out->known = marks;
    free(column);
    free(marks);
}

/* The keys of a plan; whole: blocks stay as they are cut. */
static moved_keys keys_of(const char *source, fcp_strategy by, bool whole) {
    const planning named = {.program = &(struct fcpc_program){.strategy = by}};
    strategy as_cut = *strategy_of(&named);
    moved_keys found = {0};
    as_cut.cut_given = true;
    fcp_plan_free(bench_plan_watched(source, NULL, 0,
                                     &(compile_watch){look, &found, .strategy = whole ? &as_cut : NULL}));
    return found;
}

typedef struct sample {
    const char *mask, *batch;
} sample;

static const sample samples[] = {
    {"full", "lengths = [256K]"},
    {"causal", "lengths = [256K, 4K x 64]"},
    {"window(w = 1000)", "lengths = [1M]"},
    {"window_both(l = 3000, r = 3000)", "lengths = [1M]"},
    {"prefix(p = 500)", "lengths = [256K, 4K x 64]"},
    {"lambda(sink = 64, window = 4096)", "lengths = [1M]"},
    {"lambda(sink = 64, window = 4096)", "lengths = [128K x 8]"},
    {"shared_question(p = 20, answers = 40)", "lengths = [256K]"},
    {"causal_blockwise", "lengths = [256K]"},
    {"block_causal(b = 700)", "lengths = [256K]"},
    {"global_window(g = 100, w = 1000)", "lengths = [512K]"},
    {"dilated(w = 8000, d = 512)", "lengths = [512K]"},
    {"causal_blockwise_fm(b = 3000)", "lengths = [256K]"},
    {"qk_sparse(o = 30000, m = 30000)", "lengths = [128K]"},
    {"block_diffusion(b = 32)", "lengths = [128K]"},
    {"draft_train(p = 1000, b = 8000)", "lengths = [256K]"},
    {"natten2d(W = 512, kw = 31, kh = 31)", "lengths = [256K]"},
    {"sta2d(W = 512, tw = 16, th = 16, kw = 5, kh = 5)", "lengths = [256K]"},
    {"sta3d(W = 64, H = 64, tw = 8, th = 8, tt = 4, kw = 3, kh = 3, kt = 3)", "lengths = [256K]"},
    {"svg_spatial(P = 226, w = 4000)", "lengths = [256K]"},
    {"svg_temporal(P = 226, T = 3600, w = 300)", "lengths = [115426]"},
    {"document(d = f)", "lengths = [256K]; field f = [1 x 100K, 2 x 60K, 3 x 30K, 4 x 66K]"},
    {"causal_document(d = f)", "lengths = [256K]; field f = [1 x 100K, 2 x 60K, 3 x 30K, 4 x 66K]"},
    {"prefix_document(d = f, p = 200)", "lengths = [256K]; field f = [1 x 100K, 2 x 60K, 3 x 30K, 4 x 66K]"},
    {"global_field(g = f, w = 1000)", "lengths = [256K]; field f = [0 x 70000, 1 x 50, 0 x 130000, 1 x 20, 0 x 62074]"},
    {"random_eviction(e = f)", "lengths = [256K]; field f = [1M x 300, 20K x 130772, 200K x 131072]"},
    {"tree(first = f, last = g, p = 100)",
     "lengths = [128K]; field f = [0 x 64K, 64K x 64K]; field g = [64K x 64K, 128K x 64K]"},
    {"hash_sparse(bucket = f)", "lengths = [128K]; field f = [1 x 30000, 2 x 30000, 1 x 40000, 2 x 31072]"},
};

void bench_rows(void) {
    static const struct { const char *text; fcp_strategy by; } by[] = {
        {"fcp; layout = planned", FCP_STRATEGY_FCP}, {"dcp; layout = planned", FCP_STRATEGY_DCP},
        {"cad(tolerance = 0.02); layout = contiguous", FCP_STRATEGY_CAD}};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (size_t k = 0; k < sizeof by / sizeof *by; k++) {
            char source[1024], name[192], note[128];
            snprintf(source, sizeof source,
                     "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
                     "cluster { nodes = 8; gpus = 8; intra = 450 GB/s; inter = 50 GB/s; memory = 100 TB }\n"
                     "batch { %s }\nplan { mask = %s; block = 2K; passes = forward; strategy = %s }\n",
                     samples[i].batch, samples[i].mask, by[k].text);
            const char *lengths = strchr(samples[i].batch, '[');
            snprintf(name, sizeof name, "rows: %.48s, %.*s, %.3s", samples[i].mask, (int)strcspn(lengths, "]") + 1,
                     lengths, by[k].text);
            if (!bench_wants(name)) continue;
            const moved_keys now = keys_of(source, by[k].by, false), whole = keys_of(source, by[k].by, true);
            if (!now.known || !whole.known) continue;
            snprintf(note, sizeof note, "%.0fK keys, %.0fK queries; uncut %.2f, %.0fK, %.0fK; %u blocks of %u",
                     (double)now.moved / 1024, (double)now.queries / 1024,
                     whole.needed ? (double)whole.moved / (double)whole.needed : 1, (double)whole.moved / 1024,
                     (double)whole.queries / 1024, now.blocks, whole.blocks);
            bench_row(name, now.needed ? (double)now.moved / (double)now.needed : 1, "x", "", true, note);
        }
}
