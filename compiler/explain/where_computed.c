/* where_computed.c: finds the rank that computes a pair, and the paths of its query and key to that rank, in a plan's
 * tables.
 *
 * Method: the positions of the pair give its two pieces of sequences, the pieces give the two blocks, the blocks give
 *         the tile, and the tile gives its visit. The rank is the one whose ATTEND computes that visit. A path is
 *         followed backwards: the rank received the block from some rank, which received it from another, up to the
 *         block's home.
 */
#include "compiler/explain/where_computed.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_summary.h"

#include <inttypes.h>

#include "compiler/base/json.h"
#include "compiler/base/text.h"

/* Does a block's range of heads contain query head h? A block that holds KV has all query heads of its KV heads. */
static bool has_head(const fcp_plan *plan, const fcp_block *b, uint32_t h) {
    const fcp_heads *r = &plan->heads[b->heads];
    uint32_t shared = plan->problem->heads / plan->problem->kv_heads, kv = h / shared, sub = h % shared;
    return kv >= r->kv_first && kv - r->kv_first < r->kv_count && sub >= r->sub_first &&
           sub - r->sub_first < r->sub_count;
}

/* The block that holds a token of a side; FCP_NONE: there is none. */
static uint32_t find_block(const fcp_plan *plan, uint64_t sequence, fcp_side side, uint64_t token, uint32_t h) {
    for (uint64_t i = 0; i < plan->pieces_count; i++) {
        const fcp_piece *p = &plan->pieces[i];
        const fcp_block *b = &plan->blocks[p->block];
        if (p->sequence == sequence && b->holds >> side & 1 && token >= p->start && token - p->start < p->length &&
            has_head(plan, b, h))
            return p->block;
    }
    return FCP_NONE;
}

/* The tile of two blocks, and the visit that holds it. */
static bool find_visit(const fcp_plan *plan, uint32_t q_block, uint32_t k_block, uint32_t *out_tile,
                       uint32_t *out_visit) {
    for (uint32_t v = 0; v < plan->visits_count; v++) {
        const fcp_visit *w = &plan->visits[v];
        for (uint32_t t = w->first_tile; w->q_block == q_block && t < w->first_tile + w->tiles; t++) {
            if (plan->tiles[t].k_block != k_block) continue;
            *out_tile = t;
            *out_visit = v;
            return true;
        }
    }
    return false;
}

/* Reads all ATTENDs of the pass: finds the rank that computes the visit, and adds up how much each rank computes. */
static void read_work(const fcp_plan *plan, uint32_t visit, explain_computed *c) {
    uint32_t home = c->queries.home, block = c->queries.block;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, c->pass, r, FCP_COMPUTE);
        uint64_t here = 0;
        bool has_block = false, has_visit = false;
        for (const fcp_instr *x = plan->instrs + s->first, *end = x + s->count; x < end; x++) {
            if ((x->op == FCP_OP_FINISH || x->op == FCP_OP_ROUND) && x->a == block) c->maker = r;
            if (x->op != FCP_OP_ATTEND) continue;
            for (uint32_t v = x->a; v < x->a + x->b; v++) {
                const fcp_visit *w = &plan->visits[v];
                uint64_t pairs = 0;
                for (uint32_t t = w->first_tile; t < w->first_tile + w->tiles; t++) pairs += plan->tiles[t].pairs;
                here += pairs;
                if (plan->blocks[w->q_block].home == home) c->pairs_of_home += pairs;
                has_block |= w->q_block == block;
                if (w->q_block == block && w->flags & FCP_VISIT_LAST) c->maker = r;
                if (v != visit) continue;
                has_visit = true;
                c->rank = r;
                c->stage = x->stage;
            }
        }
        c->parts += has_block;
        if (has_visit) c->pairs_here = here;
        if (r == home) c->pairs_at_home = here;
    }
}

/* The rank from which a rank receives a block; FCP_NONE: it receives none. *out_round, if not NULL: in which round. */
static uint32_t sender(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_class cls, uint32_t block,
                       const fcp_round **out_round) {
    const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMM);
    for (const fcp_instr *x = plan->instrs + s->first, *end = x + s->count; x < end; x++) {
        if (x->op != FCP_OP_LAUNCH) continue;
        for (const fcp_transfer *t = plan->transfers + x->a, *last = t + x->b; t < last; t++)
            if (t->cls == cls && t->dir == FCP_RECV && t->block == block) {
                if (out_round) *out_round = &plan->rounds[plan->round_starts[pass] + x->c];
                return t->peer;
            }
    }
    return FCP_NONE;
}

static fcp_code find_way(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_class cls, arena *memory,
                         explain_way *way) {
    uint32_t count = 0, at = rank;
    for (; at != way->home && at != FCP_NONE && count < plan->problem->ranks; count++)
        at = sender(plan, pass, at, cls, way->block, NULL);
    way->bytes = plan->blocks[way->block].tokens * fcp_class_bytes(plan->problem, cls, pass);
    if (at != way->home) return FCP_OK; /* the plan is not verified, and has no such way */
    uint32_t *stops = ARENA_NEW(memory, uint32_t, count + (size_t)1);
    if (!stops) return FCP_E_NO_MEMORY;
    at = rank;
    for (uint32_t i = count; i-- > 0; at = sender(plan, pass, at, cls, way->block, NULL)) stops[i] = at;
    way->stops = stops;
    way->count = count;
    const fcp_round *last = NULL;
    if (count && fcp_second_stage(plan)) sender(plan, pass, rank, cls, way->block, &last);
    if (last) way->half = last->flags & FCP_ROUND_SECOND ? 2 : 1;
    return FCP_OK;
}

fcp_code explain_computed_find(const fcp_plan *plan, uint64_t sequence, int64_t q, int64_t k, int64_t h, arena *memory,
                               explain_computed *out, bool *out_found) {
    const fcp_problem *p = plan->problem;
    uint32_t tile, visit;
    *out_found = false;
    if (sequence >= plan->sequences_count || h < 0 || h >= p->heads) return FCP_OK;
    const fcp_sequence *s = &plan->sequences[sequence];
    explain_computed c = {.pass = p->passes & 1u << FCP_FORWARD ? FCP_FORWARD : FCP_BACKWARD, .gpus = p->gpus,
                          .ranks = p->ranks, .pairs = plan->summary->pairs};
    c.queries.block = find_block(plan, sequence, FCP_QUERIES, (uint64_t)(q - s->q_first), (uint32_t)h);
    c.keys.block = find_block(plan, sequence, FCP_KEYS, (uint64_t)k, (uint32_t)h);
    if (c.queries.block == FCP_NONE || c.keys.block == FCP_NONE ||
        !find_visit(plan, c.queries.block, c.keys.block, &tile, &visit))
        return FCP_OK;
    c.tile = tile;
    c.queries.home = plan->blocks[c.queries.block].home;
    c.keys.home = plan->blocks[c.keys.block].home;
    c.maker = c.queries.home;
    read_work(plan, visit, &c);
    fcp_code code = find_way(plan, c.pass, c.rank, FCP_Q, memory, &c.queries);
    if (!code) code = find_way(plan, c.pass, c.rank, FCP_KV, memory, &c.keys);
    *out = c;
    *out_found = !code;
    return code;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static void print_way(const explain_computed *c, const explain_way *w, const char *what, text *out) {
    text_printf(out, "    %s of block %" PRIu32, what, w->block);
    if (!w->count) {
        text_printf(out, ": at home there\n");
        return;
    }
    text_printf(out, ": from rank %" PRIu32, w->home);
    for (uint32_t i = 0, at = w->home; i < w->count; at = w->stops[i++]) {
        bool near = at / c->gpus == w->stops[i] / c->gpus;
        text_printf(out, " over %s", fcp_fabric_names[near ? FCP_LOCAL : FCP_NET]);
        if (i + 1 < w->count) text_printf(out, " to rank %" PRIu32, w->stops[i]);
    }
    text_printf(out, ", %.2f MB%s\n", (double)w->bytes / 1e6,
                w->half ? w->half == 2 ? ", in the second half" : ", in the first half" : "");
}

static double of_mean(const explain_computed *c, uint64_t pairs) {
    return c->pairs ? (double)pairs * (double)c->ranks / (double)c->pairs : 0;
}

void explain_computed_text(const explain_computed *c, text *out) {
    text_printf(out, "\ncomputed by rank %" PRIu32 " in stage %" PRIu32 ", in tile %" PRIu32 "\n", c->rank, c->stage,
                c->tile);
    print_way(c, &c->queries, "queries", out);
    print_way(c, &c->keys, "keys and values", out);
    if (c->rank == c->queries.home) return;
    if (c->parts == 1)
        text_printf(out, "    this rank computes the whole block of queries, and sends back its result\n");
    else
        text_printf(out,
                    "    %" PRIu32 " ranks compute with these queries; rank %" PRIu32
                    " merges their partial results%s\n",
                    c->parts, c->maker, c->maker == c->queries.home ? "" : ", and sends back the result");
    text_printf(out,
                "    rank %" PRIu32 " would have %.3f of the mean work if it kept all its queries, and now has %.3f; "
                "rank %" PRIu32 " has %.3f\n",
                c->queries.home, of_mean(c, c->pairs_of_home), of_mean(c, c->pairs_at_home), c->rank,
                of_mean(c, c->pairs_here));
}

static void add_way(json *j, const char *name, const explain_way *w) {
    json_object(j, name);
    json_u64(j, "block", w->block);
    json_u64(j, "home", w->home);
    json_array(j, "stops");
    for (uint32_t i = 0; i < w->count; i++) json_u64(j, NULL, w->stops[i]);
    json_end(j);
    json_u64(j, "bytes", w->count ? w->bytes : 0);
    if (w->half) json_u64(j, "half", w->half);
    json_end(j);
}

void explain_computed_json(const explain_computed *c, json *j) {
    json_object(j, "computed");
    json_u64(j, "rank", c->rank);
    json_u64(j, "stage", c->stage);
    json_u64(j, "tile", c->tile);
    add_way(j, "queries", &c->queries);
    add_way(j, "keys", &c->keys);
    json_string(j, "result", c->parts > 1 ? "partial" : c->rank == c->queries.home ? "home" : "whole");
    json_u64(j, "ranks_of_queries", c->parts);
    json_u64(j, "result_rank", c->maker);
    json_double(j, "work_of_home_queries", of_mean(c, c->pairs_of_home));
    json_double(j, "work_at_home", of_mean(c, c->pairs_at_home));
    json_double(j, "work_here", of_mean(c, c->pairs_here));
    json_end(j);
}
