/* transport_nccl.c: the transport "nccl": every rank of a plan is a process with one device, and sends and receives
 * with NCCL.
 *
 * A LAUNCH is one group of sends and receives on the rank's communication stream. Groups are never merged, and every
 * rank issues them in the same order: rounds of IN, rounds of the pass, rounds of OUT, each in increasing order. A rank
 * without a transfer in a round issues nothing. In a round a rank sends at most once and receives at most once on each
 * fabric. So there is no deadlock: no group can wait for one that waits for it.
 *
 * If a plan has two fabrics, the transfers of a round over net are a group of their own, on a stream and of a
 * communicator of their own (runtime/plan/fabrics.c). There is still no deadlock:
 *   1. On each of the two streams groups come in the order of the rounds. Groups of a round wait only for groups of
 *      earlier rounds.
 *   2. So of the groups that have not ended, those of the first round wait for none.
 *   3. These groups find SMs, since both communicators together take no more than the margin (partition.c).
 *
 * Requires: NCCL 2.19 or later; as many processes as ranks, which all make their session, run it and end it in the same
 *           way.
 * Method:   - The communicator does not block. The host polls what is in progress until it is done, has failed, or
 *             timeout_s is over.
 *           - Before anything is captured, each pair of ranks that will talk does so once, so that all connections
 *             exist.
 *           - The arena is memory of NCCL, registered once.
 *           - No more than some hundred instructions wait in the rank's streams. The driver takes about a thousand, and
 *             then blocks in the next call, for ever if a peer has died.
 * Cost:     a thread of NCCL; some tens of microseconds for a group outside a graph; for tensors in host memory of
 *           which other ranks have parts, as much device memory.
 * Failure:  an error of a peer shows in the communicator, and a peer that stalls exceeds the time limit. In both cases
 *           the communicator is aborted, which ends what waits on the device, and the session refuses further runs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/libraries/mpi.h"
#include "runtime/libraries/nccl.h"
#include "runtime/plan/fabrics.h"
#include "runtime/rendezvous/rendezvous.h"

enum { MOST_CTAS = 64, PIECE = 4 << 20 };
/* An event is recorded after every PACE-th instruction, and the host is at most PACES such events ahead of the
 * device. */
enum { PACE = 32, PACES = 2 };

typedef struct nccl_net {
    fcp_net base;
    fcp_cuda_session *session; /* NULL before connect */
    fcp_nccl *nccl;
    nccl_comm comm;
    nccl_comm over_net;          /* for transfers over net, if those have a stream of their own; else NULL */
    fcp_place place;
    cu_ptr scratch;              /* FCP_GATHER_BYTES for each rank and once more for this one; then PIECE bytes */
    void *memory;                /* the arena */
    size_t memory_bytes;
    void *enrolled, *enrolled_over_net; /* NCCL's handles of its registrations */
    cu_ptr staged[FCP_TENSORS];  /* device memory for tensors that lie in host memory */
    size_t staged_bytes[FCP_TENSORS];
    cu_event paces[PACES][CUDA_STREAMS]; /* recorded after every PACE-th instruction */
    uint32_t pace, unmarked;     /* which of them comes next; how many instructions there were since the last */
    fcp_tensors inside;          /* the caller's tensors, with those in host memory replaced by staged ones */
    bool ended, stuck;           /* ended: it was destroyed or aborted; stuck: that call did not return in time */
} nccl_net;

/* --- the communicator --------------------------------------------------------------------------------------------- */

static fcp_code check(const nccl_net *n, nccl_result result, const char *what, fcp_error *err) {
    return fcp_nccl_check(n->nccl, result, n->comm, err, "%s", what);
}

/* Waits until a call that has returned `result` is really complete, so that its work is in the stream. An error: it
 * failed, or took longer than the time limit. */
static fcp_code settle_on(nccl_net *n, nccl_comm comm, nccl_result result, const char *what, fcp_error *err) {
    const uint32_t timeout_s = n->session->base.timeout_s;
    fcp_patience patience = fcp_patience_of(timeout_s, 0.1);
    long pause = 2000;
    fcp_code code = check(n, result, what, err);
    for (; !code; fcp_pause(&pause, 1000000)) {
        nccl_result state = NCCL_IN_PROGRESS;
        code = check(n, n->nccl->call.async_error(comm, &state), what, err);
        if (!code) code = check(n, state, what, err);
        if (code || state == NCCL_SUCCESS) return code;
        if (fcp_interrupted(n->base.interrupt)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        if (fcp_patience_ends(&patience))
            return fcp_fail(err, FCP_E_RUN, "%s did not end within %u s: another rank has not come so far", what,
                            timeout_s);
    }
    return code;
}

static fcp_code settle(nccl_net *n, nccl_result result, const char *what, fcp_error *err) {
    return settle_on(n, n->comm, result, what, err);
}

static void nccl_close(fcp_net *base);

static fcp_code nccl_open(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err) {
    nccl_net *n = calloc(1, sizeof *n);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a communicator");
    n->base = (fcp_net){.transport = &fcp_transport_nccl, .ranks = ranks, .rank_count = 1};
    fcp_code code = fcp_place_find(start, ranks, gpus, &n->place, err);
    if (!code) code = fcp_nccl_open(&n->nccl, err);
    n->base.first_rank = n->place.rank;
    n->base.local = n->place.local;
    if (code) nccl_close(&n->base);
    else *out_net = &n->base;
    return code;
}

/* Two communicators share the session's margin, so that both find room beside attention. */
static fcp_code begin_comm(nccl_net *n, const nccl_id *id, nccl_comm *out, fcp_error *err) {
    const fcp_problem *p = n->session->plan->problem;
    const uint32_t margin = n->session->base.margin, share = fcp_two_fabrics(p) ? (margin + 1) / 2 : margin;
    nccl_config config = NCCL_CONFIG;
    fcp_error why = {0};
    config.blocking = 0;
    config.cga_cluster_size = 1;
    if (share) config.max_ctas = share < MOST_CTAS ? (int)share : MOST_CTAS;
    nccl_result result = n->nccl->call.init(out, (int)n->place.ranks, *id, (int)n->place.rank, &config);
    if (*out || (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)) {
        fcp_code code = settle_on(n, *out, result, "joining the other ranks", &why);
        bool twice = code && strstr(why.message, "uplicate GPU"); /* later versions name their switch themselves */
        if (code)
            fcp_fail(err, code, "%.360s%s", why.message, twice ? ": two ranks on one GPU need NCCL 2.30 or later" : "");
        return code;
    }
    return fcp_fail(err, FCP_E_RUN, "NCCL makes no communicator and gives no reason");
}

static size_t scratch_bytes(const nccl_net *n) { return ((size_t)n->place.ranks + 1) * FCP_GATHER_BYTES + PIECE; }

static fcp_code nccl_connect(fcp_net *base, fcp_session *session, const fcp_start *start, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    fcp_cuda_session *s = n->session = (fcp_cuda_session *)session;
    nccl_id id;
    n->place.interrupt = base->interrupt;
    memset(&id, 0, sizeof id);
    fcp_code code = FCP_OK;
    if (n->place.rank == 0 && !(start && start->id)) code = check(n, n->nccl->call.unique_id(&id), "making an id", err);
    if (!code) code = fcp_id_share(&n->place, start, s->base.timeout_s, (uint8_t *)id.bytes, err);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code) code = begin_comm(n, &id, &n->comm, err);
    return code ? code : fcp_cuda_memory(s, &s->devices[0], scratch_bytes(n), NULL, "what ranks tell each other",
                                         &n->scratch, err);
}

fcp_code fcp_start_id(void *out_id, fcp_error *err) {
    fcp_nccl *n = NULL;
    nccl_id id;
    if (!out_id) return fcp_fail(err, FCP_E_ARGUMENT, "nowhere to put an id");
    fcp_code code = fcp_nccl_open(&n, err);
    if (!code) code = fcp_nccl_check(n, n->call.unique_id(&id), NULL, err, "making an id");
    if (!code) memcpy(out_id, id.bytes, FCP_ID_BYTES);
    fcp_nccl_close(n);
    return code;
}

static fcp_code nccl_watch(fcp_net *base, const char *what, fcp_error *err) {
    const nccl_net *n = (const nccl_net *)base;
    const nccl_comm comms[] = {n->comm, n->over_net};
    fcp_code code = fcp_interrupted(base->interrupt) ? fcp_fail(err, FCP_E_INTERRUPTED, "interrupted") : FCP_OK;
    for (int i = 0; !n->ended && !code && i < 2; i++) {
        nccl_result state = NCCL_SUCCESS;
        if (!comms[i]) continue;
        code = check(n, n->nccl->call.async_error(comms[i], &state), what, err);
        if (!code) code = check(n, state, what, err);
    }
    return code;
}

/* --- ending ------------------------------------------------------------------------------------------------------- */

/* Takes back that the communicators know the arena. */
static fcp_code forget_arena(nccl_net *n, fcp_error *err) {
    const fcp_nccl_table *call = &n->nccl->call;
    void *over_net = n->enrolled_over_net, *enrolled = n->enrolled;
    n->enrolled = n->enrolled_over_net = NULL;
    fcp_code code = over_net ? check(n, call->strike(n->over_net, over_net), "forgetting an arena", err) : FCP_OK;
    return code || !enrolled ? code : check(n, call->strike(n->comm, enrolled), "forgetting an arena", err);
}

/* A call that may never return. It runs in a thread of its own; the last of the two users frees this record. */
typedef struct ending {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int users;
    bool over;
    nccl_result (*call)(nccl_comm);
    nccl_comm comm;
} ending;

static void leave(ending *e) {
    bool last = --e->users == 0;
    pthread_mutex_unlock(&e->lock);
    if (!last) return;
    pthread_cond_destroy(&e->ended);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *end_comm(void *argument) {
    ending *e = argument;
    e->call(e->comm);
    pthread_mutex_lock(&e->lock);
    e->over = true;
    pthread_cond_signal(&e->ended);
    leave(e);
    return NULL;
}

/* Makes such a call. False: it has not returned within the time limit; its thread goes on. */
static bool call_within(nccl_result (*call)(nccl_comm), nccl_comm comm, uint32_t timeout_s) {
    ending *e = calloc(1, sizeof *e);
    pthread_t thread;
    if (!e || !fcp_condition_init(&e->ended)) {
        free(e);
        call(comm);
        return true;
    }
    e->users = 2;
    e->call = call;
    e->comm = comm;
    pthread_mutex_init(&e->lock, NULL); /* cannot fail with glibc */
    pthread_mutex_lock(&e->lock);
    if (!fcp_thread_start(&thread, 0, end_comm, e)) {
        e->users--;
        call(comm);
        leave(e);
        return true;
    }
    pthread_detach(thread);
    for (fcp_patience patience = fcp_patience_of(timeout_s, 0.1); !e->over && !fcp_patience_ends(&patience);) {
        struct timespec until = fcp_deadline(50);
        pthread_cond_timedwait(&e->ended, &e->lock, &until);
    }
    bool over = e->over;
    leave(e);
    return over;
}

/* Ends the communicators in an orderly way, together with the other ranks. False: that did not end. An abort instead
 * would destroy what slower ranks have not received yet. */
static bool leave_others(nccl_net *n) {
    const fcp_nccl_table *call = &n->nccl->call;
    const nccl_comm comms[] = {n->over_net, n->comm};
    fcp_error ignored;
    forget_arena(n, &ignored);
    n->base.apart = false;
    for (int i = 0; i < 2; i++)
        if (comms[i] && settle_on(n, comms[i], call->finalize(comms[i]), "leaving the other ranks", &ignored))
            return false;
    n->ended = true;
    for (int i = 0; i < 2; i++)
        if (comms[i]) n->stuck |= !call_within(call->destroy, comms[i], n->session->base.timeout_s);
    return true;
}

static void nccl_abort(fcp_net *base) {
    nccl_net *n = (nccl_net *)base;
    if (!n->session) return;
    fcp_cuda_graphs_destroy(n->session);
    if (n->ended || !n->comm || (n->base.apart && leave_others(n))) return;
    fcp_mpi_forsake(NULL); /* if it carried the id, it would wait at its end for ranks that are gone */
    n->ended = true;
    if (n->over_net) n->stuck = !call_within(n->nccl->call.abort, n->over_net, n->session->base.timeout_s);
    n->stuck |= !call_within(n->nccl->call.abort, n->comm, n->session->base.timeout_s);
}

static void nccl_close(fcp_net *base) {
    nccl_net *n = (nccl_net *)base;
    if (n->comm && !n->ended && !leave_others(n)) nccl_abort(base);
    if (n->session && !n->stuck && !n->session->hung) { /* otherwise freeing memory would wait for what does not end */
        cuda_device *device = &n->session->devices[0];
        /* no memory is freed without a current context, and the caller may have failed to set it */
        n->session->cuda->call.context_set(device->context);
        for (int t = 0; t < FCP_TENSORS; t++) fcp_cuda_release(n->session, device, n->staged[t], NULL);
        fcp_cuda_release(n->session, device, n->scratch, NULL);
        if (n->memory) n->nccl->call.release(n->memory);
    }
    fcp_nccl_close(n->nccl);
    free(n);
}

/* --- before the first pass ---------------------------------------------------------------------------------------- */

static fcp_code enroll_over_net(nccl_net *n, fcp_error *err) {
    return check(n, n->nccl->call.enroll(n->over_net, n->memory, n->memory_bytes, &n->enrolled_over_net),
                 "registering the arena", err);
}

static fcp_code nccl_allocate(fcp_net *base, uint32_t rank, size_t bytes, void **out_memory, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    const cuda_device *device = n->session->ranks[rank].device;
    fcp_code code = fcp_cuda_use(n->session, device, err);
    if (code) return code;
    if ((code = forget_arena(n, err))) return code;
    if (n->memory) n->nccl->call.release(n->memory);
    n->memory = NULL;
    if (fcp_nccl_check(n->nccl, n->nccl->call.allocate(&n->memory, bytes), NULL, err,
                       "device %d has no %zu bytes for an arena", device->handle, bytes))
        return err ? (err->code = FCP_E_NO_MEMORY) : FCP_E_NO_MEMORY;
    *out_memory = n->memory;
    n->memory_bytes = bytes;
    code = check(n, n->nccl->call.enroll(n->comm, n->memory, bytes, &n->enrolled), "registering the arena", err);
    return code || !n->over_net ? code : enroll_over_net(n, err);
}

static fcp_code nccl_gather(fcp_net *base, const void *mine, size_t bytes, void *all, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    fcp_cuda_session *s = n->session;
    cu_ptr own = n->scratch + (cu_ptr)n->place.ranks * FCP_GATHER_BYTES;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code && s->finished) code = fcp_cuda_event_await(s, s->origin, s->finished, err);
    if (!code) code = fcp_cuda_upload(s, &s->devices[0], own, mine, bytes, err);
    if (!code)
        code = settle(n,
                      n->nccl->call.all_gather((void *)(uintptr_t)own, (void *)(uintptr_t)n->scratch, bytes, NCCL_INT8,
                                               n->comm, s->origin),
                      "telling all ranks", err);
    if (!code) code = fcp_cuda_wait(s, s->origin, "telling all ranks", err);
    return code ? code : fcp_cuda_download(s, &s->devices[0], all, n->scratch, bytes * n->place.ranks, err);
}

/* Adds to whom a rank sends and from whom it receives in the networks of layers that recur, or only over net. The
 * gradient of a halo goes the halo's ways back. */
static void find_step_peers(const fcp_plan *plan, uint32_t rank, bool over_net, uint8_t *peers) {
    for (uint32_t layer = 0; layer < plan->recurrent_count; layer++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const fcp_step_stream *stream = fcp_steps_of(plan, layer, (fcp_pass)pass, rank);
            const bool both = plan->recurrent[layer].kind == FCP_HALO && plan->problem->passes >> FCP_BACKWARD & 1;
            for (uint64_t i = stream->first; i < stream->first + stream->count; i++) {
                const fcp_step *x = &plan->steps[i];
                const bool sends = x->op == FCP_STEP_SEND, moves = sends || x->op == FCP_STEP_RECV;
                if (!moves || (over_net && x->fabric != FCP_NET)) continue;
                if (sends || both) peers[x->peer] |= 1 << FCP_SEND;
                if (!sends || both) peers[x->peer] |= 1 << FCP_RECV;
            }
        }
}

/* Finds out to whom a rank sends and from whom it receives, in all passes; or only what goes over net within a pass. */
static void find_peers(const fcp_plan *plan, uint32_t rank, bool over_net, uint8_t *peers) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const fcp_stream *stream = fcp_stream_of(plan, (fcp_pass)pass, rank, FCP_COMM);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if (x->op != FCP_OP_LAUNCH) continue;
            if (over_net && fcp_cuda_moved_by(plan, (fcp_pass)pass, x) != FCP_CLASSES) continue;
            for (uint32_t j = x->a; j < x->a + x->b; j++)
                if (!over_net || plan->transfers[j].fabric == FCP_NET)
                    peers[plan->transfers[j].peer] |= 1u << plan->transfers[j].dir;
        }
    }
    find_step_peers(plan, rank, over_net, peers);
}

/* Makes the communicator for transfers over net, whose id rank 0 tells the others. */
static fcp_code begin_over_net(nccl_net *n, fcp_error *err) {
    uint8_t *all = calloc(n->place.ranks, FCP_GATHER_BYTES);
    nccl_id id = {.bytes = {0}};
    _Static_assert(sizeof id.bytes % FCP_GATHER_BYTES == 0, "an id is told in whole pieces");
    if (!all) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", n->place.ranks);
    fcp_code code = n->place.rank ? FCP_OK : check(n, n->nccl->call.unique_id(&id), "making an id", err);
    for (size_t at = 0; !code && at < sizeof id.bytes; at += FCP_GATHER_BYTES) {
        code = nccl_gather(&n->base, (char *)id.bytes + at, FCP_GATHER_BYTES, all, err);
        if (!code) memcpy((char *)id.bytes + at, all, FCP_GATHER_BYTES);
    }
    free(all);
    if (!code) code = begin_comm(n, &id, &n->over_net, err);
    return code ? code : enroll_over_net(n, err);
}

/* Lets every pair of ranks that will talk through a communicator send one byte, in a single group. A single rank sends
 * to itself. */
static fcp_code meet_on(nccl_net *n, const fcp_plan *plan, nccl_comm comm, bool over_net, fcp_error *err) {
    fcp_cuda_session *s = n->session;
    const fcp_nccl_table *call = &n->nccl->call;
    uint32_t ranks = n->place.ranks, rank = n->place.rank;
    uint8_t *peers = calloc(ranks, 1);
    cu_ptr own = n->scratch + (cu_ptr)ranks * FCP_GATHER_BYTES;
    cu_stream stream = s->ranks[rank].streams[FCP_COMM];
    if (!peers) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    find_peers(plan, rank, over_net, peers);
    if (ranks == 1) peers[0] = 1 << FCP_SEND | 1 << FCP_RECV;
    bool any = memchr(peers, 1, ranks) || memchr(peers, 2, ranks) || memchr(peers, 3, ranks);
    fcp_code code = any ? check(n, call->group_start(), "beginning a group", err) : FCP_OK;
    bool open = any && !code;
    for (uint32_t p = 0; !code && p < ranks; p++) {
        if (peers[p] >> FCP_SEND & 1)
            code = check(n, call->send((void *)(uintptr_t)own, 1, NCCL_INT8, (int)p, comm, stream), "sending", err);
        if (!code && peers[p] >> FCP_RECV & 1)
            code = check(n,
                         call->receive((void *)(uintptr_t)(n->scratch + (cu_ptr)p * FCP_GATHER_BYTES), 1, NCCL_INT8,
                                       (int)p, comm, stream),
                         "receiving", err);
    }
    free(peers);
    if (!open) return code;
    nccl_result ended = call->group_end();
    if (!code) code = settle_on(n, comm, ended, "connecting to the other ranks", err);
    return code ? code : fcp_cuda_wait(s, stream, "connecting to the other ranks", err);
}

static fcp_code nccl_meet(fcp_net *base, const fcp_plan *plan, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    const bool apart = n->session->ranks[n->place.rank].streams[CUDA_NET] != NULL;
    fcp_code code = meet_on(n, plan, n->comm, false, err);
    if (!code && apart && !n->over_net) code = begin_over_net(n, err);
    return code || !apart ? code : meet_on(n, plan, n->over_net, true, err);
}

/* --- how far ahead of the device ---------------------------------------------------------------------------------- */

static fcp_code nccl_pace(fcp_net *base, uint32_t instructions, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    fcp_cuda_session *s = n->session;
    cuda_rank *r = &s->ranks[s->base.first_rank];
    fcp_code code = FCP_OK;
    if (s->capturing || s->outer) return FCP_OK;
    n->unmarked += instructions;
    if (n->unmarked < PACE) return FCP_OK;
    n->unmarked = 0;
    cu_event *mark = n->paces[n->pace++ % PACES];
    for (int q = 0; !code && q < CUDA_STREAMS; q++) {
        if (!r->streams[q]) continue;
        code = mark[q] ? fcp_cuda_wait_event(s, mark[q], "what was put down before", err)
                       : fcp_cuda_event_take(s, r->device, &mark[q], err);
        if (!code)
            code = fcp_cuda_check(s->cuda, s->cuda->call.event_record(mark[q], r->streams[q]), err,
                                  "cannot record an event");
    }
    return code;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

/* Puts one wire into the group that is being made. */
static fcp_code put_wire(nccl_net *n, nccl_comm comm, cu_stream stream, const fcp_wire *w, const char *what,
                         fcp_error *err) {
    const fcp_nccl_table *call = &n->nccl->call;
    fcp_code code = FCP_OK;
    for (uint32_t j = 0; !code && j < w->segments; j++) {
        const fcp_segment *part = &w->segment[j];
        if (!part->bytes) continue;
        code = check(n, w->dir == FCP_SEND
                            ? call->send(part->data, part->bytes, NCCL_INT8, (int)w->peer, comm, stream)
                            : call->receive(part->data, part->bytes, NCCL_INT8, (int)w->peer, comm, stream), what, err);
    }
    return code;
}

/* One group: of the wires of a fabric, or with FCP_FABRICS of all. */
static fcp_code put_group(nccl_net *n, unsigned fabric, const fcp_wire *wires, uint32_t count, const char *what,
                          fcp_error *err) {
    const fcp_nccl_table *call = &n->nccl->call;
    const cuda_rank *r = &n->session->ranks[n->place.rank];
    nccl_comm comm = fabric == FCP_NET ? n->over_net : n->comm;
    cu_stream stream = fabric == FCP_NET ? r->streams[CUDA_NET] : r->streams[FCP_COMM];
    uint32_t some = 0;
    for (uint32_t i = 0; i < count; i++) some += fabric == FCP_FABRICS || wires[i].fabric == fabric;
    fcp_code code = some ? check(n, call->group_start(), what, err) : FCP_OK;
    if (code || !some) return code;
    for (uint32_t i = 0; !code && i < count; i++)
        if (fabric == FCP_FABRICS || wires[i].fabric == fabric) code = put_wire(n, comm, stream, &wires[i], what, err);
    nccl_result ended = call->group_end(); /* a group that was begun must be ended, even after an error */
    return code ? code : settle_on(n, comm, ended, what, err);
}

static fcp_code nccl_launch(fcp_net *base, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                            uint32_t count, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    const fcp_plan *plan = n->session->plan;
    const bool recurs = fcp_round_recurs(round); /* a round of a layer that recurs has no record */
    const uint32_t kind = recurs ? FCP_ROUND_KIND_COUNT : plan->rounds[plan->round_starts[pass] + round].kind;
    const bool apart = n->session->ranks[rank].streams[CUDA_NET] && kind != FCP_ROUND_IN && kind != FCP_ROUND_OUT;
    char what[60];
    if (recurs) snprintf(what, sizeof what, "the transfers of the steps");
    else snprintf(what, sizeof what, "the transfers of round %u", round);
    if (!apart) return put_group(n, FCP_FABRICS, wires, count, what, err);
    fcp_code code = FCP_OK;
    for (unsigned f = 0; !code && f < FCP_FABRICS; f++) code = put_group(n, f, wires, count, what, err);
    return code;
}

/* There is nothing to wait for: when a launch has returned, its group is in the stream. */
static fcp_wait nccl_wait(fcp_net *base, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    (void)base, (void)rank, (void)milliseconds, (void)out_wire, (void)err;
    return FCP_WAIT_DONE;
}

/* Sends or receives one piece, through `piece` in device memory. */
static fcp_code collect_piece(nccl_net *n, uint32_t from, char *memory, size_t bytes, cu_ptr piece, fcp_error *err) {
    fcp_cuda_session *s = n->session;
    const fcp_nccl_table *call = &n->nccl->call;
    void *at = (void *)(uintptr_t)piece;
    bool sends = n->place.rank == from;
    fcp_code code = sends ? fcp_cuda_upload(s, &s->devices[0], piece, memory, bytes, err) : FCP_OK;
    if (!code) code = check(n, call->group_start(), "beginning a group", err);
    if (code) return code;
    code = check(n, sends ? call->send(at, bytes, NCCL_INT8, 0, n->comm, s->origin)
                          : call->receive(at, bytes, NCCL_INT8, (int)from, n->comm, s->origin), "collecting", err);
    nccl_result ended = call->group_end();
    if (!code) code = settle(n, ended, "collecting", err);
    if (!code) code = fcp_cuda_wait(s, s->origin, "collecting", err);
    return code || sends ? code : fcp_cuda_download(s, &s->devices[0], memory, piece, bytes, err);
}

static fcp_code nccl_collect(fcp_net *base, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    fcp_cuda_session *s = n->session;
    cu_ptr piece = n->scratch + ((cu_ptr)n->place.ranks + 1) * FCP_GATHER_BYTES;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code && s->finished) code = fcp_cuda_event_await(s, s->origin, s->finished, err);
    for (size_t at = 0; !code && at < bytes; at += PIECE)
        code = collect_piece(n, from, (char *)memory + at, bytes - at < PIECE ? bytes - at : PIECE, piece, err);
    return code;
}

/* --- host tensors ------------------------------------------------------------------------------------------------- */

/* The tensors that a pass reads, and those that it writes, with those that the caller may leave out. */
static unsigned optional_of(const fcp_cuda_session *s, fcp_pass pass) {
    fcp_shape shape;
    fcp_plan_shape(s->plan, &shape);
    return fcp_pass_optional(&shape, pass);
}
static unsigned inputs_of(const fcp_cuda_session *s, fcp_pass pass) {
    return fcp_pass_inputs(pass) | (pass == FCP_BACKWARD ? optional_of(s, pass) : 0);
}
static unsigned outputs_of(const fcp_cuda_session *s, fcp_pass pass) {
    return fcp_pass_outputs(pass) | (pass == FCP_FORWARD ? optional_of(s, pass) : 0);
}

/* How many bytes this rank's part of a tensor has. */
static size_t tensor_bytes(const fcp_cuda_session *s, fcp_tensor t) {
    fcp_shape shape;
    fcp_plan_shape(s->plan, &shape);
    return fcp_tensors_tokens(s->plan, s->base.first_rank, t) * fcp_tensor_token_bytes(&shape, t);
}

/* Does a tensor lie in host memory, pinned or not? Then all of it goes through the stage. */
static bool on_host(const fcp_cuda_session *s, const void *pointer) {
    unsigned type = 0;
    return s->cuda->call.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)pointer) ||
           type != CU_MEMORY_DEVICE;
}

/* Has this rank tokens whose home is another rank, or is it home of tokens that another has? */
static bool moves(const fcp_cuda_session *s, fcp_pass pass) {
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, s->base.first_rank, FCP_COMM);
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++)
            if (fcp_at_caller(&s->plan->transfers[j])) return true;
    }
    return false;
}

/* How many bytes of device memory a tensor in host memory needs, in whatever pass it is moved; 0: none. */
static size_t staged_bytes(const nccl_net *n, fcp_tensor t) {
    const fcp_cuda_session *s = n->session;
    bool moved = false;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        moved |= s->plan->problem->passes >> pass & 1 &&
                 (inputs_of(s, (fcp_pass)pass) | outputs_of(s, (fcp_pass)pass)) >> t & 1 && moves(s, (fcp_pass)pass);
    return moved ? tensor_bytes(s, t) : 0;
}

static void nccl_need(const fcp_net *base, size_t *out_bytes, size_t *out_held) {
    const nccl_net *n = (const nccl_net *)base;
    *out_bytes = *out_held = scratch_bytes(n);
    for (int t = 0; n->session->host_tensors && t < FCP_TENSORS; t++) {
        size_t bytes = staged_bytes(n, (fcp_tensor)t), held = n->staged_bytes[t];
        *out_bytes += bytes > held ? bytes : held;
        *out_held += held;
    }
}

/* Allocates that memory for one tensor, in the place of what it had. */
static fcp_code make_staged(nccl_net *n, int t, size_t bytes, fcp_error *err) {
    fcp_cuda_session *s = n->session;
    cuda_rank *rank = &s->ranks[s->base.first_rank];
    /* wait for earlier runs first: in freeing memory the driver would wait for them without a time limit */
    fcp_code code = n->staged[t] ? fcp_cuda_wait(s, rank->streams[FCP_COMM], "what ran before", err) : FCP_OK;
    if (code) return code;
    code = fcp_cuda_release(s, rank->device, n->staged[t], err);
    n->staged[t] = 0;
    n->staged_bytes[t] = 0;
    if (!code) code = fcp_cuda_memory(s, rank->device, bytes, NULL, "a tensor from the host", &n->staged[t], err);
    if (!code) n->staged_bytes[t] = bytes;
    return code;
}

static fcp_code nccl_reserve(fcp_net *base, fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    if (!n->session->host_tensors) return FCP_OK;
    fcp_code code = fcp_cuda_use(n->session, &n->session->devices[0], err);
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        size_t bytes = staged_bytes(n, (fcp_tensor)t);
        if (bytes > n->staged_bytes[t]) code = make_staged(n, t, bytes, err);
    }
    return code;
}

static fcp_code nccl_stage_in(fcp_net *base, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors **out_inside,
                              fcp_error *err) {
    nccl_net *n = (nccl_net *)base;
    fcp_cuda_session *s = n->session;
    cuda_rank *rank = &s->ranks[s->base.first_rank];
    const unsigned inputs = inputs_of(s, pass), all = inputs | outputs_of(s, pass);
    fcp_code code = FCP_OK;
    bool any = false;
    n->inside = *tensors;
    *out_inside = &n->inside;
    if (!moves(s, pass)) return FCP_OK;
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        size_t bytes = tensor_bytes(s, (fcp_tensor)t);
        const void *from = fcp_tensors_get(tensors, (fcp_tensor)t);
        if (!(all >> t & 1) || !bytes || !from || !on_host(s, from)) continue;
        if (n->staged_bytes[t] < bytes) code = make_staged(n, t, bytes, err);
        if (!code && inputs >> t & 1) code = fcp_cuda_staging_in(s, rank->device, n->staged[t], from, bytes, err);
        if (!code) fcp_tensors_set(&n->inside, (fcp_tensor)t, (void *)(uintptr_t)n->staged[t]);
        any = s->host_tensors = true;
    }
    if (!code) code = fcp_cuda_staging_push(s, rank->device, err);
    return code || !any ? code : fcp_cuda_follow(s, rank->device, rank->device->staging.stream, rank->streams[FCP_COMM],
                                                 err);
}

static fcp_code nccl_stage_out(fcp_net *base, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *inside,
                               fcp_error *err) {
    fcp_cuda_session *s = ((nccl_net *)base)->session;
    cuda_rank *rank = &s->ranks[s->base.first_rank];
    fcp_code code = FCP_OK;
    bool any = false;
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        void *to = fcp_tensors_get(tensors, (fcp_tensor)t);
        const void *from = fcp_tensors_get(inside, (fcp_tensor)t);
        size_t bytes = tensor_bytes(s, (fcp_tensor)t);
        if (!(outputs_of(s, pass) >> t & 1) || to == from || !bytes) continue;
        if (!any) code = fcp_cuda_follow(s, rank->device, rank->streams[FCP_COMM], rank->device->staging.stream, err);
        any = true;
        if (!code) code = fcp_cuda_staging_out(s, rank->device, to, (uintptr_t)from, bytes, err);
    }
    return code;
}

static fcp_code nccl_make_id(const fcp_net *base, void *out_id, fcp_error *err) {
    (void)base;
    return fcp_start_id(out_id, err);
}

const fcp_transport fcp_transport_nccl = {.name = "nccl",
                                          .processes = true,
                                          .make_id = nccl_make_id,
                                          .open = nccl_open,
                                          .connect = nccl_connect,
                                          .close = nccl_close,
                                          .launch = nccl_launch,
                                          .wait = nccl_wait,
                                          .abort = nccl_abort,
                                          .watch = nccl_watch,
                                          .pace = nccl_pace,
                                          .need = nccl_need,
                                          .reserve = nccl_reserve,
                                          .allocate = nccl_allocate,
                                          .stage_in = nccl_stage_in,
                                          .stage_out = nccl_stage_out,
                                          .gather = nccl_gather,
                                          .collect = nccl_collect,
                                          .meet = nccl_meet};
