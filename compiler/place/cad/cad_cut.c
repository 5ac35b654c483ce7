/* cad_cut.c: runs cad on a problem: finds homes, divides the work, and cuts blocks accordingly.
 *
 * Requires: checked lengths, without blocks.
 * Gives: x->division; blocks of at most x->block tokens; then, with tiles, a home for each block and a rank for each
 *     tile.
 * Cost: dividing the work; O(pieces log pieces); O(tiles x shares of a row) to place. With base = fcp the batch is cut
 *     and placed once more before.
 *
 * Where blocks end: at multiples of the block size; where another rank's tokens begin; and where a share of the work
 * begins or ends. So every tile lies in one share.
 *
 * Which pieces share a block. Pieces that are shorter than a block are put together if three things are the same for
 * all: the home, the rank that computes all rows, and the ranks that read the keys. Then nothing travels that is not
 * needed. Example: with ring or zigzag as base, short sequences are cut into a few tokens for each rank. The i-th
 * pieces of all these sequences go to the same rank, so they share blocks.
 */
#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/base/memo.h"
#include "compiler/base/sort.h"
#include "compiler/planning/pair.h"
#include "compiler/place/cad/cad.h"
#include "compiler/place/fcp/place_fcp.h"
#include "compiler/problem/faults.h"
#include "runtime/plan/bytes.h"

/* --- homes -------------------------------------------------------------------------------------------------------- */

typedef struct run_list {
    problem_run *at;
    size_t count, room;
} run_list;

static bool add_run(planning *x, run_list *l, uint32_t sequence, uint32_t rank, uint64_t start, uint64_t end) {
    problem_run *last = l->count ? &l->at[l->count - 1] : NULL;
    if (start == end) return true;
    if (last && last->sequence == sequence && last->rank == rank && last->end == start) {
        last->end = end;
        return true;
    }
    if (!(l->at = arena_grow(&x->work, l->at, l->count, &l->room, sizeof *l->at))) return false;
    l->at[l->count++] = (problem_run){sequence, rank, start, end};
    return true;
}

/* Finds homes as ring or zigzag do: each sequence is cut into per_rank chunks for every rank. */
static fcp_code chunk_homes(planning *x, fcp_side side, uint32_t per_rank, run_list *out) {
    const problem *p = x->problem;
    uint32_t holders = p->ranks - x->program->servers, parts = holders * per_rank;
    for (uint32_t s = 0; s < p->sequences; s++) {
        uint64_t n = problem_length(p, s, side);
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        for (uint32_t i = 0; i < parts; i++)
            if (!add_run(x, out, s, place_chunk(i, holders, per_rank), (uint64_t)((unsigned __int128)n * i / parts),
                         (uint64_t)((unsigned __int128)n * (i + 1) / parts)))
                return FCP_E_NO_MEMORY;
    }
    return FCP_OK;
}

/* Homes that fcp would choose: cuts the batch and places it, in a planning of its own. */
static fcp_code fcp_homes(planning *x, run_list out[FCP_SIDES]) {
    planning other = *x;
    other.memory = (arena){.pool = x->memory.pool};
    other.cells = NULL;
    problem p = *x->problem;
    other.problem = &p;
    place_input in;
    p.ranks -= x->program->servers;
    fcp_code code = problem_cut_blocks(&other);
    if (!code) code = problem_tiles(&other);
    uint32_t *home = code ? NULL : ARENA_NEW(&other.work, uint32_t, p.block_count);
    if (!code && !home) code = FCP_E_NO_MEMORY;
    if (!code) code = place_input_of(&other, &in);
    if (!code) code = place_fcp(&in, &other.scratch, home);
    if (!code && p.split) code = place_keys(&p, &in, &other.scratch, home);
    for (int side = 0; side < (p.split ? FCP_SIDES : 1) && !code; side++)
        for (uint32_t s = 0; s < p.sequences && !code; s++)
            for (uint32_t i = p.piece_start[side][s]; i < p.piece_start[side][s + 1] && !code; i++) {
                const fcp_piece *piece = &p.pieces[p.sequence_piece[side][i]];
                if (!add_run(&other, &out[side], s, home[piece->block], piece->start, piece->start + piece->length))
                    code = FCP_E_NO_MEMORY;
            }
    problem_close_mask(&other, &other.cells);
    arena_free(&other.memory);
    x->work = other.work;
    x->scratch = other.scratch;
    return code;
}

static fcp_code find_homes(planning *x, cad_input *in) {
    const problem *p = x->problem;
    cad_base base = (cad_base)x->program->base;
    run_list runs[FCP_SIDES] = {{0}};
    fcp_code code = base == CAD_BASE_FCP ? fcp_homes(x, runs) : FCP_OK;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && !code; side++) {
        uint32_t count = 0;
        if (base == CAD_BASE_CALLER) {
            code = problem_held(x, (fcp_side)side, &runs[side].at, &count);
            runs[side].count = count;
        } else if (base != CAD_BASE_FCP)
            code = chunk_homes(x, (fcp_side)side, base == CAD_BASE_ZIGZAG ? 2 : 1, &runs[side]);
    }
    const run_list *keys = p->split ? &runs[FCP_KEYS] : &runs[FCP_QUERIES];
    if (!code && (runs[0].count > UINT32_MAX / 4 || keys->count > UINT32_MAX / 4))
        code = planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x), "the homes have more than 2^30 runs of tokens");
    in->rows = runs[0].at;
    in->row_count = (uint32_t)runs[0].count;
    in->keys = keys->at;
    in->key_count = (uint32_t)keys->count;
    return code;
}

/* --- prices ------------------------------------------------------------------------------------------------------- */

/* Partial results count as fp32, whatever type they travel in. */
cad_price cad_price_of(const struct fcpc_program *g, bool backward) {
    const fcp_problem p = problem_early_facts(g);
    const uint64_t q = fcp_slot_bytes(&p, FCP_Q, FCP_FORWARD), back = fcp_slot_bytes(&p, FCP_Q, FCP_BACKWARD);
    cad_price price = {fcp_slot_bytes(&p, FCP_KV, FCP_FORWARD), q + fcp_slot_bytes(&p, FCP_O, FCP_FORWARD),
                       q + fcp_slot_bytes(&p, FCP_STATE, FCP_FORWARD)};
    if (backward) {
        price.kv += price.kv + fcp_slot_bytes(&p, FCP_DKV, FCP_BACKWARD);
        price.whole += back + fcp_slot_bytes(&p, FCP_DQW, FCP_BACKWARD);
        price.part += back + fcp_slot_bytes(&p, FCP_DQ, FCP_BACKWARD);
    }
    return price;
}

static cad_wire wire_of(const struct fcpc_program *g) {
    const fcp_problem p = problem_early_facts(g);
    const uint64_t heads = mc_uses(g->mask) & MC_USES_H ? 1 : g->heads;
    cad_wire wire = {fcp_slot_bytes(&p, FCP_Q, FCP_FORWARD), fcp_slot_bytes(&p, FCP_KV, FCP_FORWARD), 0};
    if (g->nodes < 2 || !g->cluster.flops) return wire;
    const unsigned __int128 operations =
        (unsigned __int128)heads * fcp_pair_flops(g->head_dim, g->value_dim, FCP_FORWARD) * 1000000 *
        PLACE_FLOPS_OF / PLACE_FLOPS_PART;
    const unsigned __int128 bytes = operations * g->cluster.inter / g->cluster.flops;
    wire.bytes = bytes > UINT64_MAX ? UINT64_MAX : (uint64_t)bytes;
    return wire;
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

static bool is_causal(mc_code mask) {
    if (mask.count != 3) return false;
    const mc_node *n = mask.nodes, *root = &n[2];
    return root->op == MC_LE && root->a < 2 && root->b < 2 && n[root->a].op == MC_K && n[root->b].op == MC_Q;
}

/* Lists the cuts of one side of a sequence: its ends, the ends of runs, and multiples of `step` (0: none). */
static uint64_t *side_cuts(arena *a, const problem_run *runs, uint32_t first, uint32_t end, uint64_t n, uint64_t step,
                           uint32_t *out_count) {
    uint64_t *cut = ARENA_NEW(a, uint64_t, (end - first) + (step ? n / step : 0) + 2), at = 0;
    if (!cut) return NULL;
    uint32_t count = 0, r = first;
    cut[count++] = 0;
    while (at < n) {
        uint64_t next = step ? (at / step + 1) * step : n;
        while (r < end && runs[r].end <= at) r++;
        if (r < end && runs[r].end < next) next = runs[r].end;
        cut[count++] = at = next < n ? next : n;
    }
    *out_count = count;
    return cut;
}

/* For each multiple of the step, finds its number in the list of cuts. All multiples are cuts. */
static const uint32_t *number_multiples(arena *a, const uint64_t *cut, uint32_t cuts, uint64_t step) {
    uint32_t *at = ARENA_NEW(a, uint32_t, cut[cuts - 1] / step + 1);
    uint64_t next = 0;
    for (uint32_t i = 0, n = 0; at && i < cuts; i++)
        if (cut[i] == next) at[n++] = i, next += step;
    return at;
}

/* What one thread does: makes the tables of sequences `first` to `end` - 1, with a `cells` object of its own. */
typedef struct tabling {
    const cad_input *in;
    cells *of;
    uint32_t *const *runs; /* per side and sequence: its first run */
    cad_table *tables;
    uint32_t first, end;
    uint64_t step, least;  /* those that have at least so many pairs already are made anew */
    arena *memory;         /* of the tables; NULL: the planning's */
    uint32_t sequence;     /* of an error */
    cells_fault fault;
} tabling;

static uint64_t table_work(const cad_table *t) { return t->sum[(size_t)t->row_cuts * t->key_cuts - 1]; }

/* Will the sequence be a single piece when tiles are made? Then its cells will be asked for again, so they are asked
 * for here in the way that keeps the answers. */
static bool is_block(const planning *x, uint32_t s, const cad_table *t) {
    const problem *p = x->problem;
    return x->kept && t->row_cuts == 2 && t->key_cuts == 2 && p->queries[s] <= x->block && p->lengths[s] <= x->block;
}

/* Makes the table of one sequence: rows are cut at multiples of the step, keys at four times that. */
static fcp_code make_table(planning *x, tabling *g, uint32_t s) {
    const problem *p = x->problem;
    const mc_env env = problem_env(p, s);
    const cell_entry *entries;
    size_t count;
    uint32_t *const *first = g->runs;
    cad_table *t = &g->tables[s];
    arena *a = g->memory ? g->memory : &x->work;
    uint64_t *rows = side_cuts(a, g->in->rows, first[0][s], first[0][s + 1], p->queries[s], g->step,
                               &t->row_cuts);
    uint64_t *keys = side_cuts(a, g->in->keys, first[1][s], first[1][s + 1], p->lengths[s],
                               g->step * CAD_KEYS_TO_ROWS, &t->key_cuts);
    const uint64_t key_step = g->step * CAD_KEYS_TO_ROWS;
    const uint32_t *row_at = rows && g->step ? number_multiples(a, rows, t->row_cuts, g->step) : NULL;
    const uint32_t *key_at = keys && g->step ? number_multiples(a, keys, t->key_cuts, key_step) : NULL;
    if (g->step && (!row_at || !key_at)) return FCP_E_NO_MEMORY;
    uint64_t *sum = rows && keys ? ARENA_ZNEW(a, uint64_t, (size_t)t->row_cuts * t->key_cuts) : NULL;
    if (!sum) return FCP_E_NO_MEMORY;
    const uint64_t *pairs = NULL;
    fcp_code code = is_block(x, s, t)
                        ? cells_grid(g->of, &env, rows, 1, keys, 1, &entries, &count, &g->fault)
                        : cells_pairs(g->of, &env, rows, t->row_cuts - 1, keys, t->key_cuts - 1, &entries, &pairs,
                                      &count, &g->fault);
    if (code) return code;
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    const fcp_shape_rec *shapes = cells_shapes(g->of, &shape_count, &runs, &run_count);
    for (size_t i = 0; i < count; i++)
        sum[(size_t)(entries[i].q_piece + 1) * t->key_cuts + entries[i].k_piece + 1] =
            pairs ? pairs[i] : shapes[entries[i].shape].pairs;
    for (uint32_t i = 1; i < t->row_cuts; i++) {
        uint64_t *above = sum + (size_t)(i - 1) * t->key_cuts, *here = above + t->key_cuts, row = 0;
        for (uint32_t j = 1; j < t->key_cuts; j++) here[j] = (row += here[j]) + above[j];
    }
    t->row_cut = rows;
    t->key_cut = keys;
    t->row_step = g->step;
    t->key_step = key_step;
    t->row_at = row_at;
    t->key_at = key_at;
    t->sum = sum;
    return FCP_OK;
}

/* Makes the tables of one part. Reports no error, because this may be a second thread. */
static fcp_code make_stretch(planning *x, void *given) {
    tabling *g = given;
    fcp_code code = FCP_OK;
    for (uint32_t s = g->first; s < g->end && !code; s++) {
        g->sequence = s;
        if (g->least && table_work(&g->tables[s]) < g->least) continue;
        code = planning_stopped_at(x, s) ? FCP_E_INTERRUPTED : make_table(x, g, s);
    }
    return code;
}

static fcp_code make_all(planning *x, tabling *earlier, tabling *later) {
    fcp_code code = pair_make(x, earlier->of != later->of, (pair_piece){make_stretch, earlier},
                              (pair_piece){make_stretch, later});
    const tabling *g = earlier->fault.kind != MC_OK ? earlier : later;
    return g->fault.kind != MC_OK ? faults_report(x, code, FAULTS_MASK, g->sequence, &g->fault) : code;
}

/* Makes the tables of sums for a mask that is not causal.
 *   1. Every sequence gets a coarse table, with cuts where its runs begin and end.
 *   2. A sequence with more than a 16th of a rank's mean work gets a finer table. Its steps are a shard, or that times
 *      a power of two, so large that all tables together hold at most about CAD_TABLE_SUMS sums, or
 *      CAD_TABLE_SUMS_EACH for each rank. */
static fcp_code make_tables(planning *x, cad_input *in) {
    const problem *p = x->problem;
    problem_kept *kept = (cad_base)x->program->base == CAD_BASE_CALLER ? x->kept : NULL;
    if (kept && kept->tables && kept->tables_shard == in->pairs.shard) {
        in->pairs.tables = kept->tables;
        return FCP_OK;
    }
    if (kept && kept->tables) kept = NULL; /* with other cuts */
    cad_table *tables = ARENA_ZNEW(kept ? &kept->memory : &x->work, cad_table, p->sequences);
    uint32_t *first[FCP_SIDES];
    for (int side = 0; side < FCP_SIDES; side++) {
        const problem_run *runs = side ? in->keys : in->rows;
        uint32_t count = side ? in->key_count : in->row_count;
        if (!(first[side] = ARENA_ZNEW(&x->work, uint32_t, p->sequences + (size_t)1))) return FCP_E_NO_MEMORY;
        for (uint32_t i = 0; i < count; i++) first[side][runs[i].sequence + 1]++;
        for (uint32_t s = 0; s < p->sequences; s++) first[side][s + 1] += first[side][s];
    }
    /* a second `cells` object is worth making only if it is kept for later, because it learns what the first one
     * knows */
    tabling a = {.in = in, .runs = first, .tables = tables, .end = x->kept ? problem_second(p) : p->sequences}, b = a;
    b.first = a.end, b.end = p->sequences;
    if (kept) a.memory = &kept->memory, b.memory = &kept->memory_second;
    fcp_code code = tables ? problem_open_mask(x, &a.of) : FCP_E_NO_MEMORY;
    b.of = a.of;
    if (!code && b.first < b.end) code = problem_open_second(x, &b.of);
    if (!code) code = make_all(x, &a, &b);
    unsigned __int128 all = 0, heavy = 0;
    for (uint32_t s = 0; s < p->sequences && !code; s++) all += table_work(&tables[s]);
    const uint64_t least = (uint64_t)(all / ((unsigned __int128)16 * p->ranks)) + 1;
    for (uint32_t s = 0; s < p->sequences && !code; s++)
        if (table_work(&tables[s]) >= least)
            heavy += (unsigned __int128)(p->queries[s] / in->pairs.shard + 1) *
                     (p->lengths[s] / in->pairs.shard / CAD_KEYS_TO_ROWS + 1);
    uint64_t step = in->pairs.shard;
    const uint64_t sums = max_u64(CAD_TABLE_SUMS, (uint64_t)p->ranks * CAD_TABLE_SUMS_EACH);
    for (; heavy > sums; heavy /= 4) step *= 2;
    a.step = b.step = step;
    a.least = b.least = least;
    if (!code) code = make_all(x, &a, &b);
    if (b.of != a.of) problem_close_mask(x, &b.of);
    problem_close_mask(x, &a.of);
    in->pairs.tables = tables;
    if (kept && !code) kept->tables = tables, kept->tables_shard = in->pairs.shard;
    return code;
}

fcp_code cad_input_of(planning *x, cad_input *out) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    *out = (cad_input){.ranks = p->ranks,
                       .gpus = g->gpus,
                       .servers = g->servers,
                       .tolerance = g->tolerance,
                       .halves = g->pingpong,
                       .price = cad_price_of(g, g->passes[FCP_BACKWARD]),
                       .wire = wire_of(g),
                       .stop = x->stop};
    out->pairs = (cad_pairs){.sequences = p->sequences, .queries = p->queries, .keys = p->lengths,
                             .top_left = g->align == FCP_TOP_LEFT, .shard = g->shard ? g->shard : FCP_CELL,
                             .weight = mc_uses(g->mask) & MC_USES_H ? g->heads : 1};
    fcp_code code = find_homes(x, out);
    if (!code && !is_causal(g->mask)) code = make_tables(x, out);
    return code;
}

/* --- pieces and blocks -------------------------------------------------------------------------------------------- */

enum { SECOND_HALF = -1 }; /* behind the ranks of a place */

typedef struct cutter {
    planning *x;
    problem *p;
    division *d;
    problem_part *parts;
    size_t count, room;
    uint64_t *cut;
    size_t cut_count, cut_room;
    memo places;        /* the number of each set of ranks that need a short piece */
    int64_t *place;     /* of the piece at hand: the rank that computes its rows, then the readers, ascending */
    uint32_t *read_by;  /* per rank: the last piece that it was found to read, + 1 */
    uint64_t *ranks[2]; /* for sorting */
} cutter;

static bool add_cut(cutter *c, uint64_t at) {
    if (!(c->cut = arena_grow(&c->x->scratch, c->cut, c->cut_count, &c->cut_room, sizeof *c->cut))) return false;
    c->cut[c->cut_count++] = at;
    return true;
}

/* Finds which ranks need tokens start to end - 1, and writes it to c->place: the rank that computes their rows, then
 * the ranks that read their keys. Returns the number of words written. 0: several ranks compute the rows, or no rank
 * needs anything. */
static size_t find_place(cutter *c, uint32_t s, uint32_t holds, uint64_t start, uint64_t end) {
    const division *d = c->d;
    size_t readers = 0;
    c->place[0] = FCP_NONE;
    for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
        const cad_share *share = &d->shares[i];
        cad_run rows = share->run, keys = share->run;
        if (rows.x < start) rows.x = start;
        if (rows.y > end) rows.y = end;
        if (holds & FCP_HOLDS_Q && rows.x < rows.y && c->place[0] != share->rank && cad_work(&d->in.pairs, &rows)) {
            if (c->place[0] != FCP_NONE) return 0;
            c->place[0] = share->rank;
        }
        if (keys.k0 < start) keys.k0 = start;
        if (keys.k1 > end) keys.k1 = end;
        if (!(holds & FCP_HOLDS_KV) || keys.k0 >= keys.k1 || c->read_by[share->rank] == c->count) continue;
        if (!cad_work(&d->in.pairs, &keys)) continue;
        c->read_by[share->rank] = (uint32_t)c->count; /* pieces so far, with this one */
        c->ranks[0][readers++] = share->rank;
    }
    sort_u64(c->ranks[0], c->ranks[1], readers);
    for (size_t i = 0; i < readers; i++) c->place[i + 1] = (int64_t)c->ranks[0][i];
    return readers || c->place[0] != FCP_NONE ? readers + 1 : 0;
}

/* Decides with which other pieces the last piece, which is shorter than a block, may share a block: those with the same
 * home, the same half and the same `place`. If one rank computes and reads all of the piece, its place is that rank.
 * Otherwise it is a number that stands for the set of ranks which compute or read it, and for the half. Pieces of one
 * sequence never share a block; first: the first piece of this sequence. */
static fcp_code choose_place(cutter *c, size_t first) {
    problem_part *made = &c->parts[c->count - 1];
    size_t words = find_place(c, made->sequence, made->holds, made->start, made->start + made->length);
    if (!words) return FCP_OK;
    int64_t last = c->place[words - 1];
    const bool late = c->d->half && made->start >= c->d->half[made->sequence];
    if (late) c->place[words++] = SECOND_HALF;
    if (!late && (words == 1 || (words == 2 && (c->place[0] == FCP_NONE || c->place[0] == last))))
        made->place = (uint32_t)last;
    else {
        uint64_t hash = memo_hash(c->place, words), next = c->p->ranks + c->places.count;
        const memo_entry *seen = memo_find(&c->places, c->place, words, hash);
        if (!seen) seen = memo_add(&c->places, &c->x->scratch, c->place, words, hash, (uint64_t[3]){next});
        if (!seen) return FCP_E_NO_MEMORY;
        made->place = (uint32_t)seen->answer[0];
    }
    for (const problem_part *m = made; m-- > c->parts + first && made->place != FCP_NONE;)
        if (m->home == made->home && m->place == made->place) made->place = FCP_NONE;
    return FCP_OK;
}

static fcp_code cut_sequence(cutter *c, uint32_t s, uint32_t holds, const problem_run *runs, uint32_t run_count) {
    const division *d = c->d;
    const uint64_t n = problem_length(c->p, s, holds == FCP_HOLDS_KV ? FCP_KEYS : FCP_QUERIES), block = c->p->block;
    bool alone = true; /* one rank computes each run, with all its keys: no share adds a cut */
    c->cut_count = 0;
    for (uint32_t i = d->first[s]; i < d->first[s + 1] && alone; i++)
        alone = d->first[s + 1] - d->first[s] <= run_count && cad_whole(&d->in.pairs, &d->shares[i].run);
    for (uint32_t i = 0; i < run_count; i++)
        if (!add_cut(c, runs[i].start)) return FCP_E_NO_MEMORY;
    for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
        const cad_run *r = &d->shares[i].run;
        if (holds & FCP_HOLDS_Q && (!add_cut(c, r->x) || !add_cut(c, r->y))) return FCP_E_NO_MEMORY;
        if (holds & FCP_HOLDS_KV && !alone && (!add_cut(c, r->k0) || !add_cut(c, r->k1))) return FCP_E_NO_MEMORY;
    }
    if (!add_cut(c, n)) return FCP_E_NO_MEMORY;
    uint64_t *other = ARENA_NEW(&c->x->scratch, uint64_t, c->cut_count);
    if (!other) return FCP_E_NO_MEMORY;
    sort_u64(c->cut, other, c->cut_count);
    uint64_t at = 0;
    size_t first = c->count;
    uint32_t run = 0;
    for (size_t i = 0; at < n;) {
        while (c->cut[i] <= at) i++;
        uint64_t to = c->cut[i], end = (at / block + 1) * block;
        if (to > end) to = end;
        while (runs[run].end <= at) run++;
        c->parts = arena_grow(&c->x->scratch, c->parts, c->count, &c->room, sizeof *c->parts);
        if (!c->parts) return FCP_E_NO_MEMORY;
        c->parts[c->count++] = (problem_part){.sequence = s, .length = (uint32_t)(to - at), .home = runs[run].rank,
                                              .place = FCP_NONE, .holds = holds, .start = at};
        fcp_code code = to - at < block ? choose_place(c, first) : FCP_OK;
        if (code) return code;
        at = to;
    }
    return FCP_OK;
}

/* Sorts the shares by sequence; those of one sequence stay in order. */
static fcp_code sort_shares(arena *memory, const cad_shares *found, division *d) {
    uint32_t sequences = d->in.pairs.sequences;
    d->first = ARENA_ZNEW(memory, uint32_t, sequences + (size_t)2);
    d->shares = ARENA_NEW(memory, cad_share, found->count + 1);
    if (!d->first || !d->shares) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < found->count; i++) d->first[found->at[i].run.sequence + 2]++;
    for (uint32_t s = 0; s < sequences; s++) d->first[s + 2] += d->first[s + 1];
    for (size_t i = 0; i < found->count; i++) d->shares[d->first[found->at[i].run.sequence + 1]++] = found->at[i];
    return FCP_OK;
}

/* Fills shares and `first` of d. The result does not depend on the size of blocks, nor on what is scheduled later. So
 * if several plannings of one batch share what they find (x->kept), the work is divided once for each tolerance. */
static fcp_code divide_work(planning *x, division *d) {
    problem_kept *kept = (cad_base)x->program->base == CAD_BASE_CALLER ? x->kept : NULL;
    cad_shares found;
    for (const division *k = kept ? kept->divisions : NULL; k; k = k->next)
        if (k->in.tolerance == d->in.tolerance && k->in.servers == d->in.servers &&
            k->in.pairs.shard == d->in.pairs.shard && k->in.halves == d->in.halves) {
            d->shares = k->shares, d->first = k->first, d->half = k->half;
            return FCP_OK;
        }
    if (x->aside && (!x->trial || x->alone)) { /* else another candidate is tried at this time */
        arena_reset(&x->aside->scratch);
        d->in.second = &x->aside->scratch;
    }
    fcp_code code = d->in.halves ? cad_halves(&d->in, kept ? &kept->memory : &x->work, &x->scratch, &d->half) : FCP_OK;
    if (!code)
        code = d->half ? cad_divide_halves(&d->in, d->half, &x->scratch, &x->scratch, &found)
                       : cad_divide(&d->in, &x->scratch, &x->scratch, &found);
    d->in.second = NULL;
    if (!code) code = found.count > UINT32_MAX / 8 ? FCP_E_PLAN_SIZE
                                                    : sort_shares(kept ? &kept->memory : &x->work, &found, d);
    division *made = kept && !code ? ARENA_NEW(&kept->memory, division, 1) : NULL;
    if (made) {
        *made = *d;
        made->next = kept->divisions;
        kept->divisions = made;
    }
    return code;
}

/* Finds where tokens are held. Usually the ranks of the problem are the caller's ranks. If each of them stands for
 * several of the caller's, tokens stay at the caller's ranks (d->held), while d->in gets runs at the ranks of the
 * problem, among which work is divided. */
static fcp_code find_held(planning *x, division *d) {
    const problem *p = x->problem;
    const bool split = d->in.keys != d->in.rows;
    d->held[FCP_QUERIES] = d->in.rows;
    d->held[FCP_KEYS] = d->in.keys;
    if (p->lanes == 1 || (cad_base)x->program->base != CAD_BASE_CALLER) return FCP_OK;
    for (int side = 0; side < (split ? FCP_SIDES : 1); side++) {
        const uint32_t count = side ? d->in.key_count : d->in.row_count;
        problem_run *runs = ARENA_NEW(&x->work, problem_run, count + (size_t)1);
        if (!runs) return FCP_E_NO_MEMORY;
        for (uint32_t i = 0; i < count; i++) {
            runs[i] = d->held[side][i];
            runs[i].rank /= p->lanes;
        }
        if (side || !split) d->in.keys = runs;
        if (!side) d->in.rows = runs;
    }
    return FCP_OK;
}

fcp_code cad_cut(planning *x) {
    problem *p = x->problem;
    cutter c = {.x = x,
                .p = p,
                .d = ARENA_ZNEW(&x->work, division, 1),
                .place = ARENA_NEW(&x->scratch, int64_t, p->ranks + (size_t)2),
                .read_by = ARENA_ZNEW(&x->scratch, uint32_t, p->ranks),
                .ranks = {ARENA_NEW(&x->scratch, uint64_t, p->ranks), ARENA_NEW(&x->scratch, uint64_t, p->ranks)}};
    if (!c.d || !c.place || !c.read_by || !c.ranks[0] || !c.ranks[1]) return FCP_E_NO_MEMORY;
    fcp_code code = problem_check_blocks(x);
    if (!code) code = cad_input_of(x, &c.d->in);
    if (!code) code = find_held(x, c.d);
    if (!code) code = divide_work(x, c.d);
    for (int side = 0; side < (p->split ? FCP_SIDES : 1) && !code; side++) {
        const problem_run *runs = c.d->held[side];
        uint32_t total = side ? c.d->in.key_count : c.d->in.row_count, from = 0;
        uint32_t holds = p->split ? 1u << side : FCP_HOLDS_BOTH;
        for (uint32_t s = 0; s < p->sequences && !code; s++) {
            uint32_t to = from;
            while (to < total && runs[to].sequence == s) to++;
            const problem_run *own = to > from ? runs + from : NULL; /* without tokens there may be no runs at all */
            code = planning_stopped_at(x, s) ? FCP_E_INTERRUPTED : cut_sequence(&c, s, holds, own, to - from);
            if (c.count > UINT32_MAX / 4)
                code = planning_fail(x, FCP_E_PLAN_SIZE, planning_size_span(x),
                                     "more than 2^30 pieces are more than a plan holds");
            from = to;
        }
    }
    memo_free(&c.places);
    if (!code) code = problem_pack(x, c.parts, c.count, &c.d->home);
    if (!code) x->division = c.d, x->second_half = c.d->half;
    return code;
}

/* --- placing ------------------------------------------------------------------------------------------------------ */

fcp_code place_by_cad(planning *x, const place_input *in, uint32_t *home) {
    (void)in; /* blocks have their homes, whatever they weigh */
    memcpy(home, x->division->home, x->problem->block_count * sizeof *home);
    return FCP_OK;
}

fcp_code exec_by_cad(planning *x, const uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const division *d = x->division;
    const cad_share **near = ARENA_NEW(&x->scratch, const cad_share *, p->tile_count + (size_t)1);
    uint32_t count = 0, at = 0, sequence = FCP_NONE;
    uint64_t from = 0, until = 0; /* `near` are the shares of the rows that begin from `from` to `until` - 1 */
    (void)home;
    if (!near) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (planning_stopped_at(x, b)) return FCP_E_INTERRUPTED;
        for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++) {
            const fcp_part *part_of = &p->parts[p->tile_part[t]];
            const fcp_piece *q = &p->pieces[part_of->q_piece], *k = &p->pieces[part_of->k_piece];
            if (q->sequence != sequence || q->start < from || q->start >= until) {
                sequence = q->sequence, from = q->start, until = UINT64_MAX, count = at = 0;
                for (uint32_t i = d->first[sequence]; i < d->first[sequence + 1]; i++) {
                    const cad_run *r = &d->shares[i].run;
                    if (r->x <= from && from < r->y) near[count++] = &d->shares[i];
                    until = min_u64(until, r->x > from ? r->x : r->y > from ? r->y : UINT64_MAX);
                }
            }
            uint32_t tries = 0; /* mostly the share of the tile before */
            for (; tries < count && (k->start < near[at]->run.k0 || k->start >= near[at]->run.k1); tries++)
                at = at + 1 < count ? at + 1 : 0;
            if (tries == count)
                return planning_fail(x, FCP_E_INTERNAL, SPAN_NONE, "tile %u of block %u is in no share of the work",
                                     t, b);
            exec[t] = near[at]->rank;
        }
    }
    return FCP_OK;
}
