/* transport_threads.h: the transport between ranks of one process that compute in host memory. */
#ifndef FCP_HOST_TRANSPORT_THREADS_H
#define FCP_HOST_TRANSPORT_THREADS_H
#include "runtime/exec/transport.h"

extern const fcp_transport fcp_transport_threads;
#endif
