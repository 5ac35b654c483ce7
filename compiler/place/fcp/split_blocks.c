/* split_blocks.c: divides blocks that are too heavy for one rank among several, each of which computes with some keys.
 *
 * Requires: a problem with its tiles, with as many queries as keys; what place_fcp requires.
 * Gives: homes as place_fcp chooses them, and a rank for each tile. A Q block with more work than a rank may have is
 *     cut along its tiles into parts of about equal work, each within the limit. Each part has one rank. The block's
 *     home is the rank of its last part, which has the block's own keys. If that is not worth it, nothing changes.
 * Cost: that of place_fcp, and O(tiles); up to CUTTINGS times that, where balance is out of reach with few parts.
 * Units: pairs.
 *
 * Example: 1,024 ranks; the last block of a sequence of 300,000 tokens has 3.6 times the mean work. It becomes six
 * parts. Its Q goes to five other ranks, and five states come back.
 *
 * How. place_fcp sees each part as a block. Such a block has the reads of its tiles, and no tokens, because those are
 * at the block's home. So parts of neighbouring blocks that read the same keys are kept together as whole blocks are,
 * and ranks with heavy parts are filled up with light blocks.
 *
 * Whether. Where sequences are short, moving the parts may take longer than the work that they save. So the placements
 * with and without parts are weighed (weigh_placement.c). If whole blocks are faster by more than a margin, they stay
 * whole, though they are not balanced. There is a margin because weighing makes parts look slower than they are. It
 * does not know that stages hide some of what parts move, nor that the keys which a heavy rank waits for are hidden
 * less well.
 */
#include <string.h>

#include "compiler/place/fcp/fcp_parts.h"
#include "compiler/place/fcp/place_fcp.h"
#include "compiler/problem/problem.h"

/* The most work that a rank should have: (1 + tolerance) times the mean. */
static uint64_t limit_of(const planning *x) {
    unsigned __int128 mean = x->problem->pairs / program_places(x->program);
    return (uint64_t)(mean + mean * x->program->tolerance / 1000000);
}

/* A way of cutting: blocks with more than `most` work are cut into parts of at most `size` work. Both are in twelfths
 * of the limit. */
typedef struct cutting {
    uint64_t most, size;
} cutting;

/* The ways of cutting, tried in this order until the ranks are balanced. Parts of two thirds of the limit leave room to
 * fill up with lighter blocks. If there are too few lighter blocks, more blocks are cut, into smaller parts. */
static const cutting cuttings[] = {{12, 8}, {8, 6}, {6, 4}, {4, 3}, {2, 2}};
enum { CUTTINGS = sizeof cuttings / sizeof *cuttings };

static uint64_t parts_of(uint64_t work, uint64_t limit, const cutting *c) {
    uint64_t size = limit / 12 * c->size;
    return work > limit / 12 * c->most && size ? work / size + 1 : 1;
}

bool place_splits(const planning *x) {
    const problem *p = x->problem;
    const uint32_t ranks = program_places(x->program);
    return x->program->split && x->program->place == PLACE_NEAR && !p->split && ranks > 1 &&
           p->block_count / SPLIT_LEAST_BLOCKS >= ranks && p->heaviest > limit_of(x);
}

/* Cuts the blocks in this way and places them. exec: the rank that computes each tile. out_most: the work of the
 * busiest rank. */
static fcp_code place_parts(planning *x, const place_input *in, const cutting *c, uint64_t limit, uint32_t *home,
                            uint32_t *exec, uint64_t *out_most) {
    const problem *p = x->problem;
    arena *scratch = &x->scratch;
    uint64_t extra = 0;
    for (uint32_t b = 0; b < p->block_count; b++) extra += parts_of(in->work[b], limit, c) - 1;
    if (p->block_count + extra > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    size_t most = p->block_count + (size_t)extra, reads = in->reads_start[p->block_count];
    uint32_t *tokens = ARENA_ZNEW(scratch, uint32_t, most), *start = ARENA_NEW(scratch, uint32_t, most + 1);
    uint32_t *part_of = ARENA_NEW(scratch, uint32_t, p->tile_count + (size_t)1);
    uint32_t *read = ARENA_NEW(scratch, uint32_t, reads + 1);
    uint64_t *work = ARENA_ZNEW(scratch, uint64_t, most);
    uint32_t *part_home = ARENA_NEW(scratch, uint32_t, most), parts = p->block_count, at = 0;
    if (!tokens || !start || !read || !part_of || !work || !part_home) return FCP_E_NO_MEMORY;
    memcpy(tokens, in->tokens, p->block_count * sizeof *tokens);
    /* Cuts each block. A tile goes to the part in which the middle of its work lies, counted from the block's first
     * tile on. The last part is the block itself. */
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint64_t count = parts_of(in->work[b], limit, c), before = 0;
        for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++) {
            uint64_t middle = before + p->tile_pairs[t] / 2;
            uint64_t part = in->work[b] ? (uint64_t)((unsigned __int128)middle * count / in->work[b]) : 0;
            before += p->tile_pairs[t];
            part_of[t] = part + 1 >= count ? b : parts + (uint32_t)part;
            work[part_of[t]] += p->tile_pairs[t];
        }
        parts += (uint32_t)count - 1;
    }
    for (uint32_t b = 0; b < p->block_count; b++) { /* what blocks read, and then what parts read */
        start[b] = at;
        for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++)
            if (part_of[t] == b) read[at++] = p->tile_k[t];
    }
    for (uint32_t b = 0, part = p->block_count; b < p->block_count; b++) {
        uint32_t t = p->tile_start[b];
        for (uint64_t k = parts_of(in->work[b], limit, c); k > 1; k--, part++) {
            start[part] = at;
            for (; t < p->tile_start[b + 1] && part_of[t] == part; t++) read[at++] = p->tile_k[t];
        }
    }
    start[parts] = at;
    place_input divided = *in;
    divided.blocks = parts, divided.tokens = tokens, divided.work = work;
    divided.reads_start = start, divided.reads = read;
    fcp_code code = place_fcp(&divided, scratch, part_home);
    if (code) return code;
    memcpy(home, part_home, p->block_count * sizeof *home);
    for (uint32_t t = 0; t < p->tile_count; t++) exec[t] = part_home[part_of[t]];
    uint64_t *load = ARENA_NEW(scratch, uint64_t, p->ranks);
    if (load) *out_most = place_loads(p, home, exec, load);
    return load ? FCP_OK : FCP_E_NO_MEMORY;
}

/* Tries the ways of cutting and keeps the best: the homes, and the rank that computes each tile. */
static fcp_code place_best(planning *x, const place_input *in, uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const uint64_t limit = limit_of(x);
    uint32_t *other_home = ARENA_NEW(&x->scratch, uint32_t, p->block_count);
    uint32_t *other = ARENA_NEW(&x->scratch, uint32_t, p->tile_count + (size_t)1);
    uint64_t best = UINT64_MAX, most;
    if (!other_home || !other) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < CUTTINGS && best > limit; i++) {
        fcp_code code = place_parts(x, in, &cuttings[i], limit, other_home, other, &most);
        if (code) return code;
        if (most >= best) continue;
        best = most;
        memcpy(home, other_home, p->block_count * sizeof *home);
        memcpy(exec, other, p->tile_count * sizeof *exec);
    }
    return FCP_OK;
}

fcp_code place_split(planning *x, const place_input *in, uint32_t *home) {
    const problem *p = x->problem;
    uint32_t *split_home = ARENA_NEW(&x->scratch, uint32_t, p->block_count);
    uint32_t *exec = ARENA_NEW(&x->work, uint32_t, p->tile_count + (size_t)1);
    uint64_t whole, split;
    if (!split_home || !exec) return FCP_E_NO_MEMORY;
    fcp_code code = place_best(x, in, split_home, exec);
    if (!code) code = place_weigh(x, home, NULL, &whole);
    if (!code) code = place_weigh(x, split_home, exec, &split);
    if (code || split - split / (SPLIT_MARGIN + 1) > whole) return code;
    memcpy(home, split_home, p->block_count * sizeof *home);
    x->tile_rank = exec;
    return FCP_OK;
}
