/* parts.h: inside cuda sessions: devices, ranks, work lists, and what the files about them call of each other. */
#ifndef FCP_CUDA_PARTS_H
#define FCP_CUDA_PARTS_H
#include "codegen/kernels/abi.h"
#include "codegen/source.h"
#include "runtime/exec/arena.h"
#include "runtime/libraries/cuda_driver.h"
#include "runtime/kernels/jit.h"
#include "runtime/kernels/work.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/session.h"
#include "runtime/exec/tensors.h"

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
    cu_ptr memory, locks; /* locks: lock_words of 4 bytes, the last one the counter */
    size_t lock_words, memory_held, locks_held; /* held: bytes, of which a plan may need less */
    uint32_t mark;   /* what the compute queue's kernels say when they begin, as far as the pass has been put down; 0: nothing */
    fcp_partials partials; /* as far as the pass has been put down */
    cu_stream streams[FCP_QUEUES];
} cuda_rank;

struct cuda_nccl; /* of transport_nccl.c: this rank's communicator */

typedef struct fcp_cuda_session {
    fcp_session base;
    const fcp_plan *plan;
    fcp_cuda *cuda;
    struct cuda_nccl *nccl; /* NULL: the transport is local */
    uint32_t first_device, device_count, timeout_s, graph_from;
    bool mma_sync;      /* the skeletons for mma.sync, whatever else a device has */
    cuda_device *devices;
    fcp_homes *homes;
    cuda_rank *ranks;   /* by their numbers in the plan; those of other processes are empty */
    size_t stage_bytes; /* as asked for; 0: as stage.c has it */
    bool host_tensors;  /* nccl: tensors lie in host memory, as a caller said or as they have */
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

/* --- device.c */
/* The devices: their contexts, kernels and environment; and what they have. The last two may be loaded again, for another
 * plan: of each pass, kernels whose source is the same stay. */
fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err);
fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err);
fcp_code fcp_cuda_environment_load(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_device_close(fcp_cuda_session *s, cuda_device *d);
size_t fcp_cuda_environment_size(const fcp_plan *plan);
/* Memory of a device, with bytes of ours if `from`. fcp_cuda_allocated: as many as are taken for so many, never none. */
size_t fcp_cuda_allocated(size_t bytes);
fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err);
/* The same, where `held` bytes of it are there already: kept if they are enough, else given up first. */
fcp_code fcp_cuda_memory_again(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                               cu_ptr *memory, size_t *held, fcp_error *err);
fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err);
/* Events of a device: taken when needed, given back when whatever waits for it has been told to. The device in use stays. */
fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err);
void fcp_cuda_event_give(cuda_device *d, cu_event event);
/* Work put into `to` from now on begins after what is in `from`, a stream of device d. */
fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err);
/* All streams of all ranks follow the origin, of device d; the origin follows all of them. */
fcp_code fcp_cuda_fork(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);
/* Until what is in the stream, or before the event, is done, or the session's patience is. */
fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err);
fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err);
fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err);

/* --- partition.c */
/* Which multiprocessors attention has. An error only where green contexts are wanted and cannot be had. */
fcp_code fcp_cuda_partition_open(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_partition_again(fcp_cuda_session *s); /* for another plan, with the streams that are there */
void fcp_cuda_partition_close(fcp_cuda_session *s, cuda_device *d); /* after the streams */
uint32_t fcp_cuda_attention_share(uint32_t multiprocessors, uint32_t margin);

/* --- maps.c: what the copy engine knows of a rank's tensors, once its arenas lie where they will; and the parameters of
 * a kernel that is given maps in *maps, else as they are: where they are then. */
fcp_code fcp_cuda_maps_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
void *fcp_cuda_with_maps(const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, fk_launch *launch, fk_launch_maps *maps);

/* --- work.c */
/* The work lists of a rank's ATTENDs of a pass, with an arena that begins anywhere. */
fcp_code fcp_cuda_work_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
fcp_code fcp_cuda_attend(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const cuda_attend *work, fcp_error *err);
fcp_code fcp_cuda_prepare(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err);
fcp_code fcp_cuda_delta(fcp_cuda_session *s, cuda_rank *rank, fcp_error *err);
fcp_code fcp_cuda_reduce(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
fcp_code fcp_cuda_open_accumulators(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err);
/* The backward pass's results of home blocks that go out early, or of the others, in a queue's stream. */
fcp_code fcp_cuda_finish(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, bool early, fcp_error *err);

/* --- stage.c: copies between a device and pageable memory */
fcp_code fcp_cuda_stage_open(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
void fcp_cuda_stage_close(fcp_cuda_session *s, cuda_device *d);
size_t fcp_cuda_stage_pinned(const cuda_device *d); /* bytes of its buffers */
/* Put into the stage's stream. `from` has been read when stage_in returns; `to` is written when stage_flush has returned,
 * which waits for all copies of the stage. */
fcp_code fcp_cuda_stage_in(fcp_cuda_session *s, cuda_device *d, cu_ptr to, const void *from, size_t bytes, fcp_error *err);
fcp_code fcp_cuda_stage_out(fcp_cuda_session *s, cuda_device *d, void *to, cu_ptr from, size_t bytes, fcp_error *err);
fcp_code fcp_cuda_stage_flush(fcp_cuda_session *s, cuda_device *d, fcp_error *err);
/* Forgets what was to be written; an error of any of the above does so too. */
void fcp_cuda_stage_drop(cuda_device *d);
/* All stages follow the origin, of device d; the origin follows all of them. */
fcp_code fcp_cuda_stages_follow(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err);
fcp_code fcp_cuda_stages_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err);

/* --- marks.c: how far the queues are, as the devices say it */
fcp_code fcp_cuda_marks_open(fcp_cuda_session *s, fcp_error *err);
void fcp_cuda_marks_close(fcp_cuda_session *s);
size_t fcp_cuda_marks_pinned(const fcp_cuda_session *s); /* their bytes */
/* A run of a pass begins, in the stream, of device d. */
fcp_code fcp_cuda_marks_begin(fcp_cuda_session *s, fcp_pass pass, const cuda_device *d, cu_stream origin, fcp_error *err);
/* What says that an instruction of a pass has begun (its number in the queue; their count: the queue has ended), and where;
 * and saying it in the queue's stream. */
uint32_t fcp_cuda_mark_value(fcp_pass pass, uint32_t instr);
cu_ptr fcp_cuda_mark_at(const fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue);
fcp_code fcp_cuda_mark(fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue, uint32_t value, fcp_error *err);
/* Where a queue of a rank of this process is, read while it runs or hangs. False: not of this process, or nothing ran. */
typedef enum fcp_cuda_progress { FCP_CUDA_BEFORE, FCP_CUDA_IN, FCP_CUDA_BEHIND } fcp_cuda_progress;
typedef struct fcp_cuda_place {
    uint32_t rank, instr, stage, round; /* instr: in the queue. BEFORE: its first one, BEHIND: its last. round: FCP_NONE if it has none */
    fcp_pass pass;
    fcp_queue queue;
    fcp_op op;
    fcp_cuda_progress progress;
} fcp_cuda_place;
bool fcp_cuda_where(const fcp_cuda_session *s, uint32_t rank, fcp_queue queue, fcp_cuda_place *out);
/* Of the ranks of this process that wait for none of the others, the one in the earliest stage. False: all have ended. */
bool fcp_cuda_furthest(const fcp_cuda_session *s, fcp_cuda_place *out);
enum { FCP_CUDA_PLACE = 200 };
void fcp_cuda_place_text(const fcp_cuda_session *s, const fcp_cuda_place *at, char text[FCP_CUDA_PLACE]);
/* Puts that place before the message of an error that does not name one ("rank ..."). Returns the code. */
fcp_code fcp_cuda_fail_where(const fcp_cuda_session *s, fcp_code code, fcp_error *err);

/* --- record.c: a pass between home blocks and home blocks, put into the ranks' streams, after the origin and before
 * it goes on. It touches the arenas alone. `graph`: it becomes one. */
fcp_code fcp_cuda_record(fcp_cuda_session *s, fcp_pass pass, cuda_device *origin_device, cu_stream origin, bool graph,
                         fcp_error *err);

/* --- early.c: results that go out beside the last stage: those of rounds [from, to) of a pass. */
typedef struct cuda_early_rounds {
    uint32_t from, to;
} cuda_early_rounds;
cuda_early_rounds fcp_cuda_early_rounds(const fcp_plan *plan, fcp_pass pass);
static inline bool fcp_cuda_is_early(const cuda_early_rounds *rounds, const fcp_instr *launch) {
    return launch->c >= rounds->from && launch->c < rounds->to;
}
/* Of a rank whose slots are laid out: which, and when. */
fcp_code fcp_cuda_early_find(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_error *err);
/* In recording, where `after` is reached: they are made ready in the communication stream, behind `prepared`; in a graph an
 * event says so, outside it too. */
fcp_code fcp_cuda_early_ready(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, cu_event prepared, fcp_error *err);
/* Puts them into callers' tensors, once the pass has been put into the origin: the ranks' communication streams are where
 * `after` is, or are to be, if it was a graph. `host`: stages follow. */
fcp_code fcp_cuda_early_move(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool graph, bool host, fcp_error *err);

/* --- transport_nccl.c: a process a rank; every function but the first three is for sessions with s->nccl. */
/* Which rank this is, on which device; NCCL is loaded. */
fcp_code fcp_cuda_nccl_place(fcp_cuda_session *s, const fcp_start *start, fcp_error *err);
/* The rank's communicator, on its device, which is open. */
fcp_code fcp_cuda_nccl_connect(fcp_cuda_session *s, const fcp_start *start, fcp_error *err);
/* Every rank tells the others the plan that it is to run, options and `made`, what has become of that so far: an error that
 * names the first rank that differs, or that failed; *err stays where this one did. It may be done again, for another plan. Then
 * each pair that will talk does so once. */
fcp_code fcp_cuda_nccl_agree(fcp_cuda_session *s, const fcp_plan *plan, fcp_code made, fcp_error *err);
/* Bytes of the device's for what ranks tell each other; for a tensor that lies in host memory, in whatever pass it is moved, and
 * those that there are. */
size_t fcp_cuda_nccl_scratch(const fcp_cuda_session *s);
size_t fcp_cuda_nccl_staged(const fcp_cuda_session *s, fcp_tensor t, size_t *out_held);
/* Memory for all of those. */
fcp_code fcp_cuda_nccl_stage_open(fcp_cuda_session *s, fcp_error *err);
/* The same of a plan that this rank refuses, whatever the others do. True: all of them do, and nothing has changed. */
bool fcp_cuda_nccl_refuse(fcp_cuda_session *s, const fcp_plan *plan, fcp_code code);
/* The arena, in place of one that there was: nothing of that is under way. */
fcp_code fcp_cuda_nccl_memory(fcp_cuda_session *s, cuda_rank *rank, fcp_error *err);
/* The transfers of a LAUNCH as one group; `tensors` (of IN and OUT): the caller's, on the device. */
fcp_code fcp_cuda_nccl_group(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const fcp_instr *launch,
                             const fcp_tensors *tensors, fcp_error *err);
/* So many more instructions are about to be put into the rank's streams: waits, within the timeout, until they do not hold so many
 * that the driver would wait instead of taking more, which no timeout would end. */
fcp_code fcp_cuda_nccl_pace(fcp_cuda_session *s, uint32_t instructions, fcp_error *err);
/* Tensors in host memory get a place on the device where other ranks are sent of them: *out is the tensors as the reshuffle is
 * to take them. Inputs are put there before IN, outputs fetched after OUT. */
fcp_code fcp_cuda_nccl_stage_in(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_tensors *out,
                                fcp_error *err);
fcp_code fcp_cuda_nccl_stage_out(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, const fcp_tensors *staged,
                                 fcp_error *err);
/* An error of the communicator's, which shows itself whenever it does; none of one that has been aborted. */
fcp_code fcp_cuda_nccl_watch(fcp_cuda_session *s, const char *what, fcp_error *err);
/* Ends what is under way; nothing can be sent any more. Graphs with transfers are destroyed. */
void fcp_cuda_nccl_abort(fcp_cuda_session *s);
/* Graphs are destroyed, and everything has been waited for. */
void fcp_cuda_nccl_close(fcp_cuda_session *s);
/* Bytes of each rank, FCP_GATHER_BYTES at most, to all: all has `bytes` of each. */
fcp_code fcp_cuda_nccl_gather(fcp_cuda_session *s, const void *mine, size_t bytes, void *all, fcp_error *err);
/* Bytes of rank `from` to rank 0, both of which do it. */
fcp_code fcp_cuda_nccl_collect(fcp_cuda_session *s, uint32_t from, void *memory, size_t bytes, fcp_error *err);

/* --- reshuffle.c: callers' tensors. */
/* Where they lie, and whether that will do; *out_host: some are in host memory. */
fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err);
/* IN or OUT, in the homes' communication streams: of OUT what goes out early, or the rest. */
fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err);
#endif
