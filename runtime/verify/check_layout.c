/* check_layout.c: works out which callers hold the tokens of a rank's home blocks, and checks that the reshuffle moves
 * all of them.
 *
 * Requires: checked tables: pieces hold every token of a side once, for every head; a layout that is sound.
 * Gives:    for each rank its bundles with every caller: which blocks they hold tokens of, and how many.
 * Proves:   every unit of each of these bundles comes in once and goes out once; keys do not go out in the forward
 *           pass. match.c proves that the home and the caller agree on each transfer. Layout and homes give every token
 *           one caller and one home. So over all ranks every token is moved once each way.
 * Method:   the layout is worked out here from its definition (plan/layout.h), without the code that executors use.
 * Cost:     linear in the pieces and runs of the rank's home blocks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/carve.h"
#include "runtime/base/grow.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/sides.h"
#include "runtime/verify/verify_parts.h"

enum { CAME_IN = 1, WENT_OUT = 2 };

static fcp_code no_memory(const verifier *v) {
    return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify the reshuffle");
}

/* --- the layout --------------------------------------------------------------------------------------------------- */

/* Makes room for so many runs of a block. */
static bool reserve(layout_facts *l, size_t runs) {
    return FCP_GROW(l->found, l->found_room, l->count + runs);
}

/* Adds a run of tokens of a block to its home's bundle with a caller. There is room for it. */
static inline void hold(layout_facts *l, uint32_t caller, fcp_side side, uint32_t block, uint64_t tokens) {
    uint32_t key = 2 * caller + side;
    bundle_facts *b = &l->bundles[key];
    if (b->turn != l->turn) {
        *b = (bundle_facts){.turn = l->turn, .newest = FCP_NONE};
        l->met[l->met_count++] = key;
    }
    b->tokens += tokens;
    if (b->newest != FCP_NONE && l->found[b->newest].block == block) {
        l->found[b->newest].tokens += (uint32_t)tokens;
        return;
    }
    b->newest = (uint32_t)l->count;
    b->count++;
    l->found[l->count++] = (held_tokens){key, block, (uint32_t)tokens};
}

/* A block holds tokens [at, end) of n, which are cut into `parts` equal parts: adds what each part's rank holds. */
static bool hold_parts(const verifier *v, uint64_t n, uint64_t parts, uint64_t at, uint64_t end, uint32_t first_rank,
                       fcp_side side, uint32_t block) {
    layout_facts *l = v->layout;
    uint64_t group = l->group_ranks, step = n / parts, rest = n % parts;
    if (!reserve(l, step ? (end - at) / step + 2 : end - at)) return false;
    while (at < end) {
        /* the part with floor(i n / parts) <= at < floor((i + 1) n / parts) */
        uint64_t i = (uint64_t)(((unsigned __int128)parts * (at + 1) + n - 1) / n) - 1;
        uint64_t left = (i + 1) * rest % parts, until = (i + 1) * step + (i + 1) * rest / parts;
        for (;;) {
            uint32_t rank = first_rank + (uint32_t)(i < group ? i : 2 * group - 1 - i);
            uint64_t to = until < end ? until : end;
            hold(l, rank, side, block, to - at);
            at = to;
            if (at == end) return true;
            if (!step) break; /* parts may be empty: find the next that is not */
            i++;
            left += rest;
            until += step + (left >= parts);
            if (left >= parts) left -= parts;
        }
    }
    return true;
}

/* Finds the group that a sequence is in, and which sequences are in it with it. Neighbours are often in the same. */
static void find_group(const verifier *v, uint64_t sequence) {
    layout_facts *l = v->layout;
    if (sequence >= l->group_first && sequence < l->group_end) return;
    const uint64_t *q = fcp_offsets(v->plan, FCP_QUERIES), *k = fcp_offsets(v->plan, FCP_KEYS);
    const fcp_deal *deal = v->plan->deals; /* the one with the sequence: check.c says that they divide the batch */
    for (uint64_t low = 0, high = v->plan->deals_count; low < high;) {
        uint64_t i = (low + high) / 2;
        deal = &v->plan->deals[i];
        if (sequence < deal->first_sequence) high = i;
        else if (sequence - deal->first_sequence >= deal->sequences) low = i + 1;
        else break;
    }
    uint64_t begin = deal->first_sequence, after = begin + deal->sequences, done = q[begin] + k[begin];
    uint32_t ranks = v->p->layout_group == v->p->ranks ? deal->ranks : v->p->layout_group;
    uint64_t groups = deal->ranks / ranks, all = q[after] + k[after] - done, bounds[2];
    uint64_t middle = q[sequence] + q[sequence + 1] + k[sequence] + k[sequence + 1] - 2 * done;
    uint32_t group = (uint32_t)((unsigned __int128)middle * groups / (2 * (unsigned __int128)all));
    for (int end = 0; end < 2; end++) { /* the first sequence with middle * groups >= (group + end) * 2 * all */
        uint64_t low = begin, high = after;
        unsigned __int128 least = (unsigned __int128)(group + (uint64_t)end) * 2 * all;
        while (low < high) {
            uint64_t s = (low + high) / 2;
            if ((unsigned __int128)(q[s] + q[s + 1] + k[s] + k[s + 1] - 2 * done) * groups < least) low = s + 1;
            else high = s;
        }
        bounds[end] = low;
    }
    l->group_ranks = ranks;
    l->group_rank = deal->first_rank + group * ranks;
    l->group_first = bounds[0];
    l->group_end = bounds[1];
}

/* With the layout `planned` a token's caller is the home of its block of the first range of heads. Finds, for a
 * piece of another range, the pieces of the first range that hold its tokens. */
static bool hold_planned(const verifier *v, const fcp_piece *piece, fcp_side side) {
    const fcp_plan *plan = v->plan;
    const fcp_block *k = &plan->blocks[piece->block];
    layout_facts *l = v->layout;
    if (!reserve(l, 1)) return false;
    if (fcp_first_range(plan, k)) {
        hold(l, k->home, side, piece->block, piece->length);
        return true;
    }
    const first_piece *all = l->first_pieces[side], *end = all + l->first_count[side];
    size_t low = 0, high = l->first_count[side];
    while (low < high) { /* the last that begins at or before the piece */
        size_t middle = (low + high) / 2;
        const first_piece *f = &all[middle];
        if (f->sequence < piece->sequence || (f->sequence == piece->sequence && f->start <= piece->start))
            low = middle + 1;
        else high = middle;
    }
    const first_piece *f = all + (low ? low - 1 : 0);
    for (uint64_t at = piece->start, to = piece->start + piece->length; at < to && f < end; f++) {
        uint64_t until = f->start + f->length < to ? f->start + f->length : to;
        if (!reserve(l, 1)) return false;
        hold(l, f->home, side, piece->block, until - at);
        at = until;
    }
    return true;
}

static bool hold_piece(const verifier *v, const fcp_piece *piece, fcp_side side) {
    const layout_facts *l = v->layout;
    if (v->p->layout == FCP_LAYOUT_PLANNED) return hold_planned(v, piece, side);
    const uint64_t *offsets = fcp_offsets(v->plan, side);
    uint64_t s = piece->sequence, from = piece->start;
    find_group(v, s);
    uint32_t first_rank = l->group_rank;
    if (v->p->layout == FCP_LAYOUT_ZIGZAG)
        return hold_parts(v, offsets[s + 1] - offsets[s], 2 * (uint64_t)l->group_ranks, from, from + piece->length,
                          first_rank, side, piece->block);
    uint64_t base = offsets[l->group_first];
    from += offsets[s] - base;
    return hold_parts(v, offsets[l->group_end] - base, l->group_ranks, from, from + piece->length, first_rank, side,
                      piece->block);
}

static int by_start(const void *a, const void *b) {
    const first_piece *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

fcp_code fcp_verify_layout_open(verifier *v) {
    const fcp_plan *plan = v->plan;
    layout_facts *l;
    bundle_facts *bundles;
    uint32_t *met;
    const size_t most = 2 * (size_t)v->p->ranks;
    const fcp_carved tables[] = {{&l, 1, sizeof *l}, {&bundles, most, sizeof *bundles}, {&met, most, sizeof *met}};
    if (!FCP_CARVE(tables)) return no_memory(v);
    l->bundles = bundles;
    l->met = met;
    v->layout = l;
    if (v->p->layout != FCP_LAYOUT_PLANNED || plan->heads_count < 2) return FCP_OK;
    for (int side = 0; side < (v->split ? FCP_SIDES : 1); side++) {
        first_piece *all = l->first_pieces[side] = malloc((size_t)(plan->pieces_count + 1) * sizeof *all);
        if (!all) return no_memory(v);
        for (uint64_t i = 0; i < plan->pieces_count; i++) {
            const fcp_piece *p = &plan->pieces[i];
            const fcp_block *k = &plan->blocks[p->block];
            if (k->holds >> side & 1 && fcp_first_range(plan, k))
                all[l->first_count[side]++] = (first_piece){p->start, p->sequence, p->length, k->home};
        }
        qsort(all, l->first_count[side], sizeof *all, by_start);
    }
    return FCP_OK;
}

void fcp_verify_layout_close(verifier *v) {
    layout_facts *l = v->layout;
    if (!l) return;
    for (int side = 0; side < FCP_SIDES; side++) free(l->first_pieces[side]);
    free(l->found);
    free(l->held);
    free(l->units);
    free(l); /* and bundles and met */
}

/* --- one rank's bundles ------------------------------------------------------------------------------------------- */

fcp_code fcp_verify_layout_of(verifier *v, uint32_t rank) {
    const fcp_plan *plan = v->plan;
    layout_facts *l = v->layout;
    l->rank = rank;
    l->turn++;
    l->count = l->met_count = 0;
    for (uint32_t h = v->home_first[rank]; h < v->home_first[rank + 1]; h++) {
        const fcp_block *k = &plan->blocks[v->home_blocks[h]];
        for (const fcp_piece *p = plan->pieces + k->first_piece, *end = p + k->pieces; p < end; p++)
            if (!hold_piece(v, p, fcp_side_of(k))) return no_memory(v);
    }
    /* bring what was found in the order of blocks into the order of bundles */
    size_t at = 0, units = 0;
    for (size_t i = 0; i < l->met_count; i++) {
        bundle_facts *b = &l->bundles[l->met[i]];
        b->first = at;
        at += b->count;
        b->count = 0;
        b->total = 0;
        b->unit = units;
        units += l->met[i] / 2 == rank ? 1 : (b->tokens + v->p->unit - 1) / v->p->unit;
    }
    if (!FCP_GROW(l->held, l->held_room, l->count) ||
        !FCP_GROW(l->units, l->units_room, units))
        return no_memory(v);
    for (size_t i = 0; i < l->count; i++) {
        bundle_facts *b = &l->bundles[l->found[i].key];
        b->total += l->found[i].tokens;
        l->held[b->first + b->count++] =
            (held_in_bundle){l->found[i].block, b->total < UINT32_MAX ? (uint32_t)b->total : UINT32_MAX};
    }
    if (units) memset(l->units, 0, units);
    return FCP_OK;
}

/* "transfer 12 of the bundle with rank 3 (keys)" */
static fcp_code bad_unit(const verifier *v, fcp_queue queue, uint32_t index, const fcp_transfer *t, const char *why) {
    return fcp_verify_fail(v, FCP_E_VERIFY_LAYOUT, v->layout->rank, queue, index,
                           "transfer %zu, tokens %u to %llu of the %s bundle with rank %u%s: %s",
                           (size_t)(t - v->plan->transfers), t->first, (unsigned long long)t->first + t->tokens,
                           fcp_class_texts[t->cls], t->peer,
                           !v->split ? "" : t->side == FCP_KEYS ? " (keys)" : " (queries)", why);
}

fcp_code fcp_verify_unit(const verifier *v, fcp_queue queue, uint32_t index, const fcp_transfer *t, unit_walk *out) {
    layout_facts *l = v->layout;
    const bundle_facts *b = &l->bundles[2 * (size_t)t->peer + t->side];
    bool copy = t->peer == l->rank, in = t->cls == FCP_IN;
    if (b->turn != l->turn) return bad_unit(v, queue, index, t, "there is none");
    if (!in && v->pass == FCP_FORWARD && t->side == FCP_KEYS)
        return bad_unit(v, queue, index, t, "keys have no results in this pass");
    uint64_t end = (uint64_t)t->first + t->tokens, unit = copy ? b->tokens : v->p->unit;
    if (end > b->tokens || t->first % unit || (t->tokens != unit && end != b->tokens)) {
        char why[80];
        snprintf(why, sizeof why, "it has %llu tokens, in %s of %llu", (unsigned long long)b->tokens,
                 copy ? "one copy" : "units", (unsigned long long)unit);
        return bad_unit(v, queue, index, t, why);
    }
    uint8_t *seen = &l->units[b->unit + t->first / unit], now = in ? CAME_IN : WENT_OUT;
    if (*seen & now) return bad_unit(v, queue, index, t, in ? "it came in before" : "it went out before");
    *seen |= now;
    const held_in_bundle *held = l->held + b->first;
    uint64_t low = 0, high = t->first ? b->count - 1 : 0; /* the first entry that ends behind the unit's first token */
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (held[middle].end > t->first) high = middle;
        else low = middle + 1;
    }
    *out = (unit_walk){held + low, low ? held[low - 1].end : 0, t->first, (uint32_t)end};
    return FCP_OK;
}

fcp_code fcp_verify_layout_end(const verifier *v) {
    const layout_facts *l = v->layout;
    for (size_t i = 0; i < l->met_count; i++) {
        uint32_t peer = l->met[i] / 2, side = l->met[i] % 2;
        const bundle_facts *b = &l->bundles[l->met[i]];
        uint64_t unit = peer == l->rank ? b->tokens : v->p->unit;
        uint8_t needed = v->pass == FCP_FORWARD && side == FCP_KEYS ? CAME_IN : CAME_IN | WENT_OUT;
        for (uint64_t u = 0; u * unit < b->tokens; u++)
            if (l->units[b->unit + u] != needed)
                return fcp_verify_fail_rank(v, v->err, FCP_E_VERIFY_LAYOUT, l->rank,
                                            ": the unit of its bundle with rank %u%s from token %llu on is not moved "
                                            "%s",
                                            peer, !v->split ? "" : side == FCP_KEYS ? " (keys)" : " (queries)",
                                            (unsigned long long)(u * unit),
                                            l->units[b->unit + u] & CAME_IN ? "out" : "in");
    }
    return FCP_OK;
}
