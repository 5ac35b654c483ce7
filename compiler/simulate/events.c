/* events.c: simulates a pass by discrete events, for networks in which transfers do not wait for rounds, or share links
 * fairly.
 *
 * The instructions of a rank's two queues are tasks (tasks.c). A task of the compute queue begins when the one before
 * it has ended, and when it has what it needs of the communication queue. What a launch does depends on the network:
 *
 *   shared  As in the plan: it begins when the launch before it has ended. A transfer begins when both its ranks have
 *           reached it. All transfers that pass through one port or uplink share it fairly (fair_sharing.c).
 *   fluid   The same, but a rank begins all launches of a group (pass_times.h) at once.
 *   pulls   There are no rounds. A launch asks for one block on each fabric: not the one that the plan says, but one
 *           that is drawn from those that the rank's launches of this group bring. The launch ends when it has come.
 *           A sender serves one request at a time on each fabric, in the order of asking. So ranks queue up behind each
 *           other, which is what rounds avoid. With `incast` a sender serves all requests at once, and loses part of its
 *           rate for each (simulate.h).
 *
 * In `pulls` a sender serves a request when it has what is asked for:
 * - In group 0 these are blocks that are at home there. It has them once the reshuffle has brought its own tokens in.
 * - In other groups it is what the rank has received or computed. It has that once its launches before the group have
 *   ended, and the computing for which the plan's launch waits.
 * So there are no circular waits.
 *
 * Requires: a verified plan.
 */
#include "compiler/simulate/pass_times.h"

#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/simulate/fair_sharing.h"

typedef struct event {
    uint64_t time, order; /* of two events at the same time the one that was made first comes first */
    uint32_t kind, which, version;
} event;
enum { EVENT_COMPUTED, EVENT_SENT_OFF, EVENT_THROUGH }; /* which: a rank, a transfer, a transfer */

typedef struct queue {
    uint32_t first, count; /* tasks */
    /* of each fabric: the first task that has not begun, and the first that has not ended; `count` if there is none. A
     * task of a compute queue belongs to both fabrics. */
    uint32_t begun[FCP_FABRICS], done[FCP_FABRICS];
    uint32_t lacks;        /* of a compute queue: for which fabrics its next task still waits, a bit each */
    uint64_t end;          /* of its last task */
} queue;

typedef struct transfer_state {
    uint32_t from, to;    /* ranks; the record itself is the sender's */
    uint32_t owner[2];    /* tasks: of the sender, of the receiver */
    uint32_t came;        /* how many of its two ends have reached it */
    uint32_t asked_next;  /* the next in the list of what its sender was asked for */
    uint64_t start, ready[2];
} transfer_state;

typedef struct port_state { /* the sending side of a rank's port, for pulls */
    uint32_t first, last; /* the transfers that were asked for, in order; FCP_NONE: none */
    bool busy;
} port_state;

typedef struct events {
    const sim_model *m;
    const sim_options *how;
    bool pulls, fluid;
    sim_tasks tasks;
    queue (*queues)[FCP_QUEUES];
    uint32_t *pending;           /* per task: transfers of a launch that have not ended */
    uint32_t *entry;             /* per task: how many launches of its rank come before its group */
    uint32_t (*own_in)[FCP_QUEUES]; /* per rank: how many tasks of each queue bring its own blocks in, DELTA included */
    transfer_state *transfers;   /* per transfer; only senders' records are used */
    uint32_t *pair;              /* per received record: the sender's */
    uint32_t *drawn;             /* per received record: the transfer that is asked for instead, drawn at random */
    port_state (*ports)[FCP_FABRICS];
    flows flows;
    event *heap;
    size_t heap_count, heap_room;
    uint64_t now, order;
    uint32_t *wake, wake_count;  /* ranks whose queues may be able to go on */
    bool *awake;
    sim_rank *ranks;
    arena *scratch;
    bool failed;
} events;

/* --- the heap ----------------------------------------------------------------------------------------------------- */

static bool before(const event *a, const event *b) {
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static void push(events *x, uint64_t time, uint32_t kind, uint32_t which, uint32_t version) {
    event *heap = arena_grow(x->scratch, x->heap, x->heap_count, &x->heap_room, sizeof *heap);
    if (!heap) {
        x->failed = true;
        return;
    }
    x->heap = heap;
    event e = {time, x->order++, kind, which, version};
    size_t at = x->heap_count++;
    for (; at && before(&e, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = e;
}

static event pop(events *x) {
    event top = x->heap[0], e = x->heap[--x->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < x->heap_count; at = child) {
        if (child + 1 < x->heap_count && before(&x->heap[child + 1], &x->heap[child])) child++;
        if (!before(&x->heap[child], &e)) break;
        x->heap[at] = x->heap[child];
    }
    if (x->heap_count) x->heap[at] = e;
    return top;
}

static void wake(events *x, uint32_t rank) {
    if (x->awake[rank]) return;
    x->awake[rank] = true;
    x->wake[x->wake_count++] = rank;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static void begin_transfer(events *x, uint32_t number) {
    const fcp_transfer *t = &x->m->plan->transfers[number];
    uint64_t rate = x->m->rate[t->fabric], bytes = sim_model_bytes(x->m, t);
    x->transfers[number].start = x->now;
    /* first the latency, and the noise of the whole transfer; then its bytes */
    const uint64_t whole = sim_model_transfer(x->m, x->transfers[number].from, number, rate);
    push(x, x->now + whole - sim_model_time(bytes, rate), EVENT_SENT_OFF, number, 0);
}

static void sent_off(events *x, uint32_t number) {
    const fcp_problem *p = x->m->plan->problem;
    const fcp_transfer *t = &x->m->plan->transfers[number];
    const transfer_state *s = &x->transfers[number];
    flow *f = &x->flows.at[number];
    const uint32_t port = t->fabric == FCP_NET ? sim_model_port(x->m, s->from, s->to) : s->from;
    f->uses[f->count++] = (port * FCP_FABRICS + t->fabric) * 2 + FCP_SEND;
    f->uses[f->count++] = (s->to * FCP_FABRICS + t->fabric) * 2 + FCP_RECV;
    if (t->fabric == FCP_NET && sim_model_shares_uplink(x->m)) {
        uint32_t uplinks = p->ranks * FCP_FABRICS * 2;
        f->uses[f->count++] = uplinks + fcp_node_of(p, s->from) * 2 + FCP_SEND;
        f->uses[f->count++] = uplinks + fcp_node_of(p, s->to) * 2 + FCP_RECV;
    }
    flows_join(&x->flows, number, sim_model_bytes(x->m, t), x->now);
}

static void rate_changed(void *context, uint32_t number, uint64_t through) {
    events *x = context;
    push(x, through, EVENT_THROUGH, number, x->flows.at[number].version);
}

/* How many tasks of a queue have ended before the first one that has not. */
static uint32_t ended(const queue *q) {
    return q->done[FCP_NET] < q->done[FCP_LOCAL] ? q->done[FCP_NET] : q->done[FCP_LOCAL];
}

/* The fabrics over which a task still waits for the other queue, a bit each. */
static uint32_t lacking(const queue *other, const sim_task *k) {
    uint32_t lacks = 0;
    for (int f = 0; f < FCP_FABRICS; f++) lacks |= (uint32_t)(other->done[f] < k->needs[f]) << f;
    return lacks;
}

/* The first task, from `at` on, that belongs to a fabric. */
static uint32_t next_of(const events *x, const queue *q, uint32_t at, int fabric) {
    while (at < q->count && !(x->tasks.at[q->first + at].fabrics >> fabric & 1)) at++;
    return at;
}

/* Moves `done` over tasks that have begun and have no pending transfers. */
static void settle(events *x, queue *q) {
    for (int f = 0; f < FCP_FABRICS; f++)
        while (q->done[f] < q->begun[f] && !x->pending[q->first + q->done[f]])
            q->done[f] = next_of(x, q, q->done[f] + 1, f);
}

static void end_part(events *x, uint32_t rank, uint32_t task) {
    if (--x->pending[task]) return;
    queue *q = &x->queues[rank][FCP_COMM];
    settle(x, q);
    q->end = x->now;
    wake(x, rank);
}

static void through(events *x, uint32_t number) {
    const fcp_transfer *t = &x->m->plan->transfers[number];
    transfer_state *s = &x->transfers[number];
    uint64_t took = x->now - s->start;
    flows_leave(&x->flows, number);
    x->ranks[s->from].busy[t->fabric][FCP_SEND] += took;
    x->ranks[s->to].busy[t->fabric][FCP_RECV] += took;
    const uint32_t launches[2] = {x->tasks.at[s->owner[FCP_SEND]].instr, x->tasks.at[s->owner[FCP_RECV]].instr};
    sim_show_transfer(x->m, x->how, number, s->from, launches, s->ready, s->start, x->now);
    if (x->now > x->ranks[s->from].end) x->ranks[s->from].end = x->now;
    if (x->pulls) {
        x->ports[s->from][t->fabric].busy = false;
        wake(x, s->from);
    } else end_part(x, s->from, s->owner[FCP_SEND]);
    end_part(x, s->to, s->owner[FCP_RECV]);
}

/* --- pulls -------------------------------------------------------------------------------------------------------- */

static bool has(const events *x, uint32_t number) {
    const transfer_state *s = &x->transfers[number];
    const queue *q = x->queues[s->from];
    const sim_task *task = &x->tasks.at[s->owner[FCP_SEND]];
    if (!task->group)
        return ended(&q[FCP_COMM]) >= x->own_in[s->from][FCP_COMM] &&
               ended(&q[FCP_COMPUTE]) >= x->own_in[s->from][FCP_COMPUTE];
    return ended(&q[FCP_COMM]) >= x->entry[s->owner[FCP_SEND]] && !lacking(&q[FCP_COMPUTE], task);
}

/* Begins the first transfer among those that a rank was asked for and can serve; with incast all of these. */
static void serve(events *x, uint32_t rank, int fabric) {
    port_state *port = &x->ports[rank][fabric];
    const bool all = x->how->incast; /* at once */
    if (port->busy && !all) return;
    for (uint32_t n = port->first, last = FCP_NONE, next; n != FCP_NONE; n = next) {
        next = x->transfers[n].asked_next;
        if (!has(x, n)) {
            last = n;
            continue;
        }
        if (last == FCP_NONE) port->first = next;
        else x->transfers[last].asked_next = next;
        if (port->last == n) port->last = last;
        port->busy = true;
        begin_transfer(x, n);
        if (!all) return;
    }
}

static void ask(events *x, uint32_t task, uint32_t number) {
    transfer_state *s = &x->transfers[number];
    port_state *port = &x->ports[s->from][x->m->plan->transfers[number].fabric];
    s->owner[FCP_RECV] = task;
    s->ready[FCP_SEND] = s->ready[FCP_RECV] = x->now;
    s->asked_next = FCP_NONE;
    if (port->first == FCP_NONE) port->first = number;
    else x->transfers[port->last].asked_next = number;
    port->last = number;
    wake(x, s->from);
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

/* Does this transfer of the task's launch belong to the task? */
static bool part_of(const events *x, const sim_task *task, const fcp_transfer *t) {
    return x->tasks.phases[t->cls] == task->phase && task->fabrics >> t->fabric & 1;
}

static void begin_launch(events *x, uint32_t task) {
    const fcp_plan *plan = x->m->plan;
    const sim_task *k = &x->tasks.at[task];
    const fcp_instr *launch = &plan->instrs[k->instr];
    for (uint32_t n = launch->a; n < launch->a + launch->b; n++) {
        const fcp_transfer *t = &plan->transfers[n];
        if (!part_of(x, k, t)) continue;
        if (x->pulls) {
            if (t->dir == FCP_RECV) ask(x, task, x->drawn[n]);
            continue;
        }
        uint32_t number = t->dir == FCP_SEND ? n : x->pair[n];
        x->transfers[number].ready[t->dir] = x->now;
        if (++x->transfers[number].came == 2) begin_transfer(x, number);
    }
}

/* May a communication queue begin its task number `at`, as far as its own earlier tasks are concerned? */
static bool in_turn(const events *x, const queue *q, uint32_t at) {
    const sim_task *k = &x->tasks.at[q->first + at];
    const uint32_t before = x->fluid ? x->entry[q->first + at] : at;
    for (int f = 0; f < FCP_FABRICS; f++) {
        const bool own = k->fabrics >> f & 1;
        if (own && q->begun[f] != at) return false;
        if (q->done[f] < (own ? before : k->after)) return false;
    }
    return true;
}

/* Begins the next task of a communication queue over a fabric, if it can begin. Returns whether it has. */
static bool go_on_sending(events *x, uint32_t rank, int fabric) {
    queue *q = &x->queues[rank][FCP_COMM];
    const uint32_t at = q->begun[fabric];
    if (at == q->count || !in_turn(x, q, at)) return false;
    const sim_task *k = &x->tasks.at[q->first + at];
    if (lacking(&x->queues[rank][FCP_COMPUTE], k)) return false;
    for (int f = 0; f < FCP_FABRICS; f++)
        if (k->fabrics >> f & 1) q->begun[f] = next_of(x, q, at + 1, f);
    if (x->m->plan->instrs[k->instr].op == FCP_OP_LAUNCH) begin_launch(x, q->first + at);
    /* it has only sends, and in pulls nobody waits for these */
    if (!x->pending[q->first + at] && x->now > q->end) q->end = x->now;
    settle(x, q);
    return true;
}

/* A WAIT takes no time. */
static uint64_t task_time(const events *x, const sim_task *k) {
    return x->m->plan->instrs[k->instr].op == FCP_OP_WAIT ? 0 : x->m->computes[k->instr];
}

static void computed(queue *q) {
    for (int f = 0; f < FCP_FABRICS; f++) q->done[f]++;
}

static bool go_on_computing(events *x, uint32_t rank) {
    queue *q = &x->queues[rank][FCP_COMPUTE];
    const queue *comm = &x->queues[rank][FCP_COMM];
    if (q->begun[0] == q->count || q->begun[0] > q->done[0]) return false;
    const sim_task *k = &x->tasks.at[q->first + q->begun[0]];
    const uint32_t lacked = q->lacks, lacks = q->lacks = lacking(comm, k);
    if (lacks) return false;
    uint64_t takes = task_time(x, k);
    if (x->now > q->end && lacked) {
        uint32_t needs = 0; /* how many tasks had to end, of those that ended last */
        for (int f = 0; f < FCP_FABRICS; f++)
            if (lacked >> f & 1 && k->needs[f] > needs) needs = k->needs[f];
        const uint32_t cause = x->tasks.at[comm->first + needs - 1].instr;
        x->ranks[rank].wait[sim_reason_of(x->m->plan, cause)] += x->now - q->end;
        sim_show_wait(x->m, x->how, rank, k->wait, q->end, x->now, cause);
    }
    sim_show_work(x->m, x->how, rank, k->instr, x->now, x->now + takes);
    x->ranks[rank].compute += takes;
    for (int f = 0; f < FCP_FABRICS; f++) q->begun[f]++;
    q->end = x->now + takes;
    if (takes) push(x, q->end, EVENT_COMPUTED, rank, 0);
    else computed(q);
    return true;
}

static void go_on(events *x) {
    while (x->wake_count) {
        uint32_t rank = x->wake[--x->wake_count];
        x->awake[rank] = false;
        bool again = true;
        while (again) {
            again = go_on_computing(x, rank);
            for (int fabric = 0; fabric < FCP_FABRICS; fabric++) again |= go_on_sending(x, rank, fabric);
        }
        for (int fabric = 0; x->pulls && fabric < FCP_FABRICS; fabric++) serve(x, rank, fabric);
    }
}

/* --- setting up --------------------------------------------------------------------------------------------------- */

/* Pairs each receiver's record of a transfer with the sender's: on each fabric a rank receives at most once in a round.
 */
static fcp_code pair_up(events *x, const sim_rounds *rounds) {
    const fcp_plan *plan = x->m->plan;
    uint32_t(*sent)[FCP_FABRICS] = arena_alloc(x->scratch, plan->problem->ranks, sizeof *sent, _Alignof(uint32_t));
    if (!sent) return FCP_E_NO_MEMORY;
    for (uint32_t c = 0; c < rounds->count; c++) {
        for (const sim_send *t = &rounds->sends[rounds->send_start[c]]; t < &rounds->sends[rounds->send_start[c + 1]];
             t++) {
            sent[t->to][t->fabric] = t->transfer;
            x->transfers[t->transfer].from = t->from;
            x->transfers[t->transfer].to = t->to;
        }
        for (uint32_t i = rounds->start[c]; i < rounds->start[c + 1]; i++) {
            const fcp_instr *launch = &plan->instrs[rounds->at[i].instr];
            for (uint32_t n = launch->a; n < launch->a + launch->b; n++)
                if (plan->transfers[n].dir == FCP_RECV)
                    x->pair[n] = sent[rounds->at[i].rank][plan->transfers[n].fabric];
        }
    }
    return FCP_OK;
}

/* Notes for each end of a transfer its task, for each task how many transfers it waits for, and how many launches come
 * before its group. */
static void count_tasks(events *x) {
    const fcp_plan *plan = x->m->plan;
    for (uint32_t r = 0; r < plan->problem->ranks; r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const uint32_t first = x->tasks.start[r][q], last = x->tasks.start[r][q + 1];
            queue *own = &x->queues[r][q];
            *own = (queue){.first = first, .count = last - first};
            for (int f = 0; f < FCP_FABRICS; f++) own->begun[f] = own->done[f] = next_of(x, own, 0, f);
            bool begun = false; /* has an ATTEND been seen? What is before it brings the rank's own blocks in */
            for (uint32_t k = first; k < last; k++) {
                const sim_task *task = &x->tasks.at[k];
                const fcp_instr *i = &plan->instrs[task->instr];
                bool goes_on = k > first && task[-1].group == task->group && task[-1].phase == task->phase;
                x->entry[k] = goes_on ? x->entry[k - 1] : k - first;
                begun |= i->op == FCP_OP_ATTEND;
                if ((i->op == FCP_OP_DELTA && !begun) ||
                    ((i->op == FCP_OP_COPY || i->op == FCP_OP_LAUNCH) && i->b && plan->transfers[i->a].cls == FCP_IN))
                    x->own_in[r][q] = k + 1 - first;
                for (uint32_t n = i->a; i->op == FCP_OP_LAUNCH && n < i->a + i->b; n++) {
                    const fcp_transfer *t = &plan->transfers[n];
                    if (!part_of(x, task, t)) continue;
                    x->pending[k] += !x->pulls || t->dir == FCP_RECV;
                    x->transfers[t->dir == FCP_SEND ? n : x->pair[n]].owner[t->dir] = k;
                }
            }
        }
}

/* Draws the order in which a rank asks for what its launches bring: a random permutation of each group and fabric. */
static fcp_code draw_orders(events *x, uint64_t seed) {
    const fcp_plan *plan = x->m->plan;
    uint32_t most = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        uint32_t count = 0;
        const fcp_stream *s = fcp_stream_of(plan, x->m->pass, r, FCP_COMM);
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            if (plan->instrs[i].op == FCP_OP_LAUNCH) count += plan->instrs[i].b;
        if (count > most) most = count;
    }
    uint64_t *keys = ARENA_NEW(x->scratch, uint64_t, most), *room = ARENA_NEW(x->scratch, uint64_t, most), draws = 0;
    uint32_t *records = ARENA_NEW(x->scratch, uint32_t, most), *order = ARENA_NEW(x->scratch, uint32_t, most);
    if (!keys || !room || !records || !order) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        uint32_t count = 0;
        for (uint32_t k = x->tasks.start[r][FCP_COMM]; k < x->tasks.start[r][FCP_QUEUES]; k++) {
            const sim_task *task = &x->tasks.at[k];
            const fcp_instr *i = &plan->instrs[task->instr];
            for (uint32_t n = i->a; i->op == FCP_OP_LAUNCH && n < i->a + i->b; n++) {
                const fcp_transfer *t = &plan->transfers[n];
                if (t->dir != FCP_RECV || !part_of(x, task, t)) continue;
                keys[count] =
                    (((uint64_t)task->group * SIM_PHASES + task->phase) * FCP_FABRICS + t->fabric) << 32 | count;
                records[count++] = n;
            }
        }
        sort_u64(keys, room, count);
        for (uint32_t first = 0, end; first < count; first = end) {
            for (end = first; end < count && keys[end] >> 32 == keys[first] >> 32; end++)
                order[end] = x->pair[records[(uint32_t)keys[end]]];
            for (uint32_t i = first; i < end; i++) {
                uint32_t other = i + (uint32_t)((uint64_t)sim_model_drawn(seed, draws++) * (end - i) >> 32),
                         chosen = order[other];
                order[other] = order[i];
                x->drawn[records[(uint32_t)keys[i]]] = chosen;
            }
        }
    }
    return FCP_OK;
}

static fcp_code set_up(events *x, const sim_rounds *rounds) {
    const sim_model *m = x->m;
    const fcp_plan *plan = m->plan;
    const fcp_problem *p = plan->problem;
    fcp_code code = sim_tasks_new(m, x->how->without, x->scratch, &x->tasks);
    if (code) return code;
    const uint32_t tasks = p->ranks ? x->tasks.start[p->ranks - 1][FCP_QUEUES] : 0, ports = p->ranks * FCP_FABRICS * 2;
    x->queues = arena_zalloc(x->scratch, p->ranks, sizeof *x->queues, _Alignof(queue));
    x->own_in = arena_zalloc(x->scratch, p->ranks, sizeof *x->own_in, _Alignof(uint32_t));
    x->ports = arena_zalloc(x->scratch, p->ranks, sizeof *x->ports, _Alignof(port_state));
    x->pending = ARENA_ZNEW(x->scratch, uint32_t, tasks);
    x->entry = ARENA_ZNEW(x->scratch, uint32_t, tasks);
    x->transfers = ARENA_ZNEW(x->scratch, transfer_state, plan->transfers_count);
    x->pair = ARENA_ZNEW(x->scratch, uint32_t, plan->transfers_count);
    x->drawn = ARENA_ZNEW(x->scratch, uint32_t, plan->transfers_count);
    x->wake = ARENA_NEW(x->scratch, uint32_t, p->ranks);
    x->awake = ARENA_ZNEW(x->scratch, bool, p->ranks);
    uint64_t *capacity = ARENA_NEW(x->scratch, uint64_t, (size_t)ports + 2 * (size_t)p->nodes);
    if (!x->queues || !x->own_in || !x->ports || !x->pending || !x->entry || !x->transfers || !x->pair || !x->drawn ||
        !x->wake || !x->awake || !capacity)
        return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < ports; i++) capacity[i] = m->rate[i / 2 % FCP_FABRICS];
    for (uint32_t i = ports; i < ports + 2 * p->nodes; i++) capacity[i] = m->uplink;
    for (uint32_t r = 0; r < p->ranks; r++)
        for (int f = 0; f < FCP_FABRICS; f++) x->ports[r][f].first = FCP_NONE;
    code = flows_new(ports + 2 * p->nodes, capacity, (uint32_t)plan->transfers_count, x->scratch, &x->flows);
    x->flows.ports = ports;
    x->flows.incast = x->how->incast;
    if (!code) code = pair_up(x, rounds);
    if (code) return code;
    count_tasks(x);
    return x->pulls ? draw_orders(x, x->how->seed) : FCP_OK;
}

fcp_code sim_events(const sim_model *m, const sim_rounds *rounds, const sim_options *options, sim_rank *ranks,
                    uint64_t *out, arena *scratch) {
    const uint32_t count = m->plan->problem->ranks;
    events x = {.m = m,
                .how = options,
                .ranks = ranks,
                .scratch = scratch,
                .pulls = options->network == SIM_NETWORK_PULLS,
                .fluid = options->network == SIM_NETWORK_FLUID};
    fcp_code code = set_up(&x, rounds);
    if (code) return code;
    for (uint32_t r = count; r-- > 0;) wake(&x, r); /* so that rank 0 asks first */
    for (go_on(&x); !x.failed; go_on(&x)) {
        if (!x.heap_count || x.heap[0].time > x.now) flows_settle(&x.flows, x.now, rate_changed, &x);
        if (!x.heap_count) break;
        event e = pop(&x);
        x.now = e.time;
        if (e.kind == EVENT_SENT_OFF) sent_off(&x, e.which);
        else if (e.kind == EVENT_COMPUTED) {
            computed(&x.queues[e.which][FCP_COMPUTE]);
            wake(&x, e.which);
        } else if (e.version == x.flows.at[e.which].version) through(&x, e.which);
    }
    if (x.failed) return FCP_E_NO_MEMORY;
    *out = 0;
    for (uint32_t r = 0; r < count; r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const queue *here = &x.queues[r][q];
            if (ended(here) < here->count) return FCP_E_INTERNAL;
            if (here->end > ranks[r].end) ranks[r].end = here->end;
            if (ranks[r].end > *out) *out = ranks[r].end;
        }
    return FCP_OK;
}
