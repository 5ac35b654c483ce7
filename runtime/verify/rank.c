/* rank.c: runs one rank's two queues symbolically: it checks each instruction against what lies in the rank's slots.
 *
 * Requires: checked tables; launches that fit together (match.c); visits that hold each tile once, and ATTENDs that
 *           name each visit once (verify.c).
 * Proves:   - Both queues run to their ends.
 *           - Whatever an instruction reads is in the slot that it names, whole, and ordered after what wrote it;
 *             nothing is overwritten before what reads it has completed; everything received is used (held.h).
 *           - Every partial result is added or sent on, once, and in order (partial.h).
 *           - Visits have the right flags and slots, and every result comes home once (check_compute.c).
 *           - Tokens are brought in before use and taken out after the last use.
 *           - Launches keep to `buffers`.
 * Method:   - The queues are run in one order that respects the waits. One order is enough: any two accesses of a slot
 *             of which one writes must be ordered by waits, so in every other order each access finds the same
 *             contents.
 *           - What is ordered follows from the WAITs. Example: communication instruction 4 is a WAIT for the first 3
 *             compute instructions. Then compute instructions 0 to 2 come before communication instruction 4 and all
 *             after it. A WAIT of the compute queue names a number for each fabric, and orders only what the
 *             communication instructions below that number move over that fabric.
 *           - When the queues are run, a WAIT that asks for more over one fabric than over the other counts as if it
 *             asked for the larger number over both. If these stronger waits have no cycle, those of the plan have
 *             none.
 *           - A receive is taken to bring what it names. It does, because both sides agree on block, tokens and class
 *             (match.c), and the sender's own run proves that the sender has these tokens.
 * Cost:     linear in the rank's instructions, transfers, visits and tiles.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/carve.h"
#include "runtime/plan/bytes.h"
#include "runtime/verify/held.h"
#include "runtime/verify/partial.h"

/* Which classes have slots in a pass, and of which kind they are. */
enum { IS_HELD = 1, IS_PARTIAL = 2 };
static const uint8_t kinds[FCP_PASSES][FCP_CLASSES] = {
    [FCP_FORWARD] = {[FCP_KV] = IS_HELD, [FCP_Q] = IS_HELD, [FCP_STATE] = IS_PARTIAL, [FCP_O] = IS_HELD},
    [FCP_BACKWARD] = {[FCP_KV] = IS_HELD, [FCP_Q] = IS_HELD, [FCP_DKV] = IS_PARTIAL, [FCP_DQ] = IS_PARTIAL,
                      [FCP_DQW] = IS_HELD}};

fcp_code fcp_verify_here(const run *r, fcp_code code, fcp_queue q, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fcp_verify_vfail(r->v, code, r->rank, q, r->done[q], format, args);
    va_end(args);
    return code;
}

/* --- computing queue ---------------------------------------------------------------------------------------------- */

static fcp_code copy(run *r, const fcp_instr *x) {
    r->v->named += x->b;
    for (const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b; t < end; t++) {
        if ((t->cls != FCP_IN && t->cls != FCP_OUT) || t->peer != r->rank)
            return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "transfer %zu is no copy: class %u, peer %u",
                        (size_t)(t - r->plan->transfers), t->cls, t->peer);
        if (!fcp_at_caller(t))
            return fail(r, FCP_E_VERIFY_LAYOUT, FCP_COMPUTE, "copy %zu is listed as the home's side",
                        (size_t)(t - r->plan->transfers));
        fcp_code code = t->cls == FCP_IN ? fcp_verify_bring_in(r, FCP_COMPUTE, t)
                                         : fcp_verify_take_out(r, FCP_COMPUTE, t);
        if (code) return code;
    }
    return FCP_OK;
}

/* --- communication queue ------------------------------------------------------------------------------------------ */

/* Checks that a launch of stage t waits for every ATTEND of stage t - buffers or earlier. Stages do not decrease on
 * either queue, so a pointer that only moves forward finds the last of these ATTENDs. */
static inline fcp_code check_buffers(run *r, const fcp_instr *x) {
    if (x->stage == r->buffered) return FCP_OK; /* since the first launch of the stage the queue knows no less */
    const fcp_instr *compute = r->instr[FCP_COMPUTE];
    uint64_t buffers = r->v->p->buffers;
    for (; r->compute_scan < r->count[FCP_COMPUTE] && compute[r->compute_scan].stage + buffers <= x->stage;
         r->compute_scan++)
        if (compute[r->compute_scan].op == FCP_OP_ATTEND) r->computed = r->compute_scan + 1;
    r->buffered = x->stage;
    if (r->computed <= r->known[BY_COMPUTE]) return FCP_OK;
    return fail(r, FCP_E_VERIFY_ORDER, FCP_COMM,
                "with %u buffers it must wait for compute instruction %u (stage %u), and waits for %u",
                r->v->p->buffers, r->computed - 1, compute[r->computed - 1].stage, r->known[BY_COMPUTE]);
}

/* match.c has checked that the kind of the round and the class of each transfer go together. */
static fcp_code launch(run *r, const fcp_instr *x, uint32_t kind) {
    const fcp_transfer *t = r->plan->transfers + x->a, *end = t + x->b;
    const uint8_t *kind_of = kinds[r->v->pass];
    fcp_code code;
    if (kind == FCP_ROUND_IN || kind == FCP_ROUND_OUT) {
        for (; t < end; t++) {
            if (fcp_at_caller(t)) continue; /* match.c: the home's side says the same */
            code = kind == FCP_ROUND_IN ? fcp_verify_bring_in(r, FCP_COMM, t) : fcp_verify_take_out(r, FCP_COMM, t);
            if (code) return code;
        }
        return FCP_OK;
    }
    if ((code = check_buffers(r, x))) return code;
    for (; t < end; t++) {
        prefetch_block(r->plan, t);
        if (kind_of[t->cls] == IS_HELD)
            code = t->dir == FCP_SEND ? fcp_verify_send_held(r, t) : fcp_verify_receive_held(r, t);
        else
            code = t->dir == FCP_SEND ? fcp_verify_send_partial(r, t) : fcp_verify_receive_partial(r, t, x->c);
        if (code) return code;
    }
    return FCP_OK;
}

/* --- both queues -------------------------------------------------------------------------------------------------- */

static fcp_code compute_step(run *r, const fcp_instr *x) {
    switch (x->op) {
    case FCP_OP_COPY: return copy(r, x);
    case FCP_OP_DELTA: return fcp_verify_delta(r, x);
    case FCP_OP_ATTEND: return fcp_verify_attend(r, x);
    case FCP_OP_REDUCE:
    case FCP_OP_REDUCE_Q:
    case FCP_OP_MERGE: return fcp_verify_add(r, x);
    case FCP_OP_FINISH: return fcp_verify_finish(r, x);
    case FCP_OP_ROUND: return fcp_verify_round(r, x);
    default: return fail(r, FCP_E_VERIFY_ORDER, FCP_COMPUTE, "not an instruction of this queue");
    }
}

/* What a queue knows of the other one after a WAIT. */
static inline void learn(run *r, fcp_queue q, const fcp_instr *x) {
    uint32_t *known = r->known;
    if (q == FCP_COMM) {
        known[BY_COMPUTE] = x->a > known[BY_COMPUTE] ? x->a : known[BY_COMPUTE];
        return;
    }
    known[OVER_NET] = x->a > known[OVER_NET] ? x->a : known[OVER_NET];
    known[OVER_LOCAL] = x->b > known[OVER_LOCAL] ? x->b : known[OVER_LOCAL];
}

/* Runs one queue as far as it goes. */
static fcp_code advance(run *r, fcp_queue q) {
    enum { AHEAD = 64 };
    const fcp_queue other = q == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE;
    const fcp_instr *x = r->instr[q] + r->done[q], *end = r->instr[q] + r->count[q];
    for (; x < end; x++, r->done[q]++) {
        fcp_code code = FCP_OK;
        __builtin_prefetch(x + AHEAD);
        const uint32_t stage = x->stage;
        if (stage < r->stage[q]) return fail(r, FCP_E_VERIFY_ORDER, q, "comes after one of stage %u", r->stage[q]);
        r->stage[q] = stage;
        if (x->op == FCP_OP_WAIT) {
            const uint32_t whole = fcp_waits_whole(x);
            if (whole > r->count[other])
                return fail(r, FCP_E_VERIFY_DEADLOCK, q, "waits for %u instructions of a queue that has %u", whole,
                            r->count[other]);
            if (whole > r->done[other]) return FCP_OK;
            learn(r, q, x);
        } else {
            code = q == FCP_COMPUTE ? compute_step(r, x) : launch(r, x, r->rounds[x->c].kind);
        }
        if (code) return code;
    }
    return FCP_OK;
}

static fcp_code execute(run *r) {
    while (r->done[FCP_COMPUTE] < r->count[FCP_COMPUTE] || r->done[FCP_COMM] < r->count[FCP_COMM]) {
        uint64_t before = (uint64_t)r->done[FCP_COMPUTE] + r->done[FCP_COMM];
        fcp_code code = advance(r, FCP_COMPUTE);
        if (!code) code = advance(r, FCP_COMM);
        if (code) return code;
        if ((uint64_t)r->done[FCP_COMPUTE] + r->done[FCP_COMM] != before) continue;
        /* both queues are at a WAIT: if one had ended, the other could go on */
        return fail(r, FCP_E_VERIFY_DEADLOCK, FCP_COMM,
                    "waits for %u compute instructions, and compute instruction %u for %u of this queue: a cycle",
                    r->instr[FCP_COMM][r->done[FCP_COMM]].a, r->done[FCP_COMPUTE],
                    fcp_waits_whole(&r->instr[FCP_COMPUTE][r->done[FCP_COMPUTE]]));
    }
    return FCP_OK;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* The most slots of a class that a rank can use, counted before the queues run. There is one for each home block, and
 * one for each thing that could use a transient slot:
 *   - a receive fills it;
 *   - what was computed into it is then sent, rounded or merged into another slot: one for each such transfer or
 *     instruction. A chain of state that ends at its home is covered by the home block.
 * SPARE more are allowed, so that a plan that lacks a transfer is reported as such, and not as having a slot too
 * many. */
static uint32_t slot_room(const verifier *v, uint32_t rank, fcp_class cls) {
    enum { SPARE = 16 };
    const rank_moves *m = &v->moves[rank];
    uint64_t moved = (uint64_t)m->count[cls][FCP_RECV] + (cls == FCP_KV || cls == FCP_Q ? 0 : m->count[cls][FCP_SEND]);
    if (cls == FCP_STATE) moved += (uint64_t)m->count[FCP_O][FCP_SEND] + m->merges;
    if (cls == FCP_DQ) moved += m->count[FCP_DQW][FCP_SEND];
    bool of_whole = v->any_whole && (cls == FCP_O || cls == FCP_DQ || cls == FCP_DQW);
    bool spare = cls != FCP_STATE && (of_whole || v->facts.moves[cls]);
    uint64_t room = v->homes[rank] + moved + (spare ? SPARE : 0);
    return room < FCP_NONE ? (uint32_t)room : FCP_NONE - 1;
}

static void start(run *r) {
    const fcp_plan *plan = r->plan;
    rank_buffers *b = r->b;
    const uint8_t *kind = kinds[r->v->pass];
    for (uint32_t h = 0; h < r->homes; h++)
        b->held[FCP_KV][h] = (held_slot){.block = r->blocks[h], .left = plan->blocks[r->blocks[h]].tokens};
    memset(b->home, 0, r->homes * sizeof *b->home);
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        if (kind[cls] == IS_PARTIAL && (cls == FCP_DKV || (cls == FCP_DQ && r->v->facts.moves[FCP_DQ])))
            for (uint32_t h = 0; h < r->homes; h++)
                b->partial[cls][h] = (partial_slot){.block = r->blocks[h], .kind = ADDING};
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        if (!kind[cls]) continue;
        r->room[cls] = slot_room(r->v, r->rank, (fcp_class)cls);
        r->used[cls] = r->first[cls] = cls == FCP_STATE ? 0 : r->homes;
        const uint32_t first = r->first[cls], end = r->room[cls];
        held_slot *held = b->held[cls];
        partial_slot *partial = b->partial[cls];
        for (uint32_t s = first; held && s < end; s++) held[s] = (held_slot){.block = FCP_NONE, .left = 1};
        for (uint32_t s = first; partial && s < end; s++) partial[s] = (partial_slot){.block = FCP_NONE};
    }
}

/* Nothing may be left over at the end. Then the rank's memory. */
static fcp_code finish(run *r) {
    verifier *v = r->v;
    pass_facts *facts = &v->facts;
    const uint8_t *kind = kinds[v->pass];
    for (int q = 0; q < FCP_QUEUES; q++)
        if (r->stage[q] > facts->last_stage) facts->last_stage = r->stage[q];
    fcp_code code = v->pass == FCP_BACKWARD ? fcp_verify_deltas(r) : FCP_OK;
    uint64_t slots[FCP_CLASSES] = {0};
    uint32_t unused = FCP_NONE;
    for (int cls = 0; cls < FCP_CLASSES && !code; cls++) {
        if (!kind[cls]) continue;
        slots[cls] = r->used[cls] - r->first[cls];
        if (kind[cls] == IS_PARTIAL) code = fcp_verify_nothing_left(r, (fcp_class)cls);
        for (uint32_t s = r->first[cls]; s < r->used[cls]; s++) {
            if (kind[cls] == IS_HELD) fcp_verify_leave(r, (fcp_class)cls, &r->b->held[cls][s]);
            if ((kind[cls] == IS_HELD ? r->b->held[cls][s].block : r->b->partial[cls][s].block) == FCP_NONE) unused = s;
        }
    }
    if (code) return code;
    if (unused != FCP_NONE && !v->late.code)
        fcp_verify_fail_rank(v, &v->late, FCP_E_VERIFY_MEMORY, r->rank, ": nothing ever lies in slot %u", unused);
    uint64_t transient = slots[FCP_KV] + slots[FCP_DKV];
    if (transient > facts->slots_max) facts->slots_max = transient;
    uint64_t bytes = fcp_rank_memory(v->p, v->pass, v->home_tokens[FCP_QUERIES][r->rank],
                                     v->home_tokens[FCP_KEYS][r->rank], slots);
    if (bytes > facts->memory_peak) facts->memory_peak = bytes;
    if (bytes > v->p->memory_cap && !v->late.code)
        fcp_verify_fail_rank(v, &v->late, FCP_E_VERIFY_MEMORY, r->rank, ": %llu bytes are needed, and the cap is %llu",
                             (unsigned long long)bytes, (unsigned long long)v->p->memory_cap);
    return FCP_OK;
}

fcp_code fcp_verify_buffers(const verifier *v, rank_buffers *out) {
    const uint8_t *kind = kinds[v->pass];
    size_t homes = 1, count = 0;
    fcp_carved tables[FCP_CLASSES + 2];
    *out = (rank_buffers){.guests = 1};
    for (uint32_t r = 0; r < v->p->ranks; r++)
        if (v->homes[r] > homes) homes = v->homes[r];
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        if (cls < FCP_IN && cls != FCP_KV && cls != FCP_DKV && v->facts.moves[cls])
            out->guests = (uint32_t)v->plan->blocks_count;
        if (!kind[cls]) continue;
        size_t room = 1;
        for (uint32_t r = 0; r < v->p->ranks; r++) {
            size_t n = slot_room(v, r, (fcp_class)cls);
            if (n > room) room = n;
        }
        if (kind[cls] == IS_HELD) tables[count++] = (fcp_carved){&out->held[cls], room, sizeof *out->held[cls]};
        else tables[count++] = (fcp_carved){&out->partial[cls], room, sizeof *out->partial[cls]};
    }
    tables[count++] = (fcp_carved){&out->home, homes, sizeof *out->home};
    tables[count++] = (fcp_carved){&out->guest, out->guests, sizeof *out->guest};
    out->room = fcp_carve(tables, count);
    return out->room ? FCP_OK : fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a rank's slots");
}

fcp_code fcp_verify_rank(verifier *v, rank_buffers *b, uint32_t rank) {
    run r = {.v = v,
             .plan = v->plan,
             .b = b,
             .rank = rank,
             .homes = v->homes[rank],
             .blocks = v->home_blocks + v->home_first[rank],
             .rounds = v->plan->rounds + v->plan->round_starts[v->pass],
             .buffered = FCP_NONE};
    for (int q = 0; q < FCP_QUEUES; q++) {
        const fcp_stream *s = fcp_stream_of(v->plan, v->pass, rank, (fcp_queue)q);
        r.instr[q] = v->plan->instrs + s->first;
        r.count[q] = s->count;
    }
    start(&r);
    fcp_code code = execute(&r);
    return code ? code : finish(&r);
}
