/* transport_mpi.c: the transport "mpi": every rank of a plan is a process, and messages go by MPI.
 *
 * Requires: as many processes as ranks, started by mpirun or srun, which all make their session, run it and end it in
 *           the same way; an MPI that allows threads (runtime/libraries/mpi.h).
 * Gives:    fcp_transport_mpi.
 * Method:   a session has a communicator of its own. A wire is one message: a header that says what it is, then its
 *           segments end to end. Its tag is the fabric. Two ranks launch their rounds in the same order, and MPI keeps
 *           the order of messages with one tag between two ranks. So a receive gets the message that is meant for it.
 *           The receiver checks this by the header. No call blocks inside MPI: requests under way are polled.
 * Failure:  a rank whose session fails tells all others. They listen while they wait, and their sessions fail too. A
 *           rank that is stopped sends no heartbeats (heartbeat.h), so all that wait give up after the time limit. The
 *           limit also ends a wait in which no rank makes progress. If a process dies, mpirun ends the others. Where
 *           MPI was initialised without MPI_THREAD_MULTIPLE there are no heartbeats: a rank that is busy for longer
 *           than the time limit then counts as stalled.
 * Cost:     two copies of the data, beside those of MPI; while a rank waits, a processor now and then.
 */
#include "runtime/host/executor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/exec/session.h"
#include "runtime/exec/error_place.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/host/message_group.h"
#include "runtime/host/heartbeat.h"
#include "runtime/libraries/mpi.h"
#include "runtime/rendezvous/rendezvous.h"

/* One message of MPI has at most so many bytes: it counts them in an int. Longer ones go in pieces. */
enum { PIECE = 1 << 30 };
enum { TAG_WIRE, TAG_COLLECT = TAG_WIRE + FCP_FABRICS, TAG_FAILED };
enum { LONGEST_PAUSE = 200000 }; /* nanoseconds between two questions */

/* What a message begins with. */
typedef struct header {
    uint64_t bytes; /* behind it */
    uint32_t pass, round;
} header;

/* A piece of a message that MPI has not finished. */
typedef struct piece {
    fcp_mpi_handle request;
    uint32_t wire;
    bool done;
} piece;

typedef struct mpi_net {
    fcp_net base;
    fcp_place place;
    uint32_t timeout_s;
    fcp_mpi_handle comm;
    bool joined;              /* comm exists */
    fcp_group group;          /* under way */
    header header;            /* of every message of the group, but for bytes */
    piece *pieces;            /* of its messages */
    uint32_t *pieces_left;    /* of each wire */
    uint32_t piece_count, pieces_held, wires_held;
    /* failure */
    _Atomic bool aborted;     /* this process's session has failed */
    bool listening;           /* `heard` is being received */
    fcp_mpi_handle listens, *tells; /* tells: one for each rank that has been told; NULL: nobody has */
    uint32_t heard;           /* the rank that failed, as it says */
    _Atomic uint32_t failed;  /* the same once it has come; FCP_NONE: none has failed */
    fcp_mpi_kept kept;
    fcp_heartbeat heartbeat;
    bool beats;               /* this process sends some */
    struct seen {
        uint64_t beats, got_on;
    } *seen;                  /* of each rank: how many beats have come so far */
} mpi_net;

static fcp_code broken(fcp_error *err) { return fcp_fail(err, FCP_E_RUN, "MPI has failed"); }

/* --- other ranks that fail ---------------------------------------------------------------------------------------- */

/* Returns whether another rank has said that its session has failed. */
static fcp_code listen(mpi_net *n, fcp_error *err) {
    bool came = false;
    if (n->listening && !fcp_mpi_test(&n->listens, &came)) return broken(err);
    if (came) {
        n->listening = false;
        n->failed = n->heard;
    }
    if (n->failed == FCP_NONE) return FCP_OK;
    return fcp_fail_at(err, FCP_E_RUN, fcp_where_rank(n->failed), "rank %u has failed, and says why", n->failed);
}

/* From any thread. It waits for nobody: a rank that hangs would not take the message. */
static void mpi_abort(fcp_net *base) {
    mpi_net *n = (mpi_net *)base;
    if (atomic_exchange(&n->aborted, true) || !n->joined || n->failed != FCP_NONE) return;
    fcp_mpi_handle *tells = calloc(base->ranks, sizeof *tells);
    for (uint32_t r = 0; tells && r < base->ranks; r++)
        if (r != n->place.rank) fcp_mpi_send(n->comm, &n->place.rank, sizeof n->place.rank, r, TAG_FAILED, &tells[r]);
    n->tells = tells;
}

/* Tells all others that this process lives, and reads what has come of them. */
static void beat(void *context, bool got_on) {
    mpi_net *n = context;
    fcp_mpi_beat(got_on);
    for (uint32_t r = 0; r < n->base.ranks; r++) {
        struct seen now;
        const bool goes_on = fcp_mpi_beats_of(r, &now.beats, &now.got_on);
        if (now.beats != n->seen[r].beats) fcp_heartbeat_heard(&n->heartbeat, r, now.got_on != n->seen[r].got_on);
        if (!goes_on) fcp_heartbeat_ended(&n->heartbeat, r);
        n->seen[r] = now;
    }
}

/* Waits until MPI has completed a request, another rank fails, or the time limit is over. The limit starts anew
 * whenever some rank makes progress. */
static fcp_code settle(mpi_net *n, fcp_mpi_handle *request, const char *what, fcp_error *err) {
    fcp_heartbeat_wait wait = fcp_heartbeat_wait_begin(&n->heartbeat);
    uint64_t idle = 0;
    bool done = false;
    for (long pause = 1000;; fcp_pause(&pause, LONGEST_PAUSE)) {
        if (!fcp_mpi_test(request, &done)) return broken(err);
        if (done) break;
        if (fcp_interrupted(n->base.interrupt)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        fcp_code code = listen(n, err);
        if (!code) code = fcp_heartbeat_check(&n->heartbeat, err);
        if (code) return code;
        fcp_heartbeat_idle(&n->heartbeat, &idle);
        if (fcp_heartbeat_wait_ends(&n->heartbeat, &wait))
            return fcp_fail(err, FCP_E_RUN, "%s did not end within %u s: another rank has not come so far", what,
                            n->timeout_s);
    }
    fcp_heartbeat_moved(&n->heartbeat);
    return FCP_OK;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static fcp_code mpi_open(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err) {
    mpi_net *n = calloc(1, sizeof *n);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a communicator");
    n->base = (fcp_net){.transport = &fcp_transport_mpi, .ranks = ranks, .rank_count = 1};
    n->failed = FCP_NONE;
    fcp_code code = fcp_place_find(start, ranks, gpus, &n->place, err);
    if (!code) code = fcp_mpi_begin(n->place.rank, ranks, n->place.from, err);
    if (code) {
        free(n);
        return code;
    }
    n->base.first_rank = n->place.rank;
    n->base.local = n->place.local;
    *out_net = &n->base;
    return FCP_OK;
}

/* All processes do this, also one that will send no beats. */
static fcp_code begin_beats(mpi_net *n, fcp_error *err) {
    fcp_mpi_handle request;
    bool new;
    if (!fcp_mpi_beats(&request, &new)) return broken(err);
    fcp_code code = new ? settle(n, &request, "joining the other ranks", err) : FCP_OK;
    if (code) fcp_mpi_forsake(NULL);
    n->seen = calloc(n->base.ranks, sizeof *n->seen);
    if (!code && !n->seen)
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for what is known of %u ranks", n->base.ranks);
    if (code || !fcp_mpi_beats_enter(n->place.rank, n->base.ranks)) return code;
    for (uint32_t r = 0; r < n->base.ranks; r++) fcp_mpi_beats_of(r, &n->seen[r].beats, &n->seen[r].got_on);
    n->beats = true;
    return fcp_heartbeat_begin(&n->heartbeat, n->base.ranks, n->timeout_s, beat, n, err);
}

static fcp_code mpi_connect(fcp_net *base, fcp_session *session, const fcp_start *start, fcp_error *err) {
    mpi_net *n = (mpi_net *)base;
    fcp_mpi_handle request;
    (void)start; /* the launcher has brought the processes together */
    n->timeout_s = n->heartbeat.timeout_s = session->timeout_s;
    if (!fcp_mpi_communicator(&n->comm, &request)) return broken(err);
    fcp_code code = settle(n, &request, "joining the other ranks", err);
    if (code) {
        fcp_mpi_forsake(NULL);
        return code;
    }
    n->joined = true;
    n->listening = fcp_mpi_communicator_ready(n->comm) &&
                   fcp_mpi_receive(n->comm, &n->heard, sizeof n->heard, FCP_MPI_ANYBODY, TAG_FAILED, &n->listens);
    if (!n->listening) return broken(err);
    return begin_beats(n, err);
}

static void mpi_close(fcp_net *base) {
    mpi_net *n = (mpi_net *)base;
    bool failed = n->aborted || n->failed != FCP_NONE;
    fcp_heartbeat_end(&n->heartbeat);
    if (n->beats) fcp_mpi_beats_leave();
    if (n->joined && failed && !n->base.apart) {
        fcp_mpi_forsake(&n->kept);
        return;
    }
    if (n->listening) fcp_mpi_cancel(&n->listens);
    if (n->joined) fcp_mpi_communicator_free(n->comm);
    fcp_group_free(&n->group);
    free(n->pieces_left);
    free(n->pieces);
    free(n->tells);
    free(n->seen);
    free(n);
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static uint32_t pieces_of(size_t bytes) { return (uint32_t)((bytes + PIECE - 1) / PIECE); }

/* Makes room for what is known about the pieces of the group. */
static fcp_code make_room(mpi_net *n, fcp_error *err) {
    const uint32_t count = n->group.count;
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < count; i++) pieces += pieces_of(fcp_group_bytes(&n->group, i));
    if (count > n->wires_held) {
        free(n->pieces_left);
        n->pieces_left = calloc(count, sizeof *n->pieces_left);
        n->wires_held = n->pieces_left ? count : 0;
    }
    if (pieces > n->pieces_held) {
        free(n->pieces);
        n->pieces = calloc(pieces, sizeof *n->pieces);
        n->pieces_held = n->pieces ? pieces : 0;
    }
    if (n->wires_held >= count && n->pieces_held >= pieces) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u pieces of messages", pieces);
}

/* Begins the pieces of a message. */
static bool begin_wire(mpi_net *n, uint32_t wire) {
    const fcp_wire *w = &n->group.wires[wire];
    const size_t bytes = fcp_group_bytes(&n->group, wire);
    n->pieces_left[wire] = 0;
    for (size_t at = 0; at < bytes; at += PIECE) {
        int size = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
        int tag = TAG_WIRE + w->fabric;
        piece *p = &n->pieces[n->piece_count];
        char *data = n->group.message[wire] + at;
        bool begun = w->dir == FCP_SEND ? fcp_mpi_send(n->comm, data, size, w->peer, tag, &p->request)
                                        : fcp_mpi_receive(n->comm, data, size, w->peer, tag, &p->request);
        if (!begun) return false;
        p->wire = wire;
        p->done = false;
        n->piece_count++;
        n->pieces_left[wire]++;
    }
    return true;
}

static fcp_code mpi_launch(fcp_net *base, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                           uint32_t count, fcp_error *err) {
    mpi_net *n = (mpi_net *)base;
    (void)rank; /* this process's */
    fcp_code code = listen(n, err);
    if (!code) code = fcp_group_begin(&n->group, wires, count, sizeof(header), err);
    if (!code) code = make_room(n, err);
    if (code) return code;
    n->piece_count = 0;
    n->header = (header){.pass = pass, .round = round};
    for (uint32_t i = 0; i < count; i++) {
        header h = n->header;
        h.bytes = fcp_wire_bytes(&wires[i]);
        if (wires[i].dir == FCP_SEND) memcpy(n->group.message[i], &h, sizeof h);
        if (!begin_wire(n, i)) return broken(err);
    }
    return FCP_OK;
}

/* A message that has come must be the one that was expected. */
static fcp_code finish_wire(mpi_net *n, uint32_t wire, fcp_error *err) {
    const fcp_wire *w = &n->group.wires[wire];
    char came[FCP_ROUND_TEXT], own[FCP_ROUND_TEXT];
    header h;
    memcpy(&h, n->group.message[wire], sizeof h);
    if (h.bytes != fcp_wire_bytes(w) || h.pass != n->header.pass || h.round != n->header.round)
        return fcp_fail(
            err, FCP_E_RUN,
            "a message of %llu bytes of pass %u, %s from rank %u where %zu bytes of pass %u, %s were expected",
            (unsigned long long)h.bytes, h.pass, fcp_round_text(h.round, came), w->peer, fcp_wire_bytes(w),
            n->header.pass, fcp_round_text(n->header.round, own));
    fcp_group_complete(&n->group, wire);
    return FCP_OK;
}

/* Asks about all pieces that are not done. */
static fcp_code progress(mpi_net *n, uint32_t *out_wire, fcp_error *err) {
    for (uint32_t i = 0; i < n->piece_count; i++) {
        piece *p = &n->pieces[i];
        if (p->done) continue;
        *out_wire = p->wire;
        if (!fcp_mpi_test(&p->request, &p->done)) return broken(err);
        if (p->done) fcp_heartbeat_moved(&n->heartbeat);
        if (!p->done || --n->pieces_left[p->wire]) continue;
        fcp_code code = finish_wire(n, p->wire, err);
        if (code) return code;
    }
    if (!n->group.left) return FCP_OK;
    fcp_code code = listen(n, err);
    return code ? code : fcp_heartbeat_check(&n->heartbeat, err);
}

static fcp_wait mpi_wait(fcp_net *base, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    mpi_net *n = (mpi_net *)base;
    const uint64_t until = fcp_clock_ns() + milliseconds * UINT64_C(1000000);
    uint64_t idle = 0;
    (void)rank; /* this process's */
    for (long pause = 1000;; fcp_pause(&pause, LONGEST_PAUSE)) {
        fcp_heartbeat_idle(&n->heartbeat, &idle);
        if (n->aborted) return FCP_WAIT_ABORTED;
        if (progress(n, out_wire, err)) return FCP_WAIT_FAILED;
        if (!n->group.left) return FCP_WAIT_DONE;
        if (fcp_clock_ns() >= until) break;
    }
    *out_wire = fcp_group_late(&n->group);
    return FCP_WAIT_PENDING;
}

static uint64_t mpi_progress(const fcp_net *base) {
    return fcp_heartbeat_progress(&((const mpi_net *)base)->heartbeat);
}

/* --- between processes -------------------------------------------------------------------------------------------- */

static fcp_code mpi_gather(fcp_net *base, const void *mine, size_t bytes, void *all, fcp_error *err) {
    mpi_net *n = (mpi_net *)base;
    fcp_mpi_handle request;
    if (!fcp_mpi_gather(n->comm, mine, (int)bytes, all, &request)) return broken(err);
    return settle(n, &request, "telling all ranks", err);
}

static fcp_code mpi_collect(fcp_net *base, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    mpi_net *n = (mpi_net *)base;
    const bool sends = n->place.rank == from;
    fcp_code code = FCP_OK;
    if ((!sends && n->place.rank) || !from) return FCP_OK;
    for (size_t at = 0; at < bytes && !code; at += PIECE) {
        int size = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
        fcp_mpi_handle request;
        bool begun = sends ? fcp_mpi_send(n->comm, (char *)memory + at, size, 0, TAG_COLLECT, &request)
                           : fcp_mpi_receive(n->comm, (char *)memory + at, size, from, TAG_COLLECT, &request);
        code = begun ? settle(n, &request, "giving rank 0 what it collects", err) : broken(err);
    }
    return code;
}

const fcp_transport fcp_transport_mpi = {
    .name = "mpi",
    .processes = true,
    .open = mpi_open,
    .connect = mpi_connect,
    .close = mpi_close,
    .launch = mpi_launch,
    .wait = mpi_wait,
    .abort = mpi_abort,
    .progress = mpi_progress,
    .gather = mpi_gather,
    .collect = mpi_collect,
};
