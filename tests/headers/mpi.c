/* mpi.c: runtime/libraries/mpi_symbols.h against the header of an MPI, Open MPI or one of MPICH's kind, as cuda.c. */
#include "runtime/libraries/mpi_symbols.h"

#include <mpi.h>

#include "tests/headers/same.h"

SAME_NUMBER(MPI_DONE, MPI_SUCCESS);
#ifdef OPEN_MPI
SAME_TYPE(void *, MPI_Comm);
SAME_TYPE(void *, MPI_Datatype);
#else
SAME_TYPE(int, MPI_Comm);
SAME_TYPE(int, MPI_Datatype);
SAME_NUMBER(MPICH_WORLD, MPI_COMM_WORLD);
SAME_NUMBER(MPICH_BYTE, MPI_BYTE);
#endif
FCP_MPI_SYMBOLS(SAME_FUNCTION, MPI_Comm, MPI_Datatype)

int main(void) {
    static const asked_name required[] = {FCP_MPI_SYMBOLS(ASKED_NAME, , )};
    int wrong = same_names("required", required, sizeof required / sizeof *required);
#ifdef OPEN_MPI
    bool same = (const void *)MPI_COMM_WORLD == (const void *)&ompi_mpi_comm_world &&
                strstr(TEXT_OF(MPI_COMM_WORLD), OPEN_MPI_WORLD) &&
                (const void *)MPI_BYTE == (const void *)&ompi_mpi_byte && strstr(TEXT_OF(MPI_BYTE), OPEN_MPI_BYTE);
    if (!same) fprintf(stderr, "Open MPI's handles are not the addresses of its objects\n");
    wrong += !same;
#endif
    return wrong != 0;
}
