/* executor.h: sessions on the host. */
#ifndef FCP_HOST_EXECUTOR_H
#define FCP_HOST_EXECUTOR_H
#include "runtime/exec/session.h"
#include "runtime/host/backend.h"

/* The table of the backend "host". */
extern const fcp_session_kind fcp_session_host;
/* As fcp_session_create, but on the given backend, and always with the transport "threads". Tests use it (see
 * backend.h). options->size, backend, transport and start are not read; options may be NULL. */
fcp_code fcp_session_create_on(const fcp_plan *plan, const fcp_backend *backend, const fcp_session_options *options,
                               fcp_session **out_session, fcp_error *err);
#endif
