/* feasibility.c: tells which rank may take which block, so that everything else can still be placed under both limits.
 *
 * Requires: items that are placed roughly from the densest (work per token) to the lightest.
 * Gives: answers to "may this rank take this?" and "which rank needs this most?", in O(kinds) each.
 * Units: work in 1 / PLACE_ONE of the limit, tokens.
 * Source: the feasibility condition of a transportation problem with two resources, restricted to thresholds.
 *
 * Example: the limit is 10, two ranks have room for three blocks each, and the blocks have work 8 5 3 2 1 1. Best fit
 * puts 8 and 2 together, 5 3 1 on the other rank, and the last 1 makes 11. The test below refuses to put 2 beside 8:
 * the rank would have no work left and room for one more block, while the lightest block has work 1. So both ranks end
 * at 10, with 8 1 1 and 5 3 2.
 *
 * The test. Words first:
 *   left, room  the work and the tokens that a rank can still take
 *   need        left / room of a rank: the density of blocks that would fill both at the same time
 *   slack       how many more tokens of room all ranks together have than tokens are still to come
 *   F(t)        the work of the lightest t tokens that are still to come
 *
 * Choose a threshold x. Let L be the ranks whose need is at most x, and left(L) and room(L) the sums over L. The ranks
 * outside L can take no more tokens than their room, so those of L must take at least room(L) - slack tokens. These
 * have at least the work F(room(L) - slack). So everything can be placed only if, for every x,
 *
 *     left(L) >= F(room(L) - slack).
 *
 * What it does. It keeps light blocks for ranks that are nearly full of work. It also keeps dense blocks for ranks that
 * are nearly full of tokens: the ranks outside L must take all work that L cannot take, and the inequality says that
 * blocks dense enough for that are left. The condition is necessary if the whole slack counts. set_slack grants less of
 * it, and says why.
 */
#include <string.h>

#include "compiler/place/fcp/fcp_parts.h"

enum { NEED_MAX = 1 << 20, FRACTION = 12, LG_PER_OCTAVE = 3 };

fcp_code needs_init(needs *n, arena *scratch, const place_input *in, uint64_t cap, uint64_t tokens) {
    *n = (needs){.ranks = in->ranks, .cap = (int64_t)cap, .closing = in->block / 2};
    while (cap >> n->shift >> 32) n->shift++;
    while (tokens >> n->step > 2 * (uint64_t)in->blocks + 64) n->step++;
    n->supply_count = (uint32_t)(tokens >> n->step) + 1;
    n->left = ARENA_NEW(scratch, int64_t, in->ranks);
    n->room = ARENA_NEW(scratch, int64_t, in->ranks);
    n->need = ARENA_NEW(scratch, uint32_t, in->ranks);
    n->kind = ARENA_NEW(scratch, uint8_t, in->ranks);
    n->next = ARENA_NEW(scratch, uint32_t, in->ranks);
    n->previous = ARENA_NEW(scratch, uint32_t, in->ranks);
    n->supply = ARENA_NEW(scratch, int64_t, n->supply_count + (size_t)2);
    return n->left && n->room && n->need && n->kind && n->next && n->previous && n->supply ? FCP_OK : FCP_E_NO_MEMORY;
}

void needs_supply(needs *n, const need_item *light, uint32_t count) {
    int64_t work = 0, tokens = 0;
    uint32_t at = 0;
    n->supply[at++] = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t w = light[i].work, t = light[i].tokens;
        for (; at < n->supply_count + 2 && t && tokens + t >= (int64_t)at << n->step; at++) {
            int64_t part = ((int64_t)at << n->step) - tokens;
            n->supply[at] = work + (int64_t)((unsigned __int128)w * (uint64_t)part / (uint64_t)t);
        }
        work += w;
        tokens += t;
    }
    while (at < n->supply_count + 2) n->supply[at++] = work;
}

/* F(tokens): the work of the lightest so many tokens, interpolated between two entries of `supply`. */
static int64_t lightest(const needs *n, int64_t tokens) {
    if (tokens <= 0) return 0;
    uint64_t at = (uint64_t)tokens >> n->step;
    if (at >= n->supply_count) return n->supply[n->supply_count];
    int64_t from = n->supply[at], part = tokens & ((INT64_C(1) << n->step) - 1);
    part = n->step > FRACTION ? part >> (n->step - FRACTION) : part << (FRACTION - n->step);
    return from + ((n->supply[at + 1] - from) * part >> FRACTION);
}

uint32_t needs_density(const needs *n, int64_t left, int64_t room) {
    if (left <= 0) return 0;
    room >>= n->shift;
    if (room <= 0) return NEED_MAX;
    uint64_t d = ((uint64_t)left * (uint64_t)(n->cap >> n->shift) >> 22) / (uint64_t)room;
    return d > NEED_MAX ? NEED_MAX : (uint32_t)d;
}

/* The kind of a density: there are NEED_PER_OCTAVE of them for each doubling. */
static uint32_t kind_of(uint32_t density) {
    density += NEED_PER_OCTAVE;
    unsigned top = 31 - (unsigned)__builtin_clz(density);
    uint32_t octave = top - LG_PER_OCTAVE;
    uint32_t kind = octave * NEED_PER_OCTAVE + (density >> octave & (NEED_PER_OCTAVE - 1));
    return kind < NEED_KINDS ? kind : NEED_KINDS - 1;
}

/* The circular list that rank r belongs to: that of its kind, or the last one if it has hardly any room. */
static uint32_t list_of(const needs *n, uint32_t r) { return n->room[r] < n->closing ? NEED_KINDS : n->kind[r]; }

static void unlink_rank(needs *n, uint32_t r) {
    uint32_t list = list_of(n, r);
    if (n->next[r] == r) {
        n->head[list] = FCP_NONE;
        return;
    }
    n->next[n->previous[r]] = n->next[r];
    n->previous[n->next[r]] = n->previous[r];
    if (n->head[list] == r) n->head[list] = n->next[r];
}

static void link_rank(needs *n, uint32_t r) {
    uint32_t list = list_of(n, r), first = n->head[list];
    if (first == FCP_NONE) {
        n->head[list] = n->next[r] = n->previous[r] = r;
        return;
    }
    uint32_t last = n->previous[first];
    n->next[last] = n->previous[first] = r;
    n->previous[r] = last;
    n->next[r] = first;
}

/* Decides how much of the spare room the test counts as slack.
 *   - In the end all spare room stays empty, so a set L of ranks could count on all of it. But if every L did, the test
 *     would keep light blocks for a few ranks that then leave their room empty, and these blocks would be missing
 *     elsewhere.
 *   - So L may count on half of the spare room, plus an eighth of it times the part of all ranks that are in L.
 *   - If all blocks have about the same work, no rank waits for light ones, and the whole spare room counts. */
static void set_slack(needs *n, int64_t spare) {
    int64_t all = n->supply[n->supply_count], half = n->supply[n->supply_count / 2];
    bool alike = half >= all / 5 * 2;
    n->slack = alike ? spare : spare / NEED_SLACK;
    n->slack_each = alike ? 0 : spare / NEED_SLACK_EACH / n->ranks;
}

void needs_reset(needs *n, int64_t spare) {
    uint32_t density = needs_density(n, PLACE_ONE, n->cap), kind = kind_of(density);
    memset(n->head, 0xff, sizeof n->head);
    set_slack(n, spare);
    for (uint32_t r = 0; r < n->ranks; r++) {
        n->left[r] = PLACE_ONE;
        n->room[r] = n->cap;
        n->need[r] = density;
        n->kind[r] = (uint8_t)kind;
        link_rank(n, r);
    }
    for (uint32_t k = 0; k < NEED_KINDS; k++) {
        n->sum_left[k] = k < kind ? 0 : PLACE_ONE * n->ranks;
        n->sum_room[k] = k < kind ? 0 : n->cap * n->ranks;
        n->sum_ranks[k] = k < kind ? 0 : n->ranks;
    }
}

void needs_take(needs *n, uint32_t r, int64_t work, int64_t tokens) {
    int64_t left = n->left[r], room = n->room[r];
    uint32_t old = n->kind[r];
    unlink_rank(n, r);
    n->left[r] -= work;
    n->room[r] -= tokens;
    n->need[r] = needs_density(n, n->left[r], n->room[r]);
    uint32_t k = n->kind[r] = (uint8_t)kind_of(n->need[r]);
    link_rank(n, r);
    uint32_t i = old < k ? old : k;
    for (; i < k; i++) {
        n->sum_left[i] -= left;
        n->sum_room[i] -= room;
        n->sum_ranks[i]--;
    }
    for (; i < old; i++) {
        n->sum_left[i] += n->left[r];
        n->sum_room[i] += n->room[r];
        n->sum_ranks[i]++;
    }
    for (; i < NEED_KINDS; i++) {
        n->sum_left[i] -= work;
        n->sum_room[i] -= tokens;
    }
}

/* By how much the inequality holds for L = the ranks up to kind k: left(L) - F(room(L) - slack). `left`, `room` and
 * `ranks` are changes: they are added to the sums over L. */
static int64_t spare_work(const needs *n, uint32_t k, int64_t left, int64_t room, int64_t ranks) {
    int64_t slack = n->slack + (n->sum_ranks[k] + ranks) * n->slack_each;
    return n->sum_left[k] + left - lightest(n, n->sum_room[k] + room - slack);
}

/* Does the inequality hold at kind k after these changes? If it did not hold before, it is enough that it gets no
 * worse. */
static bool holds(const needs *n, uint32_t k, int64_t left, int64_t room, int64_t ranks) {
    int64_t after = spare_work(n, k, left, room, ranks);
    return after >= 0 || after >= spare_work(n, k, 0, 0, 0);
}

bool needs_allow(const needs *n, uint32_t r, int64_t work, int64_t tokens) {
    int64_t left = n->left[r] - work, room = n->room[r] - tokens;
    if (left < 0 || room < n->keep) return false;
    uint32_t old = n->kind[r], now = kind_of(needs_density(n, left, room));
    for (uint32_t k = now; k < old; k++)
        if (!holds(n, k, left, room, 1)) return false;
    for (uint32_t k = old; k < now; k++)
        if (!holds(n, k, -n->left[r], -n->room[r], -1)) return false;
    return true;
}

uint32_t needs_best(const needs *n, int64_t work, int64_t tokens, uint32_t tries, const uint64_t *sends,
                    uint64_t most) {
    for (uint32_t k = NEED_KINDS; k-- > 0;) {
        uint32_t best = FCP_NONE, looks = NEED_LOOKS, r = n->head[k];
        if (r == FCP_NONE) continue;
        do {
            if (n->room[r] >= tokens && n->left[r] >= work) {
                if (!tries--) return best;
                if ((best == FCP_NONE || n->need[r] > n->need[best]) && (!sends || sends[r] <= most) &&
                    needs_allow(n, r, work, tokens))
                    best = r;
            }
            r = n->next[r];
        } while (r != n->head[k] && --looks);
        if (best != FCP_NONE) return best;
    }
    return FCP_NONE;
}

uint32_t needs_like(const needs *n, int64_t work, int64_t tokens) {
    uint32_t kind = kind_of(needs_density(n, work, tokens));
    for (uint32_t i = 0; i <= 2 * NEED_NEAR; i++) { /* this kind, then the next above, the next below, ... */
        uint32_t k = i & 1 ? kind + (i + 1) / 2 : kind - i / 2, looks = 2 * NEED_LOOKS;
        if (k >= NEED_KINDS || n->head[k] == FCP_NONE) continue;
        uint32_t r = n->head[k];
        do {
            if (n->room[r] >= tokens && n->left[r] >= work) return r;
            r = n->next[r];
        } while (r != n->head[k] && --looks);
    }
    return FCP_NONE;
}

uint32_t needs_any(const needs *n, int64_t work, int64_t tokens) {
    uint32_t over = FCP_NONE, tries = NEED_ANY_TRIES;
    for (uint32_t k = NEED_KINDS; k-- > 0 && tries;) {
        uint32_t best = FCP_NONE, found = 0, r = n->head[k];
        if (r == FCP_NONE) continue;
        do {
            if (n->room[r] >= tokens) {
                if (n->left[r] >= work) {
                    if (best == FCP_NONE || n->need[r] > n->need[best]) best = r;
                    if (++found == 2 * NEED_LOOKS) break;
                } else {
                    if (over == FCP_NONE || n->left[r] > n->left[over]) over = r;
                    if (!--tries) break;
                }
            }
            r = n->next[r];
        } while (r != n->head[k]);
        if (best != FCP_NONE) return best;
    }
    if (over != FCP_NONE) return over;
    over = 0;
    for (uint32_t r = 1; r < n->ranks; r++)
        if (n->room[r] > n->room[over]) over = r;
    return over;
}
