/* session_on.h: sessions of the host's executor on any backend, in one process. */
#ifndef SESSION_ON_H
#define SESSION_ON_H
#include "runtime/host/executor.h"

static inline fcp_code session_on(const fcp_plan *plan, const fcp_backend *backend, const fcp_session_options *options,
                                  fcp_session **out_session, fcp_error *err) {
    return fcp_executor_create(plan, backend, &fcp_transport_threads, options, NULL, out_session, err);
}
#endif
