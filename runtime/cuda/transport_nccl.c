/* transport_nccl.c: the transport nccl: each rank of a plan a process with one device, its transfers groups of sends and receives.
 *
 * Requires: NCCL 2.19 or later; as many processes as ranks, each of which makes its session, runs and ends it as the others do.
 * Gives:    parts.h. A LAUNCH is one group on the rank's communication stream; groups are never merged, and go in the same
 *           order at every rank: rounds of IN, then those of the pass, then those of OUT, each in increasing order. A rank
 *           without a transfer in a round issues nothing. Rounds are matchings, so no group waits for one that waits for it.
 * Method:   the communicator does not block: whatever is under way is asked after until it is done, failed or timeout_s is over.
 *           All pairs that will talk do so once before anything is captured. The arena is NCCL's memory, registered once.
 *           No more than some hundred things wait in the rank's streams: the driver takes about a thousand, and then waits in
 *           whatever call brings one more, for ever if a peer has died.
 * Cost:     a thread of NCCL's and some tens of microseconds a group where there is no graph; of host tensors that other ranks
 *           have parts of, as much device memory.
 * Failure:  an error of a peer's shows itself in the communicator, a peer that stalls by the timeout. Either way the
 *           communicator is aborted, which ends what waits on the device, and the session is broken.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/cuda/parts.h"
#include "runtime/libraries/nccl.h"
#include "runtime/exec/segments.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/exec/tensors.h"

enum { MOST_CTAS = 64, PIECE = 4 << 20 };
enum { PACE = 32, PACES = 2 }; /* instructions from one mark in the streams to the next, and how many such are under way at most */

/* What ranks tell each other before the first pass. */
typedef struct record {
    uint8_t plan[FCP_DIGEST_BYTES];
    uint32_t format, version, graph_from, made;
    uint8_t pad[FCP_GATHER_BYTES - FCP_DIGEST_BYTES - 16];
} record;
enum { RECORD_FORMAT = 1 };
_Static_assert(sizeof(record) == FCP_GATHER_BYTES, "what is gathered at once");

struct cuda_nccl {
    fcp_nccl *nccl;
    nccl_comm comm;
    fcp_place place;
    cu_ptr scratch;              /* FCP_GATHER_BYTES bytes of each rank, then of this one; then a PIECE of a tensor */
    void *memory, *enrolled;     /* the arena; what NCCL knows it as */
    cu_ptr staged[FCP_TENSORS];  /* on the device, of host tensors */
    size_t staged_bytes[FCP_TENSORS];
    cu_event paces[PACES][FCP_QUEUES]; /* behind every PACE-th instruction */
    uint32_t pace, unmarked;     /* the next of them; instructions behind the last one */
    bool apart;                  /* ranks have told each other why they cannot go on: all of them know, and leave */
    bool ended, stuck;           /* ended: destroyed or aborted; stuck: even that did not end */
};

/* --- the communicator --------------------------------------------------------------------------------------------- */

static fcp_code check(const fcp_cuda_session *s, nccl_result result, const char *what, fcp_error *err) {
    return fcp_nccl_check(s->nccl->nccl, result, s->nccl->comm, err, "%s", what);
}

/* Until what was begun is under way on the device; where it fails, the error. */
static fcp_code settle(fcp_cuda_session *s, nccl_result result, const char *what, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    fcp_patience patience = fcp_patience_of(s->timeout_s, 0.1);
    long pause = 2000;
    fcp_code code = check(s, result, what, err);
    for (; !code; fcp_pause(&pause, 1000000)) {
        nccl_result state = NCCL_IN_PROGRESS;
        code = check(s, n->nccl->call.async_error(n->comm, &state), what, err);
        if (!code) code = check(s, state, what, err);
        if (code || state == NCCL_SUCCESS) return code;
        if (fcp_patience_ends(&patience))
            return fcp_fail(err, FCP_E_RUN, "%s did not end within %u s: another rank has not come so far", what, s->timeout_s);
    }
    return code;
}

fcp_code fcp_cuda_nccl_place(fcp_cuda_session *s, const fcp_start *start, fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    struct cuda_nccl *n = s->nccl = calloc(1, sizeof *n);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a communicator");
    fcp_code code = fcp_place_find(start, p->ranks, p->gpus, &n->place, err);
    if (!code) code = fcp_nccl_open(&n->nccl, err);
    if (code) return code;
    uint32_t devices = (uint32_t)s->cuda->devices;
    s->base.first_rank = n->place.rank;
    s->base.rank_count = 1;
    s->device_count = 1;
    s->first_device = n->place.local % devices;
    if (start && start->device) {
        s->first_device = start->device - 1;
        if (s->first_device >= devices)
            return fcp_fail(err, FCP_E_ARGUMENT, "there is no device %u: there are %u", s->first_device, devices);
    }
    return FCP_OK;
}

static fcp_code begin_comm(fcp_cuda_session *s, const nccl_id *id, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    const fcp_problem *p = s->plan->problem;
    nccl_config config = NCCL_CONFIG;
    fcp_error why = {0};
    config.blocking = 0;
    config.cga_cluster_size = 1;
    if (p->margin) config.max_ctas = p->margin < MOST_CTAS ? (int)p->margin : MOST_CTAS;
    nccl_result result = n->nccl->call.init(&n->comm, (int)n->place.ranks, *id, (int)n->place.rank, &config);
    if (n->comm || (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)) {
        fcp_code code = settle(s, result, "joining the other ranks", &why);
        bool twice = code && strstr(why.message, "uplicate GPU"); /* later ones name their switch themselves */
        if (code) fcp_fail(err, code, "%.360s%s", why.message, twice ? ": two ranks on one GPU need NCCL 2.30 or later" : "");
        return code;
    }
    return fcp_fail(err, FCP_E_RUN, "NCCL makes no communicator and gives no reason");
}

size_t fcp_cuda_nccl_scratch(const fcp_cuda_session *s) { return ((size_t)s->nccl->place.ranks + 1) * FCP_GATHER_BYTES + PIECE; }

fcp_code fcp_cuda_nccl_connect(fcp_cuda_session *s, const fcp_start *start, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    nccl_id id;
    memset(&id, 0, sizeof id);
    fcp_code code = FCP_OK;
    if (n->place.rank == 0 && !(start && start->id)) code = check(s, n->nccl->call.unique_id(&id), "making an id", err);
    if (!code) code = fcp_id_share(&n->place, start, s->timeout_s, (uint8_t *)id.bytes, err);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code) code = begin_comm(s, &id, err);
    return code ? code : fcp_cuda_memory(s, &s->devices[0], fcp_cuda_nccl_scratch(s), NULL, "what ranks tell each other", &n->scratch, err);
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

fcp_code fcp_cuda_nccl_watch(fcp_cuda_session *s, const char *what, fcp_error *err) {
    nccl_result state = NCCL_SUCCESS;
    if (s->nccl->ended || !s->nccl->comm) return FCP_OK;
    fcp_code code = check(s, s->nccl->nccl->call.async_error(s->nccl->comm, &state), what, err);
    return code ? code : check(s, state, what, err);
}

/* --- ending ------------------------------------------------------------------------------------------------------- */

/* A call that may never return, on a thread of its own. */
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

/* False: it has not ended within the timeout, and may end whenever it likes. */
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
    pthread_mutex_init(&e->lock, NULL); /* does not fail where glibc makes it */
    pthread_mutex_lock(&e->lock);
    if (pthread_create(&thread, NULL, end_comm, e)) {
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

/* Leaves the others; false: it does not come to an end. Whoever aborts in place of it takes away from slower ranks what they
 * have not yet been told. */
static bool leave_others(fcp_cuda_session *s) {
    struct cuda_nccl *n = s->nccl;
    fcp_error ignored;
    if (n->enrolled) n->nccl->call.strike(n->comm, n->enrolled);
    n->enrolled = NULL;
    n->apart = false;
    if (settle(s, n->nccl->call.finalize(n->comm), "leaving the other ranks", &ignored)) return false;
    n->ended = true;
    n->stuck = !call_within(n->nccl->call.destroy, n->comm, s->timeout_s);
    return true;
}

void fcp_cuda_nccl_abort(fcp_cuda_session *s) {
    struct cuda_nccl *n = s->nccl;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (s->graphs[pass]) s->cuda->call.graph_exec_destroy(s->graphs[pass]);
        s->graphs[pass] = NULL;
    }
    if (n->ended || !n->comm || (n->apart && leave_others(s))) return;
    n->ended = true;
    n->stuck = !call_within(n->nccl->call.abort, n->comm, s->timeout_s);
}

void fcp_cuda_nccl_close(fcp_cuda_session *s) {
    struct cuda_nccl *n = s->nccl;
    if (!n) return;
    if (n->comm && !n->ended && !leave_others(s)) fcp_cuda_nccl_abort(s);
    bool stays = n->stuck || s->hung; /* giving memory up would wait for what does not end */
    for (int t = 0; t < FCP_TENSORS; t++)
        if (n->staged[t] && !stays) s->cuda->call.release(n->staged[t]);
    if (n->scratch && !stays) s->cuda->call.release(n->scratch);
    if (n->memory && !stays) n->nccl->call.release(n->memory);
    fcp_nccl_close(n->nccl);
    free(n);
    s->nccl = NULL;
}

/* --- before the first pass ---------------------------------------------------------------------------------------- */

fcp_code fcp_cuda_nccl_memory(fcp_cuda_session *s, cuda_rank *rank, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    size_t bytes = fcp_cuda_allocated(rank->arena_bytes);
    fcp_code code = fcp_cuda_use(s, rank->device, err);
    if (code) return code;
    if (n->enrolled) code = check(s, n->nccl->call.strike(n->comm, n->enrolled), "forgetting an arena", err);
    n->enrolled = NULL;
    if (code) return code;
    if (n->memory) n->nccl->call.release(n->memory);
    n->memory = NULL;
    if (fcp_nccl_check(n->nccl, n->nccl->call.allocate(&n->memory, bytes), NULL, err,
                       "device %d has no %zu bytes for an arena", rank->device->handle, bytes))
        return err ? (err->code = FCP_E_NO_MEMORY) : FCP_E_NO_MEMORY;
    rank->memory = (uintptr_t)n->memory;
    return check(s, n->nccl->call.enroll(n->comm, n->memory, bytes, &n->enrolled), "registering the arena", err);
}

fcp_code fcp_cuda_nccl_gather(fcp_cuda_session *s, const void *mine, size_t bytes, void *all, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    const fcp_cuda_table *call = &s->cuda->call;
    cu_ptr own = n->scratch + (cu_ptr)n->place.ranks * FCP_GATHER_BYTES;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code && s->finished)
        code = fcp_cuda_check(s->cuda, call->stream_wait_event(s->origin, s->finished, 0), err, "cannot wait for an event");
    if (!code) code = fcp_cuda_stage_in(s, &s->devices[0], own, mine, bytes, err);
    if (!code) code = fcp_cuda_stage_flush(s, &s->devices[0], err);
    if (!code)
        code = settle(s, n->nccl->call.all_gather((void *)(uintptr_t)own, (void *)(uintptr_t)n->scratch, bytes, NCCL_INT8, n->comm,
                                                  s->origin), "telling all ranks", err);
    if (!code) code = fcp_cuda_wait(s, s->origin, "telling all ranks", err);
    if (!code) code = fcp_cuda_stage_out(s, &s->devices[0], all, n->scratch, bytes * n->place.ranks, err);
    return code ? code : fcp_cuda_stage_flush(s, &s->devices[0], err);
}

/* What names a plan: as many digits of its digest as tell plans apart. */
enum { NAME_BYTES = 8 };
static void name_plan(const uint8_t *digest, char out[2 * NAME_BYTES + 1]) {
    for (int i = 0; i < NAME_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* The first rank that is not as rank 0 is, or that failed. */
static fcp_code compare(const record *all, uint32_t ranks, fcp_error *err) {
    for (uint32_t r = 0; r < ranks; r++) {
        const record *x = &all[r];
        if (x->format != all->format || x->version != all->version)
            return fcp_fail(err, FCP_E_START, "rank %u runs another version of the runtime than rank 0", r);
        if (memcmp(x->plan, all->plan, sizeof x->plan) != 0) {
            char theirs[2 * NAME_BYTES + 1], first[2 * NAME_BYTES + 1];
            name_plan(x->plan, theirs);
            name_plan(all->plan, first);
            return fcp_fail(err, FCP_E_START, "rank %u has another plan than rank 0 (SHA-256 %s... and %s...): all need the same one",
                            r, theirs, first);
        }
        if (x->graph_from != all->graph_from)
            return fcp_fail(err, FCP_E_START, "rank %u is to make graphs from run %u on, rank 0 from run %u: all need the same "
                            "options", r, x->graph_from, all->graph_from);
    }
    for (uint32_t r = 0; r < ranks; r++)
        if (all[r].made)
            return fcp_fail(err, FCP_E_START, "rank %u cannot begin: %s, %s", r, fcp_code_name((fcp_code)all[r].made),
                            fcp_code_text((fcp_code)all[r].made));
    return FCP_OK;
}

/* Marks whom a rank sends to and receives from, in all passes. */
static void find_peers(const fcp_plan *plan, uint32_t rank, uint8_t *peers) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const fcp_stream *stream = fcp_stream_of(plan, (fcp_pass)pass, rank, FCP_COMM);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if (x->op != FCP_OP_LAUNCH) continue;
            for (uint32_t j = x->a; j < x->a + x->b; j++) peers[plan->transfers[j].peer] |= 1u << plan->transfers[j].dir;
        }
    }
}

/* Every pair that will talk does so once, in one group; one rank alone talks to itself. */
static fcp_code greet(fcp_cuda_session *s, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    const fcp_nccl_table *call = &n->nccl->call;
    uint32_t ranks = n->place.ranks, rank = n->place.rank;
    uint8_t *peers = calloc(ranks, 1);
    cu_ptr own = n->scratch + (cu_ptr)ranks * FCP_GATHER_BYTES;
    cu_stream stream = s->ranks[rank].streams[FCP_COMM];
    if (!peers) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", ranks);
    find_peers(s->plan, rank, peers);
    if (ranks == 1) peers[0] = 1 << FCP_SEND | 1 << FCP_RECV;
    bool any = memchr(peers, 1, ranks) || memchr(peers, 2, ranks) || memchr(peers, 3, ranks);
    fcp_code code = any ? check(s, call->group_start(), "beginning a group", err) : FCP_OK;
    bool open = any && !code;
    for (uint32_t p = 0; !code && p < ranks; p++) {
        if (peers[p] >> FCP_SEND & 1)
            code = check(s, call->send((void *)(uintptr_t)own, 1, NCCL_INT8, (int)p, n->comm, stream), "sending", err);
        if (!code && peers[p] >> FCP_RECV & 1)
            code = check(s, call->receive((void *)(uintptr_t)(n->scratch + (cu_ptr)p * FCP_GATHER_BYTES), 1, NCCL_INT8, (int)p,
                                          n->comm, stream), "receiving", err);
    }
    free(peers);
    if (!open) return code;
    nccl_result ended = call->group_end();
    if (!code) code = settle(s, ended, "connecting to the other ranks", err);
    return code ? code : fcp_cuda_wait(s, stream, "connecting to the other ranks", err);
}

/* All ranks' records; malloc'd, NULL: *err says why. */
static record *exchange(fcp_cuda_session *s, const fcp_plan *plan, fcp_code made, fcp_error *err) {
    record mine = {.format = RECORD_FORMAT, .version = FCP_PLAN_VERSION, .graph_from = s->graph_from, .made = (uint32_t)made};
    record *all = calloc(s->nccl->place.ranks, sizeof *all);
    fcp_code code = all ? fcp_plan_digest(plan, mine.plan, err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = fcp_cuda_nccl_gather(s, &mine, sizeof mine, all, err);
    if (!code) return all;
    free(all);
    return NULL;
}

fcp_code fcp_cuda_nccl_agree(fcp_cuda_session *s, const fcp_plan *plan, fcp_code made, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    fcp_error why = {0};
    record *all = exchange(s, plan, made, &why);
    fcp_code code = why.code;
    if (all) {
        code = compare(all, n->place.ranks, &why);
        n->apart = code;
    }
    free(all);
    if (!made && !code) code = greet(s, &why);
    if (made) return made;
    if (code && err) *err = why;
    return code;
}

bool fcp_cuda_nccl_refuse(fcp_cuda_session *s, const fcp_plan *plan, fcp_code code) {
    fcp_error ignored;
    record *all = exchange(s, plan, code, &ignored);
    bool together = all;
    for (uint32_t r = 0; all && r < s->nccl->place.ranks; r++) together &= all[r].made != 0;
    s->nccl->apart = all && !together;
    free(all);
    return together;
}

/* --- how far ahead of the device ---------------------------------------------------------------------------------- */

fcp_code fcp_cuda_nccl_pace(fcp_cuda_session *s, uint32_t instructions, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    cuda_rank *r = &s->ranks[s->base.first_rank];
    fcp_code code = FCP_OK;
    if (s->capturing) return FCP_OK;
    n->unmarked += instructions;
    if (n->unmarked < PACE) return FCP_OK;
    n->unmarked = 0;
    cu_event *mark = n->paces[n->pace++ % PACES];
    for (int q = 0; !code && q < FCP_QUEUES; q++) {
        code = mark[q] ? fcp_cuda_wait_event(s, mark[q], "what was put down before", err) : fcp_cuda_event_take(s, r->device, &mark[q], err);
        if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.event_record(mark[q], r->streams[q]), err, "cannot record an event");
    }
    return code;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

fcp_code fcp_cuda_nccl_group(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const fcp_instr *launch,
                             const fcp_tensors *tensors, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    const fcp_nccl_table *call = &n->nccl->call;
    cu_stream stream = rank->streams[FCP_COMM];
    char what[60];
    if (!launch->b) return FCP_OK;
    snprintf(what, sizeof what, "the transfers of round %u", launch->c);
    fcp_code code = check(s, call->group_start(), what, err);
    if (code) return code;
    for (uint32_t i = launch->a; !code && i < launch->a + launch->b; i++) {
        const fcp_transfer *t = &s->plan->transfers[i];
        fcp_segment parts[FCP_SEGMENTS];
        uint32_t count = fcp_at_caller(t) ? fcp_segments_caller(&rank->arena[pass], tensors, t, parts)
                                          : fcp_segments_block(&rank->arena[pass], t, parts);
        for (uint32_t j = 0; !code && j < count; j++) {
            if (!parts[j].bytes) continue;
            nccl_result result = t->dir == FCP_SEND
                                     ? call->send(parts[j].data, parts[j].bytes, NCCL_INT8, (int)t->peer, n->comm, stream)
                                     : call->receive(parts[j].data, parts[j].bytes, NCCL_INT8, (int)t->peer, n->comm, stream);
            code = check(s, result, what, err);
        }
    }
    nccl_result ended = call->group_end(); /* what was begun is ended, whatever became of it */
    return code ? code : settle(s, ended, what, err);
}

/* One piece of it, by way of `piece` on the device. */
static fcp_code collect_piece(fcp_cuda_session *s, uint32_t from, char *memory, size_t bytes, cu_ptr piece, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    const fcp_nccl_table *call = &n->nccl->call;
    void *at = (void *)(uintptr_t)piece;
    bool sends = n->place.rank == from;
    fcp_code code = FCP_OK;
    if (sends) code = fcp_cuda_stage_in(s, &s->devices[0], piece, memory, bytes, err);
    if (sends && !code) code = fcp_cuda_stage_flush(s, &s->devices[0], err);
    if (!code) code = check(s, call->group_start(), "beginning a group", err);
    if (code) return code;
    code = check(s, sends ? call->send(at, bytes, NCCL_INT8, 0, n->comm, s->origin)
                          : call->receive(at, bytes, NCCL_INT8, (int)from, n->comm, s->origin), "collecting", err);
    nccl_result ended = call->group_end();
    if (!code) code = settle(s, ended, "collecting", err);
    if (!code) code = fcp_cuda_wait(s, s->origin, "collecting", err);
    if (code || sends) return code;
    code = fcp_cuda_stage_out(s, &s->devices[0], memory, piece, bytes, err);
    return code ? code : fcp_cuda_stage_flush(s, &s->devices[0], err);
}

fcp_code fcp_cuda_nccl_collect(fcp_cuda_session *s, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    const struct cuda_nccl *n = s->nccl;
    cu_ptr piece = n->scratch + ((cu_ptr)n->place.ranks + 1) * FCP_GATHER_BYTES;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code && s->finished)
        code = fcp_cuda_check(s->cuda, s->cuda->call.stream_wait_event(s->origin, s->finished, 0), err, "cannot wait for an event");
    for (size_t at = 0; !code && at < bytes; at += PIECE)
        code = collect_piece(s, from, (char *)memory + at, bytes - at < PIECE ? bytes - at : PIECE, piece, err);
    return code;
}

/* --- host tensors ------------------------------------------------------------------------------------------------- */

/* This rank's part of a tensor, in bytes. */
static size_t tensor_bytes(const fcp_cuda_session *s, fcp_tensor t) {
    fcp_shape shape;
    fcp_plan_shape(s->plan, &shape);
    return fcp_tensors_tokens(s->plan, s->base.first_rank, t) * fcp_tensor_token_bytes(&shape, t);
}

/* A tensor that lies in host memory, pinned or not: all of it goes through the stage. */
static bool on_host(const fcp_cuda_session *s, const void *pointer) {
    unsigned type = 0;
    return s->cuda->call.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)pointer) || type != CU_MEMORY_DEVICE;
}

/* Whether the rank has tokens that another is home of, or the reverse. */
static bool moves(const fcp_cuda_session *s, fcp_pass pass) {
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, s->base.first_rank, FCP_COMM);
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++)
            if (fcp_at_caller(&s->plan->transfers[j])) return true;
    }
    return false;
}

size_t fcp_cuda_nccl_staged(const fcp_cuda_session *s, fcp_tensor t, size_t *out_held) {
    bool moved = false;
    *out_held = s->nccl->staged_bytes[t];
    for (int pass = 0; pass < FCP_PASSES; pass++)
        moved |= s->plan->problem->passes >> pass & 1 && (fcp_pass_inputs((fcp_pass)pass) | fcp_pass_outputs((fcp_pass)pass)) >> t & 1 &&
                 moves(s, (fcp_pass)pass);
    return moved ? tensor_bytes(s, t) : 0;
}

static fcp_code stage(fcp_cuda_session *s, cuda_rank *rank, int t, size_t bytes, fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    /* the driver would wait for earlier runs itself, without a timeout */
    fcp_code code = n->staged[t] ? fcp_cuda_wait(s, rank->streams[FCP_COMM], "what ran before", err) : FCP_OK;
    if (code) return code;
    if (n->staged[t]) s->cuda->call.release(n->staged[t]);
    n->staged[t] = 0;
    n->staged_bytes[t] = 0;
    code = fcp_cuda_memory(s, rank->device, bytes, NULL, "a tensor from the host", &n->staged[t], err);
    if (!code) n->staged_bytes[t] = bytes;
    return code;
}

fcp_code fcp_cuda_nccl_stage_open(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        size_t held, bytes = fcp_cuda_nccl_staged(s, (fcp_tensor)t, &held);
        if (bytes > held) code = stage(s, &s->ranks[s->base.first_rank], t, bytes, err);
    }
    return code;
}

fcp_code fcp_cuda_nccl_stage_in(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_tensors *out,
                                fcp_error *err) {
    struct cuda_nccl *n = s->nccl;
    cuda_rank *rank = &s->ranks[s->base.first_rank];
    unsigned inputs = fcp_pass_inputs(pass), all = inputs | fcp_pass_outputs(pass);
    fcp_code code = FCP_OK;
    bool any = false;
    *out = *tensors;
    if (!moves(s, pass)) return FCP_OK;
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        size_t bytes = tensor_bytes(s, (fcp_tensor)t);
        const void *from = fcp_tensors_get(tensors, (fcp_tensor)t);
        if (!(all >> t & 1) || !bytes || !on_host(s, from)) continue;
        if (n->staged_bytes[t] < bytes) code = stage(s, rank, t, bytes, err);
        if (!code && inputs >> t & 1) code = fcp_cuda_stage_in(s, rank->device, n->staged[t], from, bytes, err);
        if (!code) fcp_tensors_set(out, (fcp_tensor)t, (void *)(uintptr_t)n->staged[t]);
        any = s->host_tensors = true;
    }
    return code || !any ? code : fcp_cuda_follow(s, rank->device, rank->device->stage.stream, rank->streams[FCP_COMM], err);
}

fcp_code fcp_cuda_nccl_stage_out(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *staged,
                                 fcp_error *err) {
    cuda_rank *rank = &s->ranks[s->base.first_rank];
    fcp_code code = FCP_OK;
    bool any = false;
    for (int t = 0; !code && t < FCP_TENSORS; t++) {
        void *to = fcp_tensors_get(tensors, (fcp_tensor)t);
        const void *from = fcp_tensors_get(staged, (fcp_tensor)t);
        size_t bytes = tensor_bytes(s, (fcp_tensor)t);
        if (!(fcp_pass_outputs(pass) >> t & 1) || to == from || !bytes) continue;
        if (!any) code = fcp_cuda_follow(s, rank->device, rank->streams[FCP_COMM], rank->device->stage.stream, err);
        any = true;
        if (!code) code = fcp_cuda_stage_out(s, rank->device, to, (uintptr_t)from, bytes, err);
    }
    return code;
}
