/* standin.h: a driver that stands in for CUDA's in tests: a shared library with its symbols, over host memory.
 *
 * What is put into streams becomes a graph of dependencies. It is done when somebody asks for it, one node at a time, in a
 * seeded order among those that may be next. Any two nodes that touch the same bytes, one of them writing, must be ordered
 * by dependencies: else `trouble` says which. An event of a capture is no node of its graph, and nothing outside may wait for it,
 * unless it is recorded with CU_EVENT_RECORD_EXTERNAL: then each launch of the graph records it. Kernels run on fibers (tests/machines/fibers). New memory holds NaNs. What the driver
 * refuses during capture is refused. It is chosen by FCP_CUDA_DRIVER, and never a fallback. STANDIN_DEVICES says how many
 * devices there are where no test can (a program that mpirun started). runtime/libraries/nccl.h is NCCL's, which works with it.
 */
#ifndef STANDIN_H
#define STANDIN_H
#include "runtime/plan/plan.h"

/* What becomes of green contexts: all is well; none is made; capturing what runs there is refused; a replay leaves it out. */
typedef enum standin_green { GREEN_WORKS, GREEN_REFUSED, GREEN_NO_CAPTURE, GREEN_WRONG } standin_green;

typedef struct standin {
    /* what there is: read when a session is made */
    int devices, major, minor, shared;
    standin_green green;
    unsigned alignment;  /* parts of a device are a multiple of that many multiprocessors, of three; 0: one */
    int registers, local, fixed; /* of every kernel: registers and bytes of local memory a thread, bytes of shared memory that
                                  * it has without being given them; 0 registers: 32 */
    bool peers;
    int most_peers;      /* as many peers a device takes, though it can reach all; 0: all of them */
    size_t memory;       /* bytes of each device */
    const fcp_plan *plan; /* whose kernels run; NULL: of the file that STANDIN_PLAN names */
    uint64_t seed;
    long fail_at;        /* this call, counted by `calls`, returns fail_with; 0: none */
    int fail_with;
    bool breaks;         /* and so does every call after it, as where a context is lost */
    bool stall;          /* nothing gets on */
    unsigned long queue; /* as many nodes wait at most: a call that brings one more waits for the devices, and is trouble where they
                          * do not get on; 0: no end of them */
    unsigned long hang_at; /* this node, counted by `nodes`, never ends; 0: none */
    unsigned hang_value; /* kernels that write this into word hang_word of host memory never end; 0: none */
    long hang_word;
    int hang_with;       /* what asking a stream gives once nothing else can be done; 0: it is not ready */
    bool lost;           /* the device is gone: what waits is dropped */
    bool foreign;        /* device memory is of a context that is not a primary one */
    bool idle;           /* kernels do nothing but add: for tests that look at no result */
    unsigned patience_s; /* what waits in the host for the devices waits so long for other processes; 0: 200 */
    /* what happened; unordered: kernels of those that give other bits each time */
    long calls, live;    /* live: objects and allocations that were made and not ended */
    size_t held[8], most_held[8], pinned, most_pinned; /* bytes allocated: of each device, and of the host; now, and at most */
    unsigned green_size; /* multiprocessors of the last green context */
    unsigned long in_green, out_of_green; /* launches of attention, by stream */
    unsigned most_blocks; /* of those, the largest */
    char launched[200];   /* names of kernels, each once, ", " between */
    unsigned long nodes; /* put into streams, those of launched graphs too */
    char hung[32];       /* what hangs: a kernel's name, "a copy", "a fill"; "a mark" of host memory; "nothing": waiting */
    int hung_device;     /* of its stream */
    long hung_mark;      /* the word of host memory that its stream has last been told to write before, or by it; -1: none */
    unsigned hung_value; /* what it is to write there */
    unsigned long kernels, kernels_with_maps, unordered, copies, peer_copies, host_copies, pageable_copies, graph_launches;
    char trouble[400];   /* the first; "" if none */
} standin;
standin *standin_control(void);
#endif
