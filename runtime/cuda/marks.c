/* marks.c: how far each queue of each rank has come, as the devices write it, so that an error can name the place.
 *
 * Each queue of each rank has a word in host memory, which the device writes: the instruction that the queue has
 * begun last. The host can read it at any time, also while a stream hangs. A kernel writes its word itself
 * (fk_begin). Instructions of the communication queue, reductions that are copies, and the end of a queue are written
 * by a fill of one word in the stream.
 *
 * Requires: open devices, and ranks.
 * Gives:    marks.h.
 * Method:   if everything has stopped, some rank is not waiting for any other. Who waits for whom? A communication
 *           queue in a LAUNCH waits for those ranks of the launch that have not come to its round. A communication
 *           queue in a WAIT waits for its own compute queue, which then has not finished what it began last:
 *           otherwise the WAIT would be over, since a plan has no cycles. Of the ranks that wait for nobody, the one
 *           in the earliest stage is named. If things still move, the answer is who is furthest behind, and not who
 *           is to blame.
 * Cost:     one fill for a run. In a pass, and so in its graph, a fill for each WAIT and LAUNCH of a communication
 *           queue, one for each REDUCE that copies, and two for each rank at the end. Reading is linear in what the
 *           queues have left.
 */
#include "runtime/cuda/marks.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cuda/device.h"
#include "runtime/exec/where.h"

/* A word is the pass, and the number of the instruction that was begun, counted from 1. At the end of the queue the
 * number is one more than there are instructions. BEFORE: the run has begun, but none of its instructions. 0: nothing
 * has ever run. */
enum { PASS_SHIFT = 30, INSTR_MASK = (1u << PASS_SHIFT) - 1 };
#define BEFORE (1u << 31)

static uint32_t word_of(const fcp_cuda_session *s, uint32_t rank, fcp_queue queue) {
    const volatile uint32_t *marks = s->marks;
    return marks[(rank - s->base.first_rank) * FCP_QUEUES + (uint32_t)queue];
}

size_t fcp_cuda_marks_pinned(const fcp_cuda_session *s) {
    return (size_t)s->base.rank_count * FCP_QUEUES * sizeof *s->marks;
}

fcp_code fcp_cuda_marks_open(fcp_cuda_session *s, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    size_t bytes = fcp_cuda_marks_pinned(s);
    void *memory = NULL;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->allocate_host(&memory, bytes, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), err,
                              "no %zu bytes of host memory that devices reach", bytes);
    if (code) return code;
    s->marks = memory;
    memset(memory, 0, bytes);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        code = fcp_cuda_use(s, &s->devices[i], err);
        if (!code)
            code = fcp_cuda_check(s->cuda, call->device_pointer(&s->devices[i].marks, memory, 0), err,
                                  "device %d does not reach memory of the host", s->devices[i].handle);
    }
    return code;
}

void fcp_cuda_marks_close(fcp_cuda_session *s) {
    if (s->marks) s->cuda->call.release_host(s->marks);
    s->marks = NULL;
}

cu_ptr fcp_cuda_mark_at(const fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue) {
    uint32_t index = (uint32_t)(rank - s->ranks) - s->base.first_rank;
    return rank->device->marks + (index * FCP_QUEUES + (uint32_t)queue) * sizeof *s->marks;
}

uint32_t fcp_cuda_mark_value(fcp_pass pass, uint32_t instr) {
    return (uint32_t)pass << PASS_SHIFT | ((instr + 1) & INSTR_MASK);
}

fcp_code fcp_cuda_mark(fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue, uint32_t value, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.fill(fcp_cuda_mark_at(s, rank, queue), value, 1, rank->streams[queue]),
                          err, "cannot mark progress");
}

fcp_code fcp_cuda_marks_begin(fcp_cuda_session *s, fcp_pass pass, const cuda_device *d, cu_stream origin,
                              fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, d, err);
    if (code) return code;
    return fcp_cuda_check(s->cuda,
                          s->cuda->call.fill(d->marks, (uint32_t)pass << PASS_SHIFT | BEFORE,
                                             (size_t)s->base.rank_count * FCP_QUEUES, origin),
                          err, "cannot mark progress");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

bool fcp_cuda_where(const fcp_cuda_session *s, uint32_t rank, fcp_queue queue, fcp_cuda_place *out) {
    if (!s->marks || rank < s->base.first_rank || rank >= fcp_cuda_end(s)) return false;
    uint32_t word = word_of(s, rank, queue), number = word & INSTR_MASK;
    fcp_pass pass = word >> PASS_SHIFT & 1 ? FCP_BACKWARD : FCP_FORWARD;
    if (!word || !(s->plan->problem->passes >> pass & 1)) return false;
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, queue);
    *out = (fcp_cuda_place){.rank = rank, .pass = pass, .queue = queue, .round = FCP_NONE};
    out->progress = word & BEFORE ? FCP_CUDA_BEFORE : number > stream->count ? FCP_CUDA_BEHIND : FCP_CUDA_IN;
    if (!stream->count) return true;
    out->instr = out->progress == FCP_CUDA_BEFORE ? 0 : out->progress == FCP_CUDA_IN ? number - 1 : stream->count - 1;
    const fcp_instr *x = &s->plan->instrs[stream->first + out->instr];
    out->op = (fcp_op)x->op;
    out->stage = x->stage;
    if (x->op == FCP_OP_LAUNCH) out->round = x->c;
    return true;
}

/* Has a rank begun its LAUNCH of a round, or is it past it? */
static bool has_come(const fcp_cuda_session *s, uint32_t rank, fcp_pass pass, uint32_t round) {
    fcp_cuda_place at;
    if (!fcp_cuda_where(s, rank, FCP_COMM, &at) || at.pass != pass)
        return true; /* a rank of another process: nobody knows */
    if (at.progress == FCP_CUDA_BEHIND) return true;
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, FCP_COMM);
    for (uint32_t i = at.instr; i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        if (x->op == FCP_OP_LAUNCH && x->c == round) return i == at.instr && at.progress == FCP_CUDA_IN;
    }
    return true;
}

/* Finds the queue of a rank that waits for nothing but itself. False: there is none, or both have ended. */
static bool own_fault(const fcp_cuda_session *s, uint32_t rank, fcp_cuda_place *out) {
    fcp_cuda_place compute, comm;
    if (!fcp_cuda_where(s, rank, FCP_COMPUTE, &compute) || !fcp_cuda_where(s, rank, FCP_COMM, &comm)) return false;
    bool ended = compute.progress == FCP_CUDA_BEHIND;
    *out = comm;
    if (comm.progress == FCP_CUDA_BEHIND || (comm.progress == FCP_CUDA_IN && comm.op == FCP_OP_WAIT)) {
        if (!ended) *out = compute;
        return !ended || comm.progress != FCP_CUDA_BEHIND;
    }
    if (comm.progress == FCP_CUDA_BEFORE) return true;
    const fcp_instr *x = &s->plan->instrs[fcp_stream_of(s->plan, comm.pass, rank, FCP_COMM)->first + comm.instr];
    for (uint32_t i = x->a; i < x->a + x->b; i++)
        if (!has_come(s, s->plan->transfers[i].peer, comm.pass, comm.round)) return false;
    return true;
}

bool fcp_cuda_furthest(const fcp_cuda_session *s, fcp_cuda_place *out) {
    bool found = false;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++) {
        fcp_cuda_place at;
        if (!own_fault(s, r, &at)) continue;
        bool begun = at.progress != FCP_CUDA_BEFORE, out_begun = found && out->progress != FCP_CUDA_BEFORE;
        if (!found || begun < out_begun || (begun == out_begun && at.stage < out->stage)) *out = at;
        found = true;
    }
    return found;
}

/* Are all queues before their first instruction, or all after their last? */
static bool all_are(const fcp_cuda_session *s, fcp_cuda_progress progress) {
    fcp_cuda_place at;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
        for (int q = 0; q < FCP_QUEUES; q++)
            if (!fcp_cuda_where(s, r, (fcp_queue)q, &at) || at.progress != progress) return false;
    return true;
}

static fcp_where where_of(const fcp_cuda_session *s, const fcp_cuda_place *at) {
    return fcp_where_instruction(s->plan, at->pass, at->rank, at->queue, at->instr);
}

void fcp_cuda_place_text(const fcp_cuda_session *s, const fcp_cuda_place *at, char text[FCP_CUDA_PLACE]) {
    const fcp_where where = where_of(s, at);
    const char *before = at->progress == FCP_CUDA_IN ? "" : at->progress == FCP_CUDA_BEFORE ? "before " : "behind ";
    int n = fcp_where_text(s->plan, &where, before, text, FCP_CUDA_PLACE);
    if (at->round == FCP_NONE) return;
    const fcp_instr *x = &s->plan->instrs[fcp_stream_of(s->plan, at->pass, at->rank, at->queue)->first + at->instr];
    n += snprintf(text + n, FCP_CUDA_PLACE - (size_t)n, ", round %u", at->round);
    for (uint32_t i = 0; i < x->b && i < 2; i++) /* one that is sent and one that is received */
        if (!i || s->plan->transfers[x->a + i].peer != s->plan->transfers[x->a].peer)
            n += snprintf(text + n, FCP_CUDA_PLACE - (size_t)n, "%s %u", i ? " and" : " with rank",
                          s->plan->transfers[x->a + i].peer);
}

fcp_code fcp_cuda_fail_where(const fcp_cuda_session *s, fcp_code code, fcp_error *err) {
    fcp_cuda_place at;
    fcp_where where = FCP_WHERE_NONE;
    char text[FCP_CUDA_PLACE];
    if (!s->marks || !err || err->where.rank != FCP_NOWHERE) return code;
    if (!fcp_cuda_where(s, s->base.first_rank, FCP_COMM, &at)) { /* nothing has ever run */
        if (s->base.rank_count != 1) return code;
        return fcp_fail_at(err, code, fcp_where_rank(s->base.first_rank), "rank %u: %.500s", s->base.first_rank,
                           err->message);
    }
    bool one = s->base.rank_count == 1, before = !one && all_are(s, FCP_CUDA_BEFORE),
         behind = !one && all_are(s, FCP_CUDA_BEHIND);
    if (before || behind) {
        where.pass = (uint32_t)at.pass;
        snprintf(text, sizeof text, before ? "%s pass, before every instruction, while inputs are moved"
                                           : "%s pass, behind every instruction, while outputs are moved",
                                           fcp_pass_names[at.pass]);
    } else {
        if (!fcp_cuda_furthest(s, &at) && !one) return code; /* a single rank that has ended is at its end */
        where = where_of(s, &at);
        fcp_cuda_place_text(s, &at, text);
    }
    return fcp_fail_at(err, code, where, "%s: %.300s", text, err->message);
}
