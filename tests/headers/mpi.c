/* mpi.c: compares runtime/libraries/mpi_symbols.h with the header of an MPI (Open MPI or a kind of MPICH), as cuda.c
 * does for CUDA. */
#include "runtime/libraries/mpi_symbols.h"

#include <mpi.h>

#include "tests/headers/same.h"

SAME_NUMBER(MPI_DONE, MPI_SUCCESS);
SAME_NUMBER(MPI_SERIALIZED, MPI_THREAD_SERIALIZED);
SAME_NUMBER(MPI_MULTIPLE, MPI_THREAD_MULTIPLE);
_Static_assert(sizeof(MPI_Status) <= FCP_MPI_STATUS, "a status has no room");
#ifdef OPEN_MPI
SAME_TYPE(void *, MPI_Comm);
SAME_TYPE(void *, MPI_Datatype);
SAME_TYPE(void *, MPI_Request);
SAME_TYPE(void *, MPI_Errhandler);
SAME_NUMBER(OPEN_MPI_ANY, MPI_ANY_SOURCE);
#else
SAME_TYPE(int, MPI_Comm);
SAME_TYPE(int, MPI_Datatype);
SAME_TYPE(int, MPI_Request);
SAME_TYPE(int, MPI_Errhandler);
SAME_NUMBER(MPICH_ANY, MPI_ANY_SOURCE);
SAME_NUMBER(MPICH_ERRORS_RETURN, MPI_ERRORS_RETURN);
SAME_NUMBER(MPICH_WORLD, MPI_COMM_WORLD);
SAME_NUMBER(MPICH_BYTE, MPI_BYTE);
#endif
FCP_MPI_SYMBOLS(SAME_FUNCTION, MPI_Comm, MPI_Datatype, MPI_Request, MPI_Errhandler, MPI_Status)

int main(void) {
    static const asked_name required[] = {FCP_MPI_SYMBOLS(ASKED_NAME, , , , , )};
    int wrong = same_names("required", required, sizeof required / sizeof *required);
#ifdef OPEN_MPI
    bool same = (const void *)MPI_COMM_WORLD == (const void *)&ompi_mpi_comm_world &&
                strstr(TEXT_OF(MPI_COMM_WORLD), OPEN_MPI_WORLD) &&
                (const void *)MPI_BYTE == (const void *)&ompi_mpi_byte && strstr(TEXT_OF(MPI_BYTE), OPEN_MPI_BYTE) &&
                (const void *)MPI_ERRORS_RETURN == (const void *)&ompi_mpi_errors_return &&
                strstr(TEXT_OF(MPI_ERRORS_RETURN), OPEN_MPI_ERRORS_RETURN);
    if (!same) fprintf(stderr, "Open MPI's handles are not the addresses of its objects\n");
    wrong += !same;
#endif
    return wrong != 0;
}
