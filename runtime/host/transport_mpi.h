/* transport_mpi.h: the transport "mpi" of the host: every rank is a process that mpirun or srun has started. */
#ifndef FCP_HOST_TRANSPORT_MPI_H
#define FCP_HOST_TRANSPORT_MPI_H
#include "runtime/exec/transport.h"

extern const fcp_transport fcp_transport_mpi;
#endif
