/* executor.h: inside the executor. */
#ifndef FCP_HOST_EXECUTOR_H
#define FCP_HOST_EXECUTOR_H
#include <stdatomic.h>

#include "runtime/host/backend.h"
#include "runtime/base/clock.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/session.h"

typedef struct fcp_exec fcp_exec;

/* One rank: its arena, and how far its two queues are. */
typedef struct fcp_rank {
    struct fcp_exec *session;
    uint32_t index, homes;
    uint64_t home_tokens[FCP_SIDES];
    const uint64_t *home_first[FCP_SIDES]; /* homes + 1, in the session's fcp_homes */
    fcp_slots slots[FCP_PASSES];
    void *memory;                    /* of the arena; serves every pass */
    size_t memory_held;
    fcp_partials partials;
    fcp_arena arena;                 /* of the pass that runs */
    const fcp_tensors *tensors;      /* the caller's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool locks;                      /* lock and condition exist */
    bool prepared;
    uint32_t completed[FCP_QUEUES];  /* instructions */
    fcp_wires wires;                 /* of the group under way */
    _Atomic uint32_t waiting;        /* the round whose group is not complete; FCP_NONE: none */
} fcp_rank;

/* "host". */
extern const fcp_session_kind fcp_session_host;
/* As fcp_session_create, on any backend and with the transport threads: of the options the backend and the transport are not
 * read. Tests run plans on machines of their own in this way. */
fcp_code fcp_session_create_on(const fcp_plan *plan, const fcp_backend *backend, const fcp_session_options *options,
                               fcp_session **out_session, fcp_error *err);
#endif
