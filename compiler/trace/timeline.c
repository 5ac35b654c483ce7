/* timeline.c: collects the simulator's intervals, or makes such intervals of what a session has measured.
 *
 * Requires: a verified plan; a profile, or a session that recorded its runs.
 * Gives:    timeline.h.
 * Cost:     linear in instructions and transfers, plus sorting each rank's intervals.
 */
#include "compiler/trace/timeline.h"
#include "runtime/plan/sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/session.h"

/* --- ranks -------------------------------------------------------------------------------------------------------- */

static bool number(const char **s, uint32_t *out) {
    uint64_t value = 0;
    const char *begin = *s;
    for (; **s >= '0' && **s <= '9'; (*s)++)
        if ((value = value * 10 + (uint64_t)(**s - '0')) > UINT32_MAX) return false;
    *out = (uint32_t)value;
    return *s > begin;
}

static fcp_code read_list(const fcp_plan *plan, const char *typed, bool *has, fcp_error *err) {
    const uint32_t ranks = plan->problem->ranks;
    for (const char *s = typed;;) {
        uint32_t first, last;
        if (!number(&s, &first))
            return fcp_fail(err, FCP_E_USAGE,
                            "--ranks is '%.60s': expected ranks such as 0,5,8..16, or all, or busiest", typed);
        last = first;
        if (s[0] == '.' && s[1] == '.') {
            s += 2;
            if (!*s || *s == ',') last = ranks - 1;
            else if (!number(&s, &last) || last <= first)
                return fcp_fail(err, FCP_E_USAGE,
                                "--ranks is '%.60s': A..B has the ranks from A on that are less than B", typed);
            else last--;
        }
        if (first >= ranks || last >= ranks)
            return fcp_fail(err, FCP_E_USAGE, "--ranks is '%.60s': the plan has %u ranks, from 0 on", typed, ranks);
        for (uint32_t r = first; r <= last; r++) has[r] = true;
        if (!*s) return FCP_OK;
        if (*s++ != ',')
            return fcp_fail(err, FCP_E_USAGE,
                            "--ranks is '%.60s': expected ranks such as 0,5,8..16, or all, or busiest", typed);
    }
}

typedef struct busy {
    uint64_t work;
    uint32_t rank;
} busy;
static int by_work(const void *a, const void *b) {
    const busy *x = a, *y = b;
    if (x->work != y->work) return x->work < y->work ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

fcp_code trace_ranks_read(const fcp_plan *plan, const char *typed, const uint64_t *work, arena *memory,
                          trace_ranks *out, fcp_error *err) {
    const uint32_t ranks = plan->problem->ranks;
    fcp_code code = FCP_OK;
    *out = (trace_ranks){.at = ARENA_NEW(memory, uint32_t, ranks), .has = ARENA_ZNEW(memory, bool, ranks)};
    if (!out->at || !out->has) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    const bool busiest = typed ? !strcmp(typed, "busiest") : ranks > TRACE_ALL;
    if (typed && strcmp(typed, "all") && !busiest) code = read_list(plan, typed, out->has, err);
    else if (!busiest || ranks <= TRACE_BUSIEST) memset(out->has, 1, ranks);
    else if (work) {
        busy *order = ARENA_NEW(memory, busy, ranks);
        if (!order) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
        for (uint32_t r = 0; r < ranks; r++) order[r] = (busy){work[r], r};
        qsort(order, ranks, sizeof *order, by_work);
        for (uint32_t i = 0; i < TRACE_BUSIEST; i++) out->has[order[i].rank] = true;
        out->has[order[ranks / 2].rank] = true;
    }
    for (uint32_t r = 0; r < ranks && !code; r++)
        if (out->has[r]) out->at[out->count++] = r;
    return code;
}

/* --- collecting --------------------------------------------------------------------------------------------------- */

typedef struct collector {
    const trace_ranks *ranks;
    arena memory; /* of the intervals, until they are put in order */
    sim_interval *at;
    size_t count, room;
    bool failed;
} collector;

static void collect(void *context, const sim_interval *x) {
    collector *c = context;
    if (c->failed || !c->ranks->has[x->rank]) return;
    sim_interval *grown = arena_grow(&c->memory, c->at, c->count, &c->room, sizeof *grown);
    c->failed = !grown;
    if (!grown) return;
    c->at = grown;
    c->at[c->count++] = *x;
}

static int by_place(const void *a, const void *b) {
    const sim_interval *x = a, *y = b;
    if (x->pass != y->pass) return x->pass < y->pass ? -1 : 1;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    if (x->instr != y->instr) return x->instr < y->instr ? -1 : 1;
    return (x->doing > y->doing) - (x->doing < y->doing);
}

/* Sorts the intervals: by rank with a counting sort, and then each rank's. */
static fcp_code put_in_order(collector *c, arena *memory, timeline *out, fcp_error *err) {
    const uint32_t ranks = out->plan->problem->ranks;
    uint64_t *start = ARENA_ZNEW(&c->memory, uint64_t, (size_t)ranks + 1);
    out->at = ARENA_NEW(memory, sim_interval, c->count + 1);
    out->count = c->count;
    if (c->failed || !start || !out->at) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the timeline");
    for (uint64_t i = 0; i < c->count; i++) start[c->at[i].rank + 1]++;
    for (uint32_t r = 0; r < ranks; r++) start[r + 1] += start[r];
    for (uint64_t i = 0; i < c->count; i++) out->at[start[c->at[i].rank]++] = c->at[i];
    for (uint64_t first = 0, r = 0; r < ranks; first = start[r++])
        if (start[r] - first > 1) qsort(out->at + first, start[r] - first, sizeof *out->at, by_place);
    return FCP_OK;
}

uint64_t timeline_pairs(const fcp_plan *plan, const fcp_instr *attend, uint64_t *out_tiles) {
    uint64_t pairs = 0;
    *out_tiles = 0;
    for (const fcp_visit *v = &plan->visits[attend->a]; v < &plan->visits[attend->a + attend->b]; v++) {
        *out_tiles += v->tiles;
        for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) pairs += plan->tiles[t].pairs;
    }
    return pairs;
}

/* --- predicted ---------------------------------------------------------------------------------------------------- */

fcp_code timeline_predict(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                          const sim_result *result, const char *typed, arena *memory, timeline *out, fcp_error *err) {
    collector c = {.ranks = &out->ranks};
    sim_options options = how ? *how : (sim_options){0};
    options.watch = collect;
    options.context = &c;
    sim_result again;
    *out = (timeline){.plan = plan};
    uint64_t *work = ARENA_ZNEW(&c.memory, uint64_t, plan->problem->ranks);
    if (!work) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", plan->problem->ranks);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t r = 0; result->pass[pass].ranks && r < plan->problem->ranks; r++)
            work[r] += result->pass[pass].ranks[r].compute;
    snprintf(out->source, sizeof out->source, "%s", profile->name);
    for (int pass = 0; pass < FCP_PASSES; pass++) out->makespan[pass] = result->pass[pass].makespan;
    fcp_code code = trace_ranks_read(plan, typed, work, memory, &out->ranks, err);
    if (!code) code = simulate(plan, profile, &options, &c.memory, &again, err);
    if (!code) code = put_in_order(&c, memory, out, err);
    arena_free(&c.memory);
    return code;
}

/* --- measured ----------------------------------------------------------------------------------------------------- */

enum { PICOSECONDS = 1000 }; /* a nanosecond */

typedef struct measured {
    const fcp_session *session;
    const fcp_plan *plan;
    fcp_pass pass;
    uint32_t rounds, *launches; /* [rank * rounds + round]: the instruction, or FCP_NONE */
    collector *to;
} measured;

static uint64_t bytes_of(const measured *m, const fcp_transfer *t) {
    return t->tokens * fcp_held_bytes(m->plan->problem, fcp_moved_holds(m->plan, t), (fcp_class)t->cls, m->pass);
}

/* The record of a transfer's other side, and its launch in *out_launch. FCP_NONE: there is none, which does not happen
 * in a verified plan. */
static uint32_t other_side(const measured *m, uint32_t rank, const fcp_instr *launch, const fcp_transfer *t,
                           uint32_t *out_launch) {
    *out_launch = m->launches[(uint64_t)t->peer * m->rounds + launch->c];
    if (*out_launch == FCP_NONE) return FCP_NONE;
    const fcp_instr *x = &m->plan->instrs[*out_launch];
    for (uint32_t n = x->a; n < x->a + x->b; n++) {
        const fcp_transfer *o = &m->plan->transfers[n];
        if (o->peer == rank && o->dir != t->dir && o->fabric == t->fabric && o->cls == t->cls && o->block == t->block &&
            o->first == t->first)
            return n;
    }
    return FCP_NONE;
}

static void measure_launch(const measured *m, uint32_t rank, uint32_t instr) {
    const fcp_instr *x = &m->plan->instrs[instr];
    const fcp_timing *times = m->session->times->instrs;
    for (uint32_t n = x->a; n < x->a + x->b; n++) {
        const fcp_transfer *t = &m->plan->transfers[n];
        uint32_t launch, other = other_side(m, rank, x, t, &launch);
        uint64_t ready = times[instr].begin, start = ready, end = m->session->times->transfers[n];
        if (other != FCP_NONE && times[launch].begin > start) start = times[launch].begin;
        if (other != FCP_NONE && t->dir == FCP_SEND && m->session->times->transfers[other] > end)
            end = m->session->times->transfers[other];
        if (end > times[instr].end) end = times[instr].end;
        if (start >= end) start = ready;
        if (start >= end) continue;
        collect(m->to, &(sim_interval){
            .start = start * PICOSECONDS, .end = end * PICOSECONDS, .ready = ready * PICOSECONDS,
            .bytes = bytes_of(m, t),
            .rank = rank, .pass = m->pass, .lane = t->fabric == FCP_NET ? SIM_LANE_NET : SIM_LANE_LOCAL,
            .doing = t->dir == FCP_SEND ? SIM_SEND : SIM_RECV, .reason = sim_reason_of(m->plan, instr), .instr = instr,
            .cause = FCP_NONE, .transfer = t->dir == FCP_SEND || other == FCP_NONE ? n : other, .peer = t->peer,
            .stage = x->stage,
            .round = x->c, .block = t->block});
    }
}

/* When the transfers of a launch over a fabric have ended. */
static uint64_t ended_over(const measured *m, const fcp_instr *launch, fcp_fabric fabric) {
    uint64_t end = 0;
    for (uint32_t n = launch->a; launch->op == FCP_OP_LAUNCH && n < launch->a + launch->b; n++)
        if (m->plan->transfers[n].fabric == fabric && m->session->times->transfers[n] > end)
            end = m->session->times->transfers[n];
    return end;
}

/* The launch that ended last, among those that a WAIT of a compute queue waits for; FCP_NONE: it waits for none. */
static uint32_t cause_of(const measured *m, const fcp_instr *wait, const fcp_stream *comm) {
    uint32_t cause = FCP_NONE;
    uint64_t last = 0;
    for (int f = 0; f < FCP_FABRICS; f++) {
        const uint32_t count = fcp_waits_over(wait, FCP_COMPUTE, (fcp_fabric)f);
        if (!count) continue;
        const uint32_t launch = sim_last_launch(m->plan, comm->first, count);
        const uint64_t end = ended_over(m, &m->plan->instrs[launch], (fcp_fabric)f);
        if (cause != FCP_NONE && (end < last || (end == last && launch < cause))) continue;
        cause = launch;
        last = end;
    }
    return cause;
}

static void measure_compute(const measured *m, uint32_t rank, uint32_t instr, const fcp_stream *comm) {
    const fcp_instr *x = &m->plan->instrs[instr];
    const fcp_timing *t = &m->session->times->instrs[instr];
    if (t->begin >= t->end) return;
    sim_interval i = {.start = t->begin * PICOSECONDS, .end = t->end * PICOSECONDS, .ready = t->begin * PICOSECONDS,
                      .rank = rank, .pass = m->pass,
                      .lane = SIM_LANE_COMPUTE, .doing = SIM_WORK, .instr = instr, .cause = FCP_NONE,
                      .transfer = FCP_NONE,
                      .peer = FCP_NONE, .stage = x->stage, .round = FCP_NONE, .block = sim_block_of(m->plan, instr)};
    if (x->op == FCP_OP_WAIT) {
        i.doing = SIM_WAIT;
        i.cause = cause_of(m, x, comm);
        if (i.cause != FCP_NONE) i.reason = sim_reason_of(m->plan, i.cause);
    }
    for (uint32_t n = x->a; x->op == FCP_OP_COPY && n < x->a + x->b; n++)
        i.bytes += bytes_of(m, &m->plan->transfers[n]);
    collect(m->to, &i);
}

/* When a rank ends. Adds to *work how long it computes. */
static uint64_t sum_up(const measured *m, uint32_t rank, uint64_t *work) {
    uint64_t last = 0;
    for (int q = 0; q < FCP_QUEUES; q++) {
        const fcp_stream *s = fcp_stream_of(m->plan, m->pass, rank, (fcp_queue)q);
        for (uint32_t i = s->first; i < s->first + s->count; i++) {
            const fcp_timing *t = &m->session->times->instrs[i];
            if (t->end > last) last = t->end;
            if (q == FCP_COMPUTE && m->plan->instrs[i].op != FCP_OP_WAIT) *work += t->end - t->begin;
        }
    }
    return last;
}

static fcp_code find_launches(measured *m, fcp_error *err) {
    const uint32_t ranks = m->plan->problem->ranks;
    m->rounds = m->plan->round_starts[m->pass + 1] - m->plan->round_starts[m->pass];
    m->launches = ARENA_NEW(&m->to->memory, uint32_t, (uint64_t)ranks * m->rounds + 1);
    if (!m->launches)
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u rounds of %u ranks", m->rounds, ranks);
    memset(m->launches, 0xff, (uint64_t)ranks * m->rounds * sizeof *m->launches);
    for (uint32_t r = 0; r < ranks; r++) {
        const fcp_stream *s = fcp_stream_of(m->plan, m->pass, r, FCP_COMM);
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            if (m->plan->instrs[i].op == FCP_OP_LAUNCH) m->launches[(uint64_t)r * m->rounds + m->plan->instrs[i].c] = i;
    }
    return FCP_OK;
}

fcp_code timeline_measure(const fcp_session *session, const char *typed, arena *memory, timeline *out, fcp_error *err) {
    session = fcp_session_now(session);
    const fcp_plan *plan = session->plan;
    const fcp_times *times = session->times;
    const uint32_t ranks = plan->problem->ranks;
    if (!times) return fcp_fail(err, FCP_E_ARGUMENT, "the session was made without the option timings");
    if (!times->collected && session->rank_count < ranks)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "this process has no timings of the other ranks: fcp_session_timings_collect");
    collector c = {.ranks = &out->ranks};
    measured m = {.session = session, .plan = plan, .to = &c};
    uint64_t *work = ARENA_ZNEW(&c.memory, uint64_t, ranks);
    fcp_code code = work ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    *out = (timeline){.plan = plan, .measured = true};
    snprintf(out->source, sizeof out->source, "%s", session->kind->name);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        for (uint32_t r = 0; times->ran[pass] && r < ranks; r++) {
            m.pass = (fcp_pass)pass;
            uint64_t end = PICOSECONDS * sum_up(&m, r, &work[r]);
            if (end > out->makespan[pass]) out->makespan[pass] = end;
        }
    if (!code) code = trace_ranks_read(plan, typed, work, memory, &out->ranks, err);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        if (!times->ran[pass]) continue;
        m.pass = (fcp_pass)pass;
        code = find_launches(&m, err);
        for (uint32_t i = 0; i < out->ranks.count && !code; i++) {
            const uint32_t r = out->ranks.at[i];
            const fcp_stream *compute = fcp_stream_of(plan, m.pass, r, FCP_COMPUTE),
                             *comm = fcp_stream_of(plan, m.pass, r, FCP_COMM);
            for (uint32_t n = compute->first; n < compute->first + compute->count; n++) measure_compute(&m, r, n, comm);
            for (uint32_t n = comm->first; n < comm->first + comm->count; n++)
                if (plan->instrs[n].op == FCP_OP_LAUNCH) measure_launch(&m, r, n);
        }
    }
    if (!code) code = put_in_order(&c, memory, out, err);
    arena_free(&c.memory);
    return code;
}
