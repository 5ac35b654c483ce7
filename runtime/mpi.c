/* mpi.c: an id from rank 0 to all ranks by MPI, whichever one started the process.
 *
 * Requires: a process started by mpirun or srun; the caller has not finalised MPI. Gives: start.h. If the caller has not
 *           begun MPI it is begun and ended here, which a process can do once.
 * Method:   MPI is loaded by its symbols. What handles are differs: in Open MPI pointers to objects that have symbols of their
 *           own, in MPICH and its kin integers of fixed value. The symbols tell which it is.
 * Cost:     beginning MPI: some tenths of a second. MPI knows no timeout: a rank that does not come is mpirun's to notice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "shared_library.h"
#include "start.h"

enum { MPI_INIT, MPI_INITIALIZED, MPI_FINALIZED, MPI_FINALIZE, MPI_RANK, MPI_SIZE, MPI_BCAST, MPI_SYMBOLS };
static const char *const symbols[MPI_SYMBOLS] = {"MPI_Init",      "MPI_Initialized", "MPI_Finalized", "MPI_Finalize",
                                                 "MPI_Comm_rank", "MPI_Comm_size",   "MPI_Bcast"};
static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so", NULL};
static const fcp_library library = {"MPI", "FCP_MPI", names, symbols, MPI_SYMBOLS,
                                    "install the MPI that mpirun is of, or name a file that all processes see (--id-file PATH)",
                                    .global = true};

typedef void (*any_function)(void);
typedef struct mpi {
    any_function call[MPI_SYMBOLS];
    void *world, *byte; /* Open MPI's handles; NULL: MPICH's are integers */
} mpi;
enum { MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d };

static int ask_flag(const mpi *m, int which) {
    int flag = 0;
    return ((int (*)(int *))m->call[which])(&flag) ? 0 : flag;
}
static int ask_world(const mpi *m, int which, int *out) {
    return m->world ? ((int (*)(void *, int *))m->call[which])(m->world, out)
                    : ((int (*)(int, int *))m->call[which])(MPICH_WORLD, out);
}
static int broadcast(const mpi *m, void *bytes, int count) {
    return m->world ? ((int (*)(void *, int, void *, int, void *))m->call[MPI_BCAST])(bytes, count, m->byte, 0, m->world)
                    : ((int (*)(void *, int, int, int, int))m->call[MPI_BCAST])(bytes, count, MPICH_BYTE, 0, MPICH_WORLD);
}

/* Those of the process itself, where it has them, else of a library. */
static fcp_code load(mpi *m, fcp_error *err) {
    char *path = NULL;
    bool own = true;
    for (int i = 0; i < MPI_SYMBOLS; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, symbols[i]);
        own = own && symbol;
        memcpy(&m->call[i], &symbol, sizeof symbol);
    }
    fcp_code code = own ? FCP_OK : fcp_library_load(&library, m->call, &path, err);
    free(path);
    if (code) return FCP_E_START;
    m->world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"); /* a library of MPI's is loaded for all to see */
    m->byte = dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
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
    bool begun = ask_flag(&m, MPI_INITIALIZED);
    if (ask_flag(&m, MPI_FINALIZED))
        return fcp_fail(err, FCP_E_START, "MPI has been ended in this process and cannot be begun again: keep it, or hand in the "
                        "id");
    if (!begun && ((int (*)(int *, char ***))m.call[MPI_INIT])(NULL, NULL))
        return fcp_fail(err, FCP_E_START, "MPI does not begin");
    if (ask_world(&m, MPI_RANK, &rank) || ask_world(&m, MPI_SIZE, &size))
        code = fcp_fail(err, FCP_E_START, "MPI does not say which process this is");
    else if (size < 0 || (uint32_t)size != place->ranks || rank < 0 || (uint32_t)rank != place->rank)
        code = fcp_fail(err, FCP_E_START, "MPI says that this is process %d of %d, and %s that it is %u of %u: is it the MPI that "
                        "started it?", rank, size, place->from, place->rank, place->ranks);
    else if (broadcast(&m, id, FCP_ID_BYTES)) code = fcp_fail(err, FCP_E_START, "MPI does not send the id");
    if (!begun) ((int (*)(void))m.call[MPI_FINALIZE])();
    return code;
}
