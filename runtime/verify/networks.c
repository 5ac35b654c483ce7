/* networks.c: proves that the networks of layers that recur do what they are for.
 *
 * Requires: checked tables, of a plan whose other tables are right.
 * Proves:   for each layer and pass:
 *           1. A rank's sends and receives are in the order of their rounds. Those of a round stand together, and none
 *              receives into what another of them sends (E611).
 *           2. Every send has exactly one receive: of the same round and fabric, at the peer that it names, of the same
 *              part and just as whole; and that receive names the sender. Ranks of one node are joined by local, others
 *              by net (E602). On rail-optimised networks these messages may leave their rail, as those of the reshuffle
 *              may: where tokens lie is not chosen for them.
 *           3. In a round a rank sends at most once and receives at most once over each fabric (E603).
 *           4. Every round has a message, and `bound` is what the tables give: the most that a rank sends, or receives,
 *              over one fabric or, if that is more, the longest chain of messages that wait for each other (E608).
 *           5. What messages and steps bring about is right: check_scan.c, check_halo.c.
 *           There is no deadlock, by induction over rounds: a rank comes to its share of a round when its shares of
 *           earlier rounds are over (1), and all ranks come to a round together (2).
 *           Nothing travels in a layer whose shape is "none", and something does in others (E616). The shape says no
 *           more.
 * Method:   1. List the stretches of all ranks, and sort them by their rows of the batch.
 *           2. For each network, sort the messages by round with a counting sort, and walk over the rounds.
 *           The gradient of a halo goes the same ways back in the reverse order of rounds, so it is right if the halo
 *           is.
 * Cost:     linear in the tables and the layouts, but for the sort of stretches. Memory is linear in stretches,
 *           messages and ranks. A plan with many more stretches than steps is wrong, and refused before memory is
 *           taken.
 */
#include "runtime/verify/networks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/carve.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/layout.h"

typedef unsigned long long ull;

fcp_code fcp_verify_fail_step(const network *n, fcp_code code, uint32_t rank, uint32_t at, const char *format, ...) {
    if (!n->v->err) return code;
    char text[sizeof n->v->err->message], layer[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fcp_where where = FCP_WHERE_NONE;
    snprintf(layer, sizeof layer, "%s %u of the recurrent layers", n->layer->kind == FCP_HALO ? "halo" : "scan",
             n->number);
    where.pass = n->pass;
    where.rank = rank;
    if (rank == FCP_NOWHERE)
        return fcp_fail_at(n->v->err, code, where, "%s, %s: %s", fcp_pass_names[n->pass], layer, text);
    if (at == FCP_NONE)
        return fcp_fail_at(n->v->err, code, where, "%s, rank %u, %s: %s", fcp_pass_names[n->pass], rank, layer, text);
    const message m = {rank, at};
    const fcp_step *s = fcp_verify_step(n, &m);
    return fcp_fail_at(n->v->err, code, where, "%s, rank %u, %s, step %u (%s, round %u): %s", fcp_pass_names[n->pass],
                       rank, layer, at, fcp_step_names[s->op], s->round, text);
}

/* --- stretches ---------------------------------------------------------------------------------------------------- */

typedef struct sorted_stretch {
    uint64_t start;
    uint32_t number;
} sorted_stretch;

static int by_start(const void *a, const void *b) {
    const sorted_stretch *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Gives stretches their places, and finds where documents begin and end. */
static void place_stretches(all_stretches *all, sorted_stretch *sorted) {
    const uint32_t count = (uint32_t)all->count;
    for (uint32_t i = 0; i < count; i++) sorted[i] = (sorted_stretch){all->of[i].start, i};
    qsort(sorted, count, sizeof *sorted, by_start);
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        const uint64_t document = all->of[sorted[begin].number].document;
        for (end = begin; end < count && all->of[sorted[end].number].document == document; end++) continue;
        const fcp_stretch *first = &all->of[sorted[begin].number], *last = &all->of[sorted[end - 1].number];
        for (uint32_t i = begin; i < end; i++) {
            all->place[sorted[i].number] = i;
            all->begin[i] = begin;
            all->end[i] = end;
            all->document_start[i] = first->start;
            all->document_end[i] = last->start + last->length;
        }
    }
    uint32_t later[2] = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        all->later[0][i] = later[0] += !all->of[i].begins;
        all->later[1][i] = later[1] += !all->of[i].ends;
    }
    all->others = later[0];
}

/* A stretch that is not the first of its document gets a state in steps of its own, and has rows of a halo: a record of
 * halo_rows has rows of two stretches at most, namely those behind one and those before the next. */
static fcp_code check_count(const verifier *v, uint64_t count) {
    const fcp_plan *plan = v->plan;
    const uint64_t most = plan->documents_count + plan->steps_count + 2 * plan->halo_rows_count;
    if (count <= most && count < FCP_NONE) return FCP_OK;
    const bool halo = plan->recurrent[0].kind == FCP_HALO;
    return fcp_fail(
        v->err, halo ? FCP_E_VERIFY_HALO : FCP_E_VERIFY_SCAN,
        "the plan has %llu documents in %llu stretches or more, which is too many for %llu steps of recurrent "
        "layers",
        (ull)plan->documents_count, (ull)count, (ull)plan->steps_count);
}

static fcp_code open_stretches(const verifier *v, all_stretches *all) {
    const uint32_t ranks = v->p->ranks;
    const fcp_carved firsts[] = {{&all->first, (size_t)ranks + 1, sizeof *all->first}};
    all->room = FCP_CARVE(firsts);
    fcp_code code = FCP_OK;
    for (uint32_t r = 0; r < ranks && all->room && !code; r++) {
        all->first[r + 1] = all->count += fcp_stretches_of(v->plan, r, NULL);
        code = check_count(v, all->count);
        if (!code && r % 1024 == 0) code = fcp_verify_stopped(v);
    }
    if (code) return code;
    const size_t count = (size_t)all->count + 1;
    sorted_stretch *sorted = NULL;
    const fcp_carved tables[] = {{&all->of, count, sizeof *all->of},
                                 {&sorted, count, sizeof *sorted},
                                 {&all->place, count, sizeof *all->place},
                                 {&all->begin, count, sizeof *all->begin},
                                 {&all->end, count, sizeof *all->end},
                                 {&all->document_end, count, sizeof *all->document_end},
                                 {&all->document_start, count, sizeof *all->document_start},
                                 {&all->later[0], count, sizeof *all->later[0]},
                                 {&all->later[1], count, sizeof *all->later[1]}};
    if (all->room) all->more_room = FCP_CARVE(tables);
    if (!all->more_room) return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify recurrent layers");
    for (uint32_t r = 0; r < ranks; r++) fcp_stretches_of(v->plan, r, all->of + all->first[r]);
    place_stretches(all, sorted);
    return FCP_OK;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static bool moves(const fcp_step *s) { return s->op == FCP_STEP_SEND || s->op == FCP_STEP_RECV; }

/* The messages of a network, by round; those of a round by rank. */
typedef struct messages {
    message *all;
    uint64_t count, sends;
    uint64_t *round; /* rounds + 1: where each begins */
    uint32_t degree; /* the most that a rank sends, or receives, over a fabric */
    struct lane {
        uint32_t round; /* + 1, in which the rank used it last */
        uint64_t message;
    } * lanes; /* [(rank * FCP_FABRICS + fabric) * 2 + whether it receives] */
    void *room;
} messages;

static struct lane *lane_of(const messages *all, uint32_t rank, const fcp_step *s, bool receives) {
    return &all->lanes[((size_t)rank * FCP_FABRICS + s->fabric) * 2 + receives];
}

/* Checks the order of a rank's steps, and counts its messages by round. */
static fcp_code count_rank(const network *n, uint32_t rank, messages *all) {
    const fcp_step *steps = n->v->plan->steps + n->stream[rank].first, *last = NULL;
    uint32_t degree[FCP_FABRICS][2] = {{0}};
    for (uint32_t i = 0; i < n->stream[rank].count; i++) {
        const fcp_step *s = &steps[i];
        if (!moves(s)) continue;
        if (last && (s->round < last->round || (s->round == last->round && last != s - 1)))
            return fcp_verify_fail_step(n, FCP_E_VERIFY_ORDER, rank, i, "step %u is of round %u",
                                        (uint32_t)(last - steps), last->round);
        last = s;
        all->round[s->round + 1]++;
        uint32_t *used = &degree[s->fabric][s->op == FCP_STEP_RECV];
        if (++*used > all->degree) all->degree = *used;
        all->sends += s->op == FCP_STEP_SEND;
    }
    return FCP_OK;
}

static fcp_code list_messages(const network *n, messages *all) {
    const fcp_plan *plan = n->v->plan;
    const uint32_t rounds = n->layer->rounds[n->pass], ranks = n->v->p->ranks;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < n->stream[r].count; i++) all->count += moves(&plan->steps[n->stream[r].first + i]);
    uint64_t *next = NULL;
    const fcp_carved tables[] = {{&all->all, (size_t)all->count + 1, sizeof *all->all},
                                 {&all->round, (size_t)rounds + 2, sizeof *all->round},
                                 {&next, (size_t)rounds + 1, sizeof *next},
                                 {&all->lanes, (size_t)ranks * FCP_FABRICS * 2, sizeof *all->lanes}};
    if (!(all->room = FCP_CARVE(tables)))
        return fcp_fail(n->v->err, FCP_E_NO_MEMORY, "out of memory to verify %llu messages", (ull)all->count);
    for (uint32_t r = 0; r < ranks; r++) {
        fcp_code code = count_rank(n, r, all);
        if (code) return code;
    }
    for (uint32_t g = 0; g < rounds; g++) {
        if (!all->round[g + 1])
            return fcp_verify_fail_step(n, FCP_E_VERIFY_DELTA, FCP_NOWHERE, FCP_NONE, "nothing moves in round %u of %u",
                                        g, rounds);
        next[g] = all->round[g];
        all->round[g + 1] += all->round[g];
    }
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < n->stream[r].count; i++) {
            const fcp_step *s = &plan->steps[n->stream[r].first + i];
            if (moves(s)) all->all[next[s->round]++] = (message){r, i};
        }
    return FCP_OK;
}

/* Notes that a rank uses a lane in this round. */
static fcp_code use_lane(const network *n, const messages *all, uint64_t number) {
    const message *m = &all->all[number];
    const fcp_step *s = fcp_verify_step(n, m);
    const bool receives = s->op == FCP_STEP_RECV;
    struct lane *lane = lane_of(all, m->rank, s, receives);
    if (s->peer == m->rank)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_MATCH, m->rank, m->at, "it names the rank itself");
    if (s->fabric != (n->v->node[s->peer] == n->v->node[m->rank] ? FCP_LOCAL : FCP_NET))
        return fcp_verify_fail_step(n, FCP_E_VERIFY_MATCH, m->rank, m->at, "ranks %u and %u are not joined by %s",
                                    m->rank, s->peer, fcp_fabric_names[s->fabric]);
    if (lane->round == s->round + 1)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_ROUND, m->rank, m->at,
                                    "the rank has %s already over %s in this round", receives ? "received" : "sent",
                                    fcp_fabric_names[s->fabric]);
    *lane = (struct lane){s->round + 1, number};
    return FCP_OK;
}

/* Finds the other end of a message: every message of the round has been noted. */
static fcp_code find_other(const network *n, const messages *all, uint64_t number, uint64_t *out) {
    const message *m = &all->all[number];
    const fcp_step *s = fcp_verify_step(n, m);
    const bool receives = s->op == FCP_STEP_RECV;
    const struct lane *lane = lane_of(all, s->peer, s, !receives);
    const fcp_step *other = lane->round == s->round + 1 ? fcp_verify_step(n, &all->all[lane->message]) : NULL;
    if (!other || other->peer != m->rank)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_MATCH, m->rank, m->at, "rank %u does not %s it in this round",
                                    s->peer, receives ? "send" : "receive");
    if (other->part != s->part || other->whole != s->whole)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_MATCH, m->rank, m->at, "part %u, %s; at rank %u part %u, %s",
                                    s->part, s->whole ? "whole" : "a state", s->peer, other->part,
                                    other->whole ? "whole" : "a state");
    *out = lane->message;
    return FCP_OK;
}

/* A scan: nothing is received into what the rank sends in the same round. `number` receives; the messages of the rank
 * in this round stand beside it. */
static fcp_code check_apart(const network *n, const messages *all, uint64_t number, uint64_t begin, uint64_t end) {
    const message *m = &all->all[number];
    const fcp_step *s = fcp_verify_step(n, m);
    const uint64_t stretches = n->all->first[m->rank + 1] - n->all->first[m->rank];
    while (number > begin && all->all[number - 1].rank == m->rank) number--;
    for (; number < end && all->all[number].rank == m->rank; number++) {
        const fcp_step *o = fcp_verify_step(n, &all->all[number]);
        if (o->op == FCP_STEP_SEND && o->a == s->out && (o->part == s->part || s->out >= 2 * stretches))
            return fcp_verify_fail_step(n, FCP_E_VERIFY_ORDER, m->rank, m->at, "register %u is sent in the same round",
                                        s->out);
    }
    return FCP_OK;
}

/* One round: messages `begin` to end - 1. */
static fcp_code walk_round(network *n, const messages *all, uint64_t begin, uint64_t end) {
    const bool scan = n->layer->kind == FCP_SCAN;
    fcp_code code = FCP_OK;
    uint64_t other;
    for (uint64_t i = begin; i < end && !code; i++) code = use_lane(n, all, i);
    for (uint64_t i = begin; i < end && !code; i++) code = find_other(n, all, i, &other);
    for (uint64_t i = begin; i < end && !code && scan; i++)
        if (fcp_verify_step(n, &all->all[i])->op == FCP_STEP_SEND) code = fcp_verify_scan_send(n, &all->all[i], i);
    for (uint64_t i = begin; i < end && !code; i++) {
        if (fcp_verify_step(n, &all->all[i])->op == FCP_STEP_SEND) continue;
        code = find_other(n, all, i, &other);
        if (!code && scan) code = check_apart(n, all, i, begin, end);
        if (!code)
            code = scan ? fcp_verify_scan_receive(n, &all->all[i], other)
                        : fcp_verify_halo_moved(n, &all->all[other], &all->all[i]);
    }
    return code ? code : fcp_verify_stopped(n->v);
}

static fcp_code walk(network *n, messages *all) {
    const bool scan = n->layer->kind == FCP_SCAN;
    const uint32_t rounds = n->layer->rounds[n->pass];
    uint32_t depth = all->count > 0;
    fcp_code code = scan ? fcp_verify_scan_open(n, all->count) : fcp_verify_halo_open(n);
    for (uint32_t g = 0; g < rounds && !code; g++) code = walk_round(n, all, all->round[g], all->round[g + 1]);
    if (!code) code = scan ? fcp_verify_scan_end(n, &depth) : fcp_verify_halo_end(n);
    fcp_verify_scan_close(n);
    fcp_verify_halo_close(n);
    const uint32_t bound = depth > all->degree ? depth : all->degree;
    if (!code && n->layer->bound[n->pass] != bound)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_DELTA, FCP_NOWHERE, FCP_NONE,
                                    "the plan says that %u rounds are needed; "
                                    "they are %u",
                                    n->layer->bound[n->pass], bound);
    return code;
}

static fcp_code check_network(const verifier *v, const all_stretches *stretches, uint32_t layer, fcp_pass pass,
                              uint64_t *sends) {
    const fcp_plan *plan = v->plan;
    network n = {.v = v,
                 .all = stretches,
                 .layer = &plan->recurrent[layer],
                 .number = layer,
                 .pass = pass,
                 .stream = &plan->step_streams[((uint64_t)layer * FCP_PASSES + pass) * v->p->ranks]};
    for (uint32_t r = 0; r < v->p->ranks; r++) n.steps += n.stream[r].count;
    messages all = {.all = NULL};
    fcp_code code = list_messages(&n, &all);
    if (!code) code = walk(&n, &all);
    free(all.room);
    *sends += all.sends;
    return code;
}

static fcp_code check_layer(const verifier *v, const all_stretches *stretches, uint32_t layer) {
    const fcp_recurrent *x = &v->plan->recurrent[layer];
    uint64_t sends = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(v->p->passes >> pass & 1) || (x->kind == FCP_HALO && pass == FCP_BACKWARD)) continue;
        fcp_code code = check_network(v, stretches, layer, (fcp_pass)pass, &sends);
        if (code) return code;
    }
    if (x->kind == FCP_SCAN && (x->shape == FCP_SCAN_NONE) != !sends)
        return fcp_fail(v->err, FCP_E_VERIFY_SCAN,
                        "scan %u of the recurrent layers has the shape %s, and %llu messages", layer,
                        fcp_scan_shape_names[x->shape], (ull)sends);
    return FCP_OK;
}

fcp_code fcp_verify_networks(const verifier *v) {
    all_stretches all = {.count = 0};
    if (!v->plan->recurrent_count) return FCP_OK;
    fcp_code code = open_stretches(v, &all);
    for (uint32_t layer = 0; layer < v->plan->recurrent_count && !code; layer++) code = check_layer(v, &all, layer);
    free(all.more_room);
    free(all.room);
    return code;
}
