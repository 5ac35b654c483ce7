/* heads.h: the strategies ulysses and upipe: a group of ranks divides the heads, and each rank computes some heads of
 * all tokens that its group computes.
 *
 * Example: 8 query heads on 4 ranks. Rank 0 has the first quarter of the tokens, and computes heads 0 and 1 of all
 * tokens. The other ranks send it Q, K and V of these two heads for the other three quarters. It sends them heads 2 to
 * 7 of its own tokens. The results return in the same way.
 */
#ifndef FCPC_PLACE_HEADS_HEADS_H
#define FCPC_PLACE_HEADS_HEADS_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* How heads are divided: x->sharing. Every `group` neighbouring ranks form a group. The number of a rank in its group
 * is its lane. */
typedef struct sharing {
    uint32_t group;
    uint32_t *holder; /* per block of the first range of heads: who has its tokens; NULL: between_groups.c says it */
    uint32_t *lane;   /* per range of query heads (the problem's `heads`): the lane that computes it */
    uint32_t *phase;  /* per range: the phase that computes it; of KV heads, the first phase that needs them */
} sharing;

/* What a rank computes at a time: range_sub query heads of each of range_kv KV heads. */
typedef struct heads_shape {
    uint32_t range_kv, range_sub;
} heads_shape;
/* The shape of `each` query heads that needs fewest KV heads. `each` must divide the number of all query heads. */
heads_shape heads_shape_of(uint32_t heads, uint32_t kv_heads, uint32_t each);
/* Finds the lane and the phase of a range of heads: of the sub-th range of query heads of the kv-th range of KV heads.
 * There are `parts` ranges of KV heads, each with `subs` ranges of query heads, and `group` ranks. */
void heads_divide(uint32_t parts, uint32_t subs, uint32_t group, uint32_t kv, uint32_t sub, uint32_t *out_lane,
                  uint32_t *out_phase);
/* equal_runs.c. For tokens = equal: replaces the runs of all ranks' tokens of a side by runs of which every rank has
 * floor or ceil of the mean. The new runs are in x->work. Cost: sorting the runs. */
fcp_code heads_even_out(planning *x, uint32_t group, problem_run **runs, uint32_t *count);
/* Fills the lane and phase of each range in x->sharing. */
fcp_code heads_divide_ranges(planning *x);
/* between_groups.c. For programs in which another strategy divides the batch among groups: heads_cut_between makes
 * blocks of all heads. heads_place_between replaces them by blocks and tiles of ranges of heads, and gives each block a
 * home and each tile a rank, in x->work. */
fcp_code heads_cut_between(planning *x, const strategy *other);
fcp_code heads_place_between(planning *x, const strategy *other, uint32_t **out_home, uint32_t **out_exec);
/* The ways of a block in such programs: to its lane in the home's group, and from there to the same lane in other
 * groups. */
uint32_t heads_route_between(const planning *x, const need *n, leg *legs);
/* heads.c. The ways around a ring of groups: keys go to their lanes in the home's group, and from there from group to
 * group. */
uint32_t heads_route(const planning *x, const need *n, leg *legs);
/* The functions of both strategies: place.h. */
fcp_code heads_cut(planning *x);
fcp_code place_by_heads(planning *x, const place_input *in, uint32_t *home);
fcp_code exec_by_heads(planning *x, const uint32_t *home, uint32_t *exec);
#endif
