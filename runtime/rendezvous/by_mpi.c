/* by_mpi.c: sends an id from rank 0 to all ranks with MPI_Bcast, through whichever MPI started the process.
 *
 * Requires: as fcp_mpi_begin (runtime/libraries/mpi.h).
 * Cost:     the first time, some tenths of a second for MPI_Init. MPI has no timeout: if a rank does not come, it is
 *           mpirun that has to notice.
 */
#include "runtime/libraries/mpi.h"
#include "runtime/rendezvous/rendezvous.h"

fcp_code fcp_id_by_mpi(const fcp_place *place, uint8_t id[FCP_ID_BYTES], fcp_error *err) {
    fcp_code code = fcp_mpi_begin(place->rank, place->ranks, place->from, err);
    if (code) return code;
    return fcp_mpi_broadcast(id, FCP_ID_BYTES) ? FCP_OK : fcp_fail(err, FCP_E_START, "MPI does not send the id");
}
