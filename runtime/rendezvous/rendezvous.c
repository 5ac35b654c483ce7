/* rendezvous.c: finds out which rank this process is, and chooses the way by which the id goes round.
 *
 * Requires: nothing.
 * Order:    one launcher may have started another: torchrun inside a Slurm job, say. The inner one knows which rank
 *           this is, so torchrun is asked before Open MPI, Open MPI before MPICH, and Slurm last, because it sets its
 *           variables in every process of a job.
 */
#include "runtime/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A launcher and the environment variables that it sets: the rank, the number of processes, and the rank on this
 * machine. A launcher whose `size` is NULL does not say how many processes there are. */
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

/* Reads the number in an environment variable. False: the variable is not set; or it holds no number, and then *code
 * is set. */
static bool read_number(const char *name, uint32_t *out, fcp_code *code, fcp_error *err) {
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > UINT32_MAX / 2) {
        *code = fcp_fail(err, FCP_E_START, "the environment's %s is \"%.60s\", which is no number of a process", name,
                         text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* Asks one launcher. *found: it started this process, and *out says where; else *out is not touched. */
static fcp_code ask_launcher(const launcher *l, uint32_t ranks, uint32_t gpus, fcp_place *out, bool *found,
                             fcp_error *err) {
    fcp_code code = FCP_OK;
    fcp_place p = {.mpi = l->mpi, .from = l->name};
    uint32_t size = ranks;
    bool rank = read_number(l->rank, &p.rank, &code, err);
    if (code || !rank) return code;
    bool sized = read_number(l->size, &size, &code, err);
    if (code || (l->size && !sized)) return code;
    bool local = read_number(l->local, &p.local, &code, err);
    if (code) return code;
    if (!local) p.local = p.rank % gpus;
    p.ranks = size;
    *found = true;
    *out = p;
    if (size != ranks)
        return fcp_fail(err, FCP_E_START,
                        "the plan has %u ranks, and %s started %u process%s (%s): one process a rank is needed", ranks,
                        l->name, size, size == 1 ? "" : "es", l->size);
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
            return fcp_fail(err, FCP_E_START,
                            "the plan has %u ranks, and there are to be %u processes: one a rank is needed", ranks,
                            start->ranks);
    }
    for (size_t i = 0; !code && !found && i < sizeof launchers / sizeof *launchers; i++)
        code = ask_launcher(&launchers[i], ranks, gpus, &p, &found, err);
    if (code) return code;
    if (!found && ranks > 1)
        return fcp_fail(
            err, FCP_E_START,
            "nothing says which rank this process is: looked for RANK and WORLD_SIZE (torchrun), "
            "OMPI_COMM_WORLD_RANK (Open MPI), PMI_RANK (MPICH), PMIX_RANK and SLURM_PROCID in the environment; start "
            "%u processes with mpirun, srun or torchrun, or use --transport local (cuda) or threads (host)",
            ranks);
    if (p.rank >= ranks)
        return fcp_fail(err, FCP_E_START, "%s says that this process is rank %u, and there are ranks 0 to %u", p.from,
                        p.rank, ranks - 1);
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
    return fcp_fail(err, FCP_E_START,
                    "rank %u of %u, as %s says, has no way to get rank 0's id: name a file that all processes see "
                    "(--id-file PATH), or start them with mpirun",
                    place->rank, place->ranks, place->from);
}
