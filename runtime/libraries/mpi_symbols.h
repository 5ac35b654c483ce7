/* mpi_symbols.h: the functions of MPI that are used, declared here so that no MPI is needed to build.
 *
 * There are two kinds of MPI, with different handles. In Open MPI a communicator or a type is a pointer to an object
 * with a symbol of its own; in MPICH and its relatives it is an integer with a fixed value. So there is a table of
 * functions for each kind. A status of either fits into FCP_MPI_STATUS bytes.
 */
#ifndef FCP_LIBRARIES_MPI_SYMBOLS_H
#define FCP_LIBRARIES_MPI_SYMBOLS_H

/* X(symbol, type of the pointer). The others are the C types of handles, and of a status. */
#define FCP_MPI_SYMBOLS(X, COMM, TYPE, REQUEST, ERRORS, STATUS)                                                        \
    X(MPI_Init_thread, int (*init)(int *, char ***, int, int *))                                                       \
    X(MPI_Initialized, int (*initialized)(int *))                                                                      \
    X(MPI_Query_thread, int (*query_thread)(int *))                                                                    \
    X(MPI_Finalized, int (*finalized)(int *))                                                                          \
    X(MPI_Finalize, int (*finalize)(void))                                                                             \
    X(MPI_Comm_rank, int (*rank)(COMM, int *))                                                                         \
    X(MPI_Comm_size, int (*size)(COMM, int *))                                                                         \
    X(MPI_Comm_idup, int (*idup)(COMM, COMM *, REQUEST *))                                                             \
    X(MPI_Comm_free, int (*comm_free)(COMM *))                                                                         \
    X(MPI_Comm_set_errhandler, int (*set_errhandler)(COMM, ERRORS))                                                    \
    X(MPI_Bcast, int (*broadcast)(void *, int, TYPE, int, COMM))                                                       \
    X(MPI_Isend, int (*send)(const void *, int, TYPE, int, int, COMM, REQUEST *))                                      \
    X(MPI_Irecv, int (*receive)(void *, int, TYPE, int, int, COMM, REQUEST *))                                         \
    X(MPI_Iallgather, int (*gather)(const void *, int, TYPE, void *, int, TYPE, COMM, REQUEST *))                      \
    X(MPI_Test, int (*test)(REQUEST *, int *, STATUS *))                                                               \
    X(MPI_Cancel, int (*cancel)(REQUEST *))                                                                            \
    X(MPI_Wait, int (*wait)(REQUEST *, STATUS *))

#define X(name, type) type;
typedef struct fcp_open_mpi {
    FCP_MPI_SYMBOLS(X, void *, void *, void *, void *, void)
} fcp_open_mpi;
typedef struct fcp_mpich {
    FCP_MPI_SYMBOLS(X, int, int, int, int, void)
} fcp_mpich;
#undef X

enum { MPI_DONE = 0, MPI_SERIALIZED = 2, MPI_MULTIPLE = 3, FCP_MPI_STATUS = 64 };
/* What MPI_ANY_SOURCE is, and handles that are there from the start. */
enum { OPEN_MPI_ANY = -1 };
enum { MPICH_ANY = -2, MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d, MPICH_ERRORS_RETURN = 0x54000001 };
#define OPEN_MPI_WORLD "ompi_mpi_comm_world"
#define OPEN_MPI_BYTE "ompi_mpi_byte"
#define OPEN_MPI_ERRORS_RETURN "ompi_mpi_errors_return"
#endif
