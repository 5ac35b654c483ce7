/* cuda.h: the private header of this room: the types that make up a session on CUDA devices, then the functions of
 * each file. Other rooms include cuda_session.h. README.md has a picture of one run.
 *
 * The files stand here from the bottom up: each uses only those above it, so that it can be read without those below.
 */
#ifndef FCP_CUDA_CUDA_H
#define FCP_CUDA_CUDA_H
#include "codegen/kernels/abi.h"
#include "codegen/source.h"
#include "runtime/exec/agree.h"
#include "runtime/exec/bundles.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/rank_memory.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/exec/session.h"
#include "runtime/exec/transport.h"
#include "runtime/jit/jit.h"
#include "runtime/libraries/cuda_driver.h"
#include "runtime/plan/plan.h"
#include "runtime/worklists/worklists.h"

typedef enum cuda_kernel_id {
    CUDA_FORWARD,
    CUDA_DKV,
    CUDA_DQ,
    CUDA_ORDERED,
    CUDA_UNORDERED,
    CUDA_TABLES,
    CUDA_BEGIN_LSE,
    CUDA_DELTA,
    CUDA_ADD,
    CUDA_ROUND,
    CUDA_MERGE,
    CUDA_STATE_OUT,
    CUDA_FOLD_SINKS,
    CUDA_GATHER,
    CUDA_COMBINE,
    CUDA_ROUND_SUMS,
    CUDA_NARROW,
    CUDA_WIDEN,
    CUDA_ROWS_MOVE,
    CUDA_ROWS_ADD,
    CUDA_SCAN_SCALED,
    CUDA_SCAN_MATRIX,
    CUDA_KERNELS
} cuda_kernel_id;
/* The modules of kernels: one for each pass, and that of layers that recur, which is the same for all plans. */
enum { CUDA_RECURRENT = FCP_PASSES, CUDA_MODULES };
typedef struct cuda_kernel {
    cu_function function; /* NULL: the plan does not use it */
    const char *name;
    uint32_t threads, shared, parts; /* of a CTA: threads, bytes of shared memory; parts as in emit_kernel */
    bool maps;            /* its parameters are fk_launch_maps */
    uint32_t resident;    /* how many of its CTAs an SM holds at once */
} cuda_kernel;

/* --- staging.c copies between pageable host memory and a device through two pinned buffers. */

/* Bytes that a device has copied into a pinned buffer, and that are still to be copied to `to` in pageable memory. */
typedef struct cuda_out {
    void *to;
    size_t at, bytes; /* at: where they are in the buffer */
} cuda_out;
typedef struct cuda_buffer {
    char *memory;
    size_t used;
    cu_event event;  /* if busy: recorded after its copies */
    bool busy;
    cuda_out *out;   /* what is copied to host memory when the device's copies have ended */
    uint32_t out_count, out_capacity;
} cuda_buffer;
/* A copy between the device and the buffer being filled, which is not in the stream yet: if the next copy continues it
 * on both sides, the two become one. */
typedef struct cuda_pending {
    cu_ptr device;
    size_t at, bytes; /* at: where it begins in the buffer; bytes: 0 if there is none */
    bool in;          /* to the device */
} cuda_pending;
typedef struct cuda_staging {
    cuda_buffer buffers[2];
    cuda_pending pending;
    uint32_t now;    /* the buffer that is being filled */
    size_t bytes;    /* of each buffer, and of `landing` */
    cu_ptr landing;  /* device memory: a message on its way between a buffer and home blocks */
    cu_stream stream;
} cuda_staging;

/* How many bytes a session allocates for its plan.
 *   device   on a device
 *   held     how many of these are allocated already
 *   recurring  how many of `device` layers that recur take
 *   pinned   pinned host memory (that of the marks counts for the first device)
 * Not counted is what NCCL and the driver take for themselves, and what the probe of partition.c takes, which is freed
 * before anything large is allocated. */
typedef struct cuda_need {
    size_t device, held, recurring, pinned;
} cuda_need;

/* Device memory that a session keeps for its next plan: `held` bytes at `at`, which is 0 if there is none. */
typedef struct cuda_memory {
    cu_ptr at;
    size_t held;
} cuda_memory;

typedef struct cuda_device cuda_device;

/* Memory in whose place the session has larger memory now, but which graphs of the caller's still use. */
typedef struct cuda_aside {
    cuda_device *device;
    cuda_memory memory;
} cuda_aside;

struct cuda_device {
    cu_device handle;
    cu_context context;
    bool retained;
    char name[64];
    int major, minor, multiprocessors, shared; /* shared: the most bytes of shared memory that a CTA may have */
    unsigned forward;        /* EMIT_FORWARD or EMIT_FORWARD_SM90 */
    unsigned backward;       /* one of EMIT_BACKWARD, or with EMIT_ONE_BUFFER */
    uint32_t attention[FCP_PASSES]; /* how many SMs attention may use */
    bool apart;              /* in every pass some transfer of its ranks needs SMs */
    cu_green green;          /* compute streams belong to this green context; NULL: to the device's own context */
    uint32_t green_count;    /* its SMs */
    cu_module modules[CUDA_MODULES]; /* NULL: the plan does not need it */
    cuda_kernel kernels[CUDA_KERNELS];
    cuda_memory environment; /* what masks and scores read (environment.c) */
    cuda_need need;
    char *sources[CUDA_MODULES]; /* the modules' sources; NULL: that module is not loaded completely */
    /* Addresses in the environment:
     *   sinks         the sinks that kernels read; 0 if there are none
     *   plan_sinks    the plan's sinks
     *   sink_sums     room for the gradients of sinks of each rank
     *   maxima        room for the largest logits of each rank
     *   data          the plan's arrays, as kernels read them
     *   plan_tables   a second copy of those arrays that are tables of reals */
    fk_u64 sequences, arrays, bands, sinks, plan_sinks, sink_sums, maxima, data, plan_tables;
    bool own_sinks, own_tables; /* `sinks`, or the tables in `data`, may be those of a run */
    cu_ptr marks;            /* the session's marks, at the address that this device uses */
    cuda_staging staging;
    cu_event *events;        /* all that were made; the first `event_free` are free */
    uint32_t event_count, event_free, event_capacity;
    cu_event base;           /* of a timed run: when it began (timing.c) */
};

/* The work lists of one ATTEND: where they begin in the rank's cuda_work, and how long they are. */
typedef struct cuda_attend {
    uint32_t instr; /* its number in the compute queue */
    uint32_t range; /* of heads: an ATTEND whose visits are of several has as many of these, one after another */
    uint64_t rows, key_runs, keys, row_runs, merges, counters;
    uint64_t split_bytes; /* if row items are cut or packed: the bytes of the running states that their parts leave */
    uint32_t row_count, key_count, merge_count, lock_count, subs;
    bool single; /* as in fcp_worklists */
    bool counted; /* the forward kernel has counters */
    /* Only if the pass is fused, where one launch does ATTENDs [instr, last].
     *   holds   the launch begins when the first `holds` instructions of the communication queue are complete
     *   needs   all that it reads is there when the first `needs` of them are complete
     *   round   the last round for which its CTAs wait by a flag; FCP_NONE if they wait for none */
    uint32_t last, holds, needs, round;
} cuda_attend;
typedef struct cuda_work {
    cuda_attend *attends;
    uint32_t attend_count;
    char *bytes; /* the lists on the host; NULL once they are on the device */
    size_t size, capacity;
} cuda_work;

/* Results of a rank that are sent while the last stage of a pass still computes (early.c). */
typedef struct cuda_early {
    uint8_t *slots; /* for each home slot: are its results sent early? NULL: none of the rank's are */
    /* Two places in the rank's communication queue.
     *   end     the first `end` instructions belong to the pass; those behind them move outputs (OUT)
     *   after   early results are ready when the first `after` instructions are complete. It is 0 if the rank moves no
     *           early results, neither its own nor those of others */
    uint32_t end, after;
    cu_event event; /* the graph records it there; NULL: no graph has been made yet */
} cuda_early;

/* Where a tensor of the caller's lies: the driver's kind of memory (0: ordinary host memory) and its device. */
typedef struct cuda_tensor_memory {
    cu_ptr begin, end; /* 0: nothing is known */
    unsigned type;
    int device;
} cuda_tensor_memory;

/* The streams of a rank: one for each queue, and perhaps CUDA_NET: then net transfers are in that one, and the
 * communication queue's stream has the local transfers only (runtime/plan/fabrics.c). */
enum { CUDA_NET = FCP_QUEUES, CUDA_STREAMS };

/* What a rank has of the caller's: the tensors of a run, then sinks, tables, the gradients of both, and the largest
 * logits. */
enum { CUDA_SINK = FCP_TENSORS, CUDA_D_SINK, CUDA_TABLE, CUDA_D_TABLE, CUDA_MAX_LOGIT, CUDA_TENSORS };
/* The graphs of a session: one for each pass, one for a backward pass with gradients of tables, and one for a forward
 * pass with the largest logits. Behind these, the same for runs that keep keys, which move no K and V. */
enum { CUDA_TABLE_GRADIENTS = FCP_PASSES, CUDA_MAXIMA, CUDA_WITH_KEYS, CUDA_GRAPHS = 2 * CUDA_WITH_KEYS };

/* The memory that a rank has on its device beside its arena:
 *   LOCKS      lock_words words of 4 bytes: the locks and the counter of the backward pass; in the forward pass, the
 *              running states that parts of a row leave until they are joined. Behind these, flag_words words: the
 *              flags of arrivals in a fused pass.
 *   SUMS       the sums of the gradients of tables (FK_SUM_BYTES each), then a float for each sum. There are none
 *              before a run wants them.
 *   RUNS       the runs of the rank's bundles
 *   MESSAGES   the messages of one LAUNCH of inputs or outputs
 *   ROUNDED    messages of partial results, one for each fabric and direction
 *   HALO_RUNS  the runs of rows of the plan's halos
 *   RECURRING  what calls of layers that recur work in: temporaries of a scan, messages of a halo, and tensors of the
 *              caller's that do not lie on the rank's device. It has room for the temporaries of the plan's scans, and
 *              is as large as the largest call so far needs
 *   LISTS      the work lists, an entry for each pass
 */
enum {
    CUDA_LOCKS,
    CUDA_SUMS,
    CUDA_RUNS,
    CUDA_MESSAGES,
    CUDA_ROUNDED,
    CUDA_HALO_RUNS,
    CUDA_RECURRING,
    CUDA_LISTS,
    CUDA_KEPT = CUDA_LISTS + FCP_PASSES
};

/* Rows of halos that one launch moves: runs [first, first + count) of the rank's list. No row is the end of two of
 * them, so the gradient can add them all at once. */
typedef struct cuda_halo_group {
    uint64_t first, rows;
    uint32_t count;
} cuda_halo_group;

/* What a rank needs of the plan's halos. Groups of step i of a layer are [starts[at + i], starts[at + i + 1]), where
 * `at` is starts_of[layer]; those behind the last step's are of rows that no step writes. COPYs that follow each other
 * are in the groups of the first of them. */
typedef struct cuda_halo_lists {
    fk_rows_run *runs; /* NULL once they are on the device */
    cuda_halo_group *groups;
    uint32_t *starts, *starts_of;
    uint64_t run_count, run_capacity;
    uint32_t group_count, group_capacity, start_count, start_capacity;
    uint32_t *seen; /* while lists are made: for each row of the rank's tokens, 1 + the last group that has it */
} cuda_halo_lists;

typedef struct cuda_rank {
    cuda_device *device;
    cuda_tensor_memory tensors[CUDA_TENSORS]; /* of the run that is being recorded */
    fcp_slots slots[FCP_PASSES];
    fcp_arena arena[FCP_PASSES];
    cuda_early early[FCP_PASSES];
    cuda_work work[FCP_PASSES];
    fk_u64 maps[FCP_PASSES][FCP_LAUNCH_TENSORS][16]; /* the words of fk_map, if kernels of the pass take maps */
    size_t arena_bytes;
    bool memory_lent; /* the arena belongs to the transport or the lender, who frees it */
    cuda_memory memory; /* the arena; the plan may need less than it holds */
    cuda_memory kept[CUDA_KEPT];
    size_t messages_bytes, rounded_bytes, lock_words;
    uint32_t flag_words, run_count;
    fk_gather_run *runs; /* of its bundles, on the host; NULL once they are on the device */
    cuda_halo_lists halos;
    size_t recurring_bytes; /* the temporaries of the plan's scans */
    bool in_graphs;         /* graphs of the caller's may work in the memory RECURRING */
    /* While a pass is put into streams: what the next kernel of the compute queue writes when it begins (0: nothing),
     * and which slots hold a partial sum so far. */
    uint32_t mark;
    fcp_partials partials;
    /* NULL: there is none. marks[q]: the stream in which marks of streams[q] are written. */
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
    fcp_allocator allocator; /* the caller's; allocate NULL: the driver gives device memory */
    size_t staging_bytes; /* as the options say; 0: the default of staging.c */
    bool host_tensors;  /* if ranks are processes: tensors lie in host memory; a caller said so, or a run had such */
    uint32_t *marks;    /* host memory that devices write (marks.c); NULL: the driver refuses that */
    cu_stream origin;   /* a stream of the first device: runs begin and end in it if the caller names no stream */
    /* In a session that lends its arenas, the next members are about the runs of all sessions that use them.
     * finished: recorded after everything that the last run put into streams; NULL: nothing has run. */
    cu_event finished;
    bool lends, kept;      /* lends: others use its arenas. kept: one of these hangs, so the arenas are not freed */
    uint32_t arenas, laid; /* how often its arenas have moved; the lender's count when this one's were laid out */
    cu_graph_exec graphs[CUDA_GRAPHS];
    uint32_t runs[CUDA_GRAPHS];
    uint64_t sums;           /* how many sums gradients of tables have, as fcp_kernel_sums says */
    bool table_gradients;    /* the run is a backward pass, and wants these gradients */
    bool maxima;             /* the run is a forward pass, and wants the largest logits */
    cuda_aside *aside;
    uint32_t aside_count, aside_capacity;
    fcp_partition partition, partition_wanted;
    char partition_why[400], warning[400];
    bool capturing;          /* what is put into streams becomes a graph of the session's */
    bool outer;              /* it becomes a part of a graph of the caller's */
    bool recurs;             /* a call of a layer that recurs is under way, of which marks say nothing */
    fcp_calls calls;         /* such calls of this plan that there have been */
    /* made: creation succeeded; broken: a run failed; hung: something did not end within the time limit */
    bool made, broken, hung;
    fcp_error why;
} fcp_cuda_session;

/* The session whose arenas this one uses: mostly itself. */
static inline fcp_cuda_session *fcp_cuda_lender(const fcp_cuda_session *s) {
    return (fcp_cuda_session *)(s->base.lender ? s->base.lender : &s->base);
}

/* Is the pass fused? A backward pass is not if its kernels are two (EMIT_SPLIT). */
static inline bool fcp_cuda_fused(const fcp_cuda_session *s, fcp_pass pass) {
    bool joint = true;
    for (uint32_t i = 0; i < s->device_count; i++) joint = joint && s->devices[i].backward != EMIT_SPLIT;
    return s->fused && (pass == FCP_FORWARD || joint);
}
/* The address of a flag of the rank's fused pass, counted from 1. They stand behind the locks. */
static inline cu_ptr fcp_cuda_flag_at(const cuda_rank *rank, uint32_t flag) {
    return rank->kept[CUDA_LOCKS].at + (rank->lock_words + flag - 1) * 4;
}

/* One more than the last rank of this process; the first is base.first_rank. */
static inline uint32_t fcp_cuda_end(const fcp_cuda_session *s) { return s->base.first_rank + s->base.rank_count; }

/* The stream of a rank's transfers over a fabric. */
static inline cu_stream fcp_cuda_fabric_stream(const cuda_rank *r, unsigned fabric) {
    return fabric == FCP_NET && r->streams[CUDA_NET] ? r->streams[CUDA_NET] : r->streams[FCP_COMM];
}

/* --- device.c: the current device, its events, streams that follow each other, waiting with a time limit ---------- */

/* Makes the device's context current for this thread. */
fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err);
/* Makes the device current, and a stream of it that does not wait for the default stream. */
fcp_code fcp_cuda_stream_make(const fcp_cuda_session *s, const cuda_device *d, cu_stream *out, fcp_error *err);
/* The architecture that its kernels are compiled for, such as "sm_80". A device of 9.0 is sm_90a, which has TMA and
 * WGMMA. */
void fcp_cuda_arch(const cuda_device *d, char out[32]);
bool fcp_cuda_is_sm_90a(const cuda_device *d);
/* event_take: an event of the device that nobody uses. event_give: returns it, which is allowed as soon as every stream
 * that is to wait for it has been told so. The current context stays current. */
fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err);
void fcp_cuda_event_give(cuda_device *d, cu_event event);
/* Takes an event of device d and records it in a stream. After an error *out is NULL. */
fcp_code fcp_cuda_event_record(fcp_cuda_session *s, cuda_device *d, cu_stream stream, cu_event *out, fcp_error *err);
/* Work put into a stream from now on waits for an event. */
fcp_code fcp_cuda_event_await(fcp_cuda_session *s, cu_stream stream, cu_event event, fcp_error *err);
/* Work that is put into `to` from now on begins when all that is in `from` now has ended. `from` is a stream of
 * device d. */
fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err);
/* fork: streams of all ranks follow `origin`, a stream of device d. join: `origin` follows all of them. which: a bit
 * for each stream of a rank that does so. */
enum { CUDA_COMM_STREAMS = 1 << FCP_COMM, CUDA_ALL_STREAMS = (1 << CUDA_STREAMS) - 1 };
fcp_code fcp_cuda_fork(fcp_cuda_session *s, unsigned which, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_join(fcp_cuda_session *s, unsigned which, cu_stream origin, fcp_error *err);
/* Wait until the event has come, or the stream is empty. FCP_E_RUN: that failed, or did not happen within the
 * session's time limit; `what` names it in the message. */
fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err);
fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err);

/* --- staging.c: copies between a device and pageable host memory, through pinned buffers -------------------------- */

fcp_code fcp_cuda_staging_open(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
void fcp_cuda_staging_close(fcp_cuda_session *s, cuda_device *d);
size_t fcp_cuda_staging_pinned(const cuda_device *d); /* bytes of its two buffers */
/* Copies to the device (in) and from it (out), in the device's staging stream. A copy may be held back, to be joined
 * with the next one. staging_push, staging_flush and stagings_join put all that was held back into the stream.
 *   staging_in    has read `from` when it returns
 *   staging_out   writes `to` later: it is complete when staging_flush has returned, which waits for all copies */
fcp_code fcp_cuda_staging_in(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                             fcp_error *err);
fcp_code fcp_cuda_staging_out(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err);
fcp_code fcp_cuda_staging_push(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
fcp_code fcp_cuda_staging_flush(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
/* A single copy that has ended when these return. */
fcp_code fcp_cuda_upload(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes,
                         fcp_error *err);
fcp_code fcp_cuda_download(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err);
/* Forgets what is still to be written to host memory. An error of the functions above does so, too. */
void fcp_cuda_staging_drop(cuda_device *d);
/* stagings_follow: the staging streams of all devices follow `origin`, a stream of device d. stagings_join: `origin`
 * follows all of them. */
fcp_code fcp_cuda_stagings_follow(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_stagings_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);

/* --- memory.c: memory of devices, and copies between them --------------------------------------------------------- */

/* allocated: how many bytes are really allocated for so many; never 0.
 * memory: allocates them, and fills them with `from` if that is not NULL. `what` names them in messages. */
size_t fcp_cuda_allocated(size_t bytes);
fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err);
/* Gives memory of a device back, unless it is 0. No stream may still use it: the driver would wait for such a stream,
 * but the caller's allocator hands the memory to others at once. The device is current, before and behind. */
fcp_code fcp_cuda_release(fcp_cuda_session *s, cuda_device *d, cu_ptr memory, fcp_error *err);
/* As fcp_cuda_memory for memory that may be there already. It is used again if it is large enough, and given back first
 * if not. Nothing happens if `bytes` is 0. */
fcp_code fcp_cuda_keep(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                       cuda_memory *memory, fcp_error *err);
/* set_aside: keeps memory that graphs of the caller's use until the session gets another plan or ends, and makes
 * *memory 0. aside_release: gives all such memory back. Those graphs are not launched any more. */
fcp_code fcp_cuda_set_aside(fcp_cuda_session *s, cuda_device *d, cuda_memory *memory, fcp_error *err);
fcp_code fcp_cuda_aside_release(fcp_cuda_session *s, fcp_error *err);
/* Puts a copy into a stream, within a device or between two. */
fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err);

/* Puts into a stream that fills memory with a word of 4 bytes. */
fcp_code fcp_cuda_fill(const fcp_cuda_session *s, cu_ptr to, unsigned word, size_t bytes, cu_stream stream,
                       fcp_error *err);

/* --- io_rounds.c: which rounds of a plan move inputs and outputs, and which outputs are sent early ---------------- */

/* Does a LAUNCH move inputs (FCP_IN) or outputs (FCP_OUT)? FCP_CLASSES: neither. */
fcp_class fcp_cuda_moved_by(const fcp_plan *plan, fcp_pass pass, const fcp_instr *launch);
/* Rounds [from, to) of a pass move outputs that are ready before its last stage. A fused pass has none. */
typedef struct cuda_early_rounds {
    uint32_t from, to;
} cuda_early_rounds;
cuda_early_rounds fcp_cuda_early_rounds(const fcp_plan *plan, fcp_pass pass, bool fused);
static inline bool fcp_cuda_is_early(const cuda_early_rounds *rounds, const fcp_instr *launch) {
    return launch->c >= rounds->from && launch->c < rounds->to;
}

/* --- kernels.c: the kernels of a session: compiled, loaded and checked on each device ----------------------------- */

/* Loads the kernels that the plan needs on all devices. If it is called again for another plan, the kernels of a pass
 * stay if their source is the same. */
fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err);
/* Puts a launch into a stream: one CTA for each of `work` pieces, but no more than `sms` SMs hold at once. */
fcp_code fcp_cuda_launch(const fcp_cuda_session *s, const cuda_device *d, cuda_kernel_id id, uint64_t work,
                         uint32_t sms, cu_stream stream, void *parameters, fcp_error *err);
/* How many numbers a CTA of a support kernel takes at once if each of its threads takes two. */
enum { CUDA_PAIRS = 2 * FK_SUPPORT_THREADS };

/* --- environment.c: what masks and scores read on a device: sequences, fields, slices, sinks ---------------------- */

/* How many bytes it takes on each device, where this process has so many ranks. */
size_t fcp_cuda_environment_size(const fcp_plan *plan, uint32_t ranks);
/* How many bytes one rank's gradients of sinks, and its largest logits, take there. */
size_t fcp_cuda_sink_sums_size(const fcp_plan *plan);
size_t fcp_cuda_maxima_size(const fcp_plan *plan);
/* Copies it to all devices, in the place of an earlier plan's. */
fcp_code fcp_cuda_environment_load(fcp_cuda_session *s, fcp_error *err);

/* --- partition.c: which SMs attention has ------------------------------------------------------------------------- */

/* Decides which SMs attention may use on each device, and says why in partition_why. An error: green contexts are asked
 * for and cannot be had. */
fcp_code fcp_cuda_partition_open(fcp_cuda_session *s, fcp_error *err);
/* Checks that a fused pass leaves SMs to transfers that need some. Its CTAs wait for transfers, so if they had all SMs,
 * those transfers would never begin. FCP_E_BACKEND: it does not. */
fcp_code fcp_cuda_partition_check(const fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_partition_again(fcp_cuda_session *s); /* decides for another plan; streams stay as they are */
void fcp_cuda_partition_close(fcp_cuda_session *s, cuda_device *d); /* after its streams are destroyed */

/* --- devices.c: opening and closing the devices of a session ------------------------------------------------------ */

/* Opens the session's devices: their contexts, direct copies between them, and their staging buffers. */
fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err);
/* Closes them, with their kernels, environments, staging buffers, events and partitions. Nothing may be running. */
void fcp_cuda_devices_close(fcp_cuda_session *s);
/* Frees what they have in host memory, even if they could not be closed. */
void fcp_cuda_devices_free(fcp_cuda_session *s);

/* --- marks.c: how far each queue of each rank has come, as the devices write it ----------------------------------- */

/* Prepares the marks. If the driver refuses what they need, the session goes on without, and all functions below do
 * nothing. */
fcp_code fcp_cuda_marks_open(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_marks_close(fcp_cuda_session *s);
size_t fcp_cuda_marks_pinned(const fcp_cuda_session *s); /* bytes of host memory */
/* Sets all marks to "a run of this pass begins", in `origin`, a stream of device d. */
fcp_code fcp_cuda_marks_begin(fcp_cuda_session *s, fcp_pass pass, const cuda_device *d, cu_stream origin,
                              fcp_error *err);
/* The mark of a queue is a word in host memory that says which instruction the queue has begun last (marks.c).
 *   mark_value   returns what the mark becomes when instruction number `instr` begins. `instr` may be the number of
 *                instructions: the queue has ended
 *   mark_at      returns the address at which kernels of the rank's compute queue write the mark
 *   mark         makes a stream of the marks write `value` when the queue's stream has come to this place */
uint32_t fcp_cuda_mark_value(fcp_pass pass, uint32_t instr);
cu_ptr fcp_cuda_mark_at(const fcp_cuda_session *s, const cuda_rank *rank);
fcp_code fcp_cuda_mark(fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue, uint32_t value, fcp_error *err);
/* `origin` follows all writes of marks. */
fcp_code fcp_cuda_marks_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
/* Finds the rank of this process that has come least far and waits for no other rank, and puts its place before the
 * message of an error that does not name one yet: "rank 3, forward pass, stage 2, ...". May be called at any time, even
 * while something hangs. Returns the code. */
fcp_code fcp_cuda_fail_where(const fcp_cuda_session *s, fcp_code code, fcp_error *err);

/* --- timing.c: when each instruction of a run began and ended, by events in the streams --------------------------- */

/* The fcp_cuda_timing functions do nothing in a session that records no timings.
 *   begin   is called when a run begins, in `origin`, a stream of device d. It makes the events.
 *   instr   is called when everything before instruction `at` of a queue is in its stream, and the rank's device is
 *           current.
 *   out     is called when results have been put into the communication streams.
 *   read    is called when the run has ended. It fills s->base.times.
 *   end     frees the events, whether or not the run went well.
 */
fcp_code fcp_cuda_timing_begin(fcp_cuda_session *s, fcp_pass pass, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_timing_instr(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, uint32_t at, fcp_error *err);
fcp_code fcp_cuda_timing_out(fcp_cuda_session *s, fcp_error *err);
fcp_code fcp_cuda_timing_read(fcp_cuda_session *s, fcp_pass pass, fcp_error *err);
void fcp_cuda_timing_end(fcp_cuda_session *s);

/* --- maps.c: tensor maps, which describe the tensors in a rank's arena to the TMA of sm_90a ----------------------- */

/* Makes the maps of a pass. The rank's arena must have its final address. */
fcp_code fcp_cuda_maps_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* The parameters for launching a kernel: `launch`, or, if the kernel takes maps, `maps`, into which this copies the
 * maps and `launch`. */
void *fcp_cuda_with_maps(const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, fk_launch *launch,
                         fk_launch_maps *maps);

/* --- compute_queue.c: what the instructions of a compute queue put into a rank's stream --------------------------- */

/* Makes the work lists of all ATTENDs of a rank's pass. The arena need not have its final address. */
fcp_code fcp_cuda_work_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* An ATTEND, or a fused run of them; and behind it, by the same lists, the gradients of tables. */
fcp_code fcp_cuda_attend(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const cuda_attend *work, fcp_error *err);
fcp_code fcp_cuda_attend_tables(fcp_cuda_session *s, cuda_rank *rank, const cuda_attend *work, fcp_error *err);
/* The beginning of a pass: outputs get what rows without keys have, and gradients 0. */
fcp_code fcp_cuda_prepare(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* fk_fold_sinks and fk_round_sums, in the rank's communication stream. */
fcp_code fcp_cuda_fold_sinks(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err);
fcp_code fcp_cuda_round_sums(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err);
/* A DELTA; a REDUCE, REDUCE_Q or MERGE; a FINISH or ROUND. */
fcp_code fcp_cuda_delta(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_reduce(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_make_result(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
/* Zeros for those transient slots of dKV and dQ of an ATTEND that hold no sum yet. */
fcp_code fcp_cuda_open_accumulators(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
/* Rounds the gradients of home blocks to the output type, in a queue's stream: of blocks whose results are sent early,
 * or of the others. */
fcp_code fcp_cuda_finish(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, bool early, fcp_error *err);

/* --- cuda_wire.c: partial results that are rounded on their way (plan/FORMAT.md: Wire) -------------------------- */

/* Rounds the partial results that a rank's LAUNCH sends into their messages (FCP_SEND), or makes fp32 of those that it
 * has received (FCP_RECV); each in the stream of its fabric. */
fcp_code fcp_cuda_wire(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *launch,
                       const fcp_wires *wires, fcp_direction dir, fcp_error *err);

/* --- gather.c: moves the rows of a unit by one launch of fk_gather ------------------------------------------------ */

/* Makes the records of a rank's bundles, in host memory; then they go to its device. */
fcp_code fcp_cuda_gather_plan(fcp_cuda_session *s, uint32_t rank, fcp_error *err);
fcp_code fcp_cuda_gather_load(fcp_cuda_session *s, uint32_t rank, fcp_error *err);

/* A move of the rows of a transfer of class IN or OUT. */
typedef struct cuda_unit_move {
    const fcp_transfer *transfer; /* as the rank lists it, or would */
    uint32_t to, from;            /* FK_IN_MESSAGE, FK_AT_BLOCKS, FK_AT_CALLER; not both FK_IN_MESSAGE */
    const fcp_arena *home;        /* the arena of the home */
    const fcp_tensors *caller;    /* the caller's tensors */
    cu_ptr message;               /* used if it is an end */
} cuda_unit_move;
/* Puts it into `stream`, one of the device of `rank`, on which all the memory is. */
fcp_code fcp_cuda_gather(fcp_cuda_session *s, uint32_t rank, const cuda_unit_move *move, cu_stream stream,
                         fcp_error *err);

/* --- cuda_reshuffle.c: between the caller's tensors and home blocks ----------------------------------------------- */

/* A tensor of a rank's caller, of so many rows. It must begin at a multiple of `align`. */
typedef struct cuda_outside {
    const char *name;
    const void *tensor;
    uint64_t tokens;
    size_t row, align; /* row: bytes of a token */
} cuda_outside;
/* Checks that a tensor lies where the session can use it, and finds out where that is. FCP_E_TENSOR: it does not.
 * *out_host becomes true if it is in host memory. What is known of the tensors of the rank's last run must have been
 * forgotten (fcp_cuda_tensors_forget). */
fcp_code fcp_cuda_tensor_check(fcp_cuda_session *s, const cuda_outside *x, uint32_t rank, cuda_tensor_memory *out,
                               bool *out_host, fcp_error *err);
void fcp_cuda_tensors_forget(fcp_cuda_session *s);
/* Checks that every tensor of the pass lies where the session can use it. FCP_E_TENSOR: one does not. *out_host: some
 * are in host memory. */
fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err);
/* Puts IN or OUT into the communication streams of the home ranks; of OUT either what is sent early, or the rest. */
fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err);
/* Copies bytes of something of the caller's, which was checked, into a rank's device or out of it: in the rank's
 * communication stream, or through the staging buffers if they lie in ordinary host memory. */
fcp_code fcp_cuda_copy_outside(fcp_cuda_session *s, uint32_t rank, bool in, void *outside, cu_ptr inside, size_t bytes,
                               fcp_error *err);
/* The same for a result that the rank has in its communication stream: `which` of the caller's (CUDA_D_SINK, ...). */
fcp_code fcp_cuda_result_out(fcp_cuda_session *s, uint32_t rank, int which, void *outside, cu_ptr inside, size_t bytes,
                             fcp_error *err);
/* Moves the units of a rank's LAUNCH or COPY between the caller's tensors and home blocks. `tensors` are the caller's
 * at this rank. Of the transfers, it does those of class cls of which these tensors are one end. The process of the
 * other end does nothing, so this process must reach the memory of both ends. */
fcp_code fcp_cuda_move_units(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_class cls, const fcp_instr *x,
                             const fcp_tensors *tensors, fcp_error *err);

/* --- sinks.c: sinks that a run brings, and their gradients -------------------------------------------------------- */

/* Puts a run's own sinks where kernels read them; if it has none, those of the plan. */
fcp_code fcp_cuda_sinks_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
/* Behind a backward pass: the gradients of those ranks whose callers want them. */
fcp_code fcp_cuda_sinks_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);

/* --- cuda_tables.c: tables that a run brings, and their gradients ------------------------------------------------- */

/* Finds out whether a run wants gradients of tables, and whether they can be had. Takes memory for them in the first
 * such run. Another device may be current afterwards. */
fcp_code fcp_cuda_tables_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err);
/* Puts a run's own tables where kernels read them; if it has none, those of the plan. Clears the sums of gradients. */
fcp_code fcp_cuda_tables_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
/* Behind a backward pass: the gradients of those ranks whose callers want them. */
fcp_code fcp_cuda_tables_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);

/* --- maxima.c: the largest logit of each head, of the rows that a rank finishes ----------------------------------- */

/* Notes whether a run wants them. */
void fcp_cuda_maxima_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors);
/* Where kernels of a pass raise those of a rank: a float for each head of the model. 0: the run does not want them. */
cu_ptr fcp_cuda_maxima_of(const fcp_cuda_session *s, const cuda_rank *rank, fcp_pass pass);
/* Sets them to -inf, in the rank's compute stream: a part of the pass, and so of its graph. */
fcp_code fcp_cuda_maxima_begin(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
/* Behind a forward pass: brings them to those callers that want them. */
fcp_code fcp_cuda_maxima_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);

/* --- early.c: results that are sent while the last stage computes ------------------------------------------------- */

/* Finds which results of a rank are sent early, and when. The slots of the rank are laid out. */
fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err);
/* While a pass is put into streams, at the place that `after` names: makes early results ready in the communication
 * stream, after the event `prepared`. In a graph it also records the event that streams outside the graph wait for. */
fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err);
/* Moves early results to the callers' tensors. It is called when the pass has been put into the origin. If the pass is
 * a graph, the ranks' communication streams first wait for the event that the graph records; otherwise they have just
 * come to the place where early results are ready. With `host`, the staging streams then follow them. */
fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host,
                             fcp_error *err);

/* --- record.c: a pass put into the ranks' streams ----------------------------------------------------------------- */

/* Puts a pass, from home blocks to home blocks, into the ranks' streams: after what is in `origin`, which then goes
 * on after the pass. The pass touches nothing but arenas. `graph`: it is being captured. `err` must not be NULL. */
fcp_code fcp_cuda_record(fcp_cuda_session *s, fcp_pass pass, cuda_device *origin_device, cu_stream origin, bool graph,
                         fcp_error *err);

/* --- transport_local.c, transport_nccl.c -------------------------------------------------------------------------- */

extern const fcp_transport fcp_transport_local; /* all ranks in this process: copies between devices */
extern const fcp_transport fcp_transport_nccl;  /* every rank is a process with one device: groups of NCCL */

/* --- recurrent_memory.c: what layers that recur have on devices --------------------------------------------------- */

/* Parts of memory to work in begin at multiples of CUDA_ROOM_ALIGN. room: how many bytes of it so many take. */
enum { CUDA_ROOM_ALIGN = 16 };
static inline uint64_t fcp_cuda_room(uint64_t bytes) {
    return (bytes + CUDA_ROOM_ALIGN - 1) / CUDA_ROOM_ALIGN * CUDA_ROOM_ALIGN;
}
/* How much of it the temporaries of a rank's walk take. False: more than can be counted. */
bool fcp_cuda_temporaries(const fcp_step_walk *walk, uint64_t *out_bytes);
/* plan: makes a rank's lists of the rows of halos, and counts what its scans need, in host memory. load: takes memory
 * on its device for both. free: frees the lists. */
fcp_code fcp_cuda_recurrent_plan(fcp_cuda_session *s, uint32_t rank, fcp_error *err);
fcp_code fcp_cuda_recurrent_load(fcp_cuda_session *s, uint32_t rank, fcp_error *err);
void fcp_cuda_recurrent_free(cuda_rank *rank);
/* Gives a rank so many bytes to work in, more than it has. What runs must end first, since that memory becomes another;
 * but memory in which graphs of the caller's work stays where it is. `what` names the call in messages. Another
 * device may be current afterwards. */
fcp_code fcp_cuda_recurrent_grow(fcp_cuda_session *s, uint32_t rank, size_t bytes, const char *what, fcp_error *err);

/* --- ranks.c: what the ranks of this process have on their devices ------------------------------------------------ */

/* Makes the session's ranks those of a plan, as far as that allocates no device memory: lays out slots, makes work
 * lists, and checks that the devices have enough memory. An error leaves the session's ranks and plan unchanged. */
fcp_code fcp_cuda_ranks_plan(fcp_cuda_session *s, const fcp_plan *plan, fcp_error *err);
/* Makes what the ranks need on the devices: kernels, environment, arenas, streams. `again`: there was another plan
 * before. */
fcp_code fcp_cuda_ranks_make(fcp_cuda_session *s, bool again, fcp_error *err);
/* The lender's arenas have moved: lays this session's out anew where they are now. No run is under way, and the
 * session's graphs must be made again. */
fcp_code fcp_cuda_ranks_follow(fcp_cuda_session *s, fcp_error *err);
/* ranks_close frees what they have in the driver, ranks_free what they have in host memory. */
void fcp_cuda_ranks_close(fcp_cuda_session *s);
void fcp_cuda_ranks_free(fcp_cuda_session *s);

/* --- recurrent_cuda.c: halos and scans ---------------------------------------------------------------------------- */

fcp_code fcp_cuda_halo(fcp_cuda_session *s, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                       cu_stream stream, fcp_error *err);
fcp_code fcp_cuda_halo_gradient(fcp_cuda_session *s, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                const fcp_halo_gradient_rank *ranks, cu_stream stream, fcp_error *err);
fcp_code fcp_cuda_scan(fcp_cuda_session *s, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, cu_stream stream,
                       fcp_error *err);

/* --- run_pass.c: running a pass: inputs in, the pass or its graph, outputs out; and what happens if that fails ---- */

/* What a call puts into streams: behind what `origin` has, a stream of the session's first device, which then goes on
 * behind the call. wait: the call has ended when this returns. */
typedef fcp_code cuda_put(fcp_cuda_session *s, void *call, cu_stream origin, bool wait, fcp_error *err);
/* Sets s->outer: is the stream being captured into a graph of the caller's? Then the call becomes a part of that graph,
 * and may do nothing but put work into streams. Who asks sets s->outer to false behind the call. */
fcp_code fcp_cuda_see_capture(fcp_cuda_session *s, cu_stream stream, fcp_error *err);
/* FCP_E_TENSOR: such a call has tensors in host memory. */
fcp_code fcp_cuda_refuse_host(fcp_error *err);
/* A call of the caller's that names a stream, or none (NULL).
 *   call_begin   finds the stream's device and makes the session's first device current. *out_before: the context to
 *                which the call goes back, also after an error
 *   call_put     puts the call into that stream, by `put`. With `host` some tensors lie in host memory, and the call
 *                has ended when this returns. An error breaks the session
 *   await_before, mark_finished
 *                what `put` does first and last: calls come one after the other, whatever their streams */
fcp_code fcp_cuda_call_begin(fcp_cuda_session *s, cu_stream stream, cu_context *out_before, cuda_device **out_device,
                             fcp_error *err);
fcp_code fcp_cuda_call_put(fcp_cuda_session *s, cuda_put *put, void *call, cuda_device *d, cu_stream stream, bool host,
                           fcp_error *err);
fcp_code fcp_cuda_await_before(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_mark_finished(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
/* Runs a pass, as `run` of fcp_session_kind says. */
fcp_code fcp_cuda_run(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, cu_stream stream, fcp_error *err);
/* Waits for all runs, at most for the time limit. */
fcp_code fcp_cuda_run_wait(fcp_cuda_session *s, fcp_error *err);
/* FCP_E_RUN, with the reason: the session has failed. */
fcp_code fcp_cuda_run_check(const fcp_cuda_session *s, fcp_error *err);
/* Destroys the graphs. */
void fcp_cuda_graphs_destroy(fcp_cuda_session *s);
/* A run has failed for the reason *why. Adds the place to it, ends what is running, and makes the session refuse
 * further runs. */
void fcp_cuda_break(fcp_cuda_session *s, fcp_code code, fcp_error *why);
/* Waits until everything in the session's streams has ended or failed. Once something hangs, it waits for nothing
 * more. */
void fcp_cuda_drain(fcp_cuda_session *s);
#endif
