/* rendezvous.h: how the processes of a plan, one a rank, find each other.
 *
 * A process has to learn two things: which rank it is, and an id of 128 bytes that rank 0 has made and all others need.
 * NCCL joins processes that come with the same id; nothing here knows what the id is for.
 */
#ifndef FCP_RENDEZVOUS_RENDEZVOUS_H
#define FCP_RENDEZVOUS_RENDEZVOUS_H
#include "runtime/base/interrupt.h"
#include "runtime/fcp.h"

/* Which process this is. */
typedef struct fcp_place {
    uint32_t rank, ranks, local; /* local: its number among the processes of this machine, as far as anybody says */
    bool mpi;                    /* a launcher of MPI started it, so that MPI can send the id */
    const char *from;            /* who says so, for messages: "torchrun"; static */
    fcp_interrupt *interrupt;    /* asked in waits for others, which then end with FCP_E_INTERRUPTED; NULL: nobody is */
} fcp_place;

/* Finds out which rank this process is: from `start` if that says it, else from the environment. A plan of one rank
 * needs no such information. `ranks` and `gpus` (per node) are the plan's. FCP_E_START: the rank is not known, or there
 * are not as many processes as the plan has ranks. */
fcp_code fcp_place_find(const fcp_start *start, uint32_t ranks, uint32_t gpus, fcp_place *out_place, fcp_error *err);

/* Gives rank 0's `id` to all ranks; in rank 0 it is read, in the others written. It is the caller's id if `start` has
 * one; else it is sent through the file that `start` names; else through MPI. FCP_E_START: it did not arrive within
 * timeout_s, or there is no way to send it. */
fcp_code fcp_id_share(const fcp_place *place, const fcp_start *start, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                      fcp_error *err);

/* by_file.c: through files at `path`, in a folder that all processes see. Nobody waits for another longer than
 * timeout_s. */
fcp_code fcp_id_by_file(const fcp_place *place, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                        fcp_error *err);
/* by_mpi.c: through MPI_Bcast of whichever MPI is there. MPI has no timeout. */
fcp_code fcp_id_by_mpi(const fcp_place *place, uint8_t id[FCP_ID_BYTES], fcp_error *err);
#endif
