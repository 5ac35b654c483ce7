/* layout.h: the layouts that are rules: which rank's caller holds which tokens.
 *
 * Example: sequences of 4, 8, 8 and 12 tokens on 4 ranks, in groups of 2 ranks. The first two sequences go to ranks 0
 *          and 1, the others to ranks 2 and 3. Contiguous: rank 0 has the first sequence and two tokens of the second,
 *          and rank 1 the other six; ranks 2 and 3 share 20 tokens. Zigzag: of the second sequence rank 0 has tokens 0,
 *          1, 6 and 7, and rank 1 has 2 to 5.
 *
 * The rules cut n tokens into equal parts: part i of P has tokens floor(i n / P) to floor((i + 1) n / P) - 1.
 *
 *   deals       A deal gives neighbouring sequences of the batch to neighbouring ranks. Most plans have one: all
 *               sequences, to all ranks. A rank may be in several deals: it holds the tokens of the first deal, then
 *               those of the next. Everything below is about one deal, its sequences and its ranks.
 *   groups      The ranks are divided into groups of `group` neighbours, and each group holds whole sequences:
 *               1. The tokens of all sequences, queries and keys together, are laid end to end, and cut into equal
 *                  shares, one for each group.
 *               2. A sequence goes to the group in whose share its middle lies. So neighbours in the batch stay
 *                  neighbours.
 *               In the example the middles are 2, 8, 16 and 26 of 32, and the second share begins at 16.
 *               In numbers: let o(s) be the tokens before sequence s, and T all tokens. Then group g of n holds s if
 *               g = floor((o(s) + o(s + 1)) n / 2T). At the end of the batch the formula gives n for a sequence without
 *               tokens: it goes to the last group. If T is 0, all sequences go to group 0.
 *   contiguous  A group's tokens, sequence after sequence, are cut in `group` parts. Rank i of the group holds part i.
 *   zigzag      Each sequence is cut in 2 `group` parts. Rank i of its group holds parts i and 2 `group` - 1 - i of
 *               each, sequence after sequence.
 *
 * In a split plan queries and keys are cut separately. A sequence's queries and keys are in the same group.
 */
#ifndef FCP_PLAN_LAYOUT_H
#define FCP_PLAN_LAYOUT_H
#include "runtime/plan/records.h"

typedef struct fcp_rule {
    uint32_t layout;       /* FCP_LAYOUT_CONTIGUOUS or FCP_LAYOUT_ZIGZAG */
    uint32_t ranks, group; /* group: as problem.layout_group */
    const fcp_deal *deals;
    uint32_t deal_count;
    const uint64_t *offsets[FCP_SIDES]; /* prefix sums of the sequences' tokens, sequences + 1 of them */
} fcp_rule;
/* The rule of a plan whose layout is one. The plan must be indexed. */
fcp_rule fcp_rule_of(const fcp_plan *plan);
/* How many ranks a group of a deal has. */
static inline uint32_t fcp_rule_group(const fcp_rule *rule, const fcp_deal *deal) {
    return rule->group == rule->ranks ? deal->ranks : rule->group;
}
/* How many tokens of a side each rank holds. `parts` is scratch memory for 2 * ranks numbers. */
void fcp_rule_tokens(const fcp_rule *rule, fcp_side side, uint64_t *parts, uint64_t *out_tokens);

/* Where a walk along a side's tokens stands: in one part of what is cut. */
typedef struct fcp_walk {
    const fcp_rule *rule;
    fcp_side side;
    uint64_t first, end;  /* the group's sequences are first to end - 1 */
    uint32_t rank, group; /* the group's first rank; how many it has */
    uint64_t base;        /* contiguous: tokens before the group's; zigzag: before the sequence's */
    uint64_t total, parts, whole, rest; /* what is cut: `total` tokens in `parts`; total / parts, total % parts */
    uint64_t part, begin, over, error;  /* the part has tokens begin to over - 1; error: part * rest % parts */
} fcp_walk;
static inline fcp_walk fcp_walk_of(const fcp_rule *rule, fcp_side side) {
    return (fcp_walk){.rule = rule, .side = side};
}

/* For the functions below: moves to the part that holds token `at`, and to the group that holds a sequence. */
void fcp_walk_cut(fcp_walk *w, uint64_t total, uint64_t parts, uint64_t at);
void fcp_walk_group(fcp_walk *w, uint64_t sequence);

/* Goes to token `at` of a sequence. */
static inline void fcp_walk_to(fcp_walk *w, uint64_t sequence, uint64_t at) {
    const uint64_t *offsets = w->rule->offsets[w->side];
    if (sequence < w->first || sequence >= w->end) fcp_walk_group(w, sequence);
    uint64_t group = w->group;
    if (w->rule->layout == FCP_LAYOUT_ZIGZAG) {
        w->base = offsets[sequence];
        fcp_walk_cut(w, offsets[sequence + 1] - offsets[sequence], 2 * group, at);
        return;
    }
    w->base = offsets[w->first];
    uint64_t x = offsets[sequence] + at - w->base;
    if (w->parts && x >= w->begin && x < w->over) return;
    fcp_walk_cut(w, offsets[w->end] - w->base, group, x);
}
/* The rank that holds the tokens where the walk stands. */
static inline uint32_t fcp_walk_rank(const fcp_walk *w) {
    return w->rank + (uint32_t)(w->part < w->group ? w->part : w->parts - 1 - w->part);
}
/* How far its run goes: the packed batch's token of that side that comes after it. */
static inline uint64_t fcp_walk_end(const fcp_walk *w) { return w->base + w->over; }
/* Goes on to the next part. There must be a token after this one. */
static inline void fcp_walk_next(fcp_walk *w) {
    if (w->total < w->parts) {
        fcp_walk_cut(w, w->total, w->parts, w->over);
        return;
    }
    w->error += w->rest;
    if (w->error >= w->parts) w->error -= w->parts;
    w->part++;
    w->begin = w->over;
    w->over += w->whole + (w->error + w->rest >= w->parts);
}

/* One rank's layout of a side, run by run, as fcp_plan_layout; and how many tokens it holds. */
bool fcp_side_layout(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out_span);
uint64_t fcp_side_tokens(const fcp_plan *plan, fcp_side side, uint32_t rank);

/* The stretches of a rank, in the order of its tensors, as fcp_plan_stretches (fcp.h) gives them; `document` and
 * `start` are by the plan's own numbers, which in an extract are others than in the whole plan. NULL: counts them. The
 * plan must be indexed; one with other keys than queries has none. Cost: linear in the rank's spans and documents. */
uint32_t fcp_stretches_of(const fcp_plan *plan, uint32_t rank, fcp_stretch *out);
#endif
