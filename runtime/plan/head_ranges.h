/* head_ranges.h: ranges of heads, and the classes of heads that see the same pairs. */
#ifndef FCP_PLAN_HEAD_RANGES_H
#define FCP_PLAN_HEAD_RANGES_H
#include "runtime/plan/plan.h"

/* Returns whether the block is of the first range of heads. */
static inline bool fcp_first_range(const fcp_plan *p, const fcp_block *b) {
    return p->heads[b->heads].kv_first == 0 && p->heads[b->heads].sub_first == 0;
}
/* How many ranges of query heads there are. */
static inline uint32_t fcp_plan_ranges(const fcp_plan *p) {
    return p->problem->heads / (p->problem->range_kv * p->problem->range_sub);
}
/* Query head i of a range, as masks, scores and sinks count it. */
static inline uint32_t fcp_model_head(const fcp_problem *p, const fcp_heads *range, uint32_t i) {
    uint32_t kv_head = range->kv_first + i / p->range_sub;
    return kv_head * (p->heads / p->kv_heads) + range->sub_first + i % p->range_sub;
}
/* Query heads of a range. */
static inline uint32_t fcp_range_heads(const fcp_problem *p) { return p->range_kv * p->range_sub; }
/* How many classes the heads of a range are of, and so how many shapes a part of its tiles has. */
static inline const uint32_t *fcp_range_classes(const fcp_plan *p, uint32_t heads) {
    return p->range_classes + (size_t)heads * (2 * (size_t)fcp_range_heads(p->problem) + 1);
}
static inline uint32_t fcp_class_count(const fcp_plan *p, uint32_t heads) {
    return p->range_classes ? fcp_range_classes(p, heads)[0] : 1;
}
/* Which of these classes, counted from 0, query head i of the range is of. */
static inline uint32_t fcp_class_of(const fcp_plan *p, uint32_t heads, uint32_t i) {
    return p->range_classes ? fcp_range_classes(p, heads)[1 + i] : 0;
}
/* How many query heads of the range are of one of its classes. */
static inline uint32_t fcp_class_size(const fcp_plan *p, uint32_t heads, uint32_t cls) {
    const uint32_t all = fcp_range_heads(p->problem);
    return p->range_classes ? fcp_range_classes(p, heads)[1 + all + cls] : all;
}
/* Returns whether the heads of some range see different pairs. Then the kernels' work lists are by head
 * (emit_source.by_head). */
bool fcp_plan_by_head(const fcp_plan *plan);
/* Returns whether a sequence has few queries and many keys, as in decoding. */
enum { FCP_SHORT_QUERIES = 64 };
static inline bool fcp_is_short(const fcp_sequence *s) {
    return s->queries > 0 && s->queries <= FCP_SHORT_QUERIES && s->queries < s->keys;
}
/* Returns whether the plan has such sequences, so that heads share tiles and keys are cut into parts. Then its forward
 * kernels are made for that (emit_source.packed). Plans whose work lists are by head never are packed. */
bool fcp_plan_packed(const fcp_plan *plan);
#endif
