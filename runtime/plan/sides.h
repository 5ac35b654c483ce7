/* sides.h: the two sides of a plan, queries and keys: their lengths, and which side a block or transfer is of. */
#ifndef FCP_PLAN_SIDES_H
#define FCP_PLAN_SIDES_H
#include "runtime/plan/instructions.h"

/* Prefix sums of a side's tokens over the sequences; sequences_count + 1 of them. */
static inline const uint64_t *fcp_offsets(const fcp_plan *p, fcp_side side) {
    return p->sequence_offsets + (side == FCP_KEYS ? p->sequences_count + 1 : 0);
}
static inline uint64_t fcp_side_length(const fcp_sequence *s, fcp_side side) {
    return side == FCP_KEYS ? s->keys : s->queries;
}
/* Numbers the sequences that have tokens of a side: number[s] is how many come before s. Returns how many there are. */
static inline uint64_t fcp_number_sequences(const fcp_plan *p, fcp_side side, uint32_t *number) {
    uint32_t count = 0;
    for (uint64_t s = 0; s < p->sequences_count; s++) {
        number[s] = count;
        count += fcp_side_length(&p->sequences[s], side) != 0;
    }
    return count;
}
/* The side whose tokens a block counts, and in whose bundles they are; queries, if it holds both. */
static inline fcp_side fcp_side_of(const fcp_block *b) { return b->holds & FCP_HOLDS_Q ? FCP_QUERIES : FCP_KEYS; }
/* FCP_HOLDS_* of what a transfer moves tokens of: a block or a bundle. */
static inline uint32_t fcp_moved_holds(const fcp_plan *p, const fcp_transfer *t) {
    if (t->cls != FCP_IN && t->cls != FCP_OUT) return p->blocks[t->block].holds;
    return fcp_plan_split(p) ? 1u << t->side : FCP_HOLDS_BOTH;
}
#endif
