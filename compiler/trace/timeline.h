/* timeline.h: what ranks did when: predicted by the simulator, or measured in a session. Both are lists of the
 * simulator's intervals, so that whoever draws one can draw the other. */
#ifndef FCPC_TRACE_TIMELINE_H
#define FCPC_TRACE_TIMELINE_H
#include "compiler/simulate/simulate.h"
#include "runtime/fcp.h"

/* Ranks that are drawn: in increasing order, no rank twice. */
typedef struct trace_ranks {
    uint32_t *at, count;
    bool *has; /* one for each rank of the plan */
} trace_ranks;

enum { TRACE_ALL = 64, TRACE_BUSIEST = 8 };
/* Reads "0,5,8..16" (8..16 is half-open; a missing end is the last rank), "all", or "busiest": the TRACE_BUSIEST that
 * compute longest, and the one in the middle of that order. NULL: all ranks if there are at most TRACE_ALL, else the
 * busiest. work: how long each rank computes; NULL: it is only asked whether `typed` is right. FCP_E_USAGE. */
fcp_code trace_ranks_read(const fcp_plan *plan, const char *typed, const uint64_t *work, arena *memory,
                          trace_ranks *out, fcp_error *err);

typedef struct timeline {
    const fcp_plan *plan;
    bool measured;
    char source[64];              /* the profile "h200", or the backend that was measured: "host" */
    trace_ranks ranks;
    uint64_t makespan[FCP_PASSES]; /* of all ranks, picoseconds */
    sim_interval *at;             /* in order of (rank, pass, lane, start) */
    uint64_t count;
} timeline;

/* The timeline as the simulator predicts it, of the ranks that `typed` says (trace_ranks_read). result: what it has
 * predicted of the plan with these options already (NULL: none). What *out points to is in `memory`. */
fcp_code timeline_predict(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                          const sim_result *result, const char *typed, arena *memory, timeline *out, fcp_error *err);
/* The timeline of the last runs of a session that recorded timings, in the process that has them (rank 0's); `typed` as
 * in trace_ranks_read. Of a pass that was not run there are no intervals. FCP_E_ARGUMENT: the session has no
 * timings. */
fcp_code timeline_measure(const fcp_session *session, const char *typed, arena *memory, timeline *out, fcp_error *err);

/* A counter of a rank: at `time` it changes by `change`. In order of time; changes that come together are one entry
 * each. */
typedef enum trace_counter { TRACE_SLOTS, TRACE_FLIGHT, TRACE_COUNTERS } trace_counter;
typedef struct trace_change {
    uint64_t time;
    int64_t change;
    trace_counter counter;
    uint32_t what; /* SLOTS: an fcp_class; FLIGHT: an fcp_fabric, and the change is of bytes */
} trace_change;
/* The changes of one rank in one pass: how many transient slots are in use, and how many bytes are on their way to or
 * from the rank. `first` and `count`: its intervals. *out is in `memory`. */
fcp_code trace_changes(const timeline *t, uint32_t rank, fcp_pass pass, uint64_t first, uint64_t count, arena *memory,
                       trace_change **out, uint64_t *out_count);
/* Bytes of a rank's arena that are in use all the time, and those of one transient slot of a class. */
uint64_t trace_memory_base(const fcp_plan *plan, fcp_pass pass, uint32_t rank);
uint64_t trace_slot_bytes(const fcp_plan *plan, fcp_pass pass, uint32_t cls);
#endif
