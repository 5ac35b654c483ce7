/* mpi.c: a library with a few functions of MPI, for tests that send an id by MPI on machines that have none, or
 * another one.
 *
 * It is built twice: with Open MPI's handles, which are pointers to objects, and with MPICH's, which are integers
 * (MPI_OPEN says which). A broadcast is a file, $STANDIN_MPI, that rank 0 writes before the other ranks run. A test
 * chooses it with FCP_MPI.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/libraries/mpi_symbols.h"

#ifdef MPI_OPEN
typedef void *handle;
typedef fcp_open_mpi symbols;
extern char ompi_mpi_comm_world[8], ompi_mpi_byte[8];
char ompi_mpi_comm_world[8], ompi_mpi_byte[8];
#define WORLD ((handle)ompi_mpi_comm_world)
#define BYTE ((handle)ompi_mpi_byte)
#else
typedef int handle;
typedef fcp_mpich symbols;
#define WORLD MPICH_WORLD
#define BYTE MPICH_BYTE
#endif

int MPI_Init(int *argc, char ***argv);
int MPI_Initialized(int *flag);
int MPI_Finalized(int *flag);
int MPI_Finalize(void);
int MPI_Comm_rank(handle comm, int *rank);
int MPI_Comm_size(handle comm, int *size);
int MPI_Bcast(void *bytes, int count, handle type, int root, handle comm);
/* Makes the compiler check that the functions have the types that callers think they have. */
static const symbols table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_MPI_SYMBOLS(X, handle, handle)
#undef X
};

static int begun, ended;

static int number(const char *name, int none) {
    const char *text = getenv(name);
    return text ? atoi(text) : none;
}
int MPI_Init(int *argc, char ***argv) {
    if (argc || argv || begun) return 1;
    begun = 1;
    return 0;
}
int MPI_Initialized(int *flag) {
    *flag = begun;
    return 0;
}
int MPI_Finalized(int *flag) {
    *flag = ended;
    return 0;
}
int MPI_Finalize(void) {
    if (!begun || ended) return 1;
    ended = 1;
    return 0;
}
int MPI_Comm_rank(handle comm, int *rank) {
    if (comm != WORLD || !begun || ended) return 1;
    *rank = number("STANDIN_MPI_RANK", 0);
    return 0;
}
int MPI_Comm_size(handle comm, int *size) {
    if (comm != WORLD || !begun || ended) return 1;
    *size = number("STANDIN_MPI_SIZE", 1);
    return 0;
}
int MPI_Bcast(void *bytes, int count, handle type, int root, handle comm) {
    const char *path = getenv("STANDIN_MPI");
    int writes = number("STANDIN_MPI_RANK", 0) == root;
    if (comm != WORLD || type != BYTE || !begun || ended || root || !path) return 1;
    FILE *f = fopen(path, writes ? "wb" : "rb");
    if (!f) return 1;
    size_t done = writes ? fwrite(bytes, 1, (size_t)count, f) : fread(bytes, 1, (size_t)count, f);
    return fclose(f) || done != (size_t)count;
}
