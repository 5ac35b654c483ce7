/* transport.h: what moves data between ranks: the interface between the executor and a kind of wire.
 *
 * A transport is a constant table of functions; a net is one transport opened for a number of ranks. A rank launches
 * one group at a time: its sends and receives of one round. A group completes as a whole: when every receive has come
 * and every send has been taken. Sends and receives are matched by (pass, round, fabric, peer). The wires and the
 * memory they name stay the caller's and must not change until the group is complete. Different ranks may be used by
 * different threads at the same time, one thread a rank. The fcp_net_* functions check their arguments; those of a
 * transport do not.
 */
#ifndef FCP_HOST_TRANSPORT_H
#define FCP_HOST_TRANSPORT_H
#include "runtime/exec/segments.h"

/* One send or receive: what its segments hold, end to end. */
typedef struct fcp_wire {
    uint32_t peer;
    uint8_t dir, fabric; /* FCP_SEND or FCP_RECV; fcp_fabric */
    uint16_t segments;
    fcp_segment segment[FCP_SEGMENTS];
} fcp_wire;

typedef enum fcp_wait {
    FCP_WAIT_DONE,
    FCP_WAIT_PENDING, /* not within the time given */
    FCP_WAIT_ABORTED,
    FCP_WAIT_FAILED
} fcp_wait;

typedef struct fcp_net fcp_net;
typedef struct fcp_transport {
    const char *name;
    fcp_code (*open)(uint32_t ranks, fcp_net **out_net, fcp_error *err);
    void (*close)(fcp_net *net);
    /* No rank is inside: forgets groups, messages and an abort. */
    void (*reset)(fcp_net *net);
    /* Starts a group of `rank`; an error leaves no group. */
    fcp_code (*launch)(fcp_net *net, uint32_t rank, uint32_t pass, uint32_t round, const fcp_wire *wires,
                       uint32_t count, fcp_error *err);
    /* Waits for the group, at most so long. PENDING: *out_wire is one that is not complete. FAILED: *err says why. */
    fcp_wait (*wait)(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err);
    /* Everyone who waits, now or later, gets ABORTED. From any thread. */
    void (*abort)(fcp_net *net);
} fcp_transport;

/* The base of every net. */
struct fcp_net {
    const fcp_transport *transport;
    uint32_t ranks;
};

extern const fcp_transport fcp_transport_threads;

fcp_code fcp_net_open(const fcp_transport *transport, uint32_t ranks, fcp_net **out_net, fcp_error *err);
void fcp_net_close(fcp_net *net);
void fcp_net_reset(fcp_net *net);
fcp_code fcp_net_launch(fcp_net *net, uint32_t rank, uint32_t pass, uint32_t round, const fcp_wire *wires,
                        uint32_t count, fcp_error *err);
fcp_wait fcp_net_wait(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err);
void fcp_net_abort(fcp_net *net);
#endif
