/* session.h: the inside of a session. There are a few kinds ("host", "cuda"), and each is a table of functions.
 *
 * The public functions of fcp.h (runtime/session.c) check their arguments and call the table. The table's functions do
 * not check again: the plan they get is verified.
 */
#ifndef FCP_EXEC_SESSION_H
#define FCP_EXEC_SESSION_H
#include "runtime/base/interrupt.h"
#include "runtime/exec/transport.h"

/* What a session asks of its caller, from its options on. */
static inline fcp_interrupt fcp_interrupt_of(const fcp_session_options *options) {
    fcp_interrupt x = {.asked = options->interrupted, .context = options->interrupted_context};
    fcp_interrupt_begin(&x);
    return x;
}

typedef struct fcp_session_kind {
    const char *name;                        /* what options->backend says */
    const fcp_transport *const *transports;  /* those it can use, the usual one first; NULL ends the list */
    bool streams;                            /* a caller may name a stream to run on */
    bool sinks, tables;                      /* they may be a run's own, and have gradients */

    /* Makes a session.
     *   options   complete: as large as this library's structure, with 0 for what the caller left out; likewise the
     *             fcp_start that they point to
     *   lender    NULL, or a session of the same kind, ranks and transport that outlives the new one. The new session
     *             may compute in its arenas, and leaves as many SMs to communication as it does (`margin`) */
    fcp_code (*create)(const fcp_plan *plan, const fcp_session_options *options, const fcp_transport *transport,
                       fcp_session *lender, fcp_session **out_session, fcp_error *err);
    void (*free)(fcp_session *session);
    /* Runs a pass on this process's ranks; `tensors` has one entry for each of them. `stream` is the caller's. If it
     * is NULL, the session uses its own, and the run has ended when this returns. */
    fcp_code (*run)(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err);
    /* What fcp_session_halo, _halo_gradient and _scan do. The session is that of the plan which has this layer, of this
     * kind and with this pass, and is not always the first one. Tensors that are needed are there, and fcp_session.rows
     * is filled. NULL: the kind has no layers that recur. */
    fcp_code (*halo)(fcp_session *session, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks, void *stream,
                     fcp_error *err);
    fcp_code (*halo_gradient)(fcp_session *session, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                              const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err);
    fcp_code (*scan)(fcp_session *session, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, void *stream,
                     fcp_error *err);
    /* Waits for all runs. NULL: runs have ended when they return. */
    fcp_code (*wait)(fcp_session *session, fcp_error *err);
    /* Takes another plan of the same model and ranks. After an error the session has its old plan, or refuses all
     * further runs. */
    fcp_code (*rebind)(fcp_session *session, const fcp_plan *plan, fcp_error *err);
    /* This process refuses the plan to rebind to, with that error; where ranks are processes the others are told. */
    void (*refuse)(fcp_session *session, const fcp_plan *plan, const fcp_error *why);
    /* As the transport's, while no run is under way. */
    fcp_code (*gather)(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err);
    fcp_code (*collect)(fcp_session *session, uint32_t from, void *memory, size_t bytes, fcp_error *err);
    /* How attention and communication share a device, and why so. NULL: there is no device to share. */
    fcp_partition (*partition)(const fcp_session *session, const char **out_why);
    /* Returns whether ATTENDs of a pass are one launch where they can be. NULL: never. */
    bool (*fused)(const fcp_session *session, fcp_pass pass);
    /* 1 + the device of this process. NULL: it has none, or several. */
    uint32_t (*device)(const fcp_session *session);
    /* As fcp_session_warning. NULL: there is never one. */
    const char *(*warning)(const fcp_session *session);
} fcp_session_kind;

/* What a session with the option `timings` records of its runs: fcp_session_timings. The kinds fill it. */
typedef struct fcp_times {
    fcp_timing *instrs;  /* one for each instruction of the plan */
    uint64_t *transfers; /* when each transfer of the plan ended, in nanoseconds since the run began */
    uint64_t began;      /* of the run under way, as fcp_clock_ns has it; for kinds that read the clock */
    bool ran[FCP_PASSES], collected;
} fcp_times;

/* How many tokens and stretches a rank has: the sizes of the tensors of layers that recur. */
typedef struct fcp_rank_rows {
    uint64_t tokens;
    uint32_t stretches;
} fcp_rank_rows;

/* The plans of a session. Each plan has a session of the same kind, with work lists, streams and connections of its
 * own. The session of the first plan is the one that the caller has. It lends its arenas to the others; they can
 * share, because one plan runs at a time, and each run writes into an arena before it reads there. Only
 * runtime/session.c uses this list. */
typedef struct fcp_session_plans {
    fcp_session **parts;
    uint32_t count, now; /* now: the part that runs */
    bool interrupted;    /* by the caller, and the other processes wait for this one no more */
    const fcp_session *ran; /* the part whose K and V are in the arenas, since its last run; NULL: nobody's */
    const fcp_transport *transport;
    fcp_session_options options; /* start: not kept */
} fcp_session_plans;

/* The base of every session. */
struct fcp_session {
    const fcp_session_kind *kind;
    const fcp_plan *plan;
    fcp_net *net;
    uint32_t first_rank, rank_count; /* the ranks of the plan that are this process's: the net's */
    /* The SMs that attention leaves to communication, whichever plan runs: the margin of the first plan. Streams,
     * green contexts and NCCL's communicators were made with it. */
    uint32_t margin;
    uint32_t timeout_s;              /* how long a wait may last in which nothing goes on */
    bool keys_kept;                  /* the run uses the K and V of the run before (kept_keys.h) */
    bool captured;                   /* graphs of the caller's may run the plan at any time */
    bool looked, keys_stay;          /* fcp_keys_stay has been asked about the plan, and what it said */
    fcp_interrupt interrupt;         /* runtime/session.c begins it with each function that may take long */
    fcp_times *times;                /* NULL: nothing is recorded */
    bool placed;                     /* `homes` is fcp_plan_homes of the plan */
    uint8_t homes[FCP_DIGEST_BYTES];
    fcp_rank_rows *rows;             /* of this process's ranks; NULL: no layer that recurs has run so far */
    fcp_session_plans *plans;        /* of a session that a caller has; NULL in the others */
    fcp_session *lender;             /* whose arenas it uses; NULL: it has its own */
};
/* The session of the plan that runs next. */
static inline fcp_session *fcp_session_now(const fcp_session *s) {
    return s->plans ? s->plans->parts[s->plans->now] : (fcp_session *)s;
}
#endif
