/* executor.h: sessions on the host. */
#ifndef FCP_HOST_EXECUTOR_H
#define FCP_HOST_EXECUTOR_H
#include <stdatomic.h>

#include "runtime/host/backend.h"
#include "runtime/base/clock.h"
#include "runtime/exec/partials.h"
#include "runtime/exec/session.h"

typedef struct fcp_exec fcp_exec;

/* One rank: its memory, and how far its two queues have come. */
typedef struct fcp_rank {
    struct fcp_exec *session;
    uint32_t index;
    fcp_slots slots[FCP_PASSES];
    void *memory;                    /* of the arena; large enough for every pass */
    size_t memory_held;              /* bytes of it */
    fcp_partials partials;
    fcp_arena arena;                 /* of the pass that runs */
    double *table;                   /* fcp_tensors.table of the run; NULL: no run has had one */
    struct fcp_sums *d_table;        /* likewise */
    const fcp_tensors *tensors;      /* the caller's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool locks;                      /* lock and changed exist */
    bool prepared;                   /* outputs have their first values */
    uint32_t completed[FCP_QUEUES];  /* instructions */
    fcp_wires wires;                 /* of the group under way */
    _Atomic uint32_t waiting;        /* the round in which it waits for its group; FCP_NONE: it does not */
} fcp_rank;

/* The table of the backend "host". */
extern const fcp_session_kind fcp_session_host;
/* As fcp_session_create, but on the given backend, and always with the transport "threads". Tests use it (see
 * backend.h). options->size, backend, transport and start are not read; options may be NULL. */
fcp_code fcp_session_create_on(const fcp_plan *plan, const fcp_backend *backend, const fcp_session_options *options,
                               fcp_session **out_session, fcp_error *err);
#endif
