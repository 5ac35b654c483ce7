/* fcp.h: libfcp, the runtime: load a plan, look at it, execute it.
 *
 * Conventions. Every function that can fail returns fcp_code (FCP_OK is 0) and, when `err` is not NULL, fills it.
 * `out_` parameters are written only on success. Objects made by *_create or *_load are owned by the caller and ended
 * by *_free, which accepts NULL. Nothing prints, exits or keeps global state. A plan is immutable once made and may be
 * used by any number of threads; a session by one thread at a time.
 *
 * Units: lengths in tokens, sizes in bytes, positions from 0.
 */
#ifndef FCP_H
#define FCP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum fcp_code {
    FCP_OK = 0,
#define FCP_ERROR(symbol, code, text) FCP_E_##symbol,
#include "runtime/errors.def"
#undef FCP_ERROR
    FCP_CODE_COUNT
} fcp_code;

/* Where in a plan something went wrong, in numbers; the message says the same in words. */
#define FCP_NOWHERE UINT32_MAX /* a number that does not apply, or is not known */
typedef struct fcp_where {
    uint32_t rank;
    uint32_t pass;        /* an fcp_pass */
    uint32_t stage;
    uint32_t queue;       /* 0: the rank's compute queue; 1: its communication queue */
    uint32_t instruction; /* counted from 0 in that queue and pass */
} fcp_where;
#define FCP_WHERE_NONE ((fcp_where){FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE})

/* An error. `file`, and `line` and `column` (from 1), say where in a text or file it is: "" and 0 when it is in none.
 * `where` says where in a plan it is. */
typedef struct fcp_error {
    fcp_code code;
    uint32_t line, column;
    fcp_where where;
    char file[240];
    char message[520];
} fcp_error;

const char *fcp_code_name(fcp_code code);  /* "E200"; "ok" for FCP_OK */
const char *fcp_code_text(fcp_code code);  /* what it means, in English */
int fcp_code_exit(fcp_code code);          /* the exit status of a program that ends with it: 0, 1, 2 or 3 */

/* Fills *err (when not NULL) with code and a formatted message, and returns code: `return fcp_fail(err, ...)`. */
fcp_code fcp_fail(fcp_error *err, fcp_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with a place in a plan; fcp_fail leaves it FCP_WHERE_NONE. */
fcp_code fcp_fail_at(fcp_error *err, fcp_code code, fcp_where where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

typedef enum fcp_dtype { FCP_FP32, FCP_FP16, FCP_BF16, FCP_DTYPES } fcp_dtype;
typedef enum fcp_pass { FCP_FORWARD, FCP_BACKWARD, FCP_PASSES } fcp_pass;
typedef enum fcp_layout { FCP_LAYOUT_PLANNED, FCP_LAYOUT_CONTIGUOUS, FCP_LAYOUT_ZIGZAG, FCP_LAYOUTS } fcp_layout;
size_t fcp_dtype_size(fcp_dtype t);        /* 4, 2, 2 */
const char *fcp_dtype_name(fcp_dtype t);   /* "fp32", "fp16", "bf16" */

/* --- plans ------------------------------------------------------------------------------------------------------- */

typedef struct fcp_plan fcp_plan;

/* Loads and verifies a plan. The file is treated as hostile: nothing of it is used before it is checked, and the
 * verifier has passed when this returns FCP_OK. */
fcp_code fcp_plan_load(const char *path, fcp_plan **out_plan, fcp_error *err);
/* The same from memory, which is copied. */
fcp_code fcp_plan_load_memory(const void *bytes, size_t size, fcp_plan **out_plan, fcp_error *err);
/* Writes atomically (a temporary file beside `path`, then rename): on any error `path` is as it was. */
fcp_code fcp_plan_save(const fcp_plan *plan, const char *path, fcp_error *err);
void fcp_plan_free(fcp_plan *plan);
/* SHA-256 of the bytes that saving writes: the same for the same plan, on every machine. */
enum { FCP_DIGEST_BYTES = 32 };
fcp_code fcp_plan_digest(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err);

/* The shape a caller needs to make tensors for a plan. */
typedef struct fcp_shape {
    uint32_t ranks, heads, kv_heads, head_dim;
    fcp_dtype dtype;
    fcp_layout layout;
    bool has_pass[FCP_PASSES];
    uint64_t tokens, key_tokens, sequences; /* tokens: of queries */
    double scale; /* multiplies q . k */
} fcp_shape;
void fcp_plan_shape(const fcp_plan *plan, fcp_shape *out_shape);

/* The caller's layout: rank `rank` holds these runs of tokens, in this order, densely. */
typedef struct fcp_span {
    uint32_t sequence;
    uint32_t length;   /* tokens */
    uint64_t start;    /* in the sequence, from its first query or key on */
} fcp_span;
/* Which queries a rank holds (q, o, lse, d_o, dq), and which keys (k, v, dk, dv): the same where every sequence has as
 * many queries as keys. *out_spans points into the plan. Returns the rank's number of tokens. */
uint64_t fcp_plan_layout(const fcp_plan *plan, uint32_t rank, const fcp_span **out_spans, uint32_t *out_count);
uint64_t fcp_plan_layout_keys(const fcp_plan *plan, uint32_t rank, const fcp_span **out_spans, uint32_t *out_count);
/* The packed batch's index of a sequence's first query, and how many it has; of its first key likewise. A sequence that
 * there is not: the total, and 0. */
uint64_t fcp_plan_sequence_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length);
uint64_t fcp_plan_key_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length);
/* The position of a sequence's first query; its keys are at 0, 1, 2, ... */
int64_t fcp_plan_query_position(const fcp_plan *plan, uint32_t sequence);

/* --- execution --------------------------------------------------------------------------------------------------- */

/* One rank's tensors in the caller's layout, dense and row-major; T is the rank's number of queries, S that of keys.
 * q, o, d_o, dq: [T, heads, head_dim]; k, v, dk, dv: [S, kv_heads, head_dim], all of the plan's dtype.
 * lse: [T, heads] float32, natural logarithm; -inf where a row sees nothing (its o is exactly 0). With sinks LSE
 * includes the head's sink z, and is z where a row sees nothing; then also dz[h] = -sum over rows of exp(z[h] - lse)
 * (d_o . o), which a caller computes.
 * Forward reads q k v, writes o lse. Backward reads q k v o lse d_o, writes dq dk dv. Owned by the caller. */
typedef struct fcp_tensors {
    const void *q, *k, *v;
    void *o;
    float *lse;
    const void *d_o;
    void *dq, *dk, *dv;
} fcp_tensors;

typedef struct fcp_session fcp_session;

/* cuda: how attention leaves `margin` multiprocessors (a key of the plan) to communication, in a pass in which ranks of the
 * device send or receive; in another it has all. */
typedef enum fcp_partition {
    FCP_PARTITION_AUTO,  /* as GREEN where that works, else as GRID */
    FCP_PARTITION_NONE,  /* not at all: it has all multiprocessors, always */
    FCP_PARTITION_GRID,  /* it launches no more blocks than fit on the others */
    FCP_PARTITION_GREEN, /* and they run in a green context of the driver's, a partition of those multiprocessors */
    FCP_PARTITIONS
} fcp_partition;
const char *fcp_partition_name(fcp_partition p);                  /* "auto", "none", "grid", "green" */
bool fcp_partition_find(const char *name, fcp_partition *out);
/* Transport "nccl": which rank of the plan this process is, and how the processes find each other. Zeros, and no `start` at
 * all, mean: as mpirun, srun or torchrun say in the environment, and the id by MPI. */
enum { FCP_ID_BYTES = 128 };
typedef struct fcp_start {
    uint32_t ranks, rank; /* processes in all, as many as the plan has ranks, and which this is; ranks 0: the environment's */
    uint32_t device;      /* 1 + the number of the device; 0: the environment's local rank modulo the devices there are */
    const void *id;       /* FCP_ID_BYTES of fcp_start_id, the same in all processes; NULL: by id_file, or by MPI */
    const char *id_file;  /* a path that all processes see, for one run at a time: made, and removed again */
} fcp_start;
/* A new id, which the caller gives to all processes: one for each session that they make together. */
fcp_code fcp_start_id(void *out_id, fcp_error *err);

typedef struct fcp_session_options {
    const char *backend;      /* "host", "cuda" (NULL means host) */
    const char *transport;    /* host: "threads"; cuda: "local", "nccl" (NULL means the first) */
    const fcp_start *start;   /* nccl; NULL: from the environment */
    uint32_t compute_threads; /* how many ranks may compute at once; 0: the processors there are */
    uint32_t timeout_s;       /* a rank that waits this long for a peer fails; 0: 120. While its own process is stopped it
                               * does not wait */
    bool host_tensors;        /* nccl: tensors will lie in host memory: what that takes on the device is counted and held from the
                               * beginning, so that all ranks know where one has too little; else from the first such run on */
    size_t stage_bytes;       /* cuda: of each of a device's two pinned buffers, through which host memory is copied; 0: 4 MiB */
    uint32_t graph_from;      /* cuda: from which run of a pass on it is a graph; 0: 3; UINT32_MAX: never */
    fcp_partition partition;  /* cuda: FCP_PARTITION_GREEN where there can be none is an error, FCP_E_BACKEND or _RUN */
    bool mma_sync;            /* cuda: kernels on mma.sync even where there are others for the device, as for sm_90a */
} fcp_session_options;

/* Makes what a plan needs to run: workers, transport, buffers. The plan must outlive the session.
 * The host backend computes on threads of its own with OpenBLAS on one thread each. How many threads OpenBLAS uses is a
 * setting of the whole process: while a pass runs it is 1, and afterwards what it was before. No more than 32 ranks are
 * inside OpenBLAS at once, over all sessions of the process.
 * The cuda backend with the transport local runs all ranks on the devices of this process, several to a device if need be:
 * rank r on device r modulo their number. With nccl each rank is a process with one device: all of them make their sessions
 * at the same time, of the same plan with the same options (they compare them), run the same passes in the same order, and
 * end their sessions; what one of them does not do the others wait for, at most timeout_s. Of several such sessions of a
 * process one runs at a time. Plans for cuda are bf16 or fp16. A tensor lies in host memory, or in memory of a device that the
 * session uses, there at a multiple of 16 bytes. After an error in a run a session refuses further ones. */
fcp_code fcp_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                            fcp_error *err);
void fcp_session_free(fcp_session *session);
/* A new batch: the session runs another plan from now on, of the same model (heads, kv_heads, head_dim, dtype), passes, ranks,
 * gpus, margin and determinism; lengths, block, placement, fields, and mask and score, may be others. Kernels whose source is
 * the same stay (it depends on the mask, the score, and the power of 16 up to which the longest sequence is), and so do
 * contexts, streams and memory that is large enough; graphs are made anew. It waits for earlier runs. With nccl all
 * processes do it, with the same plan. After FCP_E_ARGUMENT, with nccl of all of them, or FCP_E_NO_MEMORY without nccl the
 * session is what it was; where it is not, its runs say so. Both plans are needed until this has returned, then the one that the session has:
 * fcp_session_plan. */
fcp_code fcp_session_rebind(fcp_session *session, const fcp_plan *plan, fcp_error *err);
const fcp_plan *fcp_session_plan(const fcp_session *session);
/* Which ranks of the plan this process runs: from *out_first on, as many as it returns. All of them, but for "nccl". */
uint32_t fcp_session_ranks(const fcp_session *session, uint32_t *out_first);
/* Runs a pass over all ranks; `tensors` has one entry for each rank of this process. Two runs on the same input give identical bits. On an
 * error the outputs are undefined, and the error names rank, stage and instruction. */
fcp_code fcp_session_run(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err);
/* cuda: the same on a CUstream of the caller's, of a device that the session uses, behind what the stream has. Returns once
 * everything is in the stream; before that only where a tensor lies in host memory, which must then have been read or
 * written: it waits. With nccl it also waits where earlier runs, or earlier instructions of this one, are that many in the
 * streams that the driver would soon wait instead. An error that shows itself later is returned by the stream's next
 * synchronisation, or the next run.
 * CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the caller's current context, a primary one; no stream, NULL, is
 * refused. fcp_session_run follows no stream of the caller's: what it reads on a device is there when it is called. */
fcp_code fcp_session_run_on(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err);
/* cuda: waits for what runs have put into streams, at most timeout_s; with nccl an error of a peer's ends the waiting. */
fcp_code fcp_session_wait(fcp_session *session, fcp_error *err);
/* Something of each process, `bytes` of it (FCP_GATHER_BYTES at most), to all: *out_all has it process by process. With one
 * process it is its own. All processes of the session do it at the same point. */
enum { FCP_GATHER_BYTES = 64 };
fcp_code fcp_session_gather(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err);
/* How many processes the session is of: as many as ranks with "nccl", else 1. */
uint32_t fcp_session_processes(const fcp_session *session);
/* "host", "threads"; "cuda", "local" or "nccl" */
const char *fcp_session_backend(const fcp_session *session);
const char *fcp_session_transport(const fcp_session *session);
/* Which was taken, and in a sentence why; it lives as long as the session. Never AUTO. */
fcp_partition fcp_session_partition(const fcp_session *session, const char **out_why);
/* Something about the session that is right but costs time, the first such: kernels that spill registers, no cache of
 * kernels; "" if there is none. */
const char *fcp_session_warning(const fcp_session *session);

#ifdef __cplusplus
}
#endif
#endif
