/* layout.c: the caller's layouts as functions of the lengths and the homes. layout.h states the rules.
 *
 * Requires: a checked plan; fcp_plan_index_layout an indexed one, and only that.
 * Cost:     a walk takes a few divisions for each piece that it is sent to, and additions for each run after that.
 */
#include "runtime/plan/layout.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/saturate.h"

/* floor(i * n / parts) */
static uint64_t share(uint64_t i, uint64_t n, uint64_t parts) {
    return (uint64_t)((unsigned __int128)i * n / parts);
}

fcp_rule fcp_rule_of(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    return (fcp_rule){.layout = p->layout, .ranks = p->ranks, .group = p->layout_group,
                      .sequences = plan->sequences_count,
                      .offsets = {fcp_offsets(plan, FCP_QUERIES), fcp_offsets(plan, FCP_KEYS)}};
}

static uint64_t before(const fcp_rule *r, uint64_t sequence) {
    return r->offsets[FCP_QUERIES][sequence] + r->offsets[FCP_KEYS][sequence];
}

static uint32_t group_of(const fcp_rule *r, uint64_t sequence) {
    return (uint32_t)share(before(r, sequence) + before(r, sequence + 1), r->ranks / r->group,
                           2 * before(r, r->sequences));
}

uint64_t fcp_rule_first(const fcp_rule *r, uint32_t group) {
    uint64_t low = 0, high = r->sequences;
    if (group == 0) return 0;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (group_of(r, middle) < group) low = middle + 1;
        else high = middle;
    }
    return low;
}

void fcp_walk_group(fcp_walk *w, uint64_t sequence) {
    uint32_t group = group_of(w->rule, sequence);
    w->first = fcp_rule_first(w->rule, group);
    w->end = fcp_rule_first(w->rule, group + 1);
    w->rank = group * w->rule->group;
    w->parts = 0;
}

void fcp_walk_cut(fcp_walk *w, uint64_t total, uint64_t parts, uint64_t at) {
    if (total != w->total || parts != w->parts) {
        w->whole = total / parts;
        w->rest = total % parts;
    }
    w->total = total;
    w->parts = parts;
    w->part = at || total < parts ? (uint64_t)((((unsigned __int128)at + 1) * parts - 1) / total) : 0;
    w->begin = w->part * w->whole + w->part * w->rest / parts; /* parts are at most 2^25 */
    w->error = w->part * w->rest % parts;
    w->over = w->begin + w->whole + (w->error + w->rest >= parts);
}

/* Zigzag: sequences whose lengths leave the same rest have the same parts with a token more. So each rest is looked at
 * once, with the number of its sequences. */
static void zigzag_tokens(const fcp_rule *r, const uint64_t *offsets, uint32_t group, uint64_t *rests, uint64_t *out) {
    uint64_t first = fcp_rule_first(r, group), end = fcp_rule_first(r, group + 1), whole = 0;
    uint64_t count = r->group, parts = 2 * count;
    memset(rests, 0, parts * sizeof *rests);
    for (uint64_t s = first; s < end; s++) {
        uint64_t n = offsets[s + 1] - offsets[s];
        whole += n / parts;
        rests[n % parts]++;
    }
    for (uint64_t i = 0; i < count; i++) out[i] = 2 * whole;
    for (uint64_t rest = 1; rest < parts; rest++)
        for (uint64_t j = 1; rests[rest] && j <= rest; j++) {
            uint64_t part = (j * parts + rest - 1) / rest - 1; /* the part that has the j-th token more */
            out[part < count ? part : parts - 1 - part] += rests[rest];
        }
}

void fcp_rule_tokens(const fcp_rule *r, fcp_side side, uint64_t *parts, uint64_t *out_tokens) {
    const uint64_t *offsets = r->offsets[side];
    for (uint32_t g = 0; g < r->ranks / r->group; g++, out_tokens += r->group) {
        if (r->layout == FCP_LAYOUT_ZIGZAG) {
            zigzag_tokens(r, offsets, g, parts, out_tokens);
            continue;
        }
        uint64_t n = offsets[fcp_rule_first(r, g + 1)] - offsets[fcp_rule_first(r, g)];
        for (uint64_t i = 0; i < r->group; i++) out_tokens[i] = share(i + 1, n, r->group) - share(i, n, r->group);
    }
}

bool fcp_layout_is_sound(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    return plan->problem_count == 1 && p->ranks > 0 && p->ranks <= FCP_MAX_RANKS && p->layout < FCP_LAYOUTS &&
           p->layout_group > 0 && p->ranks % p->layout_group == 0 &&
           (p->layout != FCP_LAYOUT_PLANNED || p->layout_group == p->ranks) &&
           plan->streams_count == (uint64_t)FCP_PASSES * p->ranks * FCP_QUEUES;
}

/* Does the planned layout show this block's tokens at its home? Of the blocks of a token it is one: that of the first
 * range of heads. */
static bool shows(const fcp_plan *plan, const fcp_block *b, fcp_side side) {
    return b->holds >> side & 1 && fcp_first_range(plan, b);
}

fcp_code fcp_plan_index_layout(fcp_plan *plan, fcp_error *err) {
    free(plan->rank_tokens);
    plan->rank_tokens = NULL;
    plan->split = false;
    for (uint64_t b = 0; b < plan->blocks_count; b++) plan->split |= plan->blocks[b].holds != FCP_HOLDS_BOTH;
    if (!fcp_layout_is_sound(plan)) return FCP_OK; /* fcp_plan_check says so */
    uint32_t ranks = plan->problem->ranks;
    uint64_t queries = fcp_offsets(plan, FCP_QUERIES)[plan->sequences_count];
    uint64_t keys = fcp_offsets(plan, FCP_KEYS)[plan->sequences_count];
    uint64_t *tokens = calloc(4 * (size_t)ranks, sizeof *tokens);
    if (!tokens) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the layout of %u ranks", ranks);
    plan->rank_tokens = tokens;
    if (plan->problem->layout != FCP_LAYOUT_PLANNED) {
        fcp_rule rule = fcp_rule_of(plan);
        if (!queries || queries >> 41 || !keys || keys >> 41) return FCP_OK; /* likewise */
        fcp_rule_tokens(&rule, FCP_QUERIES, tokens + 2 * (size_t)ranks, tokens);
        fcp_rule_tokens(&rule, FCP_KEYS, tokens + 2 * (size_t)ranks, tokens + ranks);
        return FCP_OK;
    }
    for (uint64_t b = 0; b < plan->blocks_count; b++) {
        const fcp_block *k = &plan->blocks[b];
        if (k->home >= ranks || k->heads >= plan->heads_count) continue; /* likewise */
        for (int side = 0; side < FCP_SIDES; side++) {
            uint64_t *sum = &tokens[(size_t)side * ranks + k->home];
            if (shows(plan, k, (fcp_side)side)) *sum = fcp_plus(*sum, k->tokens);
        }
    }
    return FCP_OK;
}

uint64_t fcp_side_tokens(const fcp_plan *plan, fcp_side side, uint32_t rank) {
    uint32_t ranks = plan->problem->ranks;
    return rank < ranks ? plan->rank_tokens[(size_t)side * ranks + rank] : 0;
}

/* --- one rank's layout, run by run -------------------------------------------------------------------------------- */

static bool next_planned(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out) {
    for (; at->item < plan->blocks_count; at->item++, at->part = 0) {
        const fcp_block *b = &plan->blocks[at->item];
        if (b->home != rank || !shows(plan, b, side) || at->part == b->pieces) continue;
        const fcp_piece *piece = &plan->pieces[b->first_piece + at->part++];
        *out = (fcp_span){piece->sequence, piece->length, piece->start};
        return true;
    }
    return false;
}

/* The sequence of a group that holds token x of the packed side. */
static uint64_t sequence_at(const uint64_t *offsets, uint64_t first, uint64_t end, uint64_t x) {
    while (end - first > 1) {
        uint64_t middle = first + (end - first) / 2;
        if (offsets[middle] <= x) first = middle;
        else end = middle;
    }
    return first;
}

/* `done` tokens are behind. */
static bool next_contiguous(const fcp_rule *r, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out) {
    const uint64_t *offsets = r->offsets[side];
    uint32_t group = rank / r->group, i = rank % r->group;
    uint64_t first = fcp_rule_first(r, group), end = fcp_rule_first(r, group + 1), base = offsets[first];
    uint64_t x = base + share(i, offsets[end] - base, r->group) + at->done;
    uint64_t to = base + share(i + (uint64_t)1, offsets[end] - base, r->group);
    if (x >= to) return false;
    uint64_t s = at->done ? at->item : sequence_at(offsets, first, end, x);
    if (offsets[s + 1] < to) to = offsets[s + 1];
    *out = (fcp_span){(uint32_t)s, (uint32_t)(to - x), x - offsets[s]};
    at->item = s + 1;
    at->done += to - x;
    return true;
}

static bool next_zigzag(const fcp_rule *r, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out) {
    const uint64_t *offsets = r->offsets[side];
    uint32_t group = rank / r->group;
    uint64_t end = fcp_rule_first(r, group + 1), parts = 2 * (uint64_t)r->group, i = rank % r->group;
    if (!at->item && !at->part) at->item = fcp_rule_first(r, group);
    while (at->item < end) {
        uint64_t s = at->item, n = offsets[s + 1] - offsets[s], part = at->part ? parts - 1 - i : i;
        uint64_t from = share(part, n, parts), to = share(part + 1, n, parts);
        at->item += at->part;
        at->part ^= 1;
        if (from == to) continue;
        *out = (fcp_span){(uint32_t)s, (uint32_t)(to - from), from};
        return true;
    }
    return false;
}

bool fcp_side_layout(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    if (rank >= plan->problem->ranks) return false;
    if (plan->problem->layout == FCP_LAYOUT_PLANNED) return next_planned(plan, side, rank, at, out_span);
    fcp_rule rule = fcp_rule_of(plan);
    return plan->problem->layout == FCP_LAYOUT_ZIGZAG ? next_zigzag(&rule, side, rank, at, out_span)
                                                      : next_contiguous(&rule, side, rank, at, out_span);
}

bool fcp_plan_layout(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    return fcp_side_layout(plan, FCP_QUERIES, rank, at, out_span);
}

bool fcp_plan_layout_keys(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    return fcp_side_layout(plan, FCP_KEYS, rank, at, out_span);
}

uint64_t fcp_plan_rank_queries(const fcp_plan *plan, uint32_t rank) { return fcp_side_tokens(plan, FCP_QUERIES, rank); }
uint64_t fcp_plan_rank_keys(const fcp_plan *plan, uint32_t rank) { return fcp_side_tokens(plan, FCP_KEYS, rank); }
