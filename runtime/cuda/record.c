/* record.c: a pass of the process's ranks, put into their streams, in an order in which everything waited for is there already.
 *
 * Requires: a verified plan: its waits have no cycle. Work lists and arenas on the devices.
 * Gives:    every rank's two queues as two streams. WAIT n is an event behind the other queue's n-th instruction. Two ranks
 *           that launch the same round have their transfers put into the receivers' communication streams, each behind
 *           the point where the sender reached its launch; a launch is complete where all of its transfers are. With nccl a
 *           launch is a group of the communicator's.
 * Cost:     linear in instructions and transfers, times the transfers of a launch.
 * Order:    queues are walked in turns, each as far as it goes. The order decides nothing but how the work is put down:
 *           what follows what is in the plan. IN, OUT and COPY are not done here: home blocks are there before, and taken
 *           out afterwards, or from where early.c says that they are done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/parts.h"
#include "runtime/exec/segments.h"

/* A transfer that was sent: behind this event the receiver has it. */
typedef struct sent {
    cuda_device *device;
    cu_event event;
} sent;

typedef struct queue {
    uint32_t at;      /* instructions behind */
    cu_event *done;   /* per instruction that is waited for, once it is behind */
    uint8_t *awaited;
} queue;

typedef struct walk {
    queue queues[FCP_QUEUES];
    bool launched;         /* a launch is under way */
    uint32_t left;         /* transfers of it that are not put down */
    cu_event arrived;      /* where it began */
    uint8_t *put;          /* per transfer of it: put down */
    sent *sent;            /* of its sends */
    uint32_t sent_count, capacity;
    uint32_t attend;       /* ATTENDs behind */
    cu_event prepared;     /* behind what the pass begins with, where results go out early */
} walk;

typedef struct recorder {
    fcp_cuda_session *s;
    const fcp_plan *plan;
    fcp_pass pass;
    walk *walks;
} recorder;

static const fcp_instr *instr_at(const recorder *x, uint32_t rank, fcp_queue q) {
    return &x->plan->instrs[fcp_stream_of(x->plan, x->pass, rank, q)->first + x->walks[rank].queues[q].at];
}

static fcp_code wait_event(recorder *x, cu_stream stream, cu_event event, fcp_error *err) {
    return fcp_cuda_check(x->s->cuda, x->s->cuda->call.stream_wait_event(stream, event, 0), err, "cannot wait for an event");
}
static fcp_code record_event(recorder *x, cuda_device *d, cu_stream stream, cu_event *out, fcp_error *err) {
    fcp_code code = fcp_cuda_event_take(x->s, d, out, err);
    if (code) return code;
    code = fcp_cuda_check(x->s->cuda, x->s->cuda->call.event_record(*out, stream), err, "cannot record an event");
    if (code) {
        fcp_cuda_event_give(d, *out);
        *out = NULL;
    }
    return code;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* A transfer between ranks of which both have reached the round. */
static fcp_code put_transfer(recorder *x, uint32_t from, const fcp_transfer *send, uint32_t to, const fcp_transfer *receive,
                             fcp_error *err) {
    cuda_rank *sender = &x->s->ranks[from], *receiver = &x->s->ranks[to];
    cu_stream stream = receiver->streams[FCP_COMM];
    walk *w = &x->walks[from];
    fcp_segment src[FCP_SEGMENTS], dst[FCP_SEGMENTS];
    uint32_t count = fcp_segments_block(&sender->arena[x->pass], send, src);
    if (fcp_segments_block(&receiver->arena[x->pass], receive, dst) != count)
        return fcp_fail(err, FCP_E_INTERNAL, "a send and its receive differ");
    fcp_code code = wait_event(x, stream, w->arrived, err);
    for (uint32_t i = 0; !code && i < count; i++) {
        if (src[i].bytes != dst[i].bytes) return fcp_fail(err, FCP_E_INTERNAL, "a send and its receive differ in size");
        code = fcp_cuda_copy(x->s, receiver->device, (uintptr_t)dst[i].data, sender->device, (uintptr_t)src[i].data,
                             src[i].bytes, stream, err);
    }
    sent done = {receiver->device, NULL};
    if (!code) code = record_event(x, receiver->device, stream, &done.event, err);
    if (!code) w->sent[w->sent_count++] = done;
    return code;
}

/* The transfer of rank's launch that is the other side of t, which is `other`'s. */
static const fcp_transfer *partner(const recorder *x, const fcp_instr *launch, uint32_t other, const fcp_transfer *t,
                                   uint32_t *out_index) {
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *p = &x->plan->transfers[launch->a + i];
        if (p->peer != other || p->fabric != t->fabric || p->dir == t->dir) continue;
        *out_index = i;
        return p;
    }
    return NULL;
}

static fcp_code reach_launch(recorder *x, uint32_t rank, const fcp_instr *launch, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    fcp_code code = record_event(x, r->device, r->streams[FCP_COMM], &w->arrived, err);
    if (code) return code;
    if (launch->b > w->capacity) {
        uint8_t *put = realloc(w->put, launch->b);
        if (put) w->put = put;
        sent *more = realloc(w->sent, launch->b * sizeof *more);
        if (more) w->sent = more;
        if (!put || !more) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a group of %u", launch->b);
        w->capacity = launch->b;
    }
    if (launch->b) memset(w->put, 0, launch->b);
    w->launched = true;
    w->left = launch->b;
    w->sent_count = 0;
    for (uint32_t i = 0; !code && i < launch->b; i++) {
        const fcp_transfer *t = &x->plan->transfers[launch->a + i];
        walk *peer = &x->walks[t->peer];
        if (!peer->launched) continue;
        const fcp_instr *theirs = instr_at(x, t->peer, FCP_COMM);
        uint32_t j = 0;
        const fcp_transfer *other = theirs->c == launch->c ? partner(x, theirs, rank, t, &j) : NULL;
        if (!other || peer->put[j]) continue;
        code = t->dir == FCP_SEND ? put_transfer(x, rank, t, t->peer, other, err)
                                  : put_transfer(x, t->peer, other, rank, t, err);
        w->put[i] = peer->put[j] = 1;
        w->left--;
        peer->left--;
    }
    return code;
}

/* Which transient DKV slots hold a partial sum behind a launch. */
static void note_partials(recorder *x, uint32_t rank, const fcp_instr *launch) {
    cuda_rank *r = &x->s->ranks[rank];
    uint32_t homes = r->arena[x->pass].homes;
    for (uint32_t i = 0; i < launch->b; i++) {
        const fcp_transfer *t = &x->plan->transfers[launch->a + i];
        if (t->cls != FCP_DKV || t->slot < homes) continue;
        if (t->dir == FCP_RECV) r->filled[t->slot - homes] = 1;
        else if (t->first + t->tokens == x->plan->blocks[t->block].tokens) r->filled[t->slot - homes] = 0;
    }
}

static fcp_code end_launch(recorder *x, uint32_t rank, const fcp_instr *launch, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < w->sent_count; i++) {
        if (!code) code = wait_event(x, r->streams[FCP_COMM], w->sent[i].event, err);
        fcp_cuda_event_give(w->sent[i].device, w->sent[i].event);
    }
    fcp_cuda_event_give(r->device, w->arrived);
    w->arrived = NULL;
    w->sent_count = 0;
    w->launched = false;
    note_partials(x, rank, launch);
    return code;
}

/* --- walking ------------------------------------------------------------------------------------------------------ */

static bool is_reshuffle(const recorder *x, const fcp_instr *launch) {
    uint32_t kind = x->plan->rounds[x->plan->round_starts[x->pass] + launch->c].kind;
    return kind == FCP_ROUND_IN || kind == FCP_ROUND_OUT;
}

/* The device is to say that a queue has come to its next instruction, or to its end. */
static fcp_code mark(recorder *x, uint32_t rank, fcp_queue q, fcp_error *err) {
    return fcp_cuda_mark(x->s, &x->s->ranks[rank], q, fcp_cuda_mark_value(x->pass, x->walks[rank].queues[q].at), err);
}

/* Does what can be done of the next instruction; *out_behind: it is complete. */
static fcp_code advance(recorder *x, uint32_t rank, fcp_queue q, const fcp_instr *i, bool *out_behind, fcp_error *err) {
    walk *w = &x->walks[rank];
    cuda_rank *r = &x->s->ranks[rank];
    const queue *other = &w->queues[q == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE];
    fcp_code code = FCP_OK;
    *out_behind = true;
    switch (i->op) {
    case FCP_OP_WAIT:
        if (q == FCP_COMM && w->queues[q].at >= r->early[x->pass].end) return FCP_OK; /* OUT's: it is behind all of the pass */
        *out_behind = other->at >= i->a;
        if (!*out_behind || !i->a) return FCP_OK;
        if (q == FCP_COMM) code = mark(x, rank, q, err);
        return code ? code : wait_event(x, r->streams[q], other->done[i->a - 1], err);
    case FCP_OP_COPY: return FCP_OK;
    case FCP_OP_DELTA: return fcp_cuda_delta(x->s, r, err);
    case FCP_OP_REDUCE: return fcp_cuda_reduce(x->s, r, i, err);
    case FCP_OP_ATTEND:
        if (x->pass == FCP_BACKWARD) code = fcp_cuda_open_accumulators(x->s, r, i, err);
        return code ? code : fcp_cuda_attend(x->s, r, x->pass, &r->work[x->pass].attends[w->attend++], err);
    case FCP_OP_LAUNCH:
        if (is_reshuffle(x, i)) return FCP_OK;
        if (!w->launched) code = mark(x, rank, q, err);
        if (x->s->nccl) {
            note_partials(x, rank, i);
            return code ? code : fcp_cuda_nccl_group(x->s, r, x->pass, i, NULL, err);
        }
        if (!code && !w->launched) code = reach_launch(x, rank, i, err);
        *out_behind = !code && w->left == 0;
        return *out_behind ? end_launch(x, rank, i, err) : code;
    default: return fcp_fail(err, FCP_E_INTERNAL, "not an instruction");
    }
}

/* Names the place of an error. */
static fcp_code fail_at(const recorder *x, uint32_t rank, fcp_queue q, const fcp_instr *i, fcp_code code, fcp_error *err) {
    fcp_error why = err ? *err : (fcp_error){0};
    return fcp_fail(err, code, "rank %u, %s pass, stage %u, instruction %u of the %s queue (%s): %.300s", rank,
                    fcp_pass_names[x->pass], i->stage, x->walks[rank].queues[q].at, fcp_queue_texts[q],
                    fcp_op_names[i->op], why.message);
}

/* A queue, as far as it goes. */
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
        if (x->s->nccl && (code = fcp_cuda_nccl_pace(x->s, 1, err))) return code; /* of earlier ones: marks say which */
        if (q == FCP_COMPUTE) r->mark = fcp_cuda_mark_value(x->pass, k->at);
        code = advance(x, rank, q, i, &behind, err);
        *moved |= behind || (q == FCP_COMM && !was && x->walks[rank].launched);
        if (!code && behind && k->awaited[k->at]) code = record_event(x, r->device, r->streams[q], &k->done[k->at], err);
        if (!code && behind && q == FCP_COMM && k->at + 1 == r->early[x->pass].after)
            code = fcp_cuda_early_ready(x->s, r, x->pass, x->walks[rank].prepared, err);
        if (code) return fail_at(x, rank, q, i, code, err);
        k->at += behind;
    }
    return code;
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
    for (int q = 0; ok && q < FCP_QUEUES; q++) {
        const fcp_stream *stream = fcp_stream_of(x->plan, x->pass, rank, (fcp_queue)q);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *w = &x->plan->instrs[stream->first + i];
            if (w->op == FCP_OP_WAIT && w->a) x->walks[rank].queues[!q].awaited[w->a - 1] = 1;
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
        free(w->queues[q].done);
        free(w->queues[q].awaited);
    }
    for (uint32_t i = 0; i < w->sent_count; i++) fcp_cuda_event_give(w->sent[i].device, w->sent[i].event);
    if (w->arrived) fcp_cuda_event_give(d, w->arrived);
    if (w->prepared) fcp_cuda_event_give(d, w->prepared);
    free(w->put);
    free(w->sent);
}

static fcp_code walk_all(recorder *x, fcp_error *err) {
    const fcp_cuda_session *s = x->s;
    for (;;) {
        bool moved = false, left = false;
        for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
            for (int q = 0; q < FCP_QUEUES; q++) {
                fcp_code code = walk_queue(x, r, (fcp_queue)q, &moved, err);
                if (code) return code;
                left |= x->walks[r].queues[q].at < fcp_stream_of(x->plan, x->pass, r, (fcp_queue)q)->count;
            }
        if (!left) return FCP_OK;
        if (!moved) return fcp_fail(err, FCP_E_INTERNAL, "the %s pass waits for itself", fcp_pass_names[x->pass]);
    }
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
        memset(s->ranks[r].filled, 0, s->ranks[r].slots[pass].dkv);
    }
    if (!code) code = fcp_cuda_fork(s, origin_device, origin, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        s->ranks[r].mark = 0;
        if (!code) code = fcp_cuda_prepare(s, &s->ranks[r], pass, err);
        if (!code && s->ranks[r].early[pass].after)
            code = record_event(&x, s->ranks[r].device, s->ranks[r].streams[FCP_COMPUTE], &x.walks[r].prepared, err);
    }
    if (!code) code = walk_all(&x, err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        code = fcp_cuda_use(s, s->ranks[r].device, err);
        s->ranks[r].mark = 0;
        if (!code && pass == FCP_BACKWARD) code = fcp_cuda_finish(s, &s->ranks[r], FCP_COMPUTE, false, err);
        for (int q = 0; !code && q < FCP_QUEUES; q++) code = mark(&x, r, (fcp_queue)q, err);
    }
    if (!code) code = fcp_cuda_join(s, origin, err);
    s->capturing = false;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++) close_walk(&x, r);
    free(x.walks);
    return code;
}
