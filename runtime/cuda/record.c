/* record.c: puts a pass of this process's ranks into their streams.
 *
 * Each rank has two queues in the plan, compute and communication. They become two streams, or three: with transfers
 * over two fabrics, communication has a stream for each (runtime/plan/fabrics.c). What instructions become:
 *   LAUNCH          a group of the transport, which is complete when all its transfers are in streams
 *   WAIT            for the first n instructions of the other queue: a wait for an event that was recorded after the
 *                   n-th. With two communication streams, a WAIT of the compute queue waits for an event in each, and a
 *                   WAIT of the communication queue makes both streams wait
 *   IN, OUT, COPY   nothing here. Home blocks have their inputs before the pass, and results are taken from them
 *                   afterwards (or earlier, see early.c)
 *   others          what compute_queue.c makes of them: kernels, mostly
 *
 * Requires: a verified plan, whose waits have no cycle; work lists and arenas on the devices.
 * Method:   it goes through all queues in turns, each as far as possible: until an instruction waits for something that
 *           is not in a stream yet. This order decides only when the host makes a call; what has to run after what
 *           follows from the plan.
 * Cost:     linear in instructions and transfers, times the transfers of a launch.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/enum_names.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/exec/error_place.h"
#include "runtime/worklists/fuse.h"
#include "runtime/plan/fabrics.h"

typedef struct queue {
    uint32_t at;      /* how many of its instructions are done */
    cu_event *done;   /* for each instruction that is awaited: recorded after it */
    cu_event *over_net; /* of a communication queue with two streams: the same in that for net, and `done` of local */
    /* for each instruction: does a WAIT of the other queue, or a transfer over the other fabric, wait for it? In a
     * communication queue with two streams it says in which, with a bit for each fabric */
    uint8_t *awaited;
} queue;

typedef struct walk {
    queue queues[FCP_QUEUES];
    bool launched;         /* a launch is under way */
    fcp_wires wires;       /* its transfers */
    uint32_t attend;       /* how many launches of ATTENDs are done */
    uint32_t owed[FCP_FABRICS]; /* fused: so far in the other queue computing has yet to wait, over each fabric */
    /* what transfers of its launches wait for in the other fabric's stream (runtime/plan/fabrics.h) */
    uint32_t (*across)[FCP_FABRICS];
    cu_event prepared;     /* if results leave early: recorded after what the pass begins with */
} walk;

typedef struct recorder {
    fcp_cuda_session *s;
    const fcp_plan *plan;
    fcp_pass pass;
    walk *walks;
} recorder;

/* --- walking ------------------------------------------------------------------------------------------------------ */

/* Lets the device write that a queue has come to its next instruction, or to its end. */
static fcp_code mark(recorder *x, uint32_t rank, fcp_queue q, fcp_error *err) {
    return fcp_cuda_mark(x->s, &x->s->ranks[rank], q, fcp_cuda_mark_value(x->pass, x->walks[rank].queues[q].at), err);
}

/* Lets the transfers of the next launch wait for those over the other fabric that must have ended. */
static fcp_code wait_across(recorder *x, uint32_t rank, fcp_error *err) {
    const walk *w = &x->walks[rank];
    const queue *k = &w->queues[FCP_COMM];
    const cuda_rank *r = &x->s->ranks[rank];
    fcp_code code = FCP_OK;
    for (int f = 0; w->across && !code && f < FCP_FABRICS; f++) {
        const uint32_t count = w->across[k->at][f];
        const cu_event *ends = f == FCP_NET ? k->done : k->over_net;
        if (count) code = fcp_cuda_event_await(x->s, fcp_cuda_fabric_stream(r, (unsigned)f), ends[count - 1], err);
    }
    return code;
}

/* Lets both streams of communication wait for the first `count` instructions of the compute queue. */
static fcp_code await_work(recorder *x, cuda_rank *r, const queue *compute, uint32_t count, fcp_error *err) {
    cu_stream net = r->streams[CUDA_NET];
    fcp_code code = fcp_cuda_event_await(x->s, r->streams[FCP_COMM], compute->done[count - 1], err);
    return code || !net ? code : fcp_cuda_event_await(x->s, net, compute->done[count - 1], err);
}

/* Lets computing wait for what the first counts[f] instructions of the communication queue move over fabric f. */
static fcp_code await_moves(recorder *x, cuda_rank *r, const queue *comm, const uint32_t counts[FCP_FABRICS],
                            fcp_error *err) {
    const bool two = r->streams[CUDA_NET];
    const uint32_t net = two ? counts[FCP_NET] : 0,
                   rest = two || counts[FCP_LOCAL] > counts[FCP_NET] ? counts[FCP_LOCAL] : counts[FCP_NET];
    cu_stream compute = r->streams[FCP_COMPUTE];
    fcp_code code = net ? fcp_cuda_event_await(x->s, compute, comm->over_net[net - 1], err) : FCP_OK;
    return code || !rest ? code : fcp_cuda_event_await(x->s, compute, comm->done[rest - 1], err);
}

/* The same for whole instructions. */
static fcp_code await_launches(recorder *x, cuda_rank *r, const queue *comm, uint32_t count, fcp_error *err) {
    return await_moves(x, r, comm, (const uint32_t[FCP_FABRICS]){[FCP_NET] = count, [FCP_LOCAL] = count}, err);
}

/* Records events after an instruction that somebody waits for. */
static fcp_code put_done(recorder *x, cuda_rank *r, fcp_queue q, queue *k, fcp_error *err) {
    const bool two = q == FCP_COMM && r->streams[CUDA_NET];
    const uint8_t awaited = k->awaited[k->at];
    fcp_code code = FCP_OK;
    if (!two || awaited >> FCP_LOCAL & 1)
        code = fcp_cuda_event_record(x->s, r->device, r->streams[q], &k->done[k->at], err);
    if (code || !two || !(awaited >> FCP_NET & 1)) return code;
    return fcp_cuda_event_record(x->s, r->device, r->streams[CUDA_NET], &k->over_net[k->at], err);
}

/* Fused: sets the flags of what a launch has brought, so that CTAs that are running already may read it. The driver
 * writes the words when the streams come to this place. A kernel or a fill might find no SM for that, because CTAs that
 * wait for the flags may have them all. */
static fcp_code raise_flags(recorder *x, cuda_rank *r, const fcp_instr *launch, uint32_t at, fcp_error *err) {
    bool brings[FCP_FABRICS] = {false};
    fcp_code code = FCP_OK;
    if (!fcp_cuda_fused(x->s, x->pass)) return FCP_OK;
    for (uint32_t i = launch->a; i < launch->a + launch->b; i++)
        if (x->plan->transfers[i].dir == FCP_RECV) brings[x->plan->transfers[i].fabric] = true;
    for (unsigned f = 0; !code && f < FCP_FABRICS; f++)
        if (brings[f])
            code = fcp_cuda_check(x->s->cuda,
                                  x->s->cuda->call.write_word(fcp_cuda_fabric_stream(r, f),
                                                              fcp_cuda_flag_at(r, fcp_fusion_flag(at, f)), 1, 0),
                                  err, "the driver writes no word when a stream comes to it");
    return code;
}

/* Does as much of a launch as is possible. *out_behind: it is complete, which needs the ranks on the other side to have
 * come to their launch. */
static fcp_code advance_launch(recorder *x, uint32_t rank, const fcp_instr *launch, bool *out_behind, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    fcp_net *net = x->s->base.net;
    fcp_code code = FCP_OK;
    *out_behind = false;
    if (!w->launched) {
        code = mark(x, rank, FCP_COMM, err);
        if (!code) code = wait_across(x, rank, err);
        if (!code)
            code = fcp_wires_make(&w->wires, &r->arena[x->pass], (void *)(uintptr_t)r->kept[CUDA_ROUNDED].at,
                                  r->rounded_bytes, launch, err);
        if (!code) code = fcp_cuda_wire(x->s, rank, x->pass, launch, &w->wires, FCP_SEND, err);
        if (!code) code = fcp_net_launch(net, rank, x->pass, launch->c, w->wires.list, launch->b, err);
        if (code) return code;
        w->launched = true;
    }
    fcp_wait state = fcp_net_wait(net, rank, 0, NULL, err);
    if (state == FCP_WAIT_FAILED) return err->code;
    if (state == FCP_WAIT_ABORTED)
        return fcp_fail(err, FCP_E_RUN, "the transfers of round %u were given up", launch->c);
    if (state == FCP_WAIT_PENDING) return FCP_OK;
    code = fcp_cuda_wire(x->s, rank, x->pass, launch, &w->wires, FCP_RECV, err);
    if (code) return code;
    w->launched = false;
    *out_behind = true;
    fcp_partials_launched(&r->partials, x->plan, launch);
    return raise_flags(x, r, launch, w->queues[FCP_COMM].at, err);
}

/* Fused: how many instructions of a rank's communication queue belong to rounds up to `round`. */
static uint32_t end_of_round(const recorder *x, uint32_t rank, uint32_t round) {
    const fcp_stream *comm = fcp_stream_of(x->plan, x->pass, rank, FCP_COMM);
    uint32_t end = 0;
    for (uint32_t i = 0; round != FCP_NONE && i < comm->count; i++) {
        const fcp_instr *c = &x->plan->instrs[comm->first + i];
        if (c->op == FCP_OP_LAUNCH && c->c > round) break;
        if (c->op == FCP_OP_LAUNCH) end = i + 1;
    }
    return end;
}

/* Fused: are the rounds for which a launch waits in the streams of all ranks already? Then even a driver that lets
 * streams run in the order of the calls puts none of these rounds behind the launch. */
static bool may_begin(const recorder *x, uint32_t rank, const cuda_attend *a) {
    if (x->walks[rank].queues[FCP_COMM].at < a->holds) return false;
    if (x->s->table_gradients && x->walks[rank].queues[FCP_COMM].at < a->needs) return false;
    for (uint32_t r = x->s->base.first_rank; r < fcp_cuda_end(x->s); r++)
        if (x->walks[r].queues[FCP_COMM].at < end_of_round(x, r, a->round)) return false;
    return true;
}

/* Fused: lets a launch wait for what other ranks of the same device must compute before the rounds that the launch
 * needs. The CTAs of the launch may take all SMs, and then those ranks could not compute any more. */
static fcp_code await_neighbours(recorder *x, uint32_t rank, const cuda_attend *a, fcp_error *err) {
    const cuda_rank *r = &x->s->ranks[rank];
    fcp_code code = FCP_OK;
    for (uint32_t o = x->s->base.first_rank; !code && o < fcp_cuda_end(x->s); o++) {
        const fcp_stream *comm = fcp_stream_of(x->plan, x->pass, o, FCP_COMM);
        const uint32_t end = end_of_round(x, o, a->round);
        uint32_t computed = 0;
        if (o == rank || x->s->ranks[o].device != r->device) continue;
        for (uint32_t i = 0; i < end; i++) {
            const fcp_instr *c = &x->plan->instrs[comm->first + i];
            if (c->op == FCP_OP_WAIT && c->a > computed) computed = c->a;
        }
        if (computed)
            code = fcp_cuda_event_await(x->s, r->streams[FCP_COMPUTE],
                                        x->walks[o].queues[FCP_COMPUTE].done[computed - 1], err);
    }
    return code;
}

/* Clears the sums that ATTENDs begin: instructions first to last of a compute queue. */
static fcp_code open_accumulators(recorder *x, uint32_t rank, uint32_t first, uint32_t last, fcp_error *err) {
    const fcp_stream *compute = fcp_stream_of(x->plan, x->pass, rank, FCP_COMPUTE);
    fcp_code code = FCP_OK;
    for (uint32_t i = first; !code && i <= last; i++) {
        const fcp_instr *attend = &x->plan->instrs[compute->first + i];
        if (attend->op == FCP_OP_ATTEND) code = fcp_cuda_open_accumulators(x->s, &x->s->ranks[rank], attend, err);
    }
    return code;
}

/* Gradients of tables, behind attention of the same ATTEND or run. A fused launch has waited for arrivals within; here
 * the stream waits for all of them, because this kernel reads the same and does not look at flags. */
static fcp_code attend_tables(recorder *x, uint32_t rank, const cuda_attend *attends, uint32_t count, fcp_error *err) {
    cuda_rank *r = &x->s->ranks[rank];
    const bool waits = count && fcp_cuda_fused(x->s, x->pass) && attends->needs;
    fcp_code code = FCP_OK;
    if (waits) code = await_launches(x, r, &x->walks[rank].queues[FCP_COMM], attends->needs, err);
    for (uint32_t i = 0; !code && i < count; i++) code = fcp_cuda_attend_tables(x->s, r, &attends[i], err);
    return code;
}

/* The next ATTEND: its launches, one for each range of heads, follow each other. Fused, the first ATTEND of a run does
 * all of the run. *out_behind: it is done. */
static fcp_code attend(recorder *x, uint32_t rank, const fcp_instr *i, bool *out_behind, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    const cuda_work *work = &r->work[x->pass];
    const uint32_t next = w->attend, at = w->queues[FCP_COMPUTE].at;
    const cuda_attend *a = next < work->attend_count && work->attends[next].instr == at ? &work->attends[next] : NULL;
    const bool fused = fcp_cuda_fused(x->s, x->pass);
    fcp_code code = FCP_OK;
    *out_behind = !fused || !a || may_begin(x, rank, a);
    if (!*out_behind) return FCP_OK;
    if (fused && a && a->holds) code = await_launches(x, r, &w->queues[FCP_COMM], a->holds, err);
    if (!code && fused && a) code = await_neighbours(x, rank, a, err);
    if (x->pass == FCP_FORWARD) fcp_partials_attended(&r->partials, x->plan, i);
    else if (!code && (a || !fused)) code = open_accumulators(x, rank, at, fused ? a->last : at, err);
    for (; !code && w->attend < work->attend_count && work->attends[w->attend].instr == at; w->attend++)
        code = fcp_cuda_attend(x->s, r, x->pass, &work->attends[w->attend], err);
    if (!code && x->pass == FCP_BACKWARD && x->s->table_gradients)
        code = attend_tables(x, rank, work->attends + next, w->attend - next, err);
    return code;
}

/* counts[f] becomes the number of instructions of the other queue whose transfers over fabric f a WAIT waits for. In a
 * timed run each instruction ends when both fabrics have ended (timing.c), so a WAIT is for both. */
static void counts_of(const recorder *x, fcp_queue q, const fcp_instr *wait, uint32_t counts[FCP_FABRICS]) {
    for (int f = 0; f < FCP_FABRICS; f++)
        counts[f] = x->s->base.times ? fcp_waits_whole(wait) : fcp_waits_over(wait, q, (fcp_fabric)f);
}

/* A WAIT. Fused, the compute queue waits later: for what a run reads by flags, and for the rest before the next
 * instruction that is not a part of a run. */
static fcp_code wait_for(recorder *x, uint32_t rank, fcp_queue q, const fcp_instr *i, bool *out_behind,
                         fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    const queue *other = &w->queues[q == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE];
    uint32_t counts[FCP_FABRICS];
    counts_of(x, q, i, counts);
    if (q == FCP_COMPUTE && fcp_cuda_fused(x->s, x->pass)) {
        for (int f = 0; f < FCP_FABRICS; f++)
            if (counts[f] > w->owed[f]) w->owed[f] = counts[f];
        return FCP_OK;
    }
    *out_behind = other->at >= fcp_waits_whole(i);
    if (!*out_behind || !fcp_waits_whole(i)) return FCP_OK;
    if (q == FCP_COMPUTE) return await_moves(x, r, other, counts, err);
    fcp_code code = mark(x, rank, q, err);
    return code ? code : await_work(x, r, other, i->a, err);
}

/* A MERGE or a FINISH of a forward pass, a reduction, or a DELTA. */
static fcp_code make(recorder *x, uint32_t rank, const fcp_instr *i, bool *out_behind, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    const queue *comm = &w->queues[FCP_COMM];
    *out_behind = comm->at >= w->owed[FCP_NET] && comm->at >= w->owed[FCP_LOCAL];
    if (!*out_behind) return FCP_OK;
    fcp_code code = await_moves(x, r, comm, w->owed, err);
    memset(w->owed, 0, sizeof w->owed);
    if (code) return code;
    if (i->op == FCP_OP_DELTA) return fcp_cuda_delta(x->s, r, i, err);
    return i->op == FCP_OP_FINISH || i->op == FCP_OP_ROUND ? fcp_cuda_make_result(x->s, r, i, err)
                                                           : fcp_cuda_reduce(x->s, r, i, err);
}

/* Does what can be done of the next instruction; *out_behind: it is complete. */
static fcp_code advance(recorder *x, uint32_t rank, fcp_queue q, const fcp_instr *i, bool *out_behind, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    *out_behind = true;
    switch (i->op) {
    case FCP_OP_WAIT:
        if (q == FCP_COMM && w->queues[q].at >= r->early[x->pass].end)
            return FCP_OK; /* a WAIT of OUT, which comes after the whole pass anyway */
        return wait_for(x, rank, q, i, out_behind, err);
    case FCP_OP_COPY: return FCP_OK;
    case FCP_OP_DELTA:
    case FCP_OP_REDUCE:
    case FCP_OP_REDUCE_Q:
    case FCP_OP_MERGE:
    case FCP_OP_FINISH:
    case FCP_OP_ROUND: return make(x, rank, i, out_behind, err);
    case FCP_OP_ATTEND: return attend(x, rank, i, out_behind, err);
    case FCP_OP_LAUNCH:
        if (fcp_cuda_moved_by(x->plan, x->pass, i) != FCP_CLASSES) return FCP_OK;
        return advance_launch(x, rank, i, out_behind, err);
    default: return fcp_fail(err, FCP_E_INTERNAL, "not an instruction");
    }
}

/* Puts the place before the message of an error. */
static fcp_code fail_at(const recorder *x, uint32_t rank, fcp_queue q, fcp_code code, fcp_error *err) {
    const fcp_where where = fcp_where_instruction(x->plan, x->pass, rank, q, x->walks[rank].queues[q].at);
    char text[FCP_WHERE_TEXT];
    fcp_where_text(x->plan, &where, "", text, sizeof text);
    return fcp_fail_at(err, code, where, "%s: %.300s", text, err ? err->message : "");
}

/* Walks a queue as far as it can go. *moved: something was done. */
static fcp_code walk_queue(recorder *x, uint32_t rank, fcp_queue q, bool *moved, fcp_error *err) {
    const fcp_stream *stream = fcp_stream_of(x->plan, x->pass, rank, q);
    queue *k = &x->walks[rank].queues[q];
    cuda_rank *r = &x->s->ranks[rank];
    bool behind = true;
    if (k->at == stream->count) return FCP_OK;
    fcp_code code = fcp_cuda_use(x->s, r->device, err);
    while (!code && behind && k->at < stream->count) {
        const fcp_instr *i = &x->plan->instrs[stream->first + k->at];
        bool was = x->walks[rank].launched;
        if ((code = fcp_net_pace(x->s->base.net, x->s->base.times ? 2 : 1, err)))
            return code; /* of earlier ones: marks say which */
        if (q == FCP_COMPUTE && x->s->marks) r->mark = fcp_cuda_mark_value(x->pass, k->at);
        code = advance(x, rank, q, i, &behind, err);
        *moved |= behind || (q == FCP_COMM && !was && x->walks[rank].launched);
        if (!code && behind && k->awaited[k->at]) code = put_done(x, r, q, k, err);
        if (!code && behind && q == FCP_COMM && k->at + 1 == r->early[x->pass].after)
            code = fcp_cuda_early_ready(x->s, r, x->pass, x->walks[rank].prepared, err);
        if (!code && behind) code = fcp_cuda_timing_instr(x->s, r, q, k->at + 1, err);
        if (code) return fail_at(x, rank, q, code, err);
        k->at += behind;
    }
    return code;
}

/* Which instructions are waited for by transfers over the other fabric. */
static bool open_across(recorder *x, uint32_t rank) {
    walk *w = &x->walks[rank];
    queue *k = &w->queues[FCP_COMM];
    uint32_t count = fcp_stream_of(x->plan, x->pass, rank, FCP_COMM)->count;
    if (!x->s->ranks[rank].streams[CUDA_NET]) return true;
    k->over_net = calloc((size_t)count + 1, sizeof(cu_event));
    w->across = calloc((size_t)count + 1, sizeof *w->across);
    if (!k->over_net || !w->across || !fcp_fabric_waits(x->plan, x->pass, rank, w->across)) return false;
    for (uint32_t i = 0; i < count; i++)
        for (int f = 0; f < FCP_FABRICS; f++)
            if (w->across[i][f]) k->awaited[w->across[i][f] - 1] |= 1u << (f == FCP_NET ? FCP_LOCAL : FCP_NET);
    return true;
}

/* Notes after which instructions of the other queue an event must be recorded because of a WAIT. The WAIT names a
 * number of instructions for each fabric. Events are for both fabrics in three cases: the WAIT is the communication
 * queue's; the rank has one communication stream; or the pass is fused, so that a launch of several ATTENDs waits for
 * whole instructions. */
static void note_awaited(const recorder *x, uint32_t rank, fcp_queue q, const fcp_instr *wait) {
    uint8_t *awaited = x->walks[rank].queues[q == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE].awaited;
    const uint32_t whole = fcp_waits_whole(wait);
    const bool all = q == FCP_COMM || fcp_cuda_fused(x->s, x->pass) || !x->s->ranks[rank].streams[CUDA_NET];
    uint32_t counts[FCP_FABRICS];
    if (whole && all) awaited[whole - 1] = (1u << FCP_FABRICS) - 1;
    counts_of(x, q, wait, counts);
    for (int f = 0; f < FCP_FABRICS; f++)
        if (counts[f]) awaited[counts[f] - 1] |= 1u << f;
}

/* Which instructions are waited for. */
static bool open_walk(recorder *x, uint32_t rank) {
    bool ok = true;
    for (int q = 0; q < FCP_QUEUES; q++) {
        uint32_t count = fcp_stream_of(x->plan, x->pass, rank, (fcp_queue)q)->count;
        queue *k = &x->walks[rank].queues[q];
        k->done = calloc((size_t)count + 1, sizeof(cu_event));
        k->awaited = calloc((size_t)count + 1, 1);
        ok &= k->done && k->awaited;
    }
    ok = ok && open_across(x, rank);
    for (int q = 0; ok && q < FCP_QUEUES; q++) {
        const fcp_stream *stream = fcp_stream_of(x->plan, x->pass, rank, (fcp_queue)q);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *w = &x->plan->instrs[stream->first + i];
            if (w->op == FCP_OP_WAIT) note_awaited(x, rank, (fcp_queue)q, w);
        }
    }
    return ok;
}

static void close_walk(recorder *x, uint32_t rank) {
    walk *w = &x->walks[rank];
    cuda_device *d = x->s->ranks[rank].device;
    for (int q = 0; q < FCP_QUEUES; q++) {
        uint32_t count = fcp_stream_of(x->plan, x->pass, rank, (fcp_queue)q)->count;
        for (uint32_t i = 0; w->queues[q].done && i < count; i++)
            if (w->queues[q].done[i]) fcp_cuda_event_give(d, w->queues[q].done[i]);
        for (uint32_t i = 0; w->queues[q].over_net && i < count; i++)
            if (w->queues[q].over_net[i]) fcp_cuda_event_give(d, w->queues[q].over_net[i]);
        free(w->queues[q].done);
        free(w->queues[q].over_net);
        free(w->queues[q].awaited);
    }
    free(w->across);
    if (w->prepared) fcp_cuda_event_give(d, w->prepared);
    fcp_wires_free(&w->wires);
}

static bool is_behind(const recorder *x, uint32_t rank, fcp_queue q) {
    return x->walks[rank].queues[q].at == fcp_stream_of(x->plan, x->pass, rank, q)->count;
}

/* Walks the queues of all ranks to their ends. */
static fcp_code walk_all(recorder *x, fcp_error *err) {
    const fcp_cuda_session *s = x->s;
    for (;;) {
        bool moved = false, left = false;
        for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
            for (int q = 0; q < FCP_QUEUES; q++) {
                fcp_code code = walk_queue(x, r, (fcp_queue)q, &moved, err);
                if (code) return code;
                left |= !is_behind(x, r, (fcp_queue)q);
            }
        if (!left) return FCP_OK;
        if (!moved) return fcp_fail(err, FCP_E_INTERNAL, "the %s pass waits for itself", fcp_pass_names[x->pass]);
    }
}

/* Fused: clears all flags before the pass begins. The rank's other streams follow. */
static fcp_code lower_flags(recorder *x, cuda_rank *r, fcp_error *err) {
    if (!fcp_cuda_fused(x->s, x->pass) || !r->flag_words) return FCP_OK;
    fcp_code code = fcp_cuda_check(
        x->s->cuda, x->s->cuda->call.fill(fcp_cuda_flag_at(r, 1), 0, r->flag_words, r->streams[FCP_COMPUTE]), err,
        "cannot clear flags");
    if (!code) code = fcp_cuda_follow(x->s, r->device, r->streams[FCP_COMPUTE], r->streams[FCP_COMM], err);
    if (!code && r->streams[CUDA_NET])
        code = fcp_cuda_follow(x->s, r->device, r->streams[FCP_COMPUTE], r->streams[CUDA_NET], err);
    return code;
}

fcp_code fcp_cuda_record(fcp_cuda_session *s, fcp_pass pass, cuda_device *origin_device, cu_stream origin, bool graph,
                         fcp_error *err) {
    uint32_t ranks = s->plan->problem->ranks;
    recorder x = {s, s->plan, pass, calloc(ranks, sizeof *x.walks)};
    if (!x.walks) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    fcp_code code = FCP_OK;
    s->capturing = graph;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++) {
        if (!open_walk(&x, r)) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the queues of rank %u", r);
        fcp_partials_clear(&s->ranks[r].partials);
    }
    if (!code) code = fcp_cuda_fork(s, CUDA_ALL_STREAMS, origin_device, origin, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        s->ranks[r].mark = 0;
        if (!code) code = lower_flags(&x, &s->ranks[r], err);
        if (!code) code = fcp_cuda_prepare(s, &s->ranks[r], pass, err);
        if (!code) code = fcp_cuda_maxima_begin(s, &s->ranks[r], pass, err);
        if (!code && s->ranks[r].early[pass].after)
            code = fcp_cuda_event_record(s, s->ranks[r].device, s->ranks[r].streams[FCP_COMPUTE], &x.walks[r].prepared,
                                         err);
        for (int q = 0; !code && q < FCP_QUEUES; q++)
            code = fcp_cuda_timing_instr(s, &s->ranks[r], (fcp_queue)q, 0, err);
    }
    if (!code) code = walk_all(&x, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        s->ranks[r].mark = 0;
        if (!code && pass == FCP_BACKWARD) code = fcp_cuda_finish(s, &s->ranks[r], FCP_COMPUTE, false, err);
        for (int q = 0; !code && q < FCP_QUEUES; q++) code = mark(&x, r, (fcp_queue)q, err);
    }
    if (!code) code = fcp_cuda_join(s, CUDA_ALL_STREAMS, origin, err);
    if (!code) code = fcp_cuda_marks_join(s, origin, err);
    s->capturing = false;
    fcp_net_reset(s->base.net);
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++) close_walk(&x, r);
    free(x.walks);
    return code;
}
