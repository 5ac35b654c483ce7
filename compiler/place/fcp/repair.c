/* repair.c: exchanges blocks between ranks until none is over the limit (local search); and the lists of each rank's
 * blocks that exchanges work on.
 *
 * Requires: a home for every block; left and room of every rank (left < 0: it is over the limit).
 * Gives: the placement with a few blocks exchanged. Fewer ranks are over the limit, the busiest is less busy, the token
 *     cap is kept, and few transfers are added. Afterwards no rank is without a block while another has two.
 * Cost: a bounded number of looks, each linear in the blocks of two ranks; nothing if no rank is over the limit.
 * Units: work in 1 / PLACE_ONE of the limit, tokens; prices in transfers.
 *
 * Example: a rank is over the limit by 5, and a partner can take 8 more. A block of 20 for one of 14 relieves the rank
 * by 6, and the partner stays within the limit.
 *
 * One exchange. A rank is over the limit by e, and a partner can take f more.
 *   1. Look for a block a of the rank and a block b of the partner (or none) with e <= work(a) - work(b) <= f. Both
 *      lists are by falling work, so the candidates for b form a sliding window, which only moves forward as a
 *      advances.
 *   2. If some exchanges end the excess, make the one that adds fewest transfers. If none does, make the one that
 *      relieves the rank most.
 *
 * Which partners. They are tried by falling room. In each round a rank tries twice as many partners as in the round
 * before, if it finds little.
 * Later rounds also take exchanges that leave the partner over the limit, but by less than the rank was. So the excess
 * wanders to where it can be absorbed. The last rounds exchange up to two blocks for two.
 */
#include <string.h>

#include "compiler/place/fcp/fcp_parts.h"
#include "compiler/base/sort.h"

enum { MAX_SUMS = 1024 };

typedef struct repair {
    place_state *s;
    place_lists *l;
    uint64_t looks; /* left to spend */
} repair;

/* An exchange: one or two blocks of a rank (a), for none to two blocks of a partner (b). */
typedef struct swap {
    uint32_t a[2], b[2], partner; /* FCP_NONE: none */
    int64_t relief, price;
} swap;

static const swap NO_SWAP = {{FCP_NONE, FCP_NONE}, {FCP_NONE, FCP_NONE}, FCP_NONE, 0, 0};

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* Puts b into the list of r. The first PLACE_MAX_HELD blocks of a list are in order; those behind them need not be. */
static void insert_block(place_state *s, place_lists *l, uint32_t b, uint32_t r) {
    uint32_t before = FCP_NONE, after = l->head[r];
    for (uint32_t i = 0; after != FCP_NONE && s->work[after] > s->work[b] && i < PLACE_MAX_HELD; i++) {
        before = after;
        after = l->next[after];
    }
    l->previous[b] = before;
    l->next[b] = after;
    if (before != FCP_NONE) l->next[before] = b;
    else l->head[r] = b;
    if (after != FCP_NONE) l->previous[after] = b;
    s->home[b] = r;
}

fcp_code place_lists_init(place_lists *l, place_state *s, arena *scratch) {
    uint32_t n = s->in->blocks;
    l->head = ARENA_NEW(scratch, uint32_t, s->in->ranks);
    l->next = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    l->previous = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, n), *other = ARENA_NEW(scratch, uint64_t, n);
    if (!l->head || !l->next || !l->previous || !keys || !other) return FCP_E_NO_MEMORY;
    memset(l->head, 0xff, s->in->ranks * sizeof *l->head);
    for (uint32_t b = 0; b < n; b++) keys[b] = (uint64_t)s->work[b] << 32 | b;
    sort_u64(keys, other, n);
    for (uint32_t i = 0; i < n; i++) insert_block(s, l, (uint32_t)keys[i], s->home[(uint32_t)keys[i]]);
    return FCP_OK;
}

void place_move(place_state *s, place_lists *l, uint32_t b, uint32_t to) {
    uint32_t from = s->home[b], t = s->in->tokens[b];
    if (l->previous[b] != FCP_NONE) l->next[l->previous[b]] = l->next[b];
    else l->head[from] = l->next[b];
    if (l->next[b] != FCP_NONE) l->previous[l->next[b]] = l->previous[b];
    insert_block(s, l, b, to);
    s->left[from] += s->work[b];
    s->room[from] += t;
    s->left[to] -= s->work[b];
    s->room[to] -= t;
}

uint32_t place_gather(const place_lists *l, uint32_t r, uint32_t *out) {
    uint32_t count = 0;
    for (uint32_t b = l->head[r]; b != FCP_NONE && count < PLACE_MAX_HELD; b = l->next[b]) out[count++] = b;
    return count;
}

/* Estimates how many of the KV blocks that b reads are also read by other blocks of rank r. It takes the one block of r
 * that shares most with b; several blocks together may share more. `without` does not count. */
static uint32_t covered(const place_state *s, const place_lists *l, uint32_t b, uint32_t r, uint32_t without) {
    uint32_t most = 0;
    for (uint32_t y = l->head[r]; y != FCP_NONE; y = l->next[y]) {
        if (y == b || y == without || s->cluster[y] != s->cluster[b]) continue;
        uint32_t common = place_overlap(s, b, y);
        if (common > most) most = common;
    }
    return most;
}

int64_t place_price(const place_state *s, const place_lists *l, uint32_t a, uint32_t ra, uint32_t b, uint32_t rb) {
    int64_t more = (int64_t)covered(s, l, a, ra, FCP_NONE) - covered(s, l, a, rb, b);
    if (b != FCP_NONE) more += (int64_t)covered(s, l, b, rb, FCP_NONE) - covered(s, l, b, ra, a);
    return more;
}

/* --- balance ------------------------------------------------------------------------------------------------------ */

/* A rank over the limit. */
typedef struct excess {
    uint32_t rank, count;
    int64_t over;                   /* by how much */
    uint32_t mine[PLACE_MAX_HELD];  /* its blocks, by falling work */
    const uint64_t *sums;           /* of none, one or two of them: list_sums */
    uint32_t sum_count;
} excess;

/* Looks for an exchange of one block for one block, or for nothing, that is better than *best. room: the work that the
 * partner can take. */
static void try_blocks(const repair *x, const excess *e, uint32_t partner, int64_t room, swap *best) {
    const place_state *s = x->s;
    const uint32_t r = e->rank, *mine = e->mine;
    const int64_t over = e->over;
    const uint32_t *tokens = s->in->tokens;
    uint32_t theirs[PLACE_MAX_HELD], held = place_gather(x->l, partner, theirs), prices = 4, j = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t a = mine[i];
        while (j < held && s->work[a] - s->work[theirs[j]] <= room) j++; /* theirs[j ..] are too light for a */
        while (j > 0 && s->work[a] - s->work[theirs[j - 1]] > room) j--;
        uint32_t looks = 3, from = s->work[a] <= room ? held + 1 : j;
        for (uint32_t k = from; k-- > 0 && looks;) { /* k == held: nothing in return */
            uint32_t b = k == held ? FCP_NONE : theirs[k];
            int64_t relief = s->work[a] - (b == FCP_NONE ? 0 : s->work[b]);
            int64_t more = (int64_t)tokens[a] - (b == FCP_NONE ? 0 : tokens[b]);
            if (relief <= 0 || (relief < over && best->relief >= relief)) break;
            if (more > s->room[partner] || -more > s->room[r]) continue;
            looks--;
            if (relief < over) {
                *best = (swap){{a, FCP_NONE}, {b, FCP_NONE}, partner, relief, 0};
                break;
            }
            if (!prices) break;
            int64_t price = place_price(s, x->l, a, r, b, partner);
            prices--;
            if (best->relief < over || price < best->price)
                *best = (swap){{a, FCP_NONE}, {b, FCP_NONE}, partner, relief, price};
        }
    }
}

/* Lists all choices of none, one or two of these blocks, by rising work. Each choice is a number: the upper 44 bits are
 * the work, the lower 20 say which blocks it has (10 bits each; 1023: none). Returns how many. */
static uint32_t list_sums(const place_state *s, const uint32_t *blocks, uint32_t count, uint64_t *out,
                          uint64_t *other) {
    uint32_t n = 0;
    if (count > 44) count = 44; /* 1 + 44 + 44 * 43 / 2 < MAX_SUMS */
    out[n++] = 1023 << 10 | 1023;
    for (uint32_t i = 0; i < count; i++) out[n++] = (uint64_t)s->work[blocks[i]] << 20 | 1023 << 10 | i;
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            out[n++] = (uint64_t)(s->work[blocks[i]] + s->work[blocks[j]]) << 20 | i << 10 | j;
    sort_u64(out, other, n);
    return n;
}

/* Reads which blocks a choice of list_sums has; returns their tokens. */
static int64_t read_sum(const place_state *s, const uint32_t *blocks, uint64_t sum, uint32_t out[2]) {
    uint32_t i = sum >> 10 & 1023, j = sum & 1023;
    out[0] = j == 1023 ? FCP_NONE : blocks[j];
    out[1] = i == 1023 ? FCP_NONE : blocks[i];
    return (j == 1023 ? 0 : (int64_t)s->in->tokens[blocks[j]]) + (i == 1023 ? 0 : (int64_t)s->in->tokens[blocks[i]]);
}

/* Looks for an exchange of up to two blocks for up to two that is better than *best. It takes the first one that ends
 * the excess; if there is none, the one that relieves the rank most. */
static void try_pairs(const repair *x, const excess *e, uint32_t partner, int64_t room, uint64_t *scratch,
                      swap *best) {
    const place_state *s = x->s;
    const uint64_t *sums = e->sums;
    uint32_t theirs[PLACE_MAX_HELD], held = place_gather(x->l, partner, theirs), from = 0;
    uint64_t *other = scratch, *sort = scratch + MAX_SUMS;
    uint32_t count = list_sums(s, theirs, held, other, sort);
    for (uint32_t i = 0; i < e->sum_count && best->relief < e->over; i++) {
        int64_t work = (int64_t)(sums[i] >> 20);
        while (from < count && work - (int64_t)(other[from] >> 20) > room) from++;
        for (uint32_t k = from, looks = 4; k < count && looks; k++) {
            int64_t relief = work - (int64_t)(other[k] >> 20);
            if (relief <= best->relief) break;
            swap w = {.partner = partner, .relief = relief};
            int64_t more = read_sum(s, e->mine, sums[i], w.a) - read_sum(s, theirs, other[k], w.b);
            looks--;
            if (more > s->room[partner] || -more > s->room[e->rank]) continue;
            *best = w;
            break;
        }
    }
}

static void apply(repair *x, uint32_t r, const swap *w) {
    for (unsigned i = 0; i < 2; i++) {
        if (w->a[i] != FCP_NONE) place_move(x->s, x->l, w->a[i], w->partner);
        if (w->b[i] != FCP_NONE) place_move(x->s, x->l, w->b[i], r);
    }
}

/* Makes one exchange that relieves rank r; false: there is none. */
static bool relieve(repair *x, uint32_t r, const uint64_t *by_room, uint32_t ranks, uint32_t round, uint64_t *sums) {
    place_state *s = x->s;
    uint32_t tried = 0;
    const int64_t over = -s->left[r];
    excess e = {.rank = r, .over = over};
    e.count = place_gather(x->l, r, e.mine);
    swap best = NO_SWAP;
    for (uint32_t k = 0; k < ranks && tried < (uint32_t)REPAIR_PARTNERS << round && x->looks; k++) {
        uint32_t partner = (uint32_t)by_room[k];
        int64_t room = s->left[partner] + (round >= REPAIR_LOOSE_ROUND ? over / 2 : 0);
        if (room <= 0 || partner == r) continue;
        tried++;
        x->looks--;
        try_blocks(x, &e, partner, room, &best);
        if (best.relief >= over && best.price <= 0) break;
        if (tried >= REPAIR_PARTNERS && best.relief >= over / 4) break;
    }
    if (best.relief < over && round >= REPAIR_PAIR_ROUND) {
        e.sums = sums;
        e.sum_count = list_sums(s, e.mine, e.count, sums, sums + MAX_SUMS);
        tried = 0;
        for (uint32_t k = 0; k < ranks && tried < REPAIR_PAIR_PARTNERS && x->looks && best.relief < over; k++) {
            uint32_t partner = (uint32_t)by_room[k];
            int64_t room = s->left[partner] + (round >= REPAIR_LOOSE_ROUND ? over / 2 : 0);
            if (room <= 0 || partner == r) continue;
            tried++;
            x->looks -= x->looks < 16 ? x->looks : 16;
            try_pairs(x, &e, partner, room, sums + MAX_SUMS, &best);
        }
    }
    if (best.partner == FCP_NONE) return false;
    apply(x, r, &best);
    return true;
}

static fcp_code balance(repair *x, arena *scratch) {
    place_state *s = x->s;
    uint32_t ranks = s->in->ranks;
    uint64_t *by_room = ARENA_NEW(scratch, uint64_t, ranks), *other = ARENA_NEW(scratch, uint64_t, ranks);
    uint64_t *sums = ARENA_NEW(scratch, uint64_t, (size_t)3 * MAX_SUMS);
    if (!by_room || !other || !sums) return FCP_E_NO_MEMORY;
    x->looks = REPAIR_LOOKS_EACH * (uint64_t)ranks + REPAIR_LOOKS;
    for (uint32_t round = 0; round < REPAIR_ROUNDS && x->looks; round++) {
        uint32_t over = 0, done = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            int64_t left = s->left[r] < -PLACE_ONE ? -PLACE_ONE : s->left[r];
            by_room[r] = (uint64_t)(2 * PLACE_ONE - left);
            over += left < 0;
        }
        if (!over) break;
        if (fcp_stop_asked(s->in->stop)) return FCP_E_INTERRUPTED;
        order_rising(by_room, other, ranks);
        for (uint32_t i = ranks; i-- > ranks - over;) {
            uint32_t r = (uint32_t)by_room[i];
            if (!(i & 63) && fcp_stop_asked(s->in->stop)) return FCP_E_INTERRUPTED;
            for (uint32_t step = 0; step < REPAIR_STEPS && s->left[r] < 0; step++) {
                if (!relieve(x, r, by_room, ranks, round, sums)) break;
                done++;
            }
        }
        if (!done && round >= REPAIR_PAIR_ROUND) break;
    }
    return FCP_OK;
}

/* Gives each empty rank a block: the lightest one of a rank that has two or more. Ranks with most tokens give first. */
static fcp_code fill_empty(place_state *s, place_lists *l, arena *scratch) {
    uint32_t ranks = s->in->ranks, empty = 0, given = 1;
    while (empty < ranks && l->head[empty] != FCP_NONE) empty++;
    if (empty == ranks) return FCP_OK;
    uint64_t *donor = ARENA_NEW(scratch, uint64_t, ranks), *other = ARENA_NEW(scratch, uint64_t, ranks);
    if (!donor || !other) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) {
        int64_t room = s->room[r] < 0 ? 0 : s->room[r] > UINT32_MAX ? UINT32_MAX : s->room[r];
        donor[r] = (uint64_t)room;
    }
    order_rising(donor, other, ranks);
    while (empty < ranks && given) {
        given = 0;
        for (uint32_t i = 0; i < ranks && empty < ranks; i++) {
            uint32_t b = l->head[(uint32_t)donor[i]], least = b;
            if (b == FCP_NONE || l->next[b] == FCP_NONE) continue;
            for (; b != FCP_NONE; b = l->next[b])
                if (s->work[b] < s->work[least]) least = b;
            place_move(s, l, least, empty);
            given++;
            while (empty < ranks && l->head[empty] != FCP_NONE) empty++;
        }
    }
    return FCP_OK;
}

fcp_code place_repair(place_state *s, place_lists *l, arena *scratch) {
    repair x = {.s = s, .l = l};
    fcp_code code = balance(&x, scratch);
    return code ? code : fill_empty(s, l, scratch);
}
