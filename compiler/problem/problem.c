/* problem.c: batch to blocks and tiles.
 *
 * requires  a checked program; lengths from anywhere.
 * gives     blocks that hold every token once; every (Q block, KV block) with an allowed pair, once, with its cells.
 * cost      sorting the remainders, then linear in pieces, parts and the boundary of the mask (cells/cells.c).
 *
 * fcp: each sequence is cut at multiples of `block`. What remains of it, and each sequence shorter than a block, is
 * packed whole into shared blocks, best fit decreasing, ties by sequence index; so a block holds pieces of several
 * sequences only when each of them is shorter than a block.
 * ring, zigzag: block i holds the i-th of `parts` chunks of every sequence, cut at floor(i n / parts). Where the plan
 * is split, two blocks hold that of the queries and that of the keys, and cuts are at floor((i n + f) / parts), f being
 * the tokens of the side in earlier sequences modulo parts: so sequences of one query each go round the chunks. For fcp
 * see cut_split.c then.
 */
#include "compiler/problem/problem.h"

#include <string.h>

#include "compiler/base/sort.h"

enum { MAX_BATCH_BITS = 40 };

static fcp_code check_lengths(problem *p, const uint64_t *lengths, const uint64_t *queries, size_t count,
                              fcp_error *err) {
    if (!lengths || !count) return fcp_fail(err, FCP_E_LENGTHS, "the batch has no sequences");
    if (count > UINT32_MAX / 2) return fcp_fail(err, FCP_E_LENGTHS, "the batch has %zu sequences; at most 2^31", count);
    const uint64_t most = UINT64_C(1) << MAX_BATCH_BITS;
    for (size_t i = 0; i < count; i++) {
        if (!lengths[i]) return fcp_fail(err, FCP_E_LENGTHS, "sequence %zu has length 0", i);
        if (lengths[i] > most || (p->key_tokens += lengths[i]) > most)
            return fcp_fail(err, FCP_E_LENGTHS, "the lengths add up to more than 2^%d tokens (at sequence %zu)",
                            MAX_BATCH_BITS, i);
    }
    p->tokens = p->key_tokens;
    p->lengths = p->queries = lengths;
    p->sequences = (uint32_t)count;
    if (!queries || !memcmp(queries, lengths, count * sizeof *queries)) return FCP_OK;
    p->split = true;
    p->queries = queries;
    p->tokens = 0;
    for (size_t i = 0; i < count; i++) {
        if (!queries[i]) return fcp_fail(err, FCP_E_LENGTHS, "sequence %zu has no queries", i);
        if (queries[i] > most || (p->tokens += queries[i]) > most)
            return fcp_fail(err, FCP_E_LENGTHS, "the queries add up to more than 2^%d (at sequence %zu)",
                            MAX_BATCH_BITS, i);
    }
    return FCP_OK;
}

/* Refuses batches that no plan holds, before memory for their blocks is taken: a rank counts its tokens in 31 bits, and
 * on average it holds tokens / ranks of them. */
static fcp_code check_size(const problem *p, fcp_error *err) {
    const uint64_t most = (uint64_t)p->ranks * INT32_MAX;
    if (p->tokens > most || p->key_tokens > most)
        return fcp_fail(err, FCP_E_PLAN_SIZE,
                        "the batch is too large for a plan of %u ranks: each would hold more than 2^31 tokens", p->ranks);
    if (p->program->strategy != FCP_STRATEGY_FCP || problem_least_blocks(p, p->block) <= PROBLEM_BLOCKS_MAX) return FCP_OK;
    return fcp_fail(err, FCP_E_PLAN_SIZE, "more than %d blocks of %u tokens are more than a plan holds",
                    PROBLEM_BLOCKS_MAX, p->block);
}

/* --- best fit: bins by free space --------------------------------------------------------------------------------- */

/* For each amount of free space a stack of bins, and a tree of bitmaps that finds the next amount in use. */
enum { LEVELS = 4 }; /* 64^4 amounts; a block has at most 2^20 tokens */
typedef struct bins {
    uint32_t *head;          /* per amount: newest bin + 1 */
    uint32_t *next;          /* per bin */
    uint64_t *level[LEVELS]; /* level[0] over amounts, each further one over the words below */
} bins;

static bool bins_init(bins *b, arena *scratch, uint32_t block, uint32_t max_bins) {
    size_t n = (size_t)block + 1;
    b->head = ARENA_ZNEW(scratch, uint32_t, n);
    b->next = ARENA_NEW(scratch, uint32_t, max_bins + (size_t)1);
    if (!b->head || !b->next) return false;
    for (unsigned l = 0; l < LEVELS; l++) {
        n = n / 64 + 2; /* one word past the end may be read */
        if (!(b->level[l] = ARENA_ZNEW(scratch, uint64_t, n))) return false;
    }
    return true;
}

static void bins_put(bins *b, uint32_t space, uint32_t bin) {
    b->next[bin] = b->head[space];
    b->head[space] = bin + 1;
    for (unsigned l = 0; l < LEVELS; l++, space /= 64) b->level[l][space / 64] |= UINT64_C(1) << space % 64;
}

/* Takes the newest bin with the least free space >= need; FCP_NONE when there is none. */
static uint32_t bins_take(bins *b, uint32_t need, uint32_t *out_space) {
    size_t at = need;
    unsigned l = 0;
    for (; l < LEVELS; l++, at = at / 64 + 1) { /* up, until a bit at or after `at` is set */
        uint64_t word = b->level[l][at / 64] >> at % 64;
        if (!word) continue;
        at += (unsigned)__builtin_ctzll(word);
        break;
    }
    if (l == LEVELS) return FCP_NONE;
    while (l-- > 0) at = at * 64 + (unsigned)__builtin_ctzll(b->level[l][at]);
    uint32_t bin = b->head[at] - 1;
    *out_space = (uint32_t)at;
    if (!(b->head[at] = b->next[bin]))
        for (size_t i = at, k = 0; k < LEVELS; k++, i /= 64)
            if (b->level[k][i / 64] &= ~(UINT64_C(1) << i % 64)) break;
    return bin;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static fcp_code cut_fixed(problem *p, arena *plan, arena *memory, arena *scratch, fcp_error *err) {
    uint32_t block = p->block, rests = 0;
    uint64_t full = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        full += p->lengths[s] / block;
        rests += p->lengths[s] % block != 0;
    }
    if (full + rests > UINT32_MAX / 4)
        return fcp_fail(err, FCP_E_PLAN_SIZE, "%llu blocks of %u tokens are more than a plan holds",
                        (unsigned long long)(full + rests), block);
    p->piece_count = (uint32_t)full + rests;
    p->pieces = ARENA_NEW(plan, fcp_piece, p->piece_count);
    p->blocks = ARENA_NEW(plan, fcp_block, p->piece_count);
    uint32_t *sequence_piece = ARENA_NEW(memory, uint32_t, p->piece_count);
    uint32_t *piece_start = ARENA_NEW(memory, uint32_t, p->sequences + (size_t)1);
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, rests + (size_t)1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, rests + (size_t)1);
    uint32_t *bin_of = ARENA_NEW(scratch, uint32_t, rests + (size_t)1);
    uint32_t *first = ARENA_ZNEW(scratch, uint32_t, rests + (size_t)2);
    bins b;
    p->sequence_piece[FCP_QUERIES] = p->sequence_piece[FCP_KEYS] = sequence_piece;
    p->piece_start[FCP_QUERIES] = p->piece_start[FCP_KEYS] = piece_start;
    if (!p->pieces || !p->blocks || !sequence_piece || !piece_start || !keys || !room || !bin_of || !first ||
        !bins_init(&b, scratch, block, rests))
        return FCP_E_NO_MEMORY;

    /* full blocks, in order of sequence and start; the remainders as (length descending, sequence ascending) */
    uint32_t at = 0, rest = 0, entry = 0;
    for (uint32_t s = 0; s < p->sequences; s++) {
        uint32_t m = (uint32_t)(p->lengths[s] / block);
        piece_start[s] = entry;
        for (uint32_t i = 0; i < m; i++, at++) {
            p->pieces[at] = (fcp_piece){.sequence = s, .length = block, .start = (uint64_t)i * block, .block = at};
            p->blocks[at] = (fcp_block){.first_piece = at, .pieces = 1, .tokens = block, .holds = FCP_HOLDS_BOTH};
            sequence_piece[entry++] = at;
        }
        uint32_t r = (uint32_t)(p->lengths[s] % block);
        if (r) {
            keys[rest++] = (uint64_t)(block - r) << 32 | s;
            entry++; /* filled below */
        }
    }
    piece_start[p->sequences] = entry;
    sort_u64(keys, room, rest);

    uint32_t shared = 0;
    for (uint32_t i = 0; i < rest; i++) {
        uint32_t length = block - (uint32_t)(keys[i] >> 32), space, bin = bins_take(&b, length, &space);
        if (bin == FCP_NONE) bin = shared++, space = block;
        bin_of[i] = bin;
        first[bin + 1]++;
        if (space > length) bins_put(&b, space - length, bin);
    }
    for (uint32_t i = 0; i < shared; i++) {
        p->blocks[at + i] = (fcp_block){.first_piece = at + first[i], .pieces = first[i + 1], .holds = FCP_HOLDS_BOTH};
        first[i + 1] += first[i];
    }
    for (uint32_t i = 0; i < rest; i++) { /* in packing order: `first` moves on as bins fill */
        uint32_t s = (uint32_t)keys[i], length = block - (uint32_t)(keys[i] >> 32), bin = bin_of[i];
        uint32_t piece = at + first[bin]++;
        fcp_block *blk = &p->blocks[at + bin];
        p->pieces[piece] = (fcp_piece){.sequence = s, .length = length, .start = p->lengths[s] - length,
                                       .offset = blk->tokens, .block = at + bin};
        blk->tokens += length;
        sequence_piece[piece_start[s + 1] - 1] = piece;
    }
    p->block_count = at + shared;
    return FCP_OK;
}

static uint64_t cut_at(uint64_t n, uint64_t i, uint64_t parts, uint64_t shift) {
    return (uint64_t)(((unsigned __int128)n * i + shift) / parts);
}

/* The pieces of each sequence, in order of start: they were made in that order. */
static fcp_code index_pieces(problem *p, arena *memory) {
    for (int side = 0; side < FCP_SIDES; side++) {
        if (side && !p->split) {
            p->sequence_piece[side] = p->sequence_piece[0];
            p->piece_start[side] = p->piece_start[0];
            continue;
        }
        uint32_t sum = 0, *piece = ARENA_NEW(memory, uint32_t, p->piece_count + (size_t)1);
        uint32_t *start = ARENA_ZNEW(memory, uint32_t, p->sequences + (size_t)1);
        if (!piece || !start) return FCP_E_NO_MEMORY;
        p->sequence_piece[side] = piece;
        p->piece_start[side] = start;
        for (uint32_t i = 0; i < p->piece_count; i++)
            start[p->pieces[i].sequence] += p->blocks[p->pieces[i].block].holds >> side & 1;
        for (uint32_t s = 0; s <= p->sequences; s++) {
            uint32_t c = s < p->sequences ? start[s] : 0;
            start[s] = sum;
            sum += c;
        }
        for (uint32_t i = 0; i < p->piece_count; i++)
            if (p->blocks[p->pieces[i].block].holds >> side & 1) piece[start[p->pieces[i].sequence]++] = i;
        for (uint32_t s = p->sequences; s > 0; s--) start[s] = start[s - 1];
        start[0] = 0;
    }
    return FCP_OK;
}

static fcp_code cut_evenly(problem *p, uint32_t per_rank, arena *plan, arena *memory, fcp_error *err) {
    uint64_t parts = (uint64_t)p->ranks * per_rank, pieces = 0;
    const int sides = p->split ? FCP_SIDES : 1;
    for (int side = 0; side < sides; side++)
        for (uint32_t s = 0; s < p->sequences; s++) {
            uint64_t n = problem_length(p, s, (fcp_side)side);
            pieces += n < parts ? n : parts;
        }
    if (pieces > UINT32_MAX / 4)
        return fcp_fail(err, FCP_E_PLAN_SIZE, "%u sequences cut in %llu parts are more pieces than a plan holds",
                        p->sequences, (unsigned long long)parts);
    p->pieces = ARENA_NEW(plan, fcp_piece, pieces + 1);
    p->blocks = ARENA_NEW(plan, fcp_block, parts * (uint64_t)sides);
    p->chunk = ARENA_NEW(memory, uint32_t, parts * (uint64_t)sides);
    if (!p->pieces || !p->blocks || !p->chunk) return FCP_E_NO_MEMORY;
    for (uint64_t at = 0; at < parts * (uint64_t)sides; at++) {
        uint64_t i = at / (uint64_t)sides;
        fcp_side side = (fcp_side)(at % (uint64_t)sides);
        fcp_block *blk = &p->blocks[p->block_count];
        *blk = (fcp_block){.first_piece = p->piece_count, .holds = p->split ? 1u << side : FCP_HOLDS_BOTH};
        uint64_t tokens = 0, before = 0;
        for (uint32_t s = 0; s < p->sequences; s++) {
            uint64_t n = problem_length(p, s, side), shift = p->split ? before % parts : 0;
            uint64_t start = cut_at(n, i, parts, shift), length = cut_at(n, i + 1, parts, shift) - start;
            before += n;
            if (!length) continue;
            if ((tokens += length) > INT32_MAX)
                return fcp_fail(err, FCP_E_PLAN_SIZE, "chunk %llu of %llu holds more than 2^31 tokens",
                                (unsigned long long)i, (unsigned long long)parts);
            p->pieces[p->piece_count++] =
                (fcp_piece){.sequence = s, .length = (uint32_t)length, .start = start,
                            .offset = (uint32_t)(tokens - length), .block = p->block_count};
            blk->pieces++;
        }
        blk->tokens = (uint32_t)tokens;
        if (blk->pieces) p->chunk[p->block_count++] = (uint32_t)i;
    }
    if (p->ranks > p->block_count)
        return fcp_fail(err, FCP_E_RANKS,
                        "%u ranks but only %u chunks with tokens: some rank would have nothing to hold", p->ranks,
                        p->block_count);
    return index_pieces(p, memory);
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* The parts of all sequences, in order of sequence, Q piece, K piece. */
typedef struct raw_parts {
    fcp_part *part;
    size_t count, room;
} raw_parts;

static bool raw_reserve(raw_parts *raw, size_t more, arena *scratch) {
    if (raw->room - raw->count >= more) return true;
    size_t room = raw->room * 2 > raw->count + more ? raw->room * 2 : raw->count + more;
    fcp_part *grown = ARENA_NEW(scratch, fcp_part, room);
    if (!grown) return false;
    if (raw->count) memcpy(grown, raw->part, raw->count * sizeof *grown);
    raw->part = grown;
    raw->room = room;
    return true;
}

static fcp_code classify(problem *p, cells *mask, raw_parts *raw, arena *scratch, cells_fault *fault, fcp_error *err) {
    uint64_t *cuts[FCP_SIDES] = {0};
    const uint32_t *piece[FCP_SIDES];
    uint32_t m[FCP_SIDES];
    const int sides = p->split ? FCP_SIDES : 1;
    for (int side = 0; side < sides; side++) {
        uint32_t longest = 0;
        for (uint32_t s = 0; s < p->sequences; s++) {
            uint32_t n = p->piece_start[side][s + 1] - p->piece_start[side][s];
            if (n > longest) longest = n;
        }
        if (!(cuts[side] = ARENA_NEW(scratch, uint64_t, longest + (size_t)1))) return FCP_E_NO_MEMORY;
    }
    if (!raw_reserve(raw, p->piece_count * (size_t)4 + 64, scratch)) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < p->sequences; s++) {
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
        p->sequence = s;
        fcp_code code = cells_grid(mask, &env, cuts[FCP_QUERIES], m[FCP_QUERIES], cuts[FCP_KEYS], m[FCP_KEYS], &entries,
                                   &count, fault);
        if (code) return fcp_fail(err, code, "%s", fcp_code_text(code));
        if (!raw_reserve(raw, count, scratch)) return FCP_E_NO_MEMORY;
        if (raw->count + count > UINT32_MAX / 2)
            return fcp_fail(err, FCP_E_PLAN_SIZE,
                            "the mask leaves more than 2^31 piece pairs; a larger block makes fewer");
        fcp_part *out = raw->part + raw->count;
        for (size_t e = 0; e < count; e++)
            out[e] = (fcp_part){piece[FCP_QUERIES][entries[e].q_piece], piece[FCP_KEYS][entries[e].k_piece],
                                entries[e].shape};
        raw->count += count;
    }
    p->shapes = cells_shapes(mask, &p->shape_count, &p->runs, &p->run_count);
    return FCP_OK;
}

static fcp_code gather_tiles(problem *p, const raw_parts *raw, arena *plan, arena *memory, arena *scratch) {
    size_t n = raw->count, most = 0;
    p->part_count = (uint32_t)n;
    p->parts = ARENA_NEW(plan, fcp_part, n + 1);
    p->tile_start = ARENA_NEW(memory, uint32_t, p->block_count + (size_t)1);
    p->tile_k = ARENA_NEW(memory, uint32_t, n + 1);
    p->tile_part = ARENA_NEW(memory, uint32_t, n + 2);
    p->tile_pairs = ARENA_NEW(memory, uint64_t, n + 1);
    p->work = ARENA_ZNEW(memory, uint64_t, p->block_count);
    uint32_t *start = ARENA_ZNEW(scratch, uint32_t, p->block_count + (size_t)2),
             *order = ARENA_NEW(scratch, uint32_t, n + 1);
    if (!p->parts || !p->tile_start || !p->tile_k || !p->tile_part || !p->tile_pairs || !p->work || !start || !order)
        return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++) start[p->pieces[raw->part[i].q_piece].block + 2]++;
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (start[b + 2] > most) most = start[b + 2];
        start[b + 2] += start[b + 1];
    }
    for (size_t i = 0; i < n; i++) order[start[p->pieces[raw->part[i].q_piece].block + 1]++] = (uint32_t)i;
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, most + 1), *room = ARENA_NEW(scratch, uint64_t, most + 1);
    if (!keys || !room) return FCP_E_NO_MEMORY;

    uint32_t tiles = 0, parts = 0;
    for (uint32_t b = 0; b < p->block_count; b++) {
        size_t m = start[b + 1] - start[b];
        uint32_t *mine = order + start[b];
        if (p->blocks[b].pieces > 1) { /* of one piece, they come in order */
            for (size_t i = 0; i < m; i++) keys[i] = (uint64_t)raw->part[mine[i]].q_piece << 32 | mine[i];
            sort_u64(keys, room, m);
            for (size_t i = 0; i < m; i++) mine[i] = (uint32_t)keys[i];
        }
        for (size_t i = 0; i < m; i++) keys[i] = (uint64_t)p->pieces[raw->part[mine[i]].k_piece].block << 32 | i;
        if (p->blocks[b].pieces > 1) sort_u64(keys, room, m);
        p->tile_start[b] = tiles;
        uint32_t last = FCP_NONE;
        for (size_t i = 0; i < m; i++) {
            uint32_t k = (uint32_t)(keys[i] >> 32);
            if (k != last) {
                p->tile_k[tiles] = last = k;
                p->tile_part[tiles] = parts;
                p->tile_pairs[tiles++] = 0;
            }
            p->parts[parts] = raw->part[mine[(uint32_t)keys[i]]];
            uint64_t pairs = p->shapes[p->parts[parts++].shape].pairs;
            p->tile_pairs[tiles - 1] += pairs;
            p->work[b] += pairs;
        }
        p->pairs += p->work[b];
        if (p->work[b] > p->heaviest) p->heaviest = p->work[b];
    }
    p->tile_start[p->block_count] = tiles;
    p->tile_part[tiles] = parts;
    p->tile_count = tiles;
    return FCP_OK;
}

fcp_code problem_build(const struct fcpc_program *program, const uint64_t *lengths, const uint64_t *queries,
                       size_t count, const binding *bound, uint32_t block, cells *mask, arena *plan, arena *memory,
                       arena *scratch, problem *out, cells_fault *fault, fcp_error *err) {
    *out = (problem){
        .program = program, .binding = bound, .ranks = program->nodes * program->gpus, .block = block, .unit = block};
    *fault = (cells_fault){0};
    problem *p = out;
    fcp_code code = check_lengths(p, lengths, queries, count, err);
    if (!code) code = check_size(p, err);
    if (code) return code;
    unsigned uses = mc_uses(program->mask);
    unsigned __int128 positions = 0;
    for (uint32_t s = 0; s < p->sequences; s++) positions += (unsigned __int128)p->queries[s] * lengths[s];
    if (uses & MC_USES_H) positions *= program->heads;
    if (positions > INT64_MAX)
        return fcp_fail(err, FCP_E_LENGTHS, "the sequences have more than 2^63 query-key positions together");
    p->positions = (uint64_t)positions;

    switch (program->strategy) {
    case FCP_STRATEGY_RING: code = cut_evenly(p, 1, plan, memory, err); break;
    case FCP_STRATEGY_ZIGZAG: code = cut_evenly(p, 2, plan, memory, err); break;
    default:
        code = p->split ? problem_cut_split(p, plan, memory, scratch, err) : cut_fixed(p, plan, memory, scratch, err);
        if (!code && p->split) code = index_pieces(p, memory);
        break;
    }
    if (!code && p->ranks > p->block_count)
        code = fcp_fail(err, FCP_E_RANKS,
                        "%u ranks but only %u blocks of %u tokens: some rank would have nothing to hold", p->ranks,
                        p->block_count, block);
    if (code) return code == FCP_E_NO_MEMORY ? fcp_fail(err, code, "out of memory") : code;
    uint32_t largest = 0;
    for (uint32_t b = 0; b < p->block_count; b++)
        for (int side = 0; side < FCP_SIDES; side++) {
            uint32_t tokens = p->blocks[b].holds >> side & 1 ? p->blocks[b].tokens : 0;
            if (tokens > p->max_block[side]) p->max_block[side] = tokens;
            if (tokens > largest) largest = tokens;
        }
    if (p->unit > largest) p->unit = largest;

    raw_parts raw = {0};
    code = classify(p, mask, &raw, scratch, fault, err);
    if (!code) code = gather_tiles(p, &raw, plan, memory, scratch);
    return code == FCP_E_NO_MEMORY ? fcp_fail(err, code, "out of memory") : code;
}
