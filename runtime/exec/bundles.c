/* bundles.c: works out which tokens are in the bundles that IN, OUT and COPY move.
 *
 * Example:  rank 0's caller holds tokens 0 to 99 of a sequence, and rank 1's the rest: two runs of the layout. A piece
 *           has tokens 60 to 139, and its home is rank 2. It is cut into stretches 60 to 99, for the bundle from rank
 *           0 to rank 2, and 100 to 139, for the bundle from rank 1 to rank 2.
 * Requires: a verified plan.
 * Gives:    bundles.h.
 * Method:   1. List the pieces of each sequence in order of start.
 *           2. Sequence by sequence, list the runs of the layout, each with its place in its rank's tensors.
 *           3. Cut each piece into stretches where a run ends.
 *           4. Bring the stretches into the order of pieces, which is that of (block, offset), by a counting sort.
 *           5. Sort the ends of stretches, by two counting sorts, so that those of a bundle follow each other.
 *           6. Append each stretch to its bundle. Stretches that follow each other at both ends become one.
 * Cost:     linear in ranks, pieces, runs and stretches. Step 1 sorts the pieces of a sequence if they are out of order.
 */
#include "runtime/exec/bundles.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/sides.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/plan/layout.h"

/* A part of a piece that lies in one run of the layout. */
typedef struct stretch {
    uint32_t piece, from, tokens; /* from: counted from the piece's first token */
    uint32_t caller, place;
} stretch;

/* Tokens start to end - 1 of the sequence at hand lie at `rank`, from `place` on. */
typedef struct held {
    uint64_t start, end;
    uint32_t rank, place;
} held;

/* A piece in the list of its sequence's. */
typedef struct listed {
    uint64_t start;
    uint32_t piece;
} listed;

struct fcp_bundles {
    uint32_t first_rank, rank_count;
    const uint64_t *groups; /* per rank and group, and one more: where the bundles of a group begin */
    const fcp_bundle_at *list;
    const fcp_bundle_run *runs;
    void *owned[3]; /* these three; NULL: they are an extract's */
};

/* One end of a stretch's bundle, of a rank of this process. */
typedef struct bundle_end {
    uint32_t group, peer; /* group: counted from this process's first rank */
    uint32_t stretch;
} bundle_end;

static uint32_t group_of(const fcp_bundles *b, uint32_t rank, uint32_t at, uint32_t side) {
    return ((rank - b->first_rank) * FCP_ENDS + at) * FCP_SIDES + side;
}

typedef struct maker {
    const fcp_plan *plan;
    fcp_bundles *out;
    fcp_side side;
    uint32_t *first;  /* per sequence, and two more: where its pieces of the side begin in `order` */
    listed *order;
    uint32_t *places; /* planned: per piece, where its tokens begin at its home */
    uint32_t *filled; /* per rank: tokens held so far */
    held *held;
    size_t held_count, held_room;
    stretch *stretches;
    size_t count, room;
} maker;

static int by_start(const void *a, const void *b) {
    const listed *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Lists the side's pieces by (sequence, start). */
static void order_pieces(maker *m) {
    const fcp_plan *plan = m->plan;
    memset(m->first, 0, (size_t)(plan->sequences_count + 2) * sizeof *m->first);
    for (uint64_t i = 0; i < plan->pieces_count; i++)
        m->first[plan->pieces[i].sequence + 2] += plan->blocks[plan->pieces[i].block].holds >> m->side & 1;
    for (uint64_t s = 2; s <= plan->sequences_count; s++) m->first[s] += m->first[s - 1];
    for (uint64_t i = 0; i < plan->pieces_count; i++) {
        const fcp_piece *p = &plan->pieces[i];
        if (plan->blocks[p->block].holds >> m->side & 1)
            m->order[m->first[p->sequence + 1]++] = (listed){p->start, (uint32_t)i};
    }
    for (uint64_t s = 0; s < plan->sequences_count; s++) {
        listed *these = m->order + m->first[s];
        size_t n = m->first[s + 1] - m->first[s];
        for (size_t i = 1; i < n; i++)
            if (these[i].start < these[i - 1].start) {
                qsort(these, n, sizeof *these, by_start);
                break;
            }
    }
}

static bool add_held(maker *m, uint64_t start, uint64_t end, uint32_t rank, uint32_t place) {
    if (!FCP_GROW(m->held, m->held_room, m->held_count + 1)) return false;
    m->held[m->held_count++] = (held){start, end, rank, place};
    return true;
}

/* Where each piece of the first range of heads begins at its home. */
static void place_planned(maker *m) {
    const fcp_plan *plan = m->plan;
    for (uint64_t b = 0; b < plan->blocks_count; b++) {
        const fcp_block *k = &plan->blocks[b];
        if (!(k->holds >> m->side & 1) || !fcp_first_range(plan, k)) continue;
        for (uint32_t i = k->first_piece; i < k->first_piece + k->pieces; i++) {
            m->places[i] = m->filled[k->home];
            m->filled[k->home] += plan->pieces[i].length;
        }
    }
}

/* Lists the runs of a sequence, in order of start. */
static bool list_planned(maker *m, uint64_t sequence) {
    const fcp_plan *plan = m->plan;
    for (uint32_t i = m->first[sequence]; i < m->first[sequence + 1]; i++) {
        const fcp_piece *p = &plan->pieces[m->order[i].piece];
        const fcp_block *k = &plan->blocks[p->block];
        if (!fcp_first_range(plan, k)) continue;
        if (!add_held(m, p->start, p->start + p->length, k->home, m->places[m->order[i].piece])) return false;
    }
    return true;
}

static bool list_by_rule(maker *m, fcp_walk *walk, uint64_t sequence) {
    uint64_t n = fcp_side_length(&m->plan->sequences[sequence], m->side), at = 0;
    uint64_t offset = fcp_offsets(m->plan, m->side)[sequence];
    if (!n) return true;
    fcp_walk_to(walk, sequence, 0);
    for (;;) {
        uint32_t rank = fcp_walk_rank(walk);
        uint64_t end = fcp_walk_end(walk) - offset;
        if (end > n) end = n;
        if (!add_held(m, at, end, rank, m->filled[rank])) return false;
        m->filled[rank] += (uint32_t)(end - at);
        at = end;
        if (at == n) return true;
        fcp_walk_next(walk);
    }
}

/* Cuts a piece where runs end. Keeps what concerns a rank of this process. */
static bool cut_piece(maker *m, uint32_t piece) {
    const fcp_piece *p = &m->plan->pieces[piece];
    uint32_t home = m->plan->blocks[p->block].home, from = m->out->first_rank, count = m->out->rank_count;
    size_t low = 0, high = m->held_count; /* held[low].start <= p->start < held[high].start */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (m->held[middle].start <= p->start) low = middle;
        else high = middle;
    }
    for (uint64_t at = p->start, end = p->start + p->length; at < end; low++) {
        const held *h = &m->held[low];
        uint64_t to = h->end < end ? h->end : end;
        if (home - from < count || h->rank - from < count) {
            if (!FCP_GROW(m->stretches, m->room, m->count + 1)) return false;
            m->stretches[m->count++] = (stretch){piece, (uint32_t)(at - p->start), (uint32_t)(to - at), h->rank,
                                                 h->place + (uint32_t)(at - h->start)};
        }
        at = to;
    }
    return true;
}

static bool list_side(maker *m) {
    const fcp_plan *plan = m->plan;
    fcp_rule rule = fcp_rule_of(plan);
    fcp_walk walk = fcp_walk_of(&rule, m->side);
    bool planned = plan->problem->layout == FCP_LAYOUT_PLANNED;
    m->count = 0;
    memset(m->filled, 0, plan->problem->ranks * sizeof *m->filled);
    order_pieces(m);
    if (planned) place_planned(m);
    for (uint64_t s = 0; s < plan->sequences_count; s++) {
        m->held_count = 0;
        if (!(planned ? list_planned(m, s) : list_by_rule(m, &walk, s))) return false;
        for (uint32_t i = m->first[s]; i < m->first[s + 1]; i++)
            if (!cut_piece(m, m->order[i].piece)) return false;
    }
    return true;
}

/* The stretches in the order of pieces; those of one piece are in order. In malloc'd memory. */
static stretch *in_order(const maker *m) {
    size_t pieces = (size_t)m->plan->pieces_count;
    uint64_t *at = calloc(pieces + 1, sizeof *at);
    stretch *sorted = malloc((m->count + 1) * sizeof *sorted);
    if (at && sorted) {
        for (size_t i = 0; i < m->count; i++) at[m->stretches[i].piece + 1]++;
        for (size_t i = 1; i <= pieces; i++) at[i] += at[i - 1];
        for (size_t i = 0; i < m->count; i++) sorted[at[m->stretches[i].piece]++] = m->stretches[i];
    } else {
        free(sorted);
        sorted = NULL;
    }
    free(at);
    return sorted;
}

/* The ends of a stretch's bundle that are of this process: at its caller, and at its home if that is another rank. */
static uint32_t ends_of(const maker *m, const stretch *s, uint32_t number, bundle_end out_ends[FCP_ENDS]) {
    const fcp_bundles *b = m->out;
    uint32_t home = m->plan->blocks[m->plan->pieces[s->piece].block].home, n = 0;
    if (s->caller - b->first_rank < b->rank_count)
        out_ends[n++] = (bundle_end){group_of(b, s->caller, FCP_AT_CALLER, m->side), home, number};
    if (home != s->caller && home - b->first_rank < b->rank_count)
        out_ends[n++] = (bundle_end){group_of(b, home, FCP_AT_HOME, m->side), s->caller, number};
    return n;
}

/* Brings ends into the order of their groups, or peers, which are below `keys`. Those that are equal stay in order. */
static void sort_ends(const bundle_end *from, bundle_end *to, size_t count, bool by_peer, uint64_t *at, size_t keys) {
    memset(at, 0, (keys + 1) * sizeof *at);
    for (size_t i = 0; i < count; i++) at[(by_peer ? from[i].peer : from[i].group) + 1]++;
    for (size_t i = 1; i <= keys; i++) at[i] += at[i - 1];
    for (size_t i = 0; i < count; i++) to[at[by_peer ? from[i].peer : from[i].group]++] = from[i];
}

/* Adds a stretch of tokens to the bundle whose runs are runs[first] to runs[*end - 1]. If it follows the last run
 * both in the caller's tensor and in the block, it makes that run longer. */
static void add_stretch(const maker *m, const stretch *s, fcp_bundle_run *runs, uint64_t first, uint64_t *end) {
    const fcp_piece *p = &m->plan->pieces[s->piece];
    const uint32_t offset = p->offset + s->from;
    fcp_bundle_run run = {0, s->tokens, s->place, p->block, offset};
    if (*end != first) {
        fcp_bundle_run *last = &runs[*end - 1];
        run.at = last->at + last->tokens;
        if (last->block == p->block && last->first + last->tokens == offset &&
            last->place + last->tokens == s->place) {
            last->tokens += s->tokens;
            return;
        }
    }
    runs[(*end)++] = run;
}

/* Makes the bundles of ends in the order of (group, peer, stretch); `sorted` has the stretches of each side. */
static bool list_bundles(const maker *m, const bundle_end *ends, size_t count, stretch *const sorted[FCP_SIDES]) {
    fcp_bundles *b = m->out;
    const size_t groups = (size_t)b->rank_count * FCP_BUNDLE_GROUPS;
    size_t bundles = 0, group = 0;
    uint64_t runs_end = 0;
    for (size_t i = 0; i < count; i++)
        bundles += !i || ends[i].group != ends[i - 1].group || ends[i].peer != ends[i - 1].peer;
    uint64_t *starts = b->owned[0] = malloc((groups + 1) * sizeof *starts);
    fcp_bundle_at *list = b->owned[1] = malloc((bundles + 1) * sizeof *list);
    fcp_bundle_run *runs = b->owned[2] = malloc((count + 1) * sizeof *runs);
    if (!starts || !list || !runs) return false;
    bundles = 0;
    for (size_t i = 0; i < count; i++) {
        const bundle_end *x = &ends[i];
        if (!i || x->group != ends[i - 1].group || x->peer != ends[i - 1].peer) {
            while (group <= x->group) starts[group++] = bundles;
            list[bundles++] = (fcp_bundle_at){.first_run = runs_end, .peer = x->peer};
        }
        add_stretch(m, &sorted[x->group % FCP_SIDES][x->stretch], runs, list[bundles - 1].first_run, &runs_end);
    }
    while (group <= groups) starts[group++] = bundles;
    list[bundles] = (fcp_bundle_at){.first_run = runs_end};
    fcp_bundle_run *fitting = realloc(runs, (size_t)(runs_end + 1) * sizeof *runs); /* joined runs leave room free */
    if (fitting) b->owned[2] = runs = fitting;
    b->groups = starts;
    b->list = list;
    b->runs = runs;
    return true;
}

/* Puts the stretches of all sides into bundles. */
static bool hand_out(maker *m, stretch *const sorted[FCP_SIDES], const size_t counts[FCP_SIDES]) {
    const size_t ranks = m->plan->problem->ranks, groups = (size_t)m->out->rank_count * FCP_BUNDLE_GROUPS;
    const size_t most = FCP_ENDS * (counts[FCP_QUERIES] + counts[FCP_KEYS]), keys = groups > ranks ? groups : ranks;
    bundle_end *ends = malloc((most + 1) * sizeof *ends), *other = malloc((most + 1) * sizeof *other);
    uint64_t *at = malloc((keys + 1) * sizeof *at);
    size_t count = 0;
    const bool room = ends && other && at;
    for (int side = 0; room && side < FCP_SIDES; side++) {
        m->side = (fcp_side)side;
        for (size_t i = 0; i < counts[side]; i++) count += ends_of(m, &sorted[side][i], (uint32_t)i, ends + count);
    }
    if (room) sort_ends(ends, other, count, true, at, ranks);
    if (room) sort_ends(other, ends, count, false, at, groups);
    const bool good = room && list_bundles(m, ends, count, sorted);
    free(ends);
    free(other);
    free(at);
    return good;
}

/* An extract has its rank's bundles. */
static fcp_code take_from(const fcp_plan *plan, fcp_bundles *b) {
    const fcp_extract *x = plan->extract;
    *b = (fcp_bundles){x->about->rank, 1, x->groups, x->bundles, x->bundle_runs, {NULL}};
    return FCP_OK;
}

fcp_code fcp_bundles_make(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_bundles **out_bundles,
                          fcp_error *err) {
    uint32_t ranks = plan->problem->ranks;
    fcp_bundles *b = calloc(1, sizeof *b);
    maker m = {.plan = plan, .out = b};
    stretch *sorted[FCP_SIDES] = {NULL};
    size_t counts[FCP_SIDES] = {0};
    if (b && plan->extract) {
        *out_bundles = b;
        return take_from(plan, b);
    }
    if (b) *b = (fcp_bundles){.first_rank = first_rank, .rank_count = rank_count};
    m.first = malloc((size_t)(plan->sequences_count + 2) * sizeof *m.first);
    m.order = malloc((size_t)(plan->pieces_count + 1) * sizeof *m.order);
    m.places = malloc((size_t)(plan->pieces_count + 1) * sizeof *m.places);
    m.filled = malloc(ranks * sizeof *m.filled);
    bool good = b && m.first && m.order && m.places && m.filled;
    for (int side = 0; good && side < (fcp_plan_split(plan) ? FCP_SIDES : 1); side++) {
        m.side = (fcp_side)side;
        good = list_side(&m) && (sorted[side] = in_order(&m));
        counts[side] = m.count;
    }
    good = good && hand_out(&m, sorted, counts);
    for (int side = 0; side < FCP_SIDES; side++) free(sorted[side]);
    free(m.first);
    free(m.order);
    free(m.places);
    free(m.filled);
    free(m.held);
    free(m.stretches);
    if (good) {
        *out_bundles = b;
        return FCP_OK;
    }
    fcp_bundles_free(b);
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for what moves between the layout and the homes");
}

void fcp_bundles_free(fcp_bundles *b) {
    if (!b) return;
    for (int i = 0; i < 3; i++) free(b->owned[i]);
    free(b);
}

fcp_bundle fcp_bundle_of(const fcp_bundles *b, uint32_t rank, const fcp_transfer *t) {
    const uint32_t group = group_of(b, rank, fcp_at_caller(t) ? FCP_AT_CALLER : FCP_AT_HOME, t->side);
    uint64_t low = b->groups[group], high = b->groups[group + 1], end = high;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (b->list[middle].peer < t->peer) low = middle + 1;
        else high = middle;
    }
    if (low == end || b->list[low].peer != t->peer) return (fcp_bundle){b->runs, 0};
    const uint64_t first = b->list[low].first_run;
    return (fcp_bundle){b->runs + first, (uint32_t)(b->list[low + 1].first_run - first)};
}

const uint64_t *fcp_bundles_groups(const fcp_bundles *b, uint32_t rank, const fcp_bundle_at **out_list) {
    *out_list = b->list;
    return b->groups + group_of(b, rank, 0, 0);
}

fcp_bundle fcp_bundles_of(const fcp_bundles *b, uint32_t rank) {
    const uint64_t *groups = b->groups + group_of(b, rank, 0, 0);
    const uint64_t first = b->list[groups[0]].first_run, end = b->list[groups[FCP_BUNDLE_GROUPS]].first_run;
    return (fcp_bundle){b->runs + first, (uint32_t)(end - first)};
}

bool fcp_bundle_next(const fcp_bundle *bundle, const fcp_transfer *t, uint32_t *i, fcp_bundle_run *out_run) {
    uint32_t end = t->first + t->tokens;
    if (*i == 0) { /* the run that holds the first token */
        uint32_t low = 0, high = bundle->count;
        while (high - low > 1) {
            uint32_t middle = low + (high - low) / 2;
            if (bundle->runs[middle].at <= t->first) low = middle;
            else high = middle;
        }
        *i = low;
    }
    if (*i >= bundle->count || bundle->runs[*i].at >= end) return false;
    fcp_bundle_run run = bundle->runs[(*i)++];
    if (run.at + run.tokens > end) run.tokens = end - run.at;
    if (run.at < t->first) {
        uint32_t skip = t->first - run.at;
        run.at += skip;
        run.tokens -= skip;
        run.place += skip;
        run.first += skip;
    }
    *out_run = run;
    return true;
}
