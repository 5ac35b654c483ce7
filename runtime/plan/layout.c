/* layout.c: computes the caller's layouts from the lengths and the homes. layout.h states the rules.
 *
 * Requires: a checked plan, except that fcp_plan_index_layout needs only the rest of the index.
 * Cost:     a walk takes a few divisions for each piece that it goes to, and additions for each run after that.
 */
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/plan_index.h"
#include "runtime/plan/sides.h"

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
                      .deals = plan->deals, .deal_count = (uint32_t)plan->deals_count,
                      .offsets = {fcp_offsets(plan, FCP_QUERIES), fcp_offsets(plan, FCP_KEYS)}};
}

static uint64_t before(const fcp_rule *r, uint64_t sequence) {
    return r->offsets[FCP_QUERIES][sequence] + r->offsets[FCP_KEYS][sequence];
}

/* How many tokens the sequences of a deal have that come before `sequence`, which may be the one after the last. */
static uint64_t dealt(const fcp_rule *r, const fcp_deal *deal, uint64_t sequence) {
    return before(r, sequence) - before(r, deal->first_sequence);
}

static uint32_t group_of(const fcp_rule *r, const fcp_deal *deal, uint64_t sequence) {
    const uint32_t groups = deal->ranks / fcp_rule_group(r, deal);
    const uint64_t all = dealt(r, deal, deal->first_sequence + (uint64_t)deal->sequences);
    if (!all) return 0;
    const uint64_t group = share(dealt(r, deal, sequence) + dealt(r, deal, sequence + 1), groups, 2 * all);
    return group < groups ? (uint32_t)group : groups - 1; /* behind the last token: a sequence without tokens */
}

/* The first sequence of a group of a deal; of the group after the last, the first after the deal. O(log sequences). */
static uint64_t first_of(const fcp_rule *r, const fcp_deal *deal, uint32_t group) {
    uint64_t low = deal->first_sequence, high = low + deal->sequences;
    if (group == 0) return low;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (group_of(r, deal, middle) < group) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The deal of a sequence: the last that begins at or before it. */
static const fcp_deal *deal_of(const fcp_rule *r, uint64_t sequence) {
    uint32_t low = 0, high = r->deal_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (r->deals[middle].first_sequence <= sequence) low = middle;
        else high = middle;
    }
    return &r->deals[low];
}

void fcp_walk_group(fcp_walk *w, uint64_t sequence) {
    const fcp_deal *deal = deal_of(w->rule, sequence);
    uint32_t group = group_of(w->rule, deal, sequence);
    w->first = first_of(w->rule, deal, group);
    w->end = first_of(w->rule, deal, group + 1);
    w->group = fcp_rule_group(w->rule, deal);
    w->rank = deal->first_rank + group * w->group;
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

/* Zigzag: sequences whose lengths leave the same remainder give one token more to the same parts. So each remainder
 * is looked at once, with the number of its sequences. */
static void zigzag_tokens(const uint64_t *offsets, uint64_t first, uint64_t end, uint64_t count, uint64_t *rests,
                          uint64_t *out) {
    uint64_t whole = 0, parts = 2 * count;
    memset(rests, 0, parts * sizeof *rests);
    for (uint64_t s = first; s < end; s++) {
        uint64_t n = offsets[s + 1] - offsets[s];
        whole += n / parts;
        rests[n % parts]++;
    }
    for (uint64_t i = 0; i < count; i++) out[i] += 2 * whole;
    for (uint64_t rest = 1; rest < parts; rest++)
        for (uint64_t j = 1; rests[rest] && j <= rest; j++) {
            uint64_t part = (j * parts + rest - 1) / rest - 1; /* the part that has the j-th token more */
            out[part < count ? part : parts - 1 - part] += rests[rest];
        }
}

void fcp_rule_tokens(const fcp_rule *r, fcp_side side, uint64_t *parts, uint64_t *out_tokens) {
    const uint64_t *offsets = r->offsets[side];
    memset(out_tokens, 0, r->ranks * sizeof *out_tokens);
    for (uint32_t d = 0; d < r->deal_count; d++) {
        const fcp_deal *deal = &r->deals[d];
        uint32_t count = fcp_rule_group(r, deal);
        for (uint32_t g = 0; g < deal->ranks / count; g++) {
            uint64_t first = first_of(r, deal, g), end = first_of(r, deal, g + 1), n = offsets[end] - offsets[first];
            uint64_t *out = out_tokens + deal->first_rank + (size_t)g * count;
            if (r->layout == FCP_LAYOUT_ZIGZAG) zigzag_tokens(offsets, first, end, count, parts, out);
            for (uint64_t i = 0; r->layout != FCP_LAYOUT_ZIGZAG && i < count; i++)
                out[i] += share(i + 1, n, count) - share(i, n, count);
        }
    }
}

/* Returns whether the deals divide the batch, and their ranks divide into groups. */
static bool deals_are_sound(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    uint64_t next = 0;
    if (p->layout == FCP_LAYOUT_PLANNED || plan->extract) return plan->deals_count == 0;
    for (uint64_t i = 0; i < plan->deals_count; i++) {
        const fcp_deal *d = &plan->deals[i];
        if (d->first_sequence != next || !d->sequences || !d->ranks || d->first_rank >= p->ranks ||
            d->ranks > p->ranks - d->first_rank || (p->layout_group != p->ranks && d->ranks % p->layout_group))
            return false;
        next += d->sequences;
    }
    return next == plan->sequences_count;
}

bool fcp_layout_is_sound(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    return plan->problem_count == 1 && p->ranks > 0 && p->ranks <= FCP_MAX_RANKS && p->layout < FCP_LAYOUTS &&
           p->layout_group > 0 && p->ranks % p->layout_group == 0 &&
           (p->layout != FCP_LAYOUT_PLANNED || p->layout_group == p->ranks) && deals_are_sound(plan) &&
           plan->streams_count == (uint64_t)FCP_PASSES * (plan->extract ? 1 : p->ranks) * FCP_QUEUES;
}

/* Returns whether this block is the one that the planned layout counts for its tokens. A token may have several blocks,
 * of different heads; the one of the first range of heads counts. */
static bool shows(const fcp_plan *plan, const fcp_block *b, fcp_side side) {
    return b->holds >> side & 1 && fcp_first_range(plan, b);
}

/* Lists each rank's home blocks, by a counting sort: a walk over one rank's tokens then looks at no other's blocks.
 * Blocks of a home that does not exist are left out; fcp_plan_check refuses them. */
static fcp_code index_homes(fcp_plan *plan, fcp_error *err) {
    const uint32_t ranks = plan->problem->ranks;
    uint32_t *starts = calloc((size_t)ranks + 2, sizeof *starts);
    uint32_t *blocks = malloc((size_t)(plan->blocks_count + 1) * sizeof *blocks);
    plan->home_starts = starts;
    plan->home_blocks = blocks;
    if (!starts || !blocks) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the homes of %u ranks", ranks);
    for (uint64_t b = 0; b < plan->blocks_count; b++)
        if (plan->blocks[b].home < ranks) starts[plan->blocks[b].home + 2]++;
    for (uint32_t r = 0; r < ranks; r++) starts[r + 2] += starts[r + 1];
    for (uint64_t b = 0; b < plan->blocks_count; b++) /* starts[r + 1] is where the next block of rank r goes */
        if (plan->blocks[b].home < ranks) blocks[starts[plan->blocks[b].home + 1]++] = (uint32_t)b;
    return FCP_OK;
}

/* An extract has the tokens of its rank's spans. */
static fcp_code index_spans(fcp_plan *plan, fcp_error *err) {
    const fcp_extract *x = plan->extract;
    uint64_t *tokens = calloc(FCP_SIDES, sizeof *tokens);
    if (!tokens) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the layout of a rank");
    for (uint64_t i = 0; i < x->spans_count; i++) {
        uint64_t *sum = &tokens[i < x->about->query_spans ? FCP_QUERIES : FCP_KEYS];
        *sum = fcp_plus(*sum, x->spans[i].length);
    }
    plan->split = x->about->split;
    plan->rank_tokens = tokens;
    return FCP_OK;
}

fcp_code fcp_plan_index_layout(fcp_plan *plan, fcp_error *err) {
    free(plan->rank_tokens);
    free(plan->home_starts);
    free(plan->home_blocks);
    plan->rank_tokens = NULL;
    plan->home_starts = plan->home_blocks = NULL;
    if (plan->extract) return index_spans(plan, err);
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
        if (queries >> 41 || keys >> 41) return FCP_OK; /* likewise */
        fcp_rule_tokens(&rule, FCP_QUERIES, tokens + 2 * (size_t)ranks, tokens);
        fcp_rule_tokens(&rule, FCP_KEYS, tokens + 2 * (size_t)ranks, tokens + ranks);
        return FCP_OK;
    }
    if (plan->blocks_count >> 32) return FCP_OK; /* likewise */
    fcp_code code = index_homes(plan, err);
    for (uint64_t b = 0; b < plan->blocks_count && !code; b++) {
        const fcp_block *k = &plan->blocks[b];
        if (k->home >= ranks || k->heads >= plan->heads_count) continue; /* likewise */
        for (int side = 0; side < FCP_SIDES; side++) {
            uint64_t *sum = &tokens[(size_t)side * ranks + k->home];
            if (shows(plan, k, (fcp_side)side)) *sum = fcp_plus(*sum, k->tokens);
        }
    }
    return code;
}

uint64_t fcp_side_tokens(const fcp_plan *plan, fcp_side side, uint32_t rank) {
    uint32_t ranks = plan->problem->ranks;
    if (plan->extract) return rank == plan->extract->about->rank ? plan->rank_tokens[side] : 0;
    return rank < ranks ? plan->rank_tokens[(size_t)side * ranks + rank] : 0;
}

/* --- one rank's layout, run by run -------------------------------------------------------------------------------- */

static bool next_planned(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out) {
    const uint32_t first = plan->home_starts[rank], count = plan->home_starts[rank + 1] - first;
    for (; at->item < count; at->item++, at->part = 0) {
        const fcp_block *b = &plan->blocks[plan->home_blocks[first + at->item]];
        if (!shows(plan, b, side) || at->part == b->pieces) continue;
        const fcp_piece *piece = &plan->pieces[b->first_piece + at->part++];
        *out = (fcp_span){piece->sequence, piece->length, piece->start};
        return true;
    }
    return false;
}

static bool next_span(const fcp_extract *x, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out) {
    const uint64_t first = side == FCP_KEYS ? x->about->query_spans : 0;
    const uint64_t count = side == FCP_KEYS ? x->spans_count - first : x->about->query_spans;
    if (rank != x->about->rank || at->item >= count) return false;
    *out = x->spans[first + at->item++];
    return true;
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

/* The next span of the rank in a deal that has the rank. at->done: the tokens of it that came before. */
static bool next_contiguous(const fcp_rule *r, const fcp_deal *deal, fcp_side side, uint32_t rank, fcp_layout_at *at,
                            fcp_span *out) {
    const uint64_t *offsets = r->offsets[side];
    uint32_t count = fcp_rule_group(r, deal), group = (rank - deal->first_rank) / count,
             i = (rank - deal->first_rank) % count;
    uint64_t first = first_of(r, deal, group), end = first_of(r, deal, group + 1), base = offsets[first];
    uint64_t x = base + share(i, offsets[end] - base, count) + at->done;
    uint64_t to = base + share(i + (uint64_t)1, offsets[end] - base, count);
    if (x >= to) return false;
    uint64_t s = at->done ? at->item : sequence_at(offsets, first, end, x);
    while (offsets[s + 1] == x) s++; /* it has no tokens */
    if (offsets[s + 1] < to) to = offsets[s + 1];
    *out = (fcp_span){(uint32_t)s, (uint32_t)(to - x), x - offsets[s]};
    at->item = s + 1;
    at->done += to - x;
    return true;
}

/* Likewise; `item` sequences of the group are behind. */
static bool next_zigzag(const fcp_rule *r, const fcp_deal *deal, fcp_side side, uint32_t rank, fcp_layout_at *at,
                        fcp_span *out) {
    const uint64_t *offsets = r->offsets[side];
    uint32_t count = fcp_rule_group(r, deal), group = (rank - deal->first_rank) / count;
    uint64_t first = first_of(r, deal, group), end = first_of(r, deal, group + 1);
    uint64_t parts = 2 * (uint64_t)count, i = (rank - deal->first_rank) % count;
    while (first + at->item < end) {
        uint64_t s = first + at->item, n = offsets[s + 1] - offsets[s], part = at->part ? parts - 1 - i : i;
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
    if (plan->extract) return next_span(plan->extract, side, rank, at, out_span);
    if (plan->problem->layout == FCP_LAYOUT_PLANNED) return next_planned(plan, side, rank, at, out_span);
    fcp_rule rule = fcp_rule_of(plan);
    for (; at->deal < rule.deal_count; *at = (fcp_layout_at){.deal = at->deal + 1}) {
        const fcp_deal *deal = &rule.deals[at->deal];
        if (rank < deal->first_rank || rank - deal->first_rank >= deal->ranks) continue;
        if (rule.layout == FCP_LAYOUT_ZIGZAG ? next_zigzag(&rule, deal, side, rank, at, out_span)
                                             : next_contiguous(&rule, deal, side, rank, at, out_span))
            return true;
    }
    return false;
}

/* The same, where sequences have the numbers of the whole plan. */
static bool whole_layout(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    if (!fcp_side_layout(plan, side, rank, at, out_span)) return false;
    if (plan->extract) out_span->sequence = plan->extract->places[out_span->sequence].number;
    return true;
}

bool fcp_plan_layout(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    return whole_layout(plan, FCP_QUERIES, rank, at, out_span);
}

bool fcp_plan_layout_keys(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span) {
    return whole_layout(plan, FCP_KEYS, rank, at, out_span);
}

uint64_t fcp_plan_rank_queries(const fcp_plan *plan, uint32_t rank) { return fcp_side_tokens(plan, FCP_QUERIES, rank); }
uint64_t fcp_plan_rank_keys(const fcp_plan *plan, uint32_t rank) { return fcp_side_tokens(plan, FCP_KEYS, rank); }

void fcp_plan_ranks_tokens(const fcp_plan *plan, uint32_t first, uint32_t count, uint64_t *out_queries,
                           uint64_t *out_keys) {
    for (uint32_t i = 0; i < count; i++) {
        out_queries[i] = fcp_plan_rank_queries(plan, first + i);
        out_keys[i] = fcp_plan_rank_keys(plan, first + i);
    }
}

/* A walk over one rank's layout, document by document: rows `row` to end - 1 of the packed side, in the document
 * whose rows are `first` to last - 1. A span of the layout may contain several documents. */
typedef struct documents_walk {
    fcp_layout_at at;
    fcp_span span;
    uint64_t document;
    int64_t row, end, first, last, span_end;
} documents_walk;

static bool next_document(const fcp_plan *plan, fcp_side side, uint32_t rank, documents_walk *w) {
    const uint64_t *offsets = fcp_offsets(plan, side), *starts = plan->documents;
    const bool within = w->end < w->span_end;
    if (!within && !fcp_side_layout(plan, side, rank, &w->at, &w->span)) return false;
    if (within) {
        w->row = w->end;
        w->document++;
    } else {
        w->row = (int64_t)(offsets[w->span.sequence] + w->span.start);
        w->span_end = w->row + (int64_t)w->span.length;
        if (starts) w->document = sequence_at(starts, 0, plan->documents_count, (uint64_t)w->row);
    }
    w->first = (int64_t)(starts ? starts[w->document] : offsets[w->span.sequence]);
    w->last = (int64_t)(starts ? starts[w->document + 1] : offsets[w->span.sequence + 1]);
    w->end = w->span_end < w->last ? w->span_end : w->last;
    return true;
}

/* How far the rows of a sequence lie from where its own tokens would be in the packed batch: of an extract, whose
 * packed batch has only some sequences. */
static int64_t rows_off(const fcp_plan *plan, fcp_side side, uint64_t sequence) {
    if (!plan->extract) return 0;
    return (int64_t)(plan->extract->places[sequence].row[side] - fcp_offsets(plan, side)[sequence]);
}

void fcp_plan_rows(const fcp_plan *plan, uint32_t rank, bool keys, int64_t shift, int64_t *out_rows) {
    const fcp_side side = keys ? FCP_KEYS : FCP_QUERIES;
    const int64_t beyond = INT64_C(1) << 41; /* further than any sequence is long; so nothing below overflows */
    documents_walk w = {0};
    shift = shift > beyond ? beyond : shift < -beyond ? -beyond : shift;
    while (next_document(plan, side, rank, &w))
        for (int64_t i = w.row + shift, off = rows_off(plan, side, w.span.sequence); i < w.end + shift; i++)
            *out_rows++ = i >= w.first && i < w.last ? i + off : -1;
}

void fcp_plan_positions(const fcp_plan *plan, uint32_t rank, bool keys, int64_t *out_positions) {
    const fcp_side side = keys ? FCP_KEYS : FCP_QUERIES;
    documents_walk w = {0};
    while (next_document(plan, side, rank, &w)) {
        const int64_t from = keys ? 0 : plan->sequences[w.span.sequence].q_first;
        for (int64_t i = w.row; i < w.end; i++) *out_positions++ = from + i - w.first;
    }
}

/* Lists the stretches of a rank: where the walk goes on where it was in the same document, a stretch goes on. `whole`:
 * documents and rows have the numbers of the whole plan. */
static uint32_t list_stretches(const fcp_plan *plan, uint32_t rank, bool whole, fcp_stretch *out) {
    documents_walk w = {0};
    uint32_t count = 0;
    uint64_t first = 0;
    fcp_stretch last = {0};
    if (!plan->self) return 0;
    while (next_document(plan, FCP_QUERIES, rank, &w)) {
        const uint32_t sequence =
            whole && plan->extract ? plan->extract->places[w.span.sequence].number : w.span.sequence;
        const uint64_t document = plan->documents ? w.document : sequence, length = (uint64_t)(w.end - w.row);
        const uint64_t start = (uint64_t)(w.row + (whole ? rows_off(plan, FCP_QUERIES, w.span.sequence) : 0));
        if (count && last.document == document && last.start + last.length == start) last.length += length;
        else {
            last = (fcp_stretch){.document = document,
                                 .start = start,
                                 .first = first,
                                 .length = length,
                                 .begins = w.row == w.first};
            count++;
        }
        last.ends = w.end == w.last;
        if (out) out[count - 1] = last;
        first += length;
    }
    return count;
}

uint32_t fcp_stretches_of(const fcp_plan *plan, uint32_t rank, fcp_stretch *out) {
    return list_stretches(plan, rank, false, out);
}

uint32_t fcp_plan_stretches(const fcp_plan *plan, uint32_t rank, fcp_stretch *out) {
    return list_stretches(plan, rank, true, out);
}

/* --- documents ---------------------------------------------------------------------------------------------------- */

bool fcp_documents_are_sound(const fcp_plan *plan) {
    const uint32_t number = plan->problem->documents;
    const uint64_t *queries = fcp_offsets(plan, FCP_QUERIES), *keys = fcp_offsets(plan, FCP_KEYS);
    if (number >= plan->arrays_count) return false;
    const fcp_array *a = &plan->arrays[number];
    const uint64_t size = a->width, tokens = keys[plan->sequences_count];
    return fcp_array_is_over(a, FCP_KEYS) && (size == MC_I8 || size == MC_I16 || size == MC_I32 || size == MC_I64) &&
           !memcmp(queries, keys, (plan->sequences_count + 1) * sizeof *keys) && a->count == tokens &&
           a->offset <= plan->data_count && tokens <= (plan->data_count - a->offset) / size;
}

/* Where the document ends that begins at token i of a field; `end` ends its sequence. */
static uint64_t document_end(const uint8_t *values, uint64_t width, uint64_t i, uint64_t end) {
    enum { STRIDE = 64 }; /* tokens that are compared at once with those before them */
    i++;
    while (end - i >= STRIDE && !memcmp(values + i * width, values + (i - 1) * width, STRIDE * width)) i += STRIDE;
    while (i < end && !memcmp(values + i * width, values + (i - 1) * width, width)) i++;
    return i;
}

/* Counts the documents; if `field` is NULL, sequences are the documents. If `starts` is not NULL, stores where each
 * begins. */
static uint64_t find_documents(const fcp_plan *plan, const fcp_array *field, uint64_t *starts) {
    const uint64_t *offsets = fcp_offsets(plan, FCP_QUERIES);
    const uint8_t *values = field ? plan->data + field->offset : NULL;
    uint64_t count = 0;
    for (uint64_t s = 0; s < plan->sequences_count; s++)
        for (uint64_t i = offsets[s], end = offsets[s + 1]; i < end; count++) {
            if (starts) starts[count] = i;
            i = field ? document_end(values, field->width, i, end) : end;
        }
    return count;
}

fcp_code fcp_plan_index_documents(fcp_plan *plan, fcp_error *err) {
    const bool said = plan->problem_count == 1 && fcp_documents_are_sound(plan); /* fcp_plan_check refuses others */
    const fcp_array *field = said ? &plan->arrays[plan->problem->documents] : NULL;
    const uint64_t count = find_documents(plan, field, NULL);
    free(plan->documents);
    plan->documents = NULL;
    plan->documents_count = count;
    if (!said) return FCP_OK;
    uint64_t *starts = malloc((size_t)(count + 1) * sizeof *starts);
    if (!starts) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %llu documents", (unsigned long long)count);
    find_documents(plan, field, starts);
    starts[count] = fcp_offsets(plan, FCP_QUERIES)[plan->sequences_count];
    plan->documents = starts;
    return FCP_OK;
}

void fcp_plan_documents(const fcp_plan *plan, uint64_t *out_first) {
    const uint64_t *ends = fcp_offsets(plan, FCP_QUERIES) + 1;
    if (plan->documents) memcpy(out_first, plan->documents, (size_t)plan->documents_count * sizeof *out_first);
    else find_documents(plan, NULL, out_first);
    for (uint64_t i = 0, s = 0; plan->extract && i < plan->documents_count; i++) {
        while (out_first[i] >= ends[s]) s++;
        out_first[i] += (uint64_t)rows_off(plan, FCP_QUERIES, s);
    }
}
