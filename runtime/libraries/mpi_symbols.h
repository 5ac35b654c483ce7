/* mpi_symbols.h: the functions of MPI that are used, declared here so that no MPI is needed to build.
 *
 * The two kinds of MPI have different handles. In Open MPI a communicator or a type is a pointer to an object with a
 * symbol of its own; in MPICH and its relatives it is an integer with a fixed value. So there is a table of functions
 * for each.
 */
#ifndef FCP_LIBRARIES_MPI_SYMBOLS_H
#define FCP_LIBRARIES_MPI_SYMBOLS_H

/* X(symbol, type of the pointer). COMM and TYPE are the C types of the handles of communicators and of data types. */
#define FCP_MPI_SYMBOLS(X, COMM, TYPE)                                                                                 \
    X(MPI_Init, int (*init)(int *, char ***))                                                                          \
    X(MPI_Initialized, int (*initialized)(int *))                                                                      \
    X(MPI_Finalized, int (*finalized)(int *))                                                                          \
    X(MPI_Finalize, int (*finalize)(void))                                                                             \
    X(MPI_Comm_rank, int (*rank)(COMM, int *))                                                                         \
    X(MPI_Comm_size, int (*size)(COMM, int *))                                                                         \
    X(MPI_Bcast, int (*broadcast)(void *, int, TYPE, int, COMM))

#define X(name, type) type;
typedef struct fcp_open_mpi {
    FCP_MPI_SYMBOLS(X, void *, void *)
} fcp_open_mpi;
typedef struct fcp_mpich {
    FCP_MPI_SYMBOLS(X, int, int)
} fcp_mpich;
#undef X

enum { MPI_DONE = 0, MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d };
#define OPEN_MPI_WORLD "ompi_mpi_comm_world"
#define OPEN_MPI_BYTE "ompi_mpi_byte"
#endif
