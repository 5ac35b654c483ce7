/* spans.h: which masks let a query see one interval of keys, or two, and where the intervals begin and end.
 *
 * Example: by mask `k <= q and (k < 4 or q - k < 8)`, query 20 sees keys 0 to 3 and keys 13 to 20. In general, query
 * q sees the keys before min(q + 1, 4), and those from q - 7 to q. A kernel then needs two comparisons a row instead of
 * evaluating the mask for each pair. The same is done for the queries that see a key.
 */
#ifndef FCP_SPANS_H
#define FCP_SPANS_H
#include "codegen/mask/code.h"

/* A sum of nodes, each taken once with its sign, and a constant. Its nodes do not depend on the variable. */
enum { SPANS_TERMS = 6, SPANS_BOUNDS = 3, SPANS_MOST = 2 };
typedef struct spans_sum {
    uint32_t node[SPANS_TERMS];
    bool minus[SPANS_TERMS];
    uint32_t count;
    int64_t constant;
} spans_sum;
/* sum + factor * scaled */
typedef struct spans_bound {
    spans_sum sum, scaled;
    int64_t factor; /* 0: there is no scaled part */
} spans_bound;
/* lower <= variable < upper for all of them, where all conditions hold. */
typedef struct spans_part {
    spans_bound lower[SPANS_BOUNDS], upper[SPANS_BOUNDS];
    uint32_t condition[SPANS_BOUNDS]; /* bool nodes */
    bool negated[SPANS_BOUNDS];
    uint32_t lowers, uppers, conditions;
} spans_part;
/* A pair is allowed if one of the parts holds it. */
typedef struct spans {
    spans_part part[SPANS_MOST];
    uint32_t count;
} spans;

/* Finds the intervals of a mask: of the keys that any query sees (`variable` is MC_K), or of the queries that see any
 * key (MC_Q). exact: for each node, is it known not to overflow? Returns false if there are more than two intervals,
 * if their ends cannot be written as bounds (spans_bound), or if memory is out; then the mask must be evaluated for
 * every pair. */
bool spans_find(mc_code code, mc_op variable, const bool *exact, spans *out);
#endif
