/* rendezvous.c: which rank this process is: the caller says, or those who started it do, in the environment.
 *
 * Requires: nothing. Gives: rendezvous.h. Cost: none.
 * Order:    a launcher inside another one is the nearer: torchrun is asked before Open MPI, that before MPICH, and Slurm last,
 *           whose variables are there in every process of a job.
 */
#include "runtime/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A launcher, by the variables that it sets; `size` NULL: it does not say. */
typedef struct launcher {
    const char *name, *rank, *size, *local;
    bool mpi;
} launcher;
static const launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},
    {"PMIx", "PMIX_RANK", NULL, NULL, true},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", true},
};

/* A variable's number. False: it is not set. */
static bool number(const char *name, uint32_t *out, fcp_code *code, fcp_error *err) {
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > UINT32_MAX / 2) {
        *code = fcp_fail(err, FCP_E_START, "the environment's %s is \"%.60s\", which is no number of a process", name, text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static fcp_code ask(const launcher *l, uint32_t ranks, uint32_t gpus, fcp_place *p, bool *found, fcp_error *err) {
    fcp_code code = FCP_OK;
    uint32_t size = ranks;
    bool rank = number(l->rank, &p->rank, &code, err);
    if (code || !rank) return code;
    bool sized = number(l->size, &size, &code, err);
    if (code || (l->size && !sized)) return code;
    *found = true;
    bool local = number(l->local, &p->local, &code, err);
    if (code) return code;
    if (!local) p->local = p->rank % gpus;
    p->ranks = size;
    p->mpi = l->mpi;
    p->from = l->name;
    if (size != ranks)
        return fcp_fail(err, FCP_E_START, "the plan has %u ranks, and %s started %u process%s (%s): one process a rank is needed",
                        ranks, l->name, size, size == 1 ? "" : "es", l->size);
    return FCP_OK;
}

fcp_code fcp_place_find(const fcp_start *start, uint32_t ranks, uint32_t gpus, fcp_place *out_place, fcp_error *err) {
    fcp_place p = {.ranks = ranks, .from = "the caller"};
    bool found = false;
    fcp_code code = FCP_OK;
    if (start && start->ranks) {
        p.rank = start->rank;
        p.local = start->rank % gpus;
        found = true;
        if (start->ranks != ranks)
            return fcp_fail(err, FCP_E_START, "the plan has %u ranks, and there are to be %u processes: one a rank is needed",
                            ranks, start->ranks);
    }
    for (size_t i = 0; !code && !found && i < sizeof launchers / sizeof *launchers; i++)
        code = ask(&launchers[i], ranks, gpus, &p, &found, err);
    if (code) return code;
    if (!found && ranks > 1)
        return fcp_fail(err, FCP_E_START, "nothing says which rank this process is: looked for RANK and WORLD_SIZE (torchrun), "
                        "OMPI_COMM_WORLD_RANK (Open MPI), PMI_RANK (MPICH), PMIX_RANK and SLURM_PROCID in the environment; start "
                        "%u processes with mpirun, srun or torchrun, or use --transport local", ranks);
    if (p.rank >= ranks)
        return fcp_fail(err, FCP_E_START, "%s says that this process is rank %u, and there are ranks 0 to %u", p.from, p.rank,
                        ranks - 1);
    *out_place = p;
    return FCP_OK;
}

fcp_code fcp_id_share(const fcp_place *place, const fcp_start *start, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                      fcp_error *err) {
    if (start && start->id) {
        memcpy(id, start->id, FCP_ID_BYTES);
        return FCP_OK;
    }
    if (place->ranks == 1) return FCP_OK;
    if (start && start->id_file) return fcp_id_by_file(place, start->id_file, timeout_s, id, err);
    if (place->mpi) return fcp_id_by_mpi(place, id, err);
    return fcp_fail(err, FCP_E_START, "rank %u of %u, as %s says, has no way to get NCCL's id: name a file that all processes see "
                    "(--id-file PATH), or start them with mpirun", place->rank, place->ranks, place->from);
}
