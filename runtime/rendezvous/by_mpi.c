/* by_mpi.c: sends an id from rank 0 to all ranks with MPI_Bcast, through whichever MPI started the process.
 *
 * Requires: a process started by mpirun or srun, in which nobody has called MPI_Finalize. If the caller has not
 *           called MPI_Init either, both are called here; a process can do that only once.
 * Gives:    rendezvous.h.
 * Method:   no MPI is linked: its functions are found by name, in the process itself or in a library. Their handles
 *           differ. In Open MPI a communicator is a pointer to an object that has a symbol of its own; in MPICH and
 *           its relatives it is an integer with a fixed value. So the symbols that are there tell which kind of MPI
 *           it is.
 * Cost:     some tenths of a second for MPI_Init. MPI has no timeout: if a rank does not come, it is mpirun that has
 *           to notice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/libraries/mpi_symbols.h"
#include "runtime/libraries/shared_library.h"
#include "runtime/rendezvous/rendezvous.h"

static const char *const symbols[] = {
#define X(name, type) #name,
    FCP_MPI_SYMBOLS(X, , )
#undef X
};
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols };
static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so", NULL};
static const fcp_library library = {
    "MPI",         "FCP_MPI",
    names,         symbols,
    SYMBOL_COUNT,  "install the MPI that mpirun is of, or name a file that all processes see (--id-file PATH)",
    .global = true};

typedef struct mpi {
    fcp_open_mpi open;
    fcp_mpich mpich;
    void *world, *byte; /* Open MPI's handles; NULL: it is MPICH, whose handles are integers */
} mpi;
_Static_assert(sizeof(fcp_open_mpi) == SYMBOL_COUNT * sizeof(void (*)(void)) &&
                   sizeof(fcp_mpich) == sizeof(fcp_open_mpi),
               "the tables hold pointers and nothing else");

/* What MPI_Initialized or MPI_Finalized says; 0 if the call fails. */
static int ask_flag(int (*call)(int *)) {
    int flag = 0;
    return call(&flag) == MPI_DONE ? flag : 0;
}
static int ask_rank(const mpi *m, int *out) {
    return m->world ? m->open.rank(m->world, out) : m->mpich.rank(MPICH_WORLD, out);
}
static int ask_size(const mpi *m, int *out) {
    return m->world ? m->open.size(m->world, out) : m->mpich.size(MPICH_WORLD, out);
}
static int broadcast(const mpi *m, void *bytes, int count) {
    return m->world ? m->open.broadcast(bytes, count, m->byte, 0, m->world)
                    : m->mpich.broadcast(bytes, count, MPICH_BYTE, 0, MPICH_WORLD);
}

/* Finds MPI's functions: in the process itself if it has them all, else in a library that is loaded. */
static fcp_code load(mpi *m, fcp_error *err) {
    char *path = NULL;
    bool own = true;
    void (*table[SYMBOL_COUNT])(void);
    for (int i = 0; i < SYMBOL_COUNT; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, symbols[i]);
        own = own && symbol;
        memcpy(&table[i], &symbol, sizeof symbol);
    }
    fcp_code code = own ? FCP_OK : fcp_library_load(&library, table, &path, err);
    free(path);
    if (code) return FCP_E_START;
    memcpy(&m->open, table, sizeof table);
    memcpy(&m->mpich, table, sizeof table);
    /* RTLD_DEFAULT also sees a library that was just loaded, because library.global is set. */
    m->world = dlsym(RTLD_DEFAULT, OPEN_MPI_WORLD);
    m->byte = dlsym(RTLD_DEFAULT, OPEN_MPI_BYTE);
    if (!m->world != !m->byte) return fcp_fail(err, FCP_E_START, "MPI is neither Open MPI nor of MPICH's kind");
    return FCP_OK;
}

fcp_code fcp_id_by_mpi(const fcp_place *place, uint8_t id[FCP_ID_BYTES], fcp_error *err) {
    mpi m;
    int rank = -1, size = -1;
    fcp_code code = load(&m, err);
    if (code) {
        if (err) err->code = code;
        return code;
    }
    bool begun = ask_flag(m.open.initialized);
    if (ask_flag(m.open.finalized))
        return fcp_fail(err, FCP_E_START,
                        "MPI has been ended in this process and cannot be begun again: keep it, or hand in the "
                        "id");
    if (!begun && m.open.init(NULL, NULL))
        return fcp_fail(err, FCP_E_START, "MPI does not begin");
    if (ask_rank(&m, &rank) || ask_size(&m, &size))
        code = fcp_fail(err, FCP_E_START, "MPI does not say which process this is");
    else if (size < 0 || (uint32_t)size != place->ranks || rank < 0 || (uint32_t)rank != place->rank)
        code = fcp_fail(err, FCP_E_START,
                        "MPI says that this is process %d of %d, and %s that it is %u of %u: is it the MPI that "
                        "started it?",
                        rank, size, place->from, place->rank, place->ranks);
    else if (broadcast(&m, id, FCP_ID_BYTES)) code = fcp_fail(err, FCP_E_START, "MPI does not send the id");
    if (!begun) m.open.finalize();
    return code;
}
