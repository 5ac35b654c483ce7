/* fuse.c: finds which ATTENDs of a rank can be one launch (a run, see fuse.h), and what the lists of that launch need.
 *
 * It goes through a rank's compute queue once. An ATTEND joins the run under way if all of the following holds.
 * Otherwise it begins a new run.
 *   - Every round that it waits for comes before the first round that waits for the run.
 *   - Every round that sends from a slot which the ATTEND writes is complete when the run begins; in the backward pass
 *     also every round that brings something into such a slot. (The CTAs of a run wait by flags. A flag says that
 *     something has arrived, and cannot say that something has been sent.)
 *   - Since the beginning of the run, no MERGE, FINISH, REDUCE, REDUCE_Q or ROUND in the queue has touched its slots.
 *     Such an instruction is done behind the whole run, so the order of additions to a sum would change. Nor has there
 *     been a DELTA, whose result the ATTEND might read.
 *   - Forward: if the run has already visited one of its Q blocks, the visit goes on with the same running state.
 *   - Forward: if another Q block used the same state slot in the run, that block's first and last visit are both in
 *     the run. Its state then never left registers. Otherwise rows of one block would read what rows of the other
 *     write.
 *
 * Does a CTA find the right data in a slot? In the plan an ATTEND's WAIT is for whole instructions of the communication
 * queue, on both fabrics (plan/FORMAT.md); a CTA waits for the flag of one fabric, and only for what it reads.
 *   - Not too early: launches into a slot come in the order of the communication queue. The flag is that of the last
 *     launch into the slot among those that the run waits for.
 *   - Not too late: whatever overwrites a slot that an ATTEND reads waits for this ATTEND, as the verifier has proven.
 *     So it comes behind the run.
 *
 * Requires: a verified plan.
 * Cost:     linear in the rank's instructions, visits and transfers, and in the plan's blocks.
 */
#include "runtime/plan/enum_names.h"
#include "runtime/worklists/fuse.h"

#include <stdlib.h>

#include "runtime/base/grow.h"

static fcp_code no_memory(fcp_error *err) { return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for one launch"); }

static const fcp_instr *instr_of(const fcp_plan *plan, const fcp_stream *stream, uint32_t i) {
    return &plan->instrs[stream->first + i];
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* For each slot that an ATTEND writes, two numbers. touched: one more than the instruction of the compute queue that
 * touched the slot last. sent: one more than the instruction of the communication queue that sent it last. */
struct used {
    uint32_t count, *touched, *sent;
};

/* What an ATTEND writes: forward STATE and O, backward the DKV of its tiles and DQ. */
enum { SUMS, RESULTS, WRITTEN };

struct walk {
    const fcp_plan *plan;
    fcp_pass pass;
    uint32_t rank;
    const fcp_stream *compute, *comm;
    struct used used[WRITTEN];
    uint32_t *visited, *visited_at; /* per Q block: its last visit, and one more than that visit's instruction */
    /* per state slot: the visit with which a Q block began to use it, and one more than that visit's instruction */
    uint32_t *owner, *owner_at;
    uint32_t after;     /* how many instructions of the communication queue the next ATTEND waits for */
    uint32_t listed;    /* so many of them have their sends in `sent` */
    uint32_t settled;   /* so many of them are complete when the run under way begins */
    uint32_t owed;      /* the same of the next run, if none of its own reasons asks for more */
    uint32_t limit, limit_waits; /* the first launch that waits for the run under way, and what it waits for */
    uint32_t delta;              /* one more than the last DELTA so far; 0: there was none */
};

/* A slot that an instruction writes; of: SUMS or RESULTS, or WRITTEN if it is of neither. */
struct place {
    uint32_t of, slot;
};

/* Walks over the slots that a visit writes. False: there are no more. A walk begins with *at 0. */
static bool next_written(const struct walk *w, const fcp_visit *v, uint32_t *at, struct place *out) {
    const bool forward = w->pass == FCP_FORWARD;
    for (const uint32_t count = forward ? 2 : 1 + v->tiles; *at < count;) {
        const uint32_t i = (*at)++;
        if (forward) *out = (struct place){i ? RESULTS : SUMS, i ? v->o_slot : v->state_slot};
        else if (!i) *out = (struct place){RESULTS, v->dq_slot};
        else *out = (struct place){SUMS, w->plan->tiles[v->first_tile + i - 1].dkv_slot};
        if (out->slot != FCP_NONE) return true;
    }
    return false;
}

/* What a transfer moves, if ATTENDs write slots of its class. */
static struct place moved_place(const struct walk *w, const fcp_transfer *t) {
    static const fcp_class classes[FCP_PASSES][WRITTEN] = {[FCP_FORWARD] = {FCP_STATE, FCP_O},
                                                           [FCP_BACKWARD] = {FCP_DKV, FCP_DQ}};
    uint32_t of = SUMS;
    while (of < WRITTEN && t->cls != classes[w->pass][of]) of++;
    return (struct place){of, t->slot};
}

/* The slots that an instruction between ATTENDs touches: where it takes a sum, and where it puts one. False: it is a
 * WAIT or a COPY. */
static bool touches(const struct walk *w, const fcp_instr *x, struct place out[2]) {
    out[0] = (struct place){x->op == FCP_OP_REDUCE_Q || x->op == FCP_OP_ROUND ? RESULTS : SUMS, x->b};
    out[1] = (struct place){WRITTEN, 0};
    switch (x->op) {
    case FCP_OP_MERGE:
    case FCP_OP_REDUCE: out[1] = (struct place){SUMS, x->c}; return true;
    case FCP_OP_REDUCE_Q: out[1] = (struct place){RESULTS, x->c}; return true;
    case FCP_OP_FINISH: out[1] = (struct place){RESULTS, fcp_finish_slot(w->plan, w->rank, x)}; return true;
    case FCP_OP_ROUND: return true;
    case FCP_OP_DELTA: out[0].of = WRITTEN; return true;
    default: return false;
    }
}

static void count_place(struct walk *w, struct place p) {
    if (p.of < WRITTEN && p.slot >= w->used[p.of].count) w->used[p.of].count = p.slot + 1;
}

/* How many slots an instruction of a queue needs to have. */
static void count_slots(struct walk *w, const fcp_instr *x) {
    struct place p[2];
    for (uint32_t v = x->a; x->op == FCP_OP_ATTEND && v < x->a + x->b; v++)
        for (uint32_t at = 0; next_written(w, &w->plan->visits[v], &at, p);) count_place(w, *p);
    for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++)
        count_place(w, moved_place(w, &w->plan->transfers[t]));
    if (!touches(w, x, p)) return;
    count_place(w, p[0]);
    count_place(w, p[1]);
}

static bool open_used(struct used *u) {
    u->touched = calloc((size_t)u->count + 1, sizeof *u->touched);
    u->sent = calloc((size_t)u->count + 1, sizeof *u->sent);
    return u->touched && u->sent;
}

static bool open_walk(struct walk *w, const fcp_plan *plan, fcp_pass pass, uint32_t rank) {
    *w = (struct walk){.plan = plan,
                       .pass = pass,
                       .rank = rank,
                       .compute = fcp_stream_of(plan, pass, rank, FCP_COMPUTE),
                       .comm = fcp_stream_of(plan, pass, rank, FCP_COMM)};
    for (uint32_t i = 0; i < w->compute->count; i++) count_slots(w, instr_of(plan, w->compute, i));
    for (uint32_t i = 0; i < w->comm->count; i++) count_slots(w, instr_of(plan, w->comm, i));
    w->visited = calloc((size_t)plan->blocks_count + 1, sizeof *w->visited);
    w->visited_at = calloc((size_t)plan->blocks_count + 1, sizeof *w->visited_at);
    w->owner = calloc((size_t)w->used[SUMS].count + 1, sizeof *w->owner);
    w->owner_at = calloc((size_t)w->used[SUMS].count + 1, sizeof *w->owner_at);
    bool ok = w->visited && w->visited_at && w->owner && w->owner_at;
    for (int i = 0; i < WRITTEN; i++) ok = open_used(&w->used[i]) && ok;
    return ok;
}

static void close_walk(struct walk *w) {
    free(w->visited);
    free(w->visited_at);
    free(w->owner);
    free(w->owner_at);
    for (int i = 0; i < WRITTEN; i++) {
        free(w->used[i].touched);
        free(w->used[i].sent);
    }
}

/* The next ATTEND waits for the first `after` instructions of the communication queue: notes what these send, and
 * backward also what they bring. */
static void note_sends(struct walk *w, uint32_t after) {
    if (after > w->after) w->after = after;
    for (; w->listed < w->after && w->listed < w->comm->count; w->listed++) {
        const fcp_instr *x = instr_of(w->plan, w->comm, w->listed);
        for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++) {
            const fcp_transfer *transfer = &w->plan->transfers[t];
            const struct place p = moved_place(w, transfer);
            if (p.of == WRITTEN || (w->pass == FCP_FORWARD && transfer->dir != FCP_SEND)) continue;
            w->used[p.of].sent[p.slot] = w->listed + 1;
        }
    }
}

/* How many instructions of the communication queue must be complete before a visit may write its slots. */
static uint32_t sent_before(const struct walk *w, const fcp_visit *v) {
    struct place p;
    uint32_t sent = 0;
    for (uint32_t at = 0; next_written(w, v, &at, &p);)
        if (w->used[p.of].sent[p.slot] > sent) sent = w->used[p.of].sent[p.slot];
    return sent;
}

/* Has an instruction behind number `first` touched the slots of a visit? */
static bool touched_since(const struct walk *w, const fcp_visit *v, uint32_t first) {
    struct place p;
    bool touched = w->delta > first;
    for (uint32_t at = 0; !touched && next_written(w, v, &at, &p);) touched = w->used[p.of].touched[p.slot] > first;
    return touched;
}

/* Forward: does a visit continue the running state of the run's last visit of its Q block? True if there was none. */
static bool goes_on(const struct walk *w, const fcp_visit *v, uint32_t first) {
    if (w->visited_at[v->q_block] <= first) return true;
    const fcp_visit *before = &w->plan->visits[w->visited[v->q_block]];
    return !(v->flags & FCP_VISIT_FIRST) && v->state_slot == before->state_slot && v->q_slot == before->q_slot;
}

/* May a visit use its state slot? If another Q block of the run has used it, that block's state must have stayed in
 * registers. */
static bool has_slot(const struct walk *w, const fcp_visit *v, uint32_t first) {
    if (v->state_slot == FCP_NONE || w->owner_at[v->state_slot] <= first) return true;
    const fcp_visit *before = &w->plan->visits[w->owner[v->state_slot]];
    const fcp_visit *last = &w->plan->visits[w->visited[before->q_block]];
    return before->q_block == v->q_block || (before->flags & FCP_VISIT_FIRST && last->flags & FCP_VISIT_LAST);
}

static bool joins(const struct walk *w, const fcp_fusion_run *run, const fcp_instr *x) {
    bool may = w->after <= w->limit;
    for (uint32_t i = x->a; may && i < x->a + x->b; i++) {
        const fcp_visit *v = &w->plan->visits[i];
        may = sent_before(w, v) <= w->settled && !touched_since(w, v, run->first);
        if (w->pass == FCP_FORWARD) may = may && goes_on(w, v, run->first) && has_slot(w, v, run->first);
    }
    return may;
}

/* Begins a run with an ATTEND. */
static fcp_fusion_run begin_run(struct walk *w, uint32_t at, const fcp_instr *x) {
    fcp_fusion_run run = {.first = at, .last = at};
    w->settled = w->owed;
    for (uint32_t i = x->a; i < x->a + x->b; i++)
        if (sent_before(w, &w->plan->visits[i]) > w->settled) w->settled = w->after;
    w->owed = run.holds = w->settled;
    for (; w->limit < w->comm->count; w->limit++) {
        const fcp_instr *c = instr_of(w->plan, w->comm, w->limit);
        if (c->op == FCP_OP_WAIT && c->a > w->limit_waits) w->limit_waits = c->a;
        if (c->op == FCP_OP_LAUNCH && w->limit_waits > at) break;
    }
    return run;
}

static void note_visits(struct walk *w, fcp_fusion_run *run, uint32_t at, const fcp_instr *x) {
    for (uint32_t i = x->a; w->pass == FCP_FORWARD && i < x->a + x->b; i++) {
        const fcp_visit *v = &w->plan->visits[i];
        const uint32_t slot = v->state_slot;
        w->visited[v->q_block] = i;
        w->visited_at[v->q_block] = at + 1;
        if (slot == FCP_NONE) continue;
        if (w->owner_at[slot] > run->first && w->plan->visits[w->owner[slot]].q_block == v->q_block) continue;
        w->owner[slot] = i;
        w->owner_at[slot] = at + 1;
    }
    run->last = at;
    run->needs = w->after;
}

/* Notes an instruction other than an ATTEND: it comes behind the run under way, when all that was waited for so far is
 * complete. */
static void note_touched(struct walk *w, uint32_t at, const fcp_instr *x) {
    struct place p[2];
    if (!touches(w, x, p)) return;
    if (x->op == FCP_OP_DELTA) w->delta = at + 1;
    for (int i = 0; i < 2; i++)
        if (p[i].of < WRITTEN) w->used[p[i].of].touched[p[i].slot] = at + 1;
    w->owed = w->after;
}

/* Are rounds launched in the order of their numbers? */
static bool in_order(const fcp_plan *plan, const fcp_stream *comm) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < comm->count; i++) {
        const fcp_instr *x = instr_of(plan, comm, i);
        if (x->op != FCP_OP_LAUNCH) continue;
        if (x->c < next) return false;
        next = x->c + 1;
    }
    return true;
}

static fcp_code fail_circle(fcp_pass pass, uint32_t rank, fcp_error *err) {
    return fcp_fail(err, FCP_E_BACKEND,
                    "the %s pass of rank %u cannot be fused: it waits for itself, or its rounds are out of order; "
                    "verify the plan",
                    fcp_pass_names[pass], rank);
}

fcp_code fcp_fusion_runs(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_fusion_run **out_runs,
                         uint32_t *out_count, fcp_error *err) {
    struct walk w;
    uint32_t capacity = 0;
    fcp_code code = open_walk(&w, plan, pass, rank) ? FCP_OK : no_memory(err);
    *out_runs = NULL;
    *out_count = 0;
    if (!code && !in_order(plan, w.comm)) code = fail_circle(pass, rank, err);
    for (uint32_t i = 0; !code && i < w.compute->count; i++) {
        const fcp_instr *x = instr_of(plan, w.compute, i);
        if (x->op == FCP_OP_WAIT) note_sends(&w, fcp_waits_whole(x));
        if (x->op != FCP_OP_ATTEND) {
            note_touched(&w, i, x);
            continue;
        }
        if (!*out_count || !joins(&w, &(*out_runs)[*out_count - 1], x)) {
            if (!FCP_GROW(*out_runs, capacity, *out_count + 1)) code = no_memory(err);
            else (*out_runs)[(*out_count)++] = begin_run(&w, i, x);
        }
        if (!code && w.after > w.limit) code = fail_circle(pass, rank, err);
        if (!code) note_visits(&w, &(*out_runs)[*out_count - 1], i, x);
    }
    close_walk(&w);
    if (!code) return FCP_OK;
    free(*out_runs);
    *out_runs = NULL;
    *out_count = 0;
    return code;
}

uint32_t fcp_fusion_round(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_fusion_run *run) {
    const fcp_stream *comm = fcp_stream_of(plan, pass, rank, FCP_COMM);
    for (uint32_t i = run->needs; i-- > 0;)
        if (instr_of(plan, comm, i)->op == FCP_OP_LAUNCH) return instr_of(plan, comm, i)->c;
    return FCP_NONE;
}

/* --- what the lists of a run need to know ------------------------------------------------------------------------- */

/* A position in the visits of a run's ATTENDs. */
typedef struct visit_walk {
    uint32_t instr, visit;
} visit_walk;

/* Gives the next visit. False: there are no more. */
static bool next_visit(const fcp_plan *plan, const fcp_stream *compute, const fcp_fusion_run *run, visit_walk *at,
                       uint32_t *out_visit) {
    for (; at->instr <= run->last; at->instr++, at->visit = 0) {
        const fcp_instr *x = instr_of(plan, compute, at->instr);
        if (x->op != FCP_OP_ATTEND || at->visit == x->b) continue;
        *out_visit = x->a + at->visit++;
        return true;
    }
    return false;
}

/* Lists the run's visits, by Q block in the order in which the plan first comes to them. */
static fcp_code list_visits(fcp_fusion *out, const fcp_arena *a, const fcp_fusion_run *run, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, a->pass, a->rank, FCP_COMPUTE);
    const visit_walk begin = {.instr = run->first};
    /* of each Q block: how many visits it has; and one more than the place where the next of them goes */
    uint32_t *counts = calloc(plan->blocks_count + 1, sizeof *counts);
    uint32_t *places = calloc(plan->blocks_count + 1, sizeof *places);
    uint32_t v, place = 1;
    bool ok = counts && places;
    for (visit_walk at = begin; ok && next_visit(plan, compute, run, &at, &v); out->visit_count++)
        counts[plan->visits[v].q_block]++;
    out->visits = malloc((out->visit_count + (size_t)1) * sizeof *out->visits);
    ok = ok && out->visits;
    for (visit_walk at = begin; ok && next_visit(plan, compute, run, &at, &v);) {
        const uint32_t block = plan->visits[v].q_block;
        if (!places[block]) {
            places[block] = place;
            place += counts[block];
        }
        out->visits[places[block]++ - 1] = v;
    }
    free(counts);
    free(places);
    return ok ? FCP_OK : no_memory(err);
}

/* Which launch brings each slot that the run waits for by flags. */
static void list_arrivals(fcp_fusion *out, const fcp_arena *a, const fcp_fusion_run *run) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *comm = fcp_stream_of(plan, a->pass, a->rank, FCP_COMM);
    for (uint32_t i = run->holds; i < run->needs; i++) {
        const fcp_instr *x = instr_of(plan, comm, i);
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            uint32_t *arrivals = t->cls == FCP_KV ? out->kv : t->cls == FCP_Q ? out->q : NULL;
            if (arrivals && t->dir == FCP_RECV && t->slot >= a->homes)
                arrivals[t->slot - a->homes] = fcp_fusion_flag(i, t->fabric);
        }
    }
}

fcp_code fcp_fusion_make(fcp_fusion *out, const fcp_arena *a, const fcp_fusion_run *run, fcp_error *err) {
    *out = (fcp_fusion){.run = *run, .homes = a->homes};
    out->kv = calloc(a->slots.count[FCP_KV] + 1, sizeof *out->kv);
    out->q = calloc(a->slots.count[FCP_Q] + 1, sizeof *out->q);
    if (out->kv && out->q) list_arrivals(out, a, run);
    fcp_code code = out->kv && out->q ? list_visits(out, a, run, err) : no_memory(err);
    if (code) fcp_fusion_free(out);
    return code;
}

void fcp_fusion_free(fcp_fusion *f) {
    free(f->visits);
    free(f->kv);
    free(f->q);
    *f = (fcp_fusion){0};
}

/* --- what fused passes come to ------------------------------------------------------------------------------------ */

/* Adds a run to the totals. of_block, of_range: the number of the last run that had each. */
static void count_run(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_fusion_run *run, uint32_t number,
                      uint32_t *of_block, uint32_t *of_range, fcp_fusion_totals *out) {
    const fcp_stream *compute = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
    uint32_t v;
    for (visit_walk at = {.instr = run->first}; next_visit(plan, compute, run, &at, &v);) {
        const fcp_visit *visit = &plan->visits[v];
        const fcp_block *block = &plan->blocks[visit->q_block];
        out->launches += of_range[block->heads] != number;
        of_range[block->heads] = number;
        if (pass == FCP_BACKWARD) continue;
        if (of_block[visit->q_block] != number) /* its state is written, unless a visit is its last; it may be read */
            out->state_tokens += visit->flags & FCP_VISIT_FIRST ? block->tokens : 2ull * block->tokens;
        of_block[visit->q_block] = number;
        if (visit->flags & FCP_VISIT_LAST) out->state_tokens -= block->tokens;
    }
}

fcp_code fcp_fusion_count(const fcp_plan *plan, fcp_pass pass, fcp_fusion_totals *out, fcp_error *err) {
    uint32_t *of_block = calloc(plan->blocks_count + 1, sizeof *of_block), number = 0;
    uint32_t *of_range = calloc(plan->heads_count + 1, sizeof *of_range);
    fcp_code code = of_block && of_range ? FCP_OK : no_memory(err);
    uint64_t most = 0;
    *out = (fcp_fusion_totals){0};
    for (uint32_t rank = 0; !code && rank < plan->problem->ranks; rank++) {
        fcp_fusion_run *runs;
        uint32_t count;
        out->launches = 0;
        code = fcp_fusion_runs(plan, pass, rank, &runs, &count, err);
        for (uint32_t i = 0; i < count; i++) count_run(plan, pass, rank, &runs[i], ++number, of_block, of_range, out);
        if (out->launches > most) most = out->launches;
        free(runs);
    }
    out->launches = most;
    free(of_block);
    free(of_range);
    return code;
}
