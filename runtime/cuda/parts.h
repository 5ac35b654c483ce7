/* parts.h: what a session on CUDA devices consists of: devices, ranks, work lists. Types only; each file has a header for
 * what it does.
 *
 * Files here use only those above them in this list, so that each can be read without those below:
 *
 *   parts.h      the types
 *   device       the current device; events; streams that follow each other; waiting with a time limit
 *   stage        copies between a device and pageable host memory
 *   memory       device memory; copies between devices
 *   rounds       which rounds of a plan move inputs and outputs, and which outputs leave early
 *   kernels      modules and kernels        environment  what masks and scores read
 *   partition    multiprocessors for attention and for communication
 *   devices      opening and closing all devices
 *   marks        how far each queue has come, for error messages
 *   maps         tensor maps for the copy engine of sm_90
 *   work         what the compute queue's instructions launch
 *   reshuffle    between the caller's tensors and home blocks
 *   early        results that leave before the pass ends
 *   record       one pass put into streams
 *   transport_*  the transports local and nccl
 *   ranks        a rank's memory, streams and work lists
 *   run          a run from inputs to outputs, graphs, failure
 *   session      the table of functions
 */
#ifndef FCP_CUDA_PARTS_H
#define FCP_CUDA_PARTS_H
#include "codegen/kernels/abi.h"
#include "codegen/source.h"
#include "runtime/exec/arena.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/session.h"
#include "runtime/kernels/jit.h"
#include "runtime/kernels/work.h"
#include "runtime/libraries/cuda_driver.h"

typedef enum cuda_kernel_id {
    CUDA_FORWARD, CUDA_DKV, CUDA_DQ, CUDA_ORDERED, CUDA_UNORDERED, CUDA_BEGIN_LSE, CUDA_DELTA, CUDA_ADD, CUDA_ROUND,
    CUDA_KERNELS
} cuda_kernel_id;
typedef struct cuda_kernel {
    cu_function function; /* NULL where the plan has no use for it */
    const char *name;
    uint32_t threads, shared, parts;
    bool maps;            /* it is given fk_launch_maps */
    uint32_t resident;    /* blocks of it that a multiprocessor holds at once */
} cuda_kernel;

/* Two pinned buffers, through which pageable memory is copied: see stage.c. */
typedef struct cuda_out {
    void *to;
    size_t at, bytes; /* at: in the buffer */
} cuda_out;
typedef struct cuda_buffer {
    char *memory;
    size_t used;
    cu_event event;  /* behind its copies, when it is busy */
    bool busy;
    cuda_out *out;   /* what goes to the host once they are done */
    uint32_t out_count, out_capacity;
} cuda_buffer;
typedef struct cuda_stage {
    cuda_buffer buffers[2];
    uint32_t now;    /* the one that fills */
    size_t bytes;    /* of each */
    cu_stream stream;
} cuda_stage;

/* Bytes that a session is to hold for its plan, all that it allocates: on a device, of which `held` are there already, and
 * pinned for the device, those of the marks for the first one. NCCL's own, the driver's and a probe's (given up before anything
 * large is made) are not among them. */
typedef struct cuda_need {
    size_t device, held, pinned;
} cuda_need;

typedef struct cuda_device {
    cu_device handle;
    cu_context context;
    bool retained;
    char name[64];
    int major, minor, multiprocessors, shared; /* shared: bytes a block may have */
    unsigned forward;        /* EMIT_FORWARD or EMIT_FORWARD_SM90 */
    unsigned backward;       /* one of EMIT_BACKWARD */
    uint32_t attention[FCP_PASSES]; /* multiprocessors that it has */
    bool apart;              /* in every pass, ranks of the device send or receive */
    cu_green green;          /* compute streams are of this context; NULL: of the device's */
    cu_module modules[FCP_PASSES]; /* NULL where a pass needs none */
    cuda_kernel kernels[CUDA_KERNELS];
    cu_ptr environment;      /* what masks and scores read */
    size_t environment_held;
    cuda_need need;
    char *sources[FCP_PASSES]; /* of the modules; NULL: of one that is not whole */
    fk_u64 sequences, arrays, bands, sinks; /* addresses in it; sinks: 0 if there are none */
    cu_ptr marks;            /* the session's, as the device reaches them */
    cuda_stage stage;
    cu_event *events;        /* all made; the first `event_free` are not in use */
    uint32_t event_count, event_free, event_capacity;
} cuda_device;

/* The work of one ATTEND: where its lists begin in the rank's `work`, and how long they are. */
typedef struct cuda_attend {
    uint32_t instr; /* in the compute queue */
    uint64_t rows, key_runs, keys, row_runs;
    uint32_t row_count, key_count, lock_count;
} cuda_attend;
typedef struct cuda_work {
    cuda_attend *attends;
    uint32_t attend_count;
    char *bytes; /* on the host, until they are on the device */
    size_t size, capacity;
    cu_ptr memory;
    size_t held; /* bytes of it */
} cuda_work;

/* Results that go out beside a pass's last stage: see early.c. */
typedef struct cuda_early {
    uint8_t *slots; /* per home slot: its results do; NULL: none of the rank's */
    uint32_t end;   /* instructions of the communication queue that are of the pass: OUT's alone are behind them */
    uint32_t after; /* behind so many of them early results are ready; 0: the rank moves none, its own or others' */
    cu_event event; /* there, in a graph; NULL: there was none yet */
} cuda_early;

typedef struct cuda_rank {
    cuda_device *device;
    fcp_slots slots[FCP_PASSES];
    fcp_arena arena[FCP_PASSES];
    cuda_early early[FCP_PASSES];
    cuda_work work[FCP_PASSES];
    fk_u64 maps[FCP_PASSES][FCP_KERNEL_TENSORS][16]; /* as fk_map, where kernels of the pass are given any */
    size_t arena_bytes;
    bool memory_lent; /* the arena is the transport's, which frees it */
    cu_ptr memory, locks; /* locks: lock_words of 4 bytes, the last one the counter */
    size_t lock_words, memory_held, locks_held; /* held: bytes, of which a plan may need less */
    uint32_t mark;   /* what the compute queue's kernels say when they begin, as far as the pass has been put down; 0: nothing */
    fcp_partials partials; /* as far as the pass has been put down */
    cu_stream streams[FCP_QUEUES];
} cuda_rank;

typedef struct fcp_cuda_session {
    fcp_session base;
    const fcp_plan *plan;
    fcp_cuda *cuda;
    uint32_t first_device, device_count, timeout_s, graph_from;
    bool mma_sync;      /* the skeletons for mma.sync, whatever else a device has */
    cuda_device *devices;
    fcp_homes *homes;
    cuda_rank *ranks;   /* by their numbers in the plan; those of other processes are empty */
    size_t stage_bytes; /* as asked for; 0: as stage.c has it */
    bool host_tensors;  /* where ranks are processes: tensors lie in host memory, as a caller said or as they have */
    uint32_t *marks;    /* host memory that devices write: see marks.c */
    cu_stream origin;   /* of the first device */
    cu_event finished;  /* what the last run put into a stream, all of it */
    cuda_device *finished_device;
    cu_graph_exec graphs[FCP_PASSES];
    uint32_t runs[FCP_PASSES];
    fcp_partition partition, partition_wanted;
    char partition_why[400], warning[400];
    bool capturing;          /* what is put down becomes a graph */
    bool made, broken, hung; /* made: everything was; broken: a run failed; hung: what was waited for last did not end */
    fcp_error why;
} fcp_cuda_session;

/* The number behind the last rank of this process; the first is base.first_rank. */
static inline uint32_t fcp_cuda_end(const fcp_cuda_session *s) { return s->base.first_rank + s->base.rank_count; }
#endif
