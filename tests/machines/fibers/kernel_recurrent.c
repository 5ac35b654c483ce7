/* kernel_recurrent.c: compiles the kernels of layers that recur for the machine of fibers. No plan changes them, so
 * there is one build. */
#include "tests/machines/fibers/fibers.h"
#include "tests/machines/fibers/prim_host.h"

#include "codegen/kernels/recurrent_kernels.h"

static void run_move(const void *launch) { fk_rows_move(*(const fk_rows_launch *)launch); }
static void run_add(const void *launch) { fk_rows_add(*(const fk_rows_launch *)launch); }
static void run_scaled(const void *launch) { fk_scan_scaled(*(const fk_scan_launch *)launch); }
static void run_matrix(const void *launch) { fk_scan_matrix(*(const fk_scan_launch *)launch); }

const fibers_recurrent fibers_recurrent_kernels = {.rows_move = {run_move, FK_SUPPORT_THREADS, 0, 1},
                                                   .rows_add = {run_add, FK_SUPPORT_THREADS, 0, 1},
                                                   .scan_scaled = {run_scaled, FK_SUPPORT_THREADS, 0, 1},
                                                   .scan_matrix = {run_matrix, FK_SUPPORT_THREADS, FK_SCAN_SHARED, 1}};
