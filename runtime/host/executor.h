/* executor.h: sessions that compute on the processors of this machine (the backend "host"), and their transports. */
#ifndef FCP_HOST_EXECUTOR_H
#define FCP_HOST_EXECUTOR_H
#include "runtime/exec/session.h"
#include "runtime/host/backend.h"

/* The table of the backend "host". */
extern const fcp_session_kind fcp_session_host;
/* The transports in host memory: between ranks of one process; and between processes, which mpirun or srun has started
 * (mpi), or whoever did (tcp). */
extern const fcp_transport fcp_transport_threads, fcp_transport_mpi, fcp_transport_tcp;
/* As fcp_session_create, but with this backend and transport: options->size, backend and transport are not read.
 * `options` may be NULL. `lender` is a session whose memory this one uses, or NULL. */
fcp_code fcp_executor_create(const fcp_plan *plan, const fcp_backend *backend, const fcp_transport *transport,
                             const fcp_session_options *options, fcp_session *lender, fcp_session **out_session,
                             fcp_error *err);
#endif
