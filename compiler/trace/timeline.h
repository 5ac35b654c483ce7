/* timeline.h: lists what each rank does when, either as the simulator predicts it or as a session has measured it. Both
 * are lists of the simulator's intervals, so whatever draws one can draw the other. */
#ifndef FCPC_TRACE_TIMELINE_H
#define FCPC_TRACE_TIMELINE_H
#include "compiler/simulate/simulate.h"
#include "runtime/fcp.h"
#include "runtime/plan/instructions.h"

/* Ranks that are drawn: in increasing order, no rank twice. */
typedef struct trace_ranks {
    uint32_t *at, count;
    bool *has; /* one for each rank of the plan */
} trace_ranks;

enum { TRACE_ALL = 64, TRACE_BUSIEST = 8 };
/* Reads which ranks are drawn:
 *   "0,5,8..16"   these; 8..16 is 8 to 15, and without an end it goes to the last rank
 *   "all"         all
 *   "busiest"     the TRACE_BUSIEST ranks that compute longest, and the one in the middle of that order
 *   NULL          all if there are at most TRACE_ALL, else as "busiest"
 * work: how long each rank computes; NULL: the call only checks `typed`. FCP_E_USAGE. */
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

/* The timeline that the simulator predicts, for the ranks that `typed` names (see trace_ranks_read). result: what it
 * has predicted of this plan with the options `how` before. What *out points to is in `memory`. */
fcp_code timeline_predict(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                          const sim_result *result, const char *typed, arena *memory, timeline *out, fcp_error *err);
/* The timeline of the last runs of a session that recorded timings. It must be called in the process that has them,
 * that of rank 0. `typed`: see trace_ranks_read. A pass that was not run has no intervals. FCP_E_ARGUMENT: the session
 * has no timings. */
fcp_code timeline_measure(const fcp_session *session, const char *typed, arena *memory, timeline *out, fcp_error *err);

/* How many pairs, and in how many tiles, an ATTEND computes. */
uint64_t timeline_pairs(const fcp_plan *plan, const fcp_instr *attend, uint64_t *out_tiles);

/* A change of one of a rank's counters, at `time` by `change`. Changes are in order of time; several at the same time
 * are an entry each. */
typedef enum trace_counter { TRACE_SLOTS, TRACE_FLIGHT, TRACE_COUNTERS } trace_counter;
typedef struct trace_change {
    uint64_t time;
    int64_t change;
    trace_counter counter;
    uint32_t what; /* SLOTS: an fcp_class; FLIGHT: an fcp_fabric, and the change is of bytes */
} trace_change;
/* The changes of one rank in one pass: how many transient slots are in use, and how many bytes are on their way to or
 * from the rank. Its intervals are the `count` ones from `first` on. *out is in `memory`. */
fcp_code trace_changes(const timeline *t, uint32_t rank, fcp_pass pass, uint64_t first, uint64_t count, arena *memory,
                       trace_change **out, uint64_t *out_count);
/* trace_memory_base: bytes of a rank's memory that are in use during the whole pass. trace_slot_bytes: bytes of one
 * transient slot of a class. */
uint64_t trace_memory_base(const fcp_plan *plan, fcp_pass pass, uint32_t rank);
uint64_t trace_slot_bytes(const fcp_plan *plan, fcp_pass pass, uint32_t cls);
#endif
