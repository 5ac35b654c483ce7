/* kernel_sm90.c: the skeletons for sm_90a, compiled for the machine of fibers (fibers.h).
 *
 * This file is compiled several times: for each size of heads that these skeletons have, each input type, and with and
 * without a score. kernel.c, compiled with the same settings, defines a table, whose name is FK_TABLE. It points to the
 * functions here, and their names begin with its name.
 *
 * Requires: FK_HEAD_DIM, FK_VALUE_DIM, FK_BF16, FK_HAS_SCORE, FK_TABLE.
 */
#include "tests/machines/fibers/fibers.h"
#include "tests/machines/fibers/prim_host.h"
#include "tests/machines/fibers/mask_host.h" /* after the primitives */

#include "codegen/kernels/common.h"
#include "codegen/kernels/tiles_sm90.h"
#define FK_FORWARD_SM90 1
#include "codegen/kernels/forward_rows.h"
#include "codegen/kernels/forward_sm90.h"
#include "codegen/kernels/backward_steps.h"
#define FK_ORDERED 1
#include "codegen/kernels/backward_sm90.h"
#undef FK_ORDERED
#define FK_ORDERED 0
#include "codegen/kernels/backward_sm90.h"

#define FIBERS_RUN_FORWARD FIBERS_NAME(FK_TABLE, _forward_sm90)
void FIBERS_RUN_FORWARD(const void *launch);
void FIBERS_RUN_FORWARD(const void *launch) { fk_forward_sm90(*(const fk_launch_maps *)launch); }

#if FK_HAS_BACKWARD_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
#define FIBERS_RUN_ORDERED FIBERS_NAME(FK_TABLE, _ordered_sm90)
#define FIBERS_RUN_UNORDERED FIBERS_NAME(FK_TABLE, _unordered_sm90)
void FIBERS_RUN_ORDERED(const void *launch);
void FIBERS_RUN_ORDERED(const void *launch) { fk_backward_ordered_sm90(*(const fk_launch_maps *)launch); }
void FIBERS_RUN_UNORDERED(const void *launch);
void FIBERS_RUN_UNORDERED(const void *launch) { fk_backward_unordered_sm90(*(const fk_launch_maps *)launch); }
#endif
