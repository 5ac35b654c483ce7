/* check.c: checks that the tables of a plan fit together, so that other code can use every index in them unchecked.
 *
 * Requires: pointers to as many records as their counts say, and an index (fcp_plan_index). The contents may be
 *           hostile.
 * Gives:    every index, count, sum and enum is in range, or an error:
 *            - Each reference to a record finds one.
 *            - Pieces hold every token of the batch exactly once, for each range of heads. So the caller's layout does
 *              too, whether it is a rule or follows from the homes.
 *            - Ranges that must not overlap add up to no more than there is, so that walking them is linear.
 *            - Pairs, runs and shapes agree.
 *            Whether the plan does the right thing is for verify/verify.c.
 * Cost:     linear, plus a sort of the pieces of a sequence that are not in order of start; memory linear in the
 *           tables.
 * Errors:   FCP_E_PLAN_FORMAT, FCP_E_NO_MEMORY, FCP_E_INTERRUPTED.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/both.h"
#include "runtime/base/stop.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/file.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/sides.h"

typedef unsigned long long ull;

enum { MAX_HEADS = 65536, MAX_HEAD_DIM = 65536, MAX_SOURCE = 1 << 26, MAX_ROUNDS = 1 << 27,
       MAX_MULTIPROCESSORS = 65536 };
static const uint64_t max_tokens = UINT64_C(1) << 40;

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Returns whether it is UTF-8 without control characters, but for newline and tab. */
static bool printable(const char *text, uint64_t size) {
    const uint8_t *at = (const uint8_t *)text, *end = at + size;
    while (at < end) {
        uint32_t c = *at++;
        if (c < 0x80) {
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return false;
            continue;
        }
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || end - at < more) return false;
        uint32_t point = c & (0x3fu >> more);
        for (int i = 0; i < more; i++) {
            if ((at[i] & 0xc0) != 0x80) return false;
            point = point << 6 | (at[i] & 0x3fu);
        }
        at += more;
        if ((more == 2 && point < 0x800) || (more == 3 && (point < 0x10000 || point > 0x10ffff)) ||
            (point >= 0xd800 && point < 0xe000) || point < 0xa0)
            return false;
    }
    return true;
}

/* Returns whether it is printable text with only NULs after it, and at least one. */
static bool padded_name(const char *name, size_t size) {
    size_t used = strnlen(name, size);
    for (size_t i = used; i < size; i++)
        if (name[i]) return false;
    return used < size && printable(name, used);
}

/* --- cover: do pieces hold every token of every sequence exactly once? -------------------------------------------- */

typedef struct stretch {
    uint64_t start;
    uint32_t length, item;
} stretch;

static int by_start(const void *a, const void *b) {
    const stretch *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* How many ranges of heads a side is cut into. */
static uint32_t range_count(const fcp_problem *p, fcp_side side) {
    uint32_t ranges = p->kv_heads / p->range_kv;
    return side == FCP_KEYS ? ranges : ranges * (p->heads / p->kv_heads / p->range_sub);
}
/* Which of them a block's heads are: check_heads has found them at a multiple of their size. */
static uint32_t range_of(const fcp_plan *plan, fcp_side side, const fcp_block *b) {
    const fcp_problem *p = plan->problem;
    const fcp_heads *h = &plan->heads[b->heads];
    uint32_t kv = h->kv_first / p->range_kv;
    return side == FCP_KEYS ? kv : kv * (p->heads / p->kv_heads / p->range_sub) + h->sub_first / p->range_sub;
}

/* Checks that the stretches of every sequence cover it, for each range of heads. The stretches of range h of the i-th
 * sequence that has tokens are all[first[j]] to all[first[j + 1] - 1], where j is i * ranges + h. */
static fcp_code covered(const fcp_plan *plan, fcp_side side, uint32_t ranges, stretch *all, const uint32_t *first,
                        fcp_error *err) {
    for (uint64_t s = 0, next = 0; s < plan->sequences_count; s++) {
        const uint64_t length = fcp_side_length(&plan->sequences[s], side);
        if (!length) continue; /* check_blocks has found that no piece is outside of its sequence */
        for (uint32_t h = 0; h < ranges; h++, next++) {
            char heads[48] = "";
            stretch *these = all + first[next];
            const size_t n = first[next + 1] - first[next];
            for (size_t j = 1; j < n; j++)
                if (these[j].start < these[j - 1].start) {
                    qsort(these, n, sizeof *these, by_start);
                    break;
                }
            uint64_t at = 0;
            size_t fit = 0;
            for (; fit < n && these[fit].start == at; fit++) at += these[fit].length;
            if (fit == n && at == length) continue;
            if (ranges > 1) snprintf(heads, sizeof heads, " for range %u of heads", h);
            if (fit < n)
                return malformed(err, "piece %u begins at token %llu of sequence %llu, where %llu tokens are covered "
                                 "so far%s", these[fit].item, (ull)these[fit].start, (ull)s, (ull)at, heads);
            return malformed(err, "pieces hold %llu tokens of sequence %llu, which has %llu%s", (ull)at, (ull)s,
                             (ull)length, heads);
        }
    }
    return FCP_OK;
}

/* Checks that the pieces of the blocks that hold a side cover it, for each range of heads. */
static fcp_code check_cover(const fcp_plan *plan, fcp_side side, fcp_error *err) {
    const fcp_piece *pieces = plan->pieces;
    uint64_t n = plan->pieces_count;
    uint32_t ranges = range_count(plan->problem, side);
    uint32_t *number = malloc((size_t)plan->sequences_count * sizeof *number), *first = NULL;
    uint64_t held = number ? fcp_number_sequences(plan, side, number) : 0;
    if (ranges > 1 && held > n / ranges) {
        free(number);
        return malformed(err, "%llu pieces for %llu sequences in %u ranges of heads: some are not held", (ull)n,
                         (ull)held, ranges);
    }
    first = calloc((size_t)held * ranges + 2, sizeof *first);
    stretch *all = malloc((size_t)(n + 1) * sizeof *all);
    fcp_code code = FCP_OK;
    if (!number || !first || !all) {
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to check %llu pieces", (ull)plan->pieces_count);
    } else {
        for (uint64_t i = 0; i < n; i++) {
            const fcp_block *k = &plan->blocks[pieces[i].block];
            if (!(k->holds >> side & 1)) continue;
            uint32_t range = ranges > 1 ? range_of(plan, side, k) : 0;
            first[(size_t)number[pieces[i].sequence] * ranges + range + 2]++;
        }
        for (size_t i = 2; i <= held * ranges; i++) first[i] += first[i - 1];
        for (uint64_t i = 0; i < n; i++) {
            const fcp_block *k = &plan->blocks[pieces[i].block];
            if (!(k->holds >> side & 1)) continue;
            uint32_t range = ranges > 1 ? range_of(plan, side, k) : 0;
            all[first[(size_t)number[pieces[i].sequence] * ranges + range + 1]++] =
                (stretch){pieces[i].start, pieces[i].length, (uint32_t)i};
        }
        code = covered(plan, side, ranges, all, first, err);
    }
    free(number);
    free(first);
    free(all);
    return code;
}

/* --- the tables, in file order ------------------------------------------------------------------------------------ */

static fcp_code check_counts(const fcp_plan *plan, fcp_error *err) {
    const struct { const char *name; const void *table; uint64_t count; } tables[] = {
#define X(id, type, member) {#member, plan->member, plan->member##_count},
        FCP_SECTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (tables[i].count >= FCP_NONE)
            return malformed(err, "%llu records in table %s", (ull)tables[i].count, tables[i].name);
        if (!(tables[i].table || !tables[i].count)) return malformed(err, "table %s is not there", tables[i].name);
    }
    if (!(plan->problem_count == 1 && plan->cluster_count == 1 && plan->summary_count == 1))
        return malformed(err, "a plan has one problem, one cluster and one summary");
    if (plan->source_count > MAX_SOURCE) return malformed(err, "a source of %llu bytes", (ull)plan->source_count);
    if (plan->rounds_count > MAX_ROUNDS) return malformed(err, "%llu rounds", (ull)plan->rounds_count);
    if (!plan->sequences_count && !plan->extract) return malformed(err, "a plan without sequences");
    if (!plan->sequence_offsets) return malformed(err, "a plan without its index");
    if (plan->extract && !fcp_extract_counts(plan)) return malformed(err, "an extract's tables do not fit together");
    uint64_t ranks = plan->problem->ranks;
    if (!(ranks > 0 && plan->streams_count == FCP_PASSES * (plan->extract ? 1 : ranks) * FCP_QUEUES &&
          plan->round_starts_count == FCP_PASSES + 1))
        return malformed(err, "%llu streams, %llu round starts for %llu ranks", (ull)plan->streams_count,
                         (ull)plan->round_starts_count, (ull)ranks);
    return FCP_OK;
}

static fcp_code check_sequences(const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    uint64_t queries = fcp_offsets(plan, FCP_QUERIES)[plan->sequences_count];
    uint64_t keys = fcp_offsets(plan, FCP_KEYS)[plan->sequences_count];
    const bool all =
        plan->extract ? queries <= p->tokens && keys <= p->key_tokens : queries == p->tokens && keys == p->key_tokens;
    if (!(p->tokens <= max_tokens && p->key_tokens <= max_tokens && all))
        return malformed(err, "sequences of %llu queries and %llu keys in all, for %llu and %llu", (ull)queries,
                         (ull)keys, (ull)p->tokens, (ull)p->key_tokens);
    bool split = false;
    for (uint64_t i = 0; i < plan->sequences_count; i++) {
        const fcp_sequence *s = &plan->sequences[i];
        split |= s->queries != s->keys;
        if (!(s->q_first == (p->align == FCP_TOP_LEFT ? 0 : (int64_t)s->keys - (int64_t)s->queries)))
            return malformed(err, "sequence %llu: its %llu queries are aligned at %lld of %llu keys", (ull)i,
                             (ull)s->queries, (long long)s->q_first, (ull)s->keys);
    }
    if (!(split || plan->extract || p->align == FCP_BOTTOM_RIGHT))
        return malformed(err, "an alignment, where every sequence has as many queries as keys");
    if (p->documents != FCP_NONE && !fcp_documents_are_sound(plan))
        return malformed(err, "array %u, of %llu, does not tell documents of %llu tokens apart", p->documents,
                         (ull)plan->arrays_count, (ull)keys);
    if (p->pad) return malformed(err, "the problem's padding");
    if (split && !fcp_plan_split(plan))
        return malformed(err, "blocks of both sides, and a sequence with more keys than queries, or fewer");
    return FCP_OK;
}

static fcp_code check_problem(const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    if ((uint64_t)p->nodes * p->gpus != p->ranks)
        return malformed(err, "%u ranks on %u nodes of %u GPUs", p->ranks, p->nodes, p->gpus);
    if (!(p->heads > 0 && p->heads <= MAX_HEADS && p->kv_heads > 0 && p->heads % p->kv_heads == 0 && p->head_dim > 0 &&
          p->head_dim <= MAX_HEAD_DIM && p->value_dim > 0 && p->value_dim <= MAX_HEAD_DIM))
        return malformed(err, "%u heads, %u KV heads, head dimensions %u and %u", p->heads, p->kv_heads, p->head_dim,
                         p->value_dim);
    if (!(p->values_in_keys <= 1 && p->lse_gradient <= (p->passes >> FCP_BACKWARD & 1) &&
          (!p->values_in_keys || p->value_dim <= p->head_dim)))
        return malformed(err, "values in keys %u, gradient of LSE %u, where heads have %u and %u numbers",
                         p->values_in_keys, p->lse_gradient, p->head_dim, p->value_dim);
    if (p->ranks > FCP_MAX_RANKS) return malformed(err, "%u ranks", p->ranks);
    if (!(p->range_kv > 0 && p->kv_heads % p->range_kv == 0 && p->range_sub > 0 &&
          p->heads / p->kv_heads % p->range_sub == 0))
        return malformed(err, "ranges of %u KV heads and %u query heads of each, of %u and %u", p->range_kv,
                         p->range_sub, p->kv_heads, p->heads / p->kv_heads);
    if (!(p->dtype < FCP_DTYPES && p->layout < FCP_LAYOUTS && p->strategy < FCP_STRATEGY_COUNT &&
          p->topology < FCP_TOPOLOGY_COUNT && p->align < FCP_ALIGN_COUNT))
        return malformed(err, "dtype %u, layout %u, strategy %u, topology %u, align %u", p->dtype, p->layout,
                         p->strategy, p->topology, p->align);
    if (p->wire != FCP_FP32 && p->wire != FCP_BF16)
        return malformed(err, "partial results of dtype %u on the wire", p->wire);
    if (!fcp_layout_is_sound(plan))
        return malformed(err, "layout %u in %llu deals over groups of %u ranks, of %u", p->layout,
                         (ull)plan->deals_count, p->layout_group, p->ranks);
    if (!(p->block > 0 && (p->block < FCP_CELL || p->block % FCP_CELL == 0)))
        return malformed(err, "a block size of %u tokens", p->block);
    if (!(p->unit > 0 && (p->unit <= p->max_block || p->unit <= p->max_q_block || p->unit == 1)))
        return malformed(err, "units of %u tokens in blocks of %u and %u", p->unit, p->max_q_block, p->max_block);
    if (!(p->coalesce > 0 && p->buffers > 0)) return malformed(err, "coalesce %u, buffers %u", p->coalesce, p->buffers);
    if (!(p->passes & 1u << FCP_FORWARD && p->passes < 1u << FCP_PASSES && p->deterministic <= 1))
        return malformed(err, "passes %#x, deterministic %u", p->passes, p->deterministic);
    if (!isfinite((float)p->scale) || fabsf((float)p->scale) < FLT_MIN)
        return malformed(err, "a scale that no float holds, or 0");
    if (!padded_name(plan->cluster->gpu, sizeof plan->cluster->gpu))
        return malformed(err, "the cluster's GPU name is not text");
    if (plan->cluster->multiprocessors > MAX_MULTIPROCESSORS)
        return malformed(err, "a GPU of %u multiprocessors", plan->cluster->multiprocessors);
    if (!printable(plan->source, plan->source_count)) return malformed(err, "the source is not text");
    fcp_code code = check_sequences(plan, err);
    return code ? code : fcp_plan_check_data(plan, err);
}

/* Checks the ranges of heads. Each has as many KV heads as the problem says (range_kv), and begins at a multiple of
 * that number. Of each of these KV heads it has either range_sub query heads, from a multiple of range_sub on, or all
 * of them, as blocks that hold KV need. So two ranges of one kind are the same or share no head. */
static fcp_code check_heads(const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    uint32_t shared = p->heads / p->kv_heads;
    for (uint64_t i = 0; i < plan->heads_count; i++) {
        const fcp_heads *h = &plan->heads[i];
        bool all = h->sub_first == 0 && h->sub_count == shared;
        if (!(h->kv_count == p->range_kv && h->kv_first < p->kv_heads && h->kv_first % p->range_kv == 0 &&
              (all || (h->sub_count == p->range_sub && h->sub_first < shared && h->sub_first % p->range_sub == 0))))
            return malformed(err, "heads %llu: KV heads from %u on, %u of them, of each query heads from %u on, %u of "
                             "them", (ull)i, h->kv_first, h->kv_count, h->sub_first, h->sub_count);
    }
    return FCP_OK;
}
/* If the mask names h, every head has a class. Classes are numbered in the order of their first heads. */
static fcp_code check_classes(const fcp_plan *plan, fcp_error *err) {
    const uint64_t heads = plan->problem->mask_uses & MC_USES_H ? plan->problem->heads : 0;
    if (plan->head_classes_count != heads || !heads != !plan->range_classes)
        return malformed(err, "classes of %llu heads, where the mask tells %llu apart", (ull)plan->head_classes_count,
                         (ull)heads);
    uint32_t classes = 0;
    for (uint64_t h = 0; h < heads; h++) {
        if (plan->head_classes[h] > classes)
            return malformed(err, "head %llu is of class %u, and %u come before it", (ull)h, plan->head_classes[h],
                             classes);
        classes += plan->head_classes[h] == classes;
    }
    return FCP_OK;
}
/* Returns whether a block may have this range. */
static bool heads_fit(const fcp_plan *plan, const fcp_block *b) {
    const fcp_problem *p = plan->problem;
    uint32_t subs = plan->heads[b->heads].sub_count;
    return (!(b->holds & FCP_HOLDS_KV) || subs == p->heads / p->kv_heads) &&
           (!(b->holds & FCP_HOLDS_Q) || subs == p->range_sub);
}

static fcp_code check_blocks(const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    uint64_t next = 0;
    uint32_t largest[FCP_SIDES] = {0};
    bool split = fcp_plan_split(plan);
    uint32_t *homes = calloc(p->ranks, sizeof *homes);
    if (!homes) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to check the blocks");
    fcp_code code = FCP_OK;
    for (uint64_t b = 0; b < plan->blocks_count && !code; b++) {
        const fcp_block *k = &plan->blocks[b];
        uint64_t tokens = 0;
        if (split ? k->holds != FCP_HOLDS_Q && k->holds != FCP_HOLDS_KV : k->holds != FCP_HOLDS_BOTH) {
            code = malformed(err, "block %llu holds %#x in a plan that is %ssplit", (ull)b, k->holds,
                             split ? "" : "not ");
            break;
        }
        fcp_side side = fcp_side_of(k);
        if (k->first_piece != next || k->pieces == 0 || k->pieces > plan->pieces_count - next) {
            code = malformed(err, "block %llu has pieces from %u on, %u of them; %llu come next of %llu", (ull)b,
                             k->first_piece, k->pieces, (ull)next, (ull)plan->pieces_count);
            break;
        }
        for (; next < (uint64_t)k->first_piece + k->pieces; next++) {
            const fcp_piece *c = &plan->pieces[next];
            const fcp_sequence *s = c->sequence < plan->sequences_count ? &plan->sequences[c->sequence] : NULL;
            if (c->block != b || c->offset != tokens || c->length == 0 || !s || c->start > fcp_side_length(s, side) ||
                c->length > fcp_side_length(s, side) - c->start) {
                code = malformed(err, "piece %llu of block %llu: tokens %llu to %llu of sequence %u, offset %u, block "
                                 "%u", (ull)next, (ull)b, (ull)c->start, (ull)c->start + c->length, c->sequence,
                                 c->offset, c->block);
                break;
            }
            tokens += c->length;
        }
        if (code) break;
        const bool counted = !plan->extract || k->home == plan->extract->about->rank; /* all of them are here */
        if (k->tokens != tokens || k->home >= p->ranks || (counted && k->home_slot != homes[k->home]++) ||
            k->heads >= plan->heads_count || !heads_fit(plan, k) || k->flags & ~FCP_BLOCK_WHOLE ||
            (k->flags && !(k->holds & FCP_HOLDS_Q)))
            code = malformed(err, "block %llu: %u tokens (its pieces: %llu), home %u, home slot %u, heads %u, flags "
                             "%#x", (ull)b, k->tokens, (ull)tokens, k->home, k->home_slot, k->heads, k->flags);
        for (int i = 0; i < FCP_SIDES; i++)
            if (k->holds >> i & 1 && k->tokens > largest[i]) largest[i] = k->tokens;
    }
    free(homes);
    if (code) return code;
    if (next != plan->pieces_count)
        return malformed(err, "%llu pieces, %llu of them in blocks", (ull)plan->pieces_count, (ull)next);
    const bool fits = plan->extract ? largest[FCP_KEYS] <= p->max_block && largest[FCP_QUERIES] <= p->max_q_block
                                    : largest[FCP_KEYS] == p->max_block && largest[FCP_QUERIES] == p->max_q_block;
    if (!fits)
        return malformed(err, "the largest blocks have %u and %u tokens, not %u and %u", largest[FCP_QUERIES],
                         largest[FCP_KEYS], p->max_q_block, p->max_block);
    for (int side = 0; side < (split ? FCP_SIDES : 1) && !code && !plan->extract; side++)
        code = check_cover(plan, (fcp_side)side, err);
    return code;
}

/* Places in the caller's tensors, and in bundles, are 32-bit numbers. */
static fcp_code check_layout(const fcp_plan *plan, fcp_error *err) {
    const uint32_t first = plan->extract ? plan->extract->about->rank : 0;
    const uint32_t end = plan->extract ? first + 1 : plan->problem->ranks;
    if (!plan->rank_tokens) return malformed(err, "a plan without its index");
    for (uint32_t r = first; r < end; r++)
        for (int side = 0; side < FCP_SIDES; side++)
            if (fcp_side_tokens(plan, (fcp_side)side, r) > INT32_MAX)
                return malformed(err, "the layout gives rank %u %llu tokens", r,
                                 (ull)fcp_side_tokens(plan, (fcp_side)side, r));
    return FCP_OK;
}

/* Tokens of cells [from, from + count) along a piece of `length` tokens; the last cell may be cut short. */
static uint64_t extent(uint32_t length, uint64_t from, uint64_t count) {
    uint64_t begin = from * FCP_CELL, end = (from + count) * FCP_CELL;
    return (end < length ? end : length) - begin;
}

static fcp_code check_shapes(const fcp_plan *plan, fcp_error *err) {
    const bool by_class = plan->range_classes; /* then a shape may be of heads that see nothing */
    uint64_t total = 0;
    for (uint64_t i = 0; i < plan->shapes_count; i++) {
        const fcp_shape_rec *s = &plan->shapes[i];
        if (!(s->q_length && s->k_length && (s->runs || by_class) && s->first_run <= plan->runs_count &&
              s->runs <= plan->runs_count - s->first_run))
            return malformed(err, "shape %llu: %u x %u tokens, %u runs from %u on", (ull)i, s->q_length, s->k_length,
                             s->runs, s->first_run);
        total += s->runs;
        if (total > plan->runs_count) return malformed(err, "shape %llu shares runs with others", (ull)i);
        uint64_t rows = ((uint64_t)s->q_length + FCP_CELL - 1) / FCP_CELL;
        uint64_t cols = ((uint64_t)s->k_length + FCP_CELL - 1) / FCP_CELL;
        uint64_t next = 0;                     /* the first cell that may come next: row << 32 | column */
        unsigned __int128 least = 0, most = 0; /* how many pairs its runs can have */
        for (uint32_t j = s->first_run; j < s->first_run + s->runs; j++) {
            const fcp_run *r = &plan->runs[j];
            const uint64_t count = r->count, full = r->cls == FCP_CELL_FULL, row = (uint64_t)r->row << 32;
            if (!((full || r->cls == FCP_CELL_PARTIAL) && r->row < rows && count > 0 && r->col + count <= cols &&
                  (row | r->col) >= next))
                return malformed(err, "shape %llu, run %u: %u cells of class %u from row %u, column %u", (ull)i, j,
                                 r->count, r->cls, r->row, r->col);
            next = row + r->col + count; /* at most `cols`, which fits below the row */
            unsigned __int128 area =
                (unsigned __int128)extent(s->q_length, r->row, 1) * extent(s->k_length, r->col, count);
            least += full ? area : count;
            most += full ? area : area - count;
        }
        if (!(s->pairs >= least && s->pairs <= most))
            return malformed(err, "shape %llu has %llu pairs, which its runs cannot hold", (ull)i, (ull)s->pairs);
    }
    if (total != plan->runs_count)
        return malformed(err, "%llu runs, %llu of them in shapes", (ull)plan->runs_count, (ull)total);
    return FCP_OK;
}

/* The pairs of a part. With classes of heads it has a shape for each class of its range, and its pairs are those of
 * all the heads. All its shapes are between pieces of the same lengths, and at least one head sees something. */
static fcp_code part_pairs(const fcp_plan *plan, const fcp_part *c, uint32_t heads, uint64_t *out, fcp_error *err) {
    const fcp_shape_rec *first = &plan->shapes[c->shape];
    *out = first->pairs;
    if (!plan->range_classes) return FCP_OK;
    const uint32_t classes = fcp_class_count(plan, heads);
    const size_t id = (size_t)(c - plan->parts);
    if (classes > plan->shapes_count - c->shape)
        return malformed(err, "part %zu has shapes from %u on, for %u classes of heads", id, c->shape, classes);
    uint64_t runs = 0;
    *out = 0;
    for (uint32_t i = 0; i < classes; i++) {
        const fcp_shape_rec *s = first + i;
        uint64_t pairs;
        if (s->q_length != first->q_length || s->k_length != first->k_length)
            return malformed(err, "part %zu: shape %u is between other pieces than shape %u", id, c->shape + i,
                             c->shape);
        if (__builtin_mul_overflow(s->pairs, (uint64_t)fcp_class_size(plan, heads, i), &pairs) ||
            __builtin_add_overflow(*out, pairs, out))
            return malformed(err, "part %zu has more than 2^64 pairs", id);
        runs += s->runs;
    }
    return runs ? FCP_OK : malformed(err, "part %zu: no class of heads sees anything", id);
}

/* With classes of heads, a part has several shapes, which lie next to each other. Two parts must have the same
 * shapes or none in common: only then is it clear which class a shape is for. */
static fcp_code check_shared_shapes(const fcp_plan *plan, fcp_error *err) {
    if (!plan->range_classes) return FCP_OK;
    uint32_t *count = calloc((size_t)plan->shapes_count + 1, sizeof *count); /* of a part's first shape: how many */
    if (!count) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to check the shapes");
    fcp_code code = FCP_OK;
    for (uint64_t i = 0; i < plan->tiles_count && !code; i++) {
        const fcp_tile *t = &plan->tiles[i];
        const uint32_t classes = fcp_class_count(plan, plan->blocks[t->q_block].heads);
        for (const fcp_part *c = plan->parts + t->first_part, *end = c + t->parts; c < end && !code; c++) {
            if (count[c->shape] && count[c->shape] != classes)
                code = malformed(err, "shape %u is the first of %u for one part, and of %u for another", c->shape,
                                 count[c->shape], classes);
            count[c->shape] = classes;
        }
    }
    for (uint64_t s = 0, last = 0, end = 0; s < plan->shapes_count && !code; s++) {
        if (!count[s]) continue;
        if (s < end)
            code = malformed(err, "parts have shapes from %llu on and from %llu on, with some in common", (ull)last,
                             (ull)s);
        last = s;
        end = s + count[s];
    }
    free(count);
    return code;
}

static fcp_code check_tiles(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    enum { AHEAD = 8, FAR = 32 }; /* tiles lie in the order in which they are read, their parts do not */
    const bool backward = plan->problem->passes & 1u << FCP_BACKWARD;
    const uint32_t blocks = (uint32_t)plan->blocks_count, parts = (uint32_t)plan->parts_count;
    uint64_t total = 0;
    for (uint64_t i = 0; i < plan->tiles_count; i++) {
        const fcp_tile *t = &plan->tiles[i];
        if (i % 65536 == 0 && fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        __builtin_prefetch(t + FAR);
        if (i + AHEAD < plan->tiles_count && t[AHEAD].first_part < parts)
            __builtin_prefetch(&plan->parts[t[AHEAD].first_part]);
        if (!(t->q_block < blocks && t->k_block < blocks && t->parts > 0 && t->first_part <= parts &&
              t->parts <= parts - t->first_part))
            return malformed(err, "tile %llu: Q block %u, KV block %u, parts from %u on, %u of them", (ull)i,
                             t->q_block, t->k_block, t->first_part, t->parts);
        if (!(t->kv_slot != FCP_NONE && (t->dkv_slot != FCP_NONE) == backward))
            return malformed(err, "tile %llu: KV slot %u, dKV slot %u", (ull)i, t->kv_slot, t->dkv_slot);
        total += t->parts;
        if (total > plan->parts_count) return malformed(err, "tile %llu shares parts with others", (ull)i);
        const fcp_block *q = &plan->blocks[t->q_block], *k = &plan->blocks[t->k_block];
        if (!(q->holds & FCP_HOLDS_Q && k->holds & FCP_HOLDS_KV))
            return malformed(err, "tile %llu of blocks %u and %u, which hold no Q or no KV", (ull)i, t->q_block,
                             t->k_block);
        if (q->heads != k->heads && plan->heads[q->heads].kv_first != plan->heads[k->heads].kv_first)
            return malformed(err, "tile %llu: Q block %u has other KV heads than KV block %u", (ull)i, t->q_block,
                             t->k_block);
        uint64_t pairs = 0;
        const fcp_part *last = NULL;
        for (const fcp_part *c = plan->parts + t->first_part, *end = c + t->parts; c < end; last = c++) {
            if (!(c->q_piece - q->first_piece < q->pieces && c->k_piece - k->first_piece < k->pieces &&
                  c->shape < plan->shapes_count))
                return malformed(err, "part %zu of tile %llu: Q piece %u, KV piece %u, shape %u",
                                 (size_t)(c - plan->parts), (ull)i, c->q_piece, c->k_piece, c->shape);
            const fcp_piece *qp = &plan->pieces[c->q_piece], *kp = &plan->pieces[c->k_piece];
            const fcp_shape_rec *s = &plan->shapes[c->shape];
            if (!(qp->sequence == kp->sequence && s->q_length == qp->length && s->k_length == kp->length))
                return malformed(err, "part %zu of tile %llu: piece %u of sequence %u against piece %u of sequence %u "
                                 "in shape %u", (size_t)(c - plan->parts), (ull)i, c->q_piece, qp->sequence, c->k_piece,
                                 kp->sequence, c->shape);
            if (last && (last->q_piece > c->q_piece || (last->q_piece == c->q_piece && last->k_piece >= c->k_piece)))
                return malformed(err, "part %zu of tile %llu is out of order", (size_t)(c - plan->parts), (ull)i);
            uint64_t more;
            fcp_code code = part_pairs(plan, c, q->heads, &more, err);
            if (code) return code;
            if (__builtin_add_overflow(pairs, more, &pairs))
                return malformed(err, "tile %llu has more than 2^64 pairs", (ull)i);
        }
        if (t->pairs != pairs)
            return malformed(err, "tile %llu has %llu pairs, its parts %llu", (ull)i, (ull)t->pairs, (ull)pairs);
    }
    if (total != plan->parts_count)
        return malformed(err, "%llu parts, %llu of them in tiles", (ull)plan->parts_count, (ull)total);
    return FCP_OK;
}

static fcp_code check_visits(const fcp_plan *plan, fcp_error *err) {
    bool backward = plan->problem->passes & 1u << FCP_BACKWARD;
    for (uint64_t i = 0; i < plan->visits_count; i++) {
        const fcp_visit *v = &plan->visits[i];
        if (!(v->q_block < plan->blocks_count && v->tiles > 0 && v->first_tile <= plan->tiles_count &&
              v->tiles <= plan->tiles_count - v->first_tile && !(v->flags & ~(FCP_VISIT_FIRST | FCP_VISIT_LAST)) &&
              v->pad == 0 && v->q_slot != FCP_NONE &&
              (v->dq_slot != FCP_NONE) == backward))
            return malformed(err, "visit %llu: Q block %u, tiles from %u on, %u of them, slots %u of Q and %u of dQ, "
                             "flags %#x", (ull)i, v->q_block, v->first_tile, v->tiles, v->q_slot, v->dq_slot, v->flags);
        if (!(plan->blocks[v->q_block].holds & FCP_HOLDS_Q))
            return malformed(err, "visit %llu to block %u, which holds no Q", (ull)i, v->q_block);
    }
    return FCP_OK;
}

static fcp_code check_rounds(const fcp_plan *plan, fcp_error *err) {
    const uint32_t *starts = plan->round_starts;
    if (!(starts[0] == 0 && starts[FCP_PASSES] == plan->rounds_count))
        return malformed(err, "the rounds' starts do not span the %llu rounds", (ull)plan->rounds_count);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(starts[pass] <= starts[pass + 1] && starts[pass + 1] <= plan->rounds_count))
            return malformed(err, "rounds of pass %d: %u to %u", pass, starts[pass], starts[pass + 1]);
        if (!(plan->problem->passes & 1u << pass || starts[pass] == starts[pass + 1]))
            return malformed(err, "rounds of pass %d, which is not there", pass);
    }
    for (uint64_t i = 0; i < plan->rounds_count; i++)
        if (!(plan->rounds[i].kind < FCP_ROUND_KIND_COUNT && plan->rounds[i].stage <= FCP_MAX_STAGES &&
              !(plan->rounds[i].flags & ~FCP_ROUND_SECOND)))
            return malformed(err, "round %llu: kind %u, stage %u, flags %#x", (ull)i, plan->rounds[i].kind,
                             plan->rounds[i].stage, plan->rounds[i].flags);
    return FCP_OK;
}

/* Returns whether a WAIT may have these operands. In the compute queue a is for net and b is for local; a fabric that
 * the cluster does not have has 0. */
static bool is_wait(const fcp_plan *plan, fcp_queue queue, const fcp_instr *x) {
    const fcp_problem *p = plan->problem;
    if (queue == FCP_COMM) return !x->b && !x->c;
    return !x->c && (!x->a || p->nodes > 1) && (!x->b || p->gpus > 1);
}

static fcp_code check_streams(const fcp_plan *plan, fcp_error *err) {
    enum { FAR = 64 };
    const uint64_t all = plan->transfers_count;
    uint64_t next = 0, transfers = 0;
    for (uint64_t s = 0; s < plan->streams_count; s++) {
        const fcp_stream *stream = &plan->streams[s];
        uint32_t pass = (uint32_t)(s / FCP_QUEUES / (plan->extract ? 1 : plan->problem->ranks));
        uint32_t rounds = plan->round_starts[pass + 1] - plan->round_starts[pass];
        if (!(stream->first == next && stream->count <= plan->instrs_count - next))
            return malformed(err, "stream %llu has instructions from %u on, %u of them; %llu come next of %llu", (ull)s,
                             stream->first, stream->count, (ull)next, (ull)plan->instrs_count);
        if (!(plan->problem->passes & 1u << pass || !stream->count))
            return malformed(err, "instructions of pass %u, which is not there", pass);
        for (uint64_t end = next + stream->count; next < end; next++) {
            const fcp_instr *x = &plan->instrs[next];
            __builtin_prefetch(x + FAR);
            uint64_t a = x->a, b = x->b, op = x->op;
            bool good = x->stage <= FCP_MAX_STAGES;
            if (op == FCP_OP_LAUNCH || op == FCP_OP_COPY) {
                transfers += b;
                good &= (b != 0) & (a + b <= all) & (transfers <= all) & (x->c < (op == FCP_OP_LAUNCH ? rounds : 1));
            } else if (op == FCP_OP_WAIT) {
                good = good && is_wait(plan, (fcp_queue)(s % FCP_QUEUES), x);
            } else if (op == FCP_OP_ATTEND) {
                good = good && b && a + b <= plan->visits_count && !x->c;
            } else if (op == FCP_OP_DELTA) {
                good = good && b && !x->c;
            } else {
                uint32_t side = op == FCP_OP_REDUCE ? FCP_HOLDS_KV : FCP_HOLDS_Q;
                good = good && (op == FCP_OP_REDUCE || op == FCP_OP_MERGE || op == FCP_OP_FINISH ||
                                op == FCP_OP_REDUCE_Q || op == FCP_OP_ROUND) &&
                       a < plan->blocks_count && plan->blocks[a].holds & side;
            }
            if (!good)
                return malformed(err, "instruction %llu: op %u, stage %u, operands %u %u %u", (ull)next, x->op,
                                 x->stage, x->a, x->b, x->c);
        }
    }
    if (next != plan->instrs_count)
        return malformed(err, "%llu instructions, %llu of them in streams", (ull)plan->instrs_count, (ull)next);
    return FCP_OK;
}

/* Checks one transfer, and says what is wrong with it. check_transfers calls this for transfers of bundles, and for
 * those that are not sound (is_sound). */
static fcp_code check_transfer(const fcp_plan *plan, const fcp_transfer *t, fcp_error *err) {
    uint32_t blocks = (uint32_t)plan->blocks_count;
    ull id = (ull)(t - plan->transfers);
    bool bundle = t->cls == FCP_IN || t->cls == FCP_OUT;
    if (!(t->peer < plan->problem->ranks && (bundle ? t->block == FCP_NONE : t->block < blocks) &&
          t->fabric < FCP_FABRICS && t->dir < FCP_DIRECTION_COUNT && t->cls < FCP_CLASSES))
        return malformed(err, "transfer %llu: peer %u, block %u, class %u, fabric %u, direction %u", id, t->peer,
                         t->block, t->cls, t->fabric, t->dir);
    if (bundle) {
        if (t->tokens && t->first <= INT32_MAX && t->tokens <= INT32_MAX && t->side <= fcp_plan_split(plan))
            return FCP_OK;
        return malformed(err, "transfer %llu: tokens %u to %llu of a bundle of side %u", id, t->first,
                         (ull)t->first + t->tokens, t->side);
    }
    const fcp_block *k = &plan->blocks[t->block];
    uint32_t needs = t->cls == FCP_KV || t->cls == FCP_DKV ? FCP_HOLDS_KV : FCP_HOLDS_Q;
    if (!(k->holds & needs))
        return malformed(err, "transfer %llu moves %s of block %u, which holds none", id, fcp_class_texts[t->cls],
                         t->block);
    if (!(t->tokens && (uint64_t)t->first + t->tokens <= k->tokens))
        return malformed(err, "transfer %llu: tokens %u to %llu of block %u, which has %u", id, t->first,
                         (ull)t->first + t->tokens, t->block, k->tokens);
    if (t->slot == FCP_NONE) return malformed(err, "transfer %llu names no slot", id);
    return FCP_OK;
}

/* Returns whether check_transfer would find nothing wrong. A faster test for transfers that are not of bundles, which
 * are most. */
static inline bool is_sound(const fcp_transfer *t, uint32_t ranks, uint32_t blocks, const fcp_block *block) {
#define NEEDS(way) [FCP_KV | (way)] = FCP_HOLDS_KV, [FCP_DKV | (way)] = FCP_HOLDS_KV, [FCP_Q | (way)] = FCP_HOLDS_Q,   \
                   [FCP_STATE | (way)] = FCP_HOLDS_Q, [FCP_O | (way)] = FCP_HOLDS_Q, [FCP_DQ | (way)] = FCP_HOLDS_Q,   \
                   [FCP_DQW | (way)] = FCP_HOLDS_Q
    static const uint8_t needs[256] = { /* by fcp_way_of; of all other ways: nothing is enough */
        NEEDS(0), NEEDS(FCP_LOCAL << 4), NEEDS(FCP_RECV << 6), NEEDS(FCP_LOCAL << 4 | FCP_RECV << 6)};
#undef NEEDS
    _Static_assert(FCP_FABRICS == 2 && FCP_DIRECTION_COUNT == 2, "all of them stand here");
    const uint32_t tokens = t->tokens;
    if (t->block >= blocks || t->peer >= ranks || t->slot == FCP_NONE) return false;
    const fcp_block *k = &block[t->block]; /* it has tokens: check_blocks */
    return k->holds & needs[fcp_way_of(t)] && tokens - 1 < k->tokens && t->first <= k->tokens - tokens;
}

static fcp_code check_transfers(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    /* transfers lie in the order in which they are read, the blocks that they name do not */
    enum { AHEAD = 12, FAR = 64 };
    const uint32_t ranks = plan->problem->ranks, blocks = (uint32_t)plan->blocks_count;
    const fcp_block *block = plan->blocks;
    const fcp_transfer *t = plan->transfers, *end = t + plan->transfers_count;
    for (uint32_t i = 0; t < end; i++, t++) {
        if (i % 65536 == 0 && fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        __builtin_prefetch(t + FAR);
        if (t + AHEAD < end && t[AHEAD].block < blocks) __builtin_prefetch(&block[t[AHEAD].block]);
        if (is_sound(t, ranks, blocks, block)) continue;
        fcp_code code = check_transfer(plan, t, err);
        if (code) return code;
    }
    return FCP_OK;
}

/* What is computed: shapes, tiles, visits. */
static fcp_code check_work(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    fcp_code code = check_shapes(plan, err);
    if (!code) code = check_tiles(plan, stop, err);
    if (!code) code = check_shared_shapes(plan, err);
    if (!code) code = check_visits(plan, err);
    return code;
}

/* What the queues contain: rounds, instructions, transfers. */
static fcp_code check_queues(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    fcp_code code = check_rounds(plan, err);
    if (!code) code = check_streams(plan, err);
    if (!code) code = check_transfers(plan, stop, err);
    return code;
}

/* One of the two checks above, as a piece of work for a thread. */
typedef struct half {
    fcp_code (*check)(const fcp_plan *plan, const volatile int *stop, fcp_error *err);
    const fcp_plan *plan;
    const volatile int *stop;
    fcp_code code;
    fcp_error err;
} half;

static void check_half(void *given) {
    half *h = given;
    h->code = h->check(h->plan, h->stop, &h->err);
}

/* The two checks do not need each other, so for a large plan they run at the same time. If both find an error, the
 * first check's is returned, as if they had run one after the other. */
static fcp_code check_halves(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    half work = {check_work, plan, stop, FCP_OK, {0}}, queues = {check_queues, plan, stop, FCP_OK, {0}};
    if (plan->instrs_count + plan->transfers_count >= FCP_BOTH_FROM) {
        fcp_both(check_half, &work, &queues);
    } else {
        check_half(&work);
        if (!work.code) check_half(&queues);
    }
    const half *wrong = work.code ? &work : &queues;
    if (wrong->code && err) *err = wrong->err;
    return wrong->code;
}

fcp_code fcp_plan_check(const fcp_plan *given, const volatile int *stop, fcp_error *err) {
    fcp_code code = check_counts(given, err);
    fcp_plan view = fcp_plan_view(given);
    const fcp_plan *plan = &view;
    if (!code) code = check_problem(plan, err);
    if (!code) code = check_heads(plan, err);
    if (!code) code = check_classes(plan, err);
    if (!code) code = check_blocks(plan, err);
    if (!code) code = check_layout(plan, err);
    if (!code) code = check_halves(plan, stop, err);
    if (!code && plan->extract) code = fcp_extract_check(plan, err);
    return code ? code : fcp_plan_check_recurrent(plan, stop, err);
}
