/* rendezvous.h: how the processes of a plan, one a rank, find each other: which rank this is, and an id that rank 0 makes and all
 * get. It knows nothing of what the id is for. */
#ifndef FCP_RENDEZVOUS_RENDEZVOUS_H
#define FCP_RENDEZVOUS_RENDEZVOUS_H
#include "runtime/fcp.h"

/* Which process this is. */
typedef struct fcp_place {
    uint32_t rank, ranks, local; /* local: which of the processes of this machine, as far as is known */
    bool mpi;                    /* started in such a way that MPI can be asked */
    const char *from;            /* who says so, for messages: "torchrun" */
} fcp_place;

/* As the caller says, or as the environment does; `ranks` and `gpus` are the plan's. FCP_E_START: nobody says, or another
 * number of processes than the plan has ranks. */
fcp_code fcp_place_find(const fcp_start *start, uint32_t ranks, uint32_t gpus, fcp_place *out_place, fcp_error *err);

/* `id` of rank 0 becomes every rank's: the caller's, else by the file, else by MPI. FCP_E_START: not within timeout_s, or no
 * way is there. */
fcp_code fcp_id_share(const fcp_place *place, const fcp_start *start, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                      fcp_error *err);

/* --- by_file.c: by a file that all processes see */
fcp_code fcp_id_by_file(const fcp_place *place, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                        fcp_error *err);
/* --- by_mpi.c: by MPI, whichever is there */
fcp_code fcp_id_by_mpi(const fcp_place *place, uint8_t id[FCP_ID_BYTES], fcp_error *err);
#endif
