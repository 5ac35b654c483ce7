/* standin.h: a CUDA driver that stands in for the real one in tests: a shared library with the driver's symbols that
 * works in host memory.
 *
 * What is put into streams becomes a graph of nodes and dependencies. Nothing runs until somebody asks for a result.
 * Then nodes run one at a time, in an order that a seed draws among those that may be next. So a test that runs with
 * many seeds sees many of the orders that a real device may take.
 *
 * Any two nodes that touch the same bytes, if one of them writes, must be ordered by dependencies. If they are not,
 * `trouble` names them. Kernels run on fibers (tests/machines/fibers). New memory holds NaNs. A call that the real
 * driver refuses during a capture is refused here. An event that is recorded during a capture is not a node of the
 * graph, and nothing outside may wait for it. But if it is recorded with CU_EVENT_RECORD_EXTERNAL, each launch of the
 * graph records it.
 *
 * A kernel of a fused pass (FK_FUSED) waits for flags. It may begin at any time. While all its CTAs wait, other nodes
 * run, with these limits:
 *   - No other kernel of its device runs, since there may be no SM left for it. The exception is kernels that round
 *     what is sent, for which the plan's margin leaves SMs.
 *   - A kernel of another device runs if all its flags are set.
 * The data that a kernel reads after a flag must be written before the flag is set, and the flag must be cleared before
 * the kernel begins.
 *
 * A test chooses this driver with FCP_CUDA_DRIVER; the runtime never falls back to it. STANDIN_DEVICES says how many
 * devices there are in programs in which no test can set the number, such as one that mpirun started; with STANDIN_SM90
 * they are of capability 9.0. The NCCL that
 * works with this driver is described in nccl.h.
 */
#ifndef STANDIN_H
#define STANDIN_H
#include "runtime/fcp.h"

/* What green contexts do: all is well; none can be made; their work cannot be captured; a replayed graph leaves their
 * work out. */
typedef enum standin_green { GREEN_WORKS, GREEN_REFUSED, GREEN_NO_CAPTURE, GREEN_WRONG } standin_green;

typedef struct standin {
    /* what the machine has; a session reads it when it is made */
    int devices, major, minor, shared;
    int version;             /* of CUDA, as cuDriverGetVersion says it; 0: 12040 */
    int newest, newest_with; /* cubins of a later major version of NVRTC are refused, with this result; 0: of none */
    standin_green green;
    unsigned alignment;  /* a part of a device's three SMs is a multiple of so many; 0: of one */
    /* Of every kernel: registers and bytes of local memory a thread, and bytes of static shared memory; 0 registers:
     * 32. */
    int registers, local, fixed;
    bool peers;
    int most_peers;      /* a device reaches all others, but allows access to so many only; 0: to all */
    size_t memory;       /* bytes of each device */
    const fcp_plan *plan; /* the plan whose kernels run; NULL: it is in the file that STANDIN_PLAN names */
    uint64_t seed;
    long fail_at;        /* the call with this number, counted by `calls`, returns fail_with; 0: none */
    int fail_with;
    /* Every call after it fails too, as if the context were lost. The first writes the file that CUDA_COREDUMP_FILE
     * names, as the driver does after an exception. */
    bool breaks;
    bool gives_up;       /* kernels built with FK_BOUND say that a wait gave up */
    bool stall;          /* no node runs */
    /* So many nodes may wait. A call that adds one more waits for the devices, and if those do not get on, that is
     * trouble. 0: no limit. */
    unsigned long queue;
    unsigned long hang_at; /* the node with this number, counted by `nodes`, never ends; 0: none */
    unsigned hang_value; /* a kernel that writes this value into word hang_word of host memory never ends; 0: none */
    long hang_word;
    int hang_with;       /* what a query of a stream returns when nothing can run any more; 0: not ready */
    bool lost;           /* the device is gone: work that waits is dropped */
    /* Fills of host memory are refused: not, always, in a capture, or none arrives. */
    enum { MARKS_WORK, MARKS_REFUSED, MARKS_NOT_CAPTURED, MARKS_LOST } marks;
    unsigned pageable;   /* the kind of memory that cuPointerGetAttribute says of addresses that the driver has not
                          * allocated; 0: it does not know them */
    bool foreign;        /* device memory belongs to a context that is not the primary one */
    bool idle;           /* attention kernels do nothing, only additions run: for tests that look at no result */
    bool gathers;        /* idle: rows are moved all the same */
    bool pooled;         /* device memory is freed as by a pool: at once, and it is trouble if work still uses it */
    bool unwatched;      /* nobody looks at which bytes are touched: for timing, since that costs more than a run */
    unsigned patience_s; /* how long a call that waits for the devices waits for other processes; 0: 200 */
    /* what happened */
    int connections;         /* CUDA_DEVICE_MAX_CONNECTIONS when the driver started */
    unsigned long questions; /* about a pointer: cuPointerGetAttribute */
    long calls, live;    /* live: objects and allocations that exist now */
    /* Bytes allocated on each device, and pinned on the host: now, and the most there were. */
    size_t held[8], most_held[8], pinned, most_pinned;
    unsigned green_size; /* SMs of the last green context */
    unsigned long in_green, out_of_green; /* launches of attention in streams of a green context, and in others */
    unsigned most_blocks; /* the largest grid of those launches */
    char launched[200];   /* names of the kernels that ran, each once, with ", " between them */
    unsigned long nodes; /* put into streams, those of launched graphs included */
    unsigned long computed; /* launches that have ended, idle ones included, but not those of fk_gather */
    /* What hangs: a kernel's name, "a copy", "a fill", "a mark" (a fill of host memory), "nothing" (a wait). */
    char hung[32];
    int hung_device;     /* the device of its stream */
    /* The word of host memory that its stream was last told to write, before it or by it (-1: none), and the value
     * for it. */
    long hung_mark;
    unsigned hung_value;
    unsigned long kernels_with_flags; /* launches that wait for flags */
    unsigned long during; /* nodes that ran while such a launch waited */
    /* Launches and copies of each kind. unordered: kernels whose sums come in any order. graph_launches: of graphs that
     * have kernels. */
    unsigned long kernels, kernels_with_maps, unordered, copies, peer_copies, host_copies, pageable_copies,
        graph_launches;
    char trouble[400];   /* the first trouble; "" if there was none */
} standin;
standin *standin_control(void);
#endif
