/* cuda_parts.h: what a session on CUDA devices consists of: devices, ranks, work lists. It has types only; each .c file
 * has a header for what it does. README.md has a picture of one run.
 *
 * A file uses only those above it in this list, so that each can be read without those below:
 *
 *   cuda_parts.h      the types
 *   device       the current device; events; streams that follow each other; waiting with a time limit
 *   stage        copies between a device and pageable host memory
 *   memory       device memory; copies between devices
 *   rounds       which rounds of a plan move inputs and outputs, and which outputs leave early
 *   fabrics      transfers over net beside those over local
 *   kernels      modules and kernels
 *   environment  what masks and scores read
 *   partition    multiprocessors for attention and for communication
 *   devices      opening and closing all devices
 *   marks        how far each queue has come, for error messages
 *   timing       when each instruction began and ended
 *   maps         tensor maps for the copy engine of sm_90
 *   work         what the compute queue's instructions launch
 *   wire         partial results that are rounded on their way
 *   gather       rows of a bundle, between tensors, messages and home blocks
 *   reshuffle    between the caller's tensors and home blocks
 *   sinks        sinks of a run, and their gradients
 *   tables       the same of tables
 *   maxima       the largest logit of each head
 *   early        results that leave before the pass ends
 *   record       one pass put into streams
 *   transport_*  the transports local and nccl
 *   ranks        a rank's memory, streams and work lists
 *   run          a run from inputs to outputs, graphs, failure
 *   session      the table of functions
 */
#ifndef FCP_CUDA_CUDA_PARTS_H
#define FCP_CUDA_CUDA_PARTS_H
#include "codegen/kernels/abi.h"
#include "codegen/source.h"
#include "runtime/exec/rank_memory.h"
#include "runtime/exec/bundles.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/session.h"
#include "runtime/jit/jit.h"
#include "runtime/worklists/worklists.h"
#include "runtime/libraries/cuda_driver.h"

typedef enum cuda_kernel_id {
    CUDA_FORWARD, CUDA_DKV, CUDA_DQ, CUDA_ORDERED, CUDA_UNORDERED, CUDA_TABLES, CUDA_BEGIN_LSE, CUDA_DELTA, CUDA_ADD,
    CUDA_ROUND, CUDA_MERGE, CUDA_STATE_OUT, CUDA_FOLD_SINKS, CUDA_GATHER, CUDA_COMBINE, CUDA_ROUND_SUMS,
    CUDA_NARROW, CUDA_WIDEN, CUDA_KERNELS
} cuda_kernel_id;
typedef struct cuda_kernel {
    cu_function function; /* NULL: the plan does not use it */
    const char *name;
    uint32_t threads, shared, parts;
    bool maps;            /* its parameters are fk_launch_maps */
    uint32_t resident;    /* how many of its blocks a multiprocessor holds at once */
} cuda_kernel;

/* Two pinned buffers through which host memory is copied (stage.c). cuda_out: bytes of a buffer that belong at
 * `to`. cuda_pending: a copy between the buffer in use and the device that is not in the stream yet, since more may
 * follow that lies next to it at both ends. */
typedef struct cuda_out {
    void *to;
    size_t at, bytes; /* at: where they are in the buffer */
} cuda_out;
typedef struct cuda_buffer {
    char *memory;
    size_t used;
    cu_event event;  /* if busy: recorded after its copies */
    bool busy;
    cuda_out *out;   /* what goes on to host memory when the copies have ended */
    uint32_t out_count, out_capacity;
} cuda_buffer;
typedef struct cuda_pending {
    cu_ptr device;
    size_t at, bytes; /* at: where it begins in the buffer; bytes: 0 if there is none */
    bool in;          /* to the device */
} cuda_pending;
typedef struct cuda_stage {
    cuda_buffer buffers[2];
    cuda_pending pending;
    uint32_t now;    /* the buffer that is being filled */
    size_t bytes;    /* of each buffer, and of `landing` */
    cu_ptr landing;  /* device memory: a message on its way between a buffer and home blocks */
    cu_stream stream;
} cuda_stage;

/* All bytes that a session allocates for its plan: on a device, of which it already has `held`, and pinned host
 * memory for the device (the marks count for the first device). It does not count what NCCL and the driver take for
 * themselves, nor the probe of partition.c, which is freed before anything large is allocated. */
typedef struct cuda_need {
    size_t device, held, pinned;
} cuda_need;

typedef struct cuda_device {
    cu_device handle;
    cu_context context;
    bool retained;
    char name[64];
    int major, minor, multiprocessors, shared; /* shared: the most bytes that a block may have */
    unsigned forward;        /* EMIT_FORWARD or EMIT_FORWARD_SM90 */
    unsigned backward;       /* one of EMIT_BACKWARD */
    uint32_t attention[FCP_PASSES]; /* how many multiprocessors attention may use */
    bool apart;              /* in every pass some transfer of its ranks needs multiprocessors */
    cu_green green;          /* compute streams belong to this green context; NULL: to the device's own context */
    uint32_t green_count;    /* its multiprocessors */
    cu_module modules[FCP_PASSES]; /* NULL: the pass needs none */
    cuda_kernel kernels[CUDA_KERNELS];
    cu_ptr environment;      /* what masks and scores read (environment.c) */
    size_t environment_held;
    cuda_need need;
    char *sources[FCP_PASSES]; /* the modules' sources; NULL: that module is not loaded completely */
    /* Addresses in the environment. sinks: those that kernels read; 0 if there are none. plan_sinks: the plan's.
     * sink_sums: room for the gradients of each rank. maxima: for the largest logits of each rank. data: the plan's
     * arrays, as kernels read them; plan_tables: again those of them that are tables of reals, one behind the other. */
    fk_u64 sequences, arrays, bands, sinks, plan_sinks, sink_sums, maxima, data, plan_tables;
    bool own_sinks, own_tables; /* `sinks`, or the tables in `data`, may be those of a run */
    cu_ptr marks;            /* the session's marks, at the address that this device uses */
    cuda_stage stage;
    cu_event *events;        /* all that were made; the first `event_free` are free */
    uint32_t event_count, event_free, event_capacity;
    cu_event base;           /* of a timed run: when it began (timing.c) */
} cuda_device;

/* The work lists of one ATTEND: where they begin in the rank's cuda_work, and how long they are. */
typedef struct cuda_attend {
    uint32_t instr; /* its number in the compute queue */
    uint32_t range; /* of heads: an ATTEND whose visits are of several has as many of these, one after another */
    uint64_t rows, key_runs, keys, row_runs, merges, counters;
    uint64_t split_bytes; /* where the lists of rows are packed or cut: what their parts take */
    uint32_t row_count, key_count, merge_count, lock_count, subs;
    bool single; /* as in fcp_kernel_work */
    bool cut;    /* the keys of some rows are */
    /* Fused: the last ATTEND of the run; so many instructions of the communication queue must be complete before it
     * begins; so many of them bring all that it reads; and the last round that it waits for by flags, FCP_NONE if there
     * is none. */
    uint32_t last, holds, needs, round;
} cuda_attend;
typedef struct cuda_work {
    cuda_attend *attends;
    uint32_t attend_count;
    char *bytes; /* the lists on the host; NULL once they are on the device */
    size_t size, capacity;
    cu_ptr memory;
    size_t held; /* bytes at `memory` */
} cuda_work;

/* Results that leave while the last stage of a pass computes (early.c). */
typedef struct cuda_early {
    uint8_t *slots; /* for each home slot: do its results leave early? NULL: none of the rank's do */
    /* end: so many instructions of the communication queue belong to the pass; only those of OUT follow. after: so
     * many of them come before the place where early results are ready; 0: the rank moves none, neither its own nor
     * others'. */
    uint32_t end, after;
    cu_event event; /* recorded at that place by the graph; NULL: no graph has been made yet */
} cuda_early;

/* Where a tensor of the caller's lies: the driver's kind of memory (0: ordinary host memory) and its device. */
typedef struct cuda_tensor_memory {
    cu_ptr begin, end; /* 0: nothing is known */
    unsigned type;
    int device;
} cuda_tensor_memory;

/* The streams of a rank: one for each queue; and CUDA_NET, for transfers over net if those over local have the
 * communication queue's for themselves (runtime/plan/fabrics.c). */
enum { CUDA_NET = FCP_QUEUES, CUDA_STREAMS };

/* What a rank has of the caller's: tensors, and behind them sinks, tables and their gradients, and the largest
 * logits. */
enum { CUDA_SINK = FCP_TENSORS, CUDA_D_SINK, CUDA_TABLE, CUDA_D_TABLE, CUDA_MAX_LOGIT, CUDA_TENSORS };
/* The graphs of a session: one for each pass, one for a backward pass with gradients of tables, and one for a forward
 * pass with the largest logits. */
enum { CUDA_LEARNING = FCP_PASSES, CUDA_MAXIMA, CUDA_GRAPHS };

typedef struct cuda_rank {
    cuda_device *device;
    cuda_tensor_memory tensors[CUDA_TENSORS]; /* of the run that is being recorded */
    fcp_slots slots[FCP_PASSES];
    fcp_arena arena[FCP_PASSES];
    cuda_early early[FCP_PASSES];
    cuda_work work[FCP_PASSES];
    fk_u64 maps[FCP_PASSES][FCP_KERNEL_TENSORS][16]; /* the words of fk_map, if kernels of the pass take maps */
    size_t arena_bytes;
    bool memory_lent; /* the arena belongs to the transport or the lender, who frees it */
    /* The arena; and lock_words words of 4 bytes: backward the locks and the counter, forward what parts of rows leave
     * until they are put together. */
    cu_ptr memory, locks;
    fk_gather_run *runs;          /* of its bundles, on the host; NULL once they are on the device */
    uint32_t run_count;
    cu_ptr sums; /* those of the gradients of tables, and behind them as many floats; 0: no run has wanted them */
    cu_ptr runs_memory, messages; /* messages: those of one LAUNCH of inputs or outputs */
    size_t runs_held, messages_bytes, messages_held;
    cu_ptr rounded;               /* messages of partial results, one for each fabric and direction */
    size_t rounded_bytes, rounded_held;
    uint32_t flag_words;          /* behind the locks: if a pass is fused, the flags of its arrivals */
    size_t lock_words, memory_held, locks_held, sums_held; /* held: bytes that are allocated; a plan may need less */
    /* While a pass is put into streams: what the next kernel of the compute queue writes when it begins (0: nothing),
     * and which slots hold a partial sum so far. */
    uint32_t mark;
    fcp_partials partials;
    /* NULL: there is none. marks: where marks of each are written, beside it. */
    cu_stream streams[CUDA_STREAMS], marks[CUDA_STREAMS];
    /* of a timed run (timing.c): before each instruction of a queue and behind the last; when results are out */
    cu_event *times[FCP_QUEUES], time_out;
    uint32_t time_count[FCP_QUEUES];
} cuda_rank;

typedef struct fcp_cuda_session {
    fcp_session base;
    const fcp_plan *plan;
    fcp_cuda *cuda;
    uint32_t first_device, device_count, graph_from;
    bool fused;         /* ATTENDs are one launch where they can be (runtime/worklists/fuse.h) */
    bool mma_sync;      /* use the kernels for mma.sync even if the device has others */
    cuda_device *devices;
    fcp_homes *homes;
    fcp_bundles *bundles;
    cuda_rank *ranks;   /* one for each rank of the plan; those of other processes are empty */
    fcp_allocator allocator; /* of the caller's; allocate NULL: the driver gives device memory */
    size_t stage_bytes; /* as the options say; 0: the default of stage.c */
    bool host_tensors;  /* if ranks are processes: tensors lie in host memory; a caller said so, or a run had such */
    uint32_t *marks;    /* host memory that devices write (marks.c); NULL: the driver refuses that */
    cu_stream origin;   /* a stream of the first device: runs begin and end in it if the caller names no stream */
    /* Of a session that lends its arenas, these are about the runs of all that use them, too. finished: recorded after
     * everything that the last run put into streams; NULL: nothing has run. */
    cu_event finished;
    bool lends, kept;      /* others use its arenas; one of these hangs, and so they are not freed */
    uint32_t arenas, laid; /* how often its arenas have moved; the lender's count when this one's were laid out */
    cu_graph_exec graphs[CUDA_GRAPHS];
    uint32_t runs[CUDA_GRAPHS];
    uint64_t sums;           /* of gradients of tables, as fcp_kernel_sums says */
    bool learning;           /* the run is a backward pass, and wants these gradients */
    bool maxima;             /* the run is a forward pass, and wants the largest logits */
    fcp_partition partition, partition_wanted;
    char partition_why[400], warning[400];
    bool capturing;          /* what is put into streams becomes a graph of the session's */
    bool outer;              /* it becomes a part of a graph of the caller's */
    /* made: creation succeeded; broken: a run failed; hung: something did not end within the time limit */
    bool made, broken, hung;
    fcp_error why;
} fcp_cuda_session;

/* The session whose arenas this one uses: mostly itself. */
static inline fcp_cuda_session *fcp_cuda_lender(const fcp_cuda_session *s) {
    return (fcp_cuda_session *)(s->base.lender ? s->base.lender : &s->base);
}

/* Is the pass fused? A backward pass is not where it is two kernels. */
static inline bool fcp_cuda_fused(const fcp_cuda_session *s, fcp_pass pass) {
    bool joint = true;
    for (uint32_t i = 0; i < s->device_count; i++) joint = joint && s->devices[i].backward != EMIT_SPLIT;
    return s->fused && (pass == FCP_FORWARD || joint);
}
/* The address of a flag of the rank's fused pass, counted from 1. They stand behind the locks. */
static inline cu_ptr fcp_cuda_flag_at(const cuda_rank *rank, uint32_t flag) {
    return rank->locks + (rank->lock_words + flag - 1) * 4;
}

/* One more than the last rank of this process; the first is base.first_rank. */
static inline uint32_t fcp_cuda_end(const fcp_cuda_session *s) { return s->base.first_rank + s->base.rank_count; }
#endif
