/* transport_tcp.h: the transport "tcp" of the host: every rank is a process, whoever started it. */
#ifndef FCP_HOST_TRANSPORT_TCP_H
#define FCP_HOST_TRANSPORT_TCP_H
#include "runtime/exec/transport.h"

extern const fcp_transport fcp_transport_tcp;
#endif
