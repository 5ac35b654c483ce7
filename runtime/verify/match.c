/* match.c: checks that the launches of all ranks fit together.
 *
 * Requires: checked tables.
 * Proves:   - Along each communication queue rounds strictly increase and stages never decrease.
 *           - In a round a rank sends at most once and receives at most once over each fabric.
 *           - Every send has exactly one receive, of the same round, fabric, block, tokens and class, at the peer that
 *             it names, and that receive names the sender. The reverse holds, too.
 *           - On a rail-optimised network, transfers between nodes join ranks of the same index in their nodes. IN and
 *             OUT are exempt, because the plan does not choose where the caller holds tokens.
 *           - No round is idle: a group of rounds has no more rounds than it needs. Delta of a group on a fabric is the
 *             most units that one rank sends, or that one rank receives, over that fabric in these rounds. The groups:
 *               the INDEPENDENT rounds of a pass             on each fabric as many rounds as Delta there
 *               the IN rounds; the DEPENDENT ones of a       as many rounds as the larger Delta of the two fabrics
 *               stage; the OUT ones of a stage
 * Method:   1. List all sends and receives, rank by rank.
 *           2. Put each send into the inbox of the rank that it names, by a counting sort.
 *           3. For each rank, index its receives by (round, fabric), and compare them with its inbox.
 *           The tables are read once, in order.
 * Cost:     linear in communication instructions, transfers and rounds; 28 bytes for each send, and 4 bytes for each
 *           pair of ranks that communicate.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/saturate.h"
#include "runtime/base/carve.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"
#include "runtime/verify/verify_parts.h"

/* A send or a receive: the index of its transfer in the plan's table in the low 32 bits, and its key above. The key
 * is round * FCP_FABRICS + fabric; check.c limits rounds so that it fits. */
typedef uint64_t side;
static inline uint32_t transfer_of(side s) { return (uint32_t)s; }
static inline uint32_t key_of(side s) { return (uint32_t)(s >> 32); }
/* A send, in its receiver's inbox. */
typedef struct delivery {
    uint32_t transfer, key, sender;
} delivery;

typedef struct match {
    verifier *v;
    const fcp_round *rounds;
    uint32_t round_count;
    /* The group of rounds that shares one bound: 0 is IN, 1 is INDEPENDENT, then one for DEPENDENT and one for OUT
     * of each stage. */
    struct round_info {
        uint32_t group, kind, stage;
    } *info;                /* per round */
    uint32_t *group_round;  /* per group: its first round */
    uint32_t *group_rounds; /* per group: how many rounds it has */
    uint32_t groups;
    uint32_t *delta;        /* [group][fabric] */
    uint32_t *degree;       /* [group][fabric][dir]: units of the rank that is looked at */
    uint32_t *touched;      /* the groups that this rank has units in */
    uint8_t *seen;          /* per group: it is in touched */
    uint32_t touched_count;
    /* sides[0, send_count) are sends, by rank; sides[side_count - recv_count, side_count) receives, backwards */
    side *sides;
    size_t side_count, send_count, recv_count;
    size_t *send_first, *recv_first; /* per rank, + 1: how many sends, receives come before */
    uint32_t *inbox;        /* ranks + 1, into delivered */
    delivery *delivered;    /* sends, by receiver */
    struct way_rules {
        uint32_t unit;           /* tokens */
        uint8_t kinds;           /* of rounds, as bits */
        uint8_t lane;            /* fabric * 2 + dir */
        bool fetched;            /* it is KV or Q */
    } rules[FCP_WAYS];           /* by fcp_way_of */
    uint64_t bytes[FCP_CLASSES]; /* of a token */
    uint32_t *receive;      /* by key: this rank's receive (index in sides), MET, or NONE */
    uint32_t *met;          /* per rank: the last rank that talked to it, + 1 */
} match;

enum { NONE = 0 }; /* sides has one to spare, so no receive has index 0 */
#define MET UINT32_MAX

/* Sorts rounds into groups, and checks the order of their stages. */
static fcp_code group_rounds(match *m) {
    verifier *v = m->v;
    uint32_t last[2] = {0, 0}; /* the newest group of DEPENDENT rounds, and of OUT rounds */
    m->groups = 2;
    for (uint32_t i = 0; i < m->round_count; i++) {
        const fcp_round *r = &m->rounds[i];
        if (i && r->stage < r[-1].stage)
            return fcp_fail(v->err, FCP_E_VERIFY_ORDER, "%s: round %u is of stage %u, after one of stage %u",
                            fcp_pass_names[v->pass], i, r->stage, r[-1].stage);
        uint32_t g = r->kind; /* IN: 0, independent: 1 */
        if (r->kind == FCP_ROUND_DEPENDENT || r->kind == FCP_ROUND_OUT) {
            uint32_t *newest = &last[r->kind == FCP_ROUND_OUT];
            if (!*newest || m->rounds[m->group_round[*newest]].stage != r->stage) {
                *newest = m->groups++;
                m->group_round[*newest] = i;
            }
            g = *newest;
        } else if (!m->group_rounds[g]) {
            m->group_round[g] = i;
        }
        m->info[i] = (struct round_info){g, r->kind, r->stage};
        m->group_rounds[g]++;
        v->facts.rounds[r->kind]++;
        v->facts.last_stage = r->stage;
        if (r->kind == FCP_ROUND_IN && r->stage)
            return fcp_fail(v->err, FCP_E_VERIFY_ORDER, "%s: round %u brings tokens in at stage %u",
                            fcp_pass_names[v->pass], i, r->stage);
        if ((r->kind == FCP_ROUND_INDEPENDENT || r->kind == FCP_ROUND_DEPENDENT) &&
            r->stage >= v->facts.stages)
            v->facts.stages = (uint64_t)r->stage + 1;
    }
    return FCP_OK;
}

/* The kinds of rounds that a class may be in, as bits, in each pass. */
#define KIND(name) 1u << FCP_ROUND_##name
static const uint8_t class_kinds[FCP_PASSES][FCP_CLASSES] = {
    [FCP_FORWARD] = {[FCP_KV] = KIND(INDEPENDENT) | KIND(DEPENDENT), [FCP_Q] = KIND(INDEPENDENT) | KIND(DEPENDENT),
                     [FCP_STATE] = KIND(DEPENDENT), [FCP_O] = KIND(DEPENDENT),
                     [FCP_IN] = KIND(IN), [FCP_OUT] = KIND(OUT)},
    [FCP_BACKWARD] = {[FCP_KV] = KIND(INDEPENDENT) | KIND(DEPENDENT), [FCP_Q] = KIND(INDEPENDENT) | KIND(DEPENDENT),
                      [FCP_DKV] = KIND(DEPENDENT), [FCP_DQ] = KIND(DEPENDENT), [FCP_DQW] = KIND(DEPENDENT),
                      [FCP_IN] = KIND(IN), [FCP_OUT] = KIND(OUT)}};
#undef KIND
static bool is_fetched(uint32_t cls) { return cls == FCP_KV || cls == FCP_Q; }

/* May a round of this kind hold this transfer? Says why not; `acceptable` decides the same without words. */
static fcp_code check_transfer(const match *m, uint32_t rank, uint32_t index, const fcp_instr *x,
                               const fcp_transfer *t) {
    verifier *v = m->v;
    uint32_t kind = m->rounds[x->c].kind, id = (uint32_t)(t - v->plan->transfers);
    uint32_t unit = m->rules[fcp_way_of(t)].unit;
    const char *what = fcp_class_texts[t->cls];
    if (t->peer == rank) return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                                                "transfer %u names the rank itself", id);
    if (t->fabric != (v->node[t->peer] == v->node[rank] ? FCP_LOCAL : FCP_NET))
        return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                               "transfer %u: ranks %u and %u are not joined by %s", id, rank,
                               t->peer, fcp_fabric_names[t->fabric]);
    if (t->tokens > unit)
        return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                               "transfer %u has %u tokens, more than a unit of %u", id, t->tokens, unit);
    if (t->cls == FCP_IN || t->cls == FCP_OUT) { /* check_layout.c says the rest */
        if (kind == (t->cls == FCP_IN ? FCP_ROUND_IN : FCP_ROUND_OUT)) return FCP_OK;
        return fcp_verify_fail(v, FCP_E_VERIFY_ORDER, rank, FCP_COMM, index,
                               "transfer %u, of class %s, is in a round of kind %s", id, fcp_class_names[t->cls],
                               fcp_round_names[kind]);
    }
    if (t->fabric == FCP_NET && v->p->topology == FCP_RAIL && t->peer % v->p->gpus != rank % v->p->gpus)
        return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                               "transfer %u, %s of block %u: ranks %u and %u are not on one rail", id, what, t->block,
                               rank, t->peer);
    const fcp_block *k = &v->plan->blocks[t->block];
    if (!class_kinds[v->pass][t->cls])
        return fcp_verify_fail(v, FCP_E_VERIFY_ORDER, rank, FCP_COMM, index,
                               "transfer %u carries %s of block %u in the %s pass", id, what, t->block,
                               fcp_pass_names[v->pass]);
    if (!(class_kinds[v->pass][t->cls] >> kind & 1))
        return fcp_verify_fail(v, FCP_E_VERIFY_DELTA, rank, FCP_COMM, index,
                               "transfer %u, %s of block %u, is in a round of kind %s", id, what, t->block,
                               fcp_round_names[kind]);
    if (is_fetched(t->cls) && t->dir == FCP_SEND && t->slot >= v->homes[rank] && kind != FCP_ROUND_DEPENDENT)
        return fcp_verify_fail(v, FCP_E_VERIFY_DELTA, rank, FCP_COMM, index,
                               "transfer %u sends %s block %u from slot %u, one of those received into, in a round of "
                               "kind %s", id, what, t->block, t->slot, fcp_round_names[kind]);
    if (t->first % unit || (t->tokens != unit && t->first + t->tokens != k->tokens))
        return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                               "transfer %u: tokens %u to %u of block %u, which has %u, are not a unit of %u", id,
                               t->first, t->first + t->tokens, t->block, k->tokens, unit);
    return fcp_verify_fail(v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, index,
                           "transfer %u receives %s block %u, whose home is here", id, what, t->block);
}

static void finish_degrees(match *m) {
    for (uint32_t i = 0; i < m->touched_count; i++) {
        uint32_t g = m->touched[i];
        m->seen[g] = 0;
        for (int f = 0; f < FCP_FABRICS; f++) {
            uint32_t *d = &m->degree[((size_t)g * FCP_FABRICS + f) * 2], most = d[0] > d[1] ? d[0] : d[1];
            if (most > m->delta[g * FCP_FABRICS + f]) m->delta[g * FCP_FABRICS + f] = most;
            d[0] = d[1] = 0;
        }
    }
    m->touched_count = 0;
}

/* What the loop of scan_rank asks about the rank that is looked at, so that it can be kept in registers. */
typedef struct scene {
    const fcp_block *blocks;
    const uint32_t *node;
    uint32_t rank, my_node, homes;
    uint32_t rails; /* GPUs of a node, each on a rail of its own; 0: there are no rails */
} scene;

/* Returns whether a transfer meets the conditions of check_transfer, which words the error if it does not. Conditions
 * that hold in every correct plan are branches, which are predicted well. Sends and receives come in random order, so
 * conditions that differ between them are computed without branches. */
static inline bool acceptable(const scene *c, const struct way_rules *is, uint32_t kind, const fcp_transfer *t) {
    _Static_assert(FCP_NET == 0 && FCP_LOCAL == 1 && FCP_SEND == 0 && FCP_RECV == 1, "used here");
    const uint32_t unit = is->unit, tokens = t->tokens, near = c->node[t->peer] == c->my_node;
    if (t->peer == c->rank || is->lane >> 1 != near || tokens > unit || !(is->kinds >> kind & 1)) return false;
    if (is->kinds & (1u << FCP_ROUND_IN | 1u << FCP_ROUND_OUT)) return true; /* it is IN or OUT */
    if (c->rails && !near && t->peer % c->rails != c->rank % c->rails) return false;
    const fcp_block *k = &c->blocks[t->block];
    if ((tokens != unit) & (t->first + tokens != k->tokens)) return false;
    if (t->first && t->first % unit) return false;
    const uint32_t here = k->home == c->rank, passed_on = (t->slot >= c->homes) & (kind != FCP_ROUND_DEPENDENT);
    const uint32_t wrong = passed_on ^ ((passed_on ^ here) & -(uint32_t)(is->lane & 1)); /* receives: here */
    return !(wrong & is->fetched);
}

/* What a rank moved one way. IN and OUT of blocks that hold KV alone count as if they were two classes more. */
typedef struct moved {
    uint64_t tokens;
    uint32_t count;
} moved;
enum { IN_ALONE = FCP_CLASSES, LANES = FCP_FABRICS * FCP_DIRECTION_COUNT };
_Static_assert(FCP_OUT == FCP_IN + 1 && FCP_CLASSES + 2 <= 16, "so are those of KV alone");

static inline const moved *moved_of(const moved *by_way, int cls, int fabric, int dir) {
    return &by_way[cls | fabric << 4 | dir << 6];
}

/* Adds what a rank moved to the facts. */
static void count_moves(match *m, uint32_t rank, const moved *by_way) {
    verifier *v = m->v;
    pass_facts *facts = &v->facts;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t units = 0;
        for (int cls = 0; cls < FCP_IN; cls++) units += moved_of(by_way, cls, lane >> 1, lane & 1)->count;
        if (units > facts->units_max) facts->units_max = units;
    }
    for (int dir = 0; dir < FCP_DIRECTION_COUNT; dir++) {
        uint64_t *most = dir == FCP_SEND ? &facts->send_max : &facts->recv_max, sum = 0;
        for (int cls = 0; cls < FCP_CLASSES; cls++) {
            const moved *net = moved_of(by_way, cls, FCP_NET, dir), *local = moved_of(by_way, cls, FCP_LOCAL, dir);
            uint32_t n = net->count + local->count;
            if (!n) continue; /* as of most classes in most plans */
            v->moves[rank].count[cls][dir] = n;
            facts->moves[cls] += n;
            if (cls == FCP_IN || cls == FCP_OUT) continue;
            sum = fcp_plus(sum, fcp_times(net->tokens + local->tokens, m->bytes[cls]));
            if (dir != FCP_SEND) continue;
            facts->tokens[cls][FCP_NET] += net->tokens;
            facts->tokens[cls][FCP_LOCAL] += local->tokens;
        }
        if (sum > *most) *most = sum;
    }
    for (int i = 0; i < FCP_SIDES; i++) /* blocks that hold both count with queries */
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
            const int in = i == FCP_KEYS ? IN_ALONE : FCP_IN;
            facts->in_tokens[i] += moved_of(by_way, in, fabric, FCP_SEND)->tokens;
            facts->out_tokens[i] += moved_of(by_way, in + 1, fabric, FCP_SEND)->tokens;
        }
}

/* Reads one rank's communication queue: checks its order, and that it sends and receives at most once in a round and
 * fabric. Counts units and tokens, and lists sends and receives. */
static fcp_code scan_rank(match *m, uint32_t rank) {
    verifier *v = m->v;
    const fcp_plan *plan = v->plan;
    const fcp_stream *stream = fcp_stream_of(plan, v->pass, rank, FCP_COMM);
    const fcp_instr *instrs = plan->instrs + stream->first;
    const fcp_transfer *transfers = plan->transfers;
    const scene c = {plan->blocks, v->node, rank, v->node[rank], v->homes[rank],
                     v->p->topology == FCP_RAIL ? v->p->gpus : 0};
    moved by_way[FCP_WAYS] = {{0}};
    uint32_t next_round = 0, stage = 0, *inbox = m->inbox;
    side *sends = m->sides + m->send_count, *recvs = m->sides + m->side_count - m->recv_count;
    uint32_t *met = m->met, *peers = v->peers + v->peer_first[rank];
    for (uint32_t i = 0, n = stream->count; i < n; i++) {
        const fcp_instr *x = &instrs[i];
        uint32_t op = x->op, now = x->stage, round = x->c;
        if (op != FCP_OP_WAIT && op != FCP_OP_LAUNCH)
            return fcp_verify_fail(v, FCP_E_VERIFY_ORDER, rank, FCP_COMM, i, "not an instruction of this queue");
        if (now < stage)
            return fcp_verify_fail(v, FCP_E_VERIFY_ORDER, rank, FCP_COMM, i, "comes after one of stage %u", stage);
        stage = now;
        if (op == FCP_OP_WAIT) continue;
        const struct round_info *info = &m->info[round];
        if (round < next_round || info->stage != stage)
            return fcp_verify_fail(v, FCP_E_VERIFY_ORDER, rank, FCP_COMM, i,
                                   "launches round %u, of stage %u, where round %u is the first that may come", round,
                                   info->stage, next_round);
        next_round = round + 1;
        uint32_t g = info->group, kind = info->kind, *degree = m->degree + 4 * (size_t)g;
        if (!m->seen[g]) {
            m->seen[g] = 1;
            m->touched[m->touched_count++] = g;
        }
        unsigned busy = 0;
        for (const fcp_transfer *t = transfers + x->a, *end = t + x->b; t < end; t++) {
            prefetch_block(plan, t);
            const uint32_t way = fcp_way_of(t), lane = m->rules[way].lane, dir = lane & 1, bit = 1u << lane;
            if (!acceptable(&c, &m->rules[way], kind, t)) return check_transfer(m, rank, i, x, t);
            if (busy & bit)
                return fcp_verify_fail(v, FCP_E_VERIFY_ROUND, rank, FCP_COMM, i, "%s twice on %s in round %u",
                                       dir == FCP_SEND ? "sends" : "receives", fcp_fabric_names[t->fabric], round);
            busy |= bit;
            degree[lane]++;
            moved *here = &by_way[way + (t->block == FCP_NONE ? 2 * t->side : 0)]; /* a bundle names a side */
            here->tokens += t->tokens;
            here->count++;
            /* written to both lists, only the one whose end moves keeps it */
            *sends = recvs[-1] = (side)(round * FCP_FABRICS + (lane >> 1)) << 32 | (uint32_t)(t - transfers);
            sends += dir ^ 1;
            recvs -= dir;
            inbox[t->peer + 1] += dir ^ 1;
            *peers = t->peer; /* likewise */
            peers += met[t->peer] != rank + 1;
            met[t->peer] = rank + 1;
        }
    }
    v->peer_first[rank + 1] = (uint32_t)(peers - v->peers);
    m->send_first[rank + 1] = m->send_count = (size_t)(sends - m->sides);
    m->recv_first[rank + 1] = m->recv_count = (size_t)(m->sides + m->side_count - recvs);
    finish_degrees(m);

    count_moves(m, rank, by_way);
    return FCP_OK;
}

/* Puts every send into its receiver's inbox, by a counting sort. */
static void deliver(match *m) {
    const fcp_transfer *transfers = m->v->plan->transfers;
    uint32_t ranks = m->v->p->ranks;
    for (uint32_t r = 0; r < ranks; r++) m->inbox[r + 1] += m->inbox[r];
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (const side *s = m->sides + m->send_first[rank], *end = m->sides + m->send_first[rank + 1]; s < end; s++)
            m->delivered[m->inbox[transfers[transfer_of(*s)].peer]++] = (delivery){transfer_of(*s), key_of(*s), rank};
    memmove(m->inbox + 1, m->inbox, ranks * sizeof *m->inbox); /* the end of one is the beginning of the next */
    m->inbox[0] = 0;
}

/* The instruction by which a rank launches a round, for an error. */
static uint32_t launch_of(const match *m, uint32_t rank, uint32_t round) {
    const fcp_stream *s = fcp_stream_of(m->v->plan, m->v->pass, rank, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &m->v->plan->instrs[s->first + i];
        if (x->op == FCP_OP_LAUNCH && x->c == round) return i;
    }
    return s->count;
}

/* "KV of block 7, tokens 0 to 128" */
static void word_side(const fcp_transfer *t, char text[100]) {
    char what[40];
    if (t->cls >= FCP_IN) snprintf(what, sizeof what, "a bundle (side %u)", t->side);
    else snprintf(what, sizeof what, "block %u", t->block);
    snprintf(text, 100, "%s of %s, tokens %u to %u", fcp_class_texts[t->cls], what, t->first, t->first + t->tokens);
}

static fcp_code mismatch(const match *m, uint32_t rank, const delivery *sent, const side *received) {
    const delivery *s = sent;
    const side *r = received;
    const fcp_transfer *transfers = m->v->plan->transfers, *t = r ? &transfers[transfer_of(*r)] : NULL;
    uint32_t key = s ? s->key : key_of(*r), round = key / FCP_FABRICS, from = s ? s->sender : t->peer;
    const char *fabric = fcp_fabric_names[key % FCP_FABRICS];
    char out[100] = "", in[100] = "";
    if (s) word_side(&transfers[s->transfer], out);
    if (r) word_side(t, in);
    if (!s)
        return fcp_verify_fail(m->v, FCP_E_VERIFY_MATCH, rank, FCP_COMM, launch_of(m, rank, round),
                               "receives %s, from rank %u in round %u on %s, which does not send it", in, from, round,
                               fabric);
    if (!r)
        return fcp_verify_fail(m->v, FCP_E_VERIFY_MATCH, from, FCP_COMM, launch_of(m, from, round),
                               "sends %s, to rank %u in round %u on %s, which has no receive for it", out, rank, round,
                               fabric);
    return fcp_verify_fail(m->v, FCP_E_VERIFY_MATCH, from, FCP_COMM, launch_of(m, from, round),
                           "sends %s, to rank %u in round %u on %s, which receives %s, from rank %u", out, rank, round,
                           fabric, in, t->peer);
}

/* Returns whether the two ends of a transfer agree on what moves. For a bundle they name the side, too. */
static inline bool is_same(const fcp_transfer *a, const fcp_transfer *b) {
    uint32_t of = (a->side ^ b->side) & -(uint32_t)(a->cls >= FCP_IN);
    return !((a->block ^ b->block) | (a->first ^ b->first) | (a->tokens ^ b->tokens) | (a->cls ^ b->cls) | of);
}

/* Holds a rank's receives against its inbox. */
static fcp_code meet(match *m, uint32_t rank) {
    enum { AHEAD = 8 }; /* sends come from all over the table: fetch them early */
    const fcp_transfer *transfers = m->v->plan->transfers;
    size_t begin = m->side_count - m->recv_first[rank + 1], end = m->side_count - m->recv_first[rank];
    uint32_t *receive = m->receive;
    for (size_t i = begin; i < end; i++) receive[key_of(m->sides[i])] = (uint32_t)i;
    for (uint32_t j = m->inbox[rank], last = m->inbox[rank + 1]; j < last; j++) {
        const delivery *s = &m->delivered[j];
        if (j + AHEAD < last) __builtin_prefetch(&transfers[s[AHEAD].transfer]);
        size_t i = receive[s->key];
        if (i - begin >= end - begin) return mismatch(m, rank, s, NULL); /* NONE, or left from an earlier rank */
        const fcp_transfer *t = &transfers[transfer_of(m->sides[i])];
        if (!is_same(&transfers[s->transfer], t) | (t->peer != s->sender))
            return mismatch(m, rank, s, &m->sides[i]);
        receive[s->key] = MET;
    }
    if (m->inbox[rank + 1] - m->inbox[rank] == end - begin) return FCP_OK;
    for (size_t i = end; i-- > begin;) /* they are listed backwards: this is the order of the queue */
        if (receive[key_of(m->sides[i])] == i) return mismatch(m, rank, NULL, &m->sides[i]);
    return FCP_OK; /* not reached: if fewer sends than receives came, a receive has not met one */
}

static void check_delta(match *m) {
    verifier *v = m->v;
    for (int f = 0; f < FCP_FABRICS; f++) {
        uint64_t colours = 0, delta = m->delta[FCP_ROUND_INDEPENDENT * FCP_FABRICS + f];
        for (uint32_t i = 0; i < m->round_count; i++)
            colours += m->rounds[i].kind == FCP_ROUND_INDEPENDENT && m->receive[i * FCP_FABRICS + f] != NONE;
        v->facts.delta[f] = delta;
        if (colours != delta && !v->late.code)
            fcp_fail(&v->late, FCP_E_VERIFY_DELTA, "%s: independent units take %llu rounds on %s, and Delta is %llu",
                     fcp_pass_names[v->pass], (unsigned long long)colours, fcp_fabric_names[f],
                     (unsigned long long)delta);
    }
    for (uint32_t g = 0; g < m->groups; g++) {
        const uint32_t *d = &m->delta[(size_t)g * FCP_FABRICS];
        uint32_t bound = d[FCP_NET] > d[FCP_LOCAL] ? d[FCP_NET] : d[FCP_LOCAL];
        if (m->group_rounds[g] == bound || v->late.code) continue;
        const fcp_round *r = &m->rounds[m->group_round[g]]; /* there is one, since Delta is at most their number */
        fcp_fail(&v->late, FCP_E_VERIFY_DELTA, "%s, stage %u: %u %s rounds, and Delta is %u on net, %u on local",
                 fcp_pass_names[v->pass], r->stage, m->group_rounds[g], fcp_round_names[r->kind], d[FCP_NET],
                 d[FCP_LOCAL]);
    }
}

/* How many transfers the launches of this pass name: not more than there are (check.c). */
static size_t launched(const verifier *v) {
    const fcp_plan *plan = v->plan;
    size_t count = 0;
    for (uint32_t r = 0; r < v->p->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, v->pass, r, FCP_COMM);
        for (const fcp_instr *x = plan->instrs + s->first, *end = x + s->count; x < end; x++)
            count += x->b & -(uint32_t)(x->op == FCP_OP_LAUNCH); /* they alternate with others: no jump decides */
    }
    return count;
}

fcp_code fcp_verify_match_open(verifier of[FCP_PASSES], void **out_room) {
    const size_t size = sizeof(side) + sizeof(delivery);
    const size_t ahead = launched(&of[FCP_FORWARD]), all = (size_t)of[FCP_FORWARD].plan->transfers_count;
    const size_t even = (ahead + 2) / 2 * 2; /* at least one more, which is never used; so what follows is aligned */
    char *room = *out_room = malloc((all + 3) * size);
    if (!room)
        return fcp_fail(of[FCP_FORWARD].err, FCP_E_NO_MEMORY, "out of memory to verify a plan with %zu transfers", all);
    of[FCP_FORWARD].sides = room;
    of[FCP_FORWARD].side_count = even;
    of[FCP_BACKWARD].sides = room + even * size;
    of[FCP_BACKWARD].side_count = all - ahead + 1;
    return FCP_OK;
}

fcp_code fcp_verify_match(verifier *v) {
    const fcp_plan *plan = v->plan;
    uint32_t ranks = v->p->ranks, begin = plan->round_starts[v->pass];
    match m = {.v = v, .rounds = plan->rounds + begin, .round_count = plan->round_starts[v->pass + 1] - begin};
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        m.bytes[cls] = fcp_class_bytes(v->p, (fcp_class)cls, v->pass);
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
            const uint32_t unit = fcp_unit_tokens(v->p, (fcp_class)cls, (fcp_fabric)fabric);
            for (int dir = 0; dir < FCP_DIRECTION_COUNT; dir++)
                m.rules[cls | fabric << 4 | dir << 6] =
                    (struct way_rules){.unit = unit, .kinds = class_kinds[v->pass][cls],
                                       .lane = (uint8_t)(fabric * 2 + dir), .fetched = is_fetched((uint32_t)cls)};
        }
    }
    size_t groups = (size_t)m.round_count + 2;
    const fcp_carved tables[] = {
        {&m.info, groups, sizeof *m.info},
        {&m.group_round, groups, sizeof *m.group_round},
        {&m.group_rounds, groups, sizeof *m.group_rounds},
        {&m.delta, groups, FCP_FABRICS * sizeof *m.delta},
        {&m.degree, groups, sizeof *m.degree * FCP_FABRICS * 2},
        {&m.touched, groups, sizeof *m.touched},
        {&m.seen, groups, sizeof *m.seen},
        {&m.receive, groups, FCP_FABRICS * sizeof *m.receive},
        {&m.inbox, (size_t)ranks + 1, sizeof *m.inbox},
        {&m.send_first, (size_t)ranks + 1, sizeof *m.send_first},
        {&m.recv_first, (size_t)ranks + 1, sizeof *m.recv_first},
        {&m.met, ranks, sizeof *m.met},
    };
    void *room = FCP_CARVE(tables);
    m.sides = v->sides;
    m.side_count = v->side_count;
    v->peers = malloc(m.side_count * sizeof *v->peers);
    fcp_code code = FCP_OK;
    if (!room || !v->peers)
        code = fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify %u rounds with %zu transfers", m.round_count,
                        m.side_count);
    if (!code) code = group_rounds(&m);
    for (uint32_t r = 0; r < ranks && !code; r++)
        if (!(code = fcp_verify_stopped(v))) code = scan_rank(&m, r);
    if (!code) {
        v->facts.sends = m.send_count;
        v->named += m.send_count + m.recv_count;
        m.delivered = (delivery *)(m.sides + m.side_count);
    }
    if (!code) code = fcp_verify_stopped(v);
    if (!code) deliver(&m);
    for (uint32_t r = 0; r < ranks && !code; r++)
        if (!(code = fcp_verify_stopped(v))) code = meet(&m, r);
    if (!code) check_delta(&m);
    free(room);
    return code;
}
