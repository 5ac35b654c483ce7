/* balance_masks.c: changes homes so that work is balanced under several masks at once, by local search.
 *
 * Requires: homes that are balanced under the first mask; the work of each block under each mask; for each mask a cap
 *     on a rank's work.
 * Gives: homes under which no rank is over a cap, as far as the moves below reach that. No step brings a rank over the
 *     first mask's cap, or over the cap on tokens.
 * Cost: for each step, O(MASKS_PARTNERS x blocks of a rank, squared) for each mask. At most as many steps as blocks.
 * Units: pairs of each mask; tokens. The excess over a cap is in 2^20ths of the cap, so that masks can be compared.
 *
 * Example: under a causal mask the end of a long sequence is most of a rank's work, so its rank holds few other tokens.
 * Under a window all tokens are alike, and that rank has half the work of others. The first blocks of long sequences
 * are little work under the causal mask: when some of them move to that rank, both masks are balanced.
 *
 * One step:
 *   1. Take the rank with most excess, summed over the masks.
 *   2. Its partners are the ranks with least work under the mask whose cap it exceeds most.
 *   3. It gives a block to a partner, and may take one of the partner's for it. Of all these exchanges, the one is made
 *      that takes away most of the excess of the two ranks.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"

typedef struct evening {
    const place_input *in;
    const place_masks *m;
    uint64_t *load, *held; /* load[mask * ranks + rank] */
    uint64_t token_cap;
    uint32_t *home, *start, *block; /* the blocks of each rank */
    uint8_t *stuck;
    uint64_t *scale; /* per mask: 2^44 over the cap without its last `shift` bits */
    uint32_t *shift;
} evening;

/* An exchange: the rank gives block `give` to rank `with` and gets block `take`. FCP_NONE: no block. */
typedef struct exchange {
    uint32_t give, take, with;
    uint64_t less; /* how much excess of both ranks that takes away */
} exchange;

/* How far a rank with this work is over a mask's cap, in 2^20ths of the cap. */
static uint64_t over(const evening *e, uint32_t mask, uint64_t load) {
    return load > e->m->cap[mask] ? ((load - e->m->cap[mask]) >> e->shift[mask]) * e->scale[mask] >> 24 : 0;
}

/* The work of rank r under mask i, if `out` leaves it and `in` comes. */
static uint64_t load_with(const evening *e, uint32_t i, uint32_t r, uint32_t out, uint32_t in) {
    uint64_t load = e->load[(size_t)i * e->in->ranks + r];
    if (out != FCP_NONE) load -= e->m->work[i][out];
    return in == FCP_NONE ? load : load + e->m->work[i][in];
}

static uint64_t excess_with(const evening *e, uint32_t r, uint32_t out, uint32_t in) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->m->masks; i++) sum += over(e, i, load_with(e, i, r, out, in));
    return sum;
}

/* May rank r give block `out` and get block `in`? It must then be within the caps on tokens and on the first mask's
 * work, or at least not further over them than before. */
static bool is_allowed(const evening *e, uint32_t r, uint32_t out, uint32_t in) {
    const uint32_t *tokens = e->in->tokens;
    const uint64_t held = e->held[r] - (out == FCP_NONE ? 0 : tokens[out]) + (in == FCP_NONE ? 0 : tokens[in]);
    const uint64_t load = load_with(e, 0, r, out, in);
    return (held <= e->token_cap || held <= e->held[r]) && (load <= e->m->cap[0] || load <= e->load[r]);
}

/* The rank with most excess, of those that are not stuck. FCP_NONE: no rank is over a cap. */
static uint32_t find_worst(const evening *e) {
    uint32_t worst = FCP_NONE;
    uint64_t most = 0;
    for (uint32_t r = 0; r < e->in->ranks; r++) {
        const uint64_t excess = e->stuck[r] ? 0 : excess_with(e, r, FCP_NONE, FCP_NONE);
        if (excess > most) most = excess, worst = r;
    }
    return worst;
}

/* The ranks with least work under the mask that r exceeds most. Returns how many. */
static uint32_t find_partners(const evening *e, uint32_t r, uint32_t out[MASKS_PARTNERS]) {
    uint32_t mask = 0, count = 0;
    for (uint32_t i = 1; i < e->m->masks; i++)
        if (over(e, i, e->load[(size_t)i * e->in->ranks + r]) > over(e, mask, e->load[(size_t)mask * e->in->ranks + r]))
            mask = i;
    const uint64_t *load = e->load + (size_t)mask * e->in->ranks;
    for (uint32_t with = 0; with < e->in->ranks; with++) {
        if (with == r || (count == MASKS_PARTNERS && load[with] >= load[out[MASKS_PARTNERS - 1]])) continue;
        uint32_t i = count < MASKS_PARTNERS ? count++ : MASKS_PARTNERS - 1;
        for (; i > 0 && load[with] < load[out[i - 1]]; i--) out[i] = out[i - 1];
        out[i] = with;
    }
    return count;
}

/* Looks for exchanges of rank r with this partner. Sets *best to the one that takes away most excess, if that is more
 * than *best takes away. */
static void try_partner(const evening *e, uint32_t r, uint32_t with, exchange *best) {
    const uint64_t before = excess_with(e, r, FCP_NONE, FCP_NONE) + excess_with(e, with, FCP_NONE, FCP_NONE);
    for (uint32_t i = e->start[r]; i < e->start[r + 1]; i++)
        for (uint32_t k = e->start[with]; k <= e->start[with + 1]; k++) { /* behind its last block: it gives nothing */
            const uint32_t give = e->block[i], take = k < e->start[with + 1] ? e->block[k] : FCP_NONE;
            if (!is_allowed(e, r, give, take) || !is_allowed(e, with, take, give)) continue;
            const uint64_t after = excess_with(e, r, give, take) + excess_with(e, with, take, give);
            if (after + best->less < before) *best = (exchange){give, take, with, before - after};
        }
}

static void move_block(evening *e, uint32_t b, uint32_t to) {
    const uint32_t from = e->home[b];
    for (uint32_t i = 0; i < e->m->masks; i++) {
        e->load[(size_t)i * e->in->ranks + from] -= e->m->work[i][b];
        e->load[(size_t)i * e->in->ranks + to] += e->m->work[i][b];
    }
    e->held[from] -= e->in->tokens[b];
    e->held[to] += e->in->tokens[b];
    e->home[b] = to;
}

static bool list_blocks_of_ranks(evening *e) {
    return group_by(e->home, sizeof *e->home, e->in->blocks, e->in->ranks, e->start, e->block, e->in->stop);
}

static fcp_code even_out(evening *e) {
    for (uint32_t step = 0; step < e->in->blocks; step++) {
        uint32_t partner[MASKS_PARTNERS];
        exchange best = {.give = FCP_NONE};
        if (!list_blocks_of_ranks(e)) return FCP_E_INTERRUPTED;
        const uint32_t r = find_worst(e);
        if (r == FCP_NONE) return FCP_OK;
        const uint32_t count = find_partners(e, r, partner);
        for (uint32_t i = 0; i < count; i++) try_partner(e, r, partner[i], &best);
        if (best.give == FCP_NONE) {
            e->stuck[r] = 1;
            continue;
        }
        move_block(e, best.give, best.with);
        if (best.take != FCP_NONE) move_block(e, best.take, r);
        e->stuck[best.with] = 0;
    }
    return FCP_OK;
}

fcp_code place_for_masks(const place_input *in, const place_masks *masks, arena *scratch, uint32_t *home) {
    const size_t n = in->blocks + (size_t)1;
    evening e = {.in = in, .m = masks, .home = home, .token_cap = place_token_cap(in),
                 .load = ARENA_ZNEW(scratch, uint64_t, (size_t)masks->masks * in->ranks),
                 .held = ARENA_ZNEW(scratch, uint64_t, in->ranks),
                 .start = ARENA_NEW(scratch, uint32_t, in->ranks + (size_t)2),
                 .block = ARENA_NEW(scratch, uint32_t, n), .stuck = ARENA_ZNEW(scratch, uint8_t, in->ranks)};
    e.scale = ARENA_NEW(scratch, uint64_t, masks->masks);
    e.shift = ARENA_NEW(scratch, uint32_t, masks->masks);
    if (!e.load || !e.held || !e.start || !e.block || !e.stuck || !e.scale || !e.shift) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < masks->masks; i++) {
        const uint64_t cap = masks->cap[i] ? masks->cap[i] : 1;
        for (e.shift[i] = 0; cap >> e.shift[i] >> 31; ) e.shift[i]++;
        e.scale[i] = (UINT64_C(1) << 44) / (cap >> e.shift[i]);
    }
    for (uint32_t b = 0; b < in->blocks; b++) {
        for (uint32_t i = 0; i < masks->masks; i++) e.load[(size_t)i * in->ranks + home[b]] += masks->work[i][b];
        e.held[home[b]] += in->tokens[b];
    }
    return even_out(&e);
}
