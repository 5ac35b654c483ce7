/* faults.h: reports faults of masks and scores, such as a division by zero. */
#ifndef FCPC_PROBLEM_FAULTS_H
#define FCPC_PROBLEM_FAULTS_H
#include "compiler/cells/cells.h"
#include "compiler/planning/planning.h"

/* The code that faults: the plan's mask, or the code that finds the faults of its score (program.check). */
typedef enum faults_of { FAULTS_MASK, FAULTS_SCORE } faults_of;

/* Reports a fault that a pair of sequence `sequence` reaches; `code` is what cells_grid or cells_count returned.
 * Returns the code of the error, FCP_E_NO_MEMORY where there was no memory to word it. */
fcp_code faults_report(planning *x, fcp_code code, faults_of of, uint32_t sequence, const cells_fault *fault);
#endif
