/* transport.h: the table of functions by which a session moves data between ranks. Every kind of transport fills it.
 *
 * A plan says which rank sends which bytes to which other rank, round by round. For each round a session builds a list
 * of *wires*, one for each send or receive, and a transport moves what they name. There are five transports:
 *   "threads"      between ranks in host memory, all in this process
 *   "mpi", "tcp"   between ranks in host memory, each a process
 *   "local"        between CUDA devices, all ranks in this process
 *   "nccl"         between CUDA devices, each rank a process with a device of its own
 *
 * A *net* is one transport opened for one session. Sessions call the fcp_net_* functions below, which check their
 * arguments; the table's functions do not. Functions that only transports with a process for each rank (`processes`)
 * need may be NULL in the others: fcp_net_* then do what is right with one process.
 *
 * A rank launches one *group* at a time: its sends and receives of one round. A group completes as a whole: when every
 * receive has come and every send has been taken. A send is matched with the receive of the same pass, round, fabric
 * and pair of ranks. The caller keeps the wires, and must not change them or the memory that they name until the group
 * is complete.
 */
#ifndef FCP_EXEC_TRANSPORT_H
#define FCP_EXEC_TRANSPORT_H
#include "runtime/base/interrupt.h"
#include "runtime/exec/segments.h"
#include "runtime/exec/tensors.h"

/* One send or receive: the bytes of its segments, end to end. Addresses are of the memory that the session computes in:
 * of the host, or of a device. */
typedef struct fcp_wire {
    uint32_t peer;
    uint8_t dir, fabric; /* FCP_SEND or FCP_RECV; fcp_fabric */
    uint16_t segments;
    uint64_t *ended; /* where a transport that moves bytes at once writes fcp_clock_ns when it has; NULL: nowhere */
    fcp_segment segment[FCP_SEGMENTS];
} fcp_wire;

/* The bytes of a wire, and its segments copied end to end to or from one piece of memory. */
size_t fcp_wire_bytes(const fcp_wire *wire);
void fcp_wire_pack(const fcp_wire *wire, char *out_bytes);
void fcp_wire_unpack(const fcp_wire *wire, const char *bytes);

typedef enum fcp_wait {
    FCP_WAIT_DONE,
    FCP_WAIT_PENDING, /* not within the time given */
    FCP_WAIT_ABORTED,
    FCP_WAIT_FAILED
} fcp_wait;

typedef struct fcp_net fcp_net;
typedef struct fcp_transport {
    const char *name; /* what options->transport says */
    bool processes;   /* every rank is a process of its own; false: this process has all ranks */

    /* --- opening and closing */
    /* Makes the id by which the processes of another net will find each other: FCP_ID_BYTES, in rank 0's process.
     * NULL: they need no id. */
    fcp_code (*make_id)(const fcp_net *net, void *out_id, fcp_error *err);
    /* Opens a net: finds out which ranks this process has, of a plan for `ranks` of them with `gpus` on a node.
     * `start` is that of fcp_session_options, or NULL. */
    fcp_code (*open)(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err);
    /* The session has opened its devices: joins the other ranks. NULL: there is nothing to join. */
    fcp_code (*connect)(fcp_net *net, fcp_session *session, const fcp_start *start, fcp_error *err);
    /* The session's streams are empty, and its recorded graphs are gone, unless something hangs. */
    void (*close)(fcp_net *net);

    /* --- transfers */
    /* Starts a group of `rank`. An error leaves no group. */
    fcp_code (*launch)(fcp_net *net, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                       uint32_t count, fcp_error *err);
    /* Waits at most so long for the group. PENDING: *out_wire is one that is not complete. FAILED: *err says why. If
     * the session computes in streams, a group counts as complete once all its work is in the streams. */
    fcp_wait (*wait)(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err);
    /* Runs a LAUNCH of inputs or outputs, between the caller's tensors of this rank and home blocks. A transport
     * that reaches the memory of all ranks can move the bytes without the other side. NULL: such a LAUNCH is like
     * any other. */
    fcp_code (*reshuffle)(fcp_net *net, uint32_t rank, fcp_pass pass, const fcp_instr *launch,
                          const fcp_tensors *tensors, fcp_error *err);
    /* Forgets groups, messages and an abort. No rank is inside. NULL: there is nothing to forget. */
    void (*reset)(fcp_net *net);
    /* The session has failed: ends what is under way, so that no rank waits for ever. Callable from any thread.
     * NULL: it cannot. */
    void (*abort)(fcp_net *net);
    /* Asks whether a peer has failed; called again and again while the session waits for `what`. NULL: it cannot
     * tell. */
    fcp_code (*watch)(fcp_net *net, const char *what, fcp_error *err);
    /* A number that grows whenever another process makes progress: it computes, or bytes have come. Then the time
     * limit of a wait starts anew. NULL: unknown. */
    uint64_t (*progress)(const fcp_net *net);
    /* Waits until there is room for `instructions` more in this process's streams. NULL: there always is. */
    fcp_code (*pace)(fcp_net *net, uint32_t instructions, fcp_error *err);

    /* --- memory */
    /* Bytes that the transport needs on this process's device beside arenas, and how many of those it holds already.
     * NULL: none. */
    void (*need)(const fcp_net *net, size_t *out_bytes, size_t *out_held);
    /* Takes the memory that `need` counts. NULL: none. */
    fcp_code (*reserve)(fcp_net *net, fcp_error *err);
    /* Allocates an arena of `bytes` for a rank, in memory that transfers reach, in place of an earlier one. The net
     * frees it when it is closed. NULL: any memory of the session's will do. */
    fcp_code (*allocate)(fcp_net *net, uint32_t rank, size_t bytes, void **out_memory, fcp_error *err);
    /* For transports whose transfers may not reach the caller's tensors. stage_in is called before inputs are moved. It
     * copies the inputs into tensors that transfers reach, and *out_inside points to these: one entry for each rank of
     * this process. stage_out is called once outputs have been moved, and copies them back. Both NULL: transfers reach
     * all memory. */
    fcp_code (*stage_in)(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors **out_inside,
                         fcp_error *err);
    fcp_code (*stage_out)(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *inside,
                          fcp_error *err);

    /* --- between processes; NULL where there is one. All processes call these at the same point. */
    /* `bytes` of each process (at most FCP_GATHER_BYTES) to all: out_all has them in order of rank. */
    fcp_code (*gather)(fcp_net *net, const void *mine, size_t bytes, void *out_all, fcp_error *err);
    /* `bytes` of rank `from` to rank 0. `memory` is host memory: read at `from`, written at 0, not used elsewhere. */
    fcp_code (*collect)(fcp_net *net, uint32_t from, void *memory, size_t bytes, fcp_error *err);
    /* Each pair of ranks that will talk in the plan does so once, so that a pass sets up no connection. */
    fcp_code (*meet)(fcp_net *net, const fcp_plan *plan, fcp_error *err);
} fcp_transport;

/* The base of every net. */
struct fcp_net {
    const fcp_transport *transport;
    uint32_t ranks;                  /* of the plan */
    uint32_t first_rank, rank_count; /* this process's */
    uint32_t local;                  /* processes: which of its machine's this one is, from 0 */
    bool apart;                      /* processes: they have told each other that they cannot go on, and all know it */
    fcp_interrupt *interrupt;        /* the session's, once it is connected; asked in waits outside of a pass */
};

fcp_code fcp_net_open(const fcp_transport *transport, uint32_t ranks, uint32_t gpus, const fcp_start *start,
                      fcp_net **out_net, fcp_error *err);
fcp_code fcp_net_connect(fcp_net *net, fcp_session *session, const fcp_start *start, fcp_error *err);
void fcp_net_close(fcp_net *net); /* NULL: nothing happens */
fcp_code fcp_net_launch(fcp_net *net, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                        uint32_t count, fcp_error *err);
fcp_wait fcp_net_wait(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err);
void fcp_net_reset(fcp_net *net);
void fcp_net_abort(fcp_net *net);
fcp_code fcp_net_watch(fcp_net *net, const char *what, fcp_error *err);
uint64_t fcp_net_progress(const fcp_net *net);
fcp_code fcp_net_pace(fcp_net *net, uint32_t instructions, fcp_error *err);
void fcp_net_need(const fcp_net *net, size_t *out_bytes, size_t *out_held);
fcp_code fcp_net_reserve(fcp_net *net, fcp_error *err);
fcp_code fcp_net_stage_in(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors **out_inside,
                          fcp_error *err);
fcp_code fcp_net_stage_out(fcp_net *net, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *inside,
                           fcp_error *err);
fcp_code fcp_net_gather(fcp_net *net, const void *mine, size_t bytes, void *out_all, fcp_error *err);
fcp_code fcp_net_collect(fcp_net *net, uint32_t from, void *memory, size_t bytes, fcp_error *err);

/* The wires of a LAUNCH: one for each of its transfers, in their order. The list grows as it is needed;
 * fcp_wires_free frees it. */
typedef struct fcp_wires {
    fcp_wire *list;
    uint32_t capacity;
    char *messages;
    size_t messages_held;
} fcp_wires;
/* Makes the wires of a LAUNCH: at most one to send and one to receive over each fabric.
 *
 * Most wires name the memory of slots directly. Inputs, outputs and rounded partial results travel in messages instead,
 * which the caller packs before the launch and unpacks once it is complete. A message of inputs or outputs is one
 * segment; one of partial results has the segments of fcp_segments_rounded.
 *
 * messages: memory of `room` bytes for these messages. Each fabric and direction has a part of its own there, which
 * must be at least as large as any message of the pass (fcp_messages_bytes in host_reshuffle.h, fcp_rounded_bytes in
 * segments.h). NULL: the wires get host memory of their own. */
fcp_code fcp_wires_make(fcp_wires *wires, const fcp_arena *arena, void *messages, size_t room, const fcp_instr *launch,
                        fcp_error *err);
void fcp_wires_free(fcp_wires *wires);
#endif
