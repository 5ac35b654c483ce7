/* room.c: refuses a batch whose tiles do not fit into memory, before the memory is taken.
 *
 * Requires: a problem with its pieces; the mask.
 * Gives: a lower bound of the number of parts (pairs of pieces with an allowed pair of tokens). Because it is a lower
 *     bound, no batch is refused that would fit.
 * Cost: nothing for most batches; else that of counting the mask's pairs, which is little if the mask is decided for
 *     whole boxes. If pairs would have to be looked at one by one, nothing is counted.
 *
 * Example: 2,048 sequences of 4,096 tokens, causal, in zigzag over 256 ranks. Each sequence is cut into 512 pieces of 8
 * tokens, and has 8,390,656 pairs of tokens. A part has at most 8 x 8 = 64 of them. So each sequence has at least
 * 131,104 parts, and the batch 268 million.
 */
#include <sys/resource.h>
#include <unistd.h>

#include "compiler/base/sort.h"
#include "compiler/problem/problem.h"

enum {
    MANY = 1 << 25, /* pairs of pieces: fewer always fit */
    /* tiles.c: the part as it is found and as it is kept, the arrays that sort parts, and a tile's numbers */
    PART_BYTES = 2 * sizeof(fcp_part) + 5 * sizeof(uint32_t) + sizeof(uint64_t),
    /* the tile and its visit in the plan, and its entries in the arrays of later passes; where work moves, of lists by
     * rank, too */
    TILE_BYTES = sizeof(fcp_tile) + sizeof(fcp_visit) + 4 * sizeof(uint32_t),
    MOVED_BYTES = 16 * sizeof(uint32_t)
};

/* Lower bounds. */
typedef struct amounts {
    uint64_t parts, tiles;
} amounts;

static uint64_t pieces_of(const problem *p, uint32_t s, fcp_side side) {
    return p->piece_start[side][s + 1] - p->piece_start[side][s];
}

/* How long the pieces of one side of a sequence are.
 *   long_ones  the tokens of its few longest pieces together
 *   shared     the tokens of pieces that share a block
 *   longest    the length of the longest piece that is not one of those few */
typedef struct lengths {
    uint64_t long_ones, shared, longest;
} lengths;

/* Finds the lengths of the pieces of one side of sequence s. room: for twice as many numbers as it has pieces. */
static lengths lengths_of(const problem *p, uint32_t s, fcp_side side, uint64_t *room) {
    enum { FEW = 64 }; /* one of so many is long: where chunks of equal length meet, some pieces are twice as long */
    const uint64_t count = pieces_of(p, s, side);
    const uint32_t *piece = p->sequence_piece[side] + p->piece_start[side][s];
    lengths of = {0, 0, 1};
    for (uint64_t i = 0; i < count; i++) {
        const fcp_piece *c = &p->pieces[piece[i]];
        room[i] = UINT64_MAX - c->length;
        if (p->blocks[c->block].pieces > 1) of.shared += c->length;
    }
    sort_u64(room, room + count, count);
    for (uint64_t i = 0; i < count / FEW; i++) of.long_ones += UINT64_MAX - room[i];
    if (count) of.longest = UINT64_MAX - room[count / FEW];
    return of;
}

/* Returns a lower bound of how many parts (a piece of queries and a piece of keys) hold `pairs` pairs of tokens. Some
 * parts are not counted, such as those of the few longest pieces, which would make the bound low. At most `held` pairs
 * lie in them; the others lie in parts of at most q->longest * k->longest pairs. */
static uint64_t least_for(uint64_t pairs, uint64_t held, const lengths *q, const lengths *k) {
    const uint64_t most = q->longest * k->longest;
    return pairs > held ? (pairs - held + most - 1) / most : 0;
}

/* Adds the parts and tiles that a sequence has at least. Tiles: a part counts as one only if neither of its pieces
 * shares its block with other pieces, since parts of shared blocks may lie in one tile. */
static void add_sequence(const problem *p, uint32_t s, uint64_t pairs, uint64_t *room, amounts *sum) {
    const uint64_t queries = problem_length(p, s, FCP_QUERIES), keys = problem_length(p, s, FCP_KEYS);
    const lengths q = lengths_of(p, s, FCP_QUERIES, room), k = lengths_of(p, s, FCP_KEYS, room);
    const uint64_t held = q.long_ones * keys + k.long_ones * queries;
    sum->parts += least_for(pairs, held, &q, &k);
    sum->tiles += least_for(pairs, held + q.shared * keys + k.shared * queries, &q, &k);
}

/* How many bytes of memory this process may have; 0: unknown. */
static uint64_t memory_here(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY && (!bytes || limit.rlim_cur < bytes))
        bytes = limit.rlim_cur;
    return bytes;
}

/* Counts how many parts and tiles the batch has at least. *out is left as it is if pairs would have to be looked at one
 * by one, or if the mask faults, which is reported when tiles are made. */
static fcp_code count_least(planning *x, amounts *out) {
    const problem *p = x->problem;
    uint64_t most = 1;
    amounts sum = {0, 0};
    for (int side = 0; side < FCP_SIDES; side++)
        for (uint32_t s = 0; s < p->sequences; s++)
            if (pieces_of(p, s, (fcp_side)side) > most) most = pieces_of(p, s, (fcp_side)side);
    uint64_t *room = ARENA_NEW(&x->scratch, uint64_t, 2 * most);
    if (!room) return FCP_E_NO_MEMORY;
    fcp_code known = problem_look_ahead(x);
    if (known || x->outlook.pairs) return known;
    for (uint32_t s = 0; s < p->sequences; s++) {
        const mc_env env = problem_env(p, s);
        cells_counts counts;
        cells_fault fault = {0};
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        fcp_code code = cells_count(x->cells, &env, &counts, &fault);
        if (fault.kind != MC_OK) return FCP_OK;
        if (code) return code;
        add_sequence(p, s, counts.pairs, room, &sum);
    }
    *out = sum;
    return FCP_OK;
}

fcp_code problem_check_room(planning *x, uint64_t *out_parts) {
    const problem *p = x->problem;
    amounts least = {0, 0};
    uint64_t pairs = 0;
    *out_parts = 0;
    for (uint32_t s = 0; s < p->sequences; s++) pairs += pieces_of(p, s, FCP_QUERIES) * pieces_of(p, s, FCP_KEYS);
    if (pairs < MANY) return FCP_OK;
    fcp_code code = count_least(x, &least);
    const uint64_t tile = TILE_BYTES + (x->division ? MOVED_BYTES : 0);
    const uint64_t here = memory_here(), need = least.parts * PART_BYTES + least.tiles * tile;
    *out_parts = least.parts;
    if (code || !here || need <= here) return code;
    code = planning_fail(x, FCP_E_NO_MEMORY, planning_size_span(x),
                         "the mask leaves at least %llu pairs of the %u pieces into which the batch is cut; to plan "
                         "them takes %.1f GB, and here are %.1f GB",
                         (unsigned long long)least.parts, p->piece_count, (double)need / 1e9, (double)here / 1e9);
    if (!p->chunk)
        diag_hint(x->d, "with larger blocks there are fewer pairs of them");
    else
        diag_hint(x->d,
                  "ring and zigzag cut every sequence for all ranks: strategy = fcp and cad(base = caller) cut blocks");
    return code;
}
