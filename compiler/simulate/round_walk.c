/* round_walk.c: finds the time of each instruction of a pass, round by round.
 *
 * Why this needs no event queue: every rank launches its rounds in increasing order. So once all earlier rounds have
 * their times, the times of a round follow:
 *
 *   ready(r) = the later of: the end of rank r's launch before it, and of the computing it waits for
 *   end(r)   = max over r's transfers in the round of  max(ready(r), ready(peer)) + latency + bytes / rate
 *
 * If net and local transfers have a queue each, each of the two has its own ready(r) and end(r), and also waits for
 * what it needs of the other (runtime/plan/fabrics.h). Computing waits for the end of each as far as its WAITs say.
 *
 * Before a round, each of its ranks computes as far as its own waits allow. So the whole is a recursion of maxima and
 * sums over the plan, in the order in which the plan stands.
 *
 * Requires: a verified plan.
 * Cost:     linear in instructions and transfers.
 */
#include "compiler/simulate/pass_times.h"

#include <string.h>

#include "runtime/base/stop.h"
#include "runtime/plan/fabrics.h"

/* Turns counts into the places where each round begins: a prefix sum, as in a counting sort. Round r's place is [r + 1]
 * and moves on as the round is filled. */
static void add_up(uint32_t *start, uint32_t count) {
    for (uint32_t c = 2; c < count + 2; c++) start[c] += start[c - 1];
}

/* The number of instructions of the longest communication queue. */
static uint32_t longest_queue(const sim_model *m) {
    uint32_t longest = 0;
    for (uint32_t r = 0; r < m->plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(m->plan, m->pass, r, FCP_COMM);
        if (s->count > longest) longest = s->count;
    }
    return longest;
}

/* Adds what a launch of a rank sends to its round. */
static void add_sends(const sim_model *m, uint32_t rank, const fcp_instr *x, sim_rounds *out) {
    for (uint32_t n = x->a; n < x->a + x->b; n++) {
        const fcp_transfer *t = &m->plan->transfers[n];
        if (t->dir != FCP_SEND) continue;
        out->sends[out->send_start[x->c + 1]++] =
            (sim_send){rank, t->peer, n, t->fabric, .bytes = sim_model_bytes(m, t)};
    }
}

void sim_rounds_price(const sim_model *m, sim_rounds *rounds) {
    const bool shared = sim_model_shares_uplink(m) || m->rails;
    /* the least rate that a transfer over net may get */
    const uint64_t least =
        (sim_model_shares_uplink(m) ? m->uplink : m->rate[FCP_NET]) / m->plan->problem->gpus;
    rounds->total = 0;
    for (sim_send *t = rounds->sends; t < &rounds->sends[rounds->send_start[rounds->count]]; t++) {
        const bool shares = shared && t->fabric == FCP_NET;
        t->takes = sim_model_transfer(m, t->from, t->transfer, m->rate[t->fabric]);
        rounds->total +=
            4 * (unsigned __int128)(shares ? sim_model_transfer(m, t->from, t->transfer, least) : t->takes);
    }
}

fcp_code sim_rounds_new(const sim_model *m, arena *memory, sim_rounds *out) {
    const fcp_plan *plan = m->plan;
    const uint32_t count = plan->round_starts[m->pass + 1] - plan->round_starts[m->pass], ranks = plan->problem->ranks;
    *out = (sim_rounds){.count = count,
                        .start = ARENA_ZNEW(memory, uint32_t, (size_t)count + 2),
                        .send_start = ARENA_ZNEW(memory, uint32_t, (size_t)count + 2)};
    uint32_t(*after)[FCP_FABRICS] = arena_zalloc(memory, longest_queue(m), sizeof *after, _Alignof(uint32_t));
    if (!out->start || !out->send_start || !after) return FCP_E_NO_MEMORY;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t r = 0; r < ranks; r++) {
            const fcp_stream *s = fcp_stream_of(plan, m->pass, r, FCP_COMM);
            if (fill && m->apart && !fcp_fabric_waits(plan, m->pass, r, after)) return FCP_E_NO_MEMORY;
            for (uint32_t i = s->first; i < s->first + s->count; i++) {
                const fcp_instr *x = &plan->instrs[i];
                const uint32_t *waits = after[i - s->first];
                if (x->op != FCP_OP_LAUNCH) continue;
                if (fill) {
                    out->at[out->start[x->c + 1]++] = (sim_launch){r, i, {[FCP_NET] = waits[FCP_NET],
                                                                          [FCP_LOCAL] = waits[FCP_LOCAL]}};
                    add_sends(m, r, x, out);
                    continue;
                }
                out->start[x->c + 2]++;
                for (uint32_t n = x->a; n < x->a + x->b; n++)
                    out->send_start[x->c + 2] += plan->transfers[n].dir == FCP_SEND;
            }
        }
        if (fill) break;
        add_up(out->start, count);
        add_up(out->send_start, count);
        out->at = ARENA_NEW(memory, sim_launch, out->start[count + 1]);
        out->sends = ARENA_NEW(memory, sim_send, out->send_start[count + 1]);
        if (!out->at || !out->sends) return FCP_E_NO_MEMORY;
    }
    sim_rounds_price(m, out);
    return FCP_OK;
}

/* A queue of a rank: how many of its instructions have their times, and when the last of those ends. In a communication
 * queue each fabric has its own end. Of a compute queue only end[0] is used. */
typedef struct queue {
    uint32_t first, count, done;
    uint64_t end[FCP_FABRICS];
} queue;

typedef struct walk {
    const sim_model *m;
    queue (*queues)[FCP_QUEUES]; /* per rank */
    uint64_t (*end)[FCP_FABRICS]; /* per instruction: its queue's `end` after it */
    sim_rank *ranks;
    const sim_options *options;  /* has the watcher of the timeline; NULL: there is none */
    sim_begin *begin;            /* per rank; NULL: all begin at 0 */
} walk;

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t last_of(const uint64_t end[FCP_FABRICS]) { return later(end[FCP_NET], end[FCP_LOCAL]); }

/* Finds when the first n instructions of a compute queue end (*out); false: not known yet. */
static bool computed(const walk *w, const queue *compute, uint32_t n, uint64_t *out) {
    if (n > compute->done) return false;
    *out = n ? w->end[compute->first + n - 1][0] : 0;
    return true;
}

/* Finds when the transfers that a WAIT of a compute queue waits for are over (*out), and which launch ends last
 * (*out_cause; of two at the same time the later instruction). False: not known yet. */
static bool moved(const walk *w, const queue *comm, const fcp_instr *x, uint64_t *out, uint32_t *out_cause) {
    uint32_t number = 0;
    *out = 0;
    if (fcp_waits_whole(x) > comm->done) return false;
    for (int f = 0; f < FCP_FABRICS; f++) {
        const uint32_t n = fcp_waits_over(x, FCP_COMPUTE, (fcp_fabric)f);
        const uint64_t end = n ? w->end[comm->first + n - 1][f] : 0;
        if (end < *out || (end == *out && n <= number)) continue;
        *out = end;
        number = n;
    }
    *out_cause = sim_last_launch(w->m->plan, comm->first, number);
    return true;
}

/* Gives times to the compute queue of a rank, until it waits for a launch that has no time yet. */
static void compute(walk *w, uint32_t rank) {
    queue *q = &w->queues[rank][FCP_COMPUTE];
    const queue *comm = &w->queues[rank][FCP_COMM];
    for (; q->done < q->count; q->done++) {
        uint32_t i = q->first + q->done;
        const fcp_instr *x = &w->m->plan->instrs[i];
        if (x->op == FCP_OP_WAIT) {
            uint64_t until;
            uint32_t cause;
            if (!moved(w, comm, x, &until, &cause)) return;
            if (until > q->end[0]) {
                sim_show_wait(w->m, w->options, rank, i, q->end[0], until, cause);
                w->ranks[rank].wait[sim_reason_of(w->m->plan, cause)] += until - q->end[0];
                q->end[0] = until;
            }
        } else {
            uint64_t time = w->m->computes[i];
            w->ranks[rank].compute += time;
            sim_show_work(w->m, w->options, rank, i, q->end[0], q->end[0] + time);
            q->end[0] += time;
        }
        memcpy(w->end[i], q->end, sizeof q->end);
    }
}

/* Gives times to the waits of a rank's communication queue that stand before launch `instr`. *out_waited: when the last
 * of them ends. False: a wait can never end, so the plan deadlocks. */
static bool reach(walk *w, uint32_t rank, uint32_t instr, uint64_t *out_waited) {
    queue *q = &w->queues[rank][FCP_COMM];
    const queue *other = &w->queues[rank][FCP_COMPUTE];
    *out_waited = 0;
    for (; q->first + q->done < instr; q->done++) {
        const fcp_instr *x = &w->m->plan->instrs[q->first + q->done];
        uint64_t until;
        if (x->op != FCP_OP_WAIT) return false; /* an earlier launch has no time, though rounds are in order */
        if (!computed(w, other, x->a, &until)) compute(w, rank);
        if (!computed(w, other, x->a, &until)) return false;
        *out_waited = later(*out_waited, until);
        for (int f = 0; f < FCP_FABRICS; f++) w->end[q->first + q->done][f] = later(q->end[f], until);
    }
    return true;
}

/* Finds when a launch's transfers over each fabric may begin. `waited` is when the launch's waits end. */
static void give_ready(const walk *w, const queue *q, const sim_launch *l, bool apart, uint64_t waited,
                       uint64_t ready[FCP_FABRICS]) {
    for (int f = 0; f < FCP_FABRICS; f++) {
        const int other = f == FCP_NET ? FCP_LOCAL : FCP_NET;
        const uint32_t after = apart ? l->after[f] : 0;
        ready[f] = later(waited, apart ? q->end[f] : last_of(q->end));
        if (after) ready[f] = later(ready[f], w->end[q->first + after - 1][other]);
    }
}

/* The state of a round while it gets its times. */
typedef struct round_state {
    uint64_t (*ready)[FCP_FABRICS], (*end)[FCP_FABRICS]; /* per rank */
    uint32_t *instr;             /* per rank: its launch */
    uint32_t *leaving, *coming;  /* per node: net transfers in the round */
    uint64_t *sent, *received; /* per node: how long its uplink needs for all net transfers up to this round; NULL: the
                                  * uplink is as wide as the ports below it */
    uint64_t *free; /* per rank: when its net port has sent all so far; NULL: no port sends for several ranks */
} round_state;

/* The rate of a transfer through an oversubscribed uplink: its equal share of what its node sends, or of what the other
 * node receives, whichever is less. */
static uint64_t share_of(const sim_model *m, const round_state *s, const sim_send *t) {
    uint32_t out = s->leaving[fcp_node_of(m->plan->problem, t->from)],
             in = s->coming[fcp_node_of(m->plan->problem, t->to)];
    uint64_t share = m->uplink / (out > in ? out : in), rate = m->rate[FCP_NET];
    return share < rate ? share : rate;
}

/* Returns when a transfer through oversubscribed uplinks is done; `done` is when its ports are done with it. An uplink
 * serves transfers in the order of rounds: one is not done before all earlier ones, and itself, have passed through the
 * uplinks of both nodes.
 *
 * Why not share within each round alone? Ranks of a node may be in different rounds, so together they could send more
 * than the uplink carries. events.c shares uplinks fairly instead; the times that this rule predicts are from 15 %
 * shorter to 44 % longer. It is kept because it is fast, and because with it a faster link never makes a plan slower.
 */
static uint64_t uplink_time(const sim_model *m, round_state *s, const sim_send *t, uint64_t done) {
    uint64_t takes = sim_model_time(t->bytes, m->uplink);
    uint64_t *sent = &s->sent[fcp_node_of(m->plan->problem, t->from)],
             *received = &s->received[fcp_node_of(m->plan->problem, t->to)];
    *sent += takes;
    *received += takes;
    if (*sent > done) done = *sent;
    return *received > done ? *received : done;
}

/* Returns when a transfer is done that leaves by a port which sends for several ranks. The port serves them one after
 * the other, in the order of rounds. */
static uint64_t port_time(const sim_model *m, round_state *s, const sim_send *t, uint64_t done) {
    uint64_t *free = &s->free[sim_model_port(m, t->from, t->to)];
    const uint64_t in_turn = *free + sim_model_time(t->bytes, m->rate[FCP_NET]);
    return *free = later(done, in_turn);
}

static void count_net(const fcp_problem *p, const sim_rounds *rounds, uint32_t c, round_state *s, uint32_t change) {
    for (const sim_send *t = &rounds->sends[rounds->send_start[c]]; t < &rounds->sends[rounds->send_start[c + 1]];
         t++) {
        if (t->fabric != FCP_NET) continue;
        s->leaving[fcp_node_of(p, t->from)] += change;
        s->coming[fcp_node_of(p, t->to)] += change;
    }
}

static bool give_times(walk *w, const sim_rounds *rounds, uint32_t c, bool free_ports, round_state *s) {
    const bool shared = s->sent && !free_ports, watched = w->options && w->options->watch;
    const bool apart = sim_model_apart(w->m, c);
    const int second = w->m->plan->rounds[w->m->plan->round_starts[w->m->pass] + c].flags & FCP_ROUND_SECOND ? 1 : 0;
    for (uint32_t i = rounds->start[c]; i < rounds->start[c + 1]; i++) {
        const sim_launch *l = &rounds->at[i];
        uint64_t waited, *ready = s->ready[l->rank];
        if (!reach(w, l->rank, l->instr, &waited)) return false;
        if (w->begin) waited = later(waited, w->begin[l->rank].moves[second]);
        if (free_ports) ready[FCP_NET] = ready[FCP_LOCAL] = waited;
        else give_ready(w, &w->queues[l->rank][FCP_COMM], l, apart, waited, ready);
        for (int f = 0; f < FCP_FABRICS; f++) s->end[l->rank][f] = apart ? waited : ready[f];
        s->instr[l->rank] = l->instr;
    }
    if (shared) count_net(w->m->plan->problem, rounds, c, s, 1);
    for (const sim_send *t = &rounds->sends[rounds->send_start[c]]; t < &rounds->sends[rounds->send_start[c + 1]];
         t++) {
        const bool behind = shared && t->fabric == FCP_NET;
        const uint64_t takes = behind ? sim_model_transfer(w->m, t->from, t->transfer, share_of(w->m, s, t)) : t->takes;
        const uint64_t from = s->ready[t->from][t->fabric], to = s->ready[t->to][t->fabric], ready = later(from, to);
        uint64_t done = behind ? uplink_time(w->m, s, t, ready + takes) : ready + takes;
        if (s->free && !free_ports && t->fabric == FCP_NET) done = port_time(w->m, s, t, done);
        if (watched)
            sim_show_transfer(w->m, w->options, t->transfer, t->from,
                              (const uint32_t[2]){s->instr[t->from], s->instr[t->to]},
                              (const uint64_t[2]){from, to}, ready, done);
        s->end[t->from][t->fabric] = later(s->end[t->from][t->fabric], done);
        s->end[t->to][t->fabric] = later(s->end[t->to][t->fabric], done);
        w->ranks[t->from].busy[t->fabric][FCP_SEND] += takes;
        w->ranks[t->to].busy[t->fabric][FCP_RECV] += takes;
    }
    if (shared) count_net(w->m->plan->problem, rounds, c, s, UINT32_MAX); /* adds minus one */
    for (uint32_t i = rounds->start[c]; i < rounds->start[c + 1]; i++) {
        const sim_launch *l = &rounds->at[i];
        queue *q = &w->queues[l->rank][FCP_COMM];
        const uint64_t whole = last_of(s->end[l->rank]);
        for (int f = 0; f < FCP_FABRICS; f++)
            w->end[l->instr][f] = q->end[f] = later(q->end[f], apart ? s->end[l->rank][f] : whole);
        q->done++;
    }
    return true;
}

fcp_code sim_walk(const sim_model *m, const sim_rounds *rounds, bool free_ports, const sim_options *options,
                  sim_begin *begin, sim_rank *ranks, uint64_t *out, arena *scratch) {
    const fcp_plan *plan = m->plan;
    const fcp_problem *p = plan->problem;
    walk w = {.m = m,
              .ranks = ranks,
              .queues = arena_zalloc(scratch, p->ranks, sizeof *w.queues, _Alignof(queue)),
              .end = arena_alloc(scratch, plan->instrs_count, sizeof *w.end, _Alignof(uint64_t)),
              .options = options,
              .begin = begin};
    round_state s = {.ready = arena_alloc(scratch, p->ranks, sizeof *s.ready, _Alignof(uint64_t)),
                     .end = arena_alloc(scratch, p->ranks, sizeof *s.end, _Alignof(uint64_t)),
                     .instr = ARENA_NEW(scratch, uint32_t, p->ranks),
                     .leaving = ARENA_ZNEW(scratch, uint32_t, p->nodes),
                     .coming = ARENA_ZNEW(scratch, uint32_t, p->nodes)};
    if (sim_model_shares_uplink(m)) {
        s.sent = ARENA_ZNEW(scratch, uint64_t, p->nodes);
        s.received = ARENA_ZNEW(scratch, uint64_t, p->nodes);
        if (!s.sent || !s.received) return FCP_E_NO_MEMORY;
    }
    if (m->rails && !(s.free = ARENA_ZNEW(scratch, uint64_t, p->ranks))) return FCP_E_NO_MEMORY;
    if (!w.queues || !w.end || !s.ready || !s.end || !s.instr || !s.leaving || !s.coming) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *x = fcp_stream_of(plan, m->pass, r, (fcp_queue)q);
            w.queues[r][q].first = x->first;
            w.queues[r][q].count = x->count;
        }
    for (uint32_t r = 0; r < p->ranks && begin; r++) w.queues[r][FCP_COMPUTE].end[0] = begin[r].compute;
    for (uint32_t c = 0; c < rounds->count; c++) {
        if (!(c & 15) && options && fcp_stop_asked(options->stop)) return FCP_E_INTERRUPTED;
        if (!give_times(&w, rounds, c, free_ports, &s)) return FCP_E_INTERNAL;
    }
    *out = 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        queue *comm = &w.queues[r][FCP_COMM];
        uint64_t waited;
        compute(&w, r);
        if (!reach(&w, r, comm->first + comm->count, &waited) ||
            w.queues[r][FCP_COMPUTE].done < w.queues[r][FCP_COMPUTE].count)
            return FCP_E_INTERNAL;
        uint64_t last = later(w.queues[r][FCP_COMPUTE].end[0], last_of(comm->end));
        ranks[r].end = last;
        if (last > *out) *out = last;
        if (!begin) continue;
        const uint32_t results = begin[r].last_of_first;
        begin[r].first = later(w.queues[r][FCP_COMPUTE].end[0], results == FCP_NONE ? 0 : last_of(w.end[results]));
        begin[r].all = last;
    }
    return FCP_OK;
}
