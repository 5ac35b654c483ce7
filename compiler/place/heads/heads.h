/* heads.h: ulysses and upipe: every rank of a group computes some heads of all tokens that the group computes.
 *
 * Example: 8 query heads on 4 ranks. Rank 0 has the first quarter of the tokens, and computes heads 0 and 1 of all of
 * them. So three quarters of the Q, K and V of these heads come to it; of its own tokens, heads 2 to 7 go to the
 * others; and the results return.
 */
#ifndef FCPC_PLACE_HEADS_HEADS_H
#define FCPC_PLACE_HEADS_HEADS_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* How heads are divided: x->sharing. Neighbouring ranks are a group, `group` of them; the place of a rank in its group
 * is its lane. */
typedef struct sharing {
    uint32_t group;
    uint32_t *holder; /* per block of the first range of heads: who has its tokens; NULL: between_groups.c says it */
    uint32_t *lane;   /* per entry of the problem's heads that is of queries: the lane that computes it */
    uint32_t *phase;  /* per entry: the phase in which it is computed; of keys, that in which they are first needed */
} sharing;

/* What one rank computes at a time: of range_kv KV heads, range_sub query heads of each. */
typedef struct heads_shape {
    uint32_t range_kv, range_sub;
} heads_shape;
/* `each` query heads a rank and phase, which divide the query heads. As few KV heads as can be. */
heads_shape heads_shape_of(uint32_t heads, uint32_t kv_heads, uint32_t each);
/* Who computes the range of the sub-th part of the query heads of the kv-th part of the KV heads: the lane and the
 * phase, where `parts` of KV heads and `subs` of each one's query heads are divided among `group` ranks. */
void heads_divide(uint32_t parts, uint32_t subs, uint32_t group, uint32_t kv, uint32_t sub, uint32_t *out_lane,
                  uint32_t *out_phase);
/* equal_runs.c. For tokens = equal: replaces runs of all ranks' tokens of a side by runs of which every rank has floor
 * or ceil of the mean. Groups are of `group` ranks; the runs are in x->work. Cost: sorting the runs. */
fcp_code heads_even_out(planning *x, uint32_t group, problem_run **runs, uint32_t *count);
/* Says of each range which lane computes it, and when: x->sharing's lane and phase. */
fcp_code heads_divide_ranges(planning *x);
/* between_groups.c. With another strategy between groups: blocks of all heads; and then, in place of the tiles that
 * they have, blocks and tiles of ranges, a home for each block and a rank for each tile, in x->work. */
fcp_code heads_cut_between(planning *x, const strategy *other);
fcp_code heads_place_between(planning *x, const strategy *other, uint32_t **out_home, uint32_t **out_exec);
/* The ways of a block then: to its lane in its own group, and from there to the same lane in others. */
uint32_t heads_route_between(const planning *x, const need *n, leg *legs);
/* The ways around a ring of groups: keys go to their lanes in their own group, and from there on. */
uint32_t heads_route(const planning *x, const need *n, leg *legs);
/* The functions of both strategies: place.h. */
fcp_code heads_cut(planning *x);
fcp_code place_by_heads(planning *x, const place_input *in, uint32_t *home);
fcp_code exec_by_heads(planning *x, const uint32_t *home, uint32_t *exec);
#endif
