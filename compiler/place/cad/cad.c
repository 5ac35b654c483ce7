/* cad.c: the cad strategy: tokens stay at their homes, and work moves until no rank has more than its cap.
 *
 * Requires: the rows and keys that each rank holds, every token once; prices; a tolerance.
 * Gives: shares of the work. No rank has more than its cap, unless a single shard does not fit anywhere. (A shard is
 *     the unit in which rows are cut, such as 128 tokens.)
 * Cost: O((pieces + shares) log (tokens + ranks)), and the tries of random_restarts.c: 1.5 to 3 ms at 256 ranks of 32K
 *     tokens, 3 to 4 at 1,024.
 * Units: pairs, bytes; the tolerance is in millionths.
 * Source: our own. "Core attention disaggregation" (DistCA, 2025) moves work of that kind, with rows alone.
 *
 * The steps:
 *   1. Tails. The last rows of a sequence may lie on a rank that holds few of the keys that they see. If it costs more
 *      to bring them those keys than to send the rows to the rank before, they are computed there.
 *   2. Keep. Every rank keeps work up to its cap (keep_rows.c); the rest leaves it.
 *      - It is cheapest to keep each row's pairs with the rank's own keys, because those keys need not travel. But the
 *        Q of such a row leaves all the same, to the ranks that compute the rest of the row.
 *      - That can be too much for a node: it would send more than its wires carry while it computes. Then some of its
 *        ranks keep only whole rows. This leaves them room for other short rows of the node, whose Q stays in the node.
 *   3. Nodes. What leaves a rank stays in its node as far as ranks there have room. The rest goes to other nodes
 *      (sweep.c).
 *   4. Ranks. In every node, what came to it is divided among its ranks, in the cheapest of several ways
 *      (random_restarts.c).
 *
 * Nodes come first because a byte between nodes is dearer than one inside a node. A node promises a little less than
 * the room of its ranks, so that the ranks can leave their smallest rooms empty: those cost most for each pair.
 *
 * In steps 2 and 4 nodes are independent. If there is a second thread, it does half of them. Its results are put behind
 * those of the first thread, so they are the same as with one thread.
 */
#include "compiler/place/cad/cad.h"

#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "runtime/base/both.h"

typedef struct dividing {
    const cad_input *in;
    arena *a;
    cad_shares *out;
    uint64_t *load, *room, *cap; /* per rank */
    uint64_t mean;
    uint32_t *bin;     /* per piece of rows: the rank that computes it at first */
    cad_own *own;      /* per piece: the keys of its sequence that this rank holds */
    cad_own *node_own; /* per piece: those that its home's node holds */
    cad_runs *away;    /* per node: what leaves its ranks; from step 3 on, what comes to them */
    size_t *kept;      /* per node: the first of `out` that its ranks keep; nodes + 1 */
} dividing;

/* What one thread does of steps 2 and 4: nodes first to end - 1. It has arenas and lists of its own. */
typedef struct half {
    dividing d;
    arena *scratch;
    uint32_t first, end;
    struct pieces *pieces;
    cad_shares found;
    cad_runs left; /* what no rank of a node has room for */
    fcp_code code;
} half;

static uint32_t nodes_of(const cad_input *in) { return (in->ranks + in->gpus - 1) / in->gpus; }

static uint64_t scaled(uint64_t v, uint64_t millionths) {
    unsigned __int128 x = (unsigned __int128)v * millionths / 1000000;
    return x > UINT64_MAX ? UINT64_MAX : (uint64_t)x;
}

static cad_run run_of(const cad_input *in, uint32_t piece) {
    const problem_run *h = &in->rows[piece];
    return (cad_run){h->sequence, h->rank, h->start, h->end, 0, in->pairs.keys[h->sequence]};
}

/* --- 1. tails ----------------------------------------------------------------------------------------------------- */

static uint64_t overlap(const cad_own *own, uint64_t end) {
    uint64_t to = own->end < end ? own->end : end;
    return to > own->first ? to - own->first : 0;
}

/* Finds which keys ranks and nodes hold of the sequences of their rows. Then does step 1: decides for each piece of
 * rows whether its home computes it at first, or the rank that holds the rows before it. */
static fcp_code assign_pieces(dividing *d, arena *scratch) {
    const cad_input *in = d->in;
    const uint32_t nodes = nodes_of(in);
    uint32_t *seen = ARENA_ZNEW(scratch, uint32_t, in->ranks), *node_seen = ARENA_ZNEW(scratch, uint32_t, nodes);
    cad_own *held = ARENA_NEW(scratch, cad_own, in->ranks), *node_held = ARENA_NEW(scratch, cad_own, nodes);
    if (!seen || !node_seen || !held || !node_held) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0, k = 0; i < in->row_count;) {
        uint32_t s = in->rows[i].sequence, first = i;
        for (; k < in->key_count && in->keys[k].sequence <= s; k++) {
            const problem_run *h = &in->keys[k];
            if (h->sequence < s) continue;
            if (seen[h->rank] != s + 1 || held[h->rank].end - held[h->rank].first < h->end - h->start)
                held[h->rank] = (cad_own){h->start, h->end};
            cad_own *n = &node_held[h->rank / in->gpus];
            if (node_seen[h->rank / in->gpus] != s + 1) *n = (cad_own){h->start, h->end};
            else *n = (cad_own){n->first < h->start ? n->first : h->start, n->end > h->end ? n->end : h->end};
            seen[h->rank] = node_seen[h->rank / in->gpus] = s + 1;
        }
        for (; i < in->row_count && in->rows[i].sequence == s; i++) {
            const problem_run *h = &in->rows[i];
            cad_run r = run_of(in, i);
            d->bin[i] = h->rank;
            d->own[i] = seen[h->rank] == s + 1 ? held[h->rank] : (cad_own){0, 0};
            d->node_own[i] = node_seen[h->rank / in->gpus] == s + 1 ? node_held[h->rank / in->gpus] : (cad_own){0, 0};
            if (i == first || in->servers) continue;
            uint32_t before = in->rows[i - 1].rank;
            if (before == h->rank || seen[before] != s + 1) continue;
            uint64_t keys = cad_span(&in->pairs, &r);
            uint64_t mine = overlap(&d->own[i], keys), theirs = overlap(&held[before], keys);
            if (theirs <= mine || in->price.whole * (h->end - h->start) >= in->price.kv * (theirs - mine)) continue;
            d->bin[i] = before;
            d->own[i] = held[before];
        }
    }
    return FCP_OK;
}

/* The keys of a run's sequence that the node of its home holds. */
static cad_own own_of_node(const dividing *d, const cad_run *r) {
    const cad_input *in = d->in;
    const problem_run *h = in->rows;
    uint32_t at = 0, end = in->row_count; /* the piece of the run is the one before `at` */
    BISECT(at, end, i, h[i].sequence < r->sequence || (h[i].sequence == r->sequence && h[i].start <= r->x))
    return d->node_own[at ? at - 1 : 0];
}

/* --- caps --------------------------------------------------------------------------------------------------------- */

fcp_code cad_caps(const cad_input *in, const uint64_t *load, arena *scratch, uint64_t *out_cap) {
    uint64_t left = 0, sharing = in->ranks, *sorted = ARENA_NEW(scratch, uint64_t, in->ranks);
    uint64_t *other = ARENA_NEW(scratch, uint64_t, in->ranks);
    if (!sorted || !other) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < in->ranks; r++) left += sorted[r] = load[r];
    uint32_t holders = in->ranks - in->servers;
    if (in->servers) { /* leave out ranks with less than the mean of those that are left */
        sort_u64(sorted, other, holders);
        for (uint32_t i = 0; i < holders && sorted[i] * sharing < left; i++) {
            left -= sorted[i];
            sharing--;
        }
    }
    uint64_t mean = left / sharing + (left % sharing != 0), cap = mean + scaled(mean, in->tolerance);
    for (uint32_t r = 0; r < in->ranks; r++)
        out_cap[r] = in->servers && r < holders && load[r] < cap ? load[r] : cap;
    return FCP_OK;
}

/* --- 2. keep ------------------------------------------------------------------------------------------------------ */

/* The pieces that each rank computes at first. Those of rank r are item[first[r]] to item[first[r + 1] - 1]. */
typedef struct pieces {
    uint32_t *first, *item;
    cad_run *runs; /* of the rank at hand */
    cad_own *own;
    bool *whole; /* per rank: it keeps only whole rows */
} pieces;

static fcp_code list_pieces(const dividing *d, arena *scratch, pieces *p) {
    const cad_input *in = d->in;
    uint32_t most = 0;
    fcp_code code = group_new(scratch, d->bin, sizeof *d->bin, in->row_count, in->ranks, in->stop, &p->first, &p->item);
    for (uint32_t r = 0; r < in->ranks && !code; r++)
        if (p->first[r + 1] - p->first[r] > most) most = p->first[r + 1] - p->first[r];
    p->whole = ARENA_ZNEW(scratch, bool, in->ranks);
    p->runs = ARENA_NEW(scratch, cad_run, most + (size_t)1);
    p->own = ARENA_NEW(scratch, cad_own, most + (size_t)1);
    return code || (p->whole && p->runs && p->own) ? code : FCP_E_NO_MEMORY;
}

static fcp_code keep_at_rank(dividing *d, const pieces *p, uint32_t r) {
    const cad_input *in = d->in;
    size_t count = 0;
    cad_runs kept = {0};
    for (uint32_t i = p->first[r]; i < p->first[r + 1]; i++) {
        p->runs[count] = run_of(in, p->item[i]);
        if (cad_work(&in->pairs, &p->runs[count])) p->own[count++] = d->own[p->item[i]];
    }
    if (d->load[r] <= d->cap[r]) {
        for (size_t i = 0; i < count; i++)
            if (!cad_add_share(d->a, d->out, &p->runs[i], r)) return FCP_E_NO_MEMORY;
        d->room[r] = d->cap[r] - d->load[r];
        return FCP_OK;
    }
    fcp_code code = cad_keep(in, d->a, p->runs, p->own, count, d->cap[r],
                             p->whole[r] ? CAD_WHOLE_RUNS : d->mean / 4 * 3, &kept, &d->away[r / in->gpus]);
    if (code) return code;
    uint64_t left = 0;
    for (size_t i = 0; i < kept.count; i++) {
        left += cad_work(&in->pairs, &kept.at[i]);
        if (!cad_add_share(d->a, d->out, &kept.at[i], r)) return FCP_E_NO_MEMORY;
    }
    d->room[r] = sub_sat(d->cap[r], left);
    return FCP_OK;
}

static fcp_code keep_in_node(dividing *d, const pieces *p, uint32_t first, uint32_t end) {
    d->out->count = d->kept[first / d->in->gpus];
    d->away[first / d->in->gpus].count = 0;
    for (uint32_t r = first; r < end; r++) {
        fcp_code code = keep_at_rank(d, p, r);
        if (code) return code;
    }
    return FCP_OK;
}

/* Estimates the bytes that the node of ranks first to end - 1 sends to other nodes in the forward pass. It sends the Q
 * of each row that its ranks have no room for, and all K and V that it holds of these rows' sequences, each once. */
static fcp_code sent_by_node(const dividing *d, arena *a, uint32_t first, uint32_t end, uint64_t *out) {
    const cad_input *in = d->in;
    const cad_runs *away = &d->away[first / in->gpus];
    cad_runs stay = {0}, go = {0};
    cad_groups groups;
    uint64_t room = 0, rows = 0, keys = 0;
    cad_own *own = ARENA_NEW(a, cad_own, away->count + 1);
    if (!own) return FCP_E_NO_MEMORY;
    for (uint32_t r = first; r < end; r++) room += d->room[r];
    for (size_t i = 0; i < away->count; i++) own[i] = own_of_node(d, &away->at[i]);
    fcp_code code = cad_keep(in, a, away->at, own, away->count, room, d->mean / 4 * 3, &stay, &go);
    if (!code) code = cad_group(in, a, go.at, go.count, &groups);
    for (size_t g = 0; !code && g < groups.count; g++) {
        cad_own held = own_of_node(d, &groups.runs[groups.first[g]]);
        uint64_t at = 0;
        keys += held.end - held.first;
        for (size_t i = groups.first[g]; i < groups.first[g + 1]; i++) {
            const cad_run *r = &groups.runs[i];
            if (r->y > at) rows += r->y - (r->x > at ? r->x : at), at = r->y;
        }
    }
    *out = rows * in->wire.q + keys * in->wire.kv;
    return code;
}

/* The rank with most work, of those that have too much and may keep parts of rows. FCP_NONE: there is none. */
static uint32_t heaviest(const dividing *d, const pieces *p, uint32_t first, uint32_t end) {
    uint32_t best = FCP_NONE;
    for (uint32_t r = first; r < end; r++)
        if (d->load[r] > d->cap[r] && !p->whole[r] && (best == FCP_NONE || d->load[r] >= d->load[best])) best = r;
    return best;
}

/* While a node would send too much, one more of its ranks keeps only whole rows, the one with most work first. Nodes
 * with less than twice their share of the work are left alone (CAD_SENT in place_tuning.h). */
static fcp_code relieve_wires(dividing *d, const pieces *p, uint32_t first, uint32_t end, arena *scratch) {
    const uint64_t most = scaled(scaled(d->mean, d->in->wire.bytes), CAD_SENT) * (end - first);
    uint64_t before = UINT64_MAX, sent = 0, load = 0;
    uint32_t next = FCP_NONE;
    for (uint32_t r = first; r < end; r++) load += d->load[r] / 2;
    if (load / (end - first) < d->mean) return FCP_OK;
    if (!most || d->in->servers || heaviest(d, p, first, end) == FCP_NONE) return FCP_OK;
    for (;;) {
        fcp_code code = sent_by_node(d, scratch, first, end, &sent);
        if (code || sent <= most) return code;
        if (sent >= before) break; /* no more rows stay in the node: this rank keeps what it kept */
        before = sent;
        if ((next = heaviest(d, p, first, end)) == FCP_NONE) return FCP_OK;
        p->whole[next] = true;
        if ((code = keep_in_node(d, p, first, end))) return code;
    }
    p->whole[next] = false;
    return keep_in_node(d, p, first, end);
}

static void keep_half(void *given) {
    half *h = given;
    const cad_input *in = h->d.in;
    h->d.out = &h->found;
    for (uint32_t v = h->first; v < h->end && !h->code; v++) {
        const uint32_t first = v * in->gpus, end = first + in->gpus > in->ranks ? in->ranks : first + in->gpus;
        h->d.kept[v] = h->found.count;
        h->code = fcp_stop_asked(in->stop) ? FCP_E_INTERRUPTED : keep_in_node(&h->d, h->pieces, first, end);
        if (!h->code) h->code = relieve_wires(&h->d, h->pieces, first, end, h->scratch);
    }
}

/* Moves the shares that both threads have found to one list: first those of the first thread, then those of the
 * second. */
static fcp_code join_halves(dividing *d, half of[2]) {
    for (int i = 0; i < 2; i++) {
        for (size_t n = 0; n < of[i].found.count && !of[i].code; n++)
            if (!cad_add_share(d->a, d->out, &of[i].found.at[n].run, of[i].found.at[n].rank)) return FCP_E_NO_MEMORY;
        if (of[i].code) return of[i].code;
        of[i].found = (cad_shares){0};
    }
    return FCP_OK;
}

static void do_halves(const cad_input *in, void (*work)(void *), half of[2]) {
    if (in->second && of[1].first < of[1].end) {
        fcp_both(work, &of[0], &of[1]);
    } else {
        work(&of[0]);
        work(&of[1]);
    }
}

static fcp_code keep_at_ranks(dividing *d, half of[2]) {
    pieces p[2];
    for (int i = 0; i < 2; i++) {
        fcp_code code = list_pieces(d, of[i].scratch, &p[i]);
        if (code) return code;
        of[i].pieces = &p[i];
    }
    do_halves(d->in, keep_half, of);
    const size_t before = of[0].found.count;
    const fcp_code code = join_halves(d, of);
    for (uint32_t v = of[1].first; v < of[1].end; v++) d->kept[v] += before;
    d->kept[of[1].end] = d->out->count;
    return code;
}

/* Leaves the smallest rooms empty, as far as the tolerance allows: filling them costs most for each pair. */
static fcp_code skip_small_rooms(dividing *d, arena *scratch) {
    const cad_input *in = d->in;
    uint64_t *order = ARENA_NEW(scratch, uint64_t, in->ranks), *other = ARENA_NEW(scratch, uint64_t, in->ranks);
    if (!order || !other) return FCP_E_NO_MEMORY;
    uint64_t slack = 0, away = 0;
    for (uint32_t r = 0; r < in->ranks; r++) slack += order[r] = d->room[r];
    for (uint32_t v = 0; v * in->gpus < in->ranks; v++)
        for (size_t i = 0; i < d->away[v].count; i++) away += cad_work(&in->pairs, &d->away[v].at[i]);
    slack = scaled(sub_sat(slack, away), CAD_SKIP);
    order_rising(order, other, in->ranks);
    for (uint32_t i = 0; i < in->ranks; i++) {
        uint32_t r = (uint32_t)order[i];
        if (d->room[r] > slack) break;
        slack -= d->room[r];
        d->room[r] = 0;
    }
    return FCP_OK;
}

/* --- 3. nodes ----------------------------------------------------------------------------------------------------- */

static fcp_code move_between_nodes(dividing *d, arena *scratch) {
    const cad_input *in = d->in;
    const uint32_t nodes = nodes_of(in);
    uint64_t *room = ARENA_ZNEW(scratch, uint64_t, nodes), free_room = 0;
    if (!room) return FCP_E_NO_MEMORY;
    uint64_t reserve = scaled(scaled(d->mean, in->tolerance), CAD_RESERVE) * in->gpus;
    cad_runs go = {0};
    for (uint32_t r = 0; r < in->ranks; r++) room[r / in->gpus] += d->room[r];
    for (uint32_t v = 0; v < nodes; v++) {
        room[v] = sub_sat(room[v], reserve);
        free_room += room[v];
    }
    for (uint32_t v = 0; v < nodes; v++) {
        cad_runs stay = {0};
        uint64_t work = 0;
        cad_own *own = ARENA_NEW(scratch, cad_own, d->away[v].count + 1);
        if (!own) return FCP_E_NO_MEMORY;
        for (size_t i = 0; i < d->away[v].count; i++) own[i] = own_of_node(d, &d->away[v].at[i]);
        fcp_code code = cad_keep(in, d->a, d->away[v].at, own, d->away[v].count, room[v], free_room / nodes, &stay,
                                 &go);
        if (code) return code;
        for (size_t i = 0; i < stay.count; i++) work += cad_work(&in->pairs, &stay.at[i]);
        room[v] = sub_sat(room[v], work);
        d->away[v] = stay;
    }
    cad_shares moved = {0};
    cad_groups groups;
    fcp_code code = cad_group(in, d->a, go.at, go.count, &groups);
    uint64_t crumb = scaled(d->mean, in->tolerance) / CAD_CRUMB;
    if (!code) code = cad_sweep(in, d->a, &groups, NULL, room, nodes, crumb, &moved);
    for (size_t i = 0; i < moved.count && !code; i++) {
        uint32_t v = moved.at[i].rank == FCP_NONE ? moved.at[i].run.home / in->gpus : moved.at[i].rank;
        if (!cad_add_run(d->a, &d->away[v], &moved.at[i].run)) code = FCP_E_NO_MEMORY;
    }
    return code;
}

/* --- 4. ranks ----------------------------------------------------------------------------------------------------- */

/* Some runs found no room in their node. Gives each to any rank that has room; if there is none, its home computes
 * it. */
static fcp_code give_what_is_left(dividing *d, const cad_runs *left) {
    const cad_input *in = d->in;
    cad_groups groups;
    cad_shares shares = {0};
    fcp_code code = cad_group(in, d->a, left->at, left->count, &groups);
    if (!code) code = cad_sweep(in, d->a, &groups, NULL, d->room, in->ranks, 0, &shares);
    for (size_t i = 0; i < shares.count && !code; i++) {
        const cad_share *s = &shares.at[i];
        if (!cad_add_share(d->a, d->out, &s->run, s->rank == FCP_NONE ? s->run.home : s->rank)) code = FCP_E_NO_MEMORY;
    }
    return code;
}

static void give_half(void *given) {
    half *h = given;
    const dividing *d = &h->d;
    const cad_input *in = d->in;
    const uint32_t share = CAD_TRIES / nodes_of(in);
    const uint32_t patience = (uint32_t)min_u64(CAD_PATIENCE_MOST, max_u64(CAD_PATIENCE_LEAST, share));
    arena now = {.pool = d->a->pool};
    for (uint32_t v = h->first; v < h->end && !h->code; v++) {
        uint32_t first = v * in->gpus, ranks = first + in->gpus > in->ranks ? in->ranks - first : in->gpus;
        cad_shares shares;
        const size_t kept = d->kept[v + 1] - d->kept[v]; /* where no rank keeps anything there is no list */
        const cad_node node = {first, ranks, d->room + first, kept ? d->out->at + d->kept[v] : NULL, kept};
        h->code = cad_try(in, d->a, &now, &d->away[v], &node, scaled(d->mean, in->tolerance) / CAD_CRUMB, patience,
                          &shares);
        for (size_t i = 0; i < shares.count && !h->code; i++) {
            const cad_share *s = &shares.at[i];
            if (s->rank == FCP_NONE ? !cad_add_run(d->a, &h->left, &s->run)
                                    : !cad_add_share(d->a, &h->found, &s->run, first + s->rank))
                h->code = FCP_E_NO_MEMORY;
        }
    }
    arena_free(&now);
}

static fcp_code give_to_ranks(dividing *d, half of[2]) {
    cad_runs left = {0};
    of[0].d.out = of[1].d.out = d->out; /* only read until both have ended */
    do_halves(d->in, give_half, of);
    fcp_code code = join_halves(d, of);
    for (int i = 0; i < 2 && !code; i++)
        for (size_t n = 0; n < of[i].left.count; n++)
            if (!cad_add_run(d->a, &left, &of[i].left.at[n])) return FCP_E_NO_MEMORY;
    return !code && left.count ? give_what_is_left(d, &left) : code;
}

fcp_code cad_divide(const cad_input *in, arena *memory, arena *scratch, cad_shares *out) {
    const uint32_t nodes = nodes_of(in);
    dividing d = {.in = in, .a = memory, .out = out};
    *out = (cad_shares){0};
    d.load = ARENA_ZNEW(scratch, uint64_t, in->ranks);
    d.room = ARENA_ZNEW(scratch, uint64_t, in->ranks);
    d.cap = ARENA_NEW(scratch, uint64_t, in->ranks);
    d.bin = ARENA_NEW(scratch, uint32_t, in->row_count + (size_t)1);
    d.own = ARENA_NEW(scratch, cad_own, in->row_count + (size_t)1);
    d.node_own = ARENA_NEW(scratch, cad_own, in->row_count + (size_t)1);
    d.away = ARENA_ZNEW(scratch, cad_runs, nodes);
    d.kept = ARENA_NEW(scratch, size_t, nodes + (size_t)1);
    if (!d.load || !d.room || !d.cap || !d.bin || !d.own || !d.node_own || !d.away || !d.kept)
        return FCP_E_NO_MEMORY;
    const uint32_t middle = nodes < CAD_NODES ? nodes : nodes / 2;
    fcp_code code = assign_pieces(&d, scratch);
    if (code) return code;
    for (uint32_t i = 0; i < in->row_count; i++) {
        cad_run r = run_of(in, i);
        d.load[d.bin[i]] += cad_work(&in->pairs, &r);
    }
    code = cad_caps(in, d.load, scratch, d.cap);
    for (uint32_t r = 0; r < in->ranks; r++) d.mean += d.load[r] / in->ranks;
    half of[2] = {{.d = d, .scratch = scratch, .end = middle},
                  {.d = d, .scratch = scratch, .first = middle, .end = nodes}};
    if (in->second) of[1].d.a = of[1].scratch = in->second;
    if (!code) code = keep_at_ranks(&d, of);
    if (!code) code = skip_small_rooms(&d, scratch);
    if (!code) code = move_between_nodes(&d, scratch);
    if (!code) code = give_to_ranks(&d, of);
    return code;
}
