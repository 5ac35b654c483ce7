/* verify.c: the verifier: proves that a plan computes each tile once, on data that is there.
 *
 * It reads only the plan's tables and instruction streams, and shares no code with what builds plans.
 *
 * Requires: fcp_plan_check has passed.
 * Proves:   for every pass that the plan has:
 *   1. Every tile is computed exactly once. At that time its Q block and KV block are in the slots that the visit and
 *      the tile name, whole, and ordered after what brought them there; in the backward pass, with the delta of the Q
 *      block (E600, E601).
 *   2. Every send meets its receive: of the same round, peer, block, tokens and class, and with no more tokens than a
 *      unit of its class. No rank sends twice, or receives twice, in a round of one fabric. On a rail-optimised network
 *      all transfers between nodes, except the reshuffle, stay on their rail (E602, E603).
 *   3. No slot is overwritten while it is still to be read. Slots and bytes are as many as the summary says, and within
 *      the cap (E604, E605).
 *   4. Partial results and whole ones. (A block is WHOLE if none of its tiles runs at its home: plan/records.h.)
 *      a. At each rank the visits and MERGEs of a Q block form one chain of state, which ends in LAST, in a send, or in
 *         FINISH. Every received partial result is added to another slot once, in order (E606).
 *      b. The result of a block is made once: by its home or, for a block that is WHOLE, by one other rank. All partial
 *         results reach that rank: one that missed it could only be sent on for ever (a), but there are only so many
 *         rounds.
 *      c. The home of a WHOLE block gets each token of its result once, as O. A block whose tiles all run at one other
 *         rank is WHOLE.
 *      d. The same holds of dQ: it is added up in the home slot or, for a WHOLE block, comes from one ROUND, and as DQW
 *         (b to d: E612).
 *   5. There is no deadlock (E607). The two queues of each rank are run alone, assuming that each launch completes once
 *      it has started. A cycle of waits between the two queues would be a deadlock. If there is none, launches do
 *      complete, by induction over rounds:
 *        - Every rank launches its rounds in increasing order (E611). So what the launch of round g needs in order to
 *          start lies earlier on that rank's queues, and the launches among it are of rounds below g, which complete.
 *        - So all ranks start their shares of round g. Every send has its receive in the same round (2), and a launch
 *          completes once its partners have started.
 *   6. There are as many INDEPENDENT rounds as Delta on each fabric: the most units of KV and Q in them that one rank
 *      sends, or receives; all are from home slots. There are as many DEPENDENT rounds as the Deltas of their stages
 *      add up to, and likewise IN and OUT rounds (E608).
 *   7. No transfer is in vain: what is received is read, added, or sent on as a whole (E602; a result: E612). A rank
 *      that sends a block on has the block (E601).
 *   8. The reshuffle moves every unit of every bundle in and out exactly once, and with them every token for each range
 *      of heads (E610). Queues, stages, rounds and `buffers` are in order (E611). Every figure of the summary follows
 *      from the tables (E609).
 *   9. Where rounds say that work moves in two halves, the second begins at one stage, with arrivals, and each
 *      rank gets all units of a block in one half (E613).
 *  10. The slope of a score is its derivative (E614).
 *  11. A scan gives each stretch the state that enters it (E616), and a halo each stretch the rows around it (E617);
 *      networks.c says what else is proven of layers that recur.
 *
 * Not proven here: every (token, head) has one home, and a tile's Q is of the heads of its KV (fcp_plan_check proves
 * both); and tiles have the pairs of the mask (the compiler's analysis decides it, and runtime/pairs proves it).
 *
 * The first error found is reported, in this order:
 *   1. tiles and visits;
 *   2. for each pass: the launches; each rank's queues and reshuffle; then Delta and memory, which other damage
 *      disturbs, too;
 *   3. the halves, the score, the layers that recur, and the summary.
 *
 * Files:    passes.c goes through both passes, in two threads if the plan is large. computed_once.c proves that each
 *           tile is computed once (1); match.c proves 2 and 6; rank.c 5, with held.h (1, 3, 7), partial.h (3, 4a) and
 *           check_compute.c (1, 4); check_layout.c 8; check_halves.c 9; check_slope.c 10; networks.c, check_scan.c and
 *           check_halo.c 11; fail.c words errors.
 * Cost:     linear in the plan (a file that may have to sort says so): one pass over the tiles, and for each pass of
 *           the plan two over the transfers. Memory is linear in blocks, visits and transfers.
 */
#include "runtime/plan/bytes.h"
#include "runtime/verify/verify.h"
#include "runtime/verify/networks.h"
#include "runtime/verify/verify_parts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/saturate.h"
#include "runtime/base/carve.h"
#include "runtime/plan/file.h"

typedef unsigned long long ull;

/* Which blocks are at home at which rank. */
static fcp_code index_homes(verifier *v) {
    const fcp_plan *plan = v->plan;
    uint32_t ranks = v->p->ranks, blocks = (uint32_t)plan->blocks_count;
    const fcp_carved tables[] = {
        {&v->node, ranks, sizeof *v->node},
        {&v->homes, ranks, sizeof *v->homes},
        {&v->home_first, (size_t)ranks + 1, sizeof *v->home_first},
        {&v->home_tokens[FCP_QUERIES], ranks, sizeof *v->home_tokens[FCP_QUERIES]},
        {&v->home_tokens[FCP_KEYS], ranks, sizeof *v->home_tokens[FCP_KEYS]},
        {&v->rank_pairs, ranks, sizeof *v->rank_pairs},
        {&v->home_blocks, blocks, sizeof *v->home_blocks},
        {&v->tiles_of, blocks, sizeof *v->tiles_of},
        {&v->away, blocks, sizeof *v->away},
        {&v->visit_away, (size_t)plan->visits_count + 1, sizeof *v->visit_away},
    };
    v->split = fcp_plan_split(plan);
    if (!(v->room = FCP_CARVE(tables)))
        return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a plan of %u ranks", ranks);
    for (uint32_t b = 0; b < blocks; b++) {
        const fcp_block *k = &plan->blocks[b];
        v->homes[k->home]++;
        v->any_whole |= k->flags & FCP_BLOCK_WHOLE;
        for (int side = 0; side < FCP_SIDES; side++)
            if (k->holds >> side & 1) v->home_tokens[side][k->home] += k->tokens;
    }
    v->home_first[0] = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        v->node[r] = fcp_node_of(v->p, r);
        v->home_first[r + 1] = v->home_first[r] + v->homes[r];
        for (int side = 0; side < FCP_SIDES; side++)
            if (v->home_tokens[side][r] > v->tokens_max_rank[side]) v->tokens_max_rank[side] = v->home_tokens[side][r];
    }
    for (uint32_t b = 0; b < blocks; b++) {
        const fcp_block *k = &plan->blocks[b];
        v->home_blocks[v->home_first[k->home] + k->home_slot] = b;
    }
    return FCP_OK;
}

/* The most ranks that one rank talks to, in all passes together. */
static fcp_code count_peers(const verifier *v, const verifier of[FCP_PASSES], uint64_t *out_most) {
    uint32_t *met = calloc(v->p->ranks, sizeof *met); /* per rank: the last that talked to it, + 1 */
    if (!met) return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a plan of %u ranks", v->p->ranks);
    *out_most = 0;
    for (uint32_t r = 0; r < v->p->ranks; r++) {
        uint64_t count = 0;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const verifier *w = &of[pass];
            for (uint32_t i = w->peers ? w->peer_first[r] : 0; w->peers && i < w->peer_first[r + 1]; i++) {
                count += met[w->peers[i]] != r + 1;
                met[w->peers[i]] = r + 1;
            }
        }
        if (count > *out_most) *out_most = count;
    }
    free(met);
    return FCP_OK;
}

/* --- the summary -------------------------------------------------------------------------------------------------- */

/* What was found, of which the summary speaks. */
typedef struct findings {
    const pass_facts *of[FCP_PASSES];
    uint64_t peers_max;
} findings;

/* Bytes that IN and OUT move between ranks in the forward pass. */
static uint64_t reshuffled(const verifier *v, const pass_facts *f) {
    uint64_t bytes = 0;
    for (int side = 0; side < FCP_SIDES; side++) {
        uint32_t holds = v->split ? 1u << side : FCP_HOLDS_BOTH;
        bytes = fcp_plus(bytes, fcp_times(f->in_tokens[side], fcp_held_bytes(v->p, holds, FCP_IN, FCP_FORWARD)));
        bytes = fcp_plus(bytes, fcp_times(f->out_tokens[side], fcp_held_bytes(v->p, holds, FCP_OUT, FCP_FORWARD)));
    }
    return bytes;
}

/* Bytes of the other classes that ranks send each other: all of them, those on net, and those that are of Q. */
typedef struct sent_bytes { uint64_t all, net, moved; } sent_bytes;
static sent_bytes sent(const verifier *v, const pass_facts *f, fcp_pass pass) {
    sent_bytes s = {0};
    for (int cls = 0; cls < FCP_IN; cls++) {
        const uint64_t *tokens = f->tokens[cls], of_token = fcp_class_bytes(v->p, (fcp_class)cls, pass);
        uint64_t net = fcp_times(tokens[FCP_NET], of_token);
        uint64_t all = fcp_plus(net, fcp_times(tokens[FCP_LOCAL], of_token));
        s.all = fcp_plus(s.all, all);
        s.net = fcp_plus(s.net, net);
        if (cls != FCP_KV && cls != FCP_DKV) s.moved = fcp_plus(s.moved, all);
    }
    return s;
}

/* Every figure of the summary, as it follows from the tables. */
static fcp_summary summarise(const verifier *v, const findings *is) {
    const fcp_plan *plan = v->plan;
    const pass_facts *f = is->of[FCP_FORWARD], *b = is->of[FCP_BACKWARD];
    /* pairs count once for each range of query heads, or once for each head */
    uint64_t positions = 0, heads = v->p->mask_uses & MC_USES_H ? v->p->heads
                                                                : v->p->heads / (v->p->range_kv * v->p->range_sub);
    for (uint64_t s = 0; s < plan->sequences_count; s++)
        positions = fcp_plus(positions, fcp_times(plan->sequences[s].queries, plan->sequences[s].keys));
    uint64_t pairs_max_rank = 0;
    for (uint32_t r = 0; r < v->p->ranks; r++)
        if (v->rank_pairs[r] > pairs_max_rank) pairs_max_rank = v->rank_pairs[r];
    sent_bytes ahead = sent(v, f, FCP_FORWARD), back = sent(v, b, FCP_BACKWARD);
    fcp_summary s = {
        .sequences = plan->sequences_count,
        .blocks = plan->blocks_count,
        .tiles = plan->tiles_count,
        .pairs = v->pairs,
        .positions = fcp_times(positions, heads),
        .pairs_max_rank = pairs_max_rank,
        .pairs_max_block = v->pairs_max_block,
        .tokens_max_rank = v->tokens_max_rank[FCP_QUERIES],
        .key_tokens_max_rank = v->tokens_max_rank[FCP_KEYS],
        .bytes_total = ahead.all,
        .bytes_moved = ahead.moved,
        .bytes_inter_node = ahead.net,
        .send_max = f->send_max,
        .recv_max = f->recv_max,
        .bytes_reshuffle = reshuffled(v, f),
        .rounds = f->rounds[FCP_ROUND_INDEPENDENT],
        .rounds_lower_bound = f->delta[FCP_NET] > f->delta[FCP_LOCAL] ? f->delta[FCP_NET] : f->delta[FCP_LOCAL],
        .rounds_dependent = f->rounds[FCP_ROUND_DEPENDENT],
        .rounds_bound = f->units_max,
        .rounds_reshuffle = f->rounds[FCP_ROUND_IN] + f->rounds[FCP_ROUND_OUT],
        .stages = f->stages,
        .slots_max = f->slots_max,
        .state_bytes = fcp_times(f->state_tokens, fcp_slot_bytes(v->p, FCP_STATE, FCP_FORWARD)),
        .memory_peak_bytes = f->memory_peak > b->memory_peak ? f->memory_peak : b->memory_peak,
        .backward_bytes_total = back.all,
        .backward_bytes_moved = back.moved,
        .backward_bytes_inter_node = back.net,
        .backward_rounds = b->rounds[FCP_ROUND_INDEPENDENT],
        .backward_rounds_dependent = b->rounds[FCP_ROUND_DEPENDENT],
        .backward_rounds_bound = b->units_max,
        .backward_rounds_reshuffle = b->rounds[FCP_ROUND_IN] + b->rounds[FCP_ROUND_OUT],
        .backward_stages = b->stages,
        .backward_slots_max = b->slots_max,
        .peers_max = is->peers_max,
    };
    return s;
}

/* Figures of memory come first in the list, since they have an error code of their own. */
static fcp_code check_summary(const verifier *v, const findings *of) {
#define MEMBER(name) {#name, offsetof(fcp_summary, name)}
    static const struct { const char *name; size_t offset; } figures[] = {
        MEMBER(slots_max), MEMBER(backward_slots_max), MEMBER(memory_peak_bytes), MEMBER(sequences), MEMBER(blocks),
        MEMBER(tiles), MEMBER(pairs), MEMBER(positions), MEMBER(pairs_max_rank), MEMBER(pairs_max_block),
        MEMBER(tokens_max_rank), MEMBER(key_tokens_max_rank), MEMBER(bytes_total), MEMBER(bytes_inter_node),
        MEMBER(send_max), MEMBER(recv_max), MEMBER(bytes_reshuffle), MEMBER(rounds), MEMBER(rounds_lower_bound),
        MEMBER(rounds_dependent), MEMBER(rounds_bound), MEMBER(bytes_moved),
        MEMBER(rounds_reshuffle), MEMBER(stages), MEMBER(state_bytes),
        MEMBER(backward_bytes_total), MEMBER(backward_bytes_inter_node), MEMBER(backward_rounds),
        MEMBER(backward_rounds_dependent), MEMBER(backward_rounds_reshuffle), MEMBER(backward_stages),
        MEMBER(backward_rounds_bound), MEMBER(backward_bytes_moved), MEMBER(peers_max)};
#undef MEMBER
    enum { OF_MEMORY = 3 };
    const fcp_summary found = summarise(v, of);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        uint64_t says = *(const uint64_t *)((const char *)v->plan->summary + figures[i].offset);
        uint64_t is = *(const uint64_t *)((const char *)&found + figures[i].offset);
        if (says != is)
            return fcp_fail(v->err, i < OF_MEMORY ? FCP_E_VERIFY_MEMORY : FCP_E_VERIFY_SUMMARY,
                            "the summary says %s = %llu; it is %llu", figures[i].name, (ull)says, (ull)is);
    }
    return FCP_OK;
}

/* Nothing above has looked at a transfer that no instruction names, so there must be none. */
static fcp_code check_named(const verifier *v, const verifier of[FCP_PASSES]) {
    uint64_t named = of[FCP_FORWARD].named + of[FCP_BACKWARD].named;
    if (named == v->plan->transfers_count) return FCP_OK;
    return fcp_fail(v->err, FCP_E_VERIFY_MATCH, "%llu transfers, and instructions name %llu of them",
                    (ull)v->plan->transfers_count, (ull)named);
}

static void report(const verifier *v, const findings *is, fcp_verify_report *out) {
    *out = (fcp_verify_report){.tiles = v->plan->tiles_count, .instructions = v->plan->instrs_count};
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const pass_facts *f = is->of[pass];
        out->transfers += f->sends;
        out->rounds[pass] = f->rounds[FCP_ROUND_INDEPENDENT];
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++) out->delta[pass][fabric] = f->delta[fabric];
    }
}

fcp_code fcp_plan_verify(const fcp_plan *plan, const volatile int *stop, fcp_verify_report *out_report,
                         fcp_error *err) {
    fcp_plan view = fcp_plan_view(plan);
    verifier v = {.plan = &view, .p = plan->problem, .stop = stop, .err = err};
    verifier of[FCP_PASSES] = {{.plan = NULL}, {.plan = NULL}};
    findings found = {.of = {&of[FCP_FORWARD].facts, &of[FCP_BACKWARD].facts}};
    fcp_code code = index_homes(&v);
    if (!code) code = fcp_verify_passes(&v, of);
    if (!code) code = count_peers(&v, of, &found.peers_max);
    if (!code) code = check_named(&v, of);
    bool halves = false;
    if (!code) code = fcp_verify_halves(&v, &halves);
    if (!code) code = fcp_verify_score(&v);
    if (!code) code = fcp_verify_networks(&v);
    if (!code) code = check_summary(&v, &found);
    if (!code && out_report) {
        report(&v, &found, out_report);
        out_report->halves = halves;
    }
    fcp_verify_passes_close(of);
    free(v.room);
    return code;
}
