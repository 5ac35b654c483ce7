/* cad_bound.c: computes a lower bound on the bytes that any division of the work moves, for given homes and tolerance.
 *
 * Requires: homes, prices, the work of every rank's own rows against its own keys.
 * Gives: a number of bytes. No division that keeps every rank within its cap moves fewer.
 * Cost: O(pieces) and a few hundred divisions a rank.
 * Units: pairs, tokens, bytes.
 *
 * One rank. Its own rows against its own keys are L pairs, and cost nothing. To compute w more pairs, it needs `a` rows
 * and `b` keys from elsewhere. There are three kinds of such pairs:
 *   own rows with keys that come: a key meets at most g own rows, and at most p of the keys meet any;
 *   rows that come with own keys: a row meets at most h own keys, and at most f of the rows meet any;
 *   rows that come with keys that come: a row sees at most n keys.
 * Hence
 *
 *     w <= g min(b, p) + h min(a, f) + a min(b, n),        and it costs   B(w) = min  whole a + kv b.
 *
 * B(w) is found as follows. For a given b the least a follows. Between the places where one of the minima changes, the
 * cost is convex in b. So only those places and four stationary points are looked at.
 *
 * All ranks.
 *   1. The work adds up to W, and no rank has more than its cap. If every rank had as much work as its cap, that would
 *      be S pairs too many, where S is the sum of the caps minus W. So some ranks have less than their caps, by S pairs
 *      in all.
 *   2. A rank that has less saves bytes. It saves most where B falls most steeply below its value at the cap. So the
 *      steepest chord of each B is found: from the point at the cap to a point with less work.
 *   3. S is given to the ranks with the steepest chords first (a fractional knapsack).
 *
 * How steep a chord can be. B is neither convex nor concave, and only a few of its points are computed. Between two of
 * them the chord is bounded by what is known at both. Near the cap it is bounded by the derivative at the smaller
 * point, which is whole / (keys that come), because more work brings more keys.
 */
#include "compiler/place/cad/cad.h"

#include "compiler/base/integers.h"

enum { LOOKS = 16, SCALE = 20 /* chords are in bytes for each 2^20 pairs */ };

typedef struct rank_of {
    uint64_t need; /* pairs that must come, at the cap */
    uint64_t g, p, h, f, n;
} rank_of;

/* The bytes of computing `w` more pairs if b keys come, rounded down. UINT64_MAX: with b keys that is impossible. *far
 * becomes true if more than f rows come. */
static uint64_t cost_with(const rank_of *r, const cad_price *price, uint64_t w, uint64_t b, bool *far) {
    unsigned __int128 with_own = (unsigned __int128)r->g * min_u64(b, r->p);
    uint64_t keys = min_u64(b, r->n);
    *far = false;
    if (with_own >= w) return price->kv * b;
    uint64_t rest = w - (uint64_t)with_own;
    unsigned __int128 near = (unsigned __int128)r->f * (keys + r->h);
    if (near >= rest) return price->kv * b + (uint64_t)((unsigned __int128)price->whole * rest / (keys + r->h));
    *far = true;
    if (!keys) return UINT64_MAX;
    rest -= (uint64_t)((unsigned __int128)r->f * r->h);
    return price->kv * b + (uint64_t)((unsigned __int128)price->whole * rest / keys);
}

/* B(w): the least bytes with which a rank can compute w more pairs. *out_keys: how many keys come then. */
static uint64_t least_cost(const rank_of *r, const cad_price *price, uint64_t w, uint64_t *out_keys) {
    const unsigned __int128 ratio_w = (unsigned __int128)price->whole;
    uint64_t at[16], count = 0, best = UINT64_MAX;
    unsigned __int128 gp = (unsigned __int128)r->g * r->p, hf = (unsigned __int128)r->h * r->f;
    uint64_t kv = price->kv ? price->kv : 1;
    at[count++] = 0;
    at[count++] = r->p;
    at[count++] = r->n;
    if (r->g) at[count++] = w / r->g;
    if (r->f + r->g && w > hf) at[count++] = (uint64_t)((w - (uint64_t)hf) / (r->f + r->g));
    if (r->f && w > gp) {
        uint64_t x = (w - (uint64_t)gp) / r->f;
        at[count++] = x > r->h ? x - r->h : 0;
    }
    uint64_t root = square_root((w + (unsigned __int128)r->g * r->h) / kv * ratio_w);
    at[count++] = root > r->h ? root - r->h : 0;
    if (w > gp) {
        root = square_root((w - gp) / kv * ratio_w);
        at[count++] = root > r->h ? root - r->h : 0;
    }
    if (w > hf) at[count++] = square_root((w - hf) / kv * ratio_w);
    if (w > gp + hf) at[count++] = square_root((w - gp - hf) / kv * ratio_w);
    *out_keys = 0;
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t b = at[i] ? at[i] - 1 : 0; b <= at[i] + 1; b++) {
            bool far;
            uint64_t cost = cost_with(r, price, w, b, &far);
            if (cost < best || (cost == best && b < *out_keys)) best = cost, *out_keys = b;
        }
    return best;
}

static uint64_t chord(uint64_t bytes, uint64_t pairs) { /* rounded up */
    if (!pairs) return UINT64_MAX;
    unsigned __int128 x = (((unsigned __int128)bytes << SCALE) + pairs - 1) / pairs;
    return x > UINT64_MAX ? UINT64_MAX : (uint64_t)x;
}

/* An upper bound on how steeply B falls below the cap: the slope of the steepest chord from (r->need, top), the point
 * at the cap, to any smaller w. */
static uint64_t steepest(const rank_of *r, const cad_price *price, uint64_t top) {
    uint64_t steep = 0, before = 0, bytes = 0, keys = 0;
    for (uint32_t i = 1; i <= LOOKS; i++) { /* the stretch from `before`, where B is `bytes`, to `here` */
        uint64_t here =
            i == LOOKS ? r->need : (uint64_t)((unsigned __int128)r->need * i * i / ((unsigned __int128)LOOKS * LOOKS));
        uint64_t most = chord(top - bytes, r->need - here);
        bool far = false;
        if (before) cost_with(r, price, r->need, keys, &far);
        uint64_t seen = min_u64(keys, r->n) + (far ? 0 : r->h);
        if (before && seen) most = min_u64(most, chord(price->whole, seen));
        if (most > steep) steep = most;
        before = here;
        if (i < LOOKS) bytes = least_cost(r, price, here, &keys);
    }
    return steep;
}

/* --- what ranks have ---------------------------------------------------------------------------------------------- */

/* The largest number of keys that a row sees, or an upper bound on it if the table is coarse. */
static uint64_t longest_row(const cad_input *in) {
    uint64_t longest = 0;
    for (uint32_t s = 0; s < in->pairs.sequences; s++) {
        uint64_t most = in->pairs.keys[s];
        if (in->pairs.tables) {
            const cad_table *t = &in->pairs.tables[s];
            most = 0;
            for (uint32_t i = 0; i + 1 < t->row_cuts; i++) {
                cad_run r = {s, 0, t->row_cut[i], t->row_cut[i + 1], 0, in->pairs.keys[s]};
                uint64_t seen = cad_span(&in->pairs, &r);
                if (seen > most) most = seen;
            }
        }
        if (most > longest) longest = most;
    }
    return longest;
}

/* The number of rows of `r`, if one of them sees one of its keys; otherwise 0. */
static uint64_t rows_if_any(const cad_pairs *p, const cad_run *r) { return cad_work(p, r) ? r->y - r->x : 0; }

/* Adds to *r and *own what a rank has: a piece of rows, and a piece of keys of the same sequence. */
static void add_piece(const cad_input *in, const problem_run *rows, const problem_run *keys, rank_of *r,
                      uint64_t *own) {
    const cad_pairs *p = &in->pairs;
    uint32_t s = rows->sequence;
    cad_run mine = {s, rows->rank, rows->start, rows->end, keys->start, keys->end};
    cad_run all = mine, above = mine, under = mine;
    *own += cad_work(p, &mine);
    all.k0 = 0, all.k1 = p->keys[s];
    uint64_t seen = cad_span(p, &all), held = cad_work(p, &mine) ? cad_span(p, &mine) : 0;
    if (seen > held) {
        r->p += seen - held;
        if (r->g < rows->end - rows->start) r->g = rows->end - rows->start;
    }
    above.x = 0, above.y = rows->start;
    under.x = rows->end, under.y = p->queries[s];
    uint64_t others = rows_if_any(p, &above) + rows_if_any(p, &under);
    r->f += others;
    if (others && r->h < keys->end - keys->start) r->h = keys->end - keys->start;
}

fcp_code cad_bound(const cad_input *in, arena *scratch, uint64_t *out_bytes) {
    uint32_t ranks = in->ranks;
    rank_of *rank = ARENA_ZNEW(scratch, rank_of, ranks);
    uint64_t *own = ARENA_ZNEW(scratch, uint64_t, ranks), *load = ARENA_ZNEW(scratch, uint64_t, ranks);
    uint64_t *cap = ARENA_NEW(scratch, uint64_t, ranks), *bytes = ARENA_ZNEW(scratch, uint64_t, ranks);
    uint64_t *order = ARENA_NEW(scratch, uint64_t, ranks);
    uint64_t *steep = ARENA_ZNEW(scratch, uint64_t, ranks);
    if (!rank || !own || !load || !cap || !bytes || !order || !steep) return FCP_E_NO_MEMORY;
    uint64_t longest = longest_row(in);
    for (uint32_t i = 0, k = 0; i < in->row_count;) {
        uint32_t s = in->rows[i].sequence, end = i;
        while (k < in->key_count && in->keys[k].sequence < s) k++;
        for (; end < in->row_count && in->rows[end].sequence == s; end++) {
            cad_run r = {s, 0, in->rows[end].start, in->rows[end].end, 0, in->pairs.keys[s]};
            load[in->rows[end].rank] += cad_work(&in->pairs, &r);
        }
        bool alike = in->rows == in->keys;
        for (uint32_t a = i; a < end; a++) {
            uint32_t from = alike ? a : k;
            for (uint32_t b = from; b < (alike ? a + 1 : in->key_count) && in->keys[b].sequence == s; b++)
                if (in->keys[b].rank == in->rows[a].rank)
                    add_piece(in, &in->rows[a], &in->keys[b], &rank[in->rows[a].rank], &own[in->rows[a].rank]);
        }
        i = end;
    }
    fcp_code code = cad_caps(in, load, scratch, cap);
    if (code) return code;
    uint64_t slack = 0, all = 0, sum = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        slack += cap[r];
        all += load[r];
    }
    slack = slack > all ? (slack - all) / in->pairs.weight + 1 : 0;
    for (uint32_t r = 0; r < ranks; r++) {
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        uint64_t keys;
        rank[r].n = longest;
        rank[r].need = cap[r] > own[r] ? (cap[r] - own[r]) / in->pairs.weight : 0;
        bytes[r] = rank[r].need ? least_cost(&rank[r], &in->price, rank[r].need, &keys) : 0;
        if (bytes[r]) steep[r] = steepest(&rank[r], &in->price, bytes[r]);
        sum += bytes[r];
        order[r] = r;
    }
    for (uint32_t i = 1; i < ranks; i++) { /* few ranks are given slack; those in order of their chords */
        uint32_t r = (uint32_t)order[i], at = i;
        for (; at > 0 && steep[order[at - 1]] < steep[r]; at--) order[at] = order[at - 1];
        order[at] = r;
    }
    for (uint32_t i = 0; i < ranks && slack; i++) {
        uint32_t r = (uint32_t)order[i];
        if (!steep[r]) break;
        unsigned __int128 most = ((unsigned __int128)slack * steep[r]) >> SCALE; /* bytes that all of the slack saves */
        if (most >= bytes[r]) {
            sum -= bytes[r];
            uint64_t spent = (uint64_t)(((unsigned __int128)bytes[r] << SCALE) / steep[r]);
            slack -= min_u64(spent, slack);
        } else {
            uint64_t saved = (uint64_t)most + 1;
            sum -= min_u64(saved, bytes[r]);
            slack = 0;
        }
    }
    *out_bytes = sum;
    return FCP_OK;
}
