/* mpi_symbols.h: MPI by its symbols. What handles are differs: in Open MPI pointers to objects that have symbols of their own, in
 * MPICH and its kin integers of fixed value. */
#ifndef FCP_LIBRARIES_MPI_SYMBOLS_H
#define FCP_LIBRARIES_MPI_SYMBOLS_H

/* symbol, type of the pointer; COMM, TYPE: what handles of communicators and of types of data are */
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
