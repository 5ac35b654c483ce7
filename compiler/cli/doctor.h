/* doctor.h: what `fcpc doctor` finds on this machine, a part at a time. cmd_doctor.c looks and prints; doctor_machine.c
 * knows the system and asks Python. */
#ifndef FCPC_CLI_DOCTOR_H
#define FCPC_CLI_DOCTOR_H
#include "compiler/cli/cmd.h"

/* What fcpc is used for: a name for JSON, and the words of a report. */
#define DOCTOR_USES(X)                                                                                                 \
    X(HOST, "host", "running plans on the processor")                                                                  \
    X(CUDA, "cuda", "running plans on GPUs")                                                                           \
    X(NCCL, "nccl", "GPUs of several processes (--transport nccl)")                                                    \
    X(MPI, "mpi", "processes started by mpirun (--transport mpi)")                                                     \
    X(PYTHON, "python", "from Python")                                                                                 \
    X(PNG, "png", "pictures as PNG (show --png)")                                                                      \
    X(COST, "cost", "counting machine code (emit --cost)")
typedef enum doctor_use {
#define X(id, name, words) DOCTOR_##id,
    DOCTOR_USES(X)
#undef X
        DOCTOR_USES_COUNT
} doctor_use;

/* One thing that was looked for. */
typedef struct doctor_part {
    doctor_use use;
    const char *name;   /* "OpenBLAS" */
    bool there, needed; /* needed: the use does not work without it */
    char version[200];  /* what it says that it is; "" if it is not there */
    char file[300];     /* "": none, or it is not known */
    fcp_error why;      /* if it is not there: what was looked for, and what to do */
} doctor_part;

enum { DOCTOR_PARTS = 40 };
typedef struct doctor_report {
    char system[300], processors[300];
    doctor_part part[DOCTOR_PARTS];
    size_t count;
} doctor_report;

/* Adds a part, or nothing if there are too many. */
void doctor_add(doctor_report *r, const doctor_part *part);
/* Fills `system` and `processors`. */
void doctor_machine(doctor_report *r);
/* Adds Python, and the packages of it that matter here. It asks the interpreter that FCPC_PYTHON names, or python3.
 * Takes as long as Python takes to start. */
void doctor_python(doctor_report *r);
#endif
