/* pairs.c: proves that a plan computes the pairs of its mask, each once.
 *
 * It evaluates the mask's code, as the plan has it, and shares no code with what builds plans: neither the compiler's
 * evaluator of boxes nor its analysis of cells.
 *
 * A piece is a run of tokens of one sequence, and a block may have several. A *part* of a tile is a piece of its Q
 * block and a piece of its KV block that meet there. The part's *shape* says which cells are FULL and which PARTIAL.
 *
 * Requires: fcp_plan_check and fcp_plan_verify have passed. So it is known that:
 *           - pieces hold each token once for each range of heads;
 *           - a tile has no two parts of the same pieces, and no two tiles are of the same blocks;
 *           - each tile is computed once.
 *           It follows that a query and a key of one sequence meet in one pair of pieces for each head, and that at
 *           most one part has this pair.
 * Proves:   for every sequence and head (E615):
 *           - Two pieces of which no tile has a part have no allowed pair between them.
 *           - In a part, FULL cells have only allowed pairs, cells that are not computed have none, and the number of
 *             pairs is right (check_cells.c).
 *           The pairs of tiles and of the summary are sums of those of parts: fcp_plan_check and the verifier have
 *           proven that. So kernels compute exactly the allowed pairs: those of FULL cells without evaluating the mask,
 *           those of PARTIAL cells by its code.
 * Limits:   that the code is what the plan's source says, or that it reaches no fault, is not proven. Every operation
 *           is taken as defined for all operands, as in kernels.
 * Method:   1. For each sequence and range of heads the pieces are put in order of their tokens.
 *           2. Rectangles of pieces are halved until the mask is decided for all of their pairs, or one pair of pieces
 *              is left, which check_cells.c proves.
 *           3. This is done for each head, but only once for heads whose code is equal after h is replaced by their
 *              numbers. In the plan, heads are divided into classes, and a part has a shape for each class of its
 *              heads. So heads of equal code are looked at once in each class.
 * Cost:     linear in pieces and parts (pieces that are not in order are sorted), times the halvings of their
 *           rectangles; and the boxes of check_cells.c. Memory: linear in pieces and parts, the code of heads that
 *           differ, and what box_memo.c remembers.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/carve.h"
#include "runtime/base/grow.h"
#include "runtime/base/stop.h"
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/file.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/sides.h"

typedef struct stretch {
    uint64_t start;
    uint32_t piece;
} stretch;

/* Code that one or several heads see, after h is replaced by their numbers. `head` is the first of them. */
typedef struct head_code {
    uint64_t hash;
    mc_node *nodes;
    uint32_t head;
} head_code;

/* Lists of the plan's pieces and parts by group. A *group* is one sequence that has tokens of a side, and one range
 * of heads of it. Its number is i * ranges + range, where i counts these sequences. */
typedef struct lists {
    const fcp_plan *plan;
    uint32_t ranges[FCP_SIDES];
    uint32_t *number[FCP_SIDES]; /* per sequence: how many before it have tokens of the side */
    size_t groups[FCP_SIDES];
    stretch *pieces[FCP_SIDES]; /* by group, in order of start */
    uint32_t *first[FCP_SIDES]; /* per group, and one more: where its pieces begin */
    uint32_t *place;            /* per piece: where it is in its group */
    uint32_t *parts;            /* by group of queries */
    uint32_t *first_part;
    uint32_t *heads_of;         /* per range of query heads: an index into the plan's `heads` */
    head_code *codes;           /* of heads that differ */
    uint32_t code_count, code_room;
    uint32_t *code_of;          /* per head of the model: its code */
    uint32_t *last_unit;        /* per code: the turn of the last group and class that was looked at with it */
    void *room, *number_room;
} lists;

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* Two functions: the number of ranges that the heads of a side are cut into, and the number of the range that a block
 * has. */
static uint32_t range_count(const fcp_problem *p, fcp_side side) {
    const uint32_t kv = p->kv_heads / p->range_kv;
    return side == FCP_KEYS ? kv : kv * (p->heads / p->kv_heads / p->range_sub);
}
static uint32_t range_of(const fcp_plan *plan, fcp_side side, const fcp_block *b) {
    const fcp_problem *p = plan->problem;
    const fcp_heads *h = &plan->heads[b->heads];
    const uint32_t kv = h->kv_first / p->range_kv;
    return side == FCP_KEYS ? kv : kv * (p->heads / p->kv_heads / p->range_sub) + h->sub_first / p->range_sub;
}
static size_t group_of(const lists *l, fcp_side side, const fcp_piece *piece) {
    return (size_t)l->number[side][piece->sequence] * l->ranges[side] +
           range_of(l->plan, side, &l->plan->blocks[piece->block]);
}

static int by_start(const void *a, const void *b) {
    const stretch *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Lists the pieces that hold a side. Where blocks hold both, the lists of both sides are equal. */
static void list_pieces(lists *l, fcp_side side) {
    const fcp_plan *plan = l->plan;
    uint32_t *first = l->first[side];
    const size_t groups = l->groups[side];
    for (uint64_t i = 0; i < plan->pieces_count; i++)
        if (plan->blocks[plan->pieces[i].block].holds >> side & 1) first[group_of(l, side, &plan->pieces[i]) + 2]++;
    for (size_t g = 2; g < groups + 2; g++) first[g] += first[g - 1];
    for (uint64_t i = 0; i < plan->pieces_count; i++)
        if (plan->blocks[plan->pieces[i].block].holds >> side & 1)
            l->pieces[side][first[group_of(l, side, &plan->pieces[i]) + 1]++] =
                (stretch){plan->pieces[i].start, (uint32_t)i};
    for (size_t g = 0; g < groups; g++) {
        stretch *these = l->pieces[side] + first[g];
        const size_t count = first[g + 1] - first[g];
        for (size_t i = 1; i < count; i++)
            if (these[i].start < these[i - 1].start) {
                qsort(these, count, sizeof *these, by_start);
                break;
            }
        for (size_t i = 0; i < count; i++) l->place[these[i].piece] = (uint32_t)i;
    }
}

static void list_parts(lists *l) {
    const fcp_plan *plan = l->plan;
    uint32_t *first = l->first_part;
    const size_t groups = l->groups[FCP_QUERIES];
    for (uint64_t i = 0; i < plan->parts_count; i++)
        first[group_of(l, FCP_QUERIES, &plan->pieces[plan->parts[i].q_piece]) + 2]++;
    for (size_t g = 2; g < groups + 2; g++) first[g] += first[g - 1];
    for (uint64_t i = 0; i < plan->parts_count; i++)
        l->parts[first[group_of(l, FCP_QUERIES, &plan->pieces[plan->parts[i].q_piece]) + 1]++] = (uint32_t)i;
}

static fcp_code no_memory(fcp_error *err) {
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to hold a plan against its mask");
}

static fcp_code lists_open(lists *l, const fcp_plan *plan, fcp_error *err) {
    const size_t pieces = (size_t)plan->pieces_count;
    *l = (lists){.plan = plan};
    const fcp_carved numbers[] = {{&l->number[FCP_QUERIES], (size_t)plan->sequences_count, sizeof(uint32_t)},
                                  {&l->number[FCP_KEYS], (size_t)plan->sequences_count, sizeof(uint32_t)}};
    if (!(l->number_room = FCP_CARVE(numbers))) return no_memory(err);
    for (int side = 0; side < FCP_SIDES; side++) {
        l->ranges[side] = range_count(plan->problem, (fcp_side)side);
        l->groups[side] = fcp_number_sequences(plan, (fcp_side)side, l->number[side]) * l->ranges[side];
    }
    /* no more groups than pieces: fcp_plan_check */
    const fcp_carved tables[] = {
        {&l->pieces[FCP_QUERIES], pieces, sizeof(stretch)},
        {&l->pieces[FCP_KEYS], pieces, sizeof(stretch)},
        {&l->first[FCP_QUERIES], l->groups[FCP_QUERIES] + 2, sizeof(uint32_t)},
        {&l->first[FCP_KEYS], l->groups[FCP_KEYS] + 2, sizeof(uint32_t)},
        {&l->place, pieces, sizeof(uint32_t)},
        {&l->parts, (size_t)plan->parts_count + 1, sizeof(uint32_t)},
        {&l->first_part, l->groups[FCP_QUERIES] + 2, sizeof(uint32_t)},
        {&l->heads_of, l->ranges[FCP_QUERIES], sizeof(uint32_t)},
        {&l->code_of, plan->problem->heads, sizeof(uint32_t)},
    };
    if (!(l->room = FCP_CARVE(tables))) return no_memory(err);
    for (int side = 0; side < FCP_SIDES; side++) list_pieces(l, (fcp_side)side);
    list_parts(l);
    for (uint64_t b = 0; b < plan->blocks_count; b++)
        if (plan->blocks[b].holds & FCP_HOLDS_Q)
            l->heads_of[range_of(plan, FCP_QUERIES, &plan->blocks[b])] = plan->blocks[b].heads;
    return FCP_OK;
}

static void lists_close(lists *l) {
    for (uint32_t i = 0; i < l->code_count; i++) free(l->codes[i].nodes);
    free(l->codes);
    free(l->last_unit);
    free(l->room);
    free(l->number_room);
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const mc_node *nodes, size_t count) {
    const uint8_t *bytes = (const uint8_t *)nodes;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count * sizeof *nodes; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Finds which heads have equal code. If the mask does not name h there is one code. */
static fcp_code list_codes(lists *l, const volatile int *stop, fcp_error *err) {
    const fcp_plan *plan = l->plan;
    const size_t count = (size_t)plan->mask_count, bytes = count * sizeof(mc_node);
    const uint32_t heads = plan->range_classes ? plan->problem->heads : 1;
    for (uint32_t h = 0; h < heads; h++) {
        mc_node *nodes = malloc(bytes);
        if (!nodes) return no_memory(err);
        fcp_pairs_fold(plan, h, nodes);
        const uint64_t hash = hash_of(nodes, count);
        uint32_t same = 0;
        while (same < l->code_count && (l->codes[same].hash != hash || memcmp(l->codes[same].nodes, nodes, bytes)))
            same++;
        l->code_of[h] = same;
        if (same < l->code_count) {
            free(nodes);
            continue;
        }
        if (!FCP_GROW(l->codes, l->code_room, same + 1)) {
            free(nodes);
            return no_memory(err);
        }
        l->codes[l->code_count++] = (head_code){hash, nodes, h};
        if (fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    }
    l->last_unit = calloc(l->code_count, sizeof *l->last_unit);
    return l->last_unit ? FCP_OK : no_memory(err);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* Q pieces [q0, q1) and KV pieces [k0, k1) of a group's lists. */
typedef struct piece_rect {
    uint32_t q0, q1, k0, k1;
} piece_rect;

/* The group whose pieces are being proven. */
typedef struct group {
    pairs_prover *p;
    const lists *l;
    const stretch *q, *k;
} group;

static pairs_box box_of(const group *g, piece_rect r) {
    const pairs_box first = fcp_pairs_box_of(g->p, g->q[r.q0].piece, g->k[r.k0].piece);
    const pairs_box last = fcp_pairs_box_of(g->p, g->q[r.q1 - 1].piece, g->k[r.k1 - 1].piece);
    return (pairs_box){first.q0, last.q1, first.k0, last.k1};
}

/* Returns whether all of these parts have all pairs of their pieces, or none. If so, fcp_plan_check has proven that
 * their cells are FULL, or that they have none. */
static bool parts_are(const group *g, const uint32_t *parts, uint32_t count, bool full) {
    const fcp_plan *plan = g->l->plan;
    for (uint32_t i = 0; i < count; i++) {
        const fcp_shape_rec *s = &plan->shapes[plan->parts[parts[i]].shape + g->p->cls];
        if (s->pairs != (full ? (uint64_t)s->q_length * s->k_length : 0)) return false;
    }
    return true;
}

/* Puts those parts first that lie before a piece, and counts them. */
static uint32_t divide(const group *g, uint32_t *parts, uint32_t count, fcp_side side, uint32_t before) {
    const fcp_plan *plan = g->l->plan;
    uint32_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        const fcp_part *c = &plan->parts[parts[i]];
        if (g->l->place[side == FCP_QUERIES ? c->q_piece : c->k_piece] >= before) continue;
        const uint32_t keep = parts[first];
        parts[first++] = parts[i];
        parts[i] = keep;
    }
    return first;
}

/* Proves a rectangle of pieces. `parts` are all parts of tiles that have two of its pieces. */
static fcp_code prove(const group *g, piece_rect r, uint32_t *parts, uint32_t count) {
    const uint32_t rows = r.q1 - r.q0, cols = r.k1 - r.k0;
    const pairs_box b = box_of(g, r);
    pairs_answer answer;
    fcp_code code = fcp_pairs_ask(g->p, &b, &answer);
    if (code) return code;
    if (rows == 1 && cols == 1) {
        const pairs_meeting m = {g->q[r.q0].piece, g->k[r.k0].piece, count ? parts[0] : FCP_NONE};
        return fcp_pairs_cells(g->p, &m, answer);
    }
    if (answer == FCP_PAIRS_NONE && parts_are(g, parts, count, false)) return FCP_OK;
    if (answer == FCP_PAIRS_ALL && count == (uint64_t)rows * cols && parts_are(g, parts, count, true)) return FCP_OK;
    piece_rect half[2] = {r, r};
    const bool by_rows = cols == 1 || (rows > 1 && b.q1 - b.q0 >= b.k1 - b.k0);
    if (by_rows) half[0].q1 = half[1].q0 = r.q0 + rows / 2;
    else half[0].k1 = half[1].k0 = r.k0 + cols / 2;
    const uint32_t first = by_rows ? divide(g, parts, count, FCP_QUERIES, half[0].q1)
                                   : divide(g, parts, count, FCP_KEYS, half[0].k1);
    code = prove(g, half[0], parts, first);
    return code ? code : prove(g, half[1], parts + first, count - first);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Proves one sequence that has queries and keys, for one range of query heads: once for each class of these heads and
 * each code that heads of the class have. */
static fcp_code prove_group(pairs_prover *p, lists *l, uint32_t range, uint32_t *turn) {
    const fcp_plan *plan = l->plan;
    const size_t q_group = (size_t)l->number[FCP_QUERIES][p->sequence] * l->ranges[FCP_QUERIES] + range;
    const size_t k_group = (size_t)l->number[FCP_KEYS][p->sequence] * l->ranges[FCP_KEYS] +
                           range / (l->ranges[FCP_QUERIES] / l->ranges[FCP_KEYS]);
    const uint32_t *q_first = l->first[FCP_QUERIES] + q_group, *k_first = l->first[FCP_KEYS] + k_group;
    const uint32_t *part_first = l->first_part + q_group, heads = l->heads_of[range];
    const group g = {p, l, l->pieces[FCP_QUERIES] + q_first[0], l->pieces[FCP_KEYS] + k_first[0]};
    const piece_rect all = {0, q_first[1] - q_first[0], 0, k_first[1] - k_first[0]};
    const uint32_t classes = fcp_class_count(plan, heads), count = fcp_range_heads(plan->problem);
    fcp_code code = FCP_OK;
    for (uint32_t cls = 0; cls < classes && !code; cls++) {
        ++*turn;
        for (uint32_t i = 0; i < (plan->range_classes ? count : 1) && !code; i++) {
            if (fcp_class_of(plan, heads, i) != cls) continue;
            const uint32_t head = fcp_model_head(plan->problem, &plan->heads[heads], i);
            const uint32_t which = l->code_of[plan->range_classes ? head : 0];
            if (l->last_unit[which] == *turn) continue;
            l->last_unit[which] = *turn;
            p->head = head;
            p->cls = cls;
            p->mask.code = (mc_code){l->codes[which].nodes, (uint32_t)plan->mask_count};
            fcp_pairs_classes_begin(p->classes, &p->mask);
            code = prove(&g, all, l->parts + part_first[0], part_first[1] - part_first[0]);
        }
    }
    return code;
}

fcp_code fcp_plan_verify_pairs(const fcp_plan *given, double max_seconds, const volatile int *stop,
                               fcp_pairs_proof *out_proof, fcp_error *err) {
    if (!(max_seconds >= 0 && max_seconds <= UINT32_MAX))
        return fcp_fail(err, FCP_E_ARGUMENT, "max_seconds is %g: a limit is a number of seconds, or 0", max_seconds);
    fcp_code whole = fcp_plan_whole(given, "the proof of all pairs", err);
    if (whole) return whole;
    const fcp_plan view = fcp_plan_view(given), *plan = &view;
    const mc_code mask = {plan->mask, (uint32_t)plan->mask_count};
    pairs_prover p = {.plan = plan, .stop = stop, .err = err};
    p.work_most = max_seconds > 0 ? (uint64_t)(max_seconds * 1e9) : UINT64_MAX;
    pairs_facts facts;
    lists l;
    mc_array *arrays = NULL;
    mc_bands *bands = NULL;
    const fcp_carved tables[] = {
        {&arrays, (size_t)plan->arrays_count + 1, sizeof *arrays},
        {&bands, (size_t)plan->slices_count + 1, sizeof *bands},
        {&p.mask.values, mask.count, sizeof(pairs_value)},
    };
    void *room = FCP_CARVE(tables);
    fcp_code code = fcp_pairs_facts_open(&facts, plan, stop, err);
    p.mask.facts = &facts;
    const fcp_code listed = lists_open(&l, plan, err);
    if (!code) code = listed;
    if (!code && (!room || !fcp_pairs_memo_open(&p.memo, mask.count))) code = no_memory(err);
    p.classes = fcp_pairs_classes_open(mask.count);
    if (!code && !p.classes) code = no_memory(err);
    if (!code) code = list_codes(&l, stop, err);
    size_t scratch = 0;
    for (uint32_t i = 0; i < l.code_count; i++) {
        const size_t words = mc_row_scratch((mc_code){l.codes[i].nodes, mask.count});
        if (words > scratch) scratch = words;
    }
    p.mask.scratch = malloc(scratch * sizeof *p.mask.scratch);
    if (!code && !p.mask.scratch) code = no_memory(err);
    uint32_t turn = 0;
    for (uint32_t s = 0; s < plan->sequences_count && !code; s++) {
        if (!plan->sequences[s].queries || !plan->sequences[s].keys) continue; /* it has no pairs, and so no parts */
        p.sequence = s;
        fcp_plan_env(plan, s, arrays, bands, &p.mask.env);
        for (uint32_t range = 0; range < l.ranges[FCP_QUERIES] && !code; range++)
            code = prove_group(&p, &l, range, &turn);
    }
    p.proof.pairs = plan->summary->pairs;
    if (!code && out_proof) *out_proof = p.proof;
    fcp_pairs_memo_close(&p.memo);
    fcp_pairs_classes_close(p.classes);
    lists_close(&l);
    fcp_pairs_facts_close(&facts);
    free(p.mask.scratch);
    free(room);
    return code;
}
