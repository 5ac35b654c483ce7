/* random_restarts.c: divides what a node computes between its ranks in several ways, and keeps the cheapest.
 *
 * Requires: runs; the room of every rank of the node, and what it keeps; how many tries in a row may fail.
 * Gives: the shares of the cheapest try, and what room is left then. They cost at most what those of cad_sweep cost.
 * Cost: O(tries x (a sweep + the shares of a rank, squared)), at most CAD_LOOKS looks at shares and keys. All nodes of
 *     256 ranks take 1 to 2 ms.
 * Units: bytes of the forward pass or of both passes, as the prices are.
 * Source: random restarts of a greedy algorithm (as in GRASP).
 *
 * Why. A sweep fills the ranks from the largest room down, and sees one strip at a time. It can end badly where the
 * last rows meet small rooms: a rank gets 500 rows of 65,000 keys, because the only other rank left had little room.
 * Another first rank would then have been better, or one more rank in an earlier strip. Which choice is better is hard
 * to say and easy to try, because a node has few ranks: a sweep and its price take 2 us.
 *
 * How.
 *   1. The first try decides as usual.
 *   2. Each later try takes the decisions of the best so far and draws some of them anew. The draws depend on the node
 *      alone, so the same batch is always divided in the same way.
 *   3. It ends when so many tries in a row have failed. A cluster with few nodes has time for more tries in each.
 *
 * Repeated tries. Where a node has little to decide, many tries would repeat an earlier one. So a sweep notes which
 * other decisions would have led to the same shares. A try that is known in this way to repeat one is left out, but
 * counts as made.
 */
#include "compiler/place/cad/cad.h"

#include <string.h>

#include "compiler/base/bisect.h"

enum { FOUND = 64 }; /* sequences whose keys are remembered */

/* What is noted of a try that had few decisions, to recognize one that would repeat it. */
typedef struct made_try {
    uint8_t same[CAD_NOTED];
    uint32_t asked;
    uint64_t looks;
} made_try;

typedef struct found_keys {
    uint32_t sequence, first, end; /* its runs of keys are in->keys[first] to in->keys[end - 1]; end 0: not known */
} found_keys;

typedef struct trying {
    const cad_input *in;
    cad_groups groups;
    uint32_t first, ranks; /* the ranks first to first + ranks - 1 are the bins */
    cad_shares kept;       /* what these ranks keep of these sequences; `rank` is the bin */
    uint64_t *kept_spans;   /* per share of `kept`: its keys that some row may see */
    size_t *newest;        /* per bin: the last share of it that was counted, + 1 */
    found_keys found[FOUND]; /* by sequence, modulo FOUND */
    uint64_t state;        /* of the draws */
    uint64_t looks;
    made_try *made;
    uint32_t made_count;
} trying;

static uint32_t draw(trying *t, uint32_t below) {
    t->state = t->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((t->state >> 33) % below);
}

/* --- the price of shares ------------------------------------------------------------------------------------------ */

/* Finds the first of the runs of keys `low` to `high` - 1 that contains key k or lies behind it. Runs of a later
 * sequence lie behind all of this one. */
static uint32_t run_at(const cad_input *in, uint32_t low, uint32_t high, uint32_t sequence, uint64_t k) {
    const problem_run *h = in->keys;
    BISECT(low, high, i, h[i].sequence < sequence || (h[i].sequence == sequence && h[i].end <= k))
    return low;
}

/* The runs of keys of a sequence. They are looked up once, because all tries ask for the same few sequences. */
static const found_keys *find_keys(trying *t, uint32_t sequence) {
    found_keys *f = &t->found[sequence % FOUND];
    if (f->end && f->sequence == sequence) return f;
    f->sequence = sequence;
    f->first = run_at(t->in, 0, t->in->key_count, sequence, 0);
    f->end = run_at(t->in, f->first, t->in->key_count, sequence, UINT64_MAX);
    return f;
}

/* How many of the keys k0 to k1 - 1 the rank does not hold. */
static uint64_t missing(trying *t, uint32_t sequence, uint32_t rank, uint64_t k0, uint64_t k1) {
    const cad_input *in = t->in;
    uint64_t count = k1 - k0;
    const found_keys *f = find_keys(t, sequence);
    for (uint32_t i = run_at(in, f->first, f->end, sequence, k0); i < f->end; i++, t->looks++) {
        const problem_run *h = &in->keys[i];
        if (h->start >= k1) break;
        if (h->rank == rank) count -= (h->end < k1 ? h->end : k1) - (h->start > k0 ? h->start : k0);
    }
    return count;
}

/* How many keys share i brings to its rank. Such a key is seen by some row of the share; the rank does not hold it, and
 * no earlier share has brought it. before[j]: the share of the same rank that was counted before share j, plus 1.
 * spans[j]: how many keys are seen by some row of share j. */
static uint64_t new_keys(trying *t, const cad_share *shares, const size_t *before, const uint64_t *spans, size_t i) {
    const cad_run *r = &shares[i].run;
    uint64_t count = 0, at = r->k0, end = at + spans[i];
    while (at < end) {
        uint64_t covered = at, next = end; /* up to where an earlier share has them; where the next such share begins */
        for (size_t j = before[i]; j; j = before[j - 1], t->looks++) {
            const cad_run *o = &shares[j - 1].run;
            if (o->sequence != r->sequence) continue;
            uint64_t o_end = o->k0 + spans[j - 1];
            if (o->k0 > at) next = o->k0 < next ? o->k0 : next;
            else if (o_end > covered) covered = o_end;
        }
        if (covered == at) count += missing(t, r->sequence, t->first + shares[i].rank, at, covered = next);
        at = covered;
    }
    return count;
}

/* The bytes of a try. The list begins with what ranks keep. If several ranks compute parts of a row, the one with the
 * first keys counts as the one that sends the result. Runs that no rank takes are priced as if each went to a rank of
 * its own. */
static uint64_t price_of(trying *t, const cad_shares *list, size_t *before, uint64_t *spans) {
    const cad_price *price = &t->in->price;
    uint64_t sum = 0;
    memset(t->newest, 0, t->ranks * sizeof *t->newest);
    if (t->kept.count) memcpy(spans, t->kept_spans, t->kept.count * sizeof *spans);
    for (size_t i = 0; i < list->count; i++, t->looks++) {
        const cad_share *s = &list->at[i];
        uint64_t rows = s->run.y - s->run.x;
        before[i] = 0;
        if (i >= t->kept.count) spans[i] = cad_span(&t->in->pairs, &s->run);
        if (s->rank == FCP_NONE) {
            sum += rows * price->part + spans[i] * price->kv;
            continue;
        }
        if (t->first + s->rank != s->run.home) sum += rows * (s->run.k0 ? price->part : price->whole);
        before[i] = t->newest[s->rank];
        t->newest[s->rank] = i + 1;
        if (i >= t->kept.count) sum += new_keys(t, list->at, before, spans, i) * price->kv;
    }
    return sum;
}

/* Lists what the ranks keep of the sequences that are divided here: the ranks need the keys of these shares anyway, so
 * the keys cost nothing when another share uses them. */
static bool find_kept(trying *t, arena *a, const cad_share *kept, size_t count) {
    const cad_groups *g = &t->groups;
    for (size_t i = 0; i < count; i++) {
        size_t low = 0, high = g->count;
        BISECT(low, high, n, g->runs[g->first[n]].sequence < kept[i].run.sequence)
        if (low == g->count || g->runs[g->first[low]].sequence != kept[i].run.sequence) continue;
        if (!cad_add_share(a, &t->kept, &kept[i].run, kept[i].rank - t->first)) return false;
    }
    t->kept_spans = ARENA_NEW(a, uint64_t, t->kept.count + 1);
    for (size_t i = 0; t->kept_spans && i < t->kept.count; i++)
        t->kept_spans[i] = cad_span(&t->in->pairs, &t->kept.at[i].run);
    return t->kept_spans;
}

/* --- trying ------------------------------------------------------------------------------------------------------- */

/* Draws up to CAD_CHANGES of the decisions anew. */
static void draw_decisions(trying *t, cad_decisions *d) {
    uint32_t count = d->asked < CAD_DECISIONS ? d->asked : CAD_DECISIONS;
    for (uint32_t left = 1 + draw(t, CAD_CHANGES); left && count; left--) {
        uint32_t i = draw(t, count);
        d->way[i] = (uint8_t)draw(t, CAD_WAYS);
    }
}

/* Would these decisions repeat an earlier try? If so, adds the looks of that try to *looks, as if it had been made
 * again. */
static bool made_before(const trying *t, const cad_decisions *d, uint64_t *looks) {
    for (uint32_t i = 0; i < t->made_count; i++) {
        const made_try *m = &t->made[i];
        uint32_t at = 0;
        while (at < m->asked && m->same[at] >> d->way[at] & 1) at++;
        if (at < m->asked) continue;
        *looks += m->looks;
        return true;
    }
    return false;
}

static void note_made(trying *t, const cad_decisions *d, uint64_t looks) {
    if (d->asked > CAD_NOTED) return;
    made_try *m = &t->made[t->made_count++];
    m->asked = d->asked;
    m->looks = looks;
    memcpy(m->same, d->same, sizeof m->same);
}

/* Copies the shares of a try to `best`, without the first `kept`, which are what ranks keep. */
static bool save_shares(arena *a, const cad_shares *now, size_t kept, cad_shares *best) {
    size_t count = now->count - kept;
    if (best->room < count) {
        best->at = ARENA_NEW(a, cad_share, count);
        best->room = best->at ? count : 0;
        if (!best->at) return false;
    }
    memcpy(best->at, now->at + kept, count * sizeof *now->at);
    best->count = count;
    return true;
}

fcp_code cad_try(const cad_input *in, arena *a, arena *now, const cad_runs *runs, const cad_node *node, uint64_t crumb,
                 uint32_t patience, cad_shares *out) {
    const uint32_t first = node->first, ranks = node->ranks;
    uint64_t *room = node->room;
    made_try made[CAD_TRIES_MOST];
    trying t = {.in = in, .first = first, .ranks = ranks, .newest = ARENA_NEW(a, size_t, ranks),
                .state = first + UINT64_C(1), .made = made};
    uint64_t *given = ARENA_NEW(a, uint64_t, ranks), *left = ARENA_NEW(a, uint64_t, ranks), least = UINT64_MAX;
    cad_decisions best = {0};
    *out = (cad_shares){0};
    fcp_code code = t.newest && given && left ? cad_group(in, a, runs->at, runs->count, &t.groups) : FCP_E_NO_MEMORY;
    if (!code && !find_kept(&t, a, node->kept, node->kept_count)) code = FCP_E_NO_MEMORY;
    if (code || !runs->count) return code;
    memcpy(given, room, ranks * sizeof *room);
    uint32_t most = patience < CAD_TRIES_MOST / 3 ? 3 * patience : CAD_TRIES_MOST;
    if (most < CAD_TRIES_LEAST) most = CAD_TRIES_LEAST;
    for (uint32_t i = 0, last = 0; !code && i < most && i - last <= (last ? patience : patience / 2) &&
                                   t.looks < CAD_LOOKS; i++) {
        cad_decisions decisions = best;
        if (i) draw_decisions(&t, &decisions);
        const uint64_t looks = t.looks;
        if (made_before(&t, &decisions, &t.looks)) continue;
        arena_reset(now);
        cad_shares shares = {ARENA_NEW(now, cad_share, 2 * t.kept.count + 32), t.kept.count, 2 * t.kept.count + 32};
        if (!shares.at) code = FCP_E_NO_MEMORY;
        else if (t.kept.count) memcpy(shares.at, t.kept.at, t.kept.count * sizeof *shares.at);
        memcpy(room, given, ranks * sizeof *room);
        decisions.asked = 0;
        if (!code) code = cad_sweep(in, now, &t.groups, &decisions, room, ranks, crumb, &shares);
        size_t *before = code ? NULL : ARENA_NEW(now, size_t, shares.count + 1);
        uint64_t *spans = code ? NULL : ARENA_NEW(now, uint64_t, shares.count + 1);
        if (!code && (!before || !spans)) code = FCP_E_NO_MEMORY;
        uint64_t price = code ? UINT64_MAX : price_of(&t, &shares, before, spans);
        note_made(&t, &decisions, t.looks - looks);
        if (price >= least) continue;
        least = price;
        last = i;
        best = decisions;
        memcpy(left, room, ranks * sizeof *room);
        if (!save_shares(a, &shares, t.kept.count, out)) code = FCP_E_NO_MEMORY;
    }
    memcpy(room, left, ranks * sizeof *room);
    return code;
}
