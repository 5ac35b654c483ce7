/* tiles.c: asks the mask which pieces see which, and gathers the answers into tiles.
 *
 * Requires: a problem with its blocks, every token in one.
 * Gives: every (Q block, KV block) with an allowed pair once: a tile, with its parts and its number of pairs; the work
 *     of every block. (A part is a piece of the Q block and a piece of the KV block between which the mask allows a
 *     pair.)
 * Cost: linear in pieces, parts and the boundary of the mask (cells/cells.c).
 *
 * An object of type `cells` answers for a mask, sequence by sequence, and numbers the shapes that it meets. (A shape is
 * the mask between two pieces: which cells are FULL or PARTIAL.) In large batches a second thread asks about half of
 * the sequences, with an object of its own. The answers are joined in the order of sequences, and the second object's
 * shapes get the numbers that the first would have given them. So the result is the same as with one thread.
 */
#include "compiler/problem/problem.h"
#include "runtime/plan/bytes.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/planning/pair.h"
#include "compiler/problem/class_tiles.h"
#include "compiler/problem/faults.h"
#include "compiler/problem/problem_tuning.h"
#include "runtime/base/both.h"

enum { MAX_PARTS = INT32_MAX };

fcp_code raw_reserve(planning *x, raw_parts *raw, size_t more) {
    enum { STRETCH = 1 << 19 }; /* parts copied between two looks at stop */
    if (raw->room - raw->count >= more) return FCP_OK;
    size_t room = raw->room * 2 > raw->count + more ? raw->room * 2 : raw->count + more;
    fcp_part *grown = ARENA_NEW(&x->scratch, fcp_part, room);
    if (!grown) return FCP_E_NO_MEMORY;
    for (size_t at = 0; at < raw->count; at += STRETCH) {
        size_t some = raw->count - at < STRETCH ? raw->count - at : STRETCH;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        memcpy(grown + at, raw->part + at, some * sizeof *grown);
    }
    raw->part = grown;
    raw->room = room;
    return FCP_OK;
}

/* What one thread asks: object `of` about sequences `first` to `end` - 1. And what it finds: the parts; or an error,
 * with its sequence and what is wrong. */
typedef struct stretch {
    cells *of;
    uint32_t first, end;
    raw_parts *raw;
    uint32_t sequence;
    cells_fault fault;
    bool too_many;
} stretch;

/* Finds the parts of a stretch. Only records errors, because this may be a second thread; report() reports them. */
static fcp_code classify(planning *x, void *given) {
    stretch *g = given;
    raw_parts *raw = g->raw;
    problem *p = x->problem;
    arena *scratch = &x->scratch;
    uint64_t *cuts[FCP_SIDES] = {0};
    const uint32_t *piece[FCP_SIDES];
    uint32_t m[FCP_SIDES], pieces = 0;
    const int sides = p->split ? FCP_SIDES : 1;
    for (int side = 0; side < sides; side++) {
        uint32_t longest = 0;
        for (uint32_t s = g->first; s < g->end; s++) {
            uint32_t n = p->piece_start[side][s + 1] - p->piece_start[side][s];
            if (n > longest) longest = n;
            pieces += n;
        }
        if (!(cuts[side] = ARENA_NEW(scratch, uint64_t, longest + (size_t)1))) return FCP_E_NO_MEMORY;
    }
    fcp_code code = raw_reserve(x, raw, pieces * (size_t)4 + 64);
    if (code) return code;
    for (uint32_t s = g->sequence = g->first; s < g->end; g->sequence = ++s) {
        for (int side = 0; side < sides; side++) {
            piece[side] = p->sequence_piece[side] + p->piece_start[side][s];
            m[side] = p->piece_start[side][s + 1] - p->piece_start[side][s];
            for (uint32_t i = 0; i < m[side]; i++) cuts[side][i] = p->pieces[piece[side][i]].start;
            cuts[side][m[side]] = problem_length(p, s, (fcp_side)side);
        }
        if (!p->split) cuts[FCP_KEYS] = cuts[0], piece[FCP_KEYS] = piece[0], m[FCP_KEYS] = m[0];
        const cell_entry *entries;
        size_t count;
        const mc_env env = problem_env(p, s);
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        code = cells_grid(g->of, &env, cuts[FCP_QUERIES], m[FCP_QUERIES], cuts[FCP_KEYS], m[FCP_KEYS], &entries, &count,
                          &g->fault);
        if (!code) code = raw_reserve(x, raw, count);
        if (code) return code;
        if ((g->too_many = raw->count + count > MAX_PARTS)) return FCP_E_PLAN_SIZE;
        fcp_part *out = raw->part + raw->count;
        for (size_t e = 0; e < count; e++)
            out[e] = (fcp_part){piece[FCP_QUERIES][entries[e].q_piece], piece[FCP_KEYS][entries[e].k_piece],
                                entries[e].shape};
        raw->count += count;
    }
    return FCP_OK;
}

/* Reports what went wrong in a stretch. head: the first head that has this mask. */
static fcp_code report(planning *x, const stretch *g, fcp_code code, uint32_t head) {
    if (g->fault.kind != MC_OK) {
        cells_fault fault = g->fault;
        fault.h = head;
        return faults_report(x, code, FAULTS_MASK, g->sequence, &fault);
    }
    if (g->too_many)
        return planning_fail(x, code, planning_size_span(x),
                             "the mask leaves more than 2^31 piece pairs; a larger block makes fewer");
    if (code == FCP_E_PLAN_SIZE) return planning_fail(x, code, planning_size_span(x), "%s", fcp_code_text(code));
    return code;
}

/* Finds the middle of the sequences from `first` on: about half of the work is in those before the sequence that is
 * returned. by_length: the work is estimated from lengths, and not from the pieces. */
static uint32_t middle(const problem *p, uint32_t first, bool by_length) {
    uint64_t all = 0, before = 0;
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t s = first; s < p->sequences; s++) {
            uint64_t rows = p->lengths[s] / PIECE_KEYS + 1, columns = rows;
            if (!by_length) {
                rows = p->piece_start[FCP_QUERIES][s + 1] - p->piece_start[FCP_QUERIES][s];
                columns = p->piece_start[FCP_KEYS][s + 1] - p->piece_start[FCP_KEYS][s];
            }
            const uint64_t work = rows * (columns + ROW_COST);
            if (!turn) all += work;
            else if ((before += work) >= all / 2) return s + 1;
        }
    return p->sequences;
}

/* Gives each shape of the second object a number in the first one: *out. If the objects are kept for later plannings,
 * only shapes that parts name get numbers, and keep them; otherwise all shapes do, in order. */
static fcp_code number_shapes(planning *x, const stretch *from, const stretch *to, uint32_t **out) {
    problem_kept *kept = x->kept;
    uint32_t count, run_count, *number = kept ? kept->joined : NULL;
    const fcp_run *runs;
    fcp_code code = FCP_OK;
    cells_shapes(from->of, &count, &runs, &run_count);
    if (!kept || kept->joined_room < count) {
        const uint32_t room = kept ? 2 * count : count + 1, known = kept ? kept->joined_room : 0;
        uint32_t *grown = ARENA_NEW(kept ? &kept->memory : &x->scratch, uint32_t, room);
        if (!grown) return FCP_E_NO_MEMORY;
        if (known) memcpy(grown, number, known * sizeof *grown);
        memset(grown + known, 0xff, (room - known) * sizeof *grown); /* FCP_NONE */
        number = grown;
        if (kept) kept->joined = number, kept->joined_room = room;
    }
    for (uint32_t i = 0; !kept && i < count && !code; i++)
        code = planning_stopped_at(x, i) ? FCP_E_INTERRUPTED : cells_join(to->of, from->of, i, &number[i]);
    for (size_t i = 0; kept && i < from->raw->count && !code; i++) {
        const uint32_t shape = from->raw->part[i].shape;
        if (planning_stopped_at(x, i)) code = FCP_E_INTERRUPTED;
        else if (number[shape] == FCP_NONE) code = cells_join(to->of, from->of, shape, &number[shape]);
    }
    *out = number;
    return code;
}

/* Adds the parts of later sequences, which the second object found, to those of the first. */
static fcp_code join_stretch(planning *x, const stretch *from, stretch *to) {
    uint32_t *number;
    fcp_code code = number_shapes(x, from, to, &number);
    if (!code) code = raw_reserve(x, to->raw, from->raw->count);
    if (code) return code;
    if ((to->too_many = to->raw->count + from->raw->count > MAX_PARTS)) return FCP_E_PLAN_SIZE;
    fcp_part *out = to->raw->part + to->raw->count;
    for (size_t i = 0; i < from->raw->count; i++) {
        if (!(i & 0xfffff) && planning_stopped(x)) return FCP_E_INTERRUPTED;
        out[i] = from->raw->part[i];
        out[i].shape = number[out[i].shape];
    }
    to->raw->count += from->raw->count;
    return FCP_OK;
}

/* Asks about the sequences from `first` on in two threads, with an object each. If the second object had to look at
 * pairs one by one, the first is asked about its sequences once more: how many pairs were looked at is reported, and
 * must not depend on threads. */
static fcp_code classify_both(planning *x, raw_parts *raw, uint32_t first) {
    raw_parts later = {0};
    cells_stats before, spent;
    cells *other;
    fcp_code code = problem_open_second(x, &other);
    if (code) return code;
    cells_get_stats(other, &before);
    uint32_t cut = x->kept ? problem_second(x->problem) : middle(x->problem, first, false);
    if (cut < first) cut = first;
    stretch a = {.of = x->cells, .first = first, .end = cut, .raw = raw};
    stretch b = {.of = other, .first = cut, .end = x->problem->sequences, .raw = &later};
    code = pair_make(x, true, (pair_piece){classify, &a}, (pair_piece){classify, &b});
    cells_get_stats(other, &spent);
    if (!code && spent.elements > before.elements) {
        b.of = x->cells;
        b.raw = raw;
        code = classify(x, &b);
    } else if (!code) {
        code = join_stretch(x, &b, &a);
    }
    problem_close_mask(x, &other);
    return code ? report(x, a.sequence < a.end || a.too_many ? &a : &b, code, 0) : FCP_OK;
}

/* Are two threads worth while? Yes, if there are many pieces and the mask is decided for whole boxes: then asking takes
 * longer than joining two answers. No, if pairs were looked at one by one, because one object remembers what it has
 * seen. No, if there are so many parts that to have them twice would take much memory. */
static bool is_worth_two(const planning *x, const raw_parts *raw, const cells_stats *so_far) {
    const problem *p = x->problem;
    return p->piece_count >= PIECES_FOR_TWO && raw->room < PARTS_FOR_ONE && !so_far->elements && !p->class_count &&
           !(mc_uses(x->program->mask) & (MC_USES_DATA | MC_USES_BANDS));
}

/* Finds the parts of all sequences for one class of heads, whose first head is `head`. The first few sequences show
 * whether a second thread is worth while. */
static fcp_code classify_all(planning *x, raw_parts *raw, uint32_t head) {
    problem *p = x->problem;
    const bool known = x->kept && x->kept->two; /* an earlier planning has seen what it takes */
    stretch begin = {.of = x->cells, .end = known ? 0 : p->sequences / SAMPLED_PART + 1, .raw = raw}, rest = begin;
    cells_stats spent; /* with what was asked before, if they are kept */
    fcp_code code = classify(x, &begin);
    if (code) return report(x, &begin, code, head);
    cells_get_stats(x->cells, &spent);
    const bool two = is_worth_two(x, raw, &spent);
    if (x->kept) x->kept->two |= two;
    rest.first = begin.end;
    rest.end = p->sequences;
    if (two && fcp_both_at_once()) code = classify_both(x, raw, rest.first);
    else if ((code = classify(x, &rest))) code = report(x, &rest, code, head);
    p->shapes = cells_shapes(x->cells, &p->shape_count, &p->runs, &p->run_count);
    cells_get_stats(x->cells, &spent);
    p->elements += spent.elements;
    return code;
}

/* Blocks `first` to `end` - 1, whose parts are gathered into tiles. The parts of block b are order[start[b]] to
 * order[start[b + 1] - 1]. There are at most as many tiles as parts, so the first tile of these blocks is written to
 * place start[first], and two threads never write to the same place. */
typedef struct gathering {
    const raw_parts *raw;
    const uint32_t *start;
    uint32_t *order, first, end, tiles; /* tiles: the place after the last tile */
    uint64_t pairs, heaviest;
} gathering;

/* Gets memory for sorting the parts of any one block. */
static fcp_code open_gathering(planning *x, const gathering *g, uint64_t **keys, uint64_t **room) {
    size_t most = 0;
    for (uint32_t b = g->first; b < g->end; b++)
        if (g->start[b + 1] - g->start[b] > most) most = g->start[b + 1] - g->start[b];
    *keys = ARENA_NEW(&x->scratch, uint64_t, most + 1);
    *room = ARENA_NEW(&x->scratch, uint64_t, most + 1);
    return *keys && *room ? FCP_OK : FCP_E_NO_MEMORY;
}

/* Sorts the parts of a block, `mine`, by KV block: keys[i] becomes the i-th part's KV block and, in the low 32 bits,
 * its place in `mine`. */
static void sort_parts(const problem *p, uint32_t b, const fcp_part *part, uint32_t *mine, size_t count, uint64_t *keys,
                       uint64_t *room) {
    if (p->blocks[b].pieces > 1) { /* the parts of one piece come in order */
        for (size_t i = 0; i < count; i++) keys[i] = (uint64_t)part[mine[i]].q_piece << 32 | mine[i];
        sort_u64(keys, room, count);
        for (size_t i = 0; i < count; i++) mine[i] = (uint32_t)keys[i];
    }
    bool sorted = true; /* unless a KV block has several pieces of a sequence, with others between them */
    for (size_t i = 0; i < count; i++) {
        keys[i] = (uint64_t)p->pieces[part[mine[i]].k_piece].block << 32 | i;
        sorted &= !i || keys[i - 1] < keys[i];
    }
    if (!sorted) sort_u64(keys, room, count);
}

static fcp_code gather_blocks(planning *x, void *given) {
    gathering *g = given;
    problem *p = x->problem;
    const fcp_part *part = g->raw->part;
    uint64_t *keys, *room;
    uint32_t tiles = g->start[g->first], parts = tiles;
    fcp_code code = open_gathering(x, g, &keys, &room);
    if (code) return code;
    for (uint32_t b = g->first; b < g->end; b++) {
        const size_t count = g->start[b + 1] - g->start[b];
        uint32_t *mine = g->order + g->start[b], last = FCP_NONE;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        sort_parts(p, b, part, mine, count, keys, room);
        p->tile_start[b] = tiles;
        for (size_t i = 0; i < count; i++) {
            uint32_t k = (uint32_t)(keys[i] >> 32);
            if (k != last) {
                p->tile_q[tiles] = b;
                p->tile_k[tiles] = last = k;
                p->tile_part[tiles] = parts;
                p->tile_pairs[tiles++] = 0;
            }
            p->parts[parts] = part[mine[(uint32_t)keys[i]]];
            uint64_t pairs = problem_part_pairs(p, &p->parts[parts++]);
            p->tile_pairs[tiles - 1] += pairs;
            p->work[b] += pairs;
        }
        g->pairs += p->work[b];
        if (p->work[b] > g->heaviest) g->heaviest = p->work[b];
    }
    g->tiles = tiles;
    return FCP_OK;
}

/* Closes the gap between the tiles of the earlier blocks and those of the later ones. */
static void join_gathered(problem *p, const gathering *earlier, const gathering *later) {
    const uint32_t from = later->start[later->first], to = earlier->tiles, gap = from - to;
    const size_t count = later->tiles - from;
    for (uint32_t b = later->first; gap && b < later->end; b++) p->tile_start[b] -= gap;
    if (gap && count) {
        memmove(p->tile_q + to, p->tile_q + from, count * sizeof *p->tile_q);
        memmove(p->tile_k + to, p->tile_k + from, count * sizeof *p->tile_k);
        memmove(p->tile_part + to, p->tile_part + from, count * sizeof *p->tile_part);
        memmove(p->tile_pairs + to, p->tile_pairs + from, count * sizeof *p->tile_pairs);
    }
    p->tile_count = later->tiles - gap;
    p->pairs += earlier->pairs + later->pairs;
    if (earlier->heaviest > p->heaviest) p->heaviest = earlier->heaviest;
    if (later->heaviest > p->heaviest) p->heaviest = later->heaviest;
}

/* Gathers the parts of each block into tiles; of many parts, half in a second thread. */
static fcp_code gather_tiles(planning *x, const raw_parts *raw) {
    problem *p = x->problem;
    arena *work = &x->work, *scratch = &x->scratch;
    const size_t n = raw->count;
    p->part_count = (uint32_t)n;
    p->parts = ARENA_NEW(&x->memory, fcp_part, n + 1);
    p->tile_start = ARENA_NEW(work, uint32_t, p->block_count + (size_t)1);
    p->tile_q = ARENA_NEW(work, uint32_t, n + 1);
    p->tile_k = ARENA_NEW(work, uint32_t, n + 1);
    p->tile_part = ARENA_NEW(work, uint32_t, n + 2);
    p->tile_pairs = ARENA_NEW(work, uint64_t, n + 1);
    p->work = ARENA_ZNEW(work, uint64_t, p->block_count);
    uint32_t *start = ARENA_NEW(scratch, uint32_t, p->block_count + (size_t)2);
    uint32_t *order = ARENA_NEW(scratch, uint32_t, n + 1), *block_of = ARENA_NEW(scratch, uint32_t, n + 1);
    if (!p->parts || !p->tile_start || !p->tile_q || !p->tile_k || !p->tile_part || !p->tile_pairs || !p->work ||
        !start || !order || !block_of)
        return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (!(i & 0xfffff) && planning_stopped(x)) return FCP_E_INTERRUPTED;
        block_of[i] = p->pieces[raw->part[i].q_piece].block;
    }
    if (!group_by(block_of, sizeof *block_of, (uint32_t)n, p->block_count, start, order, x->stop))
        return FCP_E_INTERRUPTED;
    uint32_t cut = 0;
    while (cut < p->block_count && start[cut] < n / 2) cut++;
    gathering earlier = {.raw = raw, .start = start, .order = order, .end = cut}, later = earlier;
    later.first = cut;
    later.end = p->block_count;
    fcp_code code = pair_make(x, n >= PAIR_FROM, (pair_piece){gather_blocks, &earlier},
                              (pair_piece){gather_blocks, &later});
    if (code) return code;
    join_gathered(p, &earlier, &later);
    p->tile_start[p->block_count] = p->tile_count;
    p->tile_part[p->tile_count] = (uint32_t)n;
    return FCP_OK;
}

void problem_sort(const uint64_t *first, size_t stride, bool falling, uint32_t *order, uint32_t n, uint64_t *keys) {
    for (int high = 0; high < 2; high++) { /* by the low 32 bits, then by the high ones */
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t value = *(const uint64_t *)((const char *)first + order[i] * stride);
            keys[i] = ((falling ? ~value : value) >> 32 * high & UINT32_MAX) << 32 | i;
        }
        sort_u64(keys, keys + n, n);
        for (uint32_t i = 0; i < n; i++) keys[i] = order[(uint32_t)keys[i]];
        for (uint32_t i = 0; i < n; i++) order[i] = (uint32_t)keys[i];
    }
}

/* Sorts a list of pieces of one sequence by start; a short one, which is nearly sorted, by insertion. keys: room for
 * 2 n. */
static void sort_by_start(const fcp_piece *pieces, uint32_t *list, uint32_t n, uint64_t *keys) {
    enum { SHORT = 256 };
    if (n > SHORT) problem_sort(&pieces->start, sizeof *pieces, false, list, n, keys);
    for (uint32_t i = 1, j; i < n && n <= SHORT; i++) {
        const uint32_t piece = list[i];
        for (j = i; j && pieces[list[j - 1]].start > pieces[piece].start; j--) list[j] = list[j - 1];
        list[j] = piece;
    }
}

/* Lists the pieces of each sequence by start, where the cut has not done so. Most cuts number them in that order. */
static fcp_code list_pieces(planning *x) {
    problem *p = x->problem;
    const size_t n = p->piece_count + (size_t)1;
    uint32_t *key = ARENA_NEW(&x->scratch, uint32_t, n);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * n);
    if (!key || !keys) return FCP_E_NO_MEMORY;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        uint32_t *list = p->sequence_piece[side] = ARENA_NEW(&x->work, uint32_t, n);
        uint32_t *start = p->piece_start[side] = ARENA_NEW(&x->work, uint32_t, p->sequences + (size_t)2);
        if (!list || !start) return FCP_E_NO_MEMORY;
        for (uint32_t i = 0; p->split && i < p->piece_count; i++)
            key[i] = problem_holds(p, p->pieces[i].block, (fcp_side)side) ? p->pieces[i].sequence : FCP_NONE;
        if (!(p->split ? group_by(key, sizeof *key, p->piece_count, p->sequences, start, list, x->stop)
                       : group_by(&p->pieces->sequence, sizeof *p->pieces, p->piece_count, p->sequences, start, list,
                                  x->stop)))
            return FCP_E_INTERRUPTED;
        for (uint32_t s = 0; s < p->sequences; s++)
            for (uint32_t i = start[s] + 1; i < start[s + 1]; i++) {
                if (p->pieces[list[i - 1]].start < p->pieces[list[i]].start) continue;
                sort_by_start(p->pieces, list + start[s], start[s + 1] - start[s], keys);
                break;
            }
    }
    if (p->split) return FCP_OK;
    p->sequence_piece[FCP_KEYS] = p->sequence_piece[FCP_QUERIES];
    p->piece_start[FCP_KEYS] = p->piece_start[FCP_QUERIES];
    return FCP_OK;
}

/* Finds the largest block of each side, and how many tokens a transfer carries at most. */
static void measure_blocks(planning *x) {
    problem *p = x->problem;
    uint32_t largest = 0;
    for (uint32_t b = 0; b < p->block_count; b++)
        for (int side = 0; side < FCP_SIDES; side++) {
            uint32_t tokens = problem_holds(p, b, (fcp_side)side) ? p->blocks[b].tokens : 0;
            if (tokens > p->max_block[side]) p->max_block[side] = tokens;
            if (tokens > largest) largest = tokens;
        }
    if (p->unit > largest) p->unit = largest ? largest : 1; /* 0 is no unit, even if there are no blocks */
    fcp_problem facts;
    problem_facts(x, &facts);
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
        for (int cls = 0; cls < FCP_CLASSES; cls++)
            p->unit_of[fabric][cls] = fcp_unit_tokens(&facts, (fcp_class)cls, (fcp_fabric)fabric);
}

/* Adds to the caller's progress how many pairs of the mask in x->cells must probably be looked at one by one. */
static fcp_code tell_outlook(planning *x) {
    const uint32_t masks = x->problem->class_count ? x->problem->class_count : 1;
    fcpc_progress *progress = x->batch->progress;
    if (!progress) return FCP_OK;
    fcp_code code = problem_look_ahead(x);
    if (code) return code;
    cells_set_done(x->cells, &progress->done);
    if (x->kept && x->kept->told++ >= masks) return FCP_OK; /* what it answered is kept */
    __atomic_fetch_add(&progress->expected, x->outlook.pairs / masks, __ATOMIC_RELAXED);
    return FCP_OK;
}

/* Makes an object that answers for a mask, or takes the one that an earlier candidate kept. kept: where it is kept;
 * NULL: nowhere. */
static fcp_code open_kept(const planning *x, mc_code mask, uint32_t heads, cells **kept, cells **out) {
    *out = kept && *kept ? *kept : cells_new(mask, heads);
    if (!*out) return FCP_E_NO_MEMORY;
    if (kept) cells_keep_grids(*kept = *out);
    cells_set_pool(*out, x->work.pool);
    cells_set_stop(*out, x->stop);
    return FCP_OK;
}

fcp_code problem_open_mask(planning *x, cells **out) {
    return open_kept(x, x->program->mask, x->program->heads, x->kept ? &x->kept->whole : NULL, out);
}

fcp_code problem_open_second(planning *x, cells **out) {
    return open_kept(x, x->program->mask, x->program->heads, x->kept ? &x->kept->later : NULL, out);
}

uint32_t problem_second(const problem *p) {
    uint64_t keys = 0;
    if (mc_uses(p->program->mask) & MC_USES_DATA) return p->sequences; /* problem_env binds arrays in one place */
    for (uint32_t s = 0; s < p->sequences; s++) keys += p->lengths[s];
    return keys < KEYS_FOR_TWO ? p->sequences : middle(p, 0, true);
}

/* Opens the object that answers for the mask of one class of heads: the one that was kept, or a new one. */
static fcp_code open_class(planning *x, uint32_t cls, cells **out) {
    const problem *p = x->problem;
    problem_kept *kept = x->kept;
    if (kept && !kept->of_class) {
        kept->of_class = ARENA_ZNEW(&kept->memory, struct cells *, p->class_count);
        kept->classes = kept->of_class ? p->class_count : 0;
    }
    if (kept && !kept->of_class) return FCP_E_NO_MEMORY;
    const bool known = kept && kept->of_class[cls];
    mc_code mask = {0};
    if (!known && !problem_class_mask(p, cls, kept ? &kept->memory : &x->work, &mask)) return FCP_E_NO_MEMORY;
    return open_kept(x, mask, 1, kept ? &kept->of_class[cls] : NULL, out);
}

void problem_close_mask(const planning *x, cells **c) {
    if (!x->kept) cells_free(*c);
    *c = NULL;
}

void problem_kept_free(problem_kept *k) {
    cells_free(k->whole);
    cells_free(k->later);
    for (uint32_t i = 0; i < k->classes; i++) cells_free(k->of_class[i]);
    arena_free(&k->memory);
    arena_free(&k->memory_second);
    *k = (problem_kept){0};
}

/* Copies the shapes that the parts name, in the order in which they name them first. An object that is kept has shapes
 * of other plannings, too; so a plan has the same shapes in the same order, whatever was asked before. */
static fcp_code own_shapes(planning *x, raw_parts *raw) {
    problem *p = x->problem;
    uint32_t *number = ARENA_NEW(&x->scratch, uint32_t, p->shape_count + (size_t)1);
    fcp_shape_rec *shapes = ARENA_NEW(&x->work, fcp_shape_rec, p->shape_count + (size_t)1);
    fcp_run *runs = ARENA_NEW(&x->work, fcp_run, p->run_count + (size_t)1);
    uint32_t count = 0, run_count = 0;
    if (!number || !shapes || !runs) return FCP_E_NO_MEMORY;
    memset(number, 0xff, p->shape_count * sizeof *number); /* FCP_NONE */
    for (size_t i = 0; i < raw->count; i++) {
        uint32_t *shape = &raw->part[i].shape, *made = &number[*shape];
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (*made == FCP_NONE) {
            const fcp_shape_rec *from = &p->shapes[*shape];
            shapes[count] = *from;
            shapes[count].first_run = run_count;
            if (from->runs) memcpy(runs + run_count, p->runs + from->first_run, from->runs * sizeof *runs);
            run_count += from->runs;
            *made = count++;
        }
        *shape = *made;
    }
    p->shapes = shapes, p->shape_count = count;
    p->runs = runs, p->run_count = run_count;
    return FCP_OK;
}

/* Asks the mask in x->cells about the whole batch. head: the first head that has this mask. */
static fcp_code ask_mask(planning *x, uint32_t head, raw_parts *raw) {
    uint64_t least;
    fcp_code code = tell_outlook(x);
    if (!code) code = problem_check_room(x, &least);
    if (!code) code = raw_reserve(x, raw, least + least / 2); /* so that they need not be moved as they grow */
    return code ? code : classify_all(x, raw, head);
}

/* Asks the mask of one class of heads. */
static fcp_code ask_class(planning *x, uint32_t cls, raw_parts *raw) {
    problem_close_mask(x, &x->cells);
    fcp_code code = open_class(x, cls, &x->cells);
    if (!code) code = ask_mask(x, problem_class_head(x->problem, cls), raw);
    return code ? code : own_shapes(x, raw); /* the next class has an object of its own */
}

/* Numbers the pieces of each side in order of sequence and start: place[side][i] is the number of piece i. */
static fcp_code place_pieces(planning *x, uint32_t *place[FCP_SIDES]) {
    const problem *p = x->problem;
    for (int side = 0; side < FCP_SIDES; side++) {
        place[side] = ARENA_NEW(&x->scratch, uint32_t, p->piece_count + (size_t)1);
        if (!place[side]) return FCP_E_NO_MEMORY;
        for (uint32_t i = 0; i < p->piece_start[side][p->sequences]; i++) place[side][p->sequence_piece[side][i]] = i;
    }
    return FCP_OK;
}

/* Makes the tiles of each range of heads from the parts of the classes. (*out)[r]: the problem with the tiles of range
 * r. */
static fcp_code join_ranges(planning *x, const class_parts *of, problem **out) {
    problem *p = x->problem;
    const uint32_t ranges = problem_range_count(p);
    const problem blank = *p;
    uint32_t *place[FCP_SIDES];
    class_shapes all = {0};
    *out = ARENA_NEW(&x->work, problem, ranges);
    fcp_code code = *out ? place_pieces(x, place) : FCP_E_NO_MEMORY;
    for (uint32_t r = 0; !code && r < ranges; r++) {
        raw_parts raw = {0};
        *p = blank;
        code = class_tiles_join(x, of, (const uint32_t *const *)place, &p->heads[problem_range_heads(p, r)], &all,
                                &raw);
        p->shapes = all.shapes;
        p->sets = all.sets;
        if (!code) code = gather_tiles(x, &raw);
        (*out)[r] = *p;
    }
    p->shapes = all.shapes;
    p->sets = all.sets;
    p->runs = all.runs;
    p->shape_count = (uint32_t)all.shape_count;
    p->run_count = (uint32_t)all.run_count;
    return code;
}

/* Makes tiles where the mask tells heads apart: asks it for each class of heads. */
static fcp_code tiles_by_class(planning *x, problem **out) {
    problem *p = x->problem;
    class_parts *of = ARENA_NEW(&x->scratch, class_parts, p->class_count);
    fcp_code code = of ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint32_t c = 0; !code && c < p->class_count; c++) {
        raw_parts raw = {0};
        code = ask_class(x, c, &raw);
        of[c] = (class_parts){raw.part, raw.count, p->shapes, p->runs};
    }
    code = code ? code : join_ranges(x, of, out);
    if (code == FCP_E_PLAN_SIZE) return planning_fail(x, code, planning_size_span(x), "%s", fcp_code_text(code));
    return code;
}

fcp_code problem_tiles(planning *x) {
    problem *p = x->problem, *ranges = NULL;
    raw_parts raw = {0};
    measure_blocks(x);
    p->elements = 0;
    p->sets = NULL;
    fcp_code code = problem_make_heads(x);
    if (!code && !p->piece_start[0]) code = list_pieces(x);
    if (!code) code = problem_find_classes(x);
    if (!code && p->class_count) {
        code = tiles_by_class(x, &ranges);
    } else {
        problem_close_mask(x, &x->cells);
        if (!code) code = problem_open_mask(x, &x->cells);
        if (!code) code = ask_mask(x, 0, &raw);
        if (!code && x->kept) code = own_shapes(x, &raw);
        if (!code) code = gather_tiles(x, &raw);
    }
    return code ? code : problem_ranges(x, ranges);
}

fcp_code problem_tiles_again(planning *x) {
    problem *p = x->problem;
    problem_close_mask(x, &x->cells);
    memset(p->max_block, 0, sizeof p->max_block);
    p->pairs = p->heaviest = p->head_count = 0;
    p->twin = NULL;
    return problem_tiles(x);
}

fcp_code problem_tiles_of_ranges(planning *x, uint32_t range_kv, uint32_t range_sub) {
    problem *p = x->problem;
    p->range_kv = range_kv;
    p->range_sub = range_sub;
    if (p->class_count) return problem_tiles_again(x); /* each range has tiles of its own */
    p->head_count = 0;
    measure_blocks(x);
    fcp_code code = problem_make_heads(x);
    return code ? code : problem_ranges(x, NULL);
}
