/* transports.h: the transports of sessions on CUDA devices. */
#ifndef FCP_CUDA_TRANSPORTS_H
#define FCP_CUDA_TRANSPORTS_H
#include "runtime/exec/transport.h"

extern const fcp_transport fcp_transport_local; /* all ranks in this process: copies between devices */
extern const fcp_transport fcp_transport_nccl;  /* every rank is a process with one device: groups of NCCL */
#endif
