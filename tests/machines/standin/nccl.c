/* nccl.c: the functions of the stand-in NCCL (nccl.h describes it).
 *
 * Communicators are never freed, so that the use of one that has ended is recognised. A communicator that does not
 * block has a job: joining, putting a group into a stream, or ending. A job progresses when the communicator is asked
 * for its error, and only then does what it puts into streams appear there. A communicator that blocks does its jobs
 * within the calls.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/machines/standin/mailbox.h"
#include "tests/machines/standin/nccl.h"
#include "tests/machines/standin/outside.h"

static standin_nccl control = {.version = 22809};
standin_nccl *standin_nccl_control(void) { return &control; }

typedef struct op {
    bool send, collective; /* collective: part of a call that all ranks make; it has connections of its own */
    uint32_t peer;
    uint64_t address, bytes;
} op;
typedef struct group {
    standin_work work;
    nccl_comm comm;
    cu_stream stream;
    long users; /* the nodes that are this group, and who is making it */
    uint32_t count;
    op *ops;
    standin_range *ranges;
} group;
/* A group that is running. */
typedef struct part {
    uint64_t turn, moved; /* turn: its number between the two ranks; moved: bytes of head and body */
    bool ended;
    uint64_t head[2];
} part;
typedef struct run {
    bool ended;
    part parts[];
} run;
typedef struct registration {
    uint64_t begin, bytes;
    struct registration *next;
} registration;
typedef enum job { IDLE, JOINING, PUTTING, ENDING } job;
struct nccl_comm_ {
    mailbox mail;
    uint32_t rank, ranks;
    int device;
    bool blocking, ready, aborted, final, ended, stalled;
    job job;
    uint32_t delay;    /* at least so many questions until the job is done */
    group *pending;    /* the group that the job puts into a stream */
    nccl_result error;
    uint64_t turn[2][BOX_RANKS], done[2][BOX_RANKS]; /* [send][peer]: how many have begun, how many have ended */
    bool connected[2][2][BOX_RANKS]; /* [collective][send][peer] */
    long graph_nodes, under_way;
    registration *registrations;
    nccl_comm next;
};

static nccl_comm comms;
static char last_error[300];
/* The group that this thread is making. */
static __thread struct {
    int depth;
    nccl_result error;
    group *groups[BOX_RANKS];
    uint32_t count;
} making;

#define API nccl_result
API ncclGetVersion(int *out);
const char *ncclGetErrorString(nccl_result result);
const char *ncclGetLastError(nccl_comm comm);
API ncclGetUniqueId(nccl_id *out);
API ncclCommInitRankConfig(nccl_comm *out, int ranks, nccl_id id, int rank, nccl_config *config);
API ncclCommFinalize(nccl_comm comm);
API ncclCommDestroy(nccl_comm comm);
API ncclCommAbort(nccl_comm comm);
API ncclCommGetAsyncError(nccl_comm comm, nccl_result *out);
API ncclMemAlloc(void **out, size_t bytes);
API ncclMemFree(void *p);
API ncclCommRegister(nccl_comm comm, void *p, size_t bytes, void **out);
API ncclCommDeregister(nccl_comm comm, void *handle);
API ncclGroupStart(void);
API ncclGroupEnd(void);
API ncclSend(const void *from, size_t count, int type, int peer, nccl_comm comm, cu_stream stream);
API ncclRecv(void *to, size_t count, int type, int peer, nccl_comm comm, cu_stream stream);
API ncclAllGather(const void *from, void *to, size_t count, int type, nccl_comm comm, cu_stream stream);
/* Makes the compiler check that the functions have the types that callers think they have. */
static const fcp_nccl_table table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_NCCL_SYMBOLS(X)
#undef X
};

__attribute__((format(printf, 2, 3))) static nccl_result fail(nccl_result result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return result;
}

/* The process ends, or stops for good, where a test says so; a communicator is told of its death. */
static void suffer(int fault) {
    for (nccl_comm c = comms; c && fault == STANDIN_DIES; c = c->next)
        if (c->mail.box) atomic_store(&c->mail.box->rank[c->rank].state, BOX_DEAD);
    if (fault == STANDIN_DIES) raise(SIGKILL);
    if (control.stops) *control.stops = 1;
    for (;;) raise(SIGSTOP);
}
static nccl_result injected(void) {
    if (++control.calls != control.fail_at) return NCCL_SUCCESS;
    if (control.fail_with >= STANDIN_DIES) suffer(control.fail_with);
    return control.fail_with >= STANDIN_DIES ? NCCL_SUCCESS
                                             : fail(control.fail_with, "call %ld was to fail", control.calls);
}
/* Every call that can fail begins with this. If it is part of a group, the group fails with it. */
#define ENTER                                                                                                          \
    do {                                                                                                               \
        nccl_result result_ = injected();                                                                              \
        if (result_ && making.depth) making.error = result_;                                                           \
        if (result_) return result_;                                                                                   \
    } while (0)

static void hold_on(void) {
    standin_go();
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}
static fcp_patience patience(void) { return fcp_patience_of(control.patience_s ? control.patience_s : 200, 0.1); }

API ncclGetVersion(int *out) {
    const char *version = getenv("STANDIN_NCCL_VERSION");
    if (version) control.version = atoi(version);
    ENTER;
    *out = control.version;
    return NCCL_SUCCESS;
}
const char *ncclGetErrorString(nccl_result result) {
    static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                        "invalid argument", "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}
const char *ncclGetLastError(nccl_comm comm) {
    (void)comm;
    return last_error;
}
API ncclGetUniqueId(nccl_id *out) {
    ENTER;
    return mailbox_make(out->bytes) ? NCCL_SUCCESS : fail(NCCL_SYSTEM_ERROR, "no folder for a mailbox");
}

/* --- groups on the device ----------------------------------------------------------------------------------------- */

static void release(group *g) {
    if (--g->users) return;
    free(g->ops);
    free(g->ranges);
    free(g);
}
static void group_hold(standin_work *work, bool graph) {
    group *g = (group *)work;
    g->users++;
    *(graph ? &g->comm->graph_nodes : &g->comm->under_way) += 1;
}
static void group_drop(standin_work *work, bool graph, void *state) {
    group *g = (group *)work;
    run *r = state;
    if (graph) g->comm->graph_nodes--;
    else if (!r || !r->ended) g->comm->under_way--;
    free(r);
    release(g);
}

/* Does this send wait for its receive? The seed decides, independently of the order of events. */
static bool waits_for_receive(const struct nccl_comm_ *c, uint32_t peer, uint64_t turn) {
    uint64_t x =
        control.seed * UINT64_C(0x9e3779b97f4a7c15) + (c->rank * 64u + peer) * UINT64_C(0xbf58476d1ce4e5b9) + turn;
    x = (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
    return x >> 33 & 1;
}

/* The bytes of a part: two words that say which part it is, then its own bytes. */
static bool part_go(nccl_comm c, const op *o, part *p) {
    box_pair *pair = o->send ? mailbox_pair(&c->mail, c->rank, o->peer) : mailbox_pair(&c->mail, o->peer, c->rank);
    uint64_t before = p->moved;
    if (p->ended || c->done[o->send][o->peer] != p->turn) return false;
    if (o->send && waits_for_receive(c, o->peer, p->turn) && atomic_load(&pair->posted) <= p->turn) return false;
    if (p->moved < sizeof p->head) {
        char *at = (char *)p->head + p->moved;
        size_t left = sizeof p->head - (size_t)p->moved;
        p->moved += o->send ? box_write(pair, at, left) : box_read(pair, at, left);
        if (p->moved < sizeof p->head) return p->moved > before;
        if (!o->send && (p->head[0] != p->turn || p->head[1] != o->bytes)) {
            standin_trouble("rank %u sends rank %u %llu bytes, which receives %llu", o->peer, c->rank,
                            (unsigned long long)p->head[1], (unsigned long long)o->bytes);
            c->stalled = true;
            return false;
        }
    }
    uint64_t body = p->moved - sizeof p->head;
    char *at = (char *)(uintptr_t)o->address + body;
    p->moved +=
        o->send ? box_write(pair, at, (size_t)(o->bytes - body)) : box_read(pair, at, (size_t)(o->bytes - body));
    p->ended = p->moved == sizeof p->head + o->bytes;
    if (p->ended) c->done[o->send][o->peer]++;
    return p->ended || p->moved > before;
}

static run *begin(group *g) {
    nccl_comm c = g->comm;
    run *r = calloc(1, sizeof *r + g->count * sizeof *r->parts);
    if (!r) return NULL;
    if (++control.begun == control.group_at) {
        if (control.group_fault == STANDIN_STALLS) c->stalled = true;
        else suffer(control.group_fault);
    }
    for (uint32_t i = 0; i < g->count; i++) {
        const op *o = &g->ops[i];
        r->parts[i].turn = c->turn[o->send][o->peer]++;
        if (o->send) memcpy(r->parts[i].head, (uint64_t[]){r->parts[i].turn, o->bytes}, sizeof r->parts[i].head);
        else atomic_store(&mailbox_pair(&c->mail, o->peer, c->rank)->posted, r->parts[i].turn + 1);
    }
    return r;
}

static standin_step group_go(standin_work *work, void **state) {
    group *g = (group *)work;
    nccl_comm c = g->comm;
    bool moved = false, ended = true;
    if (!c->ended && !c->aborted && !*state) *state = begin(g);
    run *r = *state;
    for (uint32_t i = 0; c->aborted && i < g->count; i++) /* after an abort, what was not received counts as nothing */
        if (!g->ops[i].send && !(r && r->parts[i].ended))
            memset((void *)(uintptr_t)g->ops[i].address, 0xff, g->ops[i].bytes);
    if (c->aborted || c->ended) {
        if (r && !r->ended) c->under_way--;
        if (r) r->ended = true;
        return STANDIN_DONE;
    }
    if (!r || c->stalled) return STANDIN_STUCK;
    uint32_t first = (uint32_t)(control.seed % (g->count + 1));
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t at = (i + first) % g->count;
        moved |= part_go(c, &g->ops[at], &r->parts[at]);
    }
    for (uint32_t i = 0; i < g->count; i++) ended &= r->parts[i].ended;
    if (!ended) return moved ? STANDIN_MOVED : STANDIN_STUCK;
    r->ended = true;
    c->under_way--;
    return STANDIN_DONE;
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

/* NCCL_SUCCESS: all ranks have come to this state. */
static nccl_result all_at(nccl_comm c, int state, const char *what) {
    bool all = true;
    for (uint32_t r = 0; r < c->ranks; r++) {
        if (!control.silent && mailbox_dead(&c->mail, r))
            return fail(NCCL_REMOTE_ERROR, "%s: rank %u is gone", what, r);
        all &= atomic_load(&c->mail.box->rank[r].state) >= state;
    }
    return all ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

static nccl_result go_joining(nccl_comm c) {
    if (!c->mail.box) return NCCL_IN_PROGRESS; /* no other rank answers */
    box_rank *mine = &c->mail.box->rank[c->rank];
    const char *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool may_share = control.version >= 23000 && several && strcmp(several, "1") == 0;
    for (uint32_t r = 0; !may_share && r < c->ranks; r++) {
        box_rank *theirs = &c->mail.box->rank[r];
        if (r != c->rank && atomic_load(&theirs->state) != BOX_AWAY && atomic_load(&theirs->device) == c->device)
            return control.version >= 23000
                       ? fail(NCCL_INVALID_USAGE, "several ranks are on one device; "
                                                  "NCCL_MULTI_RANK_GPU_ENABLE=1 would allow it")
                       : fail(NCCL_INVALID_USAGE, "Duplicate GPU detected : rank %u and rank %u both on device %d",
                              c->rank, r, c->device);
    }
    nccl_result result = all_at(c, BOX_JOINED, "joining");
    if (result) return result;
    int joined = BOX_JOINED;
    atomic_compare_exchange_strong(&mine->state, &joined, BOX_CHECKED);
    result = all_at(c, BOX_CHECKED, "joining");
    if (result) return result;
    if (c->rank == 0) mailbox_forget(&c->mail);
    c->ready = true;
    return NCCL_SUCCESS;
}

/* Have both ends of every pair connected? */
static nccl_result connect(nccl_comm c, const group *g) {
    nccl_result result = NCCL_SUCCESS;
    for (uint32_t i = 0; i < g->count; i++) {
        const op *o = &g->ops[i];
        bool *connected = &c->connected[o->collective][o->send][o->peer];
        if (*connected) continue;
        box_pair *pair = o->send ? mailbox_pair(&c->mail, c->rank, o->peer) : mailbox_pair(&c->mail, o->peer, c->rank);
        uint32_t both = o->collective ? 12 : 3, mine = both & (o->send ? 5 : 10);
        if (((atomic_fetch_or(&pair->connects, mine) | mine) & both) == both) *connected = true;
        else if (!control.silent && mailbox_dead(&c->mail, o->peer))
            return fail(NCCL_REMOTE_ERROR, "rank %u is gone", o->peer);
        else result = NCCL_IN_PROGRESS;
    }
    return result;
}

static nccl_result go_putting(nccl_comm c) {
    group *g = c->pending;
    nccl_result result = connect(c, g);
    if (result == NCCL_IN_PROGRESS) return result;
    c->pending = NULL;
    if (!result && standin_put(g->stream, &g->work))
        result = fail(NCCL_UNHANDLED_CUDA_ERROR, "the stream takes no group");
    release(g);
    return result;
}

static nccl_result go_ending(nccl_comm c) {
    standin_go();
    if (c->under_way) return NCCL_IN_PROGRESS;
    int checked = BOX_CHECKED;
    atomic_compare_exchange_strong(&c->mail.box->rank[c->rank].state, &checked, BOX_FINAL);
    c->final = true;
    return control.seed & 1 ? all_at(c, BOX_FINAL, "finalizing") : NCCL_SUCCESS;
}

static nccl_result go(nccl_comm c) {
    nccl_result result = NCCL_SUCCESS;
    if (c->job == IDLE) return result;
    if (c->delay) {
        c->delay--;
        return NCCL_IN_PROGRESS;
    }
    if (c->job == JOINING) result = go_joining(c);
    if (c->job == PUTTING) result = go_putting(c);
    if (c->job == ENDING) result = go_ending(c);
    if (result == NCCL_IN_PROGRESS) return result;
    c->job = IDLE;
    c->error = result;
    return result;
}

/* Begins a job. Returns what the call that begins it returns. */
static nccl_result start(nccl_comm c, job j, const char *what) {
    fcp_patience left = patience();
    c->job = j;
    c->delay = c->blocking ? 0 : (uint32_t)(control.seed >> 3) % 3;
    if (!c->blocking) return NCCL_IN_PROGRESS;
    for (;;) {
        nccl_result result = go(c);
        if (result != NCCL_IN_PROGRESS) return result;
        if (fcp_patience_ends(&left)) break;
        hold_on();
    }
    standin_trouble("%s would wait for ever", what);
    return c->error = fail(NCCL_SYSTEM_ERROR, "%s would wait for ever", what);
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

static bool is_there(nccl_comm comm, const char *what) {
    nccl_comm c = comms;
    while (c && c != comm) c = c->next;
    if (!c || c->ended) standin_trouble("%s of a communicator that %s", what, c ? "has ended" : "is none");
    return c && !c->ended;
}
static nccl_result usable(nccl_comm c, const char *what) {
    if (!is_there(c, what)) return fail(NCCL_INVALID_ARGUMENT, "%s: no communicator", what);
    if (c->job != IDLE) return fail(NCCL_INVALID_ARGUMENT, "%s: the previous operation has not ended", what);
    if (c->error) return c->error;
    return c->final ? fail(NCCL_INVALID_USAGE, "%s: the communicator is finalized", what) : NCCL_SUCCESS;
}

static bool config_good(const nccl_config *x) {
    bool ok = x->size >= sizeof(nccl_config) && x->magic == 0xcafebeef && x->version >= 21800;
    const int u = NCCL_UNDEFINED;
    ok = ok && (x->blocking == u || x->blocking == 0 || x->blocking == 1);
    ok = ok && (x->cga_cluster_size == u || (x->cga_cluster_size >= 0 && x->cga_cluster_size <= 8));
    ok = ok && (x->min_ctas == u || x->min_ctas > 0) && (x->max_ctas == u || x->max_ctas > 0);
    ok = ok && (x->min_ctas == u || x->max_ctas == u || x->min_ctas <= x->max_ctas);
    return ok && (x->split_share == u || x->split_share == 0 || x->split_share == 1);
}

static nccl_result join(nccl_comm c, const nccl_id *id) {
    mailbox_result found = mailbox_open(&c->mail, id->bytes, c->ranks);
    if (found == MAILBOX_NO_ID) return fail(NCCL_INVALID_ARGUMENT, "not a unique id");
    if (found == MAILBOX_SYSTEM) return fail(NCCL_SYSTEM_ERROR, "the mailbox does not open");
    if (found != MAILBOX_OPEN)
        return control.silent ? NCCL_SUCCESS
                              : fail(NCCL_SYSTEM_ERROR, "%s",
                                     found == MAILBOX_NOT_THERE ? "nobody listens under the unique id"
                                                                : "the unique id is of other ranks");
    box_rank *mine = &c->mail.box->rank[c->rank];
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&mine->pid, &nobody, getpid())) {
        mailbox_close(&c->mail);
        return control.silent ? NCCL_SUCCESS : fail(NCCL_SYSTEM_ERROR, "rank %u is there twice", c->rank);
    }
    atomic_store(&mine->device, c->device);
    atomic_store(&mine->state, BOX_JOINED);
    return NCCL_SUCCESS;
}

static void end(nccl_comm c) {
    if (c->graph_nodes) standin_trouble("a communicator ends while graphs that use it are alive");
    standin_count(-1);
    while (c->registrations) {
        registration *r = c->registrations;
        c->registrations = r->next;
        free(r);
        standin_count(-1);
    }
    if (c->pending) release(c->pending);
    c->pending = NULL;
    c->job = IDLE;
    if (c->mail.box) atomic_store(&c->mail.box->rank[c->rank].state, c->aborted || c->error ? BOX_GONE : BOX_FINAL);
    if (c->rank == 0 && !c->ready && c->mail.box) mailbox_forget(&c->mail);
    c->ended = true;
    standin_go(); /* lets go on what waited for it in streams */
    mailbox_close(&c->mail);
}

API ncclCommInitRankConfig(nccl_comm *out, int ranks, nccl_id id, int rank, nccl_config *config) {
    ENTER;
    *out = NULL;
    if (ranks < 1 || ranks > BOX_RANKS || rank < 0 || rank >= ranks)
        return fail(NCCL_INVALID_ARGUMENT, "rank %d of %d", rank, ranks);
    if (config && !config_good(config)) return fail(NCCL_INVALID_ARGUMENT, "a configuration that is none");
    nccl_comm c = calloc(1, sizeof *c);
    if (!c) return fail(NCCL_SYSTEM_ERROR, "out of memory");
    *c = (struct nccl_comm_){.rank = (uint32_t)rank, .ranks = (uint32_t)ranks, .device = standin_current_device(),
                             .blocking = !config || config->blocking != 0};
    if (config) {
        control.cga_cluster_size = config->cga_cluster_size;
        control.min_ctas = config->min_ctas;
        control.max_ctas = config->max_ctas;
    }
    nccl_result result = c->device < 0 ? fail(NCCL_UNHANDLED_CUDA_ERROR, "no current device") : join(c, &id);
    if (result) free(c);
    if (result) return result;
    c->next = comms;
    comms = c;
    standin_count(1);
    result = start(c, JOINING, "ncclCommInitRankConfig");
    if (result && result != NCCL_IN_PROGRESS) end(c);
    else *out = c;
    return result;
}
API ncclCommFinalize(nccl_comm c) {
    nccl_result fault = injected(), result = usable(c, "ncclCommFinalize");
    if (!result) result = start(c, ENDING, "ncclCommFinalize");
    return fault ? fault : result;
}
/* Waits for what is running. */
API ncclCommDestroy(nccl_comm c) {
    nccl_result fault = injected();
    fcp_patience left = patience();
    if (!is_there(c, "ncclCommDestroy")) return NCCL_INVALID_ARGUMENT;
    if (c->job == IDLE && !c->error && !c->final) c->job = ENDING;
    while (go(c) == NCCL_IN_PROGRESS || c->under_way) {
        if (fcp_patience_ends(&left)) {
            standin_trouble("ncclCommDestroy would wait for ever");
            break;
        }
        hold_on();
    }
    end(c);
    return fault;
}
API ncclCommAbort(nccl_comm c) {
    nccl_result fault = injected();
    if (!is_there(c, "ncclCommAbort")) return NCCL_INVALID_ARGUMENT;
    c->aborted = true;
    standin_go();
    end(c);
    return fault;
}
API ncclCommGetAsyncError(nccl_comm c, nccl_result *out) {
    if (!is_there(c, "ncclCommGetAsyncError")) return fail(NCCL_INVALID_ARGUMENT, "no communicator");
    control.asked++;
    if (control.async_at && control.asked >= control.async_at && !c->error)
        c->error = fail(control.async_with, "this error was to be");
    for (uint32_t r = 0; c->mail.box && r < c->ranks && !c->error && !control.silent && c->under_way; r++)
        if (mailbox_dead(&c->mail, r)) c->error = fail(NCCL_REMOTE_ERROR, "rank %u is gone", r);
    nccl_result result = c->error ? c->error : go(c);
    *out = result;
    return NCCL_SUCCESS;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

API ncclMemAlloc(void **out, size_t bytes) {
    ENTER;
    uint64_t address = 0;
    *out = NULL;
    cu_result result = bytes ? standin_allocate(&address, bytes) : CU_ERROR_INVALID_VALUE;
    if (result) return fail(NCCL_UNHANDLED_CUDA_ERROR, "cuda error %d for %zu bytes", result, bytes);
    *out = (void *)(uintptr_t)address;
    return NCCL_SUCCESS;
}
API ncclMemFree(void *p) {
    nccl_result fault = injected();
    for (nccl_comm c = comms; c; c = c->next)
        for (registration *r = c->ended ? NULL : c->registrations; r; r = r->next)
            if (r->begin == (uintptr_t)p) standin_trouble("memory is freed that a communicator has registered");
    return standin_release((uintptr_t)p) ? fail(NCCL_UNHANDLED_CUDA_ERROR, "the memory is not freed") : fault;
}
API ncclCommRegister(nccl_comm c, void *p, size_t bytes, void **out) {
    ENTER;
    bool shared = false;
    *out = NULL;
    nccl_result result = usable(c, "ncclCommRegister");
    if (result) return result;
    int device = standin_place((uintptr_t)p, bytes, &shared);
    if (device != c->device || !shared)
        standin_trouble("memory is registered that is not of ncclMemAlloc, on the communicator's device");
    if (device != c->device || !shared) return fail(NCCL_INVALID_ARGUMENT, "foreign memory");
    registration *r = calloc(1, sizeof *r);
    if (!r) return fail(NCCL_SYSTEM_ERROR, "out of memory");
    *r = (registration){(uintptr_t)p, bytes, c->registrations};
    c->registrations = r;
    control.registrations++;
    standin_count(1);
    *out = r;
    return NCCL_SUCCESS;
}
API ncclCommDeregister(nccl_comm c, void *handle) {
    nccl_result fault = injected();
    if (!is_there(c, "ncclCommDeregister")) return fail(NCCL_INVALID_ARGUMENT, "no communicator");
    registration **at = &c->registrations, *found = NULL;
    while (*at && (void *)*at != handle) at = &(*at)->next;
    found = *at;
    if (!found) standin_trouble("what is not registered is deregistered");
    if (!found) return fail(NCCL_INVALID_ARGUMENT, "not registered");
    *at = found->next;
    free(found);
    standin_count(-1);
    return fault;
}

/* --- making groups ------------------------------------------------------------------------------------------------ */

static void forget(void) {
    for (uint32_t i = 0; i < making.count; i++)
        if (making.groups[i]) release(making.groups[i]);
    memset(&making, 0, sizeof making);
}

static group *group_of(nccl_comm c, cu_stream stream) {
    for (uint32_t i = 0; i < making.count; i++)
        if (making.groups[i]->comm == c) {
            if (making.groups[i]->stream != stream) standin_trouble("a group lies in two streams");
            return making.groups[i];
        }
    group *g = making.count < BOX_RANKS ? calloc(1, sizeof *g) : NULL;
    if (!g) return NULL;
    *g = (group){
        .work = {.name = "a group of transfers", .owner = c, .hold = group_hold, .drop = group_drop, .go = group_go},
        .comm = c,
        .stream = stream,
        .users = 1};
    making.groups[making.count++] = g;
    return g;
}

static nccl_result add(nccl_comm c, cu_stream stream, bool send, bool collective, int peer, uint64_t address,
                       uint64_t bytes) {
    if (standin_stream_device(stream) != c->device)
        return fail(NCCL_INVALID_ARGUMENT, "the stream is not of the communicator's device");
    if (bytes && standin_place(address, bytes, NULL) != c->device) {
        standin_trouble("%s is not memory of the communicator's device", send ? "what is sent" : "where is received");
        return fail(NCCL_INVALID_ARGUMENT, "foreign memory");
    }
    group *g = group_of(c, stream);
    op *ops = g ? realloc(g->ops, (g->count + 1) * sizeof *ops) : NULL;
    if (!ops) return fail(NCCL_SYSTEM_ERROR, "out of memory");
    g->ops = ops;
    g->ops[g->count++] = (op){send, collective, (uint32_t)peer, address, bytes};
    control.operations++;
    return NCCL_SUCCESS;
}

static uint64_t size_of(int type) {
    static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && (size_t)type < sizeof sizes ? sizes[type] : 0;
}

/* Adds one operation to the group that is being made. Its error is the group's error, too. */
static nccl_result operation(nccl_comm c, cu_stream stream, bool send, bool collective, int peer, const void *at,
                             size_t count, int type) {
    nccl_result result = usable(c, send ? "ncclSend" : "ncclRecv");
    if (!result && !size_of(type)) result = fail(NCCL_INVALID_ARGUMENT, "no type of data");
    if (!result && (peer < 0 || (uint32_t)peer >= c->ranks)) result = fail(NCCL_INVALID_ARGUMENT, "no rank %d", peer);
    if (!result) result = add(c, stream, send, collective, peer, (uintptr_t)at, count * size_of(type));
    if (result) making.error = result;
    return result;
}

/* Finds what is wrong with a group as a whole. */
static nccl_result check(group *g) {
    nccl_comm c = g->comm;
    bool capturing = standin_capturing(g->stream);
    long self = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const op *a = &g->ops[i];
        if (a->peer == c->rank) self += a->send ? 1 : -1;
        if (capturing && !c->connected[a->collective][a->send][a->peer]) {
            standin_trouble("rank %u is not connected %s rank %u, and a graph is being captured", c->rank,
                            a->send ? "to" : "from", a->peer);
            return fail(NCCL_INVALID_USAGE, "not connected before a capture");
        }
        for (uint32_t j = 0; j < i; j++) {
            const op *b = &g->ops[j];
            if ((!a->send || !b->send) && a->address < b->address + b->bytes && b->address < a->address + a->bytes)
                standin_trouble("two transfers of one group touch the same bytes");
        }
    }
    control.captured += capturing;
    return self ? fail(NCCL_INVALID_USAGE, "Trying to %s to self without a matching %s", self > 0 ? "send" : "recv",
                       self > 0 ? "recv" : "send") : NCCL_SUCCESS;
}

static nccl_result finish(group *g) {
    g->ranges = calloc(g->count, sizeof *g->ranges);
    if (!g->ranges) return fail(NCCL_SYSTEM_ERROR, "out of memory");
    for (uint32_t i = 0; i < g->count; i++)
        g->ranges[i] = (standin_range){g->ops[i].address, g->ops[i].bytes, !g->ops[i].send};
    g->work.ranges = g->ranges;
    g->work.range_count = g->count;
    return check(g);
}

static nccl_result close_group(void) {
    if (!making.depth) return fail(NCCL_INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    if (--making.depth) return NCCL_SUCCESS;
    nccl_result result = making.error, under_way = NCCL_SUCCESS;
    control.empty_groups += !making.count;
    for (uint32_t i = 0; !result && i < making.count; i++) result = finish(making.groups[i]);
    for (uint32_t i = 0; !result && i < making.count; i++) {
        group *g = making.groups[i];
        g->comm->pending = g;
        making.groups[i] = NULL; /* from here on it belongs to the job */
        control.groups++;
        result = start(g->comm, PUTTING, "ncclGroupEnd");
        if (result == NCCL_IN_PROGRESS) under_way = result, result = NCCL_SUCCESS;
    }
    forget();
    return result ? result : under_way;
}

API ncclGroupStart(void) {
    ENTER;
    making.depth++;
    return NCCL_SUCCESS;
}
API ncclGroupEnd(void) {
    nccl_result fault = injected();
    if (fault) making.error = fault;
    return close_group();
}
API ncclSend(const void *from, size_t count, int type, int peer, nccl_comm comm, cu_stream stream) {
    ENTER;
    making.depth++;
    nccl_result result = operation(comm, stream, true, false, peer, from, count, type), ended = close_group();
    return result ? result : ended;
}
API ncclRecv(void *to, size_t count, int type, int peer, nccl_comm comm, cu_stream stream) {
    ENTER;
    making.depth++;
    nccl_result result = operation(comm, stream, false, false, peer, to, count, type), ended = close_group();
    return result ? result : ended;
}
API ncclAllGather(const void *from, void *to, size_t count, int type, nccl_comm comm, cu_stream stream) {
    ENTER;
    nccl_result result = usable(comm, "ncclAllGather");
    making.depth++;
    for (uint32_t r = 0; !result && r < comm->ranks; r++) {
        char *mine = (char *)to + r * count * size_of(type);
        result = operation(comm, stream, true, true, (int)r, from, count, type);
        if (!result) result = operation(comm, stream, false, true, (int)r, mine, count, type);
    }
    if (result) making.error = result;
    nccl_result ended = close_group();
    return result ? result : ended;
}
